"""The table of DiffPuter, in its metrics: `python benchmarks/diffputer.py --data-dir FOLDER`.

Zhang et al. 2025 (ICLR, arXiv 2405.20690). 70 % of the rows, chosen by seed 1234, are given with 30 % of the cells missing
at random: three tenths of the columns are seen, those of the others hidden by a logistic model of random weights.
The target, the last column, may drive what is hidden and is not imputed. Ten masks (the paper's are not public: the
seeds here are our own). Columns are standardised by their observed cells; MAE and RMSE are those of the mean of 20 draws
on the hidden cells of these rows. FOLDER holds california.csv.gz, letter.csv.gz, magic.csv.gz, bean.csv.gz; where
california's is not there, the copy that scikit-learn has fetched is taken; tables that are not there are left out.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from boards import parser_of, run_all, written
from methods import METHODS, complete
from report import entry, markdown, mean_line
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.datasets import fetch_california_housing
from store import Cell, found

DRAWS, MISSING, SEEN = 20, 0.3, 0.3
PUBLISHED = {  # DiffPuter's own MAE and RMSE, missing at random, rows that were trained on
    "california": (0.327, 0.571),
    "letter": (0.322, 0.481),
    "magic": (0.297, 0.673),
    "bean": (0.159, 0.352),
}
SCORES = ("MAE", "RMSE")


def load(name: str, folder: Path | None) -> np.ndarray | None:
    """Read a table, its target last as a number; None where it is not there."""
    file = (folder or Path()) / f"{name}.csv.gz"
    if file.exists():
        frame = pd.read_csv(file)
        target = frame.iloc[:, -1]
        numbers = target if pd.api.types.is_numeric_dtype(target) else pd.factorize(target)[0]
        return np.column_stack([frame.iloc[:, :-1].to_numpy(dtype=float), numbers])
    try:
        X, y = (
            fetch_california_housing(return_X_y=True, download_if_missing=False) if name == "california" else (None, None)
        )
    except OSError:
        X = None
    return None if X is None else np.column_stack([X, y])


def given_others(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Hide cells of most columns by a logistic model of the others; the expected share is right in each of them."""
    count = max(int(SEEN * X.shape[1]), 1)
    seen = np.isin(np.arange(X.shape[1]), rng.choice(X.shape[1], count, replace=False))
    score = X[:, seen] @ rng.normal(size=(count, (~seen).sum()))
    score = score / score.std(0, ddof=1)
    hidden = np.zeros(X.shape, bool)
    for column, s in zip(np.nonzero(~seen)[0], score.T, strict=True):
        at = brentq(lambda shift, s=s: expit(s + shift).mean() - MISSING / (1 - SEEN), -500, 500)
        hidden[:, column] = rng.random(len(X)) < expit(s + at)
    return hidden


def corrupted(table: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true rows, standardised by their observed cells, without the target, and which cells are hidden."""
    order = np.random.RandomState(1234).permutation(len(table))
    rows = table[order[: int(0.7 * len(table))]]
    hidden = given_others(rows, np.random.default_rng(seed))[:, :-1]
    observed = np.where(hidden, np.nan, rows[:, :-1])
    return (rows[:, :-1] - np.nanmean(observed, 0)) / np.nanstd(observed, 0), hidden


def result(table: np.ndarray, cell: Cell) -> dict:
    """Impute by a method and score the mean of its draws."""
    truth, hidden = corrupted(table, cell.seed)
    made = complete(cell.method, np.where(hidden, np.nan, truth), cell.seed, draws=DRAWS)
    error = made.pop("draws").mean(0)[hidden] - truth[hidden]
    return {"MAE": float(np.abs(error).mean()), "RMSE": float(np.sqrt((error**2).mean())), **made}


def report(tables: list[str], seeds: int, methods: list[str]) -> str:
    """Write a table per metric, the published figures in the last column."""
    parts = []
    for place, metric in enumerate(SCORES):
        rows = []
        for name in tables:
            each = [[found(Cell("diffputer", name, "MAR 30%", seed, m)) for seed in range(seeds)] for m in methods]
            rows.append([name, *(entry(results, metric) for results in each), f"{PUBLISHED[name][place]:.3f}"])
        parts.append(markdown([metric, *methods, "DiffPuter"], rows))
    cells = [[found(Cell("diffputer", t, "MAR 30%", s, m)) for m in methods] for t in tables for s in range(seeds)]
    costs = [mean_line("cpu_seconds", cells, geometric=True), mean_line("memory", cells)]
    return "\n\n".join([*parts, markdown(["", *methods], costs)]) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=10)
    parser.add_argument("--tables", nargs="*", choices=PUBLISHED, default=list(PUBLISHED))
    chosen = parser.parse_args(arguments)
    if chosen.report:
        return written("diffputer", report(chosen.tables, chosen.seeds, chosen.methods))
    tables = {name: load(name, chosen.data_dir) for name in chosen.tables}
    for name in [name for name, table in tables.items() if table is None]:
        print(f"{name} is left out: expected {name}.csv.gz in --data-dir, found none.", file=sys.stderr)
    cells = [
        Cell("diffputer", name, "MAR 30%", seed, method)
        for seed in range(chosen.seeds)
        for name, table in tables.items()
        if table is not None
        for method in chosen.methods
    ]
    run_all(cells, chosen.jobs, lambda cell: result(tables[cell.table], cell))


if __name__ == "__main__":
    main()
