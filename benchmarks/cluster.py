"""The same draws by one process, by a cluster, and by a cluster that loses a worker: `python benchmarks/cluster.py`.

Takes the first rows of the table that `benchmarks/stream.py` makes, numbers them, and recovers them with two plain draws:
in one process, by Ray Data on a local cluster of two workers, and again while a worker is killed (SIGKILL) half-way.
Prints seconds of the clock, as the work is done by processes of the cluster, and whether all three are identical.
"""

import argparse
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from stream import make

from unfade import Recoverer
from unfade.engines import recover_batch
from unfade.engines.ray import recover

DRAWS = 2


def numbered(path: Path, rows: int, target: Path) -> None:
    """The first rows, with a column of their numbers, in files of 50,000 rows."""
    target.mkdir()
    start = 0
    for batch in parquet.ParquetFile(path).iter_batches(50_000):
        table = pa.Table.from_batches([batch.slice(0, rows - start)])
        numbers = pa.array(np.arange(start, start + len(table)))
        parquet.write_table(table.add_column(0, "row", numbers), target / f"{start:09d}.parquet")
        start += len(table)
        if start == rows:
            return


def in_order(table: pa.Table) -> pa.Table:
    """Sorted by draw and row."""
    return table.select(sorted(table.column_names)).sort_by([("draw", "ascending"), ("row", "ascending")]).combine_chunks()


def workers() -> list[int]:
    """Processes of the cluster that run `map_batches` now."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "ray::MapBatches" in line]


def kill_one(after: float, killed: list[int]) -> None:
    """Kill a worker so many seconds from now."""
    time.sleep(after)
    while not (found := workers()):
        time.sleep(0.05)
    os.kill(found[0], signal.SIGKILL)
    killed.append(found[0])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--table", type=Path, help="a file of stream.py; made where not given")
    parser.add_argument("--folder", type=Path, default=Path("cluster-benchmark"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path, source = chosen.table or chosen.folder / "table.parquet", chosen.folder / f"numbered-{chosen.rows}"
    if not path.exists():
        make(path, chosen.rows)
    if not source.exists():
        numbered(path, chosen.rows, source)
    first = next(parquet.ParquetFile(path).iter_batches(20_000))
    rec = Recoverer(max_steps=500, n_members=1, random_state=0, verbose=0).fit(pa.Table.from_batches([first]))
    function = recover_batch(rec, draws=DRAWS, id_column="row", n_candidates=0)

    started = time.monotonic()
    alone = pa.concat_tables([function(parquet.read_table(file)) for file in sorted(source.iterdir())])
    print(f"one process: {time.monotonic() - started:.0f} s, {len(alone):,} rows", flush=True)
    alone = in_order(alone)

    import ray

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    usual = 0.0
    for kill in (False, True):
        started, killed = time.monotonic(), list[int]()
        if kill:
            threading.Thread(target=kill_one, args=(usual / 2, killed), daemon=True).start()
        found = recover(ray.data.read_parquet(str(source)), function, batch_size=50_000)
        table = in_order(pa.concat_tables(ray.get(found.to_arrow_refs())))
        usual = time.monotonic() - started
        what = f"two workers, {len(killed)} killed half-way" if kill else "two workers"
        print(f"{what}: {usual:.0f} s, identical: {table.equals(alone)}", flush=True)
        del table
    ray.shutdown()


if __name__ == "__main__":
    main()
