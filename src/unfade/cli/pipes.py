"""Pipes and databases: `-` as CSV from standard input and to standard output, and results of SQL, by a temporary file."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unfade.errors import InvalidFile

DASH = Path("-")


def is_piped(path: Path) -> bool:
    """Check whether data come from standard input or a named pipe."""
    return path == DASH or path.is_fifo()


def is_database(data: Path) -> bool:
    """Check whether data are named by the address of a database."""
    return str(data).startswith(("postgresql:", "postgres:"))


@contextmanager
def received(data: Path, query: str | None = None) -> Iterator[Path]:
    """Give the file to read: a copy of standard input (or a named pipe) as CSV, of a query's result, else `data` itself."""
    if is_database(data):
        from unfade.io.databases import read_query
        from unfade.io.tables import write_table

        address = re.sub(r"^(postgres(?:ql)?):/+", r"\1://", str(data))
        with tempfile.TemporaryDirectory(prefix="unfade-") as folder:
            path = Path(folder) / "query.parquet"
            write_table(read_query(address, query), path)
            yield path
        return
    if not is_piped(data):
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="unfade-") as folder:
        path = Path(folder) / "standard-input.csv"
        try:
            with path.open("wb") as file, sys.stdin.buffer if data == DASH else data.open("rb") as source:
                shutil.copyfileobj(source, file)
        except OSError as error:
            raise InvalidFile(f"Cannot copy the pipe to {folder}: {error.strerror}. Make room.") from None
        yield path


@contextmanager
def sent(output: Path) -> Iterator[Path]:
    """Give the file to write: for `-` a CSV file that is copied to standard output when it is complete, else `output`."""
    if output != DASH:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="unfade-") as folder:
        path = Path(folder) / "standard-output.csv"
        yield path
        try:
            with path.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever reads has enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except OSError as error:
            raise InvalidFile(f"Cannot write to standard output: {error.strerror}.") from None
