"""Rounds: fits that go round by round, one after another: their progress, their time, and what ends them early."""

import time
from collections.abc import Iterable
from typing import TypeVar

from torch import nn

from unfade.methods.recipes import Task
from unfade.training.loop import Ended, Progress

LEAST = 3  # rounds of a fit, however little time there is
_FITTING = 0.8  # share of the time of a fit, the rest of it is for predictions
M = TypeVar("M", bound=nn.Module)


class Rounds:
    """Several fits of some rounds each.

    ended: what ended the last fit early, else NOT_TRAINED. stopped: whether the user ended all of them.
    """

    def __init__(self, task: Task, fits: int, most: int):
        self._task, self._fits, self._most = task, fits, most
        self._over, self._started = 0, time.monotonic()
        self.ended, self.stopped = Ended.NOT_TRAINED, False

    def run(self, fit: Iterable[M]) -> M | None:
        """Run a fit that gives its model after each round; None where Ctrl-C ended it in the first, a later fit alone."""
        self._began, self.ended, model = time.monotonic(), Ended.NOT_TRAINED, None
        try:
            for done, reached in enumerate(fit, 1):
                model = reached
                if self._report(done):
                    self.ended, self.stopped = Ended.STOPPED, True
                    break
        except KeyboardInterrupt:
            if model is None and not self._over:
                raise
            self.ended, self.stopped = Ended.INTERRUPTED, True
        self._over += 1
        return model

    def hurry(self) -> bool:
        """Decide whether to go to the last fit at once: the user stopped, or time is short for another one before it."""
        now, deadline = time.monotonic(), self._task.deadline
        if deadline is not None and self._over and deadline - now < 2 * (now - self._started) / self._over:
            self._over = self._fits - 1
        return self.stopped or self._over >= self._fits - 1

    def left(self, done: int) -> int:
        """Decide how many rounds to do yet in this fit, by its share of the time that is left."""
        most, now, deadline = self._most - done, time.monotonic(), self._task.deadline
        if deadline is None or not done:
            return most
        share = 1.0 if self._over == self._fits - 1 else _FITTING
        until = self._began + share * max(0.0, deadline - self._began) / (self._fits - self._over)
        affordable = max(LEAST - done, int((until - now) * done / (now - self._began)))
        if affordable < most:
            self.ended = Ended.OUT_OF_TIME
        return min(most, affordable)

    def _report(self, done: int) -> bool | None:
        if self._task.on_step is None:
            return False
        done, most = self._over * self._most + done, self._fits * self._most
        left = (time.monotonic() - self._started) * (most - done) / done
        return self._task.on_step(Progress(done, most, done / most, left))
