"""Originals: the file that a table was read from, to write results in its own guise."""

from pathlib import Path
from typing import Any, Protocol

from unfade.io.csv_text import CsvText
from unfade.io.guise import Layout, is_text
from unfade.io.statistical import ENDINGS, LabelledFile
from unfade.io.tables import long_table, write_table
from unfade.io.workbooks import Workbook


class Original(Protocol):
    """A file, and the table that was read from it."""

    table: Any

    def takes(self, path: Path) -> bool:
        """Check whether a file of this name can be written in this guise."""

    def write(self, table: Any, path: Path, decimals: bool = True) -> None:
        """Write a table that this one became: cells that did not change stay as the file has them."""


def original_of(path: Path, table: Any, layout: Layout | None = None) -> Original | None:
    """Return the original of a table; None for kinds of files that hold nothing but the table."""
    kind = path.suffix.lower()
    made = CsvText if is_text(path) else Workbook if kind == ".xlsx" else LabelledFile if kind in ENDINGS else None
    return None if made is None else made(path, table, layout)


def write_result(table: Any, path: Path, original: Original | None = None, decimals: bool = True) -> None:
    """Write a table, in the guise of its original if the name of the file allows it."""
    if original is not None and original.takes(path):
        original.write(table, path, decimals)
    else:
        write_table(table, path)


def write_draws(draws: Any, path: Path, original: Original | None, names: list[str], decimals: bool = True) -> None:
    """Write draws as a long table."""
    if isinstance(original, CsvText) and original.takes(path):
        original.write_draws(draws, path, decimals)
    else:
        write_table(long_table(draws, names), path)
