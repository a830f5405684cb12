"""HeldOut: observed cells that were hidden and predicted, by which draws are judged without the truth."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from unfade.data.columns import Column
from unfade.metrics import coverage_due, covered, crps


@dataclass(frozen=True)
class HeldOut:
    """Observed cells that were hidden, with draws of their observable values, noise included.

    Parameters
    ----------
    rows, columns, values : ndarray, (cells,)
    draws : ndarray, (draws, cells)
    seen : ndarray, (samples, columns)
        The data without these cells, as numbers.
    kinds : tuple of Column or None
        Columns of a frame.
    plain : ndarray, (draws, cells), or None
        Draws before calibration, if they were calibrated.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    draws: np.ndarray
    seen: np.ndarray
    kinds: tuple[Column, ...] | None
    plain: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def discrete(self) -> np.ndarray:
        """Find the columns that hold categories or booleans, (columns,)."""
        return np.array([column.discrete for column in self.kinds or ()] or [False] * self.seen.shape[1])

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return str(self.kinds[column].name) if self.kinds else f"column {column}"

    def only(self, which: np.ndarray) -> "HeldOut":
        """Select some of the cells, by booleans or numbers."""
        return replace(
            self,
            rows=self.rows[which],
            columns=self.columns[which],
            values=self.values[which],
            draws=self.draws[:, which],
            plain=None if self.plain is None else self.plain[:, which],
        )

    def judged(self) -> "HeldOut":
        """Select the cells of columns with other observed cells: the rest cannot be judged."""
        return self.only(~np.isnan(self.seen).all(0)[self.columns])

    def as_drawn(self) -> "HeldOut":
        """Return the cells with their draws before calibration."""
        return self if self.plain is None else replace(self, draws=self.plain)

    def numbers(self) -> "HeldOut":
        """Select the cells of columns of numbers."""
        return self.only(~self.discrete()[self.columns])

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Compute mean and sd of each column, (columns,); 0 if nothing is observed."""
        seen = ~np.isnan(self.seen)
        count, values = np.maximum(seen.sum(0), 1), np.where(seen, self.seen, 0.0)
        mean = values.sum(0) / count
        return mean, np.sqrt((np.where(seen, values - mean, 0.0) ** 2).sum(0) / count)

    def units(self) -> np.ndarray:
        """Return the sd of each cell's column, (cells,)."""
        sd = self.moments()[1][self.columns]
        return np.where(sd > 0, sd, 1.0)

    def scores(self, draws: np.ndarray | None = None) -> np.ndarray:
        """Compute the CRPS of each cell in sds of its column; for categories by the distance 0 if equal, else 1."""
        draws, names = self.draws if draws is None else draws, self.discrete()[self.columns]
        m = len(draws)
        numbers = crps(torch.from_numpy(draws), torch.from_numpy(self.values)).numpy() / self.units()
        if not names.any():
            return numbers
        pairs = np.array([(m**2 - (np.unique(d, return_counts=True)[1] ** 2).sum()) / (m * (m - 1)) for d in draws.T])
        return np.where(names, (draws != self.values).mean(0) - pairs / 2, numbers)

    def covered(self, level: float = 0.9, seed: int = 0) -> np.ndarray:
        """Check whether each value lies inside the central interval of its draws; ties are broken at random."""
        draws, values = self._apart(seed)
        return covered(torch.from_numpy(draws), torch.from_numpy(values), level).numpy()

    def due(self, level: float = 0.9) -> float:
        """Return the nominal coverage, which draws of the exact posterior would have."""
        return coverage_due(level, len(self.draws))

    def places(self, seed: int = 0) -> np.ndarray:
        """Compute the probability integral transform: the share of draws below each value, uniform if draws are right."""
        draws, values = self._apart(seed)
        rng = np.random.default_rng(seed)
        return ((draws < values).sum(0) + rng.random(len(values))) / (len(draws) + 1)

    def _apart(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Add tiny random numbers to draws and values, so that no two are equal."""
        rng, tiny = np.random.default_rng(seed), 1e-6 * self.units()
        return self.draws + tiny * rng.random(self.draws.shape), self.values + tiny * rng.random(len(self.values))

    def error_by_row(self, of: np.ndarray) -> float:
        """Compute the standard error of the mean of a quantity per cell; cells of one row are dependent."""
        totals = np.bincount(self.rows, of - of.mean())
        return float(np.sqrt((totals**2).sum()) / max(1, len(of)))
