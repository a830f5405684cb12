"""Images as data: folders of PNG, TIFF or NPY files, and stacks in one .npy, .npz or .zarr; the same kind out."""

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
from unfade.io.image_files import ENDINGS, Unmeasured, described, read_frame, write_frame
from unfade.io.tables import read_table
from unfade.storage import DRAFT, check_free, check_writable, followed

STACKS = (".npy", ".npz", ".zarr")


class Frames(ABC):
    """Images of one size and type. rule: which pixels were not measured; event: the shape of what is modelled of each."""

    def __init__(self, path: Path, first: np.ndarray, rule: Unmeasured):
        self.path, self.shape, self.dtype, self.rule = path, first.shape, first.dtype, rule
        self.event = rule.colours(first).shape

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def frame(self, number: int) -> np.ndarray:
        """One of them as it is."""

    @abstractmethod
    def sink(self, draft: Path, draws: int | None) -> "Sink":
        """Where results of the same kind are written to; draws: how many of each frame."""

    @abstractmethod
    def check_output(self, path: Path) -> None:
        """Refuse a name that results of this kind cannot have, or that is taken."""

    def raw(self, which: Any) -> np.ndarray:
        """Some of them as they are, (frames, *shape)."""
        stack = np.empty((len(which), *self.shape), self.dtype)
        for target, number in zip(stack, which, strict=True):
            target[:] = self.frame(number)
        return stack

    def read(self, which: Any) -> np.ndarray:
        """Some of them, (frames, *event), with NaN where pixels are missing."""
        return self.rule.entered(self.raw(which))

    @property
    def pixels(self) -> int:
        """How many pixels all of them have together."""
        return len(self) * int(np.prod(self.shape[:2]))


class Sink(ABC):
    """Results on their way to disk."""

    @abstractmethod
    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        """Some frames, or a draw of them, in their own type."""

    def finish(self) -> None:
        """All is written."""
        return None


class FolderOfFrames(Frames):
    """The images of a folder, in the order of their names."""

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
        """One of them as it is."""
        frame = read_frame(self.files[number])
        if frame.shape != self.shape or frame.dtype != self.dtype:
            raise InvalidFile(
                f"{self.files[number]} is {described(frame)}, {self.files[0].name} is "
                f"{described(read_frame(self.files[0]))}. "
                "Expected images of one size and type: put others into a folder of their own."
            )
        return frame

    def sink(self, draft: Path, draws: int | None) -> Sink:
        """A folder of files with the same names; for draws, one such folder each."""
        return _Folder(draft, self)

    def check_output(self, path: Path) -> None:
        """Refuse a name that results of this kind cannot have, or that is taken."""
        if path.suffix in STACKS:
            raise InvalidFile(f"{self.path.parent} is a folder of images: give a folder to write to, not {path.name!r}.")
        check_free(path)


class _Folder(Sink):
    def __init__(self, draft: Path, frames: FolderOfFrames):
        self.draft, self.frames = draft, frames
        draft.mkdir()

    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        place = self.draft if draw is None else self.draft / f"draw-{draw:03d}"
        place.mkdir(exist_ok=True)
        for frame, number in zip(values, which, strict=True):
            write_frame(frame, place / self.frames.files[number].name)


class Stack(Frames):
    """The images of one array, (frames, height, width) or (frames, height, width, channels)."""

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
        """One of them as it is."""
        return np.asarray(self.array[number])

    def sink(self, draft: Path, draws: int | None) -> Sink:
        """One array of the same type; draws come first."""
        return _Array(draft, (*([] if draws is None else [draws]), len(self)), self.shape, self.dtype)

    def check_output(self, path: Path) -> None:
        """Refuse a name that results of this kind cannot have, or that is taken."""
        if path.suffix not in STACKS:
            raise InvalidFile(f"{self.path} is a stack: write it to one of {', '.join(STACKS)}, not to {path.name!r}.")
        (check_free if path.suffix == ".zarr" else check_writable)(path)


class _Array(Sink):
    def __init__(self, draft: Path, lead: tuple[int, ...], frame: tuple[int, ...], dtype: np.dtype[Any]):
        self.draft = draft
        self.array: Any
        if draft.suffix == ".zarr":
            chunks = (*[1] * len(lead), *frame)
            self.array = _zarr().open_array(str(draft), mode="w", shape=(*lead, *frame), chunks=chunks, dtype=dtype)
        else:
            self.array = np.lib.format.open_memmap(draft, "w+", dtype, (*lead, *frame))

    def write(self, values: np.ndarray, which: range, draw: int | None = None) -> None:
        place = slice(which.start, which.stop)
        self.array[place if draw is None else (draw, place)] = values

    def finish(self) -> None:
        if self.draft.suffix == ".zarr":
            return
        self.array.flush()
        if self.draft.suffix == ".npz":
            whole = self.draft.with_suffix(".whole")
            with whole.open("wb") as file:
                np.savez_compressed(file, data=self.array)
            whole.replace(self.draft)


def open_frames(path: str | os.PathLike[str], missing: float | str | None = None) -> Frames:
    """Open the images of a folder or of a stack.

    missing: the value of pixels that were not measured, in all of their channels; "none": no value. Where not given, 0 for
    images of whole numbers and NaN for others; of images with an alpha channel those where alpha is 0.
    """
    path = Path(path)
    return Stack(path, missing) if path.suffix in STACKS else FolderOfFrames(path, missing)


def are_frames(path: Path) -> bool:
    """Whether there is a folder of images, or a stack of them, at a path."""
    if path.suffix == ".zarr" or not path.is_file():
        return path.is_dir() and not any(path.glob("*.parquet"))
    if path.suffix.lower() in set(ENDINGS) - {".npy"}:
        raise InvalidFile(f"{path} is one image. Give the folder that holds images of its size: {path.parent}.")
    try:
        return path.suffix in STACKS and _opened(path).ndim in (3, 4)
    except Exception:  # whatever is wrong with it, who reads it says
        return False


def read_data(path: Path, missing: float | str | None = None) -> tuple[Any, Unmeasured | None]:
    """Read a table, an array, or images with NaN where pixels were not measured, and then the rule by which."""
    if not are_frames(path):
        if missing is not None:
            raise InvalidData(f"A value of missing pixels is for images, {path} holds none. Leave it out.")
        return read_table(path), None
    frames = open_frames(path, missing)
    return frames.read(range(len(frames))), frames.rule


def _opened(path: Path) -> Any:
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
    try:
        import zarr
    except ModuleNotFoundError:
        raise InvalidFile("Stacks in .zarr need the package zarr: pip install 'unfade[zarr]'.") from None
    return zarr


def evenly(count: int, most: int) -> list[int]:
    """Numbers of `most` of so many frames, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(max(1, most), count)).round().astype(int)).tolist()


@contextmanager
def whole_sinks(wanted: dict[Path, int | None], frames: Frames) -> Iterator[dict[Path, Sink]]:
    """For each path a sink that takes its name when all is done; nothing is left of them otherwise."""
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
        raise InvalidFile(f"Cannot write {paths}: {error.strerror or error}. Nothing was left under these names.") from None
    finally:
        for draft in drafts.values():
            shutil.rmtree(draft.parent, ignore_errors=True)
