"""Depth maps with held-out pixels, against in-painting: `python benchmarks/depth.py --data-dir FOLDER`.

FOLDER holds stacks of depth maps in mm, 0 = missing: kinect1_7scenes_160x120_mm.npz, realsense_d435_desk_160x120_mm.npz;
and nyu_labeled_filled_160x120_u8.npz. Of the raw stacks, measured pixels are held out: under the holes of another frame, in
boxes, and along depth edges; into the NYU rooms holes of the raw frames are cut. NYU's truth is its toolbox's filling where
the sensor saw nothing, and comes in steps of 39 mm. The methods see what is left, the scorer alone sees what was held out.
Frames of one block in the middle of the video are not trained on (`unseen`). Prints, and keeps as JSON, scores in mm: RMSE
of the mean, CRPS, coverage of the central 90 % beside what is due, energy score over the root of the number of pixels.
Methods that give one image and no draws have their absolute error as CRPS, and no coverage. Needs opencv-python-headless.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage

from unfade import Recoverer, TrainingConfig
from unfade.methods.registry import IMAGE_TRAINING
from unfade.metrics import coverage_due, covered, crps, energy_score
from unfade.paper.depth_maps import TRAINING, WAYS

STACKS = {
    "kinect": "kinect1_7scenes_160x120_mm.npz",
    "realsense": "realsense_d435_desk_160x120_mm.npz",
    "nyu": "nyu_labeled_filled_160x120_u8.npz",
}
DRAWS = 20
HOLES, BOXES, EDGES = 1, 2, 3  # why a pixel was held out
WHY = {HOLES: "holes", BOXES: "boxes", EDGES: "edges"}


def stack(folder: Path, name: str) -> np.ndarray:
    """Depth in mm, NaN where the sensor saw nothing."""
    data = np.load(folder / STACKS[name])
    if name == "nyu":
        return (data["depth_u8"] + 0.5) * float(data["mm_per_unit"])
    depth = data["depth"].astype(float)
    return np.where(depth == 0, np.nan, depth)


def edges(frame: np.ndarray) -> np.ndarray:
    """Pixels within two of a jump by more than 100 mm."""
    jump = np.zeros(frame.shape, bool)
    for axis in (0, 1):
        step = np.abs(np.diff(frame, axis=axis)) > 100
        jump |= np.insert(step, 0, False, axis) | np.insert(step, step.shape[axis], False, axis)
    return ndimage.binary_dilation(jump, iterations=2)


def held_out(truth: np.ndarray, masks: np.ndarray, seed: int) -> np.ndarray:
    """Why each pixel was held out, 0 where it was not. masks: holes of real frames, True = missing."""
    rng = np.random.default_rng(seed)
    why = np.zeros(truth.shape, np.uint8)
    height, width = truth.shape[1:]
    for frame, mark in zip(truth, why, strict=True):
        hole = masks[rng.integers(len(masks))]
        mark[hole[:, ::-1] if rng.random() < 0.5 else hole] = HOLES
        for _ in range(2):
            top, left, high, wide = rng.integers((0, 0, 8, 8), (height, width, 41, 41))
            mark[top : top + high, left : left + wide] = BOXES
        side = slice(0, width // 2) if rng.random() < 0.5 else slice(width // 2, width)
        strips = np.roll(edges(frame), rng.integers(-2, 3, 2), (0, 1))  # its middle is not always the edge
        mark[:, side][strips[:, side] & (mark[:, side] == 0)] = EDGES
    why[np.isnan(truth)] = 0
    return why


def by_unfade(seen: np.ndarray, train: np.ndarray, count: int, options: argparse.Namespace, **how: Any) -> np.ndarray:
    """Draws by a recoverer, (draws, frames, height, width)."""
    training = TRAINING[20] if how.get("method") == "tae-paper" else IMAGE_TRAINING
    training = replace(training, steps=options.steps or training.steps)
    rec = Recoverer(random_state=options.seed, device=options.device, training=training, **how)
    rec.fit(seen[train].astype(np.float32))
    rec.save(options.folder / f"{options.stack}-{how.get('method', 'tae')}-{how['network']}-{options.seed}.unfade")
    options.taken = sum(max(history.steps, default=0) for history in rec.histories_)
    return rec.sample(seen[:count].astype(np.float32), DRAWS).values


def by_opencv(seen: np.ndarray, flag: int) -> np.ndarray:
    """One of OpenCV's in-paintings."""
    import cv2

    filled = [
        cv2.inpaint(np.nan_to_num(frame).astype(np.float32), np.isnan(frame).astype(np.uint8), 5, flag) for frame in seen
    ]
    return np.stack(filled)[None].astype(float)


