"""Time left of work with several parts: share done and seconds left, over all parts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from unfade.training.loop import Progress

LEARNING = "Training"
AFTER_NOISE, AFTER_MAIN, AFTER_LATER = 12.0, 0.2, 0.05  # time still to come after a run of the fit, by that run's own time


@dataclass(frozen=True)
class Part:
    """A part of the work. state: "done", "now" or "later"; seconds: that it took, or is expected to take still."""

    name: str
    state: str
    seconds: float


class Schedule:
    """Parts of work in order, with their expected seconds; measured times correct the rest.

    clock: gives seconds, as time.monotonic does.
    """

    def __init__(self, expected: dict[str, float], clock: Callable[[], float] = time.monotonic):
        self._expected, self._clock = dict(expected), clock
        self._parts = list(expected)
        self._at, self._share = 0, 0.0
        self._took: dict[str, float] = {}
        self._began = self._part_began = clock()
        self._part_ends = self._began + expected[self._parts[0]]

    @property
    def part(self) -> str:
        """Current part."""
        return self._parts[self._at]

    @property
    def place(self) -> str:
        """Position of the current part, such as "2 of 6"."""
        return f"{self._at + 1} of {len(self._parts)}"

    @property
    def passed(self) -> float:
        """Seconds since the work began."""
        return self._clock() - self._began

    def begin(self, part: str, speaks: bool = False) -> None:
        """Begin a part; `speaks`: the time of the part before predicts the speed of later ones."""
        now, before = self._clock(), self._expected[self.part]
        self._took[self.part] = now - self._part_began
        factor = (now - self._part_began + 1) / (before + 1) if speaks else 1.0  # of what takes no second, much is chance
        self._at = self._parts.index(part)
        for later in self._parts[self._at :]:
            self._expected[later] *= factor
        self._part_began, self._part_ends = now, now + self._expected[part]

    def expect(self, seconds: float) -> None:
        """Set the remaining seconds of the current part."""
        self._part_ends = self._clock() + seconds

    def left(self) -> float:
        """Estimate the seconds left, at least one: a part that takes longer than expected is not finished."""
        now = self._clock()
        part = max(self._part_ends - now, 0.1 * (now - self._part_began))
        return max(1.0, part + sum(self._expected[later] for later in self._parts[self._at + 1 :]))

    def parts(self) -> list[Part]:
        """List all parts, with the seconds that they took or are expected to take still."""
        now, later = self._clock(), self._parts[self._at + 1 :]
        left = max(1.0, self._part_ends - now, 0.1 * (now - self._part_began))
        done = [Part(name, "done", self._took.get(name, 0.0)) for name in self._parts[: self._at]]
        return [*done, Part(self.part, "now", left), *(Part(name, "later", self._expected[name]) for name in later)]

    def share(self) -> float:
        """Compute the share that is done; it never decreases, and is below 1 until the end."""
        passed = self.passed
        self._share = min(0.99, max(self._share, passed / (passed + self.left())))
        return self._share


class Pace:
    """Estimate of the time left of a fit, from its progress. A fit is several runs, and each reports only itself.

    noisy: whether its first run estimates the noise level. until: end of its time limit on the clock, or None.
    """

    def __init__(self, noisy: bool, until: float | None = None, clock: Callable[[], float] = time.monotonic):
        self._until, self._clock = until, clock
        self._run, self._main = 0, 1 if noisy else 0
        self._longest, self._last = 0.0, Progress(0, 1, 0.0, 0.0)
        self._start: tuple[int, float] | None = None  # step and time at which this run was first heard of

    def left(self, progress: Progress) -> float:
        """Estimate the seconds until the fit ends; it may end sooner, by early stopping."""
        now = self._clock()
        if progress.step <= self._last.step:
            self._run, self._start = self._run + 1, None
        self._last = progress
        run = progress.seconds_left
        if self._start is None:
            self._start = progress.step, now
        elif progress.step > self._start[0]:  # the first steps are slower than the others
            run = (progress.steps - progress.step) * (now - self._start[1]) / (progress.step - self._start[0])
        left = run + self._later(run + now - self._start[1])
        return left if self._until is None else max(0.0, min(left, self._until - now))

    def _later(self, run_seconds: float) -> float:
        """Estimate the seconds of the runs after this one; run_seconds: of all of this one."""
        if self._run < self._main:
            return AFTER_NOISE * run_seconds
        self._longest = max(self._longest, run_seconds)
        return (AFTER_MAIN if self._run == self._main else AFTER_LATER) * self._longest
