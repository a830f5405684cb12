"""Constraints on a real survey: consistency of draws, and what they cost the other columns.

`python benchmarks/constraints.py --data-dir FOLDER`: self-reported and measured heights and weights (mice_selfreport),
1,500 rows, a fifth of the observed cells hidden. With `applicable` (pregnancy is asked of women) and `derived` (body mass
index of measured and of reported values), and without: share of rows in which every constraint holds in every draw, and
CRPS of the hidden cells of the columns that no constraint names (of categories: the energy score).
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from boards import parser_of, run_all, written
from peers import cpu_seconds
from store import Cell, found

from unfade import Recoverer
from unfade.data.dataset import read
from unfade.diagnostics.imputation_score import energy, sample_crps
from unfade.io.tables import read_table

BOARD, METHODS, ROWS, DRAWS = "constraints", ("with", "without"), 1500, 20
APPLICABLE, DERIVED = {"prg": "sex == 'Female'"}, {"bm": "wm / (hm / 100) ** 2", "br": "wr / (hr / 100) ** 2"}
NAMED = {"prg", "sex", "bm", "wm", "hm", "br", "wr", "hr"}


def load(folder: Path, seed: int) -> tuple[Any, Any, np.ndarray]:
    """The table, the table with cells hidden, and which are hidden."""
    frame = read_table(folder / "mice_selfreport_missing.csv.gz").to_pandas()
    frame = frame.drop(
        columns=[name for name in frame if name in ("id", "pop", "src") or name.startswith("Unnamed") or not name]
    )
    rng = np.random.default_rng(seed)
    frame = frame.iloc[np.sort(rng.permutation(len(frame))[:ROWS])].reset_index(drop=True)
    for measured, weight, height in (("bm", "wm", "hm"), ("br", "wr", "hr")):  # stored to one decimal: exact here
        frame[measured] = frame[weight] / (frame[height] / 100) ** 2
    hidden = frame.notna().to_numpy() & (rng.random(frame.shape) < 0.2)
    return frame, frame.mask(hidden), hidden


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Fit with or without constraints, and judge the draws."""
    started = cpu_seconds()
    whole, shown, hidden = load(folder, cell.seed)
    how = {"applicable": APPLICABLE, "derived": DERIVED} if cell.method == "with" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rec = Recoverer(**how, random_state=cell.seed, verbose=0).fit(shown)
        draws = rec.sample(shown, DRAWS)
    good = [consistent(table) for table in draws]
    scores, codes = {}, read(whole, rec.columns_).table()
    for i, column in enumerate(rec.columns_ or ()):
        if column.name in NAMED or column.kind == "passthrough":
            continue
        truth, drawn = codes[hidden[:, i], i], draws.values[:, hidden[:, i], i]
        each = [energy(d, t) for d, t in zip(drawn.T, truth, strict=True)] if column.discrete else sample_crps(drawn, truth)
        scores[column.name] = float(np.mean(each)) / (1.0 if column.discrete else float(np.nanstd(codes[:, i])))
    return {
        "consistent": float(np.mean(np.all(good, 0))), "CRPS": float(np.mean(list(scores.values()))),
        **{f"CRPS of {name}": value for name, value in scores.items()}, "cpu_seconds": cpu_seconds() - started,
    }  # fmt: skip


def consistent(table: Any) -> np.ndarray:
    """Rows in which every constraint holds."""
    good = np.array(table["prg"].notna() == (table["sex"] == "Female"))
    for measured, weight, height in (("bm", "wm", "hm"), ("br", "wr", "hr")):
        good &= np.isclose(table[measured], table[weight] / (table[height] / 100) ** 2, rtol=1e-9)
    return good


def main() -> None:
    """The command."""
    chosen = parser_of(__doc__, METHODS, seeds=3).parse_args()
    cells = [Cell(BOARD, "selfreport", "a fifth hidden", s, m) for s in range(chosen.seeds) for m in chosen.methods]
    if not chosen.report:
        run_all(cells, chosen.jobs, lambda cell: run(cell, chosen.data_dir))
    lines = ["| | consistent rows | CRPS of other columns |", "|---|---|---|"]
    for method in chosen.methods:
        of = [found(cell) for cell in cells if cell.method == method]
        means = [np.mean([each[key] for each in of]) for key in ("consistent", "CRPS")]
        lines.append(f"| {method} constraints | {means[0]:.1%} | {means[1]:.4f} |")
    written(BOARD, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
