"""Depth maps with held-out pixels, against in-painting: `python benchmarks/depth.py --data-dir FOLDER`, then `--report`.

FOLDER holds stacks of depth maps in mm, 0 = missing: kinect1_7scenes_160x120_mm.npz, realsense_d435_desk_160x120_mm.npz;
and nyu_labeled_filled_160x120_u8.npz. Of the raw stacks, measured pixels are held out: under the holes of another frame, in
boxes, and along depth edges; into the NYU rooms holes of the raw frames are cut. NYU's truth is its toolbox's filling where
the sensor saw nothing, and comes in steps of 39 mm. The methods see what is left, the scorer alone sees what was held out.
Frames of one block in the middle of the video are not trained on (`unseen`). Scores are in mm: RMSE of the mean, CRPS,
coverage of the central 90 % beside the nominal one, energy score over the root of the number of pixels. Methods that give
one image and no draws have their absolute error as CRPS, and no coverage.
"""

import argparse
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from boards import parser_of, run_all, written
from depth_frames import DRAWS, STACKS, WHY, by_nearest, by_opencv, by_pixel, held_out, stack
from report import markdown, mean_and_spread
from store import Cell, found

from unfade import Recoverer
from unfade.methods.registry import IMAGE_TRAINING
from unfade.metrics import coverage_due, covered, crps, energy_score
from unfade.paper.depth_maps import TRAINING, WAYS

OURS: dict[str, dict[str, Any]] = {
    "unfade, conv-large": {"network": "conv-large"},
    "unfade, conv": {"network": "conv"},
    "tae-paper, conv": WAYS["TAE as printed"],
    "MIWAE, conv-large": {"network": "conv-large", "method": "miwae"},
}
METHODS = [*OURS, "Telea", "Navier-Stokes", "nearest pixel", "mean of the pixel"]


@dataclass(frozen=True)
class Frames:
    """Frames in the order in which methods get them: those that are scored first, then the others that are trained on."""

    truth: np.ndarray
    seen: np.ndarray
    why: np.ndarray  # why a pixel was held out
    unseen: np.ndarray  # of the scored frames, those that are not trained on
    train: np.ndarray  # places of the frames that are trained on
    total: int


