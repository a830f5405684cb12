"""The paper's data sets: read from a folder, or downloaded and checked."""

import gzip
import hashlib
import io
import os
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unfade.errors import InvalidFile
from unfade.storage import whole_or_nothing


@dataclass(frozen=True)
class Dataset:
    """Clean rows in [0, 1] with labels.

    train, test: (samples, entries); image: height and width, where rows are images; distinct: columns that repeat none
    before them, (entries,), where that is known.
    """

    name: str
    train: Tensor
    test: Tensor
    train_labels: Tensor
    test_labels: Tensor
    image: tuple[int, int] | None = None
    distinct: Tensor | None = None


# SHA-256 of the unpacked bytes: packers write different headers.
MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_HOME = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
HAR_HOME = "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip"
HAR_DIGEST = "e4d2e56f6ab057c4c38aa6421acbabd9a2ddfe6f3a6c15e4d359d7633b1ed94a"  # of the features as 16-bit integers


def default_folder() -> Path:
    """Return the folder of data sets: $UNFADE_DATA, or one in the user's cache."""
    return Path(os.environ.get("UNFADE_DATA") or Path.home() / ".cache" / "unfade")


def load(name: str, folder: Path | None = None) -> Dataset:
    """Load a data set by name from `folder`; download it into the folder if it is missing."""
    if name not in LOADERS:
        raise InvalidFile(f"Data sets are {sorted(LOADERS)}, got {name!r}. Give one of them.")
    return LOADERS[name](folder or default_folder())


def _mnist(folder: Path) -> Dataset:
    return _idx_dataset("mnist", folder / "mnist", MNIST, MNIST_HOME)


def _fashion(folder: Path) -> Dataset:
    return _idx_dataset("fashion-mnist", folder / "fashion-mnist", FASHION, FASHION_HOME)


def _idx_dataset(name: str, folder: Path, digests: dict[str, str], home: str) -> Dataset:
    parts = []
    for file, digest in digests.items():
        packed = folder / f"{file}.gz"
        _fetch(home + packed.name, packed)
        parts.append(_read_idx(packed, digest))
    images, labels, test_images, test_labels = parts
    train, test = (torch.from_numpy(i.reshape(len(i), -1).astype(np.float32) / 255) for i in (images, test_images))
    said, test_said = (torch.from_numpy(i.astype(np.int64)) for i in (labels, test_labels))
    return Dataset(name, train, test, said, test_said, (images.shape[1], images.shape[2]))


def _read_idx(path: Path, digest: str) -> np.ndarray:
    """Read an array in the IDX format of MNIST's authors: two zero bytes, type, rank, sizes, then bytes."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise InvalidFile(f"{path} cannot be unpacked ({error}). Delete it and run again to fetch it.") from None
    _check(raw, digest, path)
    rank = raw[3]
    sizes = np.frombuffer(raw, ">u4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(sizes)


def _har(folder: Path) -> Dataset:
    """Load UCI HAR: 561 features mapped from [-1, 1] to [0, 1]; 7,352 rows to train on, 2,947 to test."""
    kept = folder / "uci_har" / "har_features_q16.npz"
    if not kept.exists():
        _pack_har(folder, kept)
    with np.load(kept) as parts:
        quantised, labels, rows = parts["Xq_T"], parts["y"], int(parts["n_train"])
    _check(np.ascontiguousarray(quantised).tobytes(), HAR_DIGEST, kept)
    clean = torch.from_numpy((quantised.T / 32767 + 1).astype(np.float32) / 2)
    said = torch.from_numpy(labels.astype(np.int64)) - 1
    first = np.unique(quantised, axis=0, return_index=True)[1]
    distinct = torch.zeros(len(quantised), dtype=torch.bool).index_fill_(0, torch.from_numpy(first), True)
    return Dataset("uci-har", clean[:rows], clean[rows:], said[:rows], said[rows:], distinct=distinct)


def _pack_har(folder: Path, kept: Path) -> None:
    """Convert UCI's archive to 16-bit integers, and save them."""
    packed = folder / "uci_har" / "archive.zip"
    _fetch(HAR_HOME, packed)
    try:
        with zipfile.ZipFile(packed) as outer, zipfile.ZipFile(io.BytesIO(outer.read("UCI HAR Dataset.zip"))) as inner:
            tables = {
                part: np.loadtxt(io.BytesIO(inner.read(f"UCI HAR Dataset/{part.split('_')[1]}/{part}.txt")))
                for part in ("X_train", "X_test", "y_train", "y_test")
            }
    except (zipfile.BadZipFile, KeyError) as error:
        raise InvalidFile(f"{packed} is not UCI's archive ({error}). Delete it and run again to fetch it.") from None
    features = np.concatenate([tables["X_train"], tables["X_test"]])
    labels = np.concatenate([tables["y_train"], tables["y_test"]]).astype(np.uint8)
    with whole_or_nothing(kept) as part:
        quantised = np.round(features * 32767).astype(np.int16).T
        np.savez_compressed(part, Xq_T=quantised, y=labels, n_train=np.int32(len(tables["X_train"])))


def _fetch(address: str, path: Path) -> None:
    if path.exists():
        return
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            content = answer.read()
    except OSError as error:
        raise InvalidFile(
            f"{path} does not exist, and {address} cannot be reached ({error}). Put the file there, or point --data-dir "
            "(or UNFADE_DATA) to a folder that has it."
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_or_nothing(path) as part:
        Path(part).write_bytes(content)


def _check(raw: bytes, digest: str, path: Path) -> None:
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise InvalidFile(
            f"{path} is not the public file: its contents have SHA-256 {found}, expected {digest}. Delete it and run again."
        )


LOADERS: dict[str, Callable[[Path], Dataset]] = {"mnist": _mnist, "fashion-mnist": _fashion, "uci-har": _har}
