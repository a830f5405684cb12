"""Tables and arrays on disk, by the ending of their name: text, Parquet, Feather, workbooks, SPSS, Stata, .npy, .npz."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unfade.data.containers import check_names
from unfade.errors import InvalidFile
from unfade.io import statistical, workbooks
from unfade.io.csv_text import rows_of, unquoted
from unfade.io.guise import NULLS, PACKED, TEXT, Guise, Layout, ending, pack, read_text
from unfade.storage import check_name, check_writable, whole_or_nothing

ARRAYS = (".npy", ".npz")
_CODE = re.compile(r"\s*[-+]?(0\d|\d{19})")  # codes begin so: 01234, or more digits than a number keeps
_CODES = re.compile(rb"[^\w.]" + _CODE.pattern.encode())  # whether any cell of a file does
_THOUSANDS = re.compile(r"[-+]?(0|[1-9]\d{0,2}(\.\d{3})*)(,\d+)?")


def read_table(path: str | os.PathLike[str], layout: Layout | None = None) -> Any:
    """A pyarrow table, or a NumPy array (.npy, .npz). layout: what the user states about the file."""
    path, layout = Path(path), layout or Layout()
    check_name(path)
    read, _ = _format(path)
    check_layout(path, layout)
    if not path.is_file():
        raise InvalidFile(f"Expected a file at {path}, found none. Check the path.")
    if path.stat().st_size == 0:
        raise InvalidFile(f"{path} is empty. Expected a table with a header and at least one row.")
    try:
        table = read(path, layout)
        if not isinstance(table, np.ndarray):
            table.validate(full=True)
            check_header(path, table.column_names)
    except InvalidFile:
        raise
    except UnicodeDecodeError:
        raise InvalidFile(f"{path} is not encoded as UTF-8. Give its encoding (--encoding).") from None
    except Exception as error:  # libraries say in many ways that bytes are not what they should be
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {path.suffix} file.") from None
    if isinstance(table, np.ndarray) and table.ndim < 2:
        raise InvalidFile(f"{path} holds an array of shape {table.shape}. Expected samples by features.")
    if not isinstance(table, np.ndarray):
        check_names(table.column_names)
    if len(table) == 0:
        raise InvalidFile(f"{path} has a header but no rows. Expected at least one row of data.")
    return table


def check_layout(path: Path, layout: Layout) -> None:
    """Refuse statements about a file that do not apply to files of its kind."""
    known = ("sep", "decimal", "encoding") if ending(path).startswith(TEXT) else ("sheet",) * (ending(path) == ".xlsx")
    if odd := [name for name in layout.given() if name not in known]:
        of = "workbooks (.xlsx)" if odd[0] == "sheet" else "text files"
        raise InvalidFile(f"--{odd[0]} ({odd[0]}=) is for {of}, which {path.name} is not. Leave it out.")


def check_header(path: Path, names: list[str]) -> None:
    """Refuse column names that show another separator, or that there is no header."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise InvalidFile(
            f"{path} has one column named {names[0]!r}. Expected as many cells in each line: give the separator (--sep)."
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


def _format(path: Path) -> tuple[Callable[[Path, Layout], Any], Callable[[Any, Path], None]]:
    found = ending(path)
    for kind in PACKED:
        if found.startswith(TEXT) and found.endswith(kind):
            return _read_csv, _writer_of(found)
    formats: dict[str, Any] = {
        **{kind: (_read_csv, _writer_of(kind)) for kind in TEXT},
        ".parquet": (_read_parquet, _write_parquet),
        ".feather": (_read_feather, _write_feather),
        ".xlsx": (workbooks.read_workbook, lambda table, path: workbooks.write_workbook(_as_arrow(table), path)),
        **{
            kind: (statistical.read_statistical, lambda table, path: statistical.write_statistical(_as_arrow(table), path))
            for kind in statistical.ENDINGS
        },
        ".npy": (_read_array, _write_npy),
        ".npz": (_read_array, _write_npz),
    }
    if found not in formats:
        raise InvalidFile(f"{path}: expected a name that ends in {', '.join(formats)}, got {path.suffix or 'no ending'!r}.")
    return formats[found]


