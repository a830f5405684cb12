"""Quality against seconds: `python benchmarks/quality.py -o docs/images/quality.png`.

Corrupted 8x8 digits (half of the pixels hidden, noise of sd 0.1 told to all methods); CRPS of 50 draws on the hidden pixels
against the seconds of the fit (CPU seconds; on a GPU, of the clock), for the settings of the default method that were
tried and for the printed TAE up to the paper's 500,000 steps of 20. The points are written beside the picture.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from boards import parser_of, run_all
from sklearn.datasets import load_digits
from store import Cell, clock, found

from unfade import Recoverer, TrainingConfig
from unfade.diagnostics.evaluation import evaluate
from unfade.storage import whole_or_nothing

LENGTHS = (250, 500, 1000, 2000, 4000, 8000)
CURVES: dict[str, tuple[str, dict[str, Any], tuple[int | None, ...]]] = {
    "unfade, batch 128, rate 3e-3 (default)": ("auto", {}, LENGTHS),
    "unfade, batch 128, rate 1e-3": ("auto", {"learning_rate": 1e-3}, LENGTHS),
    "unfade, batch 128, rate 1e-2": ("auto", {"learning_rate": 1e-2}, LENGTHS),
    "unfade, batch 32, rate 3e-3": ("auto", {"batch_size": 32}, LENGTHS),
    "unfade, batch 512, rate 3e-3": ("auto", {"batch_size": 512}, LENGTHS),
    "unfade, rate constant": ("auto", {"decay": 0.0}, LENGTHS),
    "unfade, length chosen by held-out pixels": ("auto", {}, (None,)),
    "TAE as printed, batch 20, rate 2e-4": ("tae-paper", {}, (1000, 5000, 50_000, 500_000)),
}


def corrupted_digits(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return clean digits and corrupted ones."""
    rng = np.random.default_rng(seed)
    X = load_digits().data / 16
    return X, np.where(rng.random(X.shape) < 0.5, np.nan, X + 0.1 * rng.normal(size=X.shape))


def measure(method: str, changes: dict[str, Any], steps: int | None, device: str) -> dict[str, float]:
    """Fit, draw and score."""
    X, Y = corrupted_digits()
    training = TrainingConfig(**changes) if changes else None
    now = clock(device)
    started = now()
    rec = Recoverer(
        method, noise=0.1, scaling=None, training=training, max_steps=steps, random_state=0, device=device, verbose=0
    ).fit(Y)
    seconds = now() - started
    scores = evaluate(rec.sample(Y, 50), X, Y)
    return {"seconds": seconds, "crps": scores.crps, "coverage": scores.coverage, "due": scores.coverage_due}


def plot(results: dict[str, Any], path: Path) -> None:
    """Draw a curve per setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    styles = dict(zip(CURVES, ("k-o", "C0--s", "C1--^", "C2--v", "C4--D", "C5:x", "k*", "C3-P"), strict=True))
    for name, style in styles.items():
        points = sorted(
            (point["seconds"], point["crps"]) for key, point in results["points"].items() if key.startswith(name + ";")
        )
        if points:
            axes.plot(*zip(*points, strict=True), style, label=name, markersize=13 if "*" in style else 5, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="seconds of the fit", ylabel="CRPS on hidden pixels (lower is better)")
    axes.set_yticks([0.08, 0.1, 0.12, 0.15, 0.2], ["0.08", "0.10", "0.12", "0.15", "0.20"])
    axes.set_yticks([], minor=True)
    axes.set_title(f"Corrupted digits, one seed, {results['machine']}", fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, seeds=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("quality.png"))
    parser.add_argument("--longest", type=int, default=500_000, help="leave out runs of more steps")
    parser.set_defaults(device="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args(arguments)
    machine = torch.cuda.get_device_name() if chosen.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    kept = chosen.output.with_suffix(".json")
    results = (
        json.loads(kept.read_text()) if kept.exists() else {"machine": machine, "torch": torch.__version__, "points": {}}
    )
    every = [(name, steps) for name, (_, _, lengths) in CURVES.items() for steps in lengths]
    cells = [Cell("quality", "digits", f"{s or 'chosen'} steps", 0, n) for n, s in every if (s or 0) <= chosen.longest]
    cells = [cell for cell in cells if f"{cell.method}; {cell.setting}" not in results["points"]]

    def run(cell: Cell) -> dict[str, float]:
        method, changes, _ = CURVES[cell.method]
        steps = cell.setting.split()[0]
        return measure(method, changes, None if steps == "chosen" else int(steps), chosen.device)

    if not chosen.report:
        measure("auto", {}, 10, chosen.device)  # what the first use of a device costs is not counted
        run_all(cells, 1, run)
    names = ("seconds", "crps", "coverage", "due")
    results["points"] |= {f"{c.method}; {c.setting}": {n: r[n] for n in names} for c in cells if "crps" in (r := found(c))}
    with whole_or_nothing(kept) as part:
        part.write_text(json.dumps(results, indent=1))
    plot(results, chosen.output)


if __name__ == "__main__":
    main()
