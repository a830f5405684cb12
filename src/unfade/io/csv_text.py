"""Text files that come back in their own text: a cell that did not change is the same bytes, and so is all around it."""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unfade.data.text_formats import number_format
from unfade.errors import InvalidFile
from unfade.io.guise import PACKED, Guise, Layout, ending, is_text, pack, read_text
from unfade.storage import whole_or_nothing

_SHOWN = 1000  # rows whose cells show how a column is written
Writer = Callable[[Any], str]


@lru_cache(maxsize=8)
def _patterns(sep: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """What a cell with the separator before it looks like, and a record."""
    mark = re.escape(sep.encode())
    cell = rb'(?:"(?:[^"]++|"")*+"[^%b\r\n]*+|(?!")[^%b\r\n]*+)' % (mark, mark)
    record = cell + rb"(?:" + mark + cell + rb")*+(?:\r\n|\r|\n)?"
    return re.compile(mark + rb"(" + cell + rb")"), re.compile(record)


class CsvText:
    """The text of a file of cells, and the table that was read from it."""

    def __init__(self, path: Path, table: Any, layout: Layout | None = None):
        self.table = table
        self.guise, text = read_text(path, layout)
        records, full = _rows(text, path, len(table), self.guise.sep)
        self.head, self.rows = records[: full[0] + 1], full[1:]
        self.records = records
        shown = [_split(records[row], self.guise.sep) for row in self.rows[:_SHOWN]]
        self.cells = list(zip(*shown, strict=True))  # of each column, as they are written in the first rows

    def takes(self, path: Path) -> bool:
        """Whether a file of this name can be written in this guise."""
        return is_text(path) and (self.guise.sep == "\t" or not ending(path).startswith((".tsv", ".tab")))

    def write(self, table: Any, path: Path, decimals: bool = True) -> None:
        """Write a table that this one became. decimals: whether new numbers have no more of them than their column."""
        records = list(self.records)
        for row, record in zip(self.rows, self._changed(table, decimals), strict=True):
            records[row] = record
        _write(records, path, self.guise)

    def write_draws(self, draws: Iterable[Any], path: Path, decimals: bool = True) -> None:
        """Write tables that this one may be one below another, after columns with the number of the draw and the row."""
        head, sep = self.head[-1], self.guise.sep.encode()
        end = head[len(head.rstrip(b"\r\n")) :] or b"\n"

        def lines() -> Iterator[bytes]:
            yield sep.join([b"draw", b"row", head.rstrip(b"\r\n")]) + end
            for number, table in enumerate(draws):
                for row, record in enumerate(self._changed(table, decimals)):
                    yield sep.join([b"%d" % number, b"%d" % row, record.rstrip(b"\r\n")]) + end

        _write(lines(), path, self.guise)

    def _changed(self, table: Any, decimals: bool) -> list[bytes]:
        """The records of the rows, with the cells again that are others in `table`."""
        new: dict[int, list[tuple[int, str]]] = {}
        for column, (old, now, cells) in enumerate(zip(self.table.columns, table.columns, self.cells, strict=True)):
            places, values = changes(old, now)
            if len(places):
                write = _writer(old, values, cells, decimals, self.guise.decimal)
                for row, value in zip(places.tolist(), values, strict=True):
                    new.setdefault(row, []).append((column, write(value)))
        quoted = [next((c for c in cells if c), b"").startswith(b'"') for cells in self.cells]
        records = [self.records[row] for row in self.rows]
        sep = self.guise.sep
        for row, others in new.items():
            record = records[row]
            parts = _split(record, sep)
            for column, text in others:
                parts[column] = _cell(text, quoted[column] or parts[column].startswith(b'"'), sep)
            records[row] = sep.encode().join(parts) + record[len(record.rstrip(b"\r\n")) :]
        return records


def rows_of(data: bytes, path: Path, rows: int, sep: str = ",") -> list[list[bytes]]:
    """The cells of each row of a text file as they are written; rows: how many there are."""
    records, full = _rows(data, path, rows, sep)
    return [_split(records[place], sep) for place in full[1:]]


def unquoted(cell: bytes) -> str:
    """What a cell holds."""
    text = cell.decode()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _rows(data: bytes, path: Path, rows: int, sep: str) -> tuple[list[bytes], list[int]]:
    """The records of a text file, and which of them are the header and a row: blank lines are none."""
    records = list(_records(data, path, sep))
    full = [i for i, record in enumerate(records) if record.strip(b"\r\n")]
    if len(full) != rows + 1:
        raise InvalidFile(
            f"{path} has {len(full) - 1} lines of cells, but is read as {rows} rows. "
            "Expected one line a row; convert it to .parquet to use it as it is."
        )
    return records, full


def _write(records: Iterable[bytes], path: Path, guise: Guise) -> None:
    with whole_or_nothing(path) as draft:
        if guise.encoding != "utf-8" or draft.suffix.lower() in PACKED:
            return pack(guise.encode(b"".join(records)), draft)
        with draft.open("wb") as file:
            file.write(guise.bom)
            file.writelines(records)


def _records(data: bytes, path: Path, sep: str) -> Iterator[bytes]:
    """The records of a text file with their line ends; a quoted cell may hold line ends of its own."""
    open_: list[bytes] = []
    for line in data.splitlines(keepends=True):
        if open_ or b'"' in line:
            open_.append(line)
            if open_[:-1] and b'"' not in line:  # a quoted cell goes on
                continue
            line = b"".join(open_)
            if not _patterns(sep)[1].fullmatch(line):
                open_ = [line]
                continue
            open_ = []
        yield line
    if open_:
        raise InvalidFile(f"{path} has a quote that is not closed: {open_[0][:60].decode(errors='replace')!r}. Close it.")


def _split(record: bytes, sep: str) -> list[bytes]:
    return _patterns(sep)[0].findall(sep.encode() + record.rstrip(b"\r\n"))


def _cell(text: str, quoted: bool, sep: str) -> bytes:
    if quoted or sep in text or re.search(r'["\r\n]', text):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()


def changes(old: Any, now: Any) -> tuple[np.ndarray, list[Any]]:
    """The rows whose values are others, and what they are; a cell that is missing now stays as it was."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_null(now.type) or (old.type == now.type and old.equals(now)):
        return np.empty(0, int), []
    known = compute.invert(compute.is_null(now, nan_is_null=True))
    if pa.types.is_null(old.type):
        differs = known
    else:
        before = old if old.type == now.type else old.cast(now.type, safe=False)
        differs = compute.and_(known, compute.fill_null(compute.not_equal(before, now), True))
    values = now.filter(differs)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    return np.flatnonzero(differs.to_numpy()), values.to_pylist()


def _writer(old: Any, values: list[Any], cells: tuple[bytes, ...], decimals: bool, decimal: str = ".") -> Writer:
    """How new values of a column are written: as its cells are."""
    texts = [cell.decode().strip('" ') for cell in cells]
    like: Any = values[0]
    if decimal == "," and isinstance(like, (int, float)) and not isinstance(like, bool):
        found = number_format([text for text in texts if re.search(r"\d", text)], ",")
        if found is not None and found.thousands:
            return found.write
        points = tuple(cell.replace(b",", b".") for cell in cells)
        plain = _writer(old, values, points, decimals)
        return lambda value: plain(value).replace(".", ",")
    if isinstance(like, bool):
        word = next((text for text in texts if text.lower() in ("true", "false")), "true")
        return lambda value: str(value).upper() if word.isupper() else str(value) if word.istitle() else str(value).lower()
    if isinstance(like, float):
        places = _places(old, texts) if decimals else None
        if places is None:
            return repr
        there = {float(text): text for text in reversed(texts) if re.fullmatch(r"-?\d+(\.\d+)?", text)}
        return lambda value: there.get(round(value, places)) or f"{value:z.{places}f}"
    if isinstance(like, (datetime.date, datetime.time)):
        shown = next((text for text in texts if re.match(r"\d+[-:]", text)), "")
        return lambda value: _moment(value, shown)
    return str


def _places(old: Any, texts: list[str]) -> int | None:
    """How many decimals numbers of a column have; None where they have powers of ten or ever more."""
    import pyarrow as pa

    if any(re.search(r"\d[eE]", text) for text in texts):
        return None
    written = max((len(text.partition(".")[2]) for text in texts if re.fullmatch(r"[-+]?\d*\.\d*", text)), default=0)
    values = np.zeros(0) if pa.types.is_null(old.type) else old.drop_null().cast(pa.float64(), safe=False).to_numpy()
    values = values[np.isfinite(values)]
    needed = (k for k in range(written, 13) if np.array_equal(np.round(values, k), values))
    return next(needed, None)


def _moment(value: Any, shown: str) -> str:
    """A date or time written like another one of its column."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    clock = re.search(r"\d\d(:\d\d)?(:\d\d)?(?:[.,](\d+))?(Z|[-+]\d\d(?::?\d\d)?)?$", shown[11:] if "-" in shown else shown)
    if clock is None:
        return str(value)
    parts = (
        "milliseconds" if len(clock[3] or "") == 3 else "microseconds" if clock[3] else "seconds" if clock[2] else "minutes"
    )
    zone = clock[4] or ""
    if isinstance(value, datetime.time):
        return value.isoformat(parts)
    if zone not in ("", "Z"):
        value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        value = value.astimezone(datetime.datetime.strptime(zone + "00" * (len(zone) == 3), "%z").tzinfo)
    return value.replace(tzinfo=None).isoformat("T" if "T" in shown else " ", parts) + zone
