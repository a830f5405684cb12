"""The one loop: Adam on an objective, seeds scoped, time left told, nothing non-finite let through."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unfade.errors import InvalidData, TrainingFailed
from unfade.models import PosteriorLVM
from unfade.objectives import Objective
from unfade.observations import Observations
from unfade.stepping import Stepper, Trained


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; shares are of the run's length.

    The rate stays constant, then falls linearly to zero over the last `decay` of the run. gamma, the
    paper's warm-up, goes from `warmup[2]` to 1 between the shares `warmup[0]` and `warmup[1]`.
    """

    steps: int = 5000
    batch_size: int = 128
    learning_rate: float = 3e-3
    clip_norm: float = 20.0
    decay: float = 0.5
    warmup: tuple[float, float, float] = (0.0, 0.0, 1.0)
    max_seconds: float | None = None
    check_every: int = 50

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate", "clip_norm", "check_every"):
            if not getattr(self, name) > 0:
                raise InvalidData(f"TrainingConfig.{name} must be positive, got {getattr(self, name)!r}.")

    def rate_at(self, progress: float) -> float:
        """Learning rate at a share of the run."""
        return self.learning_rate * max(0.0, min(1.0, (1 - progress) / self.decay if self.decay else 1.0))

    def warmup_at(self, progress: float) -> float:
        """gamma at a share of the run."""
        start, end, floor = self.warmup
        ramp = (progress - start) / (end - start) if end > start else 1.0
        return floor + (1 - floor) * min(1.0, max(0.0, ramp))


