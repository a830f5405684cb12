"""Fill holes of images from what is around them: the simple methods that a model of images must be better than."""

from collections.abc import Callable

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.ndimage import binary_dilation, distance_transform_edt
from scipy.spatial import QhullError

_RIM = 2  # measured pixels so near to a hole say how it is filled linearly


def nearest_pixel(images: np.ndarray) -> np.ndarray:
    """Fill each hole with the nearest measured pixel. images: (samples, height, width[, channels]), NaN = missing."""
    return _by_channel(images, _nearest)


def linear_interpolation(images: np.ndarray) -> np.ndarray:
    """Fill holes linearly between the measured pixels around them, beyond these with the nearest one; shapes as above."""
    return _by_channel(images, _linear)


def _by_channel(images: np.ndarray, fill: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    filled = np.array(images, dtype=float)
    for image in filled:
        for channel in np.ndindex(*images.shape[3:]):
            plane = image[(..., *channel)]
            if np.isnan(plane).any() and not np.isnan(plane).all():
                plane[:] = fill(plane)
    return filled


def _nearest(plane: np.ndarray) -> np.ndarray:
    place = distance_transform_edt(np.isnan(plane), return_distances=False, return_indices=True)
    return plane[tuple(place)]


def _linear(plane: np.ndarray) -> np.ndarray:
    hole, filled = np.isnan(plane), _nearest(plane)
    rim = np.argwhere(binary_dilation(hole, iterations=_RIM) & ~hole)
    try:
        between = LinearNDInterpolator(rim, plane[tuple(rim.T)])(np.argwhere(hole))
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        return filled
    filled[hole] = np.where(np.isnan(between), filled[hole], between)
    return filled
