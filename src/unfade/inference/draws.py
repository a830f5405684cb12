"""Draws: many completed data sets, and their summaries."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unfade.data.columns import Column
from unfade.data.containers import Container
from unfade.errors import InvalidData
from unfade.inference.hand_off import dataset, filled_cells, long_frame


class Draws:
    """Draws of the clean data, draw axis first, in the user's units.

    Summaries and completed data sets come in the container of the data (array, tensor or data frame). Iterating gives
    the completed data sets one by one.

    Parameters
    ----------
    values : ndarray, (draws, samples, *event)
    container : Container or None
        Container of the data; None: an array.
    observed : bool ndarray or None, (samples, *event)
        Cells that were observed, if known.
    given : ndarray or None, (samples, *event)
        The data as they were given, NaN where missing, if known.

    Examples
    --------
    >>> import numpy as np
    >>> draws = Draws(np.array([[[1.0]], [[2.0]], [[3.0]]]))
    >>> draws.mean(), draws.interval(0.5), len(draws)
    (array([[2.]]), (array([[1.5]]), array([[2.5]])), 3)
    """

    def __init__(
        self,
        values: np.ndarray,
        container: Container | None = None,
        observed: np.ndarray | None = None,
        given: np.ndarray | None = None,
    ):
        self.values = values
        self.observed = observed
        self.given = given
        self._container = container or Container(None, None, np.dtype(values.dtype))

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns of `values`; None for arrays."""
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

    def _repr_html_(self) -> str | None:
        """Write the first rows for notebooks, with a band for each cell that differs between draws."""
        from unfade.inference.notebook import draws_html

        return draws_html(self.values, self._container.columns, self.observed)

    def mean(self) -> Any:
        """Compute the posterior mean of each cell; of a category the most frequent value.

        Returns
        -------
        array, tensor or frame, (samples, *event)
            Rounded if the column holds integers.
        """
        return self._container.wrap(middle(self.values, self._container.columns))

    def std(self) -> Any:
        """Compute the posterior standard deviation of each cell; of a category the share of draws with another value.

        Returns
        -------
        array, tensor or frame, (samples, *event)
        """
        values = _applying(np.nanstd, self.values, axis=0, ddof=1 if len(self) > 1 else 0)
        likeliest = middle(self.values, self._container.columns)
        for i, column in enumerate(self._container.columns or ()):
            if column.discrete:
                values[:, i] = (self.values[..., i] != likeliest[:, i]).mean(0)
        return self._container.wrap_numbers(values)

    def probabilities(self, column: str) -> Any:
        """Compute how often each value of a category, rank or boolean is drawn.

        Parameters
        ----------
        column : str

        Returns
        -------
        shares : ndarray, (samples, values)
        values : tuple
        """
        names = list(self.columns or ())
        if column not in names:
            raise InvalidData(f"There is no column {column!r}. Columns are {names[:10]}.")
        found = (self._container.columns or ())[names.index(column)]
        if not found.discrete:
            raise InvalidData(f"Column {column!r} holds numbers ({found.kind}). Use quantile or interval.")
        values = found.categories or (False, True)
        codes = self.values[..., names.index(column)]
        return np.stack([(codes == code).mean(0) for code in range(len(values))], -1), values

    def changes(self) -> Any:
        """Classify each cell as "observed" (unchanged), "denoised", "imputed", or "missing" if it still is.

        Cells of passthrough columns, and categories that the fit did not see, count as observed.

        Returns
        -------
        ndarray of str, (samples, *event)
        """
        seen, same = self._seen(), (self.values == self.values[0]).all(0)
        missing = np.isnan(self.values).mean(0) > 0.5
        found = np.where(seen, np.where(same, "observed", "denoised"), "imputed")
        found = np.where(missing & ~seen, "missing", found)
        there = self._container.present()
        return found if there is None else np.where(there & ~seen, "observed", found)

    def to_long(self, form: str = "unfade") -> Any:
        """Put the completed data sets one below another, as other tools expect them.

        Parameters
        ----------
        form : {"unfade", "mice", "stata", "spss"}
            "unfade": columns draw and row, counted from 0. The others begin with the data as given, as data set 0, and
            count from 1: "mice": .imp and .id, for R's `as.mids`, which also needs `where`; "stata": mi_m and mi_id, for
            `mi import flong`; "spss": Imputation_ and id_.

        Returns
        -------
        frame
            In the library of the data; a pyarrow table for arrays.
        """
        return long_frame(self.values, self._container, self.given, form)

    def where(self) -> Any:
        """Find the cells that were filled or cleaned: the argument `where` of R's `as.mids`.

        Returns
        -------
        frame of booleans, (samples, columns)
        """
        return filled_cells(self.values, self._container, self.given)

    def to_xarray(self) -> Any:
        """Convert to an xarray Dataset with dimensions chain, draw and row, as ArviZ expects it.

        Returns
        -------
        xarray.Dataset
            A variable per column, or `x` for arrays; categories as codes, their values in the attributes.
        """
        return dataset(self.values, self._container)

    def shifted(self, shifts: dict[Any, float]) -> "Draws":
        """Shift the missing cells of some columns, for a sensitivity analysis of values missing not at random.

        Integers become continuous, so that small shifts are not rounded away.

        Parameters
        ----------
        shifts : dict
            Shift by column, in standard deviations of its observed cells.

        Returns
        -------
        Draws
        """
        seen, names = self._seen(), list(self.columns or range(self.values.shape[-1]))
        values, columns = np.array(self.values), list(self._container.columns or ())
        for name, shift in shifts.items():
            if name not in names:
                raise InvalidData(f"There is no column {name!r}. Columns are {names[:10]}.")
            i = names.index(name)
            if columns and (columns[i].discrete or columns[i].kind == "passthrough"):
                raise InvalidData(f"Column {name!r} holds no numbers that could be shifted. Choose one that does.")
            sd = values[0, seen[:, i], i].std() if seen[:, i].any() else values[..., i].std()
            values[:, ~seen[:, i], i] += shift * sd
            if columns and columns[i].kind == "integer":
                columns[i] = replace(columns[i], kind="continuous")
        return Draws(values, replace(self._container, columns=tuple(columns) or None), self.observed, self.given)

    def _seen(self) -> np.ndarray:
        """Return which cells were observed, or raise InvalidData if that is not known."""
        if self.observed is None:
            raise InvalidData("These draws do not know which cells were observed. Take them from Recoverer.sample.")
        return self.observed

    def quantile(self, share: float) -> Any:
        """Compute a quantile of the draws of each cell.

        Parameters
        ----------
        share : float
            Share of the draws below, from 0 to 1.

        Returns
        -------
        array, tensor or frame, (samples, *event)
        """
        if not 0 <= share <= 1:
            raise InvalidData(f"A quantile is a share between 0 and 1, got {share!r}. Use 0.25 for the lower quartile.")
        values = _applying(np.nanquantile, self.values, q=share, axis=0)
        for i, column in enumerate(self._container.columns or ()):
            if column.kind == "category":
                values[:, i] = middle(self.values, self._container.columns)[:, i]
            elif column.kind != "continuous":
                values[:, i] = _applying(np.nanquantile, self.values[..., i], q=share, axis=0, method="inverted_cdf")
        return self._container.wrap(values)

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Compute the central interval of each cell.

        Nominal coverage of intervals from m draws is level (m - 1) / (m + 1): 0.865 for 50 draws and level 0.9.

        Parameters
        ----------
        level : float
            Share of the draws inside, between 0 and 1.

        Returns
        -------
        low, high : array, tensor or frame, (samples, *event)
        """
        if not 0 < level < 1:
            raise InvalidData(f"An interval's level lies between 0 and 1, got {level!r}. Use 0.9 for 90 %.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


def _applying(statistic: Callable[..., Any], values: np.ndarray, **how: Any) -> np.ndarray:
    """Compute a statistic over the draws in which a cell has a value; NaN if it has none in more than half of them."""
    empty = np.isnan(values)
    if not empty.any():
        return getattr(np, statistic.__name__.removeprefix("nan"))(values, **how)
    some = np.where(empty.all(0), 0.0, values)
    return np.where(empty.mean(0) > 0.5, np.nan, statistic(some, **how))


def middle(values: np.ndarray, columns: Sequence[Column] | None, median: bool = False) -> np.ndarray:
    """Compute the mean of draws (draws, samples, *event), or their lower median; of categories the most frequent value."""
    how = {"q": 0.5, "method": "inverted_cdf"} if median else {}
    centre = _applying(np.nanquantile if median else np.nanmean, values, axis=0, **how)
    means = np.where((values == values[0]).all(0), values[0], centre)  # what never differs comes back as it is
    for i, column in enumerate(columns or ()):
        if column.discrete:
            codes = np.nan_to_num(values[..., i]).astype(int)
            there = ~np.isnan(values[..., i])
            counts = np.stack([((codes == code) & there).sum(0) for code in range(max(2, len(column.categories)))])
            means[:, i] = np.where(there.mean(0) < 0.5, np.nan, counts.argmax(0))
    return means
