"""Images as data: folders of PNG, TIFF or NPY files, and stacks in one .npy, .npz or .zarr; results of the same kind."""

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unfade.errors import InvalidData, InvalidFile
from unfade.io.guise import Layout
from unfade.io.image_files import ENDINGS, Unmeasured, described, read_frame, write_frame
from unfade.io.tables import read_table
from unfade.storage import DRAFT, check_free, check_writable, followed

STACKS = (".npy", ".npz", ".zarr")


class Frames(ABC):
    """Images of one size and type, read one by one.

    Parameters
    ----------
    path : Path
    first : ndarray, (height, width[, channels])
        The first image.
    rule : Unmeasured
        Which pixels are missing.
    """

    def __init__(self, path: Path, first: np.ndarray, rule: Unmeasured):
        self.path, self.shape, self.dtype, self.rule = path, first.shape, first.dtype, rule
        self.event = rule.colours(first).shape

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of images."""

    @abstractmethod
    def frame(self, number: int) -> np.ndarray:
        """Read one image.

        Parameters
        ----------
        number : int

        Returns
        -------
        ndarray, (height, width[, channels])
        """

    @abstractmethod
    def sink(self, draft: Path, draws: int | None) -> "Sink":
        """Open a place for results of the same kind.

        Parameters
        ----------
        draft : Path
            Its temporary name.
        draws : int or None
            Draws per image; None: one result per image.

        Returns
        -------
        Sink
        """

    @abstractmethod
    def check_output(self, path: Path) -> None:
        """Refuse a name that results of this kind cannot have, or that exists.

        Parameters
        ----------
        path : Path
        """

    def raw(self, which: Any) -> np.ndarray:
        """Read some images.

        Parameters
        ----------
        which : sequence of int

        Returns
        -------
        ndarray, (images, height, width[, channels])
        """
        stack = np.empty((len(which), *self.shape), self.dtype)
        for target, number in zip(stack, which, strict=True):
            target[:] = self.frame(number)
        return stack

    def read(self, which: Any) -> np.ndarray:
        """Read some images as floats, NaN where pixels are missing.

        Parameters
        ----------
        which : sequence of int

        Returns
        -------
        ndarray, (images, height, width[, colours])
        """
        return self.rule.entered(self.raw(which))

    @property
    def pixels(self) -> int:
        """Number of pixels of all images."""
        return len(self) * int(np.prod(self.shape[:2]))


class Sink(ABC):
    """A place that results are written to, image by image."""

    @abstractmethod
    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        """Write results of some images, or one draw of them, in the images' type.

        Parameters
        ----------
        values : ndarray, (images, height, width[, channels])
        which : range
            Numbers of the images.
        draw : int or None
            Number of the draw.
        """

    def finish(self) -> None:
        """Finish the file, after the last result."""
        return None


class FolderOfFrames(Frames):
    """The images of a folder, in the order of their names.

    Parameters
    ----------
    folder : Path
    missing : float, str or None
        Value of missing pixels, as in `open_frames`.
    """

    def __init__(self, folder: Path, missing: float | str | None = None):
        self.files = tuple(sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS))
        if not self.files:
            raise InvalidFile(f"Expected images ({', '.join(ENDINGS)}) in the folder {folder}, found none. Check the path.")
        first = read_frame(self.files[0])
        alpha = self.files[0].suffix.lower() != ".npy" and first.ndim == 3 and first.shape[2] in (2, 4)
        super().__init__(self.files[0], first, Unmeasured.of(first, missing, alpha))

    def __len__(self) -> int:
        return len(self.files)

    def frame(self, number: int) -> np.ndarray:
        """Read one image; refuse one of another size or type than the first."""
        frame = read_frame(self.files[number])
        if frame.shape != self.shape or frame.dtype != self.dtype:
            raise InvalidFile(
                f"{self.files[number]} is {described(frame)}, {self.files[0].name} is "
                f"{described(read_frame(self.files[0]))}. "
                "Expected images of one size and type: put others into a folder of their own."
            )
        return frame

    def sink(self, draft: Path, draws: int | None) -> Sink:
        """Open a folder of files with the same names; for draws, one such folder per draw."""
        return _Folder(draft, self)

    def check_output(self, path: Path) -> None:
        """Refuse a name that a folder of images cannot have, or that exists."""
        if path.suffix in STACKS:
            raise InvalidFile(f"{self.path.parent} is a folder of images: give a folder to write to, not {path.name!r}.")
        check_free(path)


class _Folder(Sink):
    """A folder that images are written to."""

    def __init__(self, draft: Path, frames: FolderOfFrames):
        self.draft, self.frames = draft, frames
        draft.mkdir()

    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        """Write results of some images, each under the name of its image."""
        place = self.draft if draw is None else self.draft / f"draw-{draw:03d}"
        place.mkdir(exist_ok=True)
        for frame, number in zip(values, which, strict=True):
            write_frame(frame, place / self.frames.files[number].name)


class Stack(Frames):
    """The images of one array, (images, height, width) or (images, height, width, channels).

    Parameters
    ----------
    path : Path
    missing : float, str or None
        Value of missing pixels, as in `open_frames`.
    """

    def __init__(self, path: Path, missing: float | str | None = None):
        try:
            self.array = _opened(path)
        except InvalidFile:
            raise
        except Exception as error:  # libraries say in many ways that bytes are not what they should be
            raise InvalidFile(f"Cannot read {path}: {error}. Expected a valid {path.suffix} file.") from None
        if self.array.ndim not in (3, 4) or 0 in self.array.shape or self.array.dtype.kind not in "uif":
            said = f"{' x '.join(map(str, self.array.shape)) or 'a single number'} of {self.array.dtype}"
            raise InvalidFile(f"{path} holds {said}. Expected numbers by frame, height and width, or by channels too.")
        first = np.asarray(self.array[0])
        super().__init__(path, first, Unmeasured.of(first, missing))

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def frame(self, number: int) -> np.ndarray:
        """Read one image."""
        return np.asarray(self.array[number])

    def sink(self, draft: Path, draws: int | None) -> Sink:
        """Open one array of the same type; the axis of draws comes first."""
        return _Array(draft, (*([] if draws is None else [draws]), len(self)), self.shape, self.dtype)

    def check_output(self, path: Path) -> None:
        """Refuse a name that a stack cannot have, or that exists."""
        if path.suffix not in STACKS:
            raise InvalidFile(f"{self.path} is a stack: write it to one of {', '.join(STACKS)}, not to {path.name!r}.")
        (check_free if path.suffix == ".zarr" else check_writable)(path)


class _Array(Sink):
    """An array on disk that images are written to."""

    def __init__(self, draft: Path, lead: tuple[int, ...], frame: tuple[int, ...], dtype: np.dtype[Any]):
        self.draft = draft
        self.array: Any
        if draft.suffix == ".zarr":
            chunks = (*[1] * len(lead), *frame)
            self.array = _zarr().open_array(str(draft), mode="w", shape=(*lead, *frame), chunks=chunks, dtype=dtype)
        else:
            self.array = np.lib.format.open_memmap(draft, "w+", dtype, (*lead, *frame))

    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        """Write results of some images."""
        place = slice(which.start, which.stop)
        self.array[place if draw is None else (draw, place)] = values

    def finish(self) -> None:
        """Flush the array to disk, and compress it for .npz."""
        if self.draft.suffix == ".zarr":
            return
        self.array.flush()
        if self.draft.suffix == ".npz":
            packed = self.draft.with_suffix(".packed")
            with packed.open("wb") as file:
                np.savez_compressed(file, data=self.array)
            packed.replace(self.draft)


def open_frames(path: str | os.PathLike[str], missing: float | str | None = None) -> Frames:
    """Open the images of a folder or of a stack.

    Parameters
    ----------
    path : path
    missing : float, str or None
        Value of missing pixels, in all of their channels; "none": no value. None: 0 for images of integers, NaN for others,
        and for images with an alpha channel the pixels where alpha is 0.

    Returns
    -------
    Frames
    """
    path = Path(path)
    return Stack(path, missing) if path.suffix in STACKS else FolderOfFrames(path, missing)


def are_frames(path: Path) -> bool:
    """Check whether a path is a folder of images or a stack of them.

    Parameters
    ----------
    path : Path

    Returns
    -------
    bool
    """
    if path.suffix == ".zarr" or not path.is_file():
        return path.is_dir() and not any(path.glob("*.parquet"))
    if path.suffix.lower() in set(ENDINGS) - {".npy"}:
        raise InvalidFile(f"{path} is one image. Give the folder that holds images of its size: {path.parent}.")
    try:
        return path.suffix in STACKS and _opened(path).ndim in (3, 4)
    except Exception:  # whatever is wrong with it, who reads it says
        return False


def read_data(path: Path, missing: Any = None, layout: Layout | None = None) -> tuple[Any, Unmeasured | None]:
    """Read a table, an array, or images with NaN where pixels are missing.

    Parameters
    ----------
    path : Path
    missing, layout : as in `open_frames`, for images; as in `read_table`, for tables

    Returns
    -------
    data : pyarrow Table or ndarray
    rule : Unmeasured or None
        Which pixels of images are missing.
    """
    if not are_frames(path):
        if missing is not None:
            raise InvalidData(f"A value of missing pixels is for images, {path} holds none. Leave it out.")
        return read_table(path, layout), None
    frames = open_frames(path, missing)
    return frames.read(range(len(frames))), frames.rule


def _opened(path: Path) -> Any:
    """Open the array of a stack; .npy and .zarr are not read into memory."""
    if path.suffix == ".zarr":
        return _zarr().open_array(str(path), mode="r")
    loaded = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
    if path.suffix == ".npy":
        return loaded
    with loaded:
        large = [name for name in loaded.files if loaded[name].ndim > 2] if len(loaded.files) > 1 else loaded.files
        if len(large) != 1:
            raise ValueError(f"it holds the arrays {', '.join(loaded.files)}, one of three axes or more is expected")
        return loaded[large[0]]


def _zarr() -> Any:
    """Import zarr, or raise an InvalidFile that explains how to install it."""
    try:
        import zarr
    except ModuleNotFoundError:
        raise InvalidFile("Stacks in .zarr need the package zarr: pip install 'unfade[zarr]'.") from None
    return zarr


def evenly(count: int, most: int) -> list[int]:
    """Choose at most `most` of `count` numbers, evenly spaced.

    Parameters
    ----------
    count, most : int

    Returns
    -------
    list of int
    """
    return np.unique(np.linspace(0, count - 1, min(max(1, most), count)).round().astype(int)).tolist()


@contextmanager
def whole_sinks(wanted: dict[Path, int | None], frames: Frames) -> Iterator[dict[Path, Sink]]:
    """Open a sink for each path; the results take their names when all is written, and are removed otherwise.

    Parameters
    ----------
    wanted : dict
        Draws per image by path; None: one result per image.
    frames : Frames

    Returns
    -------
    context manager that gives the sinks by path
    """
    drafts: dict[Path, Path] = {}
    named: list[Path] = []
    try:
        for path in wanted:
            frames.check_output(path)
            drafts[path] = Path(tempfile.mkdtemp(dir=followed(path).parent, prefix=DRAFT)) / path.name
        sinks = {path: frames.sink(draft, wanted[path]) for path, draft in drafts.items()}
        yield sinks
        for sink in sinks.values():
            sink.finish()
        for path, draft in drafts.items():
            draft.replace(followed(path))
            named.append(path)
    except OSError as error:
        for path in named:
            followed(path).replace(drafts[path])
        paths = ", ".join(map(str, wanted))
        raise InvalidFile(
            f"Cannot write {paths}: {error.strerror or error}. Nothing was written under these names."
        ) from None
    finally:
        for draft in drafts.values():
            shutil.rmtree(draft.parent, ignore_errors=True)
