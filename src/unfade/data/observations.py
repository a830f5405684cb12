"""Observations, the entrance for arrays, and the scaling of entries to model space."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade.errors import InvalidData, InvalidType


@dataclass(frozen=True)
class Observations:
    """Corrupted data y and which of its entries were observed.

    Parameters
    ----------
    values : Tensor, (samples, *event)
        0 where not observed, never NaN.
    observed : bool Tensor, (samples, *event)
    low, high : Tensor, (samples, *event), or None
        Interval that an observed entry is known to lie in; equal ends: its value.

    Examples
    --------
    >>> as_observations([[1.0, float("nan")]])
    Observations(values=tensor([[1., 0.]], dtype=torch.float64), observed=tensor([[ True, False]]), low=None, high=None)
    """

    values: Tensor
    observed: Tensor
    low: Tensor | None = None
    high: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Observations":
        return Observations(*(part[index] for part in self.parts()))

    def parts(self) -> list[Tensor]:
        """Return the tensors that are not None: Observations(*parts) is a copy.

        Returns
        -------
        list of Tensor
        """
        return [part for part in (getattr(self, field.name) for field in fields(self)) if part is not None]

    def within(self) -> Tensor:
        """Find entries that are known only to lie in an interval.

        Returns
        -------
        bool Tensor, (samples, *event)
        """
        if self.low is None or self.high is None:
            return torch.zeros_like(self.observed)
        return self.observed & (self.low < self.high)

    @property
    def event_shape(self) -> torch.Size:
        """Shape of one sample."""
        return self.values.shape[1:]

    def to(self, *target: Any) -> "Observations":
        """Move to another device; `values` also to another dtype.

        Parameters
        ----------
        *target
            As in `Tensor.to`.

        Returns
        -------
        Observations
        """
        values, observed, *interval = self.parts()
        values = values.to(*target)
        return Observations(values, observed.to(values.device), *(end.to(*target) for end in interval))

    def beside(self, other: "Observations") -> "Observations":
        """Stack with other observations of equal shape along a new first axis, without intervals.

        Parameters
        ----------
        other : Observations

        Returns
        -------
        Observations
        """
        pairs = (self.values, other.values), (self.observed, other.observed)
        return Observations(*(torch.stack(pair) for pair in pairs))

    def only(self, seen: Tensor) -> "Observations":
        """Keep only the entries of a mask observed.

        Parameters
        ----------
        seen : bool Tensor, (samples, *event) or broadcastable

        Returns
        -------
        Observations
        """
        observed = self.observed & seen
        return Observations(self.values * observed, observed, self.low, self.high)


def as_observations(data: Any, names: Sequence[str] | None = None) -> Observations:
    """Convert an array, tensor or nested list to observations, and check it; NaN (or None) means missing.

    Parameters
    ----------
    data : array, tensor or nested list, (samples, *event)
    names : sequence of str or None
        Names of the columns, for error messages.

    Returns
    -------
    Observations
    """
    if isinstance(data, Observations):
        return data
    array = _numeric_array(data)
    if array.ndim < 2:
        raise InvalidData(
            f"Expected 2D array, got {array.ndim}D array instead: a table needs samples by features. Reshape your "
            "data either using array.reshape(-1, 1) (one column) or array.reshape(1, -1) (one sample)."
        )
    for axis, what in enumerate(("sample", "feature")):
        if array.shape[axis] == 0:
            raise InvalidData(
                f"Found array with 0 {what}(s) (shape={array.shape}) while a minimum of 1 is required. "
                "Give at least one row and one column."
            )
    if np.isinf(array).any():
        where = np.argwhere(np.isinf(array))[0]
        raise InvalidData(
            f"Input contains infinity: {_column(where[1], names)}, row {where[0]}. "
            "Expected finite numbers, with NaN for missing entries; replace inf by NaN or by a number."
        )
    observed = ~np.isnan(array)
    values = torch.from_numpy(np.where(observed, array, 0.0))
    return Observations(values, torch.from_numpy(observed))


def _numeric_array(data: Any) -> np.ndarray:
    """Convert data to a float array (float32 is kept), or raise InvalidData that explains what is wrong."""
    if hasattr(data, "toarray"):
        raise InvalidType(
            "Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert to a dense "
            "array; NaN marks missing entries."
        )
    if isinstance(data, Tensor):
        data = data.detach().cpu().to(torch.float32 if data.dtype == torch.bfloat16 else data.dtype).numpy()
    if isinstance(data, np.ma.MaskedArray):
        data = np.ma.filled(data.astype(np.float64), np.nan)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise InvalidData(
            f"Expected rows of equal length, got a ragged list ({error}). Give a rectangular table."
        ) from None
    if np.iscomplexobj(array):
        raise InvalidData("Complex data not supported: expected real numbers. Split them into two real columns.")
    if array.dtype in (np.float32, np.float64):
        return array
    try:
        return array.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        kind = InvalidType if isinstance(error, TypeError) else InvalidData
        raise kind(
            f"Expected numbers, got dtype {array.dtype} ({error}). Encode text as numbers, or leave those columns out."
        ) from None


def _column(index: int, names: Sequence[str] | None) -> str:
    """Describe a column in an error message."""
    return f"column {names[index]!r}" if names is not None else f"column {index}"


@dataclass(frozen=True)
class Scaling:
    """Map of each entry to model space: (value - centre) / scale, of its logarithm where `logged`.

    centre, scale, logged: shape of one sample.

    >>> y = as_observations([[1.0, 10.0], [3.0, float("nan")], [5.0, 30.0]])
    >>> Scaling.fit(y, "interval").apply(y).values
    tensor([[0.0000, 0.0000],
            [0.5000, 0.0000],
            [1.0000, 1.0000]])
    """

    centre: Tensor
    scale: Tensor
    logged: Tensor

    @classmethod
    def fit(cls, obs: Observations, kind: str | None, logged: Tensor | None = None) -> "Scaling":
        """Fit a scaling to observed entries; `kind` is one of SCALINGS, or None for the identity."""
        if logged is None:
            logged = torch.zeros(obs.event_shape, dtype=torch.bool)
        if kind is None:
            return cls(torch.zeros(obs.event_shape).double(), torch.ones(obs.event_shape).double(), logged)
        if kind not in SCALINGS:
            raise InvalidData(f"scaling must be one of {sorted(SCALINGS)} or None, got {kind!r}.")
        statistic, together = SCALINGS[kind]
        values, observed = _logarithms(obs.values, logged).flatten(1), obs.observed.flatten(1)
        centre, scale = by_columns(statistic, values, observed)
        if together is not None:
            centre, scale = together(centre, scale, observed.sum(0))
        centre, scale = (part.expand(obs.event_shape.numel()).reshape(obs.event_shape) for part in (centre, scale))
        scale = torch.where(scale > 0, scale, 1.0)
        return cls(centre.clone(), scale.clone(), logged)

    def __getitem__(self, entries: Any) -> "Scaling":
        return Scaling(self.centre[entries], self.scale[entries], self.logged[entries])

    def of(self, values: Tensor) -> Tensor:
        """Map values (..., *event) to model space, in float64."""
        return (_logarithms(values, self.logged).double() - self.centre) / self.scale

    def apply(self, obs: Observations) -> Observations:
        """Map observations to model space, in float32."""
        return Observations(torch.where(obs.observed, self.of(obs.values), 0.0).float(), obs.observed)

    def undo(self, values: Tensor) -> Tensor:
        """Map clean values back to the user's units, in float64; any number of leading axes."""
        back = values.double() * self.scale + self.centre
        return torch.where(self.logged, back.clamp(max=700).exp(), back) if self.logged.any() else back


