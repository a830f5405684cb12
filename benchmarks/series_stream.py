"""A file of millions of steps in bounded memory: `python benchmarks/series_stream.py`.

Three sensors with a shared signal, one step a minute, a tenth of the cells missing in gaps, in a Parquet file. A fit on
stretches of it, then mean and two draws of all rows, part by part; seconds of CPU and the most memory of the process.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from boards import parser_of, run_all, written
from peers import cpu_seconds, peak_memory
from pyarrow import parquet
from report import markdown
from scipy.signal import lfilter
from store import Cell, found

from unfade import Recoverer
from unfade.streaming import fit_stream, recover_stream

SIZES, SENSORS, AT_ONCE, MEMORY = (500_000, 5_000_000), 3, 250_000, "512MB"
METHODS = ["unfade"]


def write(path: Path, steps: int, seed: int) -> float:
    """Simulate the file some rows at a time; the share of missing cells."""
    rng, state, gone = np.random.default_rng(seed), np.zeros((1, SENSORS + 1)), 0
    schema = pa.schema([("time", pa.timestamp("us")), *((f"sensor{j}", pa.float64()) for j in range(SENSORS))])
    with parquet.ParquetWriter(path, schema) as file:
        for start in range(0, steps, AT_ONCE):
            count = min(AT_ONCE, steps - start)
            shocks = 0.1 * rng.normal(size=(count, SENSORS + 1))
            slow, state = lfilter([1], [1, -0.99], shocks, axis=0, zi=state)
            minute = (start + np.arange(count)) * 2 * np.pi / 1440
            values = slow[:, 1:] + slow[:, :1] + np.sin(minute)[:, None]
            for sensor in range(SENSORS):
                for first in rng.integers(0, count, count // 200):
                    values[first : first + rng.integers(1, 40), sensor] = np.nan
            gone += int(np.isnan(values).sum())
            times = np.datetime64("2015-01-01", "us") + (start + np.arange(count)) * np.timedelta64(60, "s")
            file.write_table(pa.table([times, *(pa.array(v, from_pandas=True) for v in values.T)], schema=schema))
    return gone / steps / SENSORS


def result(cell: Cell) -> dict[str, Any]:
    """Write the file, fit and recover."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.parquet"
        missing = write(path, int(cell.setting), cell.seed)
        started, before = cpu_seconds(), peak_memory()
        rec = fit_stream(Recoverer(time="time", random_state=cell.seed, verbose=0), path, MEMORY)
        fitted = cpu_seconds()
        target = recover_stream(rec, path, Path(folder) / "out", draws=2, memory=MEMORY)
        recovered = cpu_seconds()
        rows = sum(parquet.read_metadata(part).num_rows for part in (target / "draws.parquet").iterdir())
    assert rows == 2 * int(cell.setting)
    return {"fit": fitted - started, "recover": recovered - fitted, "missing": missing, "before": before,
            "most": peak_memory()}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    options = parser_of(__doc__, METHODS, seeds=1).parse_args(arguments)
    cells = [Cell("series_stream", "sensors", str(size), 0, METHODS[0]) for size in SIZES]
    if not options.report:
        run_all(cells, 1, result)
    rows = [
        [f"{int(cell.setting):,}", *(f"{run[key]:.0f}" for key in ("fit", "recover", "before", "most"))]
        for cell in cells
        if (run := found(cell)) and "fit" in run
    ]
    heads = ["steps", "fit, CPU s", "mean and two draws, CPU s", "memory before, MB", "memory, most, MB"]
    written("series_stream", markdown(heads, rows))


if __name__ == "__main__":
    main()
