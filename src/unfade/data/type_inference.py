"""Type inference: the kind of a column, from its dtype and values, or as the user gives it.

Text is read as numbers, dates or times if all its cells have one format (see `text_formats`).
"""

import datetime
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from unfade.data.column_encoding import as_floats, distinct_values, encode_column, holds_dates, missing_cells, native_dtype
from unfade.data.columns import KINDS, LIMIT, NUMBER, TEMPORAL, Column
from unfade.data.text_formats import find_format, is_blank, odd_words
from unfade.errors import InvalidData

_OBJECTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "boolean"),
    ((int, float, np.number, Decimal), "continuous"),
    ((datetime.date, np.datetime64), "date"),
    ((datetime.time,), "time"),
    ((datetime.timedelta, np.timedelta64), "duration"),
)  # kinds of Python objects, the first that all values have
_TOO_LARGE = "it holds integers above 2^53, such as ids, which floating point rounds: it is passed through unchanged"
_STEPS = (86.4e9, 3.6e9, 6e7, 1e6, 1e3, 1.0)  # a day, an hour, a minute, a second, a millisecond, in microseconds


def infer_column(series: Any, name: str, kind: str | None, missing: tuple[Any, ...] = ()) -> Column:
    """Infer a column from its dtype and values, unless its kind is given."""
    if kind is not None and kind not in KINDS:
        raise InvalidData(f"Kinds of columns are {', '.join(KINDS)}; got {kind!r} for {name!r}.")
    if kind == "passthrough":  # whatever it holds
        return Column(name, kind)
    column = _guessed(series, Column(name, "passthrough", missing=missing), as_text=kind in ("ordinal", "category"))
    if kind in (None, column.kind):
        return column
    if kind in ("ordinal", "category"):
        values = column.categories or distinct_values(series, column)
        if values is None:
            raise _misfit(series, kind)
        return replace(column, kind=kind, categories=values, censored=False, text=None, reason="")
    text = column.kind in ("category", "ordinal", "passthrough") and not series.dtype.is_numeric()
    if text and kind in ("continuous", "integer"):
        found = find_format([value for value in distinct_values(series, column) or () if isinstance(value, str)])
        if found is not None and found.kind == "number":
            return replace(column, kind=kind, categories=(), text=found, reason="")
    codes = kind == "boolean" and not (
        column.kind in ("continuous", "integer") and set(distinct_values(series, column) or ()) <= {0, 1}
    )
    if text or codes or (column.kind in TEMPORAL and kind in ("continuous", "integer")):
        raise _misfit(series, kind)
    return replace(column, kind=kind, categories=(), censored=False, reason="")


def _guessed(series: Any, column: Column, as_text: bool = False) -> Column:
    """Infer the kind of a column. as_text: text is not read as numbers, dates or times."""
    import narwhals as nw

    dtype = series.dtype
    count = int((~missing_cells(series, column)).sum())
    if dtype == nw.Boolean:
        return replace(column, kind="boolean")
    if dtype.is_numeric() or count == 0:
        return _number(series, column) if count else replace(column, kind="continuous")
    if holds_dates(series) or dtype in (nw.Time, nw.Duration):
        kind = "time" if dtype == nw.Time else "duration" if dtype == nw.Duration else "date"
        return _with_step(series, replace(column, kind=kind))
    if dtype == nw.Enum or _is_ordered(series):
        known = getattr(dtype, "categories", None)  # of narwhals' Enum
        values = tuple(series.cat.get_categories().to_list() if known is None else known)
        return replace(column, kind="ordinal", categories=values)
    found = distinct_values(series, column)
    if found is None:
        return replace(column, kind="passthrough", reason=_unusable(series))
    if dtype != nw.Categorical and not as_text:
        made = _of_objects(series, column, found) or _of_text(column, found)
        if made is not None:
            return _with_step(series, made) if made.kind in TEMPORAL else made
    if not all(isinstance(value, str) for value in found) and dtype != nw.Categorical:
        return replace(column, kind="passthrough", reason=_unusable(series))
    column = replace(column, reason="" if as_text else _suspect_words(series, found))
    if len(found) > max(20, 0.3 * count):  # names, remarks, keys: hardly any value occurs again
        return replace(column, kind="passthrough")
    return replace(column, kind="category", categories=found)


