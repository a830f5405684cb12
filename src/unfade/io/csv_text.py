"""CSV files that come back in their own text: a cell that did not change is the same bytes, and so is all around it."""

import datetime
import gzip
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unfade.errors import InvalidFile
from unfade.storage import whole_or_nothing

_CELL = rb'(?:"(?:[^"]++|"")*+"[^,\r\n]*+|(?!")[^,\r\n]*+)'
_CELLS = re.compile(rb",(" + _CELL + rb")")
_RECORD = re.compile(_CELL + rb"(?:," + _CELL + rb")*+(?:\r\n|\r|\n)?")
_SHOWN = 1000  # rows whose cells show how a column is written
Writer = Callable[[Any], str]


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a name is that of a CSV file."""
    return Path(path).name.lower().endswith((".csv", ".csv.gz"))


class CsvText:
    """The text of a CSV file, and the table that was read from it."""

    def __init__(self, path: Path, table: Any):
        self.table = table
        records, full = _rows(unpacked(path), path, len(table))
        self.head, self.rows = records[: full[0] + 1], full[1:]
        self.records = records
        shown = [_split(records[row]) for row in self.rows[:_SHOWN]]
        self.cells = list(zip(*shown, strict=True))  # of each column, as they are written in the first rows

    def write(self, table: Any, path: Path, decimals: bool = True) -> None:
        """Write a table that this one became. decimals: whether new numbers have no more of them than their column."""
        records = list(self.records)
        for row, record in zip(self.rows, self._changed(table, decimals), strict=True):
            records[row] = record
        _write(records, path)

    def write_draws(self, draws: Iterable[Any], path: Path, decimals: bool = True) -> None:
        """Write tables that this one may be one below another, after columns with the number of the draw and the row."""
        head = self.head[-1].removeprefix(b"\xef\xbb\xbf")
        end = head[len(head.rstrip(b"\r\n")) :] or b"\n"

        def lines() -> Iterator[bytes]:
            yield b"draw,row," + head.rstrip(b"\r\n") + end
            for number, table in enumerate(draws):
                for row, record in enumerate(self._changed(table, decimals)):
                    yield b"%d,%d,%b%b" % (number, row, record.rstrip(b"\r\n"), end)

        _write(lines(), path)

    def _changed(self, table: Any, decimals: bool) -> list[bytes]:
        """The records of the rows, with the cells again that are others in `table`."""
        new: dict[int, list[tuple[int, str]]] = {}
        for column, (old, now, cells) in enumerate(zip(self.table.columns, table.columns, self.cells, strict=True)):
            places, values = _changes(old, now)
            if len(places):
                write = _writer(old, values, cells, decimals)
                for row, value in zip(places.tolist(), values, strict=True):
                    new.setdefault(row, []).append((column, write(value)))
        quoted = [next((c for c in cells if c), b"").startswith(b'"') for cells in self.cells]
        records = [self.records[row] for row in self.rows]
        for row, changes in new.items():
            record = records[row]
            parts = _split(record)
            for column, text in changes:
                parts[column] = _cell(text, quoted[column] or parts[column].startswith(b'"'))
            records[row] = b",".join(parts) + record[len(record.rstrip(b"\r\n")) :]
        return records


def unpacked(path: Path) -> bytes:
    """The bytes of a CSV file, also of a packed one."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.name.lower().endswith(".gz") else data


def rows_of(data: bytes, path: Path, rows: int) -> list[list[bytes]]:
    """The cells of each row of a CSV file as they are written; rows: how many there are."""
    records, full = _rows(data, path, rows)
    return [_split(records[place]) for place in full[1:]]


def unquoted(cell: bytes) -> str:
    """What a cell holds."""
    text = cell.decode()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def _rows(data: bytes, path: Path, rows: int) -> tuple[list[bytes], list[int]]:
    """The records of a CSV file, and which of them are the header and a row: blank lines are none."""
    records = list(_records(data, path))
    full = [i for i, record in enumerate(records) if record.strip(b"\r\n")]
    if len(full) != rows + 1:
        raise InvalidFile(
            f"{path} has {len(full) - 1} lines of cells, but is read as {rows} rows. "
            "Expected one line a row; convert it to .parquet to use it as it is."
        )
    return records, full


def _write(records: Iterable[bytes], path: Path) -> None:
    with whole_or_nothing(path) as draft:
        if path.name.lower().endswith(".gz"):
            draft.write_bytes(gzip.compress(b"".join(records), mtime=0))
        else:
            with draft.open("wb") as file:
                file.writelines(records)


def _records(data: bytes, path: Path) -> Iterator[bytes]:
    """The records of a CSV file with their line ends; a quoted cell may hold line ends of its own."""
    open_: list[bytes] = []
    for line in data.splitlines(keepends=True):
        if open_ or b'"' in line:
            open_.append(line)
            if open_[:-1] and b'"' not in line:  # a quoted cell goes on
                continue
            line = b"".join(open_)
            if not _RECORD.fullmatch(line.removeprefix(b"\xef\xbb\xbf")):
                open_ = [line]
                continue
            open_ = []
        yield line
    if open_:
        raise InvalidFile(f"{path} has a quote that is not closed: {open_[0][:60].decode(errors='replace')!r}. Close it.")


def _split(record: bytes) -> list[bytes]:
    return _CELLS.findall(b"," + record.rstrip(b"\r\n"))


def _cell(text: str, quoted: bool) -> bytes:
    if quoted or re.search(r'[,"\r\n]', text):
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()


def _changes(old: Any, now: Any) -> tuple[np.ndarray, list[Any]]:
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


def _writer(old: Any, values: list[Any], cells: tuple[bytes, ...], decimals: bool) -> Writer:
    """How new values of a column are written: as its cells are."""
    texts = [cell.decode().strip('" ') for cell in cells]
    like: Any = values[0]
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
