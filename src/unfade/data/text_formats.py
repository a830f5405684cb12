"""Text formats: numbers with units, dates and times of day as people write them, read and written back in the same form.

A column of text has a format if all its cells agree on it: ``$1,250.00``, ``70 kg``, ``12 %``, ``31/12/2024``, ``13:30``.
Blank cells and a single point are missing in such a column.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

_NUMBER = {  # by decimal mark; the other mark stands between groups of three digits
    mark: re.compile(
        r"\s*(?P<sign>[-+]?)(?P<prefix>[$€£¥₹]?[ \u00a0]?)(?P<inner>[-+]?)"
        rf"(?P<digits>[1-9]\d{{0,2}}(?:[{other}'\u00a0\u202f ]\d{{3}})+|\d+)?(?P<fraction>[{mark}]\d*)?"
        r"(?P<power>[eE][-+]?\d+)?(?P<suffix>[^\d.,]{0,12})"
    )
    for mark, other in ((".", ","), (",", "."))
}
_LABEL = re.compile(r"\s*[-+]?(0\d|\d{19})")  # leading zeros, or more digits than a number keeps
_DAYS = (
    "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y",
    "%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_ISO = tuple(  # 2024-12-31T13:30:00.000Z, in UTC if a zone is given
    f"%Y-%m-%d{between}{clock}{zone}"
    for between, clock, zone in product(("T", " "), ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f"), ("", "Z", "+00:00"))
)
_MIDNIGHT = datetime.datetime(1900, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_OTHER = {".": ",", ",": "."}
BLANKS = ("", ".")  # cells without spaces around them that are missing in a column of a format


@dataclass(frozen=True)
class TextFormat:
    """How the cells of a column of text are written.

    kind: "number", "date" or "time"; prefix, suffix: what stands around a number; thousands: the mark between groups of
    three digits; decimal: the decimal mark; decimals: digits after it, or of seconds; pattern: of dates and times, as
    `strptime` takes it; padded: whether days, months and hours below ten have a leading zero. The code of a date is
    microseconds since 1970, of a time microseconds since midnight.

    >>> money = find_format(["$1,250.00", "$80.50"])
    >>> money.parse("$1,250.00"), money.write(1300.457)
    (1250.0, '$1,300.46')
    >>> find_format(["31/12/2024", "01/02/2024"]).write(0.0)
    '01/01/1970'
    """

    kind: str
    prefix: str = ""
    suffix: str = ""
    thousands: str = ""
    decimals: int = 0
    pattern: str = ""
    padded: bool = True
    decimal: str = "."

    @property
    def plain(self) -> bool:
        """Whether cells are numbers without anything around them."""
        marks = self.prefix.strip() or self.suffix.strip() or self.thousands or self.decimal != "."
        return self.kind == "number" and not marks

    def parse(self, text: str) -> float | None:
        """The code of a cell; None where the text does not have this format."""
        if self.kind != "number":
            return _moment(text, self.pattern)
        parts = _NUMBER[self.decimal].fullmatch(text)
        if parts is None or not (parts["digits"] or (parts["fraction"] or ".") not in (".", ",")):
            return None
        if parts["prefix"].strip() != self.prefix.strip() or parts["suffix"].strip() != self.suffix.strip():
            return None
        digits = parts["digits"] or "0"
        if marks := set(re.sub(r"\d", "", digits)):
            if marks != {self.thousands or _OTHER[self.decimal]}:
                return None
            digits = digits.replace(self.thousands or _OTHER[self.decimal], "")
        fraction = (parts["fraction"] or "").replace(",", ".")
        return float(parts["sign"] + parts["inner"] + digits + fraction + (parts["power"] or ""))

    def write(self, code: float) -> str:
        """The cell of a code."""
        if self.kind != "number":
            moment = (_MIDNIGHT if self.kind == "time" else _EPOCH) + round(code) * _MICROSECOND
            numbers = {"%d": moment.day, "%m": moment.month, "%H": moment.hour, "%I": (moment.hour - 1) % 12 + 1}
            pattern = self.pattern
            for field, number in () if self.padded else numbers.items():
                pattern = pattern.replace(field, str(number))
            digits = f"{moment.microsecond:06d}"[: self.decimals or 6]
            return moment.strftime(pattern.replace("%f", digits))
        text = f"{abs(code):{',' if self.thousands else ''}.{self.decimals}f}"
        sign = "-" if code < 0 and float(text.replace(",", "")) else ""
        text = text.translate({ord(","): self.thousands or None, ord("."): self.decimal})
        return f"{sign}{self.prefix}{text}{self.suffix}"


def is_blank(text: str) -> bool:
    """Whether a cell of a column that has a format is missing: nothing but spaces, or a single point."""
    return text.strip() in BLANKS


def find_format(texts: Sequence[str]) -> TextFormat | None:
    """The format that all texts have, blank ones aside; None where there is none.

    texts: different cells of a column. Numbers with leading zeros are codes, and no numbers.
    """
    fitting = formats(texts)
    if not fitting or fitting[0].kind == "number":
        return fitting[0] if fitting else None
    found, cells = fitting[0], [text for text in texts if not is_blank(text)]
    if "%f" in found.pattern:
        found = replace(found, decimals=max(len(digits) for cell in cells for digits in re.findall(r"\.(\d+)", cell)))
    return replace(found, padded=all(found.write(_code(found, cell)) == cell.strip() for cell in cells))


def formats(texts: Sequence[str]) -> list[TextFormat]:
    """All formats that all texts have, blank ones aside, the one to take first."""
    cells = [text for text in texts if not is_blank(text)]
    if not cells:
        return []
    if (number := number_format(cells) or number_format(cells, ",")) is not None:
        return [number]
    clocks = [TextFormat("time", pattern=clock) for clock in _CLOCKS]
    dates = [TextFormat("date", pattern=day) for day in _DAYS]
    both = [TextFormat("date", pattern=f"{day} {clock}") for day, clock in product(_DAYS, _CLOCKS[:2])]
    both += [each for each in (TextFormat("date", pattern=pattern) for pattern in _ISO) if each not in both]
    return [each for each in (*dates, *clocks, *both) if all(each.parse(cell) is not None for cell in cells)]


class Witnesses:
    """The formats that the texts of a column may have, looked at in parts, and the few cells that show it.

    cells: such that `formats` of them is that of all texts so far, each with the number of its row.
    """

    def __init__(self) -> None:
        self.cells: dict[str, int] = {}
        self.formats: list[TextFormat] = []
        self.none = False

    def look(self, texts: dict[str, int]) -> None:
        """More texts, each with the number of its row."""
        for text, row in texts.items():
            if self.none:
                return
            if not (is_blank(text) or self._known(text)):
                self.cells[text] = row
                self.formats = formats(list(self.cells))
                self.none = not self.formats

    def _known(self, text: str) -> bool:
        """Whether a text changes nothing."""
        if not self.formats or any(each.parse(text) is None for each in self.formats):
            return False
        if self.formats[0].kind != "number":
            return True
        held, found = self.formats[0], number_format([text], self.formats[0].decimal)
        return found is not None and found.decimals <= held.decimals and found.thousands in ("", held.thousands)


def odd_words(texts: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """The few words of a column that has a format otherwise: texts that may stand for missing values.

    texts: different cells; counts: how often each occurs. There are at most three of them: words without digits in up to
    half of the cells, or others in up to a tenth.

    >>> odd_words(["1.5 kg", "2.5 kg", "refused"], [50, 40, 5])
    ('refused',)
    """
    held, total = dict(zip(texts, counts, strict=True)), max(1, sum(counts))
    cells = [text for text in texts if not is_blank(text)]
    wordy = [text for text in cells if not re.search(r"\d", text)]
    choices = [(wordy, 0.5)] if wordy and len(wordy) <= 3 and find_format([t for t in cells if t not in wordy]) else []
    for text in cells[:: max(1, len(cells) // 5)]:  # one of them has the format, if nine in ten have
        choices += [([cell for cell in cells if each.parse(cell) is None], 0.1) for each in formats([text])]
    fitting = (
        words for words, most in choices if 0 < len(words) <= 3 and sum(held[word] for word in words) <= most * total
    )
    return tuple(next(fitting, ()))


def number_format(cells: Sequence[str], decimal: str = ".") -> TextFormat | None:
    """The format of numbers with this decimal mark that all cells have; None where there is none."""
    parts = [_NUMBER[decimal].fullmatch(cell) for cell in cells]
    first = parts[0]
    if first is None:
        return None
    found = TextFormat("number", first["prefix"], first["suffix"].rstrip(), decimal=decimal)
    powers, decimals = False, 0
    for cell, part in zip(cells, parts, strict=True):
        if part is None or _LABEL.match(cell):
            return None
        if mark := re.sub(r"\d", "", part["digits"] or "")[:1]:
            found = replace(found, thousands=mark)
        decimals, powers = max(decimals, len(part["fraction"] or ".") - 1), powers or bool(part["power"])
    if any(found.parse(cell) is None for cell in cells):
        return None
    return replace(found, decimals=max(decimals, 6) if powers else decimals)


def _code(found: TextFormat, cell: str) -> float:
    code = found.parse(cell)
    assert code is not None
    return code


def _moment(text: str, pattern: str) -> float | None:
    try:
        moment = datetime.datetime.strptime(text.strip(), pattern)
    except ValueError:
        return None
    start = _EPOCH if "%d" in pattern else _MIDNIGHT
    return (moment - start) / _MICROSECOND
