"""A table larger than memory, recovered part by part: `python benchmarks/stream.py --rows 20000000 --folder /tmp/stream`.

Makes a Parquet file of rows x 20 (float32, correlated columns, 20 % missing), fits on it by `fit_stream`, then measures
(a) reading and writing the same file without a model; (b) `recover_stream` with two plain draws (n_candidates=0), in a
process of its own: CPU seconds, rows per CPU second, the most memory beyond what the imports take, and how many times (a)
that is. (b) is run without the mean and, with --mean, also with it.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from peers import cpu_seconds
from pyarrow import parquet

COLUMNS, PART, DRAWS = 20, 250_000, 2


def make(path: Path, rows: int) -> None:
    """The table, in parts, each from a seed of its own."""
    loadings = np.random.default_rng(0).normal(size=(4, COLUMNS))
    names = [f"x{i}" for i in range(COLUMNS)]
    with parquet.ParquetWriter(path, pa.schema([(name, pa.float32()) for name in names])) as writer:
        for number, start in enumerate(range(0, rows, PART)):
            rng, count = np.random.default_rng([1, number]), min(PART, rows - start)
            values = rng.normal(size=(count, 4)) @ loadings
            values[:, ::4] = np.sin(values[:, ::4])
            values += 0.5 * rng.normal(size=values.shape)
            hidden = rng.random(values.shape) < 0.2
            columns = [pa.array(values[:, i].astype(np.float32), mask=hidden[:, i]) for i in range(COLUMNS)]
            writer.write_table(pa.table(columns, names=names))


def copied(path: Path, target: Path) -> float:
    """Return the CPU seconds to read the file and write it again, some rows at a time."""
    started = cpu_seconds()
    with parquet.ParquetFile(path) as file, parquet.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches(2**16):
            writer.write_batch(batch)
    seconds = cpu_seconds() - started
    target.unlink()
    return seconds


def recover(path: Path, model: Path, target: Path, memory: str, mean: bool) -> None:
    """In a process of its own: recover, and print seconds and memory."""
    from unfade import Recoverer
    from unfade.streaming import recover_stream

    rec = Recoverer.load(model)
    before = resident("VmRSS")
    started = cpu_seconds()
    recover_stream(rec, path, target, draws=DRAWS, n_candidates=0, seed=0, memory=memory, clean=mean)
    seconds, peak = cpu_seconds() - started, resident("VmHWM")
    print(json.dumps({"seconds": seconds, "imports_mb": before, "beyond_mb": peak - before}))


def resident(what: str) -> float:
    """Memory of this process in MB, as Linux tells it: VmRSS now, VmHWM at most (`ru_maxrss` counts the parent's too)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(what))


def recovered(options: argparse.Namespace, path: Path, model: Path, mean: bool) -> dict[str, float]:
    """Start the process that recovers, and read what it measured."""
    target = options.folder / "recovered"
    for left in (target, target.with_name("recovered.partial")):
        shutil.rmtree(left, ignore_errors=True)
    command = [sys.executable, __file__, "--recover", path, model, target, options.memory, mean]
    out = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    shutil.rmtree(target)
    return json.loads(out.splitlines()[-1])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, default=Path("stream-benchmark"))
    parser.add_argument("--memory", default="2GB", help="what recover_stream and fit_stream may take")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of the fit")
    parser.add_argument("--mean", action="store_true", help="also with the mean, which takes a hundred draws a row")
    parser.add_argument("--recover", nargs=5, metavar="X", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.recover:
        path, model, target, memory, mean = options.recover
        return recover(Path(path), Path(model), Path(target), memory, mean == "True")

    from unfade import Recoverer
    from unfade.streaming import fit_stream

    options.folder.mkdir(parents=True, exist_ok=True)
    path, model = options.folder / f"table-{options.rows}.parquet", options.folder / "model.unfade"
    if not path.exists():
        started = cpu_seconds()
        draft = path.with_suffix(".draft")
        make(draft, options.rows)
        draft.rename(path)
        print(
            f"made {options.rows:,} x {COLUMNS}, {path.stat().st_size / 1e6:.0f} MB, in {cpu_seconds() - started:.0f} CPU s"
        )
    started = cpu_seconds()
    rec = fit_stream(Recoverer(max_steps=options.steps, random_state=0, verbose=0), path, options.memory)
    rec.save(model)
    print(f"fit_stream, {options.steps} steps: {cpu_seconds() - started:.1f} CPU s")
    plain = copied(path, options.folder / "copy.parquet")
    print(f"(a) read and write, no model: {plain:.1f} CPU s")
    for mean in (False, True) if options.mean else (False,):
        found = recovered(options, path, model, mean)
        print(
            f"(b) {DRAWS} plain draws{' and the mean' if mean else ''}: {found['seconds']:.1f} CPU s, "
            f"{options.rows / found['seconds']:,.0f} rows per CPU second, {found['seconds'] / plain:.1f} times (a), "
            f"{found['beyond_mb']:.0f} MB beyond the {found['imports_mb']:.0f} MB after imports (memory={options.memory})"
        )


if __name__ == "__main__":
    main()
