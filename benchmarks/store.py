"""The one store of results: a JSON file per cell (board, table, setting, seed, method) under build/scoreboard.

What is there is not run again, so a run may be stopped and continued, and several may work at once.
`python benchmarks/store.py BOARD -o FILE` writes all results of a board into one small file, for the documentation.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from peers import cpu_seconds, peak_memory

import unfade
from unfade.storage import whole_or_nothing

RESULTS = Path("build/scoreboard")


class Cell(NamedTuple):
    """The name of one result."""

    board: str
    table: str
    setting: str
    seed: int
    method: str

    @property
    def path(self) -> Path:
        """Where the result is stored."""
        return RESULTS / self.board / self.table / self.setting / str(self.seed) / f"{self.method}.json"


def clock(device: str) -> Callable[[], float]:
    """Return the clock to measure by: CPU seconds, or the wall clock where a GPU does the work."""
    return time.perf_counter if device.startswith("cuda") else cpu_seconds


def found(cell: Cell) -> dict[str, Any]:
    """Read a stored result; empty where it was not run."""
    return json.loads(cell.path.read_text()) if cell.path.exists() else {}


def once(cell: Cell, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read a result, or run and store it; a method that fails has failed, which is a result too."""
    if not cell.path.exists():
        started = cpu_seconds()
        try:
            result = run()
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {str(error)[-300:]}"}
        keep(cell, {"cpu_seconds": cpu_seconds() - started, "memory": peak_memory(), **result})
    return found(cell)


def keep(cell: Cell, result: dict[str, Any]) -> None:
    """Store a result with its name, the command and the versions that made it, whole or not at all."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy")} | {"unfade": unfade.__version__}
    made_by = {"command": " ".join(sys.argv), "versions": {"python": platform.python_version(), **versions}}
    cell.path.parent.mkdir(parents=True, exist_ok=True)
    with whole_or_nothing(cell.path) as part:
        part.write_text(json.dumps({**cell._asdict(), **made_by, **result}, indent=0))
    print(*cell, json.dumps(result), flush=True)


def _is_list_of_floats(value: Any) -> bool:
    """Say whether a value is a list of numbers, as of coefficients."""
    return isinstance(value, list) and all(isinstance(number, float) for number in value) and bool(value)


def _rounded(value: float | list[float]) -> float | list[float]:
    """Round to five digits."""
    return float(f"{value:.5g}") if isinstance(value, float) else [float(f"{number:.5g}") for number in value]


def compact(board: str) -> dict[str, dict[str, Any]]:
    """Gather the numbers of a board, rounded to five digits, by table/setting/seed/method."""
    result = {}
    for path in sorted((RESULTS / board).rglob("*.json")):
        stored = json.loads(path.read_text())
        cell = Cell(*(stored.pop(field) for field in Cell._fields))
        numbers = {n: _rounded(v) for n, v in stored.items() if isinstance(v, float) or _is_list_of_floats(v)}
        failed = {"failed": stored["failed"]} if "failed" in stored else numbers
        result["/".join(map(str, cell[1:]))] = failed
    return result


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("board")
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    lines = [f"{json.dumps(name)}: {json.dumps(result)}" for name, result in compact(chosen.board).items()]
    with whole_or_nothing(chosen.output) as part:
        part.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
