"""The one loop: Adam on an objective, seeds scoped, time left reported, nothing non-finite let through."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import Tensor

from unfade.data.observations import Observations
from unfade.errors import InvalidData, TrainingFailed
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.training import distributed as processes
from unfade.training.checkpoints import Checkpoint, State
from unfade.training.objectives import Objective
from unfade.training.step import Stepper, Trained


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; shares are of the run's length.

    The rate rises over the first `rise` steps, stays constant, then falls linearly to zero over the last `decay` of the
    run. gamma, the paper's warm-up, goes from `warmup[2]` to 1 between the shares `warmup[0]` and `warmup[1]`.
    """

    steps: int = 5000
    batch_size: int = 128
    learning_rate: float = 3e-3
    clip_norm: float = 20.0
    decay: float = 0.5
    warmup: tuple[float, float, float] = (0.0, 0.0, 1.0)
    max_seconds: float | None = None
    check_every: int = 50
    rise: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "clip_norm", "check_every"):
            if not getattr(self, name) > 0:
                raise InvalidData(f"TrainingConfig.{name} must be positive, got {getattr(self, name)!r}.")

    def rate_at(self, progress: float, step: int = 0) -> float:
        """Learning rate at a share of the run, and at a step."""
        risen = min(1.0, (step + 1) / self.rise) if self.rise else 1.0
        return self.learning_rate * risen * max(0.0, min(1.0, (1 - progress) / self.decay if self.decay else 1.0))

    def warmup_at(self, progress: float) -> float:
        """gamma at a share of the run."""
        start, end, floor = self.warmup
        ramp = (progress - start) / (end - start) if end > start else 1.0
        return floor + (1 - floor) * min(1.0, max(0.0, ramp))


FEW_STEPS = 200  # that even a small table needs


class Ended(StrEnum):
    """Why a run of the loop ended."""

    ALL_STEPS = "all steps"
    EARLY = "early stopping"  # held-out cells were no longer predicted better
    STOPPED = "stopped"  # by the caller's callback
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"
    NOT_TRAINED = "not trained"  # a model that needs no training

    @classmethod
    def of(cls, text: str) -> "Ended":
        """The reason that a model file of an earlier version gives as a sentence."""
        starts = {"ran all": cls.ALL_STEPS, "ended by its callback": cls.EARLY, "out of time": cls.OUT_OF_TIME}
        for start, reason in (starts | {"interrupted": cls.INTERRUPTED}).items():
            if text.startswith(start):
                return reason
        return cls(text) if text in list(cls) else cls.NOT_TRAINED


@dataclass
class History:
    """Training traces: means of the objective and of its terms over each stretch of `check_every` steps.

    planned: the steps that the run could have taken; step: how a step was run; note: what was chosen and why, of a model
    that needs no training.
    """

    steps: list[int] = field(default_factory=list)
    terms: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    ended: Ended = Ended.ALL_STEPS
    planned: int = 0
    step: str = ""
    note: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.ended is Ended.INTERRUPTED

    @property
    def reason(self) -> str:
        """Why it ended, in words."""
        taken = self.steps[-1] if self.steps else 0
        return "ran all steps" if self.ended is Ended.ALL_STEPS else f"{self.ended} after {taken} of {self.planned} steps"

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.note or self.ended} ({self.seconds:.1f} s)"
        return f"{self.steps[-1]} steps in {self.seconds:.1f} s, {self.reason}; step {self.step}"

    @classmethod
    def of(cls, record: dict[str, Any]) -> "History":
        """From JSON, also of earlier versions, in which `ended` is a sentence."""
        ended = Ended.of(record["ended"])
        note = record.get("note", record["ended"] if ended is Ended.NOT_TRAINED else "")
        kept = {name: value for name, value in record.items() if name != "interrupted"}
        return cls(**{**kept, "ended": ended, "note": note})

    def add(self, step: int, means: dict[str, float]) -> None:
        """Append one stretch."""
        self.steps.append(step)
        for name, mean in means.items():
            self.terms.setdefault(name, []).append(mean)


@dataclass(frozen=True)
class Progress:
    """What a callback is given after each stretch."""

    step: int
    steps: int
    value: float
    seconds_left: float


COMPILE_FROM = 20_000  # steps from which compiling, up to half a minute, pays for itself
COMPILE_SECONDS = 120.0  # the shortest time budget that leaves room for it
_BUILDING = threading.RLock()  # torch initialises weights from one generator for all threads
OnStep = Callable[[Progress], bool | None]  # True ends the run


