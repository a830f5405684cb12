"""Ten complete tables with 30 % of the cells taken away, method by method: `python benchmarks/tables.py --data-dir FOLDER`.

Missing completely at random, given other columns, or with noise of 0.3 sd. 20 draws each; scores on missing cells
in sds of the columns. What is stored under build/scoreboard is not run again; `--report` writes what was run.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from boards import parser_of, run_all, written
from datasets import SETTINGS, TABLES, corrupted, truth
from methods import METHODS, PAPERS, complete
from report import picture, setting_table
from scores import column_units, score
from store import RESULTS, Cell, found

SMALLEST = ("uci_yacht", "uci_energy")  # the tables for ForestDiffusion, which takes long
SCORES = ("missing: CRPS", "missing: energy score")
MEANS = ("missing: RMSE", "missing: CRPS", "missing: coverage", "nominal coverage")
MEANS_OF_OBSERVED = ("observed: RMSE", "observed: CRPS", "observed: coverage")


def result(folder: Path, device: str, steps: int | None, cell: Cell) -> dict:
    """Run a method on a table and score its draws. steps: of networks, at most, but not of the default."""
    X = truth(cell.table, folder)
    Y, noise = corrupted(X, cell.setting, cell.seed)
    options: dict[str, Any] = {"device": device} if device != "cpu" else {}
    if steps and cell.method != "unfade":
        options["max_steps"] = steps
    made = complete(cell.method, Y, cell.seed, noise=noise, **options)
    observed = ~np.isnan(Y)
    return {**score(X, observed, made.pop("draws"), column_units(X, observed)), **made}


def cells_of(chosen: argparse.Namespace) -> list[Cell]:
    """List the cells that are asked for, seed by seed."""
    cells = [
        Cell("tables", table, setting, seed, method)
        for seed in range(chosen.seeds)
        for table in chosen.tables
        for setting in chosen.settings
        for method in chosen.methods
    ]
    return [cell for cell in cells if cell.method != "ForestDiffusion" or cell.table in SMALLEST]


def agreement(cells: list[Cell], method: str = "unfade") -> str:
    """Say how far coverage of held-out cells, as the fit finds it, is from that of missing cells, as shares of nominal."""
    results = [found(cell) for cell in cells if cell.method == method]
    pairs = [
        (r["held out: coverage"] / r["held out: nominal coverage"], r["missing: coverage"] / r["nominal coverage"])
        for r in results
        if "held out: coverage" in r
    ]
    if not pairs:
        return ""
    far = 0.9 * np.subtract(*np.transpose(pairs))
    return (
        f"Coverage of 90 % intervals that {method} finds on held-out cells, less that on missing cells: "
        f"{far.mean():+.3f} on average, {np.abs(far).mean():.3f} in absolute value, over {len(far)} fits.\n"
    )


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, [*METHODS, *PAPERS])
    parser.set_defaults(methods=METHODS)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--steps", type=int, help="of MIWAE and the paper's posteriors at most")
    chosen = parser.parse_args(arguments)
    cells = cells_of(chosen)
    if not chosen.report:
        return run_all(cells, chosen.jobs, lambda cell: result(chosen.data_dir, chosen.device, chosen.steps, cell))
    names = chosen.tables, chosen.seeds, chosen.methods
    parts = [
        setting_table("tables", names[0], s, *names[1:], SCORES, MEANS + (MEANS_OF_OBSERVED if s == "noise" else ()))
        for s in chosen.settings
    ]
    written("tables", "\n".join([*parts, agreement(cells)]))
    picture(RESULTS / "tables.png", "tables", chosen.tables, chosen.settings, *names[1:], SCORES[0])


if __name__ == "__main__":
    main()
