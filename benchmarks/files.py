"""Every table of a folder through `unfade recover` with no option: `python benchmarks/files.py FOLDER [NAME ...]`.

Each must end with exit code 0, leave nothing missing, and keep observed cells, dtypes, names and order. Columns in
which nothing is observed cannot be filled. What is stored under build/scoreboard is not run again; small files are first.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import cpu_seconds
from pyarrow import compute
from store import Cell, found, once

from unfade.io.tables import read_table


def check(path: Path, folder: Path) -> str:
    """What is wrong with what the command made of a table; nothing where all is well."""
    output = folder / path.name.replace(".csv.gz", ".parquet")
    command = [sys.executable, "-m", "unfade", "recover", path, "-o", output, "-q"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return f"exit code {ran.returncode}: {ran.stderr.strip()}"
    before, after = read_table(path), read_table(output)
    if before.schema != after.schema:
        return f"columns changed: {[(a, b) for a, b in zip(before.schema, after.schema, strict=True) if a != b]}"
    faults = []
    for name in before.column_names:
        old, new = before[name], after[name]
        seen = compute.is_valid(old)
        if old.null_count < len(old) and new.null_count:
            faults.append(f"{new.null_count} cells of {name} still missing")
        if old.filter(seen) != new.filter(seen):
            faults.append(f"observed cells of {name} changed")
    return "; ".join(faults)


def result(path: Path) -> dict[str, float]:
    """Check a table; answers its size, and the seconds of the command by the clock and by the CPU."""
    table = read_table(path)
    missing = sum(column.null_count for column in table.columns)
    with tempfile.TemporaryDirectory() as made:
        clock, cpu = time.perf_counter(), cpu_seconds()
        fault = check(path, Path(made))
        seconds = {"seconds": time.perf_counter() - clock, "cpu_seconds": cpu_seconds() - cpu}
    if fault:
        raise ValueError(fault)
    return {"rows": float(table.num_rows), "columns": float(table.num_columns), "missing": float(missing), **seconds}


def main(folder: Path, names: list[str]) -> int:
    """Check all tables; answers how many are not as they must be."""
    wrong = 0
    for path in sorted(folder.glob("*.csv.gz"), key=lambda path: path.stat().st_size):
        name = path.name.split(".")[0]
        if names and name not in names:
            continue
        cell = Cell("files", name, "no option", 0, "unfade")
        once(cell, lambda path=path: result(path))
        wrong += "failed" in found(cell)
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
