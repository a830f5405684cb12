"""Timeline: rows of a table as steps of series: order, step, gaps and seasons found from its time column."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade.data.column_encoding import encode_column
from unfade.data.columns import TEMPORAL, Column
from unfade.data.containers import Container, named_frame
from unfade.data.type_inference import infer_column
from unfade.errors import InvalidData

DAY = 86.4e9  # in microseconds
LONGEST_GAP = 500  # steps without a row, after which a series begins again
_FINEST = 4  # steps per row at most, where times are irregular
_MONTH = 365.25 * DAY / 12
_SAME_DAY = 0.12  # of a month: the ends of months differ by less


@dataclass(frozen=True)
class Clock:
    """How the rows of a table lie in time.

    Parameters
    ----------
    time : str
        Column of times, dates or numbers.
    panel : tuple of str
        Columns that identify series.
    step : float
        Between two steps, in microseconds or in the units of the numbers.
    periods : tuple of (float, int)
        Length of each season in the same units, and its number of harmonics.
    months : int
        Of a step, if steps are those of the calendar; 0: all steps are equally long.
    column : Column or None
        Kind and text format of the column of times; None: of a model file without it.
    span : (float, float) or None
        First and last time of the fit.
    """

    time: str
    panel: tuple[str, ...]
    step: float
    periods: tuple[tuple[float, int], ...] = ()
    months: int = 0
    column: Column | None = None
    span: tuple[float, float] | None = None

    def outside(self, times: Tensor) -> Tensor:
        """Find times before the first or after the last one of the fit."""
        first, last = self.span or (-torch.inf, torch.inf)
        return (times < first) | (times > last)

    def place(self, times: np.ndarray) -> np.ndarray:
        """Count steps since 1970, with fractions, (rows,)."""
        return calendar_months(times) / self.months if self.months else times / self.step

    def season(self, times: Tensor) -> Tensor:
        """Compute the regressors of the season: 1 and harmonics, (..., regressors)."""
        parts = [torch.ones_like(times)]
        for period, harmonics in self.periods:
            turn = 2 * pi * (times / period).frac()
            parts += [wave(k * turn) for k in range(1, harmonics + 1) for wave in (torch.cos, torch.sin)]
        return torch.stack(parts, -1)

    def __str__(self) -> str:
        names = {DAY: "day", 7 * DAY: "week", 365.25 * DAY: "year"}
        seasons = ", ".join(names[period] for period, _ in self.periods)
        step = f"{self.step / 1e6:g} s" if self.periods or self.step >= 1e6 else f"{self.step:g}"
        step = f"{self.months} month{'s' if self.months > 1 else ''}" if self.months else step
        series = f", a series per {' and '.join(map(repr, self.panel))}" if self.panel else ""
        return f"steps of {step} by {self.time!r}{series}{f', seasons: {seasons}' if seasons else ''}"


@dataclass(frozen=True)
class Grid:
    """Rows on a grid, series after series: number of the row or -1 (steps,), times, and where each series starts."""

    rows: Tensor
    times: Tensor
    starts: Tensor

    @property
    def lengths(self) -> Tensor:
        """Number of steps of each series, (series,)."""
        return torch.cat([self.starts, torch.tensor([len(self.rows)])]).diff()


@dataclass(frozen=True)
class Timeline:
    """Times of rows as numbers and which series each belongs to, (rows,), with the clock.

    origins: keys of the first row of the series of each row, (rows,), where that is not among the rows.
    """

    times: np.ndarray
    series: np.ndarray
    clock: Clock
    origins: np.ndarray | None = None

    def rows(self, which: np.ndarray) -> "Timeline":
        """Select rows by their numbers."""
        return Timeline(self.times[which], self.series[which], self.clock)

    def origin_keys(self, keys: Tensor) -> Tensor:
        """Give the key of the first row of the series of each row, (rows,)."""
        if self.origins is not None:
            return torch.from_numpy(self.origins)
        order = np.lexsort((self.times, self.series))
        _, first, number = np.unique(self.series[order], return_index=True, return_inverse=True)
        origins = np.empty(len(order), np.int64)
        origins[order] = order[first[number]]
        return keys[torch.from_numpy(origins)]

    @cached_property
    def grid(self) -> Grid:
        """Rows in order of time on the grid of steps; gaps longer than LONGEST_GAP begin a new series."""
        order = np.lexsort((self.times, self.series))
        times, series = self.times[order], self.series[order]
        at = self.clock.place(times)
        cuts = np.r_[True, (series[1:] != series[:-1]) | (np.diff(at) > LONGEST_GAP)]
        part = np.cumsum(cuts) - 1
        first = np.nonzero(cuts)[0]
        place = np.round(at - at[first][part]).astype(np.int64)
        number = np.arange(len(times))
        base = part * (np.int64(2) ** 40)
        place = np.maximum.accumulate(place - number + base) + number - base  # two rows never share a step
        lengths = place[np.r_[first[1:], len(times)] - 1] + 1
        starts = np.r_[0, np.cumsum(lengths)[:-1]]
        rows = np.full(int(lengths.sum()), -1)
        rows[starts[part] + place] = order
        moments = np.interp(np.arange(len(rows)), starts[part] + place, times)
        return Grid(torch.from_numpy(rows), torch.from_numpy(moments), torch.from_numpy(starts))


def read_timeline(container: Container, time: str, panel: Sequence[str], clock: Clock | None = None) -> Timeline:
    """Read the times of a frame's rows and their series.

    Parameters
    ----------
    container : Container
        Of the frame.
    time : str
    panel : sequence of str
    clock : Clock or None
        Of the fit; None: the step and the seasons are found.

    Returns
    -------
    Timeline
    """
    if container.columns is None:
        raise InvalidData(f"time={time!r} needs a table with named columns, got an array. Give a data frame.")
    frame = named_frame(container.template)
    if unknown := [name for name in (time, *panel) if name not in frame.columns]:
        raise InvalidData(f"time and panel name the columns {unknown}, which do not exist. Columns: {frame.columns[:10]}.")
    column, times = _times(frame[time], time, None if clock is None else clock.column)
    series = _series(frame, panel)
    _refuse_repeated(frame[time], times, series, time, panel)
    return Timeline(times, series, clock or _clock(times, series, tuple(panel), column))


def _times(cells: Any, time: str, column: Column | None) -> tuple[Column, np.ndarray]:
    """Read the times of rows, in the form that they had at fit; column: of the fit, or None."""
    column = column or infer_column(cells, time, "continuous" if cells.dtype.is_numeric() else None)
    dated = column.kind in TEMPORAL
    if column.kind not in ("continuous", "integer", *TEMPORAL) or (dated and cells.dtype.is_numeric()):
        wanted, found = ("dates, as at fit,", "numbers") if dated else ("dates, times or numbers", column.kind)
        raise InvalidData(f"Expected {wanted} in column {time!r}, got {found} such as {cells.to_list()[:1]}.")
    times = encode_column(cells, column)
    if empty := np.nonzero(np.isnan(times))[0].tolist():
        raise InvalidData(f"Column {time!r} must give the time of every row; it is empty in rows {empty[:5]}. Drop them.")
    return column, times


def _refuse_repeated(cells: Any, times: np.ndarray, series: np.ndarray, time: str, panel: Sequence[str]) -> None:
    """Raise InvalidData if one series has two rows of one time."""
    order = np.lexsort((times, series))
    twice = (np.diff(times[order]) == 0) & (np.diff(series[order]) == 0)
    if twice.any():
        row = int(order[1:][twice][0])
        more = f"more columns than {', '.join(panel)}" if panel else "the columns"
        raise InvalidData(
            f"Column {time!r} gives one time to several rows of a series, such as {cells[row]}. Name {more} that identify "
            "series: panel=('patient',) (--panel patient), or drop repeated rows."
        )


def _series(frame: Any, panel: Sequence[str]) -> np.ndarray:
    """Find the number of the series of each row, (rows,)."""
    if not panel:
        return np.zeros(len(frame), np.int64)
    known: dict[tuple[Any, ...], int] = {}
    rows = zip(*(frame[name].to_list() for name in panel), strict=True)
    return np.array([known.setdefault(tuple(map(str, row)), len(known)) for row in rows])


def calendar_months(times: np.ndarray) -> np.ndarray:
    """Convert microseconds since 1970 to months of the calendar since 1970, with fractions."""
    moments = np.round(times).astype("datetime64[us]")
    months = moments.astype("datetime64[M]")
    length = (months + 1).astype(moments.dtype) - months.astype(moments.dtype)
    return months.astype(np.int64) + (moments - months.astype(moments.dtype)) / length


def _clock(times: np.ndarray, series: np.ndarray, panel: tuple[str, ...], column: Column) -> Clock:
    """Find the seasons and the step."""
    order = np.lexsort((times, series))
    apart = np.diff(times[order])[np.diff(series[order]) == 0]
    if not len(apart):
        raise InvalidData(
            f"Each series has one row only: nothing lies next to anything along {column.name!r}. Leave time out."
        )
    dates = column.kind in TEMPORAL
    months = _months(times) if column.kind == "date" and apart.min() >= 28 * DAY else 0
    step = months * _MONTH or _step(apart, len(times))
    ends = float(times.min()), float(times.max())
    span = ends[1] - ends[0]
    seasons = ((DAY, 3, DAY / 4, 3 * DAY), (7 * DAY, 3, DAY, 28 * DAY), (365.25 * DAY, 2, 31 * DAY, 730 * DAY))
    found = [(period, k) for period, k, finest, least in seasons if dates and step <= finest and span >= least]
    return Clock(column.name, panel, step, tuple(found), months, column, ends)


def _months(times: np.ndarray) -> int:
    """Find how many months of the calendar a step has; 0 if rows are not of one day of the month."""
    place = calendar_months(np.unique(times))
    whole = np.round(place - place[0])
    return int(np.gcd.reduce(whole.astype(int))) if np.abs(place - place[0] - whole).max() < _SAME_DAY else 0


def _step(apart: np.ndarray, rows: int) -> float:
    """Find the step: the least distance of rows if it divides all others, the most frequent one, or a quantile."""
    values, counts = np.unique(apart, return_counts=True)
    step = float(values[counts.argmax()])
    multiples = values / values[0]
    if step <= 10 * values[0] and np.abs(multiples - multiples.round()).max() < 0.01:
        return float(values[0])
    if counts.max() < len(apart) / 2:
        return max(float(np.quantile(apart, 0.1)), float(apart.sum()) / (_FINEST * rows))
    return step