class Watch(Protocol):
    """Looks at models now and then while they are trained, and remembers."""

    def __call__(self, progress: Progress) -> bool:
        """True ends the run."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What it remembers."""
        ...

    def load(self, state: dict[str, Tensor]) -> None:
        """Remember that."""
        ...


@contextmanager
def scoped_seed(seed: int) -> Iterator[None]:
    """Seed the initial weights of networks built inside; the caller's random state is as before afterwards."""
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def batches(samples: int, size: int, seed: int) -> Iterator[Tensor]:
    """Endless batches of row numbers: each pass over the rows in a new order, a short last batch left out."""
    size = min(size, samples)
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(samples, generator=generator)
        yield from order[: samples - samples % size].split(size)


@dataclass(frozen=True)
class Run:
    """One model to train: what `train` takes."""

    posterior: PosteriorLVM | FlowPosterior
    objective: Objective
    obs: Observations
    config: TrainingConfig
    seed: int = 0


def train(
    posterior: PosteriorLVM,
    objective: Objective,
    obs: Observations,
    config: TrainingConfig,
    seed: int = 0,
    on_step: OnStep | None = None,
) -> History:
    """Maximise the objective in place. Parameters that do not require gradients are unchanged.

    Ctrl-C ends training and keeps what is there. A value that is not finite takes the last good state back
    and goes on at half the rate; after five such falls TrainingFailed is raised.
    """
    return train_many([Run(posterior, objective, obs, config, seed)], on_step)[0]


def train_many(
    runs: Sequence[Run], on_step: OnStep | None = None, watch: Watch | None = None, checkpoint: Checkpoint | None = None
) -> list[History]:
    """Train models of one shape side by side, in one batched step; each ends as if it were trained alone.

    Models, data and batches must have equal shapes, and the runs equal lengths; seeds, rates, warm-ups and
    the numbers that objectives hold as buffers may differ. `on_step` is told of their mean; `watch` too, and while it
    looks at them, the models have averages of their parameters. If one of them fails for good, all do. `checkpoint`
    keeps the state, and has the one to go on from.
    """
    shared = {(r.config.steps, r.config.batch_size, r.config.check_every, r.config.max_seconds) for r in runs}
    if len(shared) > 1:
        raise InvalidData(f"Side by side, steps, batches and time must be equal, got {sorted(shared, key=str)}.")
    device = runs[0].obs.values.device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), torch.enable_grad():
        return _Loop(runs, watch, checkpoint).run(on_step)