def _logarithms(values: Tensor, where: Tensor) -> Tensor:
    """Take logarithms `where` marked; values that are not positive there are taken as tiny."""
    if not where.any():
        return values
    return torch.where(where, values.double().clamp(min=torch.finfo(torch.float64).tiny).log(), values.double())


Statistic = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of each column, from (values, observed)
AT_ONCE = 2**22  # numbers that are worked on together: large tables go in parts


def by_columns(statistic: Statistic, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a statistic of flat data in double precision, some columns at a time."""
    width = max(1, AT_ONCE // max(1, len(values)))
    parts = [
        statistic(part.double(), seen) for part, seen in zip(values.split(width, 1), observed.split(width, 1), strict=True)
    ]
    first, second = zip(*parts, strict=True)
    return torch.cat(first), torch.cat(second)


def variance(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of each column."""
    count = observed.sum(0).clamp(min=1)
    size = (values.abs() * observed).amax(0).clamp(min=torch.finfo(values.dtype).tiny)  # squares must not overflow
    small = values / size
    centre = (small * observed).sum(0) / count
    variance = ((small - centre).square() * observed).sum(0) / count
    return centre * size, variance.sqrt() * size


def interval(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the least value of each column and its range; 0 if nothing is observed."""
    low = torch.where(observed, values, torch.inf).amin(0)
    high = torch.where(observed, values, -torch.inf).amax(0)
    seen = observed.any(0)
    return torch.where(seen, low, 0.0), torch.where(seen, high - low, 0.0)


def _variance_of_all(centre: Tensor, scale: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of all columns together, from those of each."""
    weight, size = count / count.sum().clamp(min=1), torch.maximum(centre.abs(), scale).amax().clamp(min=1e-300)
    middle, small = (weight * centre / size).sum(), scale / size  # squares must not overflow
    return middle * size, (weight * (small.square() + (centre / size - middle).square())).sum().sqrt() * size


def _interval_of_all(low: Tensor, width: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the least value of all columns together and their range, from those of each."""
    seen = count > 0
    least = torch.where(seen, low, torch.inf).amin()
    return least, torch.where(seen, low + width, -torch.inf).amax() - least


Together = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # of all columns, from those of each and their counts
SCALINGS: dict[str, tuple[Statistic, Together | None]] = {
    "variance": (variance, None),  # each column to mean 0, sd 1
    "interval": (interval, None),  # each column to [0, 1]
    "joint-variance": (variance, _variance_of_all),  # one map for all entries, as images want it
    "joint-interval": (interval, _interval_of_all),
}
