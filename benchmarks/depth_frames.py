"""Stacks of depth maps, pixels held out of them, and in-painting to compare with. Needs opencv-python-headless."""

from pathlib import Path

import numpy as np
from scipy import ndimage

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