def _read_csv(path: Path, layout: Layout) -> Any:
    """Parse a text file once; the cells of codes that look like numbers are taken from its text."""
    import pyarrow as pa
    from pyarrow import csv

    guise, text = read_text(path, layout)
    options = csv_options(decimal_point=guise.decimal)
    table = csv.read_csv(pa.BufferReader(text), parse_options=csv_lines(guise.sep), convert_options=options)
    check_text(path, table.schema)
    table = without_thousands(table, guise)
    names = numbers_in(table.schema)
    if not names or not _CODES.search(text):
        return table
    rows = rows_of(text, path, len(table), guise.sep)
    for place in map(table.column_names.index, names):
        cells = [unquoted(row[place]) for row in rows]
        if any(_CODE.match(cell) for cell in cells):
            column = pa.array([None if cell in NULLS else cell for cell in cells], pa.string())
            table = table.set_column(place, table.column_names[place], column)
    return table


def without_thousands(table: Any, guise: Guise) -> Any:
    """Read text such as 1.234 as a number, where the decimal mark is a comma and all cells of a column are written so."""
    import pyarrow as pa

    for place, field in enumerate(table.schema if guise.decimal == "," else ()):
        kind = grouped_type(table.column(place)) if pa.types.is_string(field.type) else None
        if kind not in (None, pa.null()):
            table = table.set_column(place, field.name, ungrouped(table.column(place)).cast(kind))
    return table


def grouped_type(column: Any) -> Any:
    """The type of a column of text that holds numbers such as 1.234,5; null if it has no cells, None if it holds others."""
    import pyarrow as pa

    cells = column.drop_null().to_pylist()
    if not all(_THOUSANDS.fullmatch(cell) for cell in cells):
        return None
    return pa.null() if not cells else pa.float64() if any("," in cell for cell in cells) else pa.int64()


def ungrouped(column: Any) -> Any:
    """A column of text such as 1.234,5 as one such as 1234.5."""
    from pyarrow import compute

    return compute.replace_substring(compute.replace_substring(column, ".", ""), ",", ".")


def csv_options(**options: Any) -> Any:
    """How cells of a CSV file are read."""
    from pyarrow import csv

    return csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True, **options)


def csv_lines(sep: str = ",") -> Any:
    """How lines of a text file are told apart: quoted cells may hold line ends."""
    from pyarrow import csv

    return csv.ParseOptions(delimiter=sep, newlines_in_values=True)


def check_text(path: Path, schema: Any) -> None:
    """Refuse a CSV file whose bytes are no UTF-8."""
    import pyarrow as pa

    if odd := [field.name for field in schema if pa.types.is_binary(field.type)]:
        raise InvalidFile(f"{path} is not encoded as UTF-8: see column {odd[0]!r}. Give its encoding (--encoding).")


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


def _writer_of(kind: str) -> Callable[[Any, Path], None]:
    return partial(_write_csv, sep="\t" if kind.startswith((".tsv", ".tab")) else ",")


def _write_csv(table: Any, path: Path, sep: str = ",") -> None:
    import csv as plain
    import io

    import pyarrow as pa
    from pyarrow import csv

    table = _as_arrow(table)
    head, body = io.StringIO(newline=""), pa.BufferOutputStream()
    plain.writer(head, delimiter=sep, lineterminator="\n").writerow(table.column_names)  # pyarrow would quote every name
    csv.write_csv(table, body, csv.WriteOptions(include_header=False, quoting_style="needed", delimiter=sep))
    pack(head.getvalue().encode() + body.getvalue().to_pybytes(), path)


def _read_parquet(path: Path, _: Layout) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path)


def _write_parquet(table: Any, path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(_as_arrow(table), path)


def _read_feather(path: Path, _: Layout) -> Any:
    from pyarrow import feather

    return feather.read_table(path)


def _write_feather(table: Any, path: Path) -> None:
    from pyarrow import feather

    feather.write_feather(_as_arrow(table), str(path))


def _read_array(path: Path, _: Layout) -> np.ndarray:
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
