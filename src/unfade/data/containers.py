"""Containers in, containers out: a frame, array or tensor goes to one float array, and results come in the same kind.

A column of a frame has a kind, found from its dtype and values: numbers and whole numbers are themselves,
booleans are 0 and 1, dates, times of day and durations microseconds, categories their place in the list of values. Text is
read as numbers, dates or times if all its cells have one format (see `text_formats`), and written in that format.
"""

import datetime
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import torch

from unfade.data.observations import Observations
from unfade.data.text_formats import TextFormat, find_format, is_blank, odd_words
from unfade.errors import InvalidData

KINDS = ("continuous", "integer", "boolean", "date", "time", "duration", "ordinal", "category", "passthrough")
TEMPORAL = ("date", "time", "duration")
Missing = Sequence[Any] | dict[str, Any]  # values that stand for missing ones, of all columns, or by column ("": all)
LIMIT = re.compile(r"\s*([<>])=?\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


@dataclass(frozen=True)
class Column:
    """A column of a frame: its name, one of KINDS, and the values of a category in their order.

    censored: whether it is text that holds detection limits such as <0.5; text: the format of other text that is read as
    numbers, dates or times; missing: values that stand for missing ones; step: the resolution of dates, times and
    durations, in microseconds; reason: why it was not taken for what it may be, in words.
    """

    name: str
    kind: str
    categories: tuple[Any, ...] = ()
    censored: bool = False
    text: TextFormat | None = None
    missing: tuple[Any, ...] = ()
    step: float = 1.0
    reason: str = ""

    @property
    def discrete(self) -> bool:
        """Whether a mean of its codes is no code."""
        return self.kind in ("boolean", "ordinal", "category")

    @property
    def unit(self) -> float:
        """The distance between values that the column can hold: 0 where it holds any number."""
        return 0.0 if self.kind == "continuous" else self.step if self.kind in TEMPORAL else 1.0


@dataclass(frozen=True)
class Container:
    """What the data came in: enough to put an array of the same shape back into the same kind.

    columns: of a frame, or None for plain arrays; template: the frame, for its library, index and dtypes.
    """

    columns: tuple[Column, ...] | None
    template: Any
    dtype: np.dtype
    back: np.ndarray | None = None  # where the caller's columns stand among the model's; None: in the same order

    @property
    def names(self) -> tuple[str, ...] | None:
        """Column names, where there are any."""
        return None if self.columns is None else tuple(column.name for column in self.columns)

    def reorder(self, values: np.ndarray) -> np.ndarray:
        """Values (..., features) in the model's order of columns, put in the caller's; NaN for columns it does not know."""
        if self.back is None:
            return values
        return np.where(self.back < 0, np.nan, values[..., self.back])

    def event_shape(self, obs: Observations) -> tuple[int, ...]:
        """Shape of a sample as the caller has it, for observations as the model has them."""
        return tuple(obs.event_shape) if self.back is None else (len(self.back),)

    def wrap(self, values: np.ndarray) -> Any:
        """Put (samples, *event) values into the kind of container the data came in: each column in its dtype.

        Cells of the frame that were there and did not change are taken as they are.
        """
        if self.columns is not None:
            return _frame_like(self.template, values, self.columns)
        values = values.astype(self.dtype, copy=False)
        return torch.from_numpy(values) if isinstance(self.template, torch.Tensor) else values

    def present(self) -> np.ndarray | None:
        """Which cells of a frame hold something, whatever it is, (samples, columns); None for plain arrays."""
        if not self.columns:
            return None
        frame = _named(self.template)
        return np.stack([~_empty(frame[column.name], column) for column in self.columns], 1)

    def hide(self, hidden: np.ndarray) -> Any:
        """The frame without the cells `hidden`, (samples, columns)."""
        frame = _named(self.template)
        columns = []
        for i, name in enumerate(frame.columns):
            values = [None if gone else value for value, gone in zip(frame[name].to_list(), hidden[:, i], strict=True)]
            columns.append(_native_like(frame[name], values) if hidden[:, i].any() else frame[name].to_native())
        return _framed(self.template, columns)

    def wrap_numbers(self, values: np.ndarray) -> Any:
        """The same for numbers that are not values of the columns, such as standard deviations."""
        if self.columns is None:
            return self.wrap(values)
        return _framed(self.template, [_new_series(self.template, values[:, i]) for i in range(len(self.columns))])


def open_container(
    data: Any,
    columns: Sequence[Column] | None = None,
    kinds: dict[str, str] | None = None,
    missing: Missing | None = None,
) -> Any:
    """The data as something `as_observations` takes, and the container to put results back into.

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
    dtype = np.dtype(np.float32 if str(getattr(data, "dtype", "")).endswith("float32") else np.float64)
    if not _is_frame(data):
        return data, Container(None, data if isinstance(data, torch.Tensor) else None, dtype)
    frame = _named(data)
    given, marks = kinds or {}, missing if isinstance(missing, dict) else {"": missing}
    for what, named in (("kinds", given), ("missing", marks)):
        if unknown := sorted(set(named) - {"", *frame.columns}):
            raise InvalidData(f"{what} names the columns {unknown}, which are not there. Columns are {frame.columns[:10]}.")
    known = {column.name: column for column in columns or ()}
    if columns is None:
        found = tuple(_found(frame[name], name, given.get(name), marks_of(missing, name)) for name in frame.columns)
    else:  # columns that were not there before pass through
        found = tuple(known.get(name, Column(name, "passthrough")) for name in frame.columns)
    array = np.stack([_codes(frame[c.name], c) for c in found], 1) if found else np.empty((len(frame), 0))
    return array, Container(found, data, dtype)


def take(data: Any, rows: np.ndarray) -> Any:
    """Some rows of a table or array, in the same kind of container."""
    return (
        _named(data)[rows].to_native() if _is_frame(data) else (data if hasattr(data, "shape") else np.asarray(data))[rows]
    )


def detection_limits(data: Any, columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray] | None:
    """Low and high ends of every cell, infinite where it is not limited; None where no column holds limits."""
    if not any(column.censored for column in columns):
        return None
    frame = _named(data)
    low = np.full((len(frame), len(columns)), -np.inf)
    high = np.full((len(frame), len(columns)), np.inf)
    for i, column in enumerate(columns):
        for row, text in enumerate(frame[column.name].to_list() if column.censored else ()):
            if text is not None and (match := LIMIT.fullmatch(str(text))):
                (high if match[1] == "<" else low)[row, i] = float(match[2])
    return low, high


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


def _named(data: Any) -> Any:
    """A narwhals frame with string names; pandas also has frames whose columns are numbered."""
    import narwhals as nw

    check_names(data.column_names if hasattr(data, "column_names") else list(data.columns))
    if hasattr(data, "set_axis") and any(not isinstance(name, str) for name in data.columns):
        data = data.set_axis([str(name) for name in data.columns], axis=1)
    return nw.from_native(data, eager_only=True)


def marks_of(missing: Missing | None, name: str) -> tuple[Any, ...]:
    """Values that stand for missing ones in a column."""
    named = missing if isinstance(missing, dict) else {"": missing}
    given = [named.get(each) for each in dict.fromkeys((name, ""))]
    each = [[marks] if isinstance(marks, (str, int, float)) else marks or () for marks in given]
    return tuple(mark for marks in each for mark in marks)


def _found(series: Any, name: str, kind: str | None, missing: tuple[Any, ...] = ()) -> Column:
    """What a column is, from its dtype and values, unless its kind is given."""
    if kind is not None and kind not in KINDS:
        raise InvalidData(f"Kinds of columns are {', '.join(KINDS)}; got {kind!r} for {name!r}.")
    if kind == "passthrough":  # whatever it holds
        return Column(name, kind)
    column = _guessed(series, Column(name, "passthrough", missing=missing), as_text=kind in ("ordinal", "category"))
    if kind in (None, column.kind):
        return column
    if kind in ("ordinal", "category"):
        values = column.categories or _values(series, column)
        if values is None:
            raise _misfit(series, kind)
        return replace(column, kind=kind, categories=values, censored=False, text=None, reason="")
    text = column.kind in ("category", "ordinal", "passthrough") and not series.dtype.is_numeric()
    if text and kind in ("continuous", "integer"):
        found = find_format([value for value in _values(series, column) or () if isinstance(value, str)])
        if found is not None and found.kind == "number":
            return replace(column, kind=kind, categories=(), text=found, reason="")
    codes = kind == "boolean" and not (
        column.kind in ("continuous", "integer") and set(_values(series, column) or ()) <= {0, 1}
    )
    if text or codes or (column.kind in TEMPORAL and kind in ("continuous", "integer")):
        raise _misfit(series, kind)
    return replace(column, kind=kind, categories=(), censored=False, reason="")


def _misfit(series: Any, kind: str) -> InvalidData:
    held = f"it holds {_telling(series)!r}"
    return InvalidData(f"Column {series.name!r} cannot be of kind {kind!r}: {held}. Convert it first.")


def _guessed(series: Any, column: Column, as_text: bool = False) -> Column:
    """The column with its kind. as_text: text is not read as numbers, dates or times."""
    import narwhals as nw

    dtype = series.dtype
    count = int((~_empty(series, column)).sum())
    if dtype == nw.Boolean:
        return replace(column, kind="boolean")
    if dtype.is_numeric() or count == 0:
        return _number(series, column) if count else replace(column, kind="continuous")
    if _holds_dates(series) or dtype in (nw.Time, nw.Duration):
        kind = "time" if dtype == nw.Time else "duration" if dtype == nw.Duration else "date"
        return _with_step(series, replace(column, kind=kind))
    if dtype == nw.Enum or _is_ordered(series):
        known = getattr(dtype, "categories", None)  # of narwhals' Enum
        values = tuple(series.cat.get_categories().to_list() if known is None else known)
        return replace(column, kind="ordinal", categories=values)
    found = _values(series, column)
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


def _suspect_words(series: Any, values: Sequence[Any]) -> str:
    """What to say of text that would have a format, were it not for a few words."""
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
        f"it holds numbers or dates but for {', '.join(map(repr, words))} ({count}), so it is taken for text. If that "
        f"stands for missing values, give missing={list(words)} ({options}); else correct it, or say that the column is "
        f"text: kinds={{{series.name!r}: 'category'}} (--kind {shlex.quote(series.name)}=category) or 'passthrough'"
    )


def _unusable(series: Any) -> str:
    types = sorted({type(value).__name__ for value in series.drop_nulls().to_list()})
    return f"it holds {' and '.join(types[:3])} objects, which cannot be modelled: it comes back as it is"


_OBJECTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "boolean"),
    ((int, float, np.number, Decimal), "continuous"),
    ((datetime.date, np.datetime64), "date"),
    ((datetime.time,), "time"),
    ((datetime.timedelta, np.timedelta64), "duration"),
)  # kinds of Python objects, the first that all values have


def _of_objects(series: Any, column: Column, values: Sequence[Any]) -> Column | None:
    """The column if its values are Python objects of one kind, such as dates or decimal numbers."""
    for types, kind in _OBJECTS:
        if all(isinstance(value, types) for value in values):
            whole = kind == "continuous" and all(float(value).is_integer() for value in values)
            return replace(column, kind="integer" if whole else kind)
    return None


def _of_text(column: Column, values: Sequence[Any]) -> Column | None:
    """The column if its text holds numbers with detection limits, or has a format.

    Numbers without anything around them stay text, unless blank cells or other marks of missing values are among
    them: those are why they came as text.
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


def _number(series: Any, column: Column) -> Column:
    values = _floats(series)[~_empty(series, column)]
    finite = values[np.isfinite(values)]
    whole = bool(len(finite)) and bool((finite == np.round(finite)).all())
    counts_rows = whole and len(values) == len(series) > 20 and bool((np.diff(values) == 1).all())
    if counts_rows:
        return replace(column, kind="passthrough")
    if series.dtype.is_integer() and len(finite) and np.abs(finite).max() > 2**53:
        return replace(column, kind="passthrough", reason=_TOO_LARGE)
    return replace(column, kind="integer" if whole else "continuous")


_TOO_LARGE = "it holds whole numbers above 2^53, which floating point rounds, as ids do: it comes back as it is"
_STEPS = (86.4e9, 3.6e9, 6e7, 1e6, 1e3, 1.0)  # a day, an hour, a minute, a second, a millisecond, in microseconds


def _with_step(series: Any, column: Column) -> Column:
    """The column with the coarsest resolution that all its dates, times or durations have."""
    codes = _codes(series, column)
    known = codes[~np.isnan(codes)]
    return replace(column, step=next(step for step in _STEPS if step == 1.0 or not (known % step).any()))


def _dtype(series: Any) -> Any:
    """The dtype that its own library gives a column; None in pyarrow."""
    return getattr(series.to_native(), "dtype", None)


def _holds_dates(series: Any) -> bool:
    """Whether its dtype is one of dates, also in zones that narwhals does not read (America/New_York in pandas)."""
    import narwhals as nw

    return series.dtype in (nw.Date, nw.Datetime) or getattr(_dtype(series), "kind", "") == "M"


def _is_ordered(series: Any) -> bool:
    import narwhals as nw

    return series.dtype == nw.Categorical and bool(getattr(_dtype(series), "ordered", False))


def _values(series: Any, column: Column) -> tuple[Any, ...] | None:
    """The different values of a column, sorted where they can be; None where they cannot be told apart (lists)."""
    try:
        values = {value for value, empty in zip(series.to_list(), _empty(series, column), strict=True) if not empty}
    except TypeError:
        return None
    try:
        return tuple(sorted(values))
    except TypeError:
        return tuple(values)


def _limited(values: Sequence[str]) -> bool:
    """Whether texts are numbers and limits such as <0.5, at least one of each."""
    limits = [bool(LIMIT.fullmatch(value)) for value in values]
    numbers = [bool(NUMBER.fullmatch(value)) for value in values]
    return any(limits) and any(numbers) and all(a or b for a, b in zip(limits, numbers, strict=True))


def _telling(series: Any) -> Any:
    """A value of a column that shows what is in it."""
    values = series.drop_nulls().to_list()
    return next((value for value in values if not isinstance(value, (int, float))), values[0] if values else None)


def _floats(series: Any) -> np.ndarray:
    import narwhals as nw

    native = series.to_native()
    if _dtype(series) is None and series.dtype.is_integer():  # pyarrow, which refuses more than 53 bits
        return np.asarray(native.cast("float64", safe=False), dtype=np.float64)
    if hasattr(native, "iloc") and not isinstance(native.dtype, np.dtype):
        return native.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _empty(series: Any, column: Column) -> np.ndarray:
    """Which cells are missing: null, NaN among floats, blank in text that has a format, or one of the column's marks."""
    empty = series.is_null().to_numpy().astype(bool)
    if series.dtype.is_float():
        empty = empty | np.isnan(_floats(series))
    if series.dtype.is_numeric():
        return empty | np.isin(_floats(series), as_numbers(column.missing)) if column.missing else empty
    read = column.kind in ("continuous", "integer", *TEMPORAL)  # text of such a column is read, blank cells are missing
    if not (column.missing or (read and _may_hold_text(series))):
        return empty
    marks, numbers = {str(mark).strip() for mark in column.missing}, as_numbers(column.missing)

    def gone(value: Any) -> bool:
        if not isinstance(value, str):
            return value in column.missing or (isinstance(value, (int, float, Decimal)) and float(value) in numbers)
        is_mark = value.strip() in marks or (bool(numbers) and bool(NUMBER.fullmatch(value)) and float(value) in numbers)
        return is_mark or (read and is_blank(value))

    return empty | _each(series, gone, False, empty)


def _may_hold_text(series: Any) -> bool:
    import narwhals as nw

    return series.dtype in (nw.String, nw.Object, nw.Unknown)


def _as_written(series: Any, column: Column) -> Column:
    """The column with the format of this very series, which may be text where the fit had numbers, or the reverse."""
    if column.kind not in ("continuous", "integer", *TEMPORAL):
        return column
    if not _may_hold_text(series):
        return replace(column, text=None, censored=False)
    if column.text is not None or column.censored:
        return column
    texts = [value for value in _values(series, column) or () if isinstance(value, str)]
    found = find_format(texts)
    alike = found is not None and (
        found.kind == column.kind or (found.kind == "number" and column.kind in ("continuous", "integer"))
    )
    return replace(column, text=found) if alike else column


def as_numbers(marks: Sequence[Any]) -> list[float]:
    """Those marks that are numbers, also as text."""
    return [float(mark) for mark in marks if NUMBER.fullmatch(str(mark))]


def _each(series: Any, function: Callable[[Any], Any], null: Any, empty: np.ndarray) -> np.ndarray:
    """A function of each cell, called once for each different value; `null` of the cells that are `empty`."""
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


def _codes(series: Any, column: Column) -> np.ndarray:
    """A column as numbers; NaN where nothing is known, or where a category was not there before."""
    column = _as_written(series, column)
    empty = _empty(series, column)
    if column.kind == "passthrough" or empty.all():
        return np.full(len(series), np.nan)
    if series.dtype.is_numeric() and not column.categories:
        return np.where(empty, np.nan, _floats(series))
    if column.categories:
        place = {value: float(i) for i, value in enumerate(column.categories)}
        return _each(series, lambda value: place.get(value, np.nan), np.nan, empty)
    return _each(series, lambda value: _code(value, column), np.nan, empty)


def _code(value: Any, column: Column) -> float:
    if column.text is not None and isinstance(value, str):
        code = column.text.parse(value)
        if code is not None:
            return code
    elif column.kind in TEMPORAL and not isinstance(value, str):
        return _microseconds(value)
    limit = LIMIT.fullmatch(value) if column.censored and isinstance(value, str) else None
    try:
        return float(limit[2] if limit else value)
    except (TypeError, ValueError):
        expected = column.kind + "s" if column.kind in TEMPORAL else "numbers"
        raise InvalidData(
            f"Expected {expected} in column {column.name!r}, as it had before, got {value!r}. Correct it, or leave it "
            f"empty; if it stands for a missing value, fit with missing=[{value!r}] (--missing {shlex.quote(str(value))})."
        ) from None


def _microseconds(value: Any) -> float:
    """Microseconds since 1970, in UTC where a time zone is given; of times of day since midnight; of durations."""
    if isinstance(value, datetime.time):
        return 1e6 * (3600 * value.hour + 60 * value.minute + value.second) + value.microsecond
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return float(np.timedelta64(value).astype("timedelta64[us]").astype(np.int64))
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return float(np.datetime64(value, "us").astype(np.int64))


def _frame_like(template: Any, values: np.ndarray, columns: Sequence[Column]) -> Any:
    frame = _named(template)
    series = [_decoded(frame[column.name], values[:, i], column) for i, column in enumerate(columns)]
    return _framed(template, series)


def _decoded(series: Any, codes: np.ndarray, column: Column) -> Any:
    """A native column like `series` with new values where there was none, or where they changed."""
    import narwhals as nw

    if column.kind == "passthrough":
        return series.to_native()
    column = _as_written(series, column)
    empty = _empty(series, column)
    temporal = column.kind in TEMPORAL
    if series.dtype in (nw.Float64, nw.Float32) and not (column.categories or (temporal and empty.all())):
        kept = np.where(np.isnan(codes), _floats(series), codes) if column.missing else codes  # a mark that was not filled
        return _new_series(series.to_native(), kept, series.dtype)
    old, unit = _codes(series, column), column.unit
    new = np.where(np.isnan(codes), np.nan, unit * np.round(codes / unit) if unit else codes)
    differs = (old != new) & (old != codes)  # finer than the steps at fit: the value that it had
    changed = ~np.isnan(new) & (empty | (~np.isnan(old) & differs))  # a category not known before stays
    if not changed.any():
        return series.to_native()
    if column.kind == "date" and _holds_dates(series):
        return _with_dates(series, changed, new[changed])
    values = series.to_list()
    there = (value for value, gone in zip(values, empty, strict=True) if not gone)
    like = next(there, None)
    if isinstance(like, Decimal):  # of as many places as any has
        like = min(like, *there, key=lambda value: value.as_tuple().exponent if isinstance(value, Decimal) else 0)
    for row in changed.nonzero()[0]:
        values[row] = value_of(new[row], column, like)
    return _native_like(series, values)


DAY = 24 * 3600 * 10**6
_YEARS = -718_797 * DAY, 2_932_531 * DAY  # from the year 2 to 9998
_NANOSECONDS = -106_750 * DAY, 106_750 * DAY  # what 64 bits hold as nanoseconds: 1677 to 2262


def _with_dates(series: Any, changed: np.ndarray, codes: np.ndarray) -> Any:
    """A native column with new dates, in microseconds, where `changed`: of its own unit and zone, the rest untouched."""
    import narwhals as nw

    native, unit = series.to_native(), DAY if series.dtype == nw.Date else 1
    zoned = getattr(series.dtype, "time_zone", None) is not None or series.dtype == nw.Unknown
    ends = _NANOSECONDS if zoned or "ns" in str(_dtype(series) or native.type) else _YEARS
    moments = np.clip(unit * np.round(codes / unit), *ends).astype(np.int64)
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


def value_of(code: float, column: Column, like: Any = None) -> Any:
    """The value of a code, as a Python object such as `like`, another value of the column."""
    if column.categories:
        return column.categories[int(np.clip(code, 0, len(column.categories) - 1))]
    if column.kind == "boolean":
        return bool(code >= 0.5)
    if column.kind == "date":
        code = float(np.clip(code, *_YEARS))
    if column.kind == "time":
        code = float(np.clip(code, 0, DAY - column.step))
    if column.text is not None:
        return column.text.write(code)
    if column.kind in TEMPORAL:
        return _moment(code, column.kind, like)
    if column.censored:
        return f"{code:.6g}"
    if isinstance(like, Decimal):
        return _decimal(float(code), max(0, -int(like.as_tuple().exponent)))
    return int(code) if column.kind == "integer" else float(code)


def _moment(code: float, kind: str, like: Any) -> Any:
    """A date, time of day or duration of so many microseconds."""
    if kind == "duration":
        return datetime.timedelta(microseconds=int(code))
    moment = np.datetime64(int(code), "us").item()
    if kind == "time":
        return moment.time()
    return moment.date() if isinstance(like, datetime.date) and not isinstance(like, datetime.datetime) else moment


def _native_like(series: Any, values: list[Any]) -> Any:
    """Values in the library and dtype of a series; in a wider one where it cannot hold them."""
    native = series.to_native()
    if hasattr(native, "iloc"):
        return _pandas_like(native, values)
    if hasattr(native, "type"):
        return _arrow_like(native, values)
    import polars as pl

    if native.dtype.is_decimal():
        values = [_decimal(value, native.dtype.scale) for value in values]
    try:
        return pl.Series(native.name, values, dtype=None if native.dtype == pl.Null else native.dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(native.name, values, strict=False)


def _pandas_like(native: Any, values: list[Any]) -> Any:
    import pandas as pd

    if "decimal" in str(native.dtype):  # of Arrow
        values = [_decimal(value, native.dtype.pyarrow_dtype.scale) for value in values]
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
    import pyarrow as pa

    if pa.types.is_decimal(native.type):
        values = [_decimal(value, native.type.scale) for value in values]
    try:
        flat = pa.array(values)
    except OverflowError:  # more than 64 bits
        flat = pa.array([float(value) if isinstance(value, int) else value for value in values])
    try:
        return pa.chunked_array([flat.cast(native.type)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # too large for it, or a column that held nothing at all
        return pa.chunked_array([flat])


def _decimal(value: Any, places: int) -> Any:
    if not isinstance(value, (int, float)):
        return value
    with localcontext(prec=100):
        return Decimal(value).quantize(Decimal(1).scaleb(-places))


def _new_series(native: Any, values: np.ndarray, dtype: Any = None) -> Any:
    """Floats in the library of a frame or series, of the very dtype of a series in pandas."""
    import narwhals as nw

    if dtype is not None and hasattr(native, "iloc") and not isinstance(native.dtype, np.dtype):
        import pandas as pd

        return pd.Series(values).astype(native.dtype)
    backend = nw.from_native(native, allow_series=True).implementation
    return nw.new_series("x", values, dtype or nw.Float64, backend=backend).to_native()


def _framed(template: Any, series: list[Any]) -> Any:
    """Native columns as a frame like the template: its names and index."""
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
