"""Other imputers, each in an environment of its own under build/peers: `run("miceforest", Y, 20, seed)`.

Those of R need `Rscript` with mice, rpart and Amelia (Debian: r-cran-mice r-cran-rpart r-cran-amelia). This file is
also what runs inside the environments, so it imports nothing but NumPy at the top.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ENVIRONMENTS = Path("build/peers")
REQUIREMENTS = {
    "miceforest": ["miceforest", "lightgbm<4.7", "pandas<3"],
    "IterativeImputer": ["scikit-learn"],
    "kNN": ["scikit-learn"],
    "gcimpute": ["gcimpute", "numpy<2", "scipy<1.13", "pandas<3", "scikit-learn"],
    "MIDAS2": ["midasverse-midas", "torch==2.13.0", "pandas<3"],
}
R_PEERS = ("mice pmm", "mice cart", "Amelia")
LIMIT = 600  # seconds a peer may take


def run(name: str, Y: np.ndarray, draws: int, seed: int, noise: float = 0.0) -> dict[str, Any]:
    """Draws of a peer, (draws, *Y.shape), the seconds it took without the start of its interpreter, and its peak memory.

    noise: sd of the noise, for those that can be told.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given", Path(folder) / "made"
        options = [str(draws), str(seed), str(noise)]
        if name in R_PEERS:
            np.savetxt(given, Y, delimiter=",", header=",".join(f"c{i}" for i in range(Y.shape[1])), comments="")
            text = given.read_text().replace("nan", "NA")
            given.write_text(text)
            command = ["Rscript", str(Path(__file__).with_suffix(".R")), name, str(given), str(made), *options]
        else:
            np.save(given.with_suffix(".npy"), Y)
            command = [str(_environment(name)), "-W", "ignore", __file__, name, f"{given}.npy", f"{made}.npy", *options]
        ran = subprocess.run(["/usr/bin/env", "time", "-v", *command] if _TIMED else command, check=False,
                             capture_output=True, text=True, timeout=LIMIT)  # fmt: skip
        if ran.returncode:
            raise RuntimeError(f"{name} failed: {ran.stderr[-500:]}")
        seconds = json.loads(ran.stdout.splitlines()[-1])["seconds"]
        values = np.genfromtxt(made, delimiter=",", skip_header=1) if name in R_PEERS else np.load(f"{made}.npy")
        return {"draws": values.reshape(draws, *Y.shape), "seconds": seconds, "memory": _peak(ran.stderr)}


_TIMED = Path("/usr/bin/time").exists()


def _peak(said: str) -> float | None:
    """Megabytes, from what `time -v` says."""
    line = next((line for line in said.splitlines() if "Maximum resident" in line), None)
    return line and float(line.rsplit(":", 1)[1]) / 1024


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


def knn(Y: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """scikit-learn's KNNImputer of ten neighbours: one guess, the same in every draw."""
    from sklearn.impute import KNNImputer
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(Y)
    filled = scaler.inverse_transform(KNNImputer(n_neighbors=10).fit_transform(scaler.transform(Y)))
    return np.repeat(filled[None], draws, 0)


def gcimpute(Y: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Multiple imputations of the Gaussian copula."""
    import pandas as pd
    from gcimpute.gaussian_copula import GaussianCopula

    model = GaussianCopula(verbose=0, random_state=seed)
    model.fit(X=pd.DataFrame(Y))
    return np.moveaxis(np.asarray(model.sample_imputation(num=draws)), -1, 0)


def midas(Y: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Its defaults."""
    import midas2
    import pandas as pd

    model = midas2.MIDAS()
    model.fit(pd.DataFrame(Y, columns=[f"c{i}" for i in range(Y.shape[1])]), seed=seed)
    return np.stack([np.asarray(table, dtype=float) for table in model.transform(m=draws)])


PEERS = {
    "miceforest": miceforest,
    "IterativeImputer": iterative_imputer,
    "kNN": knn,
    "gcimpute": gcimpute,
    "MIDAS2": midas,
}


if __name__ == "__main__":
    name, given, made, draws, seed, _ = sys.argv[1:]
    data = np.load(given)
    started = time.perf_counter()
    result = PEERS[name](data, int(draws), int(seed))
    print(json.dumps({"seconds": time.perf_counter() - started}))
    np.save(made, result)
