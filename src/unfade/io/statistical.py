"""Files of SPSS, Stata and SAS with labels and user-missing codes, and back: both stay in cells that do not change."""

import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unfade.errors import InvalidFile
from unfade.io.csv_text import changes
from unfade.io.guise import Layout
from unfade.storage import whole_or_nothing

ENDINGS = (".sav", ".zsav", ".dta", ".xpt", ".sas7bdat")


def read_statistical(path: Path, layout: Layout | None = None) -> Any:
    """Read a file of SPSS, Stata or SAS: labelled values as their labels, user-missing ones as missing."""
    import pyarrow as pa

    frame, meta = _read(path)
    columns = [_column(frame[name].tolist(), _labels(meta, name), _gone(meta, name)) for name in frame.columns]
    return pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns])


class LabelledFile:
    """A file of SPSS, Stata or SAS and the table that was read from it."""

    def __init__(self, path: Path, table: Any, layout: Layout | None = None):
        self.path, self.table, self.held = path, table, _read(path)

    def takes(self, path: Path) -> bool:
        """Check whether a file of this name can be written in this guise."""
        same = path.suffix.lower() == self.path.suffix.lower() or {path.suffix, self.path.suffix} <= {".sav", ".zsav"}
        return same and path.suffix.lower() != ".sas7bdat"

    def write(self, table: Any, path: Path, decimals: bool = True) -> None:
        """Write the file with the cells that are others in `table`; labels and codes stay."""
        frame, meta = self.held[0].copy(), self.held[1]
        for name, old, now in zip(frame.columns, self.table.columns, table.columns, strict=True):
            places, values = changes(old, now)
            if len(places):
                codes = {label: code for code, label in _labels(meta, name).items()} if _is_text(old) else {}
                cells = frame[name].tolist()
                for row, value in zip(places.tolist(), values, strict=True):
                    cells[row] = _stored(codes.get(value, value))
                frame[name] = _like(frame[name], cells)
        _write(frame, path, meta)


def write_statistical(table: Any, path: Path) -> None:
    """Write a table as a file of SPSS, Stata or SAS transport."""
    frame = table.to_pandas()
    for name in frame.columns:
        if frame[name].dtype == object or str(frame[name].dtype) in ("str", "string"):
            cells = [None if _is_empty(cell) else cell for cell in frame[name].tolist()]
            moment = any(isinstance(cell, (datetime.date, datetime.time)) for cell in cells)
            frame[name] = _like(frame[name], cells if moment else ["" if cell is None else str(cell) for cell in cells])
        elif frame[name].dtype == bool:
            frame[name] = frame[name].astype(float)
    _write(frame, path, None)


def _column(cells: list[Any], labels: dict[Any, str], gone: Any) -> Any:
    """Convert the cells of a variable to an Arrow column."""
    import pyarrow as pa

    cells = [None if _is_empty(cell) or gone(cell) else cell for cell in cells]
    present = [cell for cell in cells if cell is not None]
    if labels and present and all(cell in labels for cell in present):
        return pa.array([None if cell is None else str(labels[cell]) for cell in cells], pa.string())
    if all(isinstance(cell, (int, float)) for cell in present):
        whole = all(float(cell).is_integer() and abs(cell) < 2**53 for cell in present)
        kind = pa.null() if not present else pa.int64() if whole else pa.float64()
        return pa.array([cell if cell is None or not whole else int(cell) for cell in cells], kind)
    if all(hasattr(cell, "to_pydatetime") or isinstance(cell, datetime.datetime) for cell in present):
        return pa.array([cell and datetime.datetime.fromisoformat(cell.isoformat()) for cell in cells], pa.timestamp("us"))
    return pa.array(cells if len({type(cell) for cell in present}) == 1 else [cell and str(cell) for cell in cells])


def _is_empty(cell: Any) -> bool:
    return cell is None or cell == "" or cell != cell


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(column.type)


