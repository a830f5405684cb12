"""Column: its kind, and single values as numbers (codes) and back.

The code of a number is the number; of booleans 0 or 1; of dates, times of day and durations microseconds; of categories
the position in the list of values.
"""

import datetime
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from unfade.data.text_formats import TextFormat
from unfade.errors import InvalidData

KINDS = ("continuous", "integer", "boolean", "date", "time", "duration", "ordinal", "category", "passthrough")
TEMPORAL = ("date", "time", "duration")
Missing = Sequence[Any] | dict[str, Any]  # values that stand for missing ones, of all columns, or by column ("": all)
LIMIT = re.compile(r"\s*([<>])=?\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*")
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
DAY = 24 * 3600 * 10**6
YEARS = -718_797 * DAY, 2_932_531 * DAY  # from the year 2 to 9998


@dataclass(frozen=True)
class Column:
    """A column of a frame: its name, its kind (one of KINDS), and the values of a category in order.

    censored: whether it is text with detection limits such as <0.5; text: the format of other text that is read as
    numbers, dates or times; missing: values that stand for missing ones; step: the resolution of dates, times and
    durations, in microseconds; reason: why it was not given another kind, in words.
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
        """Whether codes have no mean that is a code."""
        return self.kind in ("boolean", "ordinal", "category")

    @property
    def unit(self) -> float:
        """Distance between values that the column can hold; 0 if it holds any number."""
        return 0.0 if self.kind == "continuous" else self.step if self.kind in TEMPORAL else 1.0


def marks_of(missing: Missing | None, name: str) -> tuple[Any, ...]:
    """Return the values that stand for missing ones in a column."""
    named = missing if isinstance(missing, dict) else {"": missing}
    given = [named.get(each) for each in dict.fromkeys((name, ""))]
    each = [[marks] if isinstance(marks, (str, int, float)) else marks or () for marks in given]
    return tuple(mark for marks in each for mark in marks)


def as_numbers(marks: Sequence[Any]) -> list[float]:
    """Return the values that are numbers, also as text."""
    return [float(mark) for mark in marks if NUMBER.fullmatch(str(mark))]


def code_of(value: Any, column: Column) -> float:
    """Return the code of a value of a column without categories."""
    if column.text is not None and isinstance(value, str):
        code = column.text.parse(value)
        if code is not None:
            return code
    elif column.kind in TEMPORAL and not isinstance(value, str):
        return microseconds(value)
    limit = LIMIT.fullmatch(value) if column.censored and isinstance(value, str) else None
    try:
        return float(limit[2] if limit else value)
    except (TypeError, ValueError):
        expected = column.kind + "s" if column.kind in TEMPORAL else "numbers"
        raise InvalidData(
            f"Expected {expected} in column {column.name!r}, as at fit, got {value!r}. Correct it, or leave it "
            f"empty; if it stands for a missing value, fit with missing=[{value!r}] (--missing {shlex.quote(str(value))})."
        ) from None


def microseconds(value: Any) -> float:
    """Convert to microseconds: dates since 1970 (in UTC if zoned), times of day since midnight, durations."""
    if isinstance(value, datetime.time):
        return 1e6 * (3600 * value.hour + 60 * value.minute + value.second) + value.microsecond
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return float(np.timedelta64(value).astype("timedelta64[us]").astype(np.int64))
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return float(np.datetime64(value, "us").astype(np.int64))


def value_of(code: float, column: Column, like: Any = None) -> Any:
    """Return the value of a code, as a Python object such as `like`, another value of the column."""
    if column.categories:
        return column.categories[int(np.clip(code, 0, len(column.categories) - 1))]
    if column.kind == "boolean":
        return bool(code >= 0.5)
    if column.kind == "date":
        code = float(np.clip(code, *YEARS))
    if column.kind == "time":
        code = float(np.clip(code, 0, DAY - column.step))
    if column.text is not None:
        return column.text.write(code)
    if column.kind in TEMPORAL:
        return _moment(code, column.kind, like)
    if column.censored:
        return f"{code:.6g}"
    if isinstance(like, Decimal):
        return decimal(float(code), max(0, -int(like.as_tuple().exponent)))
    return int(code) if column.kind == "integer" else float(code)


def _moment(code: float, kind: str, like: Any) -> Any:
    """Convert microseconds to a date, time of day or duration."""
    if kind == "duration":
        return datetime.timedelta(microseconds=int(code))
    moment = np.datetime64(int(code), "us").item()
    if kind == "time":
        return moment.time()
    return moment.date() if isinstance(like, datetime.date) and not isinstance(like, datetime.datetime) else moment


def decimal(value: Any, places: int) -> Any:
    """Convert a number to a Decimal with `places` places; return anything else unchanged."""
    if not isinstance(value, (int, float)):
        return value
    with localcontext(prec=100):
        return Decimal(value).quantize(Decimal(1).scaleb(-places))
