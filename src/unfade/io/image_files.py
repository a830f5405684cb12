"""One image and its file, read and written without loss (PNG, TIFF, NPY), and its missing pixels."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unfade.errors import InvalidData, InvalidFile

ENDINGS = (".png", ".tif", ".tiff", ".npy")
PIXELS = 2**27  # of a frame, at most
KEPT = ("1", "L", "LA", "RGB", "RGBA", "I", "F")  # modes of Pillow whose arrays hold the whole image; and I;16
_BITS = 258  # the TIFF tag BitsPerSample


def read_frame(path: Path) -> np.ndarray:
    """Read one image; refuse a file that could not be written back without loss.

    Parameters
    ----------
    path : Path

    Returns
    -------
    ndarray, (height, width) or (height, width, channels)
    """
    try:
        frame = np.load(path, allow_pickle=False) if path.suffix.lower() == ".npy" else _decoded(path)
    except InvalidFile:
        raise
    except Exception as error:  # libraries say in many ways that bytes are not what they should be
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {path.suffix} image.") from None
    if frame.ndim not in (1, 2, 3) or frame.size == 0 or frame.dtype.kind not in "uif":
        raise InvalidFile(f"{path} is {described(frame)}. Expected numbers by height and width, or by channels too.")
    return frame


def _decoded(path: Path) -> np.ndarray:
    """Decode an image by Pillow, or raise InvalidFile if the array would not hold all of it."""
    from PIL import Image

    with Image.open(path) as image:
        if image.size[0] * image.size[1] > PIXELS:
            raise InvalidFile(f"{path} has {image.size[0]} x {image.size[1]} pixels, at most {PIXELS} are read: split it.")
        if lost := _lost(path, image):
            raise InvalidFile(f"{path} {lost}")
        frame = np.asarray(image)
        if frame.dtype == np.int32 and image.format == "PNG":  # which has 16 bits at most
            frame = frame.astype(np.uint16)
        bits = _bits(path, image)
    if bits != 8 * frame.dtype.itemsize:
        raise InvalidFile(
            f"{path} has {bits} bits per channel, of which {8 * frame.dtype.itemsize} would be kept. Save it as .npy, "
            "which holds any number of bits, or as grey images of 8 or 16 bits, one folder per channel."
        )
    return frame


def _lost(path: Path, image: Any) -> str:
    """Describe what the array of an image would lose, and what to do; empty if it loses nothing."""
    if (pages := getattr(image, "n_frames", 1)) > 1:
        return f"has {pages} pages, of which one would be read. Save each as a file of its own, or all as one .npy stack."
    if image.mode == "P":
        return "has a palette, whose numbers are not brightness. Convert it to RGB or grey."
    if image.mode not in KEPT and not image.mode.startswith("I;16"):
        return f"has the colour mode {image.mode}. Expected grey or RGB, with or without alpha: convert it."
    if "transparency" in image.info:
        return "has one colour that stands for transparent pixels. Convert it to RGBA or LA, which have an alpha channel."
    return ""


def _bits(path: Path, image: Any) -> int:
    """Read the number of bits of each channel in the file."""
    if image.format == "PNG":
        with path.open("rb") as file:
            return int(struct.unpack(">B", file.read(25)[24:])[0])  # of the header, the first part of every PNG
    found = getattr(image, "tag_v2", {}).get(_BITS, 1)
    return int(max(found) if isinstance(found, tuple) else found)


def write_frame(frame: np.ndarray, path: Path) -> None:
    """Write one image in the format of the file name's ending.

    Parameters
    ----------
    frame : ndarray, (height, width) or (height, width, channels)
    path : Path
    """
    from PIL import Image

    if path.suffix.lower() == ".npy":
        np.save(path, frame, allow_pickle=False)
    else:
        Image.fromarray(frame).save(path)


def described(frame: np.ndarray) -> str:
    """Describe the shape and type of an image."""
    return f"{' x '.join(map(str, frame.shape)) or 'a single number'} of {frame.dtype}"


def as_type(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Convert numbers to a type: rounded and clipped if it holds integers."""
    if not np.issubdtype(dtype, np.integer):
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.nan_to_num(values).round().clip(limits.min, limits.max).astype(dtype)


