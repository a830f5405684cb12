"""Guise of a text file of cells: separator, decimal mark, encoding and compression; found in the file, or given."""

import bz2
import codecs
import csv
import gzip
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unfade.errors import InvalidData, InvalidFile, notice

TEXT = (".csv", ".tsv", ".tab", ".txt")
PACKED = (".gz", ".bz2", ".xz", ".zst")
SEPARATORS = (",", ";", "\t", "|")
ERRORS = ["#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"]  # results of formulas in spreadsheets
NULLS = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", *ERRORS]  # cells that are missing
_NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " ", "point": ".", "dot": "."}
_SHOWN = 2**18  # bytes at the beginning of a file that show how it is written
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}(\.\d{3})+)?,\d+\s*")
_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(,\d{3})+\s*")
_GROUPS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(\.\d{3})+\s*")


@dataclass(frozen=True)
class Layout:
    """What the user states about a file; None: it is found in the file.

    sep: separator between cells; decimal: "." or ","; encoding: name of a codec; sheet: of a workbook, by name.
    """

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        for name in ("sep", "decimal"):
            object.__setattr__(self, name, _NAMED.get(getattr(self, name) or "", getattr(self, name)))
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise InvalidData(f"sep must be one character such as ; or tab, got {self.sep!r}.")
        if self.decimal not in (None, ".", ","):
            raise InvalidData(f"decimal must be . or , got {self.decimal!r}.")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, UnicodeError, ValueError):
                raise InvalidData(
                    f"encoding {self.encoding!r} is not known. Give utf-8, cp1252, latin-1, utf-16 or the like."
                ) from None

    def given(self) -> list[str]:
        """List the names of what is stated."""
        return [name for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class Guise:
    """How a text file is written."""

    sep: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    bom: bytes = b""

    def encode(self, text: bytes) -> bytes:
        """Encode UTF-8 text as the file is."""
        if self.encoding == "utf-8":
            return self.bom + text
        try:
            return self.bom + text.decode().encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = error.object[error.start : error.end]
            raise InvalidFile(
                f"The file is encoded as {self.encoding}, which cannot hold {letter!r}. Write to .parquet instead."
            ) from None


def ending(path: Path) -> str:
    """Return the ending of a name, with that of a compressed file inside it."""
    last = path.suffix.lower()
    return "".join(path.suffixes[-2:]).lower() if last in PACKED else last


def is_text(path: Path) -> bool:
    """Check whether a name is that of a text file of cells."""
    return ending(path).startswith(TEXT)


def unpack(path: Path) -> bytes:
    """Read the bytes of a file, decompressed."""
    data = path.read_bytes()
    if (kind := path.suffix.lower()) not in PACKED:
        return data
    try:
        return _UNPACK[kind](data)
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid {kind} file.") from None


def pack(data: bytes, path: Path) -> None:
    """Write bytes, compressed if the name of the file says so."""
    path.write_bytes(_PACK.get(path.suffix.lower(), bytes)(data))


def _unpack_zst(data: bytes) -> bytes:
    import pyarrow as pa

    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        return stream.read()


def _pack_zst(data: bytes) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress, ".zst": _unpack_zst,
}  # fmt: skip
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0), ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": _pack_zst,
}  # fmt: skip


def read_text(path: Path, layout: Layout | None = None) -> tuple[Guise, bytes]:
    """Read a text file: how it is written, and its text in UTF-8 without a byte order mark."""
    data = unpack(path)
    encoding, bom = _encoding(path, data, layout or Layout())
    body = data[len(bom) :]
    if encoding != "utf-8":
        try:
            body = body.decode(encoding).encode()
        except UnicodeError:
            raise InvalidFile(f"{path} is not encoded as {encoding}. Give its encoding (--encoding).") from None
    return _found(path, body, layout or Layout(), encoding, bom), body


def guise_of(path: Path, layout: Layout | None = None) -> Guise:
    """Find how a text file is written from its beginning alone, which need not be read into memory."""
    layout = layout or Layout()
    with open_packed(path) as file:
        try:
            data = file.read(_SHOWN + 1)
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid {path.suffix} file.") from None
    if len(data) > _SHOWN:  # a whole number of lines
        data = data[: data.rfind(b"\n", 0, _SHOWN) + 1] or data
    encoding, bom = _encoding(path, data, layout)
    body = data[len(bom) :].decode(encoding, errors="replace").encode()
    return _found(path, body, layout, encoding, bom)


def open_packed(path: Path) -> Any:
    """Open a file for reading bytes, decompressed."""
    import pyarrow as pa

    kind = path.suffix.lower()
    if kind == ".xz":
        return lzma.open(path)
    name = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(kind)
    return pa.input_stream(str(path), compression=name)


def _encoding(path: Path, data: bytes, layout: Layout) -> tuple[str, bytes]:
    """Find the encoding of a file and its byte order mark; warn if it is not UTF-8."""
    bom, marked = next(((bom, name) for bom, name in _BOMS if data.startswith(bom)), (b"", None))
    if layout.encoding is not None:
        name = codecs.lookup(layout.encoding).name
        if name in ("utf-16", "utf-8-sig"):
            return (marked or "utf-16-le") if name == "utf-16" else "utf-8", bom
        return name, bom if name == marked else b""
    if marked is not None:
        return marked, bom
    try:
        data.decode()
        return "utf-8", b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start > len(data) - 4 and len(data) >= _SHOWN - 4:
            return "utf-8", b""
    if _CONTROL.search(data):
        raise InvalidFile(f"{path} is not encoded as UTF-8 and holds no text. Give its encoding (--encoding).")
    try:
        data.decode(name := "cp1252")
    except UnicodeDecodeError:
        name = "latin-1"
    notice(
        f"{path} is not encoded as UTF-8: it is read as {name}, Western European. If letters look wrong, give its encoding "
        "(--encoding)."
    )
    return name, b""


def _found(path: Path, body: bytes, layout: Layout, encoding: str, bom: bytes) -> Guise:
    """Find separator and decimal mark in the first lines."""
    shown = body[:_SHOWN]
    if len(body) > _SHOWN:
        shown = shown[: shown.rfind(b"\n") + 1] or shown
    lines = shown.decode(errors="replace").splitlines(keepends=True)
    sep = layout.sep or ("\t" if ending(path).startswith((".tsv", ".tab")) else _separator(lines))
    return Guise(sep, layout.decimal or _decimal(_cells(lines, sep), sep), encoding, bom)


def _cells(lines: list[str], sep: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=sep) if row]
    except csv.Error:
        return []


def _separator(lines: list[str]) -> str:
    """Choose the separator by which all lines have as many cells, most of all; else the most frequent of the header."""
    cells = {sep: [len(row) for row in _cells(lines, sep)] for sep in SEPARATORS}
    fitting = {sep: counts[0] for sep, counts in cells.items() if len(set(counts)) == 1 and counts[0] > 1}
    if not fitting:
        fitting = {sep: counts[0] for sep, counts in cells.items() if counts}
    return max(SEPARATORS, key=lambda sep: fitting.get(sep, 0))


def _decimal(rows: list[list[str]], sep: str) -> str:
    """Find the decimal mark: a comma if cells such as 1,5 and none such as 1.5 occur; 12,345 alone may be thousands."""
    if sep == ",":
        return "."
    cells = [cell for row in rows[1:] for cell in row]
    commas = any(_COMMA.fullmatch(cell) and not _THOUSANDS.fullmatch(cell) for cell in cells)
    points = any(_POINT.fullmatch(cell) and not _GROUPS.fullmatch(cell) for cell in cells)
    return "," if commas and not points else "."
