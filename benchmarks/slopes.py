"""Slopes of real tables in pooled intervals: `python benchmarks/slopes.py --data-dir FOLDER`, then `--report`.

Five complete tables, 30 % of the cells taken away (completely at random, or given other columns): the last column is
regressed on the others in 20 completed tables, pooled by Rubin's rules. Written is the share of the slopes of
the full data that lie inside the pooled 95 % intervals, and the intervals' width relative to those of the full data.
"""

from pathlib import Path

import numpy as np
from boards import parser_of, run_all, written
from datasets import corrupted, truth
from methods import METHODS, complete
from pooling import DRAWS, pooled
from report import entry, markdown, mean_line
from store import Cell, found

TABLES = ("concrete", "wine_quality_red", "wine_quality_white", "uci_airfoil", "uci_yacht")
SETTINGS = ("MCAR", "MAR")


def result(folder: Path, cell: Cell) -> dict:
    """Complete a table by a method, and compare pooled slopes with those of the full data."""
    X = truth(cell.table, folder)
    Y, _ = corrupted(X, cell.setting, cell.seed)
    made = complete(cell.method, Y, cell.seed, draws=DRAWS)
    scale = X.std(0)
    full, together = pooled((X / scale)[None]), pooled(made.pop("draws") / scale)
    slopes, low, high = (np.array(values)[1:] for values in (full["estimate"], together["low"], together["high"]))
    width = np.array(full["high"])[1:] - np.array(full["low"])[1:]
    inside = (low <= slopes) & (slopes <= high)
    return {"inside": float(inside.mean()), "slopes": len(slopes), "width": float(((high - low) / width).mean()), **made}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=5)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.set_defaults(methods=["unfade", "IterativeImputer", "miceforest", "mice pmm", "mice cart"])
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.seeds)
    each = [(table, setting) for setting in SETTINGS for table in chosen.tables]
    cells = [[Cell("slopes", t, setting, seed, m) for m in chosen.methods] for t, setting in each for seed in seeds]
    if not chosen.report:
        flat = [cell for case in cells for cell in case]
        run_all(flat, chosen.jobs, lambda cell: result(chosen.data_dir, cell))
    rows = []
    for table, setting in each:
        runs = [[found(Cell("slopes", table, setting, seed, m)) for seed in seeds] for m in chosen.methods]
        rows.append([f"{table}, {setting}", *(entry(results, "inside", digits=2) for results in runs)])
    cases = [[found(cell) for cell in case] for case in cells]
    rows += [mean_line(key, cases) for key in ("inside", "width")] + [mean_line("cpu_seconds", cases, geometric=True)]
    written("slopes", markdown(["", *chosen.methods], rows))


if __name__ == "__main__":
    main()