def _of_objects(series: Any, column: Column, values: Sequence[Any]) -> Column | None:
    """Infer the kind of a column of Python objects of one type, such as dates or decimal numbers."""
    for types, kind in _OBJECTS:
        if all(isinstance(value, types) for value in values):
            integers = kind == "continuous" and all(float(value).is_integer() for value in values)
            return replace(column, kind="integer" if integers else kind)
    return None


def _of_text(column: Column, values: Sequence[Any]) -> Column | None:
    """Infer the kind of a text column that holds numbers with detection limits, or has a format.

    Numbers without anything around them stay text, unless blank cells or other marks of missing values are among them:
    those are why the numbers are text.
    """
    if not all(isinstance(value, str) for value in values):
        return None
    cells = [value for value in values if not is_blank(value)]
    if _limited(cells):
        return replace(column, kind="continuous", censored=True)
    found = find_format(cells)
    if found is None or (found.plain and len(cells) == len(values) and not column.missing):
        return None
    kind = found.kind if found.kind != "number" else "continuous" if found.decimals else "integer"
    return replace(column, kind=kind, text=found)


def _limited(values: Sequence[str]) -> bool:
    """Check whether texts are numbers and detection limits such as <0.5, at least one of each."""
    limits = [bool(LIMIT.fullmatch(value)) for value in values]
    numbers = [bool(NUMBER.fullmatch(value)) for value in values]
    return any(limits) and any(numbers) and all(a or b for a, b in zip(limits, numbers, strict=True))


def _number(series: Any, column: Column) -> Column:
    """Infer the kind of a column of numbers."""
    values = as_floats(series)[~missing_cells(series, column)]
    finite = values[np.isfinite(values)]
    integers = bool(len(finite)) and bool((finite == np.round(finite)).all())
    counts_rows = integers and len(values) == len(series) > 20 and bool((np.diff(values) == 1).all())
    if counts_rows:
        return replace(column, kind="passthrough")
    if series.dtype.is_integer() and len(finite) and np.abs(finite).max() > 2**53:
        return replace(column, kind="passthrough", reason=_TOO_LARGE)
    return replace(column, kind="integer" if integers else "continuous")


def _with_step(series: Any, column: Column) -> Column:
    """Set the coarsest resolution that all dates, times or durations of the column have."""
    codes = encode_column(series, column)
    known = codes[~np.isnan(codes)]
    return replace(column, step=next(step for step in _STEPS if step == 1.0 or not (known % step).any()))


def _is_ordered(series: Any) -> bool:
    """Check whether a categorical column is ordered."""
    import narwhals as nw

    return series.dtype == nw.Categorical and bool(getattr(native_dtype(series), "ordered", False))


def _suspect_words(series: Any, values: Sequence[Any]) -> str:
    """Explain which words keep a text column from having a format."""
    if not all(isinstance(value, str) for value in values):
        return ""
    counts = Counter(series.to_list())
    words = odd_words(values, [counts[value] for value in values])
    if not words:
        return ""
    options = " ".join(f"--missing {shlex.quote(word)}" for word in words)
    cells = sum(counts[word] for word in words)
    count = f"{cells} cells" if cells > 1 else "1 cell"
    return (
        f"it holds numbers or dates but for {', '.join(map(repr, words))} ({count}), so it is read as text. If that "
        f"stands for missing values, give missing={list(words)} ({options}); else correct it, or say that the column is "
        f"text: kinds={{{series.name!r}: 'category'}} (--kind {shlex.quote(series.name)}=category) or 'passthrough'"
    )


def _unusable(series: Any) -> str:
    """Explain that a column of objects cannot be modelled."""
    types = sorted({type(value).__name__ for value in series.drop_nulls().to_list()})
    return f"it holds {' and '.join(types[:3])} objects, which cannot be modelled: it is passed through unchanged"


def _misfit(series: Any, kind: str) -> InvalidData:
    """Make the error for a column that cannot have the kind given."""
    held = f"it holds {_telling(series)!r}"
    return InvalidData(f"Column {series.name!r} cannot be of kind {kind!r}: {held}. Convert it first.")


def _telling(series: Any) -> Any:
    """Return a value that shows what a column holds."""
    values = series.drop_nulls().to_list()
    return next((value for value in values if not isinstance(value, (int, float))), values[0] if values else None)
