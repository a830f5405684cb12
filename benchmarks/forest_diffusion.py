"""The imputation table of ForestDiffusion, in its metrics: `python benchmarks/forest_diffusion.py --data-dir FOLDER`.

Jolicoeur-Martineau et al. 2024 (arXiv 2309.09968), and McCarter 2024 (UnmaskingTrees, arXiv 2407.05593) after them. Seeds 0
to 2: 80 % of the rows (stratified where y is a class), 20 % of X missing completely at random, rows of which all of X is
missing left out, y complete as last column, five imputations. Columns are scaled to (0, 1) by the true rows; a class
counts half for each of its indicators. MinMAE: each row's best of five, over all missing cells; AvgMAE: the mean of
five; W: the Wasserstein distance (L1) from the true rows, an assignment, as both sets have as many.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from boards import parser_of, run_all, written
from methods import METHODS, complete
from report import entry, markdown, mean_line
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split
from store import Cell, found

IMPUTATIONS = 5
PUBLISHED = {  # the best figures of the two papers: MinMAE, AvgMAE
    "concrete": (0.023, 0.052),
    "uci_yacht": (0.027, 0.065),
    "uci_airfoil": (0.024, 0.066),
    "wine_quality_red": (0.041, 0.062),
    "wine_quality_white": (0.034, 0.051),
    "breast_cancer_diagnostic": (0.029, 0.036),
    "ionosphere": (0.085, 0.108),
    "sonar": (0.078, 0.087),
    "wheat_seeds": (0.035, 0.054),
    "iris": (0.041, 0.072),
    "wine": (0.079, 0.106),
}
CLASSES = ("breast_cancer_diagnostic", "ionosphere", "sonar", "wheat_seeds", "iris", "wine")  # y is a class
BUNDLED = {"iris": load_iris, "wine": load_wine}
TAKE_TEXT = ("unfade", "MIWAE", "column draws", "miceforest", "mice pmm", "mice cart", "mice rf")
SCORES = ("MinMAE", "AvgMAE", "W")


def load(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return X without constant columns, and y, classes as 0, 1, 2 in the order in which they come."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
    elif folder is None or not (folder / f"{name}.csv.gz").exists():
        raise FileNotFoundError(f"Expected {name}.csv.gz in --data-dir, found none.")
    else:
        frame = pd.read_csv(folder / f"{name}.csv.gz")
        X, y = frame.iloc[:, :-1].to_numpy(dtype=float), frame.iloc[:, -1].to_numpy()
    return X[:, X.std(0) > 0], pd.factorize(y)[0].astype(float) if name in CLASSES else y.astype(float)


def corrupted(name: str, folder: Path | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true training rows, y last, and which cells are missing."""
    X, y = load(name, folder)
    stratify = y if name in CLASSES else None
    X, _, y, _ = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=stratify)
    missing = torch.rand(X.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).numpy() < 0.2
    kept = ~missing.all(1)
    return np.column_stack([X, y])[kept], np.column_stack([missing, np.zeros(len(X), bool)])[kept]


def scaled(values: np.ndarray, truth: np.ndarray, classes: bool) -> np.ndarray:
    """Scale columns to (0, 1) by the truth; of a class in the last column, return indicators of a half."""
    numbers = truth[:, :-1] if classes else truth
    low, width = numbers.min(0), np.ptp(numbers, 0)
    result = (values[..., : numbers.shape[1]] - low) / np.where(width > 0, width, 1)
    indicators = [values[..., -1:] == value for value in np.unique(truth[:, -1])] if classes else []
    return np.concatenate([result, *(0.5 * indicator for indicator in indicators)], -1)


def score(truth: np.ndarray, missing: np.ndarray, draws: np.ndarray, classes: bool) -> dict[str, float]:
    """Score imputations (imputations, rows, columns)."""
    true, made = scaled(truth, truth, classes), scaled(draws, truth, classes)
    error = np.abs(made - true).sum(2)
    distances = (cdist(true, table, "cityblock") for table in made)
    return {
        "MinMAE": float(error.min(0).sum() / missing.sum()),
        "AvgMAE": float(error.sum(1).mean() / missing.sum()),
        "W": float(np.mean([d[linear_sum_assignment(d)].mean() for d in distances])),
    }


def result(folder: Path | None, cell: Cell) -> dict:
    """Impute by a method, to which y is text where it is a class and the method takes text, and score."""
    truth, missing = corrupted(cell.table, folder, cell.seed)
    given = np.where(missing, np.nan, truth)
    classes = cell.table in CLASSES
    text = classes and cell.method in TAKE_TEXT
    frame = pd.DataFrame(given[:, :-1], columns=[f"x{i}" for i in range(given.shape[1] - 1)])
    made = complete(
        cell.method,
        frame.assign(y=[f"class {v:.0f}" for v in truth[:, -1]]) if text else given,
        cell.seed,
        draws=IMPUTATIONS,
    )
    draws = made.pop("draws")
    if text:
        draws = draws[frame.columns].to_numpy(dtype=float).reshape(IMPUTATIONS, len(frame), -1)
    numbers = draws[..., : frame.shape[1]]  # y was given
    target = np.broadcast_to(truth[:, -1:], (IMPUTATIONS, len(frame), 1))
    return {**score(truth, missing, np.concatenate([numbers, target], 2), classes), **made}


def report(tables: list[str], seeds: int, methods: list[str]) -> str:
    """Write a table per metric, the published figures in the last column."""
    parts = []
    for place, metric in enumerate(SCORES):
        rows = []
        for table in tables:
            each = [[found(Cell("forest_diffusion", table, "MCAR 20%", s, m)) for s in range(seeds)] for m in methods]
            best = f"{PUBLISHED[table][place]:.3f}" if place < 2 else ""
            rows.append([table, *(entry(results, metric) for results in each), best])
        parts.append(markdown([metric, *methods, "best published"], rows))
    cells = [[found(Cell("forest_diffusion", t, "MCAR 20%", s, m)) for m in methods] for t in tables for s in range(seeds)]
    costs = [mean_line("cpu_seconds", cells, geometric=True), mean_line("memory", cells)]
    return "\n\n".join([*parts, markdown(["", *methods], costs)]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=3)
    parser.add_argument("--tables", nargs="*", choices=PUBLISHED, default=list(PUBLISHED))
    chosen = parser.parse_args(arguments)
    if chosen.report:
        return written("forest_diffusion", report(chosen.tables, chosen.seeds, chosen.methods))
    cells = [
        Cell("forest_diffusion", table, "MCAR 20%", seed, method)
        for seed in range(chosen.seeds)
        for table in chosen.tables
        for method in chosen.methods
    ]
    run_all(cells, chosen.jobs, lambda cell: result(chosen.data_dir, cell))


if __name__ == "__main__":
    main()
