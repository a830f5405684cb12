"""Uploads to the page: read as `unfade recover` reads files, and described column by column."""

import shutil
import tempfile
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unfade.data.containers import open_container
from unfade.errors import InvalidFile, UnfadeError
from unfade.io.guise import PACKED, TEXT
from unfade.io.image_files import Unmeasured
from unfade.io.images import read_data
from unfade.io.originals import Original, original_of
from unfade.io.statistical import ENDINGS as STATISTICAL

_TEXT = tuple(f"{kind}{packed}" for kind in TEXT for packed in ("", *PACKED))
ENDINGS = (*_TEXT, ".parquet", ".feather", ".xlsx", *STATISTICAL[:-1], ".npy", ".npz")  # those that can be written too
GAPS = 96
IMAGES = (".png", ".tif", ".tiff", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".zip")


class Folder:
    """A temporary folder that only its owner can read; deleted with this object, at the latest when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="unfade-"))  # made with mode 0700
        self.delete = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about a column: its inferred kind, number of missing cells, and why it cannot be used, if so.

    gaps: share of missing cells in each of up to GAPS parts of the rows, first rows first.
    """

    name: str
    kind: str
    missing: int
    problem: str = ""
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """A file that was read. columns: of a table; empty for images, which have a rule by which pixels are missing.

    marks: values that stand for missing, apart from empty cells; original: the file, for results in its own guise.
    """

    name: str
    ending: str
    table: Any
    columns: tuple[ColumnFacts, ...]
    cells: int
    missing: int
    rule: Unmeasured | None = None
    marks: tuple[str, ...] = ()
    original: Original | None = None

    @property
    def rows(self) -> int:
        """Number of samples."""
        return len(self.table)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return tuple(self.table.shape[1:])

    @property
    def stem(self) -> str:
        """Name of the file without its ending."""
        return self.name[: -len(self.ending)] or "data"

    def part(self, start: int, count: int) -> Any:
        """Return some rows, in the container of the data."""
        is_array = isinstance(self.table, np.ndarray)
        return self.table[start : start + count] if is_array else self.table.slice(start, count)

    def marked(self, marks: tuple[str, ...]) -> "Loaded":
        """Return the file with these values counted as missing, if it is a table."""
        if isinstance(self.table, np.ndarray):
            return self
        columns = tuple(_facts(self.table, column.name, marks) for column in self.columns)
        return replace(self, columns=columns, missing=sum(column.missing for column in columns), marks=marks)


def load(name: str, content: bytes | memoryview, folder: Path) -> Loaded:
    """Read an uploaded file as `unfade recover` does; raise InvalidFile for any problem."""
    name = Path(name.replace("\\", "/")).name
    ending = max((e for e in ENDINGS if name.lower().endswith(e)), key=len, default=None)
    if ending is None:
        raise InvalidFile(_not_taken(name))
    path = folder / f"data{ending}"
    path.write_bytes(content)
    try:
        table, rule = read_data(path)
        return replace(_described(name, ending, table), rule=rule, original=original_of(path, table))
    except UnfadeError as error:
        raise InvalidFile(one_line(error).replace(str(path), name)) from None
    except MemoryError:
        raise InvalidFile(f"{name} does not fit into memory. Give a part of its rows or columns.") from None
    except Exception as error:  # readers of files raise whatever they like
        raise InvalidFile(f"Cannot read {name}: {one_line(error)}. Expected a valid {ending} file.") from None
    finally:
        path.unlink(missing_ok=True)


def _not_taken(name: str) -> str:
    """Explain which files are accepted."""
    said = f"{name} cannot be read here: give a table or an array in a file that ends in {', '.join(ENDINGS)}."
    if name.lower().endswith(IMAGES):
        return f"{said} Image files are recovered as a folder, in a terminal: unfade recover FOLDER -o CLEAN."
    return said


def _described(name: str, ending: str, table: Any) -> Loaded:
    if isinstance(table, np.ndarray):
        holes = np.isnan(np.asarray(table, dtype=float))
        by_column = holes.sum(0) if table.ndim == 2 else ()
        columns = tuple(ColumnFacts(str(i), "continuous", int(n), gaps=_gaps(holes[:, i])) for i, n in enumerate(by_column))
        return Loaded(name, ending, table, columns, holes.size, int(holes.sum()))
    columns = tuple(_facts(table, column) for column in table.column_names)
    return Loaded(name, ending, table, columns, len(table) * len(columns), sum(c.missing for c in columns))


def _facts(table: Any, name: str, marks: tuple[str, ...] = ()) -> ColumnFacts:
    from pyarrow import compute

    gone = compute.is_null(table.column(name), nan_is_null=True).to_numpy()
    missing = int(gone.sum())
    try:
        codes, container = open_container(table.select([name]), missing=marks)
    except UnfadeError as error:
        return ColumnFacts(name, "passthrough", missing, one_line(error), _gaps(gone))
    (column,) = container.columns
    if column.kind != "passthrough":
        gone = np.isnan(codes[:, 0])
        missing = int(gone.sum())
    return ColumnFacts(name, column.kind, missing, column.reason and f"Column {name!r}: {column.reason}.", _gaps(gone))


def _gaps(gone: np.ndarray) -> tuple[float, ...]:
    """Compute the share of missing cells in each part of the rows."""
    return tuple(float(part.mean()) for part in np.array_split(gone, min(GAPS, len(gone)))) if len(gone) else ()


def one_line(error: Any) -> str:
    """Remove line breaks from a message."""
    return " ".join(str(error).split())
