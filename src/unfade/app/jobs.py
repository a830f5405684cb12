"""Jobs of the page: a fit, its clean data, draws, files and report, in a thread that can be cancelled."""

import math
import re
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unfade.app.preview import Preview, preview
from unfade.app.timing import LEARNING, Pace, Part, Schedule
from unfade.app.uploads import Folder, Loaded, one_line
from unfade.data.containers import open_container
from unfade.data.dataset import Dataset
from unfade.diagnostics.checks import Diagnosis, diagnose
from unfade.diagnostics.series_page import zoomable
from unfade.errors import DataNotice, InvalidData, UnfadeError
from unfade.estimator import Recoverer
from unfade.inference.draws import Draws
from unfade.io.originals import write_result
from unfade.io.tables import column_names, count_missing, long_table, write_table
from unfade.pipeline import Block, Recovered, nothing_to_recover, read_to_recover, recover
from unfade.training.loop import Progress

AT_ONCE = 2000  # rows between two looks at whether the work was cancelled
MOST_NUMBERS = 200_000_000  # draws times cells that are kept in memory
READY, FILLING, DRAWING = "Preparing", "Filling and cleaning", "Drawing"
RULES = ("bmi = weight / height ** 2", "total = rent + food", "low <= high", "age_moved if moved == 1")
FILES, REPORT = "Writing the files", "Writing the report"


def expected_seconds(loaded: "Loaded", settings: "Settings") -> dict[str, float]:
    """Estimate the seconds of each part of the work, in order, from the size of the data.

    With a time limit, learning gets the time that the later parts do not need, at least half.
    """
    numbers = loaded.cells / max(1, loaded.rows)
    row = 2e-3 if numbers <= 64 else 2e-4 + 2e-6 * numbers  # of narrow tables, draws are chosen from many candidates
    few = min(1.0, loaded.rows / 1000)
    later = {
        FILLING: 0.1 + row * loaded.rows,
        DRAWING: 0.1 + row * loaded.rows * (0.4 + settings.draws / 100),
        FILES: 0.1 + 2e-7 * loaded.cells * settings.draws,
        REPORT: 2.0 + 8.0 * few + 5e-4 * loaded.rows,
    }
    limit = settings.seconds
    return {READY: 1.0, LEARNING: 60.0 if limit is None else max(limit / 2, limit - sum(later.values())), **later}


class Cancelled(Exception):
    """Raised when the user has cancelled the work."""


@dataclass(frozen=True)
class Settings:
    """Settings that the user chose, most as in Recoverer; seconds: time limit for all parts, or None; rules: as typed."""

    noise: float | str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    fill: str = "mean"
    draws: int = 20
    seed: int = 0
    seconds: float | None = None
    time: str | None = None
    panel: tuple[str, ...] = ()
    rules: str = ""

    def constraints(self) -> dict[str, Any]:
        """Read the rules, one a line, as constraints of Recoverer."""
        found: dict[str, Any] = {"applicable": {}, "derived": {}, "sums": {}, "order": []}
        for line in filter(None, map(str.strip, self.rules.splitlines())):
            column, applies, condition = line.partition(" if ")
            name, equals, formula = line.partition("=")
            if applies:
                found["applicable"][column.strip(" `")] = condition.strip()
            elif "<=" in line and "=" not in line.replace("<=", ""):
                found["order"].append(line)
            elif not (equals and name.strip() and formula.strip(" =")) or formula.startswith("="):
                raise InvalidData(f"A rule is {', '.join(RULES)}, got {line!r}.")
            elif re.fullmatch(r"[^-*/()%,]+\+[^-*/()%,]+", formula):
                found["sums"][name.strip(" `")] = [part.strip(" `") for part in formula.split("+")]
            else:
                found["derived"][name.strip(" `")] = formula.strip()
        return {kind: given for kind, given in found.items() if given}


@dataclass(frozen=True)
class Status:
    """Progress of the work over all parts; seconds_left: None if unknown; at_most: it often ends sooner."""

    words: str
    share: float
    seconds_left: float | None
    at_most: bool = False

    def __str__(self) -> str:
        if self.seconds_left is None:
            return self.words
        return f"{self.words} · {'at most about' if self.at_most else 'about'} {lasting(math.ceil(self.seconds_left))} left"


