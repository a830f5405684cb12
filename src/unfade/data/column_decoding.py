"""Column decoding: codes into a series of pandas, polars or pyarrow, in its own dtype; frames of such series."""

from decimal import Decimal
from typing import Any

import numpy as np

from unfade.data.column_encoding import as_floats, encode_column, holds_dates, missing_cells, native_dtype, with_own_format
from unfade.data.columns import DAY, TEMPORAL, YEARS, Column, decimal, value_of

_NANOSECONDS = -106_750 * DAY, 106_750 * DAY  # what 64 bits hold as nanoseconds: 1677 to 2262


def decode_column(series: Any, codes: np.ndarray, column: Column) -> Any:
    """Decode codes into a native column like `series`: cells that were missing, or whose code changed, are new."""
    import narwhals as nw

    if column.kind == "passthrough":
        return series.to_native()
    column = with_own_format(series, column)
    empty = missing_cells(series, column)
    temporal = column.kind in TEMPORAL
    if series.dtype in (nw.Float64, nw.Float32) and not (column.categories or (temporal and empty.all())):
        kept = (
            np.where(np.isnan(codes), as_floats(series), codes) if column.missing else codes
        )  # a mark that was not filled
        return new_series(series.to_native(), kept, series.dtype)
    old, unit = encode_column(series, column), column.unit
    new = np.where(np.isnan(codes), np.nan, unit * np.round(codes / unit) if unit else codes)
    differs = (old != new) & (old != codes)  # finer than the steps at fit: the value that it had
    changed = ~np.isnan(new) & (empty | (~np.isnan(old) & differs))  # a category not known before stays
    if not changed.any():
        return series.to_native()
    if column.kind == "date" and holds_dates(series):
        return _with_dates(series, changed, new[changed])
    values = series.to_list()
    there = (value for value, gone in zip(values, empty, strict=True) if not gone)
    like = next(there, None)
    if isinstance(like, Decimal):  # of as many places as any has
        like = min(like, *there, key=lambda value: value.as_tuple().exponent if isinstance(value, Decimal) else 0)
    for row in changed.nonzero()[0]:
        values[row] = value_of(new[row], column, like)
    return native_series(series, values)


def _with_dates(series: Any, changed: np.ndarray, codes: np.ndarray) -> Any:
    """Write dates, in microseconds, into the cells `changed` of a native column, in its own unit and zone."""
    import narwhals as nw

    native, unit = series.to_native(), DAY if series.dtype == nw.Date else 1
    zoned = getattr(series.dtype, "time_zone", None) is not None or series.dtype == nw.Unknown
    years = _NANOSECONDS if zoned or "ns" in str(native_dtype(series) or native.type) else YEARS
    moments = np.clip(unit * np.round(codes / unit), *years).astype(np.int64)
    if hasattr(native, "iloc"):
        import pandas as pd

        made = pd.Series(moments.view("datetime64[us]"))
        made = made.dt.tz_localize("UTC") if zoned else made
        filled = native.copy()
        filled[changed] = made.astype(native.dtype).array
        return filled
    if hasattr(native, "type"):
        import pyarrow as pa
        from pyarrow import compute

        zone = getattr(native.type, "tz", None)
        made = pa.array(moments).cast(pa.timestamp("us", zone)).cast(native.type, safe=False)
        return compute.replace_with_mask(native.combine_chunks(), pa.array(changed), made)
    import polars as pl

    zone = getattr(native.dtype, "time_zone", None)
    made = pl.Series(moments).cast(pl.Datetime("us", zone)).cast(native.dtype)
    return native.clone().scatter(changed.nonzero()[0], made)


def native_series(series: Any, values: list[Any]) -> Any:
    """Make a series of the library and dtype of another; of a wider dtype if that cannot hold the values."""
    native = series.to_native()
    if hasattr(native, "iloc"):
        return _pandas_like(native, values)
    if hasattr(native, "type"):
        return _arrow_like(native, values)
    import polars as pl

    if native.dtype.is_decimal():
        values = [decimal(value, native.dtype.scale) for value in values]
    try:
        return pl.Series(native.name, values, dtype=None if native.dtype == pl.Null else native.dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(native.name, values, strict=False)


def _pandas_like(native: Any, values: list[Any]) -> Any:
    """Make a pandas series like another."""
    import pandas as pd

    if "decimal" in str(native.dtype):  # of Arrow
        values = [decimal(value, native.dtype.pyarrow_dtype.scale) for value in values]
    made = pd.Series(values, index=native.index, name=native.name, dtype=object if native.dtype == object else None)
    try:
        cast = made.astype(native.dtype)
    except (TypeError, ValueError, OverflowError):
        return made
    there = made.notna()
    if not np.array_equal(cast.notna(), there):  # None among booleans would be False
        return made.astype("boolean") if native.dtype == bool else made
    fits = native.dtype.kind not in "iu" or bool((cast[there] == made[there]).all())
    return cast if fits else made


def _arrow_like(native: Any, values: list[Any]) -> Any:
    """Make a pyarrow column like another."""
    import pyarrow as pa

    if pa.types.is_decimal(native.type):
        values = [decimal(value, native.type.scale) for value in values]
    try:
        flat = pa.array(values)
    except OverflowError:  # more than 64 bits
        flat = pa.array([float(value) if isinstance(value, int) else value for value in values])
    try:
        return pa.chunked_array([flat.cast(native.type)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # too large for it, or a column that held nothing at all
        return pa.chunked_array([flat])


def new_series(native: Any, values: np.ndarray, dtype: Any = None) -> Any:
    """Make a series of floats in the library of a frame or series; in pandas of the dtype of the series."""
    import narwhals as nw

    if dtype is not None and hasattr(native, "iloc") and not isinstance(native.dtype, np.dtype):
        import pandas as pd

        return pd.Series(values).astype(native.dtype)
    backend = nw.from_native(native, allow_series=True).implementation
    return nw.new_series("x", values, dtype or nw.Float64, backend=backend).to_native()


def frame_like(template: Any, series: list[Any]) -> Any:
    """Join native columns into a frame like the template, with its names and index."""
    if hasattr(template, "iloc"):
        import pandas as pd

        columns = [
            pd.Series(
                each.to_numpy() if str(each.dtype).startswith("float") else each.array,
                index=template.index,
                dtype=each.dtype,
            )
            for each in series
        ]
        result = pd.concat(columns, axis=1) if columns else template.iloc[:, :0]
        result.columns = template.columns
        return result
    if hasattr(template, "column_names"):
        import pyarrow as pa

        return pa.table(series, names=template.column_names)
    import polars as pl

    return pl.DataFrame([each.alias(name) for each, name in zip(series, template.columns, strict=True)])
