"""Every table of a folder through `unfade recover` with no option: `python benchmarks/files.py FOLDER [NAME ...]`.

Each must end with exit code 0, leave nothing missing, and keep observed cells, dtypes, names and order. Columns in
which nothing is observed cannot be filled.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from peers import cpu_seconds
from pyarrow import compute

from unfade.io.tables import read_table


def check(path: Path, folder: Path) -> str:
    """What is wrong with what the command made of a table; nothing where all is well."""
    output = folder / path.name.replace(".csv.gz", ".parquet")
    ran = subprocess.run(["unfade", "recover", path, "-o", output, "-q"], capture_output=True, text=True, check=False)
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


def main(folder: Path, names: list[str]) -> int:
    """Check all tables; answers how many are not as they must be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as made:
        for path in sorted(folder.glob("*.csv.gz")):
            if names and path.name.split(".")[0] not in names:
                continue
            started, table = cpu_seconds(), read_table(path)
            fault = check(path, Path(made))
            wrong += bool(fault)
            missing = sum(column.null_count for column in table.columns)
            shape = f"{table.num_rows} x {table.num_columns}"
            seconds = cpu_seconds() - started
            print(
                f"{path.name:36}{shape:>12}{missing:8} missing{seconds:6.0f} CPU s  {fault or 'as it must be'}", flush=True
            )
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
