"""Containers: a frame, array or tensor as one float array, and results back in the same kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unfade.data.column_decoding import decode_column, frame_like, native_series, new_series
from unfade.data.column_encoding import encode_column, missing_cells
from unfade.data.columns import LIMIT, Missing, as_numbers, marks_of
from unfade.data.columns import Column as Column
from unfade.data.observations import Observations
from unfade.data.type_inference import infer_column
from unfade.errors import InvalidData


@dataclass(frozen=True)
class Container:
    """The container of the data: enough to put an array of equal shape back into its kind.

    columns: of a frame, or None for plain arrays; template: the frame, for its library, index and dtypes.
    """

    columns: tuple[Column, ...] | None
    template: Any
    dtype: np.dtype
    back: np.ndarray | None = None  # where the caller's columns stand among the model's; None: in the same order
    home: Callable[[Any], Any] | None = None  # from a pyarrow table to the caller's kind, if the library is another

    @property
    def names(self) -> tuple[str, ...] | None:
        """Column names; None for arrays."""
        return None if self.columns is None else tuple(column.name for column in self.columns)

    def reorder(self, values: np.ndarray) -> np.ndarray:
        """Put values (..., features) from the model's order of columns into the caller's; NaN for unknown columns."""
        if self.back is None:
            return values
        return np.where(self.back < 0, np.nan, values[..., self.back])

    def event_shape(self, obs: Observations) -> tuple[int, ...]:
        """Return the shape of a sample in the caller's order of columns."""
        return tuple(obs.event_shape) if self.back is None else (len(self.back),)

    def wrap(self, values: np.ndarray) -> Any:
        """Put values (samples, *event) into the kind of container of the data, each column in its dtype.

        Observed cells of a frame that did not change are copied from it.
        """
        if self.columns is not None:
            return self.sent_home(_decoded_frame(self.template, values, self.columns))
        values = values.astype(self.dtype, copy=False)
        return torch.from_numpy(values) if isinstance(self.template, torch.Tensor) else values

    def present(self) -> np.ndarray | None:
        """Find the cells of a frame that are not empty, (samples, columns); None for plain arrays."""
        if not self.columns:
            return None
        frame = named_frame(self.template)
        return np.stack([~missing_cells(frame[column.name], column) for column in self.columns], 1)

    def hide(self, hidden: np.ndarray) -> Any:
        """Return the frame without the cells `hidden`, (samples, columns)."""
        frame = named_frame(self.template)
        columns = []
        for i, name in enumerate(frame.columns):
            values = [None if gone else value for value, gone in zip(frame[name].to_list(), hidden[:, i], strict=True)]
            columns.append(native_series(frame[name], values) if hidden[:, i].any() else frame[name].to_native())
        return frame_like(self.template, columns)

    def wrap_numbers(self, values: np.ndarray) -> Any:
        """Wrap numbers that are not values of the columns, such as standard deviations."""
        if self.columns is None:
            return self.wrap(values)
        numbers = [new_series(self.template, values[:, i]) for i in range(len(self.columns))]
        return self.sent_home(frame_like(self.template, numbers))

    def sent_home(self, frame: Any) -> Any:
        """Convert a frame like the template to the kind that the caller gave."""
        return frame if self.home is None else self.home(frame)


def open_container(
    data: Any,
    columns: Sequence[Column] | None = None,
    kinds: dict[str, str] | None = None,
    missing: Missing | None = None,
) -> Any:
    """Convert data to what `as_observations` takes, with the container to put results back into.

    columns: as an earlier frame had them, else they are found; kinds: of some columns, by name; missing: values that
    stand for missing ones, in all columns or by name.

    >>> import pandas as pd
    >>> array, container = open_container(pd.DataFrame({"a": [1.5, None], "c": ["x", "y"]}))
    >>> array
    array([[1.5, 0. ],
           [nan, 1. ]])
    >>> container.wrap(np.array([[1.5, 0.0], [2.5, 1.0]]))
         a  c
    0  1.5  x
    1  2.5  y
    """
    data, home = materialised(data)
    dtype = np.dtype(np.float32 if str(getattr(data, "dtype", "")).endswith("float32") else np.float64)
    if not _is_frame(data):
        return without_marks(data, missing), Container(None, data if isinstance(data, torch.Tensor) else None, dtype)
    frame = named_frame(data)
    given, marks = kinds or {}, missing if isinstance(missing, dict) else {"": missing}
    for what, named in (("kinds", given), ("missing", marks)):
        if unknown := sorted(set(named) - {"", *frame.columns}):
            raise InvalidData(f"{what} names the columns {unknown}, which do not exist. Columns are {frame.columns[:10]}.")
    known = {column.name: column for column in columns or ()}
    if columns is None:
        found = tuple(infer_column(frame[name], name, given.get(name), marks_of(missing, name)) for name in frame.columns)
    else:  # columns that were not there before pass through
        found = tuple(known.get(name, Column(name, "passthrough")) for name in frame.columns)
    array = np.stack([encode_column(frame[c.name], c) for c in found], 1) if found else np.empty((len(frame), 0))
    return array, Container(found, data, dtype, home=home)