def by_nearest(seen: np.ndarray) -> np.ndarray:
    """The nearest pixel that was measured."""
    out = []
    for frame in seen:
        place = ndimage.distance_transform_edt(np.isnan(frame), return_distances=False, return_indices=True)
        out.append(frame[tuple(place)])
    return np.stack(out)[None]


def by_pixel(seen: np.ndarray, train: np.ndarray, count: int) -> np.ndarray:
    """Draws with each pixel's mean and sd over the frames of training."""
    shown = seen[train]
    number = np.isfinite(shown).sum(0)
    mean = np.where(number > 1, np.nansum(shown, 0) / number.clip(1), np.nanmean(shown))
    sd = np.where(number > 1, np.sqrt(np.nansum((shown - mean) ** 2, 0) / number.clip(1)), np.nanstd(shown))
    return mean + sd * np.random.default_rng(0).normal(size=(DRAWS, count, *mean.shape))


def methods(options: argparse.Namespace) -> dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]]:
    """By name: from what is seen, which frames to train on, and how many are asked for, to draws."""
    return {
        "unfade, conv-large": lambda s, t, n: by_unfade(s, t, n, options, network="conv-large"),
        "unfade, conv": lambda s, t, n: by_unfade(s, t, n, options, network="conv"),
        "tae-paper, conv": lambda s, t, n: by_unfade(s, t, n, options, **WAYS["TAE as printed"]),
        "MIWAE, conv-large": lambda s, t, n: by_unfade(s, t, n, options, network="conv-large", method="miwae"),
        "Telea": lambda s, t, n: by_opencv(s[:n], 1),
        "Navier-Stokes": lambda s, t, n: by_opencv(s[:n], 0),
        "nearest pixel": lambda s, t, n: by_nearest(s[:n]),
        "mean of the pixel": by_pixel,
    }