def _stored(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


def _like(column: Any, cells: list[Any]) -> Any:
    """Make a pandas column of cells, of the dtype of another if it can hold them."""
    import pandas as pd

    numbers = all(cell is None or isinstance(cell, (int, float)) for cell in cells)
    made = pd.Series(cells, index=column.index, dtype=float if numbers and column.dtype != object else object)
    if numbers and column.dtype.kind in "iu" and not made.isna().any() and (made == made.round()).all():
        return made.astype(column.dtype)
    return made


def _labels(meta: Any, name: str) -> dict[Any, str]:
    """Return the labels of the values of a variable, if no two are the same."""
    found = meta.variable_value_labels.get(name, {})
    return found if len(set(found.values())) == len(found) else {}


def _gone(meta: Any, name: str) -> Any:
    """Make a check for user-missing codes of a variable: ranges of SPSS, letters of Stata and SAS."""
    ranges = [(part["lo"], part["hi"]) for part in (meta.missing_ranges or {}).get(name, ())]
    letters = set((meta.missing_user_values or {}).get(name, ()))

    def gone(cell: Any) -> bool:
        """Check one cell."""
        same = (isinstance(cell, str) == isinstance(low, str) and low <= cell <= high for low, high in ranges)
        return (isinstance(cell, str) and cell in letters) or any(same)

    return gone


def _read(path: Path) -> tuple[Any, Any]:
    library, kind = _library(), path.suffix.lower()
    read = {
        ".sav": library.read_sav, ".zsav": library.read_sav, ".dta": library.read_dta, ".xpt": library.read_xport,
        ".sas7bdat": library.read_sas7bdat,
    }[kind]  # fmt: skip
    codes = {} if kind == ".xpt" else {"user_missing": True}
    try:
        frame, meta = read(str(path), **codes)
    except Exception as error:  # pyreadstat raises whatever it meets inside of a damaged file
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {kind} file.") from None
    _check_numbers(frame, path)
    return frame, meta


def _check_numbers(frame: Any, path: Path) -> None:
    """Refuse a file without columns, and infinite numbers, which no such file holds."""
    if not len(frame.columns):
        raise InvalidFile(f"{path} holds no variables. Expected at least one.")
    for name in frame.columns:
        if frame[name].dtype.kind == "f" and np.isinf(frame[name].to_numpy()).any():
            raise InvalidFile(f"Cannot read {path}: {name!r} holds infinite numbers. Expected a valid file.")


def _write(frame: Any, path: Path, meta: Any) -> None:
    library, kind = _library(), path.suffix.lower()
    if kind == ".sas7bdat":
        raise InvalidFile(f"{path}: files of this kind can be read, not written. Give a name that ends in .xpt or .csv.")
    options: dict[str, Any] = {}
    if meta is not None:
        options = {"file_label": meta.file_label or "", "column_labels": meta.column_labels}
        if kind != ".xpt":
            options["variable_value_labels"] = meta.variable_value_labels
        if kind in (".sav", ".zsav"):
            options |= {
                "missing_ranges": meta.missing_ranges, "variable_measure": meta.variable_measure,
                "variable_display_width": meta.variable_display_width, "note": "\n".join(meta.notes or ()),
                "variable_format": meta.original_variable_types,
            }  # fmt: skip
        if kind == ".dta" and meta.missing_user_values:
            options["missing_user_values"] = meta.missing_user_values
    write = {".dta": library.write_dta, ".xpt": library.write_xport}.get(kind, library.write_sav)
    if kind == ".zsav":
        options["compress"] = True
    try:
        with whole_or_nothing(path) as draft:
            write(frame, str(draft), **options)
    except InvalidFile:
        raise
    except Exception as error:  # names, labels or values that the format cannot hold
        raise InvalidFile(f"Cannot write {path}: {error}. Give a name that ends in .csv or .parquet instead.") from None


def _library() -> ModuleType:
    try:
        import pyreadstat
    except ImportError:
        raise InvalidFile("Files of SPSS, Stata and SAS need pyreadstat: pip install 'unfade[statistics]'.") from None
    return pyreadstat
