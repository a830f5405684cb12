"""Draws: many completed data sets, and what they say together."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from unfade.errors import InvalidData
from unfade.tables import Container


class Draws:
    """Draws of the clean data, draw axis first, in the user's units.

    values: (draws, samples, *event). Summaries and completed data sets come in the container the data
    came in (array, tensor or data frame); iterating gives one completed data set after another.

    >>> import numpy as np
    >>> draws = Draws(np.array([[[1.0]], [[2.0]], [[3.0]]]))
    >>> draws.mean(), draws.interval(0.5), len(draws)
    (array([[2.]]), (array([[1.5]]), array([[2.5]])), 3)
    """

    def __init__(self, values: np.ndarray, container: Container | None = None):
        self.values = values
        self._container = container or Container(None, None, np.dtype(values.dtype))

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of `values`, where the data had names."""
        return self._container.names

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, draw: int) -> Any:
        return self._container.wrap(self.values[draw])

    def __iter__(self) -> Iterator[Any]:
        return (self[draw] for draw in range(len(self)))

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.values.shape[1:]))
        return f"Draws({len(self)} completed data sets of {shape})"

    def mean(self) -> Any:
        """Posterior mean of every entry."""
        return self._container.wrap(self.values.mean(0))

    def std(self) -> Any:
        """Posterior standard deviation of every entry."""
        return self._container.wrap(self.values.std(0, ddof=1 if len(self) > 1 else 0))

    def quantile(self, share: float) -> Any:
        """The value below which this share of each entry's draws lies."""
        if not 0 <= share <= 1:
            raise InvalidData(f"A quantile is a share between 0 and 1, got {share!r}. Use 0.25 for the lower quartile.")
        return self._container.wrap(np.quantile(self.values, share, axis=0))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval of each entry.

        Ends estimated from m draws cover a little less: level (m - 1) / (m + 1), so 0.865 for 50 draws of 0.9.
        """
        if not 0 < level < 1:
            raise InvalidData(f"An interval's level lies between 0 and 1, got {level!r}. Use 0.9 for 90 %.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)
