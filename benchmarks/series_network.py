"""A simulated network of sensors with noise and drift: `python benchmarks/series_network.py`, then `--report`.

Ten sensors see two shared signals with a daily cycle, each with a drift of its own (a slow autoregression) and white noise
of a known sd, .15 to .45 of the sd of the clean values; a fifth of the cells is missing in gaps of 1 to 24 steps.
`noise="learn"`; sizes are numbers of steps. Scores are of the clean values: coverage of the central 90 % of 50
draws, the largest relative error of a learned noise level, and the seconds of fit, mean and draws.
"""

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from boards import parser_of, run_all, written
from peers import cpu_seconds
from report import markdown, mean_and_spread
from store import Cell, found

from unfade import Recoverer
from unfade.metrics import coverage_due, covered

SIZES, SENSORS, DRAWS = (5_000, 10_000, 20_000), 10, 50
METHODS = ["unfade"]


def network(steps: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Simulate what is given, the clean values and the sd of the noise."""
    rng = np.random.default_rng(seed)

    def slow(count: int, memory: float) -> np.ndarray:
        x, shocks = np.zeros((steps, count)), np.sqrt(1 - memory**2) * rng.normal(size=(steps, count))
        for t in range(1, steps):
            x[t] = memory * x[t - 1] + shocks[t]
        return x

    day = np.sin(2 * np.pi * (np.arange(steps)[:, None] / 24 + rng.random(SENSORS)))
    clean = slow(2, 0.95) @ rng.normal(size=(2, SENSORS)) + 0.5 * slow(SENSORS, 0.995) + day
    noise = np.linspace(0.15, 0.45, SENSORS) * clean.std(0)
    given = clean + noise * rng.normal(size=clean.shape)
    while np.isnan(given).mean() < 0.2:
        for sensor in range(SENSORS):
            start, length = rng.integers(0, steps), rng.integers(1, 25)
            given[start : start + length, sensor] = np.nan
    table = pd.DataFrame(given).add_prefix("sensor")
    return table.assign(time=pd.date_range("2024-01-01", periods=steps, freq="h")), clean, noise


def result(cell: Cell) -> dict[str, Any]:
    """Fit, recover and score."""
    table, clean, noise = network(int(cell.setting), cell.seed)
    started, began = cpu_seconds(), time.perf_counter()
    rec = Recoverer(time="time", noise="learn", random_state=cell.seed, verbose=0).fit(table)
    fitted, wall = cpu_seconds(), time.perf_counter() - began
    rec.transform(table)
    draws = rec.sample(table, DRAWS).values[..., :SENSORS].astype(float)
    hits = covered(torch.from_numpy(draws), torch.from_numpy(clean), 0.9).double().numpy()
    gone = table.iloc[:, :SENSORS].isna().to_numpy()
    learned = np.asarray(rec.noise_)[:SENSORS]
    return {
        "noise error": float(np.abs(learned / noise - 1).max()),
        "coverage, missing": float(hits[gone].mean()),
        "coverage, observed": float(hits[~gone].mean()),
        "nominal": coverage_due(0.9, DRAWS),
        "fit": fitted - started,
        "wall": wall,
        "mean and draws": cpu_seconds() - fitted,
    }


def table(seeds: int) -> str:
    """Write what was run."""
    keys = ["noise error", "coverage, missing", "coverage, observed", "nominal", "fit", "wall", "mean and draws"]
    rows = []
    for size in SIZES:
        run = [found(Cell("series_network", "sensors", str(size), seed, "unfade")) for seed in range(seeds)]
        if run := [each for each in run if "fit" in each]:
            shown = [mean_and_spread([each[key] for each in run], 3 if key[0] in "nc" else 1) for key in keys]
            rows.append([f"{size:,}", *shown, f"{np.mean([each['memory'] for each in run]):.0f}"])
    heads = [
        "steps",
        "largest error of a noise level",
        *keys[1:4],
        "fit, CPU s",
        "fit, wall s",
        "mean and 50 draws, CPU s",
        "memory, MB",
    ]
    return markdown(heads, rows)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    options = parser_of(__doc__, METHODS, seeds=1).parse_args(arguments)
    if not options.report:
        run_all(
            [Cell("series_network", "sensors", str(n), s, "unfade") for s in range(options.seeds) for n in SIZES], 1, result
        )
    written("series_network", table(options.seeds))


if __name__ == "__main__":
    main()
