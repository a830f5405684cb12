"""Containers in, containers out: a data frame, array or tensor goes to one float array and comes back as it was."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from unfade.errors import InvalidData


@dataclass(frozen=True)
class Container:
    """What the data came in: enough to put an array of the same shape back into the same kind.

    names: column names, or None for plain arrays; template: the frame itself, for its library and index.
    """

    names: tuple[str, ...] | None
    template: Any
    dtype: np.dtype

    def wrap(self, values: np.ndarray) -> Any:
        """Put (samples, *event) values into the kind of container the data came in."""
        values = values.astype(self.dtype, copy=False)
        if self.names is not None:
            return _frame_like(self.template, values, self.names)
        return torch.from_numpy(values) if isinstance(self.template, torch.Tensor) else values

    def select(self, names: Sequence[str]) -> "Container":
        """The same with its columns in this order."""
        import narwhals as nw

        template = nw.from_native(self.template, eager_only=True).select(names).to_native()
        return replace(self, names=tuple(names), template=template)


def open_container(data: Any) -> tuple[Any, Container]:
    """The data as something `as_observations` takes, and the container to put results back into.

    >>> import pandas as pd
    >>> array, container = open_container(pd.DataFrame({"a": [1.0, None]}))
    >>> container.wrap(array + 1)
         a
    0  2.0
    1  NaN
    """
    dtype = np.dtype(np.float32 if str(getattr(data, "dtype", "")).endswith("float32") else np.float64)
    if not _is_frame(data):
        return data, Container(None, data if isinstance(data, torch.Tensor) else None, dtype)
    array, names = _frame_array(data)
    return array, Container(names, data, dtype)


def _is_frame(data: Any) -> bool:
    if isinstance(data, (np.ndarray, torch.Tensor, list, tuple)):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_dataframe(data)


def _frame_array(data: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numeric columns of a frame, (samples, features), and their names."""
    import narwhals as nw

    check_names(data.column_names if hasattr(data, "column_names") else list(data.columns))
    frame = nw.from_native(data, eager_only=True)
    columns = [_numeric_column(frame[name], name) for name in frame.columns]
    array = np.stack(columns, 1) if columns else np.empty((len(frame), 0))
    return array, tuple(frame.columns)


def check_names(names: Sequence[Any]) -> None:
    """Column names must be strings, each once."""
    if len(set(names)) < len(names):
        double = next(name for name in names if list(names).count(name) > 1)
        raise InvalidData(f"Expected each column name once, got {double!r} more than once. Rename or drop one of them.")
    if not all(isinstance(name, str) for name in names):
        raise InvalidData(
            f"Expected column names that are strings, got {list(names)[:5]}. Use frame.columns = frame.columns.astype(str)."
        )


def _numeric_column(column: Any, name: str) -> np.ndarray:
    """One column as float64, nulls as NaN; anything but numbers and truth values is refused by name."""
    import narwhals as nw

    if column.dtype == nw.Object or column.dtype == nw.Unknown:
        plain = np.array([np.nan if value is None else value for value in column.to_list()], dtype=object)
    elif column.dtype.is_numeric() or column.dtype == nw.Boolean:
        plain = column.cast(nw.Float64).to_numpy()
    elif column.null_count() == len(column):
        return np.full(len(column), np.nan)
    else:
        plain = np.asarray(column.drop_nulls().head(1).to_list(), dtype=object)
    try:
        return plain.astype(np.float64)
    except (ValueError, TypeError):
        example = next(value for value in plain if not isinstance(value, (int, float)))
        raise InvalidData(
            f"Expected numbers in column {name!r}, got {column.dtype} such as {example!r}. "
            "Encode it as numbers, or leave the column out."
        ) from None


def _frame_like(template: Any, values: np.ndarray, names: Sequence[str]) -> Any:
    import narwhals as nw

    native = nw.from_native(template, eager_only=True)
    frame = nw.from_numpy(values, schema=list(names), backend=native.implementation).to_native()
    index = nw.maybe_get_index(native)
    if index is not None:  # pandas and its kin
        frame.index = index
    return frame