def scores(draws: np.ndarray, truth: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """Scores on chosen pixels."""
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


def table(folder: Path, name: str) -> str:
    """What was run, as Markdown: means over seeds, and half their range beside the CRPS."""
    lines = [
        "| | seeds | steps | seconds | RMSE | CRPS | coverage | energy score | CRPS (coverage): holes | boxes | edges |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob(f"{name}-*.json")):
        said = json.loads(path.read_text())
        runs.setdefault(said["method"], []).append(said)
    for where in ("trained on", "unseen"):
        rows = []
        for method, every in runs.items():

            def each(kind: str, key: str, every: list[dict[str, Any]] = every, where: str = where) -> np.ndarray:
                return np.array([said["scores"][where][kind][key] for said in every])

            crps, cover = each("all", "crps"), each("all", "coverage").mean()
            steps = sorted({str(said["steps"] or "") for said in every})
            shown = [str(len(every)), " to ".join(steps), f"{np.mean([said['seconds'] for said in every]):.0f}"]
            spread = f" ± {np.ptp(crps) / 2:.1f}" if len(every) > 1 else ""
            shown += [f"{each('all', 'rmse').mean():.0f}", f"{crps.mean():.1f}{spread}"]
            shown += ["" if np.isnan(cover) else f"{cover:.3f}", f"{each('all', 'energy').mean():.0f}"]
            for kind in WHY.values():
                within = each(kind, "coverage").mean()
                shown.append(f"{each(kind, 'crps').mean():.1f}" + ("" if np.isnan(within) else f" ({within:.2f})"))
            rows.append((crps.mean(), f"| {method}, {where} | " + " | ".join(shown) + " |"))
        lines += [line for _, line in sorted(rows)]
    return "\n".join(lines)


def speed(device: str, height: int = 480, width: int = 608) -> None:
    """What a step of two frames of the paper's size takes, and how fast frames come back."""
    rng = np.random.default_rng(0)
    frames = np.where(rng.random((32, height, width)) < 0.2, np.nan, 2000 + 500 * rng.normal(size=(32, height, width)))
    frames = frames.astype(np.float32)
    for network, method in (("conv", "tae-paper"), ("conv-large", "tae")):
        ticks: list[tuple[int, float]] = []
        training = TrainingConfig(batch_size=2, learning_rate=1e-3)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rec = Recoverer(method, network=network, training=training, max_steps=400, device=device, random_state=0)
        rec.fit(frames, on_step=lambda told, ticks=ticks: ticks.append((told.step, time.monotonic())))
        (first, began), (last, ended) = ticks[0], ticks[-1]
        line = (
            f"{method}, {network}, 2 frames of {height} x {width}: {1e3 * (ended - began) / (last - first):.2f} ms a step"
        )
        if device == "cuda":
            line += f", {torch.cuda.max_memory_allocated() / 1e9:.2f} GB"
        rates = []
        for recover in (lambda rec=rec: rec.sample(frames, 8), lambda rec=rec: rec.transform(frames)):
            began = time.monotonic()
            recover()
            rates.append(len(frames) / (time.monotonic() - began))
        print(f"{line}; frames recovered a second: {rates[0]:.0f} with 8 draws, {rates[1]:.0f} means")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--stack", choices=STACKS, default="kinect")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--steps", type=int, help="at most so many with pixels held out; 0.43 times as many may follow")
    parser.add_argument("--every", type=int, default=1, help="take one frame of so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--folder", type=Path, default=Path("build/depth"))
    parser.add_argument("--report", action="store_true", help="print what was run as a table")
    parser.add_argument("--speed", action="store_true", help="time steps and recovery of frames of 480 x 608 instead")
    options = parser.parse_args()
    if options.speed:
        return speed("cuda" if torch.cuda.is_available() else "cpu")
    if options.report:
        return print(table(options.folder, options.stack))

    truth = stack(options.data_dir, options.stack)[:: options.every]
    raw = stack(options.data_dir, "kinect" if options.stack == "nyu" else options.stack)
    why = held_out(truth, np.isnan(raw), options.seed)
    seen = np.where(why > 0, np.nan, truth)
    count = len(truth)
    unseen = np.zeros(count, bool)
    unseen[int(0.6 * count) : int(0.75 * count)] = True
    near = np.zeros(count, bool)  # frames next to the block look like it: nobody trains on them
    near[int(0.56 * count) : int(0.79 * count)] = True
    shown = np.sort(np.random.default_rng(1).permutation(np.nonzero(~near)[0])[:100])
    tried = np.concatenate([shown, np.nonzero(unseen)[0][:: max(1, unseen.sum() // 100)]])
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, method in methods(options).items():
        if options.methods and name not in options.methods:
            continue
        started, options.taken = time.monotonic(), None
        order = np.concatenate([tried, np.setdiff1d(np.nonzero(~near)[0], tried)])
        draws = method(seen[order], np.nonzero(~near[order])[0], len(tried))
        result = {
            where: {
                what: scores(draws[:, rows], truth[tried][rows], kind(why[tried][rows]))
                for what, kind in {
                    "all": lambda w: w > 0, **{label: lambda w, code=code: w == code for code, label in WHY.items()}
                }.items()
            }
            for where, rows in {"trained on": ~unseen[tried], "unseen": unseen[tried]}.items()
        }  # fmt: skip
        said = {"method": name, "steps": options.taken, "frames": count, "seconds": time.monotonic() - started}
        said |= {"stack": options.stack, "seed": options.seed, "scores": result}
        (options.folder / f"{options.stack}-{name.replace(', ', '-').replace(' ', '-')}-{options.seed}.json").write_text(
            json.dumps(said)
        )
        for where, kinds in result.items():
            for what, s in kinds.items():
                print(
                    f"{options.stack} {name:20s} {where:10s} {what:6s} RMSE {s['rmse']:6.1f} CRPS {s['crps']:6.1f} "
                    f"coverage {s['coverage']:.3f} of {s['due']:.3f} energy {s['energy']:6.1f} ({said['seconds']:.0f} s)"
                )


if __name__ == "__main__":
    main()
