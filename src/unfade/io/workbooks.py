"""Workbooks (.xlsx): a sheet as a table, and back: a cell that did not change keeps its value, formula and style."""

import datetime
import io
import warnings
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unfade.errors import DataNotice, InvalidFile, notice
from unfade.io.csv_text import changes
from unfade.io.guise import ERRORS, NULLS, Layout
from unfade.storage import whole_or_nothing

_LOST = {"xl/charts/": "charts", "xl/pivotTables/": "pivot tables", "xl/media/": "pictures"}


def read_workbook(path: Path, layout: Layout) -> Any:
    """Read a sheet of a workbook: the first, or the one that the user names."""
    import pyarrow as pa

    book = _opened(path, data_only=True)
    sheet = _sheet(book, path, layout)
    cells = [tuple(row) for row in sheet.iter_rows(values_only=True)]
    book.close()
    top, left, right = _corner(cells)
    if right == left:
        raise InvalidFile(f"The sheet {sheet.title!r} of {path} is empty. Name another one (--sheet).")
    names = ["" if name is None else str(name) for name in cells[top][left:right]]
    if absent := [i for i, name in enumerate(names) if not name]:
        raise InvalidFile(f"Column {absent[0] + 1} of the sheet {sheet.title!r} of {path} has no name. Give it one.")
    rows = [row[left:right] for row in cells[top + 1 : _last(cells)]]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    _warn_errors(path, dict(zip(names, columns, strict=True)))
    return pa.Table.from_arrays([as_column(list(column)) for column in columns], names=names)


def _warn_errors(path: Path, columns: dict[str, tuple[Any, ...]]) -> None:
    """Warn of formulas that have come to no value."""
    found = {(name, cell): cells.count(cell) for name, cells in columns.items() for cell in ERRORS if cell in cells}
    if found:
        listed = [f"{count} x {error} in {name!r}" for (name, error), count in found.items()]
        notice(
            f"{path.name} has cells with errors, which count as missing: {', '.join(listed[:5])}"
            f"{' and others' * (len(listed) > 5)}. Filling them replaces their formulas."
        )


class Workbook:
    """A workbook and the table that was read from one of its sheets."""

    def __init__(self, path: Path, table: Any, layout: Layout | None = None):
        self.path, self.table, self.layout = path, table, layout or Layout()
        self.content = path.read_bytes()

    def takes(self, path: Path) -> bool:
        """Check whether a file of this name can be written in this guise."""
        return path.suffix.lower() == ".xlsx"

    def write(self, table: Any, path: Path, decimals: bool = True) -> None:
        """Write the workbook with the cells that are others in `table`; its other sheets stay."""
        book = _opened(io.BytesIO(self.content))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataNotice)  # of several sheets, given when it was read
            sheet = _sheet(book, self.path, self.layout)
            stored = _sheet(_opened(io.BytesIO(self.content), data_only=True), self.path, self.layout)
        for merged in list(sheet.merged_cells.ranges):  # cells that are merged cannot be written one by one
            sheet.unmerge_cells(str(merged))
        lost = 0
        top, left, _ = _corner([tuple(row) for row in stored.iter_rows(values_only=True)])  # as it was read
        for column, (old, now) in enumerate(zip(self.table.columns, table.columns, strict=True)):
            places, values = changes(old, now)
            for row, value in zip(places.tolist(), values, strict=True):
                cell = sheet.cell(top + 2 + row, left + 1 + column)
                lost += cell.data_type == "f"
                cell.value = _cell(value)
        self._warn_lost(lost)
        with whole_or_nothing(path) as draft:
            book.save(draft)

    def _warn_lost(self, formulas: int) -> None:
        """Warn of parts of the workbook that are not written again."""
        if formulas:
            notice(
                f"{formulas} formula{'s' * (formulas > 1)} without a value in {self.path.name} became numbers. If values "
                "were never stored, save the workbook in a spreadsheet program first."
            )
        with zipfile.ZipFile(io.BytesIO(self.content)) as parts:
            names = parts.namelist()
        if lost := [what for folder, what in _LOST.items() if any(name.startswith(folder) for name in names)]:
            notice(
                f"{self.path.name} has {' and '.join(lost)}, which the written workbook may lack. Copy the cells back into "
                "it if they matter."
            )


def write_workbook(table: Any, path: Path) -> None:
    """Write a table as a workbook of one sheet."""
    openpyxl = _library()
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("data")
    sheet.append(list(table.column_names))
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        sheet.append([_cell(value) for value in row])
    book.save(path)


def as_column(cells: list[Any]) -> Any:
    """Convert cells of a sheet to an Arrow column: numbers, booleans, dates, or else text as a text file would hold it."""
    import pyarrow as pa

    cells = [None if isinstance(cell, str) and cell.strip() in NULLS else cell for cell in cells]
    types = {type(cell) for cell in cells if cell is not None}
    if types <= {int, float}:
        return pa.array(cells, pa.float64() if float in types else pa.int64() if types else pa.null())
    if types <= {datetime.datetime, datetime.date}:
        moments = [cell and datetime.datetime.fromisoformat(cell.isoformat()) for cell in cells]
        days = all(moment is None or moment.time() == datetime.time() for moment in moments)
        return pa.array(moments, pa.timestamp("us")).cast(pa.date32()) if days else pa.array(moments, pa.timestamp("us"))
    if len(types) == 1 and types & {bool, str, datetime.time}:
        return pa.array(cells)
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def _cell(value: Any) -> Any:
    """Return a value that a cell can hold: no time zone, no NaN."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    plain = value is None or isinstance(value, (bool, int, float, str, datetime.date, datetime.time))
    return value if plain else str(value)


def _corner(cells: list[tuple[Any, ...]]) -> tuple[int, int, int]:
    """Find the row of the header, its first column and the one after its last: empty ones around a table are none."""
    top = next((i for i, row in enumerate(cells) if any(cell is not None for cell in row)), 0)
    full = [i for i in range(len(cells[0]) if cells else 0) if any(row[i] is not None for row in cells[top:])]
    return (top, full[0], full[-1] + 1) if full else (top, 0, 0)


def _last(cells: list[tuple[Any, ...]]) -> int:
    return 1 + max((i for i, row in enumerate(cells) if any(cell is not None for cell in row)), default=-1)


def _sheet(book: Any, path: Path, layout: Layout) -> Any:
    names = [sheet.title for sheet in book.worksheets]
    if layout.sheet is not None and layout.sheet not in names:
        raise InvalidFile(f"{path} has no sheet {layout.sheet!r}. Its sheets are {', '.join(map(repr, names[:10]))}.")
    if not names:
        raise InvalidFile(f"{path} has no sheet of cells. Expected one with a header.")
    if layout.sheet is None and len(names) > 1:
        notice(
            f"{path} has the sheets {', '.join(map(repr, names[:10]))}: {names[0]!r} is read. Name another one by sheet= "
            "(--sheet)."
        )
    return book[layout.sheet or names[0]]


def _opened(path: Path | io.BytesIO, data_only: bool = False) -> Any:
    openpyxl = _library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that openpyxl does not know
        try:
            return openpyxl.load_workbook(path, data_only=data_only)
        except Exception as error:  # openpyxl raises whatever it meets inside of a damaged file
            raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid .xlsx file.") from None


def _library() -> ModuleType:
    try:
        import openpyxl
    except ImportError:
        raise InvalidFile("Workbooks need the package openpyxl: pip install 'unfade[excel]'.") from None
    return openpyxl
