"""energy-I-Score on tables with real holes: which imputer is best where the truth is not known.

`python benchmarks/real_holes.py --data-dir FOLDER`: every table of the folder whose name ends in _missing.csv.gz, at most
1,000 of its rows (the same for all), 20 draws, the five columns with most missing cells, 300 of their observed cells drawn
again. IterativeImputer gets categories as numbers, and its draws of them are rounded.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import peers
from boards import parser_of, run_all, written
from peers import cpu_seconds, peak_memory
from store import Cell, found

from unfade import Recoverer
from unfade.data.dataset import read
from unfade.diagnostics.imputation_score import chained_regression, column_draws, score
from unfade.io.tables import read_table

BOARD, METHODS = "real_holes", ("unfade", "mice cart", "mice pmm", "miceforest", "IterativeImputer", "column draws")
OTHERS = {"IterativeImputer": chained_regression, "column draws": column_draws}
ROWS, DRAWS, COLUMNS, TESTED = 1000, 20, 5, 300


def tables(folder: Path) -> dict[str, Path]:
    """The tables with real holes, the smallest first."""
    paths = sorted(folder.glob("*_missing.csv.gz"), key=lambda path: path.stat().st_size)
    return {path.name.removesuffix("_missing.csv.gz"): path for path in paths}


def load(path: Path, seed: int) -> Any:
    """A table as a pandas frame: columns that unfade would pass through are left out, for all methods."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = read_table(path)
        kept = [column.name for column in read(table).columns if column.kind != "passthrough"]
    rows = np.sort(np.random.default_rng(seed).permutation(len(table))[:ROWS])
    return table.select(kept).take(rows).to_pandas()


def imputer(method: str) -> Any:
    """A function (data, draws, seed) -> completed frames."""
    if method == "unfade":
        return Recoverer(verbose=0)
    if method in OTHERS:
        return OTHERS[method]

    def by_peer(frame: Any, draws: int, seed: int) -> list[Any]:
        """Run the peer in its own process."""
        made = peers.run_frame(method, frame, draws, seed)["draws"]
        return [made.iloc[i * len(frame) : (i + 1) * len(frame)].reset_index(drop=True) for i in range(draws)]

    return by_peer


def run(cell: Cell, path: Path) -> dict[str, Any]:
    """Score one method on one table."""
    started = cpu_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = score(
            imputer(cell.method), load(path, cell.seed), DRAWS, seed=cell.seed, max_columns=COLUMNS, max_rows=TESTED
        )
    return {
        "score": found.score, "columns": float(len(found.columns)), "cpu_seconds": cpu_seconds() - started,
        "memory": peak_memory(), **{f"score of {each.column}": each.score for each in found.columns},
    }  # fmt: skip


def report(names: list[str], methods: list[str], seeds: int) -> str:
    """Scores by table and method, and the mean rank over the tables that all methods have done."""
    lines = ["| table | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    ranks = []
    for name in names:
        stored = [[found(Cell(BOARD, name, "score", seed, method)) for seed in range(seeds)] for method in methods]
        means = np.array([np.mean([each.get("score", np.nan) for each in of]) for of in stored])
        if np.isnan(means).all():
            continue
        shown = [
            "not run" if not any(of) else "failed" if np.isnan(m) else f"{m:.3f}"
            for of, m in zip(stored, means, strict=True)
        ]
        shown[int(np.nanargmin(means))] = f"**{np.nanmin(means):.3f}**"
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
        if np.isfinite(means).all():
            ranks.append(means.argsort().argsort() + 1)
    if ranks:
        lines.append(
            f"| mean rank ({len(ranks)} tables) | " + " | ".join(f"{rank:.2f}" for rank in np.mean(ranks, 0)) + " |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=1)
    parser.add_argument("--tables", nargs="*")
    chosen = parser.parse_args()
    paths = tables(chosen.data_dir) if chosen.data_dir else {}
    names = [name for name in paths if not chosen.tables or name in chosen.tables]
    cells = [
        Cell(BOARD, name, "score", seed, method)
        for seed in range(chosen.seeds)
        for name in names
        for method in chosen.methods
    ]
    if not chosen.report:
        run_all(cells, chosen.jobs, lambda cell: run(cell, paths[cell.table]))
    written(BOARD, report(names, chosen.methods, chosen.seeds))


if __name__ == "__main__":
    main()
