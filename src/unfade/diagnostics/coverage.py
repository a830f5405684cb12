"""Coverage and width of draws of held-out cells: per column, and whether draws have collapsed."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from unfade.inference.held_out import HeldOut

COLLAPSED = 0.7  # spread below which draws have collapsed
LEAST = 20  # cells of a column from which something can be said about it
_LISTED = 100  # columns that are listed though they cannot be judged, at most
_CHANCE = 0.05  # of a false alarm among all columns


@dataclass(frozen=True)
class ColumnCheck:
    """Held-out cells of a column: how many, the share within their 90 % intervals, and what chance explains.

    Of columns that have fewer than 20 such cells, coverage and CRPS are NaN.
    """

    column: str
    cells: int
    coverage: float
    low: float
    high: float
    crps: float

    @property
    def finding(self) -> str:
        """In a word or two."""
        if self.cells < LEAST:
            return "too few cells to judge"
        if self.coverage < self.low:
            return "too sure"
        return "too unsure" if self.coverage > self.high else "within tolerance"


def check_columns(cells: HeldOut, level: float = 0.9) -> tuple[ColumnCheck, ...]:
    """Coverage of each column of numbers that has missing or held-out cells, with bands for one table in twenty."""
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


def spread(cells: HeldOut) -> float:
    """How wide draws are for how far off they are: 1 where they are right, less where they are too narrow.

    The mean, over the central 50 % and 90 %, of the share that is covered over the share that is due. Draws at half
    their spread have 0.59; draws from one of two equal modes 0.5; single guesses 0.
    """
    return float(np.mean([cells.covered(level).mean() / cells.due(level) for level in (0.5, 0.9)]))


def spread_beneath_noise(cells: HeldOut, noise: Any, seed: int = 0) -> tuple[float, float]:
    """The same for the clean values beneath the noise, which hides how narrow draws are: the ratio of their sd to the
    error that noise does not explain; and the most that chance allows it to be (rows drawn again, 97.5 %).
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
    """Whether draws have collapsed: far too narrow for how far off they are. noise: its sd, one number or one a column."""
    numbers = cells.numbers()
    if not len(numbers):
        return False
    hidden = noise is not None and np.any(np.asarray(noise) > 0) and spread_beneath_noise(numbers, noise)[1] < COLLAPSED
    return bool(hidden) or spread(numbers) < COLLAPSED
