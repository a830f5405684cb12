"""Folders of images as data: PNG, TIFF or NPY, one file a sample; the same kind of file, order and names out."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unfade.errors import InvalidData, InvalidFile
from unfade.storage import check_free

ENDINGS = (".png", ".tif", ".tiff", ".npy")
PIXELS = 2**27  # of a frame, at most


@dataclass(frozen=True)
class Frames:
    """The images of a folder, in the order of their names, all of one size and type.

    missing: the value of pixels that were not measured.
    """

    files: tuple[Path, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    missing: float

    @classmethod
    def open(cls, folder: str | os.PathLike[str], missing: float | None = None) -> "Frames":
        """Look at a folder. missing: 0 for images of whole numbers and NaN for others, where not given."""
        files = tuple(sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in ENDINGS))
        if not files:
            raise InvalidFile(f"Expected images ({', '.join(ENDINGS)}) in the folder {folder}, found none. Check the path.")
        first = read_frame(files[0])
        whole = np.issubdtype(first.dtype, np.integer)
        if missing is None:
            missing = 0.0 if whole else np.nan
        if whole and np.isnan(missing):
            raise InvalidData(f"{files[0]} holds whole numbers, which cannot be NaN: give the value of missing pixels.")
        return cls(files, first.shape, first.dtype, missing)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, which: Any) -> np.ndarray:
        """Some of them, (frames, *shape), with NaN where pixels are missing."""
        stack = np.empty((len(which), *self.shape), np.promote_types(self.dtype, np.float32))
        for target, number in zip(stack, which, strict=True):
            frame = read_frame(self.files[number])
            if frame.shape != self.shape or frame.dtype != self.dtype:
                raise InvalidFile(
                    f"{self.files[number]} is {_said(frame)}, {self.files[0].name} is {_said(read_frame(self.files[0]))}. "
                    "Expected images of one size and type: put others into a folder of their own."
                )
            target[:] = np.where(frame == self.missing, np.nan, frame)
        return stack

    def write(self, stack: np.ndarray, which: Any, folder: Path) -> None:
        """Write some of them under their own names, rounded and clipped to their own type."""
        for frame, number in zip(stack, which, strict=True):
            write_frame(as_type(frame, self.dtype), folder / self.files[number].name)


def recover_frames(
    rec: Any,
    frames: Frames,
    output: Path,
    std_to: Path | None = None,
    draws_to: Path | None = None,
    draws: int = 8,
    seed: int = 0,
    at_once: int = 16,
) -> None:
    """Write the posterior mean of every frame into a folder, and their standard deviation and draws into others.

    `at_once` frames are in memory together. Folders have their names when all is there, not before.
    """
    folders = [folder for folder in (output, std_to, draws_to) if folder is not None]
    with _whole_folders(folders) as drafts:
        for start in range(0, len(frames), at_once):
            which = range(start, min(start + at_once, len(frames)))
            given = frames.read(which)
            frames.write(rec.transform(given), which, drafts[output])
            if std_to is None and draws_to is None:
                continue
            drawn = rec.sample(given, draws, seed=seed, row_ids=list(which))
            if std_to is not None:
                frames.write(drawn.std(), which, drafts[std_to])
            for number, draw in enumerate(drawn if draws_to is not None else ()):
                assert draws_to is not None
                place = drafts[draws_to] / f"draw-{number:03d}"
                place.mkdir(exist_ok=True)
                frames.write(draw, which, place)


def fit_frames(rec: Any, frames: Frames, most: int, checkpoint: Any = None) -> Any:
    """Fit on the frames, or on `most` of them, evenly spaced."""
    some = np.unique(np.linspace(0, len(frames) - 1, min(most, len(frames))).round().astype(int))
    return rec.fit(frames.read(some.tolist()), checkpoint=checkpoint)


def read_frame(path: Path) -> np.ndarray:
    """One image, (height, width) or (height, width, channels)."""
    from PIL import Image

    try:
        if path.suffix.lower() == ".npy":
            frame = np.load(path, allow_pickle=False)
        else:
            with Image.open(path) as image:
                if image.size[0] * image.size[1] > PIXELS:
                    raise InvalidFile(f"{path} has {image.size[0]} x {image.size[1]} pixels, at most {PIXELS} are read.")
                frame = np.asarray(image.convert("RGB") if image.mode == "P" else image)
    except InvalidFile:
        raise
    except Exception as error:  # libraries say in many ways that bytes are not what they should be
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {path.suffix} image.") from None
    if frame.dtype == np.int32:  # how some readers give 16 bits
        frame = frame.astype(np.uint16)
    if frame.ndim not in (1, 2, 3) or frame.size == 0 or frame.dtype.kind not in "uif":
        raise InvalidFile(f"{path} is {_said(frame)}. Expected numbers by height and width, or by channels too.")
    return frame


def write_frame(frame: np.ndarray, path: Path) -> None:
    """One image, by the ending of its name."""
    from PIL import Image

    if path.suffix.lower() == ".npy":
        np.save(path, frame, allow_pickle=False)
    else:
        Image.fromarray(frame).save(path)


def as_type(frame: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers in a type: rounded and clipped where it holds whole ones."""
    if not np.issubdtype(dtype, np.integer):
        return frame.astype(dtype)
    limits = np.iinfo(dtype)
    return np.nan_to_num(frame).round().clip(limits.min, limits.max).astype(dtype)


def _said(frame: np.ndarray) -> str:
    return f"{' x '.join(map(str, frame.shape)) or 'a single number'} of {frame.dtype}"


@contextmanager
def _whole_folders(folders: list[Path]) -> Iterator[dict[Path, Path]]:
    """For each folder one to write to, which takes its name when all is done; nothing is left of them otherwise."""
    drafts = {}
    try:
        for folder in folders:
            check_free(folder)
            drafts[folder] = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        yield drafts
        for folder, draft in drafts.items():
            draft.chmod(0o755)
            draft.rename(folder)
    except OSError as error:
        raise InvalidFile(
            f"Cannot write {folders[0]}: {error.strerror or error}. Nothing was left under that name."
        ) from None
    finally:
        for draft in drafts.values():
            shutil.rmtree(draft, ignore_errors=True)
