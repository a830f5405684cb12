"""Pictures of series: observed points, posterior mean, interval and draws along time, gaps marked; a stretch with gaps."""

from typing import Any

import numpy as np

from unfade.data.dataset import Dataset
from unfade.data.timeline import DAY
from unfade.diagnostics.plots import DRAWN, SEEN

STEPS, COLUMNS = 240, 4  # of a stretch, and columns that are drawn
_GAP = "#eeeeee"


def stretch(data: Dataset, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """Choose the stretch of one series in which most cells are missing though a third or more is seen.

    Parameters
    ----------
    data : Dataset
        With a timeline.
    steps : int

    Returns
    -------
    rows, times : ndarray, (steps,)
        Number of the row of each step, -1 for none, and its time.
    """
    assert data.timeline is not None
    grid, seen = data.timeline.grid, data.obs.observed.numpy()
    modelled = seen.any(0)
    rows, best = grid.rows.numpy(), (-1, 0, 0)
    for start, length in zip(grid.starts.tolist(), grid.lengths.tolist(), strict=True):
        for first in range(start, max(start + 1, start + length - steps + 1), max(1, steps // 4)):
            part = rows[first : min(first + steps, start + length)]
            known = (seen[part] & (part >= 0)[:, None])[:, modelled]
            share = 1 - known.mean() if known.size else 1.0
            best = max(best, (known.size * share if share < 2 / 3 else -1, first, len(part)))
    chosen = slice(best[1], best[1] + max(1, best[2]))
    return rows[chosen], grid.times[chosen].numpy()


def columns_of(data: Dataset, rows: np.ndarray) -> list[int]:
    """Choose columns of numbers that are drawn: those with most missing cells in the stretch, in their order."""
    table = data.table()
    usable = [j for j in range(table.shape[1]) if len(np.unique(table[~np.isnan(table[:, j]), j])) > 2]
    missing = np.isnan(table[rows[rows >= 0]]).sum(0)
    return sorted(sorted(usable, key=lambda j: -missing[j])[:COLUMNS])


def draw_series(figure: Any, data: Dataset, draws: np.ndarray, rows: np.ndarray, times: np.ndarray) -> None:
    """Draw columns one below another: given points, mean, central 90 % and three draws.

    Parameters
    ----------
    figure : matplotlib Figure
    data : Dataset
        With a timeline.
    draws : ndarray, (draws, samples, columns)
    rows, times : ndarray, (steps,)
        From `stretch`.
    """
    assert data.timeline is not None
    there, columns = rows >= 0, columns_of(data, rows)
    table, part = data.table()[rows[there]], draws[:, rows[there]].astype(float)
    dated = bool(data.timeline.clock.periods) or data.timeline.clock.step >= DAY / 1440
    moments = times[there].astype("datetime64[us]") if dated else times[there]
    panels = figure.subplots(max(1, len(columns)), 1, sharex=True, squeeze=False)[:, 0]
    for panel, column in zip(panels, columns, strict=False):
        x, given = part[:, :, column], table[:, column]
        low, high = np.quantile(x, [0.05, 0.95], axis=0)
        for start, end in _gaps(np.isnan(given)):
            panel.axvspan(moments[max(0, start - 1)], moments[min(end, len(moments) - 1)], color=_GAP, lw=0)
        panel.fill_between(moments, low, high, color=DRAWN, alpha=0.35, lw=0, label="90 % of draws")
        for number, draw in enumerate(x[:3]):
            panel.plot(moments, draw, color=DRAWN, lw=0.6, label="three draws" if not number else None)
        panel.plot(moments, x.mean(0), color="black", lw=0.9, label="mean")
        panel.plot(moments, given, ".", color=SEEN, ms=3.5, label="observed")
        panel.set_ylabel(str(data.columns[column].name) if data.columns else f"column {column}")
        panel.margins(x=0.01)
    panels[0].legend(loc="upper right", ncols=4, fontsize="small", framealpha=0.9)


def _gaps(missing: np.ndarray) -> list[tuple[int, int]]:
    """Find runs of missing cells: first and one after last."""
    edges = np.flatnonzero(np.diff(np.r_[0, missing.astype(int), 0]))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
