"""Training that can be stopped at any moment and resumed: what the loop holds, written whole or not at all.

A fit is a series of runs of the loop, the same ones each time. Each has a file, written now and then and when it ends; a
fit that is resumed takes the runs that have ended from their files, and the one in which it stopped from its last
state. Random numbers are keyed by step, so nothing else is needed to end as an undisturbed fit does.
"""

import os
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from unfade import storage
from unfade.errors import InvalidFile, notice
from unfade.training import distributed as processes

State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors, and what goes into JSON


class Checkpoint:
    """A folder for the states of one fit.

    every: seconds between states that are written; resume: go on from those in the folder, if it has any, which must be
    of a fit of the same data by the same settings. Else a fit begins again and writes over them.
    """

    def __init__(self, folder: str | os.PathLike[str], every: float = 60.0, resume: bool = False):
        self.folder = Path(folder)
        self.every = every
        self.resume = resume
        self._fit, self._run, self._written, self._failing = "", -1, 0.0, False

    def begin(self, fit: str) -> None:
        """A fit begins; `fit` identifies fits of other data or settings from this one."""
        self._fit, self._run = fit, -1
        if not self.resume and processes.rank() == 0:
            self.clear()
        processes.agreed(0.0)  # nobody looks before that
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidFile(f"Cannot make the folder {self.folder} for checkpoints: {error.strerror}.") from None
        storage.check_writable(self._path(0))

    def next_run(self) -> State | None:
        """The state to go on from with the next run of the loop, if there is one."""
        self._run, self._written = self._run + 1, time.monotonic()
        found = storage.load(self._path(self._run)) if self._path(self._run).exists() else None
        processes.agreed(0.0)  # nobody writes before all have read
        if found is None:
            return None
        tensors, meta = found
        if meta.get("fit") != self._fit:
            raise InvalidFile(
                f"{self.folder} holds checkpoints of another fit: expected the same data and settings. "
                "Give another folder, or begin again without resume."
            )
        return tensors, meta

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= self.every

    def write(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Keep the state of the run; of several processes the first does. If it cannot be written, training continues."""
        if processes.rank():
            return
        meta, self._written = {"fit": self._fit, **meta}, time.monotonic()
        try:
            storage.save(self._path(self._run), {name: t.cpu() for name, t in tensors.items()}, meta)
        except InvalidFile as error:
            if not self._failing:  # said once, until a state can be written again
                notice(f"No checkpoint, training continues: {error}")
            self._failing = True
        else:
            self._failing = False
            self._written = time.monotonic()

    def clear(self) -> None:
        """Remove the states, and the folder if nothing else is in it."""
        for path in self.folder.glob("run-*.checkpoint"):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, run: int) -> Path:
        return self.folder / f"run-{run:02d}.checkpoint"
