"""Tables and arrays on disk: CSV, Parquet, Feather, .npy, .npz, told apart by their ending."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unfade.data.containers import check_names
from unfade.errors import InvalidFile
from unfade.io.csv_text import rows_of, unpacked, unquoted
from unfade.storage import check_name, check_writable, whole_or_nothing

NULLS = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A"]  # cells of a CSV file
ARRAYS = (".npy", ".npz")
_CODE = re.compile(r"\s*[-+]?(0\d|\d{19})")  # codes begin so: 01234, or more digits than a number keeps
_CODES = re.compile(rb'[,"\r\n]' + _CODE.pattern.encode())  # whether any cell of a file does


def read_table(path: str | os.PathLike[str]) -> Any:
    """A pyarrow table (CSV, Parquet, Feather) or a NumPy array (.npy, .npz)."""
    path = Path(path)
    check_name(path)
    read, _ = _format(path)
    if not path.is_file():
        raise InvalidFile(f"Expected a file at {path}, found none. Check the path.")
    if path.stat().st_size == 0:
        raise InvalidFile(f"{path} is empty. Expected a table with a header and at least one row.")
    try:
        table = read(path)
        if not isinstance(table, np.ndarray):
            table.validate(full=True)
            check_header(path, table.column_names)
    except InvalidFile:
        raise
    except UnicodeDecodeError:
        raise InvalidFile(f"{path} is not encoded as UTF-8. Save it in that encoding.") from None
    except Exception as error:  # libraries say in many ways that bytes are not what they should be
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {path.suffix} file.") from None
    if isinstance(table, np.ndarray) and table.ndim < 2:
        raise InvalidFile(f"{path} holds an array of shape {table.shape}. Expected samples by features.")
    if not isinstance(table, np.ndarray):
        check_names(table.column_names)
    if len(table) == 0:
        raise InvalidFile(f"{path} has a header but no rows. Expected at least one row of data.")
    return table


def check_header(path: Path, names: list[str]) -> None:
    """Refuse column names that show another separator, or that there is no header."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InvalidFile(
            f"{path} has one column named {names[0]!r}. Expected commas between cells: convert the separators."
        )
    if all(_is_number(name) for name in names) and names != [str(i) for i in range(len(names))]:
        raise InvalidFile(f"{path} has no header: its first line is {', '.join(names)}. Expected a line of column names.")


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def write_table(table: Any, path: str | os.PathLike[str]) -> None:
    """Write a pyarrow table or an array, whole or not at all."""
    path = Path(path)
    _, write = _format(path)
    with whole_or_nothing(path) as draft:
        write(table, draft)


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a table that could not be written, before any work is done."""
    _format(Path(path))
    check_writable(path)


def _format(path: Path) -> tuple[Callable[[Path], Any], Callable[[Any, Path], None]]:
    formats = {
        ".csv": (_read_csv, _write_csv),
        ".csv.gz": (_read_csv, _write_csv_gz),
        ".parquet": (_read_parquet, _write_parquet),
        ".feather": (_read_feather, _write_feather),
        ".npy": (_read_array, _write_npy),
        ".npz": (_read_array, _write_npz),
    }
    ending = path.suffix.lower() if path.suffix.lower() != ".gz" else "".join(path.suffixes[-2:]).lower()
    if ending not in formats:
        raise InvalidFile(f"{path}: expected a name that ends in {', '.join(formats)}, got {path.suffix or 'no ending'!r}.")
    return formats[ending]


def _read_csv(path: Path) -> Any:
    """Parse a CSV file once; the cells of codes that look like numbers are taken from its text."""
    import pyarrow as pa
    from pyarrow import csv

    text = unpacked(path)
    table = csv.read_csv(pa.BufferReader(text), parse_options=csv_lines(), convert_options=csv_options())
    check_text(path, table.schema)
    names = numbers_in(table.schema)
    if not names or not _CODES.search(text):
        return table
    rows = rows_of(text, path, len(table))
    for place in map(table.column_names.index, names):
        cells = [unquoted(row[place]) for row in rows]
        if any(_CODE.match(cell) for cell in cells):
            column = pa.array([None if cell in NULLS else cell for cell in cells], pa.string())
            table = table.set_column(place, table.column_names[place], column)
    return table


def csv_options(**options: Any) -> Any:
    """How cells of a CSV file are read."""
    from pyarrow import csv

    return csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True, **options)


def csv_lines() -> Any:
    """How lines of a CSV file are told apart: quoted cells may hold line ends."""
    from pyarrow import csv

    return csv.ParseOptions(newlines_in_values=True)


def check_text(path: Path, schema: Any) -> None:
    """Refuse a CSV file whose bytes are no UTF-8."""
    import pyarrow as pa

    if odd := [field.name for field in schema if pa.types.is_binary(field.type)]:
        raise InvalidFile(f"{path} is not encoded as UTF-8: see column {odd[0]!r}. Save it in that encoding.")


def numbers_in(schema: Any) -> list[str]:
    """Columns of a CSV file that look like numbers; none where names occur twice, which is refused elsewhere."""
    import pyarrow as pa

    named = len(set(schema.names)) == len(schema.names)
    return [f.name for f in schema if named and (pa.types.is_integer(f.type) or pa.types.is_floating(f.type))]


def codes_in(text: Any) -> list[str]:
    """Columns of text that are codes, though they look like numbers: 01234, or more digits than a number keeps."""
    from pyarrow import compute

    return [
        name
        for name, column in zip(text.schema.names, text.columns, strict=True)
        if compute.any(compute.match_substring_regex(column, "^" + _CODE.pattern)).as_py()
    ]


def _write_csv(table: Any, path: Path) -> None:
    import csv as plain

    from pyarrow import csv

    table = _as_arrow(table)
    with path.open("w", newline="", encoding="utf-8") as file:  # pyarrow would put quotes around every name
        plain.writer(file, lineterminator="\n").writerow(table.column_names)
    with path.open("ab") as file:
        csv.write_csv(table, file, csv.WriteOptions(include_header=False, quoting_style="needed"))


def _write_csv_gz(table: Any, path: Path) -> None:
    _write_csv(table, path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def _read_parquet(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path)


def _write_parquet(table: Any, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(_as_arrow(table), path)


def _read_feather(path: Path) -> Any:
    from pyarrow import feather

    return feather.read_table(path)


def _write_feather(table: Any, path: Path) -> None:
    from pyarrow import feather

    feather.write_feather(_as_arrow(table), str(path))


def _read_array(path: Path) -> np.ndarray:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        if len(loaded.files) != 1:
            raise ValueError(f"it holds {len(loaded.files)} arrays ({', '.join(loaded.files)}), one is expected")
        return loaded[loaded.files[0]]


def _write_npy(table: Any, path: Path) -> None:
    with path.open("wb") as file:  # a path would get NumPy's own ending
        np.save(file, _as_array(table), allow_pickle=False)


def _write_npz(table: Any, path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, data=_as_array(table))


def _as_arrow(table: Any) -> Any:
    """An array as a table with columns 0, 1, ...; missing entries as nulls."""
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(table, np.ndarray):
        table = pa.table({str(i): column for i, column in enumerate(table.T)})
    nothing = [compute.is_null(column, nan_is_null=True) for column in table.columns]
    columns = [compute.if_else(no, pa.scalar(None, c.type), c) for no, c in zip(nothing, table.columns, strict=True)]
    return pa.table(columns, names=table.column_names)


def _as_array(table: Any) -> np.ndarray:
    return table if isinstance(table, np.ndarray) else np.stack([np.asarray(column) for column in table.columns], 1)


def holds_numbers(table: Any) -> bool:
    """Whether an array of numbers can hold the table."""
    import pyarrow as pa

    return isinstance(table, np.ndarray) or all(
        pa.types.is_integer(each.type) or pa.types.is_floating(each.type) or pa.types.is_null(each.type)
        for each in table.columns
    )


def column_names(table: Any) -> list[str]:
    """The names of the columns; of an array their numbers."""
    return list(table.column_names) if not isinstance(table, np.ndarray) else [str(i) for i in range(table[0].size)]


def count_missing(table: Any) -> int:
    """How many cells are missing."""
    from pyarrow import compute

    if isinstance(table, np.ndarray):
        return int(np.isnan(np.asarray(table, dtype=float)).sum())
    return sum(compute.sum(compute.is_null(column, nan_is_null=True)).as_py() for column in table.columns)


def long_table(draws: Any, names: list[str]) -> Any:
    """Draws as a long table: draw, row, then the data's columns."""
    import pyarrow as pa

    parts = []
    for number, table in enumerate(draws):
        columns = table.columns if draws.columns is not None else list(table.reshape(len(table), -1).T)
        rows = np.arange(len(table))
        parts.append(pa.table([np.full(len(rows), number), rows, *columns], names=["draw", "row", *names]))
    return pa.concat_tables(parts, promote_options="permissive")