@dataclass(frozen=True)
class Unmeasured:
    """The rule by which pixels of images (..., height, width[, channels]) are missing.

    Parameters
    ----------
    value : float or None
        Value of all channels of a missing pixel; NaN: each channel is missing by itself where it is NaN; None: no value.
    channels : int
        Channels of a pixel, 0 for images without that axis.
    alpha : bool
        Whether the last channel is alpha: it is no part of the picture, and a pixel is missing where it is 0.
    """

    value: float | None
    channels: int = 0
    alpha: bool = False

    @classmethod
    def of(cls, frame: np.ndarray, stated: float | str | None, alpha: bool = False) -> "Unmeasured":
        """Choose the rule for images like this one.

        Parameters
        ----------
        frame : ndarray, (height, width[, channels])
        stated : float, str or None
            The value that the user gives; "none": no value means missing; None: not given.
        alpha : bool
            Whether the last channel is alpha.

        Returns
        -------
        Unmeasured
        """
        channels, integers = frame.shape[2] if frame.ndim == 3 else 0, np.issubdtype(frame.dtype, np.integer)
        if stated is None:
            return cls(None if alpha else 0.0 if integers else np.nan, channels, alpha)
        try:
            value = None if str(stated).strip().lower() == "none" else float(stated)
        except ValueError:
            raise InvalidData(f"The value of missing pixels must be a number, nan or none, got {stated!r}.") from None
        if integers and value is not None and np.isnan(value):
            raise InvalidData("Integers cannot be NaN: give the number that missing pixels have, or none.")
        return cls(value, channels, alpha)

    def colours(self, frames: np.ndarray) -> np.ndarray:
        """Drop the alpha channel.

        Parameters
        ----------
        frames : ndarray, (..., height, width[, channels])

        Returns
        -------
        ndarray, (..., height, width[, colours])
        """
        return frames[..., :-1] if self.alpha else frames

    def holes(self, frames: np.ndarray) -> np.ndarray:
        """Find missing entries.

        Parameters
        ----------
        frames : ndarray, (..., height, width[, channels])

        Returns
        -------
        bool ndarray, of the shape of `colours`
        """
        colours = self.colours(frames)
        gone = np.isnan(colours) if colours.dtype.kind == "f" else np.zeros(colours.shape, dtype=bool)
        if self.value is not None and not np.isnan(self.value):
            same = colours == self.value
            gone |= same.all(-1, keepdims=True) if self.channels else same
        return gone | (frames[..., -1:] == 0) if self.alpha else gone

    def entered(self, frames: np.ndarray) -> np.ndarray:
        """Convert images to floats, NaN where pixels are missing.

        Parameters
        ----------
        frames : ndarray, (..., height, width[, channels])

        Returns
        -------
        ndarray, of the shape of `colours`
        """
        return np.where(self.holes(frames), np.nan, self.colours(frames).astype(_float(frames.dtype), copy=False))

    def left(self, values: np.ndarray, given: np.ndarray, exact: bool = False) -> np.ndarray:
        """Convert recovered values to images in the type of the given ones.

        A value never equals that of a missing pixel: if it would, the last channel is changed by one. Filled pixels are
        opaque.

        Parameters
        ----------
        values : ndarray, of the shape of `colours`
        given : ndarray, (..., height, width[, channels])
        exact : bool
            Keep observed pixels as given, bit for bit.

        Returns
        -------
        ndarray, of the shape of `given`
        """
        holes, colours = self.holes(given), self.colours(given)
        made = as_type(values, given.dtype)
        if self.value is not None and np.issubdtype(given.dtype, np.integer):
            same = made == self.value
            clash = same.all(-1) if self.channels else same
            last, finite = made[..., -1] if self.channels else made, np.isfinite(values)
            other = self.value + (1 if self.value < np.iinfo(given.dtype).max else -1)
            last[clash & (finite.all(-1) if self.channels else finite)] = other
        if exact:
            made = np.where(holes, made, colours)
        return self._with_alpha(made, np.where(given[..., -1:] == 0, _full(given.dtype), given[..., -1:]))

    def spread(self, values: np.ndarray, given: np.ndarray) -> np.ndarray:
        """Convert standard deviations to images in the type of the given ones, opaque.

        Parameters
        ----------
        values : ndarray, of the shape of `colours`
        given : ndarray, (..., height, width[, channels])

        Returns
        -------
        ndarray, of the shape of `given`
        """
        return self._with_alpha(as_type(values, given.dtype), np.full_like(given[..., -1:], _full(given.dtype)))

    def _with_alpha(self, made: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """Append an alpha channel, if the images have one."""
        return np.concatenate([made, alpha.astype(made.dtype)], -1) if self.alpha else made

    def count(self, given: np.ndarray) -> int:
        """Count pixels with a missing channel.

        Parameters
        ----------
        given : ndarray, (..., height, width[, channels])

        Returns
        -------
        int
        """
        holes = self.holes(given)
        return int((holes.any(-1) if self.channels else holes).sum())

    def __str__(self) -> str:
        if self.value is not None and np.isnan(self.value):
            where = "those that are NaN"
        elif self.value is None:
            where = "" if self.alpha else "no value means missing"
        else:
            each = f"all {self.channels - self.alpha} channels are" if self.channels - self.alpha > 1 else "the value is"
            where = f"those where {each} {self.value:g}"
        return " or ".join(filter(None, [where, "those where alpha is 0" if self.alpha else ""]))


def _float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Choose the float type that holds the values of a type."""
    return np.promote_types(dtype, np.float32)


def _full(dtype: np.dtype[Any]) -> float:
    """Return alpha of an opaque pixel."""
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1.0
