"""Pipes: `-` as CSV from standard input and to standard output, by a temporary file."""

import os
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


@contextmanager
def received(data: Path) -> Iterator[Path]:
    """Give the file to read: a copy of standard input (or a named pipe) as CSV, else `data` itself."""
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
