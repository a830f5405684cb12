"""The methods by name: a recipe each, its defaults, and how recipes are run."""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from unfade.data.observations import by_columns, variance
from unfade.data.options import IDENTIFIED
from unfade.errors import InvalidData
from unfade.methods import recipes
from unfade.methods.flow import flow
from unfade.methods.recipes import NARROW, FlowRecipe, Recipe, Stage, Task
from unfade.models.architectures import PAPER, AnyArchitecture, Architecture, FlowArchitecture, of_images
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.training.early_stopping import Split, train_watched
from unfade.training.loop import History, Run, TrainingConfig, train_many

P = TypeVar("P", covariant=True)
DEFAULT_TRAINING = TrainingConfig()
STACKED_TRAINING = TrainingConfig(steps=1200, batch_size=512, learning_rate=6e-3)  # few large steps: least CPU time
LARGEST_STEPS, TIMED_STEPS = 4000, 8000  # of large tables; where the user says how many seconds they have
IMAGE_TRAINING = TrainingConfig(batch_size=8, learning_rate=1e-3)
IMAGE_PIXELS = 640_000  # of a batch: two of 640 x 480, which is some gigabytes of maps
PAPER_TRAINING = TrainingConfig(steps=500_000, batch_size=20, learning_rate=2e-4, decay=0.0)


def members_for(method: str, features: int, stacked: bool) -> int:
    """Decide how many networks to train: several for small tables, where one alone has too narrow intervals."""
    return METHODS[method].members if features <= NARROW and not stacked else 1


def candidates_for(method: str, architecture: AnyArchitecture, predictive: bool) -> int:
    """Proposals a draw is resampled from.

    None where the decoder sees y, so is no prior, none for images' many z, and none where q(x|y) is trained by what it
    predicts: its plain draws are better.
    """
    none = architecture.decoder_sees or of_images(architecture) or predictive  # a flow's sees y
    return 0 if none else METHODS[method].n_candidates


