"""One row as the page shows it: its cells, clean values and draws; an image and its draws; a column along its rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unfade.app.jobs import Result
from unfade.app.uploads import Loaded
from unfade.data.containers import open_container
from unfade.estimator import Recoverer
from unfade.inference.draws import Draws

BECAME = {"observed": "unchanged", "denoised": "cleaned", "imputed": "filled", "missing": "still missing"}


@dataclass(frozen=True)
class Cell:
    """A cell of a row: given, whether it was filled or cleaned, its clean value, and the range of its draws."""

    column: str
    came: str
    became: str
    clean: str
    likely: str


@dataclass(frozen=True)
class RowView:
    """A row of a table and its draws."""

    draws: list[dict[str, Any]]
    cells: list[Cell]


def row_view(loaded: Loaded, result: Result, row: int) -> RowView:
    """Draw one row, equal to the file of draws, and summarise the draws per cell."""
    part, rec = loaded.part(row, 1), result.recoverer
    if rec is None:
        return RowView([], [])
    draws = rec.sample(part, result.settings.draws, seed=result.settings.seed, row_ids=[row])
    clean = rec.model_.transform(part, row_ids=[row])
    low, high = draws.interval(0.9)
    changes = draws.changes()[0]
    records = [_record(each) for each in (part, clean, low, high)]
    discrete = {column.name for column in rec.columns_ or () if column.discrete}
    cells = []
    for i, facts in enumerate(loaded.columns):
        came, value, least, largest = (record[facts.name] for record in records)
        likely = ""
        if changes[i] in ("imputed", "denoised"):
            likely = _likeliest(draws, facts.name) if facts.name in discrete else f"{words(least)} to {words(largest)}"
        became = "passthrough" if _passes(rec, i) else BECAME[changes[i]]
        cells.append(Cell(facts.name, words(came), became, words(value), likely))
    return RowView([_record(draw) for draw in draws], cells)


def _passes(rec: Recoverer, column: int) -> bool:
    return rec.columns_ is not None and rec.columns_[column].kind == "passthrough"


def _likeliest(draws: Draws, column: str, most: int = 3) -> str:
    shares, values = draws.probabilities(column)
    order = np.argsort(-shares[0], kind="stable")[:most]
    return ", ".join(f"{words(values[i])} {shares[0, i]:.0%}" for i in order if shares[0, i] > 0)


def _record(table: Any) -> dict[str, Any]:
    """Return the only row of a table, by column."""
    if isinstance(table, np.ndarray):
        return {str(i): float(value) for i, value in enumerate(table[0])}
    return dict(table.to_pylist()[0])


def image_view(loaded: Loaded, result: Result, number: int, one: int) -> list[tuple[str, np.ndarray]]:
    """Return pictures of an image: as given, mean, one draw, standard deviation. None of images with channels."""
    part, rec = loaded.part(number, 1), result.recoverer
    if rec is None or part[0].ndim != 2:
        return []
    draws = rec.sample(part, result.settings.draws, seed=result.settings.seed, row_ids=[number])
    seen = part if np.isfinite(part).any() else draws.values
    low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
    named = {"given": part[0], "mean": draws.mean()[0], f"draw {one}": draws.values[one, 0]}
    pictures = [(name, picture(array, low, high)) for name, array in named.items()]
    deviation = draws.values[:, 0].std(0)
    return [*pictures, ("standard deviation", picture(deviation, 0.0, float(deviation.max())))]


def column_view(
    loaded: Loaded, result: Result, start: int, count: int, j: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers of some rows, the values of a column as given there, and its draws (draws, rows)."""
    part, rec = loaded.part(start, count), result.recoverer
    rows = np.arange(start, start + len(part))
    if rec is None:
        return rows, np.full(len(rows), np.nan), np.full((1, len(rows)), np.nan)
    draws = rec.sample(part, result.settings.draws, seed=result.settings.seed, row_ids=rows.tolist())
    return rows, open_container(part, rec.columns_)[0][:, j], draws.values[:, :, j]


def picture(array: np.ndarray, low: float, high: float, size: int = 160) -> np.ndarray:
    """Convert an image to grey levels (height, width, 3) of about `size` pixels, missing ones in blue."""
    grey = np.clip((array - low) / ((high - low) or 1.0), 0, 1)
    colours = np.where(np.isnan(grey)[..., None], [120, 160, 210], 255 * np.nan_to_num(grey)[..., None])
    times = max(1, size // max(array.shape))
    return np.kron(colours, np.ones((times, times, 1))).astype(np.uint8)


def words(value: Any) -> str:
    """Write a value as text; empty if it is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
