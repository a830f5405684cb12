"""Workspaces: data, settings, job and results of a user of the page, found again by its address after a reload."""

import secrets
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from unfade.app import RETURN_SECONDS, WAIT_SECONDS
from unfade.app.jobs import Job, Settings
from unfade.app.uploads import Folder, Loaded, load
from unfade.errors import UnfadeError

_OF_COLUMNS = ("kind", "time", "panel", "rules")  # names of choices
LEFT = f"It was stopped: no page was open for {WAIT_SECONDS} seconds. Press Fill and clean to start it again."


class Workspace:
    """Everything that the server stores for one user: a folder, data, settings, a job.

    word: the secret in its address. sessions: browser sessions that have used it. choices: choices on the page, by the
    name of each widget. lock: held while a file is read.
    """

    def __init__(self) -> None:
        self.word = secrets.token_urlsafe(16)
        self.sessions: set[str] = set()
        self.choices: dict[str, Any] = {}
        self.lock = threading.RLock()
        self.folder = Folder()
        self.file = ""  # by which the page knows the upload
        self.loaded: Loaded | None = None
        self.problem = ""
        self.job: Job | None = None

    def take(self, file: str, name: str, content: bytes | memoryview) -> None:
        """Read an upload in place of the earlier one; `problem` is the reason if it cannot be used."""
        with self.lock:
            self.clear()
            self.file = file
            try:
                self.loaded = load(name, content, self.folder.path)
            except UnfadeError as error:
                self.problem = str(error)

    def mark(self, missing: tuple[str, ...]) -> Loaded | None:
        """Return the data with these values counted as missing."""
        with self.lock:
            if self.loaded is not None and self.loaded.marks != missing:
                self.loaded = self.loaded.marked(missing)
            return self.loaded

    def start(self, settings: Settings) -> None:
        """Start a job, without the earlier results."""
        self.stop()
        if self.loaded is not None:
            self.job = Job(self.loaded, settings, self.folder)

    def stop(self) -> None:
        """Cancel the job, and delete results."""
        if self.job is not None:
            self.job.cancel()
        self.job = None
        for old in self.folder.path.glob("result-*"):
            shutil.rmtree(old, ignore_errors=True)

    def leave(self) -> None:
        """Cancel the job that no page waits for; data, settings and results are kept."""
        if self.job is not None and self.busy:
            self.job.cancel(LEFT)

    def clear(self) -> None:
        """Delete data and results, and choices about their columns."""
        with self.lock:
            self.stop()
            self.file, self.loaded, self.problem = "", None, ""
            self.choices = {name: value for name, value in self.choices.items() if not name.startswith(_OF_COLUMNS)}

    def close(self) -> None:
        """Delete everything."""
        with self.lock:
            self.clear()
            self.folder.delete()

    @property
    def busy(self) -> bool:
        """Whether the job is running."""
        return self.job is not None and self.job.running

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self.folder.delete.alive


class Workspaces:
    """All workspaces of a server, each found by its secret word alone.

    wait: seconds for which a job runs while no page shows the workspace. patience: seconds after which it is closed.
    """

    def __init__(self, wait: float = WAIT_SECONDS, patience: float = RETURN_SECONDS):
        self.wait, self.patience = wait, patience
        self._workspaces: dict[str, Workspace] = {}
        self._lock = threading.Lock()

    def at(self, word: str, session: str, alive: Callable[[str], bool]) -> Workspace:
        """Return the workspace of a word, for one more session; a new one with a word of its own, if there is none.

        alive: whether a session's browser is connected.
        """
        with self._lock:
            workspace = self._workspaces.get(word)
            if workspace is None or workspace.closed:
                workspace = Workspace()
                self._workspaces[workspace.word] = workspace
                threading.Thread(target=self._look, args=(workspace, alive), name="unfade-look", daemon=True).start()
            workspace.sessions.add(session)
            return workspace

    def _look(self, workspace: Workspace, alive: Callable[[str], bool]) -> None:
        """Cancel the workspace's job, and later close it, once its sessions have been away long enough."""
        seen = time.monotonic()
        while (away := time.monotonic() - seen) < self.patience:
            if any(alive(session) for session in tuple(workspace.sessions)):
                seen = time.monotonic()
            elif away > self.wait:
                workspace.leave()
            time.sleep(min(1.0, self.wait / 4))
        with self._lock:
            self._workspaces.pop(workspace.word, None)
        workspace.close()


WORKSPACES = Workspaces()
