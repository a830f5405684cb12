"""Coverage and width of draws of held-out cells: per column, and the collapse alarm."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from unfade.inference.held_out import HeldOut

COLLAPSED = 0.7  # relative width below which draws have collapsed
LEAST = 20  # cells of a column from which something can be said about it
_LISTED = 100  # columns that are listed though they cannot be judged, at most
_CHANCE = 0.05  # of a false alarm among all columns


@dataclass(frozen=True)
class ColumnCheck:
    """Coverage of the 90 % intervals of a column's held-out cells, with the band that chance allows.

    Parameters
    ----------
    column : str
    cells : int
        Number of held-out cells; below 20, coverage and CRPS are NaN.
    coverage : float
    low, high : float
        Band of coverage.
    crps : float
        In standard deviations of the column.
    """

    column: str
    cells: int
    coverage: float
    low: float
    high: float
    crps: float

    @property
    def finding(self) -> str:
        """Finding, in words."""
        if self.cells < LEAST:
            return "too few cells to judge"
        if self.coverage < self.low:
            return "too narrow"
        return "too wide" if self.coverage > self.high else "within tolerance"


def check_columns(cells: HeldOut, level: float = 0.9) -> tuple[ColumnCheck, ...]:
    """Check the coverage of each column of numbers with missing or held-out cells.

    The bands are left by chance in one of twenty tables.

    Parameters
    ----------
    cells : HeldOut
    level : float

    Returns
    -------
    tuple of ColumnCheck
    """
    inside, scores, found = cells.covered(level), cells.scores(), []
    named = cells.discrete()
    count = np.bincount(cells.columns, minlength=cells.seen.shape[1])
    passed = np.array([c.kind == "passthrough" for c in cells.kinds or ()] or [False] * len(count))
    counted = np.nonzero(~named & (count >= LEAST))[0]
    few = np.nonzero(~named & ~passed & (count < LEAST) & np.isnan(cells.seen).any(0))[0]
    z = NormalDist().inv_cdf(1 - _CHANCE / 2 / max(1, len(counted)))
    for j in counted.tolist():
        here, due = cells.columns == j, cells.due(level)
        band = z * np.sqrt(due * (1 - due) / here.sum())
        found.append(
            ColumnCheck(cells.name(j), int(here.sum()), float(inside[here].mean()), due - band, min(1.0, due + band),
                        float(scores[here].mean()))
        )  # fmt: skip
    found += [ColumnCheck(cells.name(j), int(count[j]), np.nan, np.nan, np.nan, np.nan) for j in few[:_LISTED].tolist()]
    return tuple(found)


def relative_width(cells: HeldOut) -> float:
    """Compute the width of draws relative to their errors: 1 if right, less if too narrow.

    It is the mean of coverage over nominal coverage for central 50 % and 90 % intervals. Draws of half the right width
    have 0.59, draws from one of two equal modes 0.5, copies of one value 0.

    Parameters
    ----------
    cells : HeldOut

    Returns
    -------
    float
    """
    return float(np.mean([cells.covered(level).mean() / cells.due(level) for level in (0.5, 0.9)]))


def relative_width_beneath_noise(cells: HeldOut, noise: Any, seed: int = 0) -> tuple[float, float]:
    """Compute the width of draws of clean values relative to the error that noise does not explain.

    Noise hides that draws are narrow. Returns the ratio of sd and error, and its 97.5 % quantile over resampled rows.

    Parameters
    ----------
    cells : HeldOut
    noise : float or array, (columns,)
        Standard deviation.
    seed : int

    Returns
    -------
    ratio, upper : float
    """
    levels = np.broadcast_to(np.ravel(noise), cells.seen.shape[1:])[cells.columns] / cells.units()
    m = len(cells.draws)
    own = (cells.draws / cells.units()).var(0, ddof=1) - levels**2
    error = ((cells.values - cells.draws.mean(0)) / cells.units()) ** 2 * m / (m + 1) - levels**2
    rows = np.unique(cells.rows, return_inverse=True)[1]
    sums = np.stack([np.bincount(rows, part) for part in (own, error)])
    rng = np.random.default_rng(seed)
    again = np.stack([sums[:, rng.integers(0, sums.shape[1], sums.shape[1])].sum(1) for _ in range(400)])
    ratios = [np.sqrt(max(a, 0.0) / e) if e > 0 else np.inf for a, e in (sums.sum(1), *again)]
    return float(ratios[0]), float(np.quantile(ratios[1:], 0.975))


def collapsed(cells: HeldOut, noise: Any = None) -> bool:
    """Check whether draws have collapsed: their width is far below their errors.

    Parameters
    ----------
    cells : HeldOut
    noise : float or array, (columns,), or None
        Standard deviation.

    Returns
    -------
    bool
    """
    numbers = cells.numbers()
    if not len(numbers):
        return False
    hidden = (
        noise is not None and np.any(np.asarray(noise) > 0) and relative_width_beneath_noise(numbers, noise)[1] < COLLAPSED
    )
    return bool(hidden) or relative_width(numbers) < COLLAPSED