def lasting(seconds: float) -> str:
    """Write a duration in a few characters."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Result:
    """Results of a job; files are in the folder of the session. recoverer: None if there was nothing to recover.

    mice: draws in the long format of R's mice, of tables; series: a stretch of a series as HTML.
    """

    recoverer: Recoverer | None
    settings: Settings
    clean: Path
    missing: int
    left: int
    seconds: float
    draws: Path | None = None
    mice: Path | None = None
    report: Path | None = None
    diagnosis: Diagnosis | None = None
    preview: Preview | None = None
    series: str | None = None


class Job:
    """A fit, its draws and its report, in a thread of their own, which is cancelled when the job is garbage-collected."""

    def __init__(self, loaded: Loaded, settings: Settings, folder: Folder):
        self._worker = Worker(loaded, settings, folder)
        weakref.finalize(self, self._worker.cancelled.set)
        self._worker.start()

    @property
    def running(self) -> bool:
        """Whether the job is running."""
        return self._worker.is_alive()

    @property
    def status(self) -> Status:
        """Progress of the job."""
        return self._worker.now()

    @property
    def parts(self) -> list[Part]:
        """Parts of the work, in order."""
        return self._worker.schedule.parts()

    @property
    def settings(self) -> Settings:
        """Settings of the job."""
        return self._worker.settings

    @property
    def error(self) -> str | None:
        """Reason why there is no result, in one sentence."""
        return self._worker.error

    @property
    def result(self) -> Result | None:
        """Result; None until the job is done."""
        return self._worker.result

    @property
    def notices(self) -> list[str]:
        """Notices about the data."""
        return list(dict.fromkeys(self._worker.notices))

    def cancel(self, why: str = "Cancelled.") -> None:
        """Cancel the job, without waiting."""
        self._worker.why = why
        self._worker.cancelled.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the job has ended."""
        self._worker.join(seconds)


