"""Containers in, containers out: a frame, array or tensor goes to one float array, and results come in the same kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unfade.errors import InvalidData


@dataclass(frozen=True)
class Container:
    """What the data came in: enough to put an array of the same shape back into the same kind.

    names: column names as strings, or None for plain arrays; template: the frame, for its library, index
    and dtypes.
    """

    names: tuple[str, ...] | None
    template: Any
    dtype: np.dtype
    back: np.ndarray | None = None  # where the caller's columns stand among the model's; None: in the same order

    def reorder(self, values: np.ndarray) -> np.ndarray:
        """Values (..., features) in the model's order of columns, put in the caller's."""
        return values if self.back is None else values[..., self.back]

    def order(self, names: Sequence[str]) -> list[int] | None:
        """Where each of `names` stands among the columns; None where these are other columns, or have no names."""
        if self.names is None or sorted(self.names) != sorted(names):
            return None
        return [self.names.index(name) for name in names]

    def wrap(self, values: np.ndarray) -> Any:
        """Put (samples, *event) values into the kind of container the data came in.

        A column of a frame keeps its dtype if the values fit it: whole numbers that did not change stay
        whole numbers.
        """
        if self.names is not None:
            return _frame_like(self.template, values, self.names)
        values = values.astype(self.dtype, copy=False)
        return torch.from_numpy(values) if isinstance(self.template, torch.Tensor) else values


def open_container(data: Any) -> tuple[Any, Container]:
    """The data as something `as_observations` takes, and the container to put results back into.

    >>> import pandas as pd
    >>> array, container = open_container(pd.DataFrame({"a": [1.5, None], "n": [1, 2]}))
    >>> container.wrap(np.array([[1.5, 1.0], [2.5, 2.0]]))
         a  n
    0  1.5  1
    1  2.5  2
    """
    dtype = np.dtype(np.float32 if str(getattr(data, "dtype", "")).endswith("float32") else np.float64)
    if not _is_frame(data):
        return data, Container(None, data if isinstance(data, torch.Tensor) else None, dtype)
    array, names = _frame_array(data)
    return array, Container(names, data, dtype)


def check_names(names: Sequence[Any]) -> None:
    """Each column name once, and not strings beside other things."""
    if len(set(names)) < len(names):
        double = next(name for name in names if list(names).count(name) > 1)
        raise InvalidData(f"Expected each column name once, got {double!r} more than once. Rename or drop one of them.")
    if len({isinstance(name, str) for name in names}) > 1:
        raise InvalidData(
            f"Expected column names of one kind, got {list(names)[:5]}. Use frame.columns = frame.columns.astype(str)."
        )


def _is_frame(data: Any) -> bool:
    if isinstance(data, (np.ndarray, torch.Tensor, list, tuple)):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_dataframe(data)


def _frame_array(data: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numeric columns of a frame, (samples, features), and their names."""
    check_names(data.column_names if hasattr(data, "column_names") else list(data.columns))
    frame = _named(data)
    columns = [_numeric_column(frame[name], name) for name in frame.columns]
    array = np.stack(columns, 1) if columns else np.empty((len(frame), 0))
    return array, tuple(frame.columns)


def _named(data: Any) -> Any:
    """A narwhals frame with string names; pandas also has frames whose columns are numbered."""
    import narwhals as nw

    if hasattr(data, "set_axis") and any(not isinstance(name, str) for name in data.columns):
        data = data.set_axis([str(name) for name in data.columns], axis=1)
    return nw.from_native(data, eager_only=True)


def _numeric_column(column: Any, name: str) -> np.ndarray:
    """One column as float64, nulls as NaN; anything but numbers and truth values is refused by name."""
    import narwhals as nw

    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return column.cast(nw.Float64).to_numpy()
    if column.null_count() == len(column):
        return np.full(len(column), np.nan)
    holds_objects = column.dtype == nw.Object or column.dtype == nw.Unknown
    numbers = np.full(len(column), np.nan)
    for row, (value, null) in enumerate(zip(column.to_list(), column.is_null().to_list(), strict=True)):
        if null:
            continue
        if not (holds_objects and isinstance(value, (int, float, np.number))):
            raise InvalidData(
                f"Expected numbers in column {name!r}, got {column.dtype} such as {_telling(column)!r}. "
                "Encode it as numbers, or leave the column out."
            )
        numbers[row] = value
    return numbers


def _telling(column: Any) -> Any:
    """The first value of a column that is not a number, or else its first value."""
    values = column.drop_nulls().to_list()
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values[0]


def _frame_like(template: Any, values: np.ndarray, names: Sequence[str]) -> Any:
    import narwhals as nw

    native = _named(template)
    frame = nw.from_numpy(values, schema=list(names), backend=native.implementation)
    fitting = [
        frame[name].cast(dtype).alias(name)
        for name, dtype in native.schema.items()
        if dtype == nw.Float32 or (dtype != nw.Float64 and _unchanged(native[name], frame[name]))
    ]
    result = frame.with_columns(*fitting).to_native()
    index = nw.maybe_get_index(native)
    if index is not None:  # pandas and its kin
        result.index, result.columns = index, template.columns
    return result


def _unchanged(old: Any, new: Any) -> bool:
    """Whether a column of numbers without holes came back with the values it had."""
    import narwhals as nw

    if not (old.dtype.is_numeric() or old.dtype == nw.Boolean) or old.null_count() or len(old) != len(new):
        return False
    return bool(np.array_equal(old.cast(nw.Float64).to_numpy(), new.to_numpy()))
