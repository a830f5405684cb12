"""Tables on disk that are read some rows at a time, and bounds on memory."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from unfade.data.containers import check_names
from unfade.errors import InvalidData, InvalidFile
from unfade.io import tables as files
from unfade.io.guise import Guise, Layout, guise_of, is_text, open_packed
from unfade.storage import check_name

READ = 2**16  # rows that are read together
FIXED_BYTES = 2**27  # that reading and the networks take, whatever the number of rows
_LEAST_MEMORY = 2**28
_TYPES = (  # of CSV columns, in the order in which pyarrow tries them
    pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"),
    pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.float64(), pa.string(), pa.binary(),
)  # fmt: skip


def parse_memory(memory: str | int) -> int:
    """Convert text such as "2GB", "512MB" or "1.5 GiB" to bytes (units of 1,000; with an i, of 1,024).

    The amount bounds data and results; the libraries themselves are not counted.

    Parameters
    ----------
    memory : str or int

    Returns
    -------
    int
        Bytes, at least 256 MiB.

    Examples
    --------
    >>> parse_memory("2GB"), parse_memory("512 MiB"), parse_memory(10**9)
    (2000000000, 536870912, 1000000000)
    """
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(?:([kKmMgGtT])([iI]?))?[bB]?\s*", str(memory))
    if found is None or isinstance(memory, bool):
        raise InvalidData(f"Expected an amount of memory such as '2GB' or '512MiB', got {memory!r}.")
    power = " kmgt".index((found[2] or " ").lower())
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    if size < _LEAST_MEMORY:
        raise InvalidData(
            f"Expected at least 256MiB of memory, got {memory!r}: half of that is for reading and the networks. Give more."
        )
    return size


@dataclass(frozen=True)
class Source:
    """A table on disk that is read some rows at a time: a Parquet or text file, or the Parquet files of a folder.

    Parameters
    ----------
    path : Path
    files : tuple of Path
    schema : pyarrow Schema
    guise : Guise or None
        How a text file is written; None: a Parquet file.
    grouped : tuple of str
        Columns of numbers such as 1.234, with a mark between groups of three digits.
    """

    path: Path
    files: tuple[Path, ...]
    schema: pa.Schema
    guise: Guise | None = None
    grouped: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: "str | os.PathLike[str] | Source", layout: Layout | None = None) -> "Source":
        """Open a file or folder; types of columns of text are those of the whole file, which takes a pass over it.

        Parameters
        ----------
        path : path or Source
        layout : Layout or None
            What the user states about a text file.

        Returns
        -------
        Source
        """
        if isinstance(path, Source):
            return path
        path = Path(path)
        check_name(path)
        if path.is_dir():
            found = tuple(sorted(each for each in path.glob("*.parquet") if each.name[0] not in "._"))
            if not found:
                raise InvalidFile(f"Expected Parquet files in the folder {path}, found none. Check the path.")
        elif path.is_file():
            found = (path,)
        else:
            raise InvalidFile(f"Expected a file or folder at {path}, found none. Check the path.")
        files.check_layout(path, layout or Layout())
        guise = guise_of(path, layout) if path.is_file() and is_text(path) else None
        schema = _parquet_schema(found) if guise is None else _csv_schema(path, guise)
        files.check_header(path, schema.names)
        check_names(schema.names)
        grouped = _grouped(path, guise, schema) if guise is not None and guise.decimal == "," else {}
        schema = pa.schema([pa.field(each.name, grouped.get(each.name, each.type)) for each in schema])
        return cls(path, found, schema, guise, tuple(grouped))

    def tables(self, size: int, start: int = 0) -> Iterator[pa.Table]:
        """Read tables of `size` rows, the last one shorter, from row `start` on.

        Parameters
        ----------
        size, start : int

        Returns
        -------
        iterator of pyarrow Table
        """
        held: list[pa.RecordBatch] = []
        missing = size
        for batch in _told(self.path, self._batches(min(size, READ), start)):
            while batch.num_rows:
                held.append(batch.slice(0, missing))
                missing -= held[-1].num_rows
                batch = batch.slice(held[-1].num_rows)
                if not missing:
                    yield pa.Table.from_batches(held)
                    held, missing = [], size
        if held:
            yield pa.Table.from_batches(held)

    def _batches(self, size: int, start: int) -> Iterator[pa.RecordBatch]:
        """Read batches of at most `size` rows, from row `start` on."""
        if self.guise is not None:
            types = dict(zip(self.schema.names, self.schema.types, strict=True)) | dict.fromkeys(self.grouped, pa.string())
            for batch in _open_csv(self.path, self.guise, types):
                for name in self.grouped:
                    place = self.schema.get_field_index(name)
                    cells = files.ungrouped(batch.column(place)).cast(self.schema.field(name).type)
                    batch = batch.set_column(place, name, cells)
                yield batch.slice(min(start, batch.num_rows))
                start -= min(start, batch.num_rows)
            return
        for path in self.files:
            with parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
                groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
                first = 0
                while first < len(groups) and start >= groups[first]:
                    start -= groups[first]
                    first += 1
                for batch in file.iter_batches(size, row_groups=range(first, len(groups))):
                    yield batch.slice(min(start, batch.num_rows))
                    start -= min(start, batch.num_rows)

    def stamp(self) -> list[Any]:
        """Return name, size and time of change of each file, to detect changes.

        Returns
        -------
        list of [str, int, int]
        """
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in self.files]


def _told(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """Give batches; raise errors of reading as InvalidFile."""
    try:
        yield from batches
    except (OSError, ValueError, EOFError, pa.ArrowException) as error:
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid Parquet or text file.") from None


def _parquet_schema(paths: Sequence[Path]) -> pa.Schema:
    """Read the schema of Parquet files, or raise InvalidFile if they differ."""
    schema = None
    for path in paths:
        for found in _told(path, (parquet.read_schema(each) for each in (path,))):
            schema = schema or found.remove_metadata()
            if not schema.equals(found.remove_metadata()):
                raise InvalidFile(
                    f"{path} has other columns or types than {paths[0]}. Expected the same in all files of a folder."
                )
    return schema


def _open_csv(path: Path, guise: Guise, types: dict[str, Any] | None = None, only: Sequence[str] = ()) -> Any:
    """Open a text file for reading in batches."""
    convert = files.csv_options(column_types=types, include_columns=list(only), decimal_point=guise.decimal)
    read = csv.ReadOptions(block_size=2**22, encoding=guise.encoding.replace("utf-8", "utf8"))
    file = open_packed(path)
    file.read(len(guise.bom))
    return csv.open_csv(file, read_options=read, parse_options=files.csv_lines(guise.sep), convert_options=convert)


def _grouped(path: Path, guise: Guise, schema: pa.Schema) -> dict[str, Any]:
    """Find columns of numbers with a mark between groups of three digits, which takes one more pass; with their types."""
    names = [each.name for each in schema if pa.types.is_string(each.type)]
    found = dict.fromkeys(names, pa.null())
    for batch in _open_csv(path, guise, dict.fromkeys(names, pa.string()), names) if names else ():
        for name, column in zip(names, batch.columns, strict=True):
            if name in found and (kind := files.grouped_type(column)) is None:
                del found[name]
            elif name in found and found[name] != pa.float64() and not pa.types.is_null(kind):
                found[name] = kind
    return {name: kind for name, kind in found.items() if not pa.types.is_null(kind)}


def _csv_schema(path: Path, guise: Guise) -> pa.Schema:
    """Find the names and types of a text file: for each column the first type that all its cells have.

    pyarrow's streaming reader takes the types of the first block; if a later cell does not fit, the next type is tried.
    """
    if path.stat().st_size == 0:
        raise InvalidFile(f"{path} is empty. Expected a table with a header and at least one row.")
    schema: Any = None
    while True:
        try:
            reader = _open_csv(path, guise, schema and dict(zip(schema.names, schema.types, strict=True)))
            if schema is None:
                schema = reader.schema
                check_names(schema.names)
            for _ in reader:
                pass
            return _with_codes(path, guise, schema)
        except (OSError, pa.ArrowException) as error:
            unfit = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", str(error))
            if schema is None or unfit is None or schema.types[int(unfit[1])] == _TYPES[-1]:
                raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid .csv file.") from None
            column = int(unfit[1])
            wider = _TYPES[_TYPES.index(schema.types[column]) + 1]
            schema = schema.set(column, pa.field(schema.names[column], wider))


def _with_codes(path: Path, guise: Guise, schema: pa.Schema) -> pa.Schema:
    """Change columns of codes that look like numbers to text, which takes one more pass."""
    files.check_text(path, schema)
    if names := files.numbers_in(schema):
        for batch in _open_csv(path, guise, dict.fromkeys(names, pa.string()), names):
            for name in files.codes_in(batch):
                schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
    return schema