class _Loop:
    """The loop, and all that it holds between two stretches of `check_every` steps."""

    def __init__(self, runs: Sequence[Run], watch: Watch | None, checkpoint: Checkpoint | None):
        self.runs, self.config, self.watch, self.checkpoint = runs, runs[0].config, watch, checkpoint
        self.stepper = Stepper(
            [Trained(run.posterior, run.objective) for run in runs],
            [run.obs for run in runs],
            [run.seed for run in runs],
            [run.config.clip_norm for run in runs],
            averaging=watch is not None,
        )
        self.order = [batches(len(run.obs), run.config.batch_size, run.seed) for run in runs]
        self.history, self.falls = [History() for _ in runs], torch.zeros(len(runs))
        self.done, self.ended, self.started = 0, False, time.monotonic()
        if state := checkpoint and checkpoint.next_run():
            self._go_on_from(state)
        self.good = self.stepper.flat.clone()

    def run(self, on_step: OnStep | None) -> list[History]:
        """Take all steps, or as many as time and callbacks allow."""
        how = ""
        try:
            while not self.ended and self._share() < 1:
                self._plan()
                how = how or self.stepper.accelerate(self._worth_compiling())
                progress = self._stretch()
                if on_step is not None and on_step(progress):
                    self._end(Ended.STOPPED)
                elif self._looked(progress):
                    self._end(Ended.EARLY)
                if self.checkpoint is not None and not self.ended and self.checkpoint.due():
                    self._write()
            if not self.ended:
                self._end(Ended.ALL_STEPS if self.done == self.config.steps else Ended.OUT_OF_TIME)
            if self.checkpoint is not None:
                self._write()
        except KeyboardInterrupt:
            self.stepper.flat.copy_(self.good)
            self._end(Ended.INTERRUPTED)
        finally:
            self.stepper.release()
        if any(not record.steps for record in self.history) and self.falls.any():
            raise TrainingFailed(_failure(self.done, {}))
        for record in self.history:
            record.seconds, record.step = time.monotonic() - self.started, how or record.step
        return self.history

    def _worth_compiling(self) -> bool:
        seconds = self.config.max_seconds
        long = self.config.steps >= COMPILE_FROM and (seconds is None or seconds >= COMPILE_SECONDS)
        return long and not self.runs[0].objective.compiles

    def _plan(self) -> None:
        """Batches, rates and warm-ups of the next stretch."""
        now, config = self._share(), self.config
        ahead = [now + (1 - now) * i / (config.steps - self.done) for i in range(config.check_every)]
        self.stepper.plan(
            self.done,
            torch.stack([torch.stack([next(rows) for rows in self.order]) for _ in ahead]),
            torch.tensor([[run.config.rate_at(share, self.done + i) for run in self.runs] for i, share in enumerate(ahead)])
            / 2**self.falls,
            torch.tensor([[run.config.warmup_at(share) for run in self.runs] for share in ahead]),
        )

    def _stretch(self) -> Progress:
        """The steps that are planned, and what came of them."""
        config, stepper, length = self.config, self.stepper, 0
        while length < min(config.check_every, config.steps - self.done) and not (length and self._out_of_time()):
            stepper.step()
            length += 1
        self.done += length
        finite, means = stepper.finite().cpu(), (stepper.totals / length).tolist()
        if not finite.all():
            self.falls += ~finite
            stepper.restore(self.good, ~finite, self.done)
            if self.falls.max() > 5:
                worst = means[int(self.falls.argmax())]
                raise TrainingFailed(_failure(self.done, dict(zip(stepper.names, worst, strict=True))))
        self.good = stepper.flat.clone()
        for record, row, fine in zip(self.history, means, finite, strict=True):
            if fine:
                record.add(self.done, dict(zip(stepper.names, row, strict=True)))
        left = (time.monotonic() - self.started) * (1 / max(self._share(), 1e-9) - 1)
        return Progress(self.done, config.steps, sum(row[0] for row in means) / len(means), left)

    def _looked(self, progress: Progress) -> bool:
        if self.watch is None:
            return False
        with self.stepper.averaged(), torch.no_grad():
            return bool(self.watch(progress))

    def _share(self) -> float:
        """The share of the run that is over, by steps or by time, whichever is further."""
        budget = self.config.max_seconds
        return max(self.done / self.config.steps, self._elapsed() / budget if budget else 0.0)

    def _out_of_time(self) -> bool:
        return self.config.max_seconds is not None and self._elapsed() > self.config.max_seconds

    def _elapsed(self) -> float:
        return processes.agreed(time.monotonic() - self.started)

    def _end(self, reason: Ended) -> None:
        self.ended = True
        for record in self.history:
            record.ended, record.planned = reason, self.config.steps

    def _write(self) -> None:
        assert self.checkpoint is not None
        tensors = {f"stepper.{name}": part for name, part in self.stepper.state().items()} | {"falls": self.falls}
        if self.watch is not None:
            tensors |= {f"watch.{name}": part for name, part in self.watch.state().items()}
        meta = {"done": self.done, "ended": self.ended, "seconds": time.monotonic() - self.started}
        self.checkpoint.write(tensors, {**meta, "history": [asdict(record) for record in self.history]})

    def _go_on_from(self, state: State) -> None:
        tensors, meta = state

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.stepper.load(part("stepper."))
        self.falls, self.history = (
            tensors["falls"],
            [History.of(record) for record in meta["history"]],
        )
        self.done, self.ended, self.started = meta["done"], meta["ended"], time.monotonic() - meta["seconds"]
        if self.watch is not None:
            self.watch.load({name: value.to(self.stepper.device) for name, value in part("watch.").items()})
        for _ in range(-(-self.done // self.config.check_every) * self.config.check_every):  # batches that were planned
            for rows in self.order:
                next(rows)


def _failure(step: int, means: dict[str, float]) -> str:
    terms = ", ".join(f"{name} {mean:.4g}" for name, mean in means.items())
    return (
        f"The objective was not finite at step {step} ({terms}), again and again after going back to the last good "
        "state at half the learning rate. Expected finite numbers; look for extreme outliers in the data, scale them, "
        "or lower learning_rate."
    )
