"""Preview of results: some rows before and after with the changed cells, and values of some rows for pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unfade.app.uploads import Loaded
from unfade.data.columns import Column
from unfade.data.containers import open_container
from unfade.inference.draws import Draws

SHOWN = 50  # rows of the table before and after
PICTURED, MOST = 2000, 5_000_000  # rows, and numbers, that pictures of columns are made from
FILLED, CLEANED = "filled", "cleaned"


@dataclass(frozen=True)
class Preview:
    """Some rows of a table before and after, and codes of some rows with their draws.

    rows: numbers of the rows shown; before, after: their cells; changed: what happened to each cell, or "".
    columns, given (rows, columns), drawn (draws, rows, columns): for pictures of columns.
    """

    rows: np.ndarray
    names: tuple[str, ...]
    before: list[list[Any]]
    after: list[list[Any]]
    changed: list[list[str]]
    columns: tuple[Column, ...]
    given: np.ndarray
    drawn: np.ndarray


def preview(loaded: Loaded, clean: Any, draws: Draws, columns: Sequence[Column] | None, noisy: bool) -> Preview | None:
    """Choose the rows that a preview shows: the first that changed; for pictures rows at random. None for images."""
    if not loaded.columns or draws.observed is None:
        return None
    touched = np.arange(loaded.rows) if noisy else np.flatnonzero(~draws.observed.all(1))
    rows = touched[:SHOWN]
    before, after = (_cells(table, rows) for table in (loaded.table, clean))
    names = tuple(column.name for column in loaded.columns)
    after = _rounded(after, before)
    marks = set(loaded.marks)
    changed = [
        [_change(old, new, marks) for old, new in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    ]
    count = max(1, min(PICTURED, MOST // max(1, len(draws) * len(names)), loaded.rows))
    chosen = np.sort(np.random.default_rng(0).permutation(loaded.rows)[:count])
    codes, _ = open_container(_take(loaded.table, chosen), columns)
    kinds = tuple(columns or (Column(name, "continuous") for name in names))
    return Preview(rows, names, before, after, changed, kinds, codes, np.asarray(draws.values[:, chosen]))


def _take(table: Any, rows: np.ndarray) -> Any:
    return table[rows] if isinstance(table, np.ndarray) else table.take(rows)


def _cells(table: Any, rows: np.ndarray) -> list[list[Any]]:
    """Return rows as lists of cells, missing ones as None."""
    part = _take(table, rows)
    if isinstance(part, np.ndarray):
        return [[None if np.isnan(cell) else float(cell) for cell in row] for row in part]
    columns = [column.to_pylist() for column in part.columns]
    return [
        [None if isinstance(cell, float) and np.isnan(cell) else cell for cell in row] for row in zip(*columns, strict=True)
    ]


def _rounded(cells: list[list[Any]], given: list[list[Any]]) -> list[list[Any]]:
    """Round numbers to the decimals that their column was given with."""
    places = [max((_decimals(cell) for cell in column), default=0) for column in zip(*given, strict=True)]
    return [
        [round(cell, most) if isinstance(cell, float) and most else cell for cell, most in zip(row, places, strict=True)]
        for row in cells
    ]


def _decimals(cell: Any) -> int:
    text = repr(cell) if isinstance(cell, float) else ""
    return len(text.partition(".")[2]) if "e" not in text else 17


def _change(old: Any, new: Any, marks: set[str]) -> str:
    """Name what happened to a cell."""
    if old == new:
        return ""
    return FILLED if old is None or str(old) in marks else CLEANED
