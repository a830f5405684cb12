"""Other imputers, each in an environment of its own under build/peers: `draws = run("miceforest", Y, 20, seed)`.

This file is also what runs inside those environments, so it imports nothing but NumPy at the top.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ENVIRONMENTS = Path("build/peers")
REQUIREMENTS = {
    "miceforest": ["miceforest", "lightgbm<4.7", "pandas<3"],
    "IterativeImputer": ["scikit-learn"],
}


def run(name: str, Y: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, float]:
    """Draws of a peer, (draws, *Y.shape), and the seconds it took, start of the interpreter left out."""
    python = _environment(name)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "Y.npy", Path(folder) / "draws.npy"
        np.save(given, Y)
        command = [python, "-W", "ignore", __file__, name, given, made, str(draws), str(seed)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return np.load(made), json.loads(said.splitlines()[-1])["seconds"]


def _environment(name: str) -> Path:
    """The interpreter of a peer's environment, made at first use."""
    folder = ENVIRONMENTS / name
    ready = folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]], check=True)
        ready.touch()
    return folder / "bin/python"


def miceforest(Y: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Its default of five rounds."""
    import miceforest as mf
    import pandas as pd

    frame = pd.DataFrame(Y, columns=[f"c{i}" for i in range(Y.shape[1])])
    kernel = mf.ImputationKernel(frame, num_datasets=draws, random_state=seed)
    kernel.mice(5)
    return np.stack([kernel.complete_data(i).to_numpy() for i in range(draws)])


def iterative_imputer(Y: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Posterior samples of scikit-learn's IterativeImputer, one fit a draw."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    fits = (IterativeImputer(sample_posterior=True, random_state=seed + i) for i in range(draws))
    return np.stack([imputer.fit_transform(Y) for imputer in fits])


PEERS = {"miceforest": miceforest, "IterativeImputer": iterative_imputer}


if __name__ == "__main__":
    name, given, made, draws, seed = sys.argv[1:]
    data = np.load(given)
    started = time.perf_counter()
    result = PEERS[name](data, int(draws), int(seed))
    print(json.dumps({"seconds": time.perf_counter() - started}))
    np.save(made, result)
