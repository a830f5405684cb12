"""Observed cells that were hidden and predicted: what can be known of draws without the truth."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from unfade.data.columns import Column
from unfade.metrics import coverage_due, covered, crps


@dataclass(frozen=True)
class HeldOut:
    """Observed cells that were hidden, and draws of what would be observed there, noise included.

    rows, columns, values: (cells,); draws: (draws, cells); seen: the table without them, as numbers; kinds: the columns
    of a frame, or None; plain: draws before they were recalibrated, where they were.
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
        """Which columns of the table hold categories or booleans, (columns,)."""
        return np.array([column.discrete for column in self.kinds or ()] or [False] * self.seen.shape[1])

    def name(self, column: int) -> str:
        """What a column is called."""
        return str(self.kinds[column].name) if self.kinds else f"column {column}"

    def only(self, which: np.ndarray) -> "HeldOut":
        """Some of the cells; which: booleans or numbers."""
        return replace(
            self,
            rows=self.rows[which],
            columns=self.columns[which],
            values=self.values[which],
            draws=self.draws[:, which],
            plain=None if self.plain is None else self.plain[:, which],
        )

    def judged(self) -> "HeldOut":
        """The cells of columns in which something else was seen; of others nobody can say anything."""
        return self.only(~np.isnan(self.seen).all(0)[self.columns])

    def as_drawn(self) -> "HeldOut":
        """The same before draws were recalibrated."""
        return self if self.plain is None else replace(self, draws=self.plain)

    def numbers(self) -> "HeldOut":
        """The cells of columns of numbers."""
        return self.only(~self.discrete()[self.columns])

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of each column, (columns,); 0 where nothing is seen."""
        seen = ~np.isnan(self.seen)
        count, values = np.maximum(seen.sum(0), 1), np.where(seen, self.seen, 0.0)
        mean = values.sum(0) / count
        return mean, np.sqrt((np.where(seen, values - mean, 0.0) ** 2).sum(0) / count)

    def units(self) -> np.ndarray:
        """The sd of each cell's column, (cells,)."""
        sd = self.moments()[1][self.columns]
        return np.where(sd > 0, sd, 1.0)

    def scores(self, draws: np.ndarray | None = None) -> np.ndarray:
        """CRPS of each cell in units of its column's sd; for categories the same with 0 where they agree, else 1."""
        draws, names = self.draws if draws is None else draws, self.discrete()[self.columns]
        m = len(draws)
        numbers = crps(torch.from_numpy(draws), torch.from_numpy(self.values)).numpy() / self.units()
        if not names.any():
            return numbers
        pairs = np.array([(m**2 - (np.unique(d, return_counts=True)[1] ** 2).sum()) / (m * (m - 1)) for d in draws.T])
        return np.where(names, (draws != self.values).mean(0) - pairs / 2, numbers)

    def covered(self, level: float = 0.9, seed: int = 0) -> np.ndarray:
        """Whether each value lies within the central interval of its draws; ties are broken by chance."""
        draws, values = self._apart(seed)
        return covered(torch.from_numpy(draws), torch.from_numpy(values), level).numpy()

    def due(self, level: float = 0.9) -> float:
        """The share that draws of the exact posterior would cover."""
        return coverage_due(level, len(self.draws))

    def places(self, seed: int = 0) -> np.ndarray:
        """The share of the draws below each value, between 0 and 1: uniform where draws are right (the PIT)."""
        draws, values = self._apart(seed)
        rng = np.random.default_rng(seed)
        return ((draws < values).sum(0) + rng.random(len(values))) / (len(draws) + 1)

    def _apart(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws and values moved by next to nothing, so that equal ones are in some order."""
        rng, tiny = np.random.default_rng(seed), 1e-6 * self.units()
        return self.draws + tiny * rng.random(self.draws.shape), self.values + tiny * rng.random(len(self.values))

    def error_by_row(self, of: np.ndarray) -> float:
        """Standard error of the mean of something each cell has; cells of one row belong together."""
        totals = np.bincount(self.rows, of - of.mean())
        return float(np.sqrt((totals**2).sum()) / max(1, len(of)))
