"""Atomic writes; models on disk: one safetensors file whose header holds JSON. Loading executes nothing."""

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unfade.errors import InvalidFile

FORMAT = 3
DRAFT = ".unfade-"  # how the names of unfinished files begin


@contextmanager
def whole_or_nothing(path: str | os.PathLike[str], keep: bool = True) -> Iterator[Path]:
    """Give a temporary path next to `path`, and rename it to `path` once everything was written (unless `keep` is False).

    If `path` is a symbolic link, the file that it points to is replaced, and the link is kept.
    """
    target = followed(path)
    _check_parent(target)
    if target.is_dir():
        raise InvalidFile(f"Cannot write {path}: it is a folder. Give a file name.")
    if target.exists() and not target.is_file():
        raise InvalidFile(f"Cannot write {path}: it is a device or a pipe. Give the name of a file.")
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=DRAFT, suffix=_short(target.suffix))
        os.close(handle)
    except OSError as error:
        raise InvalidFile(f"Cannot write in {target.parent}: {error.strerror}. Choose a folder you may write to.") from None
    try:
        yield Path(name)
        if keep:
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
    except OSError as error:
        raise InvalidFile(
            f"Cannot write {target}: {error.strerror or error}. Nothing was written under that name."
        ) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _short(suffix: str) -> str:
    """Return the ending of a name, by which libraries recognise formats; empty if it is too long to be one."""
    return suffix if len(suffix) <= 16 else ""


def followed(path: str | os.PathLike[str]) -> Path:
    """Follow the symbolic links of a path, also to a target that does not exist yet."""
    check_name(path)
    target = Path(path)
    try:
        return target.resolve() if target.is_symlink() else target
    except (OSError, RuntimeError):
        raise InvalidFile(f"Cannot write {path}: its symbolic links lead in a circle. Give another name.") from None


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a name that a file system, or a library that reads and writes files, cannot take."""
    try:
        os.fspath(path).encode()
        os.lstat(path)
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise InvalidFile(f"The name {shown} is not valid UTF-8: rename the file or its folder.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            shown = f"{str(path)[:40]}... ({len(os.fsencode(path))} bytes)"
            raise InvalidFile(f"The name {shown} is too long for the file system. Give a shorter name.") from None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before any work is done; an existing file is not changed."""
    with whole_or_nothing(path, keep=False):
        pass


def check_free(folder: Path) -> None:
    """Refuse a name for a new folder that exists, or whose parent folder does not."""
    folder = followed(folder)
    if folder.exists():
        raise InvalidFile(f"{folder} exists already. Give another name, or remove it first.")
    _check_parent(folder)


def _check_parent(path: Path) -> None:
    """Refuse a path whose parent folder does not exist."""
    if not path.parent.is_dir():
        raise InvalidFile(f"Cannot write {path}: the folder {path.parent} does not exist. Create it first.")


def _umask() -> int:
    """Return the process's umask."""
    current = os.umask(0)
    os.umask(current)
    return current


def save(path: str | os.PathLike[str], tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON as one file, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    header = {"format": "pt", "unfade": json.dumps({"format": FORMAT, **meta})}
    with whole_or_nothing(path) as draft:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft, header)
        except SafetensorError as error:  # what it makes of a full disk
            raise OSError(str(error)) from None


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file that `save` wrote; raise InvalidFile for any other."""
    from safetensors import SafetensorError, safe_open

    check_name(path)
    if not Path(path).is_file():
        raise InvalidFile(f"Expected a model file at {path}, found none. Check the path, or save a model first.")
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("unfade", "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise InvalidFile(f"{path} is not a model that unfade saved, or it is damaged ({error}). Save it again.") from None
    try:
        meta = json.loads(header)
        version = meta["format"]
        if not isinstance(version, int):
            raise TypeError
    except (TypeError, ValueError, KeyError, RecursionError):
        raise InvalidFile(
            f"{path} is a safetensors file, but not a model that unfade saved. Give a file from `save`."
        ) from None
    if version > FORMAT:
        raise InvalidFile(f"{path} has format {version}, this version reads up to {FORMAT}. Upgrade unfade to load it.")
    return tensors, meta


def digest(*values: Any) -> str:
    """Hash tensors, and other values by their `repr`, inside tuples, dictionaries and dataclasses."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        """Add a value to the hash."""
        if isinstance(value, Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().numpy().tobytes())
        elif is_dataclass(value):
            add({each.name: getattr(value, each.name) for each in fields(value)})
        elif isinstance(value, (dict, tuple)):
            for part in value.items() if isinstance(value, dict) else value:
                add(part)
        else:
            found.update(f"{value!r};".encode())

    add(values)
    return found.hexdigest()
