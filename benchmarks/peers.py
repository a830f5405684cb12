"""Other imputers, each in an environment of its own under build/peers: `run("miceforest", Y, 20, seed)`.

Those of R need `Rscript` with mice, rpart, nnet and Amelia (Debian: r-cran-mice r-cran-rpart r-cran-nnet r-cran-amelia).
This file is also what runs inside the environments, so it imports nothing but NumPy at the top.
"""

import json
import os
import re
import signal
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
    "IterativeImputer": ["scikit-learn", "pandas<3"],
    "kNN": ["scikit-learn", "pandas<3"],
    "gcimpute": ["gcimpute", "numpy<2", "scipy<1.13", "pandas<3", "scikit-learn"],
    "MIDAS2": ["midasverse-midas", "torch==2.13.0", "pandas<3"],
    "ForestDiffusion": ["ForestDiffusion", "pandas<3"],
}
R_PEERS = ("mice pmm", "mice cart", "Amelia")
LIMIT = 600  # seconds a peer may take


def run(name: str, Y: np.ndarray, draws: int, seed: int, noise: float = 0.0) -> dict[str, Any]:
    """Draws of a peer, (draws, *Y.shape), the seconds it took without the start of its interpreter, and its peak memory.

    noise: sd of the noise, for those that can be told.
    """
    import pandas as pd

    found = run_frame(name, pd.DataFrame(Y, columns=[f"c{i}" for i in range(Y.shape[1])]), draws, seed, noise)
    return {**found, "draws": found["draws"].to_numpy(dtype=float).reshape(draws, *Y.shape)}


def run_frame(name: str, frame: Any, draws: int, seed: int, noise: float = 0.0) -> dict[str, Any]:
    """The same for a pandas frame, whose texts are categories; the draws are one frame, one table below the other."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.csv", Path(folder) / "made.csv"
        frame.to_csv(given, index=False, na_rep="NA", float_format="%.17g")
        command = [name, str(given), str(made), str(draws), str(seed), str(noise)]
        if name in R_PEERS:
            command = ["Rscript", str(Path(__file__).with_suffix(".R")), *command]
        else:
            command = [str(_environment(name)), "-W", "ignore", __file__, *command]
        said, errors = _ran(name, ["/usr/bin/env", "time", "-v", *command] if _TIMED else command)
        return {"draws": pd.read_csv(made), "seconds": json.loads(said[-1])["seconds"], "memory": _peak(errors)}


def _ran(name: str, command: list[str]) -> tuple[list[str], str]:
    """Lines of standard output, and standard error; everything it has started ends with it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=LIMIT)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"{name} failed: {_reason(errors)}")
    return said.splitlines(), errors


_TIMED = Path("/usr/bin/time").exists()


def _peak(said: str) -> float | None:
    """Megabytes, from what `time -v` says."""
    line = next((line for line in said.splitlines() if "Maximum resident" in line), None)
    return line and float(line.rsplit(":", 1)[1]) / 1024


def _reason(said: str) -> str:
    """The end of what it said, without what `time -v` adds."""
    before, *time_said = re.split(r"(Command (?:exited|terminated)[^\n]*)", said, maxsplit=1)
    return f"{before.strip()[-250:]} {time_said[0] if time_said else ''}".strip()


def _environment(name: str) -> Path:
    """The interpreter of a peer's environment, made at first use."""
    folder = ENVIRONMENTS / name
    ready = folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *REQUIREMENTS[name]], check=True)
        ready.touch()
    return folder / "bin/python"


def miceforest(frame: Any, draws: int, seed: int) -> list[Any]:
    """Its default of five rounds."""
    import miceforest as mf

    texts = frame.select_dtypes(exclude="number").columns
    typed = frame.astype(dict.fromkeys(texts, "category"))
    kernel = mf.ImputationKernel(typed, num_datasets=draws, save_all_iterations_data=False, random_state=seed)
    kernel.mice(5)
    return [kernel.complete_data(i) for i in range(draws)]


def iterative_imputer(frame: Any, draws: int, seed: int) -> list[Any]:
    """Posterior samples of scikit-learn's IterativeImputer, one fit a draw."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    fits = (IterativeImputer(sample_posterior=True, random_state=seed + i) for i in range(draws))
    return [imputer.fit_transform(frame) for imputer in fits]


def knn(frame: Any, draws: int, seed: int) -> list[Any]:
    """scikit-learn's KNNImputer of ten neighbours: one guess, the same in every draw."""
    from sklearn.impute import KNNImputer
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(frame)
    filled = scaler.inverse_transform(KNNImputer(n_neighbors=10).fit_transform(scaler.transform(frame)))
    return [filled] * draws


def gcimpute(frame: Any, draws: int, seed: int) -> list[Any]:
    """Multiple imputations of the Gaussian copula."""
    from gcimpute.gaussian_copula import GaussianCopula

    model = GaussianCopula(verbose=0, random_state=seed)
    model.fit(X=frame)
    return list(np.moveaxis(np.asarray(model.sample_imputation(num=draws)), -1, 0))


def midas(frame: Any, draws: int, seed: int) -> list[Any]:
    """Its defaults."""
    import midas2

    model = midas2.MIDAS()
    model.fit(frame, seed=seed)
    return list(model.transform(m=draws))


def forest_diffusion(frame: Any, draws: int, seed: int) -> list[Any]:
    """Its defaults, with the diffusion that can impute."""
    from ForestDiffusion import ForestDiffusionModel

    model = ForestDiffusionModel(frame.to_numpy(dtype=float), diffusion_type="vp", seed=seed)
    return list(model.impute(k=draws))


PEERS = {
    "miceforest": miceforest,
    "IterativeImputer": iterative_imputer,
    "kNN": knn,
    "gcimpute": gcimpute,
    "MIDAS2": midas,
    "ForestDiffusion": forest_diffusion,
}


if __name__ == "__main__":
    import pandas as pd

    name, given, made, draws, seed, _ = sys.argv[1:]
    data = pd.read_csv(given)
    started = time.perf_counter()
    result = PEERS[name](data, int(draws), int(seed))
    print(json.dumps({"seconds": time.perf_counter() - started}))
    pd.concat([pd.DataFrame(np.asarray(t), columns=data.columns) for t in result]).to_csv(made, index=False)
