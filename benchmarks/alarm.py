"""Does the collapse alarm fire when it should, and only then? `python benchmarks/alarm.py [--seeds 50] [--learned]`.

Linear-Gaussian tables (300 rows, 6 columns, 30 % missing) and a mixture of two narrow modes, whose posteriors are known
exactly: a tenth of the observed cells is hidden and drawn from the exact posterior, then draws are shrunk about their mean,
or one mode is lost. `--learned` adds fits: the default recipe, and the printed TAE, left to collapse on digits with
four fifths of the pixels hidden. The threshold was tried on seeds 1000 to 1049 first (`--first 1000`).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from boards import alone, parser_of, run_all
from sklearn.datasets import load_digits
from store import Cell, found

from unfade import Architecture, Recoverer, TrainingConfig
from unfade.diagnostics.checks import COLLAPSED, relative_width, relative_width_beneath_noise
from unfade.diagnostics.predictions import held_out
from unfade.inference.held_out import HeldOut
from unfade.storage import whole_or_nothing

DRAWS, ROWS, COLUMNS = 80, 300, 6
SHRUNK = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25, 0.1, 0.0)


def gaussian_cells(seed: int) -> HeldOut:
    """Held-out cells of a linear-Gaussian table with draws of their exact posterior."""
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(COLUMNS, 2))
    covariance = loadings @ loadings.T + np.diag(rng.uniform(0.1, 1.0, COLUMNS))
    X = rng.multivariate_normal(np.zeros(COLUMNS), covariance, ROWS)
    seen = rng.random(X.shape) > 0.3
    hidden = seen & (rng.random(X.shape) < 0.1)
    known = seen & ~hidden
    rows, columns = np.nonzero(hidden)
    draws = np.empty((DRAWS, len(rows)))
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        k = known[row]
        gain = np.linalg.solve(covariance[np.ix_(k, k)], covariance[k, column]) if k.any() else np.zeros(0)
        variance = covariance[column, column] - gain @ covariance[k, column]
        draws[:, i] = gain @ X[row, k] + np.sqrt(variance) * rng.normal(size=DRAWS)
    return HeldOut(rows, columns, X[hidden], draws, np.where(known, X, np.nan), None)


def two_modes(seed: int, lost: bool) -> HeldOut:
    """Cells that are +1 or -1, each with a chance of its own between a third and two thirds, with noise of 0.1.

    lost: all draws of a cell come from its likelier mode.
    """
    rng = np.random.default_rng(seed)
    count = 250
    chance = rng.uniform(1 / 3, 2 / 3, count)
    values = np.where(rng.random(count) < chance, 1.0, -1.0) + 0.1 * rng.normal(size=count)
    up = rng.random((DRAWS, count)) < (chance > 0.5 if lost else chance)
    draws = np.where(up, 1.0, -1.0) + 0.1 * rng.normal(size=(DRAWS, count))
    return HeldOut(np.arange(count), np.zeros(count, dtype=int), values, draws, values[:, None], None)


def shrunk(cells: HeldOut, share: float) -> HeldOut:
    """Draws with a share of their spread."""
    mean = cells.draws.mean(0)
    draws = mean + share * (cells.draws - mean)
    return HeldOut(cells.rows, cells.columns, cells.values, draws, cells.seen, cells.kinds)


def learned(seed: int) -> dict[str, float]:
    """The spread of draws that were learned: by the default, and by the printed TAE on digits, badly."""
    rng = np.random.default_rng(seed)
    cells = gaussian_cells(seed)
    table = cells.seen.copy()
    table[cells.rows, cells.columns] = cells.values
    curve = rng.uniform(0, 2 * np.pi, ROWS)
    circle = np.stack([np.cos(curve), np.sin(curve), np.cos(2 * curve)], 1) + 0.1 * rng.normal(size=(ROWS, 3))
    circle[rng.random(circle.shape) < 0.3] = np.nan
    found = {}
    for name, data in (("default, linear table", table), ("default, circle", circle)):
        rec = Recoverer(random_state=seed, verbose=0, training=TrainingConfig(steps=2000, batch_size=64)).fit(data)
        found[name] = relative_width(rec.held_out_)
    digits = load_digits().data[rng.permutation(1797)[:400]] / 16
    digits = digits + 0.03 * rng.normal(size=digits.shape)
    digits[rng.random(digits.shape) < 0.8] = np.nan
    small = Architecture(latent=8, hidden=(64, 64), prior_latent=3, prior_hidden=(20, 20), decoder_sees=True)
    config = TrainingConfig(steps=1500, learning_rate=5e-4, batch_size=50, decay=0.0)
    paper = Recoverer(
        "tae-paper", noise=0.03, scaling=None, architecture=small, training=config, random_state=seed, verbose=0
    )
    paper_cells = held_out(paper.parameters(), digits, n_draws=DRAWS, seed=seed)
    found["printed TAE"] = min(relative_width(paper_cells), relative_width_beneath_noise(paper_cells, 0.03)[1])
    return found


def judged(name: str, values: list[float]) -> dict[str, Any]:
    """How often the alarm fires, and the middle of what it looks at."""
    fired = float(np.mean(np.array(values) < COLLAPSED))
    print(f"{name:32} fires in {fired:6.1%} of {len(values)}; spread {np.median(values):.2f} "
          f"({min(values):.2f} to {max(values):.2f})", flush=True)  # fmt: skip
    return {"fires": fired, "spread": values}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, seeds=50)
    parser.add_argument("--first", type=int, default=0, help="seed to start from")
    parser.add_argument("--learned", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="picture and .json beside it")
    chosen = parser.parse_args(arguments)
    seeds, result = range(chosen.first, chosen.first + chosen.seeds), {}
    for share in SHRUNK:
        values = [relative_width(shrunk(gaussian_cells(seed), share)) for seed in seeds]
        result[f"shrunk to {share:g}"] = judged(f"shrunk to {share:g}", values)
    for lost in (False, True):
        name = f"two modes, {'one lost' if lost else 'exact'}"
        result[name] = judged(name, [relative_width(two_modes(seed, lost)) for seed in seeds])
    if chosen.learned:
        cells = [Cell("alarm", "learned", "spread", seed, "fits") for seed in seeds]
        run_all(cells, chosen.jobs, lambda cell: {"spread": alone(learned, cell.seed)})
        for name in found(cells[0])["spread"]:
            result[name] = judged(name, [found(cell)["spread"][name] for cell in cells])
    if chosen.output:
        with whole_or_nothing(chosen.output.with_suffix(".json")) as part:
            part.write_text(json.dumps(result, indent=1))
        _picture(result, chosen.output)


def _picture(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="tight")
    left, right = figure.subplots(1, 2)
    left.plot(SHRUNK, [result[f"shrunk to {s:g}"]["fires"] for s in SHRUNK], "o-", color="#0072B2")
    left.set_xlabel("share of the exact posterior's spread that draws keep")
    left.set_ylabel("share of tables on which the alarm fires")
    names = list(result)
    right.boxplot([result[name]["spread"] for name in names], orientation="horizontal", tick_labels=names)
    right.axvline(COLLAPSED, color="#D55E00", ls="--", label="alarm below")
    right.set_xlabel("spread of draws for their errors (1 is right)")
    right.tick_params(labelsize=7)
    right.invert_yaxis()
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
