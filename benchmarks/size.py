"""Time, memory and scores as tables grow: `python benchmarks/size.py small large huge growth memory`.

small, large, huge: a fit and 20 draws beside peers, on UCI's concrete table (--data-dir: a folder with concrete.csv.gz)
and on simulated ones of 20,000 x 20 and 200,000 x 50; growth: seconds when rows, columns and draws double; memory: the
most anonymous memory that a fit on a million rows and 20 draws into a memory map take. Seconds are CPU seconds (on a
GPU, of the clock).
"""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from boards import parser_of, run_all, written
from methods import complete
from report import markdown
from scores import score
from store import Cell, clock, found

from unfade import Architecture, Recoverer, TrainingConfig
from unfade.io.tables import read_table

SHAPES = {"small": (1030, 9), "large": (20_000, 20), "huge": (200_000, 50)}
METHODS = ["unfade", "miceforest", "IterativeImputer"]
START = {"rows": 16_000, "columns": 16, "draws": 16}
PARTS = [*SHAPES, "growth", "memory"]


def tanh_table(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Draw a table: five factors through a random tanh network, unit variance, and noise of sd 0.3 of its own."""
    rng = np.random.default_rng(seed)
    factors, first, second = rng.normal(size=(rows, 5)), rng.normal(size=(5, 32)), rng.normal(size=(32, columns))
    smooth = np.tanh(factors @ first) @ second
    return smooth / smooth.std(0) + 0.3 * rng.normal(size=smooth.shape)


def with_holes(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """Hide 30 % of the cells."""
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.3, np.nan, X)


def beside_peers(folder: Path, device: str, cell: Cell) -> dict:
    """Run a method on a table and score it on missing cells."""
    concrete = cell.setting == "small"
    X = np.stack(read_table(folder / "concrete.csv.gz").columns, 1) if concrete else tanh_table(*SHAPES[cell.setting])
    Y = with_holes(X)
    made = complete(cell.method, Y, cell.seed, **({"device": device} if device != "cpu" else {}))
    return {**score(X, ~np.isnan(Y), made.pop("draws"), X.std(0)), **made}


def growth(device: str, cell: Cell) -> dict:
    """Measure a fit of 200 steps and drawing, with networks of one size: the best of three."""
    now, (what, number) = clock(device), cell.setting.split()
    size = {**START, what: int(number)}
    Y, seconds = with_holes(tanh_table(size["rows"], size["columns"])), []
    networks = Architecture(latent=16, hidden=(128, 128), skip=True)
    for _ in range(3):
        started = now()
        rec = Recoverer(max_steps=200, architecture=networks, random_state=0, device=device, verbose=0).fit(Y)
        fitted = now()
        rec.sample(Y, size["draws"], n_candidates=0)
        seconds.append((fitted - started, now() - fitted))
    fit, draws = np.min(seconds, 0)
    return {"fit": float(fit), "draws": float(draws)}


def memory(device: str) -> dict:
    """Measure GB of anonymous memory beyond the table, at its peak: import, fit of 1,000 steps, and 20 plain draws."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(1_000_000, 1)) * np.ones(50) + 0.5 * rng.normal(size=(1_000_000, 50))
    Y[rng.random(Y.shape, dtype=np.float32) < 0.3] = np.nan
    size = Y.nbytes / 1e9
    result = {"1,000,000 x 50 table itself": size, "before the fit, libraries included": _anonymous() - size}
    with tempfile.TemporaryDirectory() as folder, _peak() as most:
        training = TrainingConfig(steps=1000)
        rec = Recoverer(training=training, random_state=0, device=device, verbose=0).fit(Y)
        result["fit"] = most[0] - size
        out = np.memmap(Path(folder) / "draws", np.float32, "w+", shape=(20, *Y.shape))
        rec.sample(Y, 20, n_candidates=0, out=out)
    return {**result, "fit and 20 draws into a memory map": most[0] - size}


def _anonymous() -> float:
    """Anonymous memory of this process now, in GB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e6


@contextmanager
def _peak() -> Iterator[list[float]]:
    """The most anonymous memory, looked at every 20 ms."""
    most, over = [_anonymous()], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], _anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def cells_of(parts: list[str], methods: list[str]) -> list[Cell]:
    """List the cells that are asked for."""
    cells = [Cell("size", "beside peers", part, 0, method) for part in parts if part in SHAPES for method in methods]
    if "growth" in parts:
        cells += [Cell("size", "growth", f"{w} {n << k}", 0, "unfade") for w, n in START.items() for k in range(4)]
    return cells + ([Cell("size", "memory", "1,000,000 x 50", 0, "unfade")] if "memory" in parts else [])


def report(cells: list[Cell]) -> str:
    """Write a table of what was run."""
    rows = []
    for cell in cells:
        numbers = {name: value for name, value in found(cell).items() if isinstance(value, float)}
        some = {n: v for n, v in numbers.items() if not n.startswith("observed") and n != "missing: RMSE"}
        rows.append([f"{cell.table}, {cell.setting}", cell.method, ", ".join(f"{n} {v:.3g}" for n, v in some.items())])
    return markdown(["", "method", "measured"], rows)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=1)
    parser.add_argument("what", choices=PARTS, nargs="+")
    chosen = parser.parse_args(arguments)
    cells = cells_of(chosen.what, chosen.methods)

    def run(cell: Cell) -> dict:
        if cell.table == "beside peers":
            return beside_peers(chosen.data_dir, chosen.device, cell)
        return growth(chosen.device, cell) if cell.table == "growth" else memory(chosen.device)

    if not chosen.report:
        run_all(cells, 1, run)
    written("size", report(cells))


if __name__ == "__main__":
    main()