class Worker(threading.Thread):
    """The thread of a job."""

    def __init__(self, loaded: Loaded, settings: Settings, folder: Folder):
        super().__init__(name="unfade-work", daemon=True)
        self.loaded, self.settings, self.folder = loaded, settings, folder
        self.cancelled = threading.Event()
        self.why = "Cancelled."  # said where it was
        self.notices: list[str] = [] if loaded.rule is None else [f"Missing pixels: {loaded.rule}."]
        self.error: str | None = None
        self.result: Result | None = None
        expected = expected_seconds(loaded, settings)
        self.schedule = Schedule(expected)
        self._for_fit = None if settings.seconds is None else expected[LEARNING]
        until = self._for_fit and time.monotonic() + self._for_fit
        self._pace = Pace(isinstance(settings.noise, str), until)

    def run(self) -> None:
        """Do all of the work; an error becomes a sentence."""
        hear_notices()
        try:
            self.result = self._worked()
        except Cancelled:
            self.error = self.why
        except (UnfadeError, DataNotice) as error:
            self.error = one_line(error)
        except MemoryError:
            self.error = "There is not enough memory. Ask for fewer draws, or give a part of the data."
        except Exception as error:
            if self.cancelled.is_set():  # its folder may be gone
                self.error = self.why
                return
            traceback.print_exc()
            self.error = f"Unexpected {type(error).__name__}: {one_line(error)}"

    def _worked(self) -> Result:
        loaded, settings = self.loaded, self.settings
        if loaded.cells * settings.draws > MOST_NUMBERS:
            most = max(1, MOST_NUMBERS // loaded.cells)
            raise InvalidData(
                f"{settings.draws} draws of {loaded.cells:,} cells are too many here. Ask for at most {most}."
            )
        rec = self._recoverer()
        data = read_to_recover(rec.parameters(), loaded.table)
        if loaded.rule is None and nothing_to_recover(rec.parameters(), data):
            return Result(None, settings, self._write_clean(loaded.table), 0, 0, self.schedule.passed)
        rec.fit(data, on_step=self.on_step)
        self._check()
        clean = self._cleaned(rec)
        draws = self._drawn(rec)
        self.schedule.begin(FILES, speaks=True)
        written = self._write_clean(clean)
        self._check()
        drawn = self._without_it("draws file", self._write_draws, draws, written.with_name("draws.parquet"))
        mice = loaded.columns and self._without_it("file for mice", self._write_mice, draws, written.with_name("mice.csv"))
        self._check()
        self.schedule.begin(REPORT)
        data = rec.model_.read(loaded.table)
        report = self._without_it("report", self._write_report, rec, data, draws, written.with_name("report.html"))
        found = self._without_it("diagnosis", diagnose, rec.model_, data)
        series = settings.time and self._without_it("picture of a series", zoomable, data, draws.values)
        self._check()
        shown = preview(loaded, clean, draws, rec.columns_, settings.noise is not None)
        left, seconds = count_missing(clean), self.schedule.passed
        return Result(
            rec, settings, written, loaded.missing, left, seconds, drawn, mice or None, report, found, shown, series or None
        )

    def _recoverer(self) -> Recoverer:
        """Make the estimator that the settings ask for."""
        settings = self.settings
        return Recoverer(
            noise=settings.noise,
            kinds=settings.kinds or None,
            missing=settings.missing or None,
            fill=settings.fill,
            time=settings.time,
            panel=settings.panel or None,
            max_seconds=self._for_fit,
            random_state=settings.seed,
            verbose=0,
            **settings.constraints(),
        )

    def on_step(self, progress: Progress) -> None:
        """Update the schedule by the progress of the fit; stop if the job was cancelled."""
        self._check()
        if self.schedule.part != LEARNING:
            self.schedule.begin(LEARNING)
        self.schedule.expect(self._pace.left(progress))

    def now(self) -> Status:
        """Return the progress at this moment."""
        part, unlimited = self.schedule.part, self.settings.seconds is None
        left = None if part == READY and unlimited else self.schedule.left()
        return Status(f"{part} · part {self.schedule.place}", self.schedule.share(), left, part == LEARNING and unlimited)

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled

    def _blocks(self, words: str, speaks: bool = False) -> Iterator[Block]:
        """Give the rows in blocks, and update the schedule; results of a row do not depend on its block."""
        self.schedule.begin(words, speaks)
        began, rows = time.monotonic(), self.loaded.rows
        height = rows if self.settings.time else AT_ONCE  # a step of a series depends on all others
        for start in range(0, rows, height):
            self._check()
            if start:
                self.schedule.expect((time.monotonic() - began) * (rows - start) / start)
            yield Block(start, self.loaded.part(start, height))

    def _cleaned(self, rec: Recoverer) -> Any:
        """Compute `rec.transform` in blocks, so that it can be cancelled."""
        _, container = open_container(self.loaded.table, rec.columns_)
        parts: list[Recovered] = []
        recover(rec.model_, self._blocks(FILLING), [parts.append])
        return container.wrap(np.concatenate([open_container(part.clean, rec.columns_)[0] for part in parts]))

    def _drawn(self, rec: Recoverer) -> Draws:
        """Compute `rec.sample` in blocks, so that it can be cancelled."""
        _, container = open_container(self.loaded.table, rec.columns_)
        parts: list[Recovered] = []
        blocks = self._blocks(DRAWING, speaks=True)
        recover(rec.model_, blocks, [parts.append], self.settings.draws, self.settings.seed, clean=False)
        draws = [part.draws for part in parts if part.draws is not None]
        observed = np.concatenate([part.observed for part in draws if part.observed is not None])
        given = np.concatenate([part.given for part in draws if part.given is not None])
        return Draws(np.concatenate([part.values for part in draws], 1), container, observed, given)

    def _without_it(self, what: str, make: Callable[..., Any], *given: Any) -> Any:
        """Make a file or the diagnosis; if that fails, add a notice and continue: the clean data are written."""
        try:
            return make(*given)
        except UnfadeError as error:
            self.notices.append(f"There is no {what}: {one_line(error)}")
        except Exception as error:
            traceback.print_exc()
            self.notices.append(f"There is no {what}: unexpected {type(error).__name__}, {one_line(error)}.")
        return None

    def _write_clean(self, clean: Any) -> Path:
        """Write the clean data into a folder of their own."""
        path = Path(tempfile.mkdtemp(prefix="result-", dir=self.folder.path)) / f"clean{self.loaded.ending}"
        write_result(clean, path, self.loaded.original, self.settings.noise is None)
        return path

    def _write_draws(self, draws: Draws, path: Path) -> Path:
        names = column_names(self.loaded.table)
        if taken := sorted({"draw", "row"} & set(names)):
            raise InvalidData(f"it needs the names draw and row, but the data have {taken}. Rename them.")
        write_table(long_table(draws, names), path)
        return path

    def _write_mice(self, draws: Draws, path: Path) -> Path:
        """Write draws for R's mice, which returns cells of data set 0 as they stand there: cleaned ones are empty there."""
        import pyarrow as pa

        long, changed = draws.to_long("mice"), draws.changes() != "observed"
        first = open_container(long.slice(0, len(changed)))[1].hide(np.pad(changed, ((0, 0), (2, 0))))
        write_table(pa.concat_tables([first, long.slice(len(changed))]), path)
        return path

    def _write_report(self, rec: Recoverer, data: Dataset, draws: Draws, path: Path) -> Path:
        rec.report(path, data, draws=draws)
        return path


def end_all() -> None:
    """Cancel all jobs of this process, and wait some seconds for their end."""
    workers = [thread for thread in threading.enumerate() if isinstance(thread, Worker)]
    for worker in workers:
        worker.cancelled.set()
    for worker in workers:
        worker.join(5)


def hear_notices() -> None:
    """Send notices to the job in whose thread they are raised; Python's own recorder is not thread-safe."""
    warnings.simplefilter("always", DataNotice)
    if getattr(warnings.showwarning, "__name__", "") == "to_its_job":
        return
    before = warnings.showwarning

    def to_its_job(message: Any, category: Any, *where: Any, **more: Any) -> None:
        thread = threading.current_thread()
        if not isinstance(thread, Worker):
            before(message, category, *where, **more)
        elif issubclass(category, DataNotice):
            thread.notices.append(one_line(message))

    warnings.showwarning = to_its_job
