"""fig7-depth: missing pixels of raw depth maps imputed by the convolutional TAE, mean and standard deviation."""

from pathlib import Path
from typing import Any

import numpy as np

from unfade.diagnostics.images import write_gallery
from unfade.errors import InvalidFile
from unfade.estimator import Recoverer
from unfade.io.images import open_frames
from unfade.paper.settings import SCHEDULES
from unfade.paper.study import Results, Say, Study
from unfade.training.checkpoints import Checkpoint
from unfade.training.loop import TrainingConfig

# Supplement C: batches of 2, 500,000 steps, gamma from 0.01 to 1 between 50,000 and 200,000; or as many frames seen.
TRAINING = {
    2: TrainingConfig(steps=500_000, batch_size=2, learning_rate=2e-3, decay=0.0),
    20: TrainingConfig(steps=50_000, batch_size=20, learning_rate=2e-3),
}
GAMMA = {"gamma_start": 0.1, "gamma_end": 0.4}
PRINTED: dict[str, Any] = {"method": "tae-paper", "network": "conv", "scaling": "joint-interval"}
WAYS: dict[str, dict[str, Any]] = {
    "TAE as printed": {**PRINTED, "settings": GAMMA},
    "TAE as printed, not pinned": {**PRINTED, "settings": {**GAMMA, "pinned": False}},  # as the paper trains
    "unfade": {"method": "masked", "network": "conv-large"},
}


def fig7_depth(study: Study, results: Results, repeats: int, say: Say) -> str:
    """Recover frames by the paper's networks and ours: pictures, and sd of pixels by distance from a measured one."""
    lines = ["| sd of missing pixels, mm | " + " | ".join(_BANDS) + " |", "|---" * (len(_BANDS) + 1) + "|"]
    for path in _stacks(study.data_dir):
        for name in WAYS:
            kind = f"{path.stem}, {name}"
            if kind not in results:
                _impute(study, results, open_frames(path), name, kind, say)
            lines.append(f"| {kind} | " + " | ".join(f"{results[kind][band]:.0f}" for band in _BANDS) + " |")
    text = "Raw frames of one room per stack, not the paper's NYU dump. Distances to the nearest observed pixel."
    return "\n".join(["# Imputed depth maps", "", *lines, "", text])


def _impute(study: Study, results: Results, frames: Any, name: str, kind: str, say: Say) -> None:
    """Train one way on one stack; save the model, a picture and the sd of its draws."""
    quick = study.schedule.train_rows is not None
    given = frames.read(range(0, len(frames), max(1, len(frames) // 40) if quick else 1))
    shown = given[np.linspace(0, len(given) - 1, 5).round().astype(int)]
    say(f"{kind}: {len(given)} frames of {' x '.join(map(str, frames.shape))}")
    training = TRAINING[2 if study.schedule is SCHEDULES["paper"] else 20] if WAYS[name]["method"] == "tae-paper" else None
    stem = kind.replace(", ", "-").replace(" ", "-")
    kept = Checkpoint(results.folder / f"{stem}.kept", every=60, resume=True)
    steps = study.schedule.training.steps if quick else None
    how = {**WAYS[name], "training": training, "max_steps": steps, "device": study.device.type}
    rec = Recoverer(**how, random_state=0, verbose=0).fit(given, checkpoint=kept)
    if rec.interrupted_:
        raise KeyboardInterrupt
    rec.save(results.folder / f"{stem}.unfade")
    write_gallery(rec, shown, results.folder / f"{stem}.png")
    results.put({kind: _spread(rec.sample(shown, 20).std(), shown)})
    kept.clear()


_BANDS = {"1 away": (0, 1.5), "2 to 4": (1.5, 4.5), "5 to 8": (4.5, 8.5), "further": (8.5, np.inf)}


def _spread(sd: np.ndarray, given: np.ndarray) -> dict[str, float]:
    """Compute the mean sd of missing pixels, by distance to the nearest measured one."""
    from scipy.ndimage import distance_transform_edt

    far = np.stack([distance_transform_edt(np.isnan(frame)) for frame in given])
    bands = {name: (far > low) & (far <= high) & (far > 0) for name, (low, high) in _BANDS.items()}
    return {name: float(sd[where].mean()) if where.any() else float("nan") for name, where in bands.items()}


def _stacks(folder: Path | None) -> list[Path]:
    """Find raw depth maps of each sensor."""
    places = [] if folder is None else [folder, folder / "depth"]
    found = [path for place in places for sensor in ("kinect", "realsense") for path in place.glob(f"{sensor}*.np[yz]")]
    if not found:
        raise InvalidFile(
            "Expected stacks of raw depth maps, kinect*.npz or realsense*.npz (or .npy), 0 = missing, in "
            "the folder that --data-dir names. The paper's frames are NYU's raw dump, which is too large to be fetched."
        )
    return sorted(found)