def frames(options: argparse.Namespace, cell: Cell) -> Frames:
    """Hold pixels out of a stack, and frames out of training."""
    truth = stack(options.data_dir, cell.table)[:: options.every]
    raw = stack(options.data_dir, "kinect" if cell.table == "nyu" else cell.table)
    why, count = held_out(truth, np.isnan(raw), cell.seed), len(truth)
    unseen, near = np.zeros(count, bool), np.zeros(count, bool)
    unseen[int(0.6 * count) : int(0.75 * count)] = True
    near[int(0.56 * count) : int(0.79 * count)] = True  # frames next to the block look like it: nobody trains on them
    shown = np.sort(np.random.default_rng(1).permutation(np.nonzero(~near)[0])[:100])
    tried = np.concatenate([shown, np.nonzero(unseen)[0][:: max(1, unseen.sum() // 100)]])
    order = np.concatenate([tried, np.setdiff1d(np.nonzero(~near)[0], tried)])
    seen = np.where(why > 0, np.nan, truth)[order]
    return Frames(truth[tried], seen, why[tried], unseen[tried], np.nonzero(~near[order])[0], count)


def drawn(given: Frames, options: argparse.Namespace, cell: Cell) -> tuple[np.ndarray, int | None]:
    """Draws of the scored frames, (draws, frames, height, width), and the steps of training."""
    scored = given.seen[: len(given.truth)]
    plain = {"Telea": lambda: by_opencv(scored, 1), "Navier-Stokes": lambda: by_opencv(scored, 0)}
    plain |= {"nearest pixel": lambda: by_nearest(scored)}
    plain |= {"mean of the pixel": lambda: by_pixel(given.seen, given.train, len(scored))}
    if cell.method in plain:
        return plain[cell.method](), None
    how = OURS[cell.method]
    training = TRAINING[20] if how.get("method") == "tae-paper" else IMAGE_TRAINING
    training = replace(training, steps=options.steps or training.steps)
    rec = Recoverer(random_state=cell.seed, device=options.device, training=training, verbose=0, **how)
    rec.fit(given.seen[given.train].astype(np.float32))
    cell.path.parent.mkdir(parents=True, exist_ok=True)
    rec.save(cell.path.with_suffix(".unfade"))
    steps = sum(max(history.steps, default=0) for history in rec.histories_)
    return rec.sample(scored.astype(np.float32), DRAWS).values, steps


def result(options: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    """Run a method and score it: frames that were trained on or not, and pixels by why they were held out."""
    given = frames(options, cell)
    draws, steps = drawn(given, options, cell)
    kinds = {"all": given.why > 0, **{label: given.why == code for code, label in WHY.items()}}
    parts = {"trained on": ~given.unseen, "unseen": given.unseen}
    found = {
        part: {kind: scores(draws[:, rows], given.truth[rows], cells[rows]) for kind, cells in kinds.items()}
        for part, rows in parts.items()
    }
    return {"steps": steps, "frames": given.total, "scores": found}


def scores(draws: np.ndarray, truth: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """Score draws on chosen pixels."""
    x, t = torch.from_numpy(draws[:, cells]).double(), torch.from_numpy(truth[cells])
    flat = [torch.from_numpy(np.nan_to_num(part).reshape(*part.shape[:-2], -1)) for part in (draws, truth)]
    chosen = torch.from_numpy(cells.reshape(len(cells), -1))
    energy = energy_score(flat[0].double(), flat[1], chosen) / chosen.sum(1).clamp(min=1).sqrt()
    return {
        "rmse": float((x.mean(0) - t).square().mean().sqrt()),
        "crps": float(crps(x, t).mean()),
        "coverage": float(covered(x, t, 0.9).double().mean()) if len(x) > 1 else float("nan"),
        "due": coverage_due(0.9, len(x)) if len(x) > 1 else float("nan"),
        "energy": float(energy[chosen.any(1)].mean()),
    }


def table(name: str, seeds: int, methods: list[str]) -> str:
    """Write what was run, the best first: means over seeds, and half their range beside the CRPS."""
    header = ["", "seeds", "steps", "CPU seconds", "RMSE", "CRPS", "coverage", "energy score", "CRPS (coverage): holes"]
    rows = []
    for part in ("trained on", "unseen"):
        ordered = []
        for method in methods:
            cells = [found(Cell("depth", name, "held out", seed, method)) for seed in range(seeds)]
            if run := [cell for cell in cells if "scores" in cell]:
                first = np.mean([cell["scores"][part]["all"]["crps"] for cell in run])
                ordered.append((first, row(f"{method}, {part}", run, part)))
        rows += [shown for _, shown in sorted(ordered)]
    return markdown([*header, "boxes", "edges"], rows)


def row(title: str, run: list[dict[str, Any]], part: str) -> list[str]:
    """Write the results of a method over seeds."""

    def each(kind: str, key: str) -> np.ndarray:
        return np.array([cell["scores"][part][kind][key] for cell in run])

    def share(kind: str, form: str) -> str:
        mean = each(kind, "coverage").mean()
        return "" if np.isnan(mean) else form.format(mean)

    steps = " to ".join(sorted({str(cell["steps"] or "") for cell in run}))
    shown = [title, str(len(run)), steps, f"{np.mean([cell['cpu_seconds'] for cell in run]):.0f}"]
    shown += [f"{each('all', 'rmse').mean():.0f}", mean_and_spread(each("all", "crps"), 1), share("all", "{:.3f}")]
    shown += [f"{each('all', 'energy').mean():.0f}"]
    return shown + [f"{each(kind, 'crps').mean():.1f}{share(kind, ' ({:.2f})')}" for kind in WHY.values()]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS)
    parser.add_argument("--stack", choices=STACKS, default="kinect")
    parser.add_argument("--steps", type=int, help="at most so many with pixels held out; 0.43 times as many may follow")
    parser.add_argument("--every", type=int, default=1, help="take one frame of so many")
    parser.set_defaults(device="auto")
    options = parser.parse_args(arguments)
    if not options.report:
        cells = [Cell("depth", options.stack, "held out", s, m) for s in range(options.seeds) for m in options.methods]
        run_all(cells, 1, lambda cell: result(options, cell))
    written("depth", table(options.stack, options.seeds, options.methods))


if __name__ == "__main__":
    main()
