"""The noise that a default fit of a table learns: `python benchmarks/learned_noise.py`, then `--report`.

Simulated tables of 500 x 6, one factor behind all columns: the others explain `R2` of a clean column. Noise of .1 to .5
sd on what is observed, a fifth of the cells missing. Written are the share of columns whose level the fit says it can
tell; there, the level learned relative to the true one; the RMSE of cleaned observed cells relative to leaving them
alone; coverage of missing cells, ties broken.
"""

import numpy as np
from boards import alone, parser_of, run_all, written
from peers import cpu_seconds, peak_memory
from report import markdown
from scores import score
from store import Cell, found

from unfade import Recoverer

EXPLAINED, LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99), (0.1, 0.3, 0.5)
ROWS, COLUMNS, DRAWS = 500, 6, 20
SHOWN = ("told", "learned / true", "RMSE / left alone", "missing: coverage")


def simulated(explained: float, level: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a clean table and its observations.

    With loadings a on one factor, p - 1 others explain a^2 c / (1 + c) of a column, c = (p - 1) a^2 / (1 - a^2).
    """
    grid = np.linspace(1e-3, 1 - 1e-6, 100_000)
    common = (COLUMNS - 1) * grid / (1 - grid)
    share = grid[np.argmin(np.abs(grid * common / (1 + common) - explained))]
    rng = np.random.default_rng(seed)
    X = np.sqrt(share) * rng.normal(size=(ROWS, 1)) + np.sqrt(1 - share) * rng.normal(size=(ROWS, COLUMNS))
    Y = X + level * rng.normal(size=X.shape)
    return X, np.where(rng.random(X.shape) < 0.2, np.nan, Y)


def learned(cell: Cell) -> dict:
    """Learn the noise of a simulated table, and score what becomes of it."""
    level = float(cell.setting)
    X, Y = simulated(float(cell.table), level, cell.seed)
    started = cpu_seconds()
    rec = Recoverer(noise="learn", random_state=cell.seed, verbose=0).fit(Y)
    levels, draws = np.broadcast_to(rec.noise_, COLUMNS), rec.sample(Y, DRAWS).values
    observed = ~np.isnan(Y)
    result = score(X, observed, draws)
    left = float(np.sqrt(np.mean((Y - X)[observed] ** 2)))
    cleaned = float(np.sqrt(np.mean((rec.transform(Y) - X)[observed] ** 2)))
    told = levels > 0
    result |= {"told": float(told.mean()), "RMSE / left alone": cleaned / left, "cpu_seconds": cpu_seconds() - started}
    if told.any():
        result["learned / true"] = float(levels[told].mean() / level)
    return {**result, "memory": peak_memory()}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    chosen = parser_of(__doc__, seeds=1).parse_args(arguments)
    cases = [(str(explained), str(level)) for explained in EXPLAINED for level in LEVELS]
    cells = [Cell("learned_noise", *case, seed, "unfade") for seed in range(chosen.seeds) for case in cases]
    if not chosen.report:
        run_all(cells, chosen.jobs, lambda cell: alone(learned, cell))
    rows = []
    for case in cases:
        runs = [result for cell in cells if cell[1:3] == case and "told" in (result := found(cell))]
        shown = [np.mean([run[name] for run in runs if name in run] or [np.nan]) for name in SHOWN]
        rows.append([*case, *("" if np.isnan(value) else f"{value:.2f}" for value in shown)])
    written("learned_noise", markdown(["R2", "true sd", *SHOWN], rows))


if __name__ == "__main__":
    main()
