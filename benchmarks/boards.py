"""What all boards share: their options, and how they run."""

import argparse
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from store import RESULTS, Cell, once

from unfade.storage import whole_or_nothing


def parser_of(description: str | None, methods: Sequence[str] = (), seeds: int = 2) -> argparse.ArgumentParser:
    """Declare the options that boards have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder with the data")
    if methods:
        parser.add_argument("--methods", nargs="*", choices=methods, default=list(methods))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--jobs", type=int, default=1, help="cells at the same time, each with one thread")
    parser.add_argument("--device", default="cpu", help="of unfade's own methods")
    parser.add_argument("--report", action="store_true", help="run nothing, write tables of what was run")
    return parser


def run_all(cells: Sequence[Cell], jobs: int, run: Callable[[Cell], dict[str, Any]]) -> None:
    """Run the cells that are not stored yet; every method runs in a process of its own, so threads do to wait for them."""
    if jobs > 1:
        os.environ["OMP_NUM_THREADS"] = "1"
    with ThreadPoolExecutor(jobs) as threads:
        for done in [threads.submit(once, cell, lambda cell=cell: run(cell)) for cell in cells]:
            done.result()


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, whose memory is its own too."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def written(board: str, text: str) -> None:
    """Print a board's report and keep it beside its results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with whole_or_nothing(RESULTS / f"{board}.md") as part:
        part.write_text(text)
    print(text)
