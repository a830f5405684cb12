"""Other imputers, each in an environment of its own under build/peers: `run("miceforest", Y, 20, seed)`.

Those of R need `Rscript` with mice, rpart, nnet and Amelia (Debian: r-cran-mice r-cran-rpart r-cran-nnet r-cran-amelia).
This file is also what runs inside the environments, so it imports nothing but NumPy at the top.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ENVIRONMENTS = "build/peers-{}"
REQUIREMENTS = {  # of an environment
    "miceforest": ["miceforest", "lightgbm<4.7", "pandas<3"],
    "sklearn": ["scikit-learn", "pandas<3"],
    "utrees": ["utrees", "pandas<3"],
    "gcimpute": ["gcimpute", "numpy<2", "scipy<1.13", "pandas<3", "scikit-learn"],
    "MIDAS2": ["midasverse-midas", "torch==2.13.0", "pandas<3"],
    "ForestDiffusion": ["ForestDiffusion", "pandas<3"],
}
SHARED = {"IterativeImputer": "sklearn", "kNN": "sklearn"}  # the environments of those without one of their own name
R_PEERS = ("mice pmm", "mice cart", "mice rf", "Amelia")
LIMIT = 300  # CPU seconds that a peer may take


class TooSlow(RuntimeError):
    """A peer was stopped at its limit of CPU seconds."""


def run(name: str, Y: np.ndarray, draws: int, seed: int, noise: float = 0.0) -> dict[str, Any]:
    """Draws of a peer, (draws, *Y.shape), its CPU seconds without imports, and its peak memory in MB.

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
            command = [str(_environment(SHARED.get(name, name))), "-W", "ignore", __file__, *command]
        found = json.loads(_output(name, command)[-1])
        return {**found, "draws": pd.read_csv(made)}


def _output(name: str, command: list[str]) -> list[str]:
    """Lines of standard output; everything it has started ends with it."""
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=alone
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
    try:
        said, errors = process.communicate(timeout=10 * LIMIT)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU):
        raise TooSlow(f"{name} was stopped after {LIMIT} CPU seconds")
    if process.returncode:
        raise RuntimeError(f"{name} failed: {errors.strip()[-250:]}")
    return said.splitlines()


def peak_memory() -> float | None:
    """Megabytes that this process took at most (None where the system does not say)."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


def cpu_seconds() -> float:
    """User and system seconds of this process and of its children so far."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def _environment(name: str) -> Path:
    """The interpreter of a peer's environment, made at first use."""
    folder = Path(ENVIRONMENTS.format(name))
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


def unmasking_trees(frame: Any, draws: int, seed: int) -> list[Any]:
    """Its defaults."""
    from utrees import UnmaskingTrees

    model = UnmaskingTrees(random_state=seed)
    model.fit(frame.to_numpy(dtype=float))
    return list(model.impute(n_impute=draws))


PEERS = {  # the function, and the package that it uses
    "miceforest": (miceforest, "miceforest"),
    "IterativeImputer": (iterative_imputer, "sklearn"),
    "kNN": (knn, "sklearn"),
    "utrees": (unmasking_trees, "utrees"),
    "gcimpute": (gcimpute, "gcimpute"),
    "MIDAS2": (midas, "midas2"),
    "ForestDiffusion": (forest_diffusion, "ForestDiffusion"),
}
DISTRIBUTIONS = {"sklearn": "scikit-learn", "midas2": "midasverse-midas"}


if __name__ == "__main__":
    from importlib import import_module, metadata

    import pandas as pd

    name, given, made, draws, seed, _ = sys.argv[1:]
    data = pd.read_csv(given)
    impute, package = PEERS[name]
    import_module(package)
    started = cpu_seconds()
    result = impute(data, int(draws), int(seed))
    spent, version = cpu_seconds() - started, metadata.version(DISTRIBUTIONS.get(package, package))
    print(json.dumps({"cpu_seconds": spent, "memory": peak_memory(), "version": version}))
    pd.concat([pd.DataFrame(np.asarray(t), columns=data.columns) for t in result]).to_csv(made, index=False)
