"""Four tables with texts, further cells taken away: `python benchmarks/categories.py --data-dir FOLDER`, then `--report`.

30 % of the cells are hidden; scored are hidden categories, by the share of 20 draws that name the true one.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from boards import parser_of, run_all, written
from datasets import CATEGORIES, frame_of
from methods import complete
from report import setting_table
from scores import score_categories
from store import Cell

METHODS = ["unfade", "MIWAE", "column draws", "miceforest", "mice pmm", "mice cart", "mice rf"]  # pmm: for numbers alone
SCORES = ("missing: log score", "missing: Brier score")


def result(folder: Path, cell: Cell) -> dict:
    """Run a method on a table and score the categories that it draws."""
    frame = frame_of(cell.table, folder)
    given = hidden(frame, cell.seed)
    made = complete(cell.method, given, cell.seed)
    return {**score_categories(frame, given, made.pop("draws")), **made}


def hidden(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Take 30 % of the cells away."""
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < 0.3)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS)
    parser.add_argument("--tables", nargs="*", choices=CATEGORIES, default=list(CATEGORIES))
    chosen = parser.parse_args(arguments)
    if chosen.report:
        return written(
            "categories", setting_table("categories", chosen.tables, "MCAR", chosen.seeds, chosen.methods, SCORES, SCORES)
        )
    cells = [
        Cell("categories", table, "MCAR", seed, method)
        for seed in range(chosen.seeds)
        for table in chosen.tables
        for method in chosen.methods
    ]
    run_all(cells, chosen.jobs, lambda cell: result(chosen.data_dir, cell))


if __name__ == "__main__":
    main()