def training_for(
    method: str,
    members: int,
    samples: int,
    pixels: int | None = None,
    predictive: bool = False,
    stacked: bool = False,
    timed: bool = False,
) -> TrainingConfig:
    """Decide how to train: half a batch for ensemble members and small tables; of images as many as fit.

    predictive: for masked prediction, whose steps cost less than others' and gain for longer. stacked: beside other models,
    by one network with few weights, in large batches; for longer if timed, by the user's seconds.
    """
    training = METHODS[method].training
    if pixels is not None and training is DEFAULT_TRAINING:
        return replace(IMAGE_TRAINING, batch_size=max(1, min(IMAGE_TRAINING.batch_size, IMAGE_PIXELS // pixels)))
    if predictive and training is DEFAULT_TRAINING:
        return replace(training, steps=2 * training.steps)
    if stacked and training is DEFAULT_TRAINING:
        more = max(STACKED_TRAINING.steps, min(LARGEST_STEPS, samples // 10))
        return replace(STACKED_TRAINING, steps=TIMED_STEPS if timed else more)
    half = training is DEFAULT_TRAINING and (members > 1 or samples < 5000)
    return replace(training, batch_size=training.batch_size // 2) if half else training


@dataclass(frozen=True)
class Method:
    """A recipe, and what it uses where the user says nothing.

    n_candidates: candidates a draw is chosen from; architecture: None means sizes chosen from the data.
    seeing: the recipe for a decoder that sees y, q(x|z,y); None where it is also the model p(x|z), which must not see y.
    mixed: whether it takes steps and categories; it must then use nothing of x but p(y|z). members: posteriors that
    are trained side by side for small tables, each from a start of its own.
    """

    recipe: Callable[..., Recipe | FlowRecipe]
    n_candidates: int
    training: TrainingConfig = DEFAULT_TRAINING
    architecture: Architecture | None = None
    seeing: Callable[..., Recipe] | None = None
    mixed: bool = True
    members: int = 1


FLOW_TRAINING = TrainingConfig(steps=16_000, batch_size=512, learning_rate=1e-3, clip_norm=1.0, rise=200)
METHODS = {
    "auto": Method(recipes.auto, n_candidates=200, seeing=recipes.seeing, members=4),
    "masked": Method(recipes.masked, n_candidates=0, seeing=recipes.seeing),
    "flow": Method(flow, 0, FLOW_TRAINING, mixed=False),
    "tae": Method(recipes.tae, n_candidates=200, mixed=False),
    "tae-paper": Method(recipes.paper_tae, 0, PAPER_TRAINING, PAPER, seeing=recipes.paper_tae, mixed=False),
    "mvae": Method(recipes.mvae, n_candidates=0),
    "miwae": Method(recipes.miwae, n_candidates=200),
}


@dataclass(frozen=True)
class FitResult(Generic[P]):
    """What a fit found.

    posterior: of one model, or an ensemble; histories: of each stage of the first member. split, predicted: cells that were
    held out to find how long to train, and draws of their clean values; None where none were. replaced_by: the simple
    method that is given in place of what was trained, if one is. steps: how long the first member was trained on all data.
    """

    posterior: P
    histories: tuple[History, ...] = ()
    split: Split | None = None
    predicted: Tensor | None = None
    replaced_by: str = ""
    steps: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended training."""
        return any(history.interrupted for history in self.histories)


def fit_method(name: str, task: Task, settings: dict[str, Any]) -> FitResult[PosteriorLVM]:
    """Fit a method by its name with its own settings."""
    return fit_many(name, [task], [settings])[0]


class _Fitting:
    """A recipe that is being run: the stage that it has come to, and what happened so far."""

    def __init__(self, task: Task, recipe: Recipe | FlowRecipe):
        self.task, self.recipe = task, recipe
        self.steps = task.training.steps
        self.histories: list[History] = []
        self.split: Split | None = None
        self.predicted: Tensor | None = None
        self.stage: Stage | None = None
        self.posterior: PosteriorLVM | FlowPosterior | None = None

    @property
    def interrupted(self) -> bool:
        return bool(self.histories) and self.histories[-1].interrupted

    def advance(self) -> None:
        """Go on to the next stage, or to the posterior that the recipe ends with."""
        try:
            self.stage = next(self.recipe) if self.stage is None else self.recipe.send(self.interrupted)
        except StopIteration as end:
            self.stage, self.posterior = None, end.value.requires_grad_(False).eval()

    def run_of(self, stage: Stage, now: float) -> Run:
        """The stage as `train_many` takes it, if it begins `now`."""
        task = self.task
        seconds = None if task.deadline is None else max(1e-3, stage.time_share * (task.deadline - now))
        training = stage.training or replace(task.training, steps=max(1, int(self.steps * stage.share)))
        config = replace(training, max_seconds=seconds)
        config = config if stage.warmup is None else replace(config, warmup=stage.warmup)
        obs = task.obs if stage.e_step is None else stage.e_step.draws
        return Run(stage.posterior, stage.objective.to(task.obs.values), obs, config, task.seed + len(self.histories))

    def result(self) -> FitResult[PosteriorLVM]:
        """What was found."""
        assert self.posterior is not None
        return FitResult(
            cast(PosteriorLVM, self.posterior), tuple(self.histories), self.split, self.predicted, steps=self.steps
        )


def fit_many(name: str, tasks: Sequence[Task], settings: Sequence[dict[str, Any]]) -> list[FitResult[PosteriorLVM]]:
    """Fit tasks of one shape side by side: each as `fit_method` would alone, but that they share their number of steps."""
    fits = [_Fitting(task, _start(name, task, each)) for task, each in zip(tasks, settings, strict=True)]
    while True:
        for fit in fits:
            fit.advance()
        stages = [fit.stage for fit in fits if fit.stage is not None]
        if not stages:
            return [fit.result() for fit in fits]
        if len(stages) < len(fits):
            raise InvalidData(
                "Side by side, all models take the same stages: expected settings that differ in numbers only."
            )
        if not fits[0].interrupted:  # once a stage was interrupted, what is there is kept as it is
            _train(fits, stages)


def _train(fits: Sequence[_Fitting], stages: Sequence[Stage]) -> None:
    first, now = fits[0].task, time.monotonic()
    runs = [fit.run_of(stage, now) for fit, stage in zip(fits, stages, strict=True)]
    histories: list[list[History]]
    if stages[0].e_step is not None:
        histories = [_train_flow(*each) for each in zip(fits, runs, stages, strict=True)]
    elif stages[0].watched and not first.fixed_steps:
        watched = train_watched(runs, first.n_candidates, first.on_step, first.checkpoint, stages[0].hold, first.rival)
        histories = watched.histories
        for fit in fits:
            fit.steps = watched.steps
        for fit, split, predicted in zip(fits, watched.splits, watched.predicted, strict=False):
            fit.split, fit.predicted = split, predicted
    else:
        histories = [[history] for history in train_many(runs, first.on_step, checkpoint=first.checkpoint)]
    for fit, found in zip(fits, histories, strict=True):
        fit.histories += found
    if stages[0].finds_noise:
        tasks = [fit.task for fit in fits]
        for together in {id(task.obs): [other for other in tasks if other.obs is task.obs] for task in tasks}.values():
            _settle_noise(together)


def _train_flow(fit: _Fitting, run: Run, stage: Stage) -> list[History]:
    """Train a flow, alone: its steps are as much as a device can do."""
    assert stage.e_step is not None
    histories = train_many([run], fit.task.on_step, stage.e_step, fit.task.checkpoint)
    fit.split, fit.predicted = stage.e_step.split, stage.e_step.finish()
    return histories


@torch.no_grad()
def _settle_noise(tasks: Sequence[Task]) -> None:
    """Models of the same data take the mean of the levels they found, where there is one per column.

    A level that takes 3 % of what a column varies by, or more, is the column's own spread as much as noise, as others
    do not explain it: such a column is taken as exact.
    """
    obs, corruptions = tasks[0].obs, [task.corruption for task in tasks]
    if not corruptions[0].by_entry:
        return
    level = torch.stack([corruption.std for corruption in corruptions]).mean(0)
    _, sd = by_columns(variance, obs.values.double(), obs.observed)
    unidentified = (level.square() >= (1 - IDENTIFIED) * sd.square()) & corruptions[0].searched
    for corruption in corruptions:
        corruption.set_level(level)
        corruption.forget_noise(unidentified)


def _start(name: str, task: Task, settings: dict[str, Any]) -> Recipe | FlowRecipe:
    sees = task.architecture.decoder_sees and not isinstance(task.architecture, FlowArchitecture)
    recipe = METHODS[name].seeing if sees else METHODS[name].recipe
    if recipe is None:
        raise InvalidData(f"method {name!r} uses its decoder as a model of p(x), so it must not see y: decoder_sees=False.")
    known = set(inspect.signature(recipe).parameters) - {"task"}
    if unknown := sorted(set(settings) - known):
        raise InvalidData(f"method {name!r} has the settings {sorted(known)}, got {unknown}.")
    return recipe(task, **settings)
