"""Column encoding: which cells of a series are missing, and codes of the others, NaN where missing."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from unfade.data.columns import NUMBER, TEMPORAL, Column, as_numbers, code_of
from unfade.data.text_formats import find_format, is_blank


def encode_column(series: Any, column: Column) -> np.ndarray:
    """Encode a column as numbers; NaN where a cell is missing, or holds a category that the fit did not see."""
    column = with_own_format(series, column)
    empty = missing_cells(series, column)
    if column.kind == "passthrough" or empty.all():
        return np.full(len(series), np.nan)
    if series.dtype.is_numeric() and not column.categories:
        return np.where(empty, np.nan, as_floats(series))
    if column.categories:
        place = {value: float(i) for i, value in enumerate(column.categories)}
        return _each(series, lambda value: place.get(value, np.nan), np.nan, empty)
    return _each(series, lambda value: code_of(value, column), np.nan, empty)


def missing_cells(series: Any, column: Column) -> np.ndarray:
    """Find missing cells: null, NaN, blank in text that has a format, or a value that stands for missing."""
    empty = series.is_null().to_numpy().astype(bool)
    if series.dtype.is_float():
        empty = empty | np.isnan(as_floats(series))
    if series.dtype.is_numeric():
        return empty | np.isin(as_floats(series), as_numbers(column.missing)) if column.missing else empty
    read = column.kind in ("continuous", "integer", *TEMPORAL)  # text of such a column is read, blank cells are missing
    if not (column.missing or (read and may_hold_text(series))):
        return empty
    marks, numbers = {str(mark).strip() for mark in column.missing}, as_numbers(column.missing)

    def gone(value: Any) -> bool:
        """Check whether a value stands for a missing one."""
        if not isinstance(value, str):
            return value in column.missing or (isinstance(value, (int, float, Decimal)) and float(value) in numbers)
        is_mark = value.strip() in marks or (bool(numbers) and bool(NUMBER.fullmatch(value)) and float(value) in numbers)
        return is_mark or (read and is_blank(value))

    return empty | _each(series, gone, False, empty)


def as_floats(series: Any) -> np.ndarray:
    """Convert a numeric series to floats, nulls to NaN."""
    import narwhals as nw

    native = series.to_native()
    if native_dtype(series) is None and series.dtype.is_integer():  # pyarrow, which refuses more than 53 bits
        return np.asarray(native.cast("float64", safe=False), dtype=np.float64)
    if hasattr(native, "iloc") and not isinstance(native.dtype, np.dtype):
        return native.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def distinct_values(series: Any, column: Column) -> tuple[Any, ...] | None:
    """List the different values of a column, sorted if possible; None if they cannot be compared (lists)."""
    try:
        values = {value for value, empty in zip(series.to_list(), missing_cells(series, column), strict=True) if not empty}
    except TypeError:
        return None
    try:
        return tuple(sorted(values))
    except TypeError:
        return tuple(values)


def with_own_format(series: Any, column: Column) -> Column:
    """Set the format of this series, which may be text although the fit had numbers, or the reverse."""
    if column.kind not in ("continuous", "integer", *TEMPORAL):
        return column
    if not may_hold_text(series):
        return replace(column, text=None, censored=False)
    if column.text is not None or column.censored:
        return column
    texts = [value for value in distinct_values(series, column) or () if isinstance(value, str)]
    found = find_format(texts)
    alike = found is not None and (
        found.kind == column.kind or (found.kind == "number" and column.kind in ("continuous", "integer"))
    )
    return replace(column, text=found) if alike else column


def may_hold_text(series: Any) -> bool:
    """Check whether the dtype of a series allows text."""
    import narwhals as nw

    return series.dtype in (nw.String, nw.Object, nw.Unknown)


def holds_dates(series: Any) -> bool:
    """Check whether a dtype is one of dates, also in zones that narwhals does not read (America/New_York in pandas)."""
    import narwhals as nw

    return series.dtype in (nw.Date, nw.Datetime) or getattr(native_dtype(series), "kind", "") == "M"


def native_dtype(series: Any) -> Any:
    """Return the dtype of a series in its own library; None in pyarrow."""
    return getattr(series.to_native(), "dtype", None)


def _each(series: Any, function: Callable[[Any], Any], null: Any, empty: np.ndarray) -> np.ndarray:
    """Apply a function to each cell, once per different value; `null` for the cells that are `empty`."""
    known: dict[Any, Any] = {}
    found = np.full(len(series), null)
    for i, value in enumerate(series.to_list()):
        if empty[i]:
            continue
        try:
            found[i] = known[value]
        except KeyError:
            found[i] = known[value] = function(value)
        except TypeError:  # lists and the like cannot be looked up
            found[i] = function(value)
    return found