def materialised(data: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """Read a table of another library through Arrow (`__arrow_c_stream__`): a DuckDB relation, ibis, polars lazy.

    Returns the pyarrow table and a function from such a table to the caller's kind; other data are returned unchanged.
    """
    library = type(data).__module__.split(".")[0]
    if library == "polars" and hasattr(data, "collect"):
        return data.collect(), lambda frame: frame.lazy()
    if isinstance(data, (np.ndarray, torch.Tensor, list, tuple)) or _is_frame(data):
        return data, None
    if not hasattr(data, "__arrow_c_stream__"):
        return data, None
    import pyarrow as pa

    try:
        table = pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidData(f"Cannot read the Arrow stream of {type(data).__name__}: {error}. Give a table.") from None
    if library in ("duckdb", "_duckdb"):
        import duckdb

        return table, duckdb.from_arrow
    return table, None


def without_marks(data: Any, missing: Missing | None) -> Any:
    """Replace the values of an array that stand for missing ones by NaN; columns are named by their number."""
    if not missing:
        return data
    values = np.array(data.detach().cpu() if isinstance(data, torch.Tensor) else data, dtype=float)
    named = {str(name): marks for name, marks in missing.items()} if isinstance(missing, dict) else missing
    for i in range(values.shape[1] if values.ndim == 2 else 1):
        part = values[:, i] if values.ndim == 2 else values
        marks = as_numbers(marks_of(named, str(i)))
        part[np.isin(part, marks)] = np.nan
    return values


def take(data: Any, rows: np.ndarray) -> Any:
    """Select rows of a table or array, in the same kind of container."""
    if _is_frame(data):
        return named_frame(data)[rows].to_native()
    return (data if hasattr(data, "shape") else np.asarray(data))[rows]


def detection_limits(data: Any, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return low and high ends of every cell, infinite if not censored; None if no column holds detection limits."""
    if not any(column.censored for column in columns):
        return None
    frame = named_frame(data)
    low = np.full((len(frame), len(columns)), -np.inf)
    high = np.full((len(frame), len(columns)), np.inf)
    for i, column in enumerate(columns):
        for row, text in enumerate(frame[column.name].to_list() if column.censored else ()):
            if text is not None and (match := LIMIT.fullmatch(str(text))):
                (high if match[1] == "<" else low)[row, i] = float(match[2])
    return low, high


def check_names(names: Sequence[Any]) -> None:
    """Refuse column names that occur twice, or that mix strings with other types."""
    if len(set(names)) < len(names):
        double = next(name for name in names if list(names).count(name) > 1)
        raise InvalidData(f"Expected each column name once, got {double!r} more than once. Rename or drop one of them.")
    if len({isinstance(name, str) for name in names}) > 1:
        raise InvalidData(
            f"Expected column names of one kind, got {list(names)[:5]}. Use frame.columns = frame.columns.astype(str)."
        )


def _is_frame(data: Any) -> bool:
    """Check whether data are a data frame."""
    if isinstance(data, (np.ndarray, torch.Tensor, list, tuple)):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_dataframe(data)


def named_frame(data: Any) -> Any:
    """Make a narwhals frame with string names; pandas also has frames with numbered columns."""
    import narwhals as nw

    check_names(data.column_names if hasattr(data, "column_names") else list(data.columns))
    if hasattr(data, "set_axis") and any(not isinstance(name, str) for name in data.columns):
        data = data.set_axis([str(name) for name in data.columns], axis=1)
    return nw.from_native(data, eager_only=True)


def _decoded_frame(template: Any, values: np.ndarray, columns: Sequence[Column]) -> Any:
    """Decode values into a frame like the template."""
    frame = named_frame(template)
    series = [decode_column(frame[column.name], values[:, i], column) for i, column in enumerate(columns)]
    return frame_like(template, series)