@dataclass
class History:
    """What happened: means of the value and of its terms over each stretch of `check_every` steps."""

    steps: list[int] = field(default_factory=list)
    terms: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    ended: str = "ran all steps"
    interrupted: bool = False
    step: str = ""  # how the step was run

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.ended} ({self.seconds:.1f} s)"
        taken = self.steps[-1]
        return f"{taken} steps in {self.seconds:.1f} s, {self.ended}; step {self.step}"

    def add(self, step: int, means: dict[str, float]) -> None:
        """Append one stretch."""
        self.steps.append(step)
        for name, mean in means.items():
            self.terms.setdefault(name, []).append(mean)


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each stretch."""

    step: int
    steps: int
    value: float
    seconds_left: float


COMPILE_FROM = 20_000  # steps from which compiling, up to half a minute, pays for itself
COMPILE_SECONDS = 120.0  # the shortest time budget that leaves room for it
_BUILDING = threading.RLock()  # torch initialises weights from one generator for all threads
OnStep = Callable[[Progress], bool | None]  # True ends the run


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

    posterior: PosteriorLVM
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
    """Maximise the objective in place. Parameters that do not require gradients stay as they are.

    Ctrl-C ends training and keeps what is there. A value that is not finite takes the last good state back
    and goes on at half the rate; after five such falls TrainingFailed is raised.
    """
    return train_many([Run(posterior, objective, obs, config, seed)], on_step)[0]


def train_many(runs: Sequence[Run], on_step: OnStep | None = None, watch: OnStep | None = None) -> list[History]:
    """Train models of one shape side by side, in one batched step; each ends as if it were trained alone.

    Models, data and batches must have equal shapes, and the runs equal lengths; seeds, rates, warm-ups and
    the numbers that objectives hold as buffers may differ. `on_step` is told of their mean; `watch` too, and while it
    looks at them, the models have averages of their parameters. If one of them fails for good, all do.
    """
    shared = {(r.config.steps, r.config.batch_size, r.config.check_every, r.config.max_seconds) for r in runs}
    if len(shared) > 1:
        raise InvalidData(f"Side by side, steps, batches and time must be equal, got {sorted(shared, key=str)}.")
    device = runs[0].obs.values.device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), torch.enable_grad():
        return _train_many(runs, on_step, watch)


def _train_many(runs: Sequence[Run], on_step: OnStep | None, watch: OnStep | None) -> list[History]:
    config, samples = runs[0].config, len(runs[0].obs)
    stepper = Stepper(
        [Trained(run.posterior, run.objective) for run in runs],
        [run.obs for run in runs],
        [run.seed for run in runs],
        [run.config.clip_norm for run in runs],
        averaging=watch is not None,
    )
    how, order = "", [batches(samples, config.batch_size, run.seed) for run in runs]
    falls = torch.zeros(len(runs))
    history, started, done = [History() for _ in runs], time.monotonic(), 0
    good = stepper.flat.clone()

    def out_of_time() -> bool:
        return config.max_seconds is not None and time.monotonic() - started > config.max_seconds

    try:
        while (progress := _progress(done, time.monotonic() - started, config)) < 1:
            ahead = [progress + (1 - progress) * i / (config.steps - done) for i in range(config.check_every)]
            stepper.plan(
                done,
                torch.stack([torch.stack([next(rows) for rows in order]) for _ in ahead]),
                torch.tensor([[run.config.rate_at(share) for run in runs] for share in ahead]) / 2**falls,
                torch.tensor([[run.config.warmup_at(share) for run in runs] for share in ahead]),
            )
            if done == 0:
                how = stepper.accelerate(_worth_compiling(config))
            length = 0
            while length < min(config.check_every, config.steps - done) and not (length and out_of_time()):
                stepper.step()
                length += 1
            done += length
            finite = stepper.finite().cpu()
            means = (stepper.totals / length).tolist()
            if not finite.all():
                falls += ~finite
                stepper.restore(good, ~finite, done)
                if falls.max() > 5:
                    raise TrainingFailed(_failure(done, dict(zip(stepper.names, means[int(falls.argmax())], strict=True))))
            good = stepper.flat.clone()
            for i, record in enumerate(history):
                if finite[i]:
                    record.add(done, dict(zip(stepper.names, means[i], strict=True)))
            elapsed = time.monotonic() - started
            left = elapsed * (1 / max(_progress(done, elapsed, config), 1e-9) - 1)
            told = Progress(done, config.steps, sum(row[0] for row in means) / len(means), left)
            if (on_step is not None and on_step(told)) or (watch is not None and _watched(stepper, watch, told)):
                _end(history, f"ended by its callback after {done} of {config.steps} steps")
                break
        else:
            if done < config.steps:
                _end(history, f"out of time after {done} of {config.steps} steps")
    except KeyboardInterrupt:
        stepper.flat.copy_(good)
        _end(history, f"interrupted after {done} of {config.steps} steps", interrupted=True)
    finally:
        stepper.release()
    if any(not record.steps for record in history) and falls.any():
        raise TrainingFailed(_failure(done, {}))
    for record in history:
        record.seconds, record.step = time.monotonic() - started, how
    return history


def _watched(stepper: Stepper, watch: OnStep, told: Progress) -> bool:
    with stepper.averaged(), torch.no_grad():
        return bool(watch(told))


def _worth_compiling(config: TrainingConfig) -> bool:
    return config.steps >= COMPILE_FROM and (config.max_seconds is None or config.max_seconds >= COMPILE_SECONDS)


def _end(history: list[History], how: str, interrupted: bool = False) -> None:
    for record in history:
        record.ended, record.interrupted = how, interrupted


def _progress(step: int, elapsed: float, config: TrainingConfig) -> float:
    """The share of the run that is over, by steps or by time, whichever is further."""
    return max(step / config.steps, elapsed / config.max_seconds if config.max_seconds else 0.0)


def _failure(step: int, means: dict[str, float]) -> str:
    terms = ", ".join(f"{name} {mean:.4g}" for name, mean in means.items())
    return (
        f"The objective was not finite at step {step} ({terms}), again and again after going back to the last good "
        "state at half the learning rate. Expected finite numbers; look for extreme outliers in the data, scale them, "
        "or lower learning_rate."
    )
