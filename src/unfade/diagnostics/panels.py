"""Panels of pictures, each drawn into given axes: missing cells, coverage, observed and drawn values, pairs, a column."""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from unfade.data.columns import TEMPORAL, Column, value_of
from unfade.diagnostics.plots import DRAWN, SEEN, label
from unfade.inference.held_out import HeldOut

BAND = "#cfe3ec"


def draw_missing(axes: Any, names: Sequence[str], shares: Sequence[float]) -> None:
    """Draw the share of missing cells, a bar per column, the first on top."""
    axes.barh(range(len(names)), list(shares)[::-1], color=SEEN)
    axes.set_yticks(range(len(names)), [label(name, 30) for name in names][::-1])
    axes.set_xlabel("share of cells missing")
    axes.set_xlim(0, max(0.1, max(shares) * 1.05))


def draw_coverage(panels: Any, numbers: HeldOut, bins: int = 10) -> None:
    """Draw ranks of held-out values among their draws, and empirical over nominal coverage."""
    (left, right), places = panels, numbers.places()
    counts = np.histogram(places, bins, (0, 1))[0] / len(places)
    band = 2 * np.sqrt(1 / bins * (1 - 1 / bins) / len(places))
    left.bar(np.arange(bins) / bins + 0.05, counts, 0.09, color=SEEN)
    for edge in (1 / bins - band, 1 / bins + band):
        left.axhline(edge, color="#444", ls="--", lw=1)
    left.set_xlabel("rank of the held-out value among its draws")
    left.set_ylabel("share of cells")
    nominal = np.linspace(0.1, 0.9, 9)
    right.plot([0, 1], [0, 1], color="#999")
    right.plot([numbers.due(p) for p in nominal], [numbers.covered(p).mean() for p in nominal], "o-", color=SEEN)
    right.set_xlabel("nominal coverage")
    right.set_ylabel("empirical coverage")


def draw_values(panel: Any, seen: np.ndarray, drawn: np.ndarray, column: Column) -> None:
    """Draw the distribution of observed values of a column, and that of draws of its missing values."""
    panel.set_title(label(column.name, 26), fontsize=9)
    panel.tick_params(labelsize=7)
    panel.set_yticks([])
    drawn = drawn[np.isfinite(drawn)]
    if column.discrete or (len(np.unique(seen)) <= 12 and np.isin(drawn, seen).all()):
        codes = np.unique(np.concatenate([seen, drawn]))[:12]
        place = np.arange(len(codes))
        panel.bar(place - 0.2, [(seen == c).mean() if len(seen) else 0 for c in codes], 0.4, color=SEEN, label="observed")
        panel.bar(place + 0.2, [(drawn == c).mean() if len(drawn) else 0 for c in codes], 0.4, color=DRAWN, label="drawn")
        names = [str(value_of(c, column)) if column.discrete else moment(c, column) or f"{c:g}" for c in codes]
        panel.set_xticks(place, [label(name, 8) for name in names], rotation=45 if len(names) > 4 else 0, fontsize=6)
        return
    both = np.concatenate([seen, drawn])
    low, high = np.quantile(both, [0.005, 0.995]) if len(both) else (0, 1)
    edges = np.linspace(low, high if high > low else low + 1, 25)
    few_ticks(panel.xaxis, column)
    panel.hist(np.clip(seen, *edges[[0, -1]]), edges, density=True, color=SEEN, alpha=0.6, label="observed")
    panel.hist(np.clip(drawn, *edges[[0, -1]]), edges, density=True, histtype="step", lw=1.6, color=DRAWN, label="drawn")


def draw_pair(panel: Any, table: np.ndarray, drawn: np.ndarray, a: int, b: int, columns: Sequence[Column]) -> None:
    """Draw two columns of one completed table: rows observed in both, and rows with a drawn value."""
    seen = ~np.isnan(table[:, [a, b]]).any(1)
    for where, colour, name in ((~seen, DRAWN, "a value drawn"), (seen, SEEN, "both observed")):
        panel.scatter(drawn[where, a], drawn[where, b], s=4, alpha=0.5, color=colour, label=name)
    panel.set_xlabel(label(columns[a].name, 22), fontsize=8)
    panel.set_ylabel(label(columns[b].name, 22), fontsize=8)
    few_ticks(panel.xaxis, columns[a])
    few_ticks(panel.yaxis, columns[b])
    panel.tick_params(labelsize=7)


def draw_rows(axes: Any, rows: np.ndarray, given: np.ndarray, draws: np.ndarray, column: Column, one: int | None) -> None:
    """Draw the rows of a column: values as given, the mean of the draws, their 90 % band, and one draw if chosen."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    axes.fill_between(rows, low, high, color=BAND, label="90 % of the draws")
    axes.plot(rows, draws.mean(0), color=SEEN, lw=1.3, label="mean of the draws")
    if one is not None:
        axes.plot(rows, draws[one], color=DRAWN, lw=1, label=f"draw {one}")
    axes.plot(rows, given, ".", color="#444", ms=4, label="given")
    axes.set_xlabel("row")
    axes.set_ylabel(label(column.name, 30))
    if column.kind in TEMPORAL:
        few_ticks(axes.yaxis, column)
    axes.legend(fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def moment(code: float, column: Column) -> str:
    """Write a date, time of day or duration; empty for other columns."""
    if column.kind == "date":
        return str(np.datetime64(int(code), "us").astype("datetime64[D]"))
    return str(datetime.timedelta(seconds=int(code / 1e6))) if column.kind in TEMPORAL else ""


def few_ticks(axis: Any, column: Column) -> None:
    """Reduce the ticks of an axis to those that fit, with dates and times written as such."""
    axis.get_major_locator().set_params(nbins=3)
    if column.kind in TEMPORAL:
        axis.set_major_formatter(lambda code, _: moment(code, column))
