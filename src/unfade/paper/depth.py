"""fig7-depth: missing pixels of raw depth maps imputed by the convolutional TAE, mean and standard deviation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unfade.checkpoints import Checkpoint
from unfade.errors import InvalidFile
from unfade.estimator import Recoverer
from unfade.frames import open_frames
from unfade.gallery import write_gallery
from unfade.paper.settings import SCHEDULES
from unfade.paper.study import Results, Say, Study
from unfade.training import TrainingConfig

# Supplement C: batches of 2, 500,000 steps, gamma from 0.01 to 1 between 50,000 and 200,000; or as many frames seen.
TRAINING = {
    2: TrainingConfig(steps=500_000, batch_size=2, learning_rate=2e-3, decay=0.0),
    20: TrainingConfig(steps=50_000, batch_size=20, learning_rate=2e-3),
}
GAMMA = {"gamma_start": 0.1, "gamma_end": 0.4}
WAYS: dict[str, dict[str, Any]] = {
    "TAE as printed": {"method": "tae-paper", "network": "conv", "scaling": "joint-interval", "settings": GAMMA},
    "unfade": {"method": "tae", "network": "conv-large"},
}


def fig7_depth(study: Study, results: Results, repeats: int, say: Say) -> str:
    """The paper's networks and ours on the same frames: pictures, and how sure they are of pixels far from any measured."""
    frames = _frames(study.data_dir)
    quick = study.schedule.train_rows is not None
    given = frames.read(range(0, len(frames), max(1, len(frames) // 40) if quick else 1))
    shown = given[np.linspace(0, len(given) - 1, 5).round().astype(int)]
    training = TRAINING[2 if study.schedule is SCHEDULES["paper"] else 20]
    for name, how in WAYS.items():
        if name in results:
            continue
        say(f"{name}: {len(given)} frames of {' x '.join(map(str, frames.shape))}")
        config = training if name == "TAE as printed" else replace(training, batch_size=8, learning_rate=1e-3, decay=0.5)
        steps = study.schedule.training.steps if quick else config.steps
        kept = Checkpoint(results.folder / f"{name.replace(' ', '-')}.kept", every=60, resume=True)
        rec = Recoverer(
            **how, training=config, max_steps=steps, random_state=0, device=study.device.type, verbose=0
        ).fit(given, checkpoint=kept)  # fmt: skip
        if rec.interrupted_:
            raise KeyboardInterrupt
        rec.save(results.folder / f"{name.replace(' ', '-')}.unfade")
        write_gallery(rec, shown, results.folder / f"{name.replace(' ', '-')}.png")
        results.put({name: _spread(rec.sample(shown, 20).std(), shown)})
        kept.clear()
    head = "| sd of missing pixels, mm | " + " | ".join(_BANDS) + " |\n|---" + "|---" * len(_BANDS) + "|"
    rows = [f"| {name} | " + " | ".join(f"{results[name][band]:.0f}" for band in _BANDS) + " |" for name in WAYS]
    text = "Raw Kinect frames of one room, not the paper's NYU dump. Distances to the nearest measured pixel, in pixels."
    return "\n".join(["# Imputed depth maps", "", head, *rows, "", text])


_BANDS = {"1 away": (0, 1.5), "2 to 4": (1.5, 4.5), "5 to 8": (4.5, 8.5), "further": (8.5, np.inf)}


def _spread(sd: np.ndarray, given: np.ndarray) -> dict[str, float]:
    """Mean sd of missing pixels, by how far the nearest measured one is."""
    from scipy.ndimage import distance_transform_edt

    far = np.stack([distance_transform_edt(np.isnan(frame)) for frame in given])
    bands = {name: (far > low) & (far <= high) & (far > 0) for name, (low, high) in _BANDS.items()}
    return {name: float(sd[where].mean()) if where.any() else float("nan") for name, where in bands.items()}


def _frames(folder: Path | None) -> Any:
    places = (
        [] if folder is None else [path for place in (folder, folder / "depth") for path in place.glob("*kinect*.np[yz]")]
    )
    if not places:
        raise InvalidFile(
            "Expected a stack of raw depth maps, kinect*.npz or .npy (frames, height, width), 0 = missing, in the folder "
            "that --data-dir names. The paper's frames are NYU's raw dump, which is too large to be fetched."
        )
    return open_frames(min(places))
