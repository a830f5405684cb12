"""The methods by name: a recipe each, what it uses where the user says nothing, and how recipes are run."""

import copy
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from unfade.data.observations import Observations, by_columns, variance
from unfade.data.options import TOLD
from unfade.errors import InvalidData
from unfade.methods import recipes
from unfade.methods.recipes import NARROW, Recipe, Stage, Task
from unfade.models.architectures import PAPER, AnyArchitecture, Architecture, ConvArchitecture
from unfade.models.baselines import NearestPixels, marginals
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import linear_posterior, resampled_factors
from unfade.training.early_stopping import Split, train_watched
from unfade.training.loop import Ended, History, Run, TrainingConfig, train_many

P = TypeVar("P", covariant=True)
DEFAULT_TRAINING = TrainingConfig()
IMAGE_TRAINING = TrainingConfig(batch_size=8, learning_rate=1e-3)
IMAGE_PIXELS = 640_000  # of a batch: two of 640 x 480, which is some gigabytes of maps
LINEAR_MEMBERS, LINEAR_TOLERANCE, LINEAR_CELLS = 16, 1.01, 200_000  # of the linear model that small tables are also given
SIMPLE_TOLERANCE = 1.02  # of CRPS: networks that are further behind a simple method on held-out cells are not given
PAPER_TRAINING = TrainingConfig(steps=500_000, batch_size=20, learning_rate=2e-4, decay=0.0)


def members_for(method: str, features: int) -> int:
    """How many posteriors stand side by side: several for small tables, where one alone is too sure of itself."""
    return METHODS[method].members if features <= NARROW else 1


def candidates_for(method: str, architecture: AnyArchitecture, predictive: bool) -> int:
    """Candidates a draw is chosen from.

    None where the decoder sees y, so is no prior, none for images' many z, and none where q(x|y) is trained by what it
    predicts: its plain draws are better.
    """
    none = architecture.decoder_sees or isinstance(architecture, ConvArchitecture) or predictive
    return 0 if none else METHODS[method].n_candidates


def training_for(
    method: str, members: int, samples: int, pixels: int | None = None, predictive: bool = False
) -> TrainingConfig:
    """How to train: half a batch for members that stand side by side, and for small tables; of images as many as fit.

    predictive: for what is trained by what it predicts, whose steps cost less than others' and gain for longer.
    """
    training = METHODS[method].training
    if pixels is not None and training is DEFAULT_TRAINING:
        return replace(IMAGE_TRAINING, batch_size=max(1, min(IMAGE_TRAINING.batch_size, IMAGE_PIXELS // pixels)))
    if predictive and training is DEFAULT_TRAINING:
        return replace(training, steps=2 * training.steps)
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

    recipe: Callable[..., Recipe]
    n_candidates: int
    training: TrainingConfig = DEFAULT_TRAINING
    architecture: Architecture | None = None
    seeing: Callable[..., Recipe] | None = None
    mixed: bool = True
    members: int = 1


METHODS = {
    "tae": Method(recipes.tae, n_candidates=200, seeing=recipes.seeing_tae, members=4),
    "tae-paper": Method(recipes.paper_tae, 0, PAPER_TRAINING, PAPER, seeing=recipes.paper_tae, mixed=False),
    "mvae": Method(recipes.mvae, n_candidates=0),
    "miwae": Method(recipes.miwae, n_candidates=200),
}


@dataclass(frozen=True)
class FitResult(Generic[P]):
    """What a fit found.

    posterior: of one model, or an ensemble; histories: of each stage of the first member. split, predicted: cells that were
    held out to find how long to train, and draws of their clean values; None where none were. replaced_by: the simple
    method that is given in place of what was trained, if one is.
    """

    posterior: P
    histories: tuple[History, ...] = ()
    split: Split | None = None
    predicted: Tensor | None = None
    replaced_by: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended training."""
        return any(history.interrupted for history in self.histories)


def fit_method(name: str, task: Task, settings: dict[str, Any]) -> FitResult[PosteriorLVM]:
    """Fit a method by its name with its own settings."""
    return fit_many(name, [task], [settings])[0]


def fit_ensembles(name: str, tasks: Sequence[Task], settings: dict[str, Any], members: int) -> list[FitResult[Ensemble]]:
    """Fit for each task as many posteriors as one, all side by side; they differ in their seeds.

    Where a task allows it and a linear model predicts held-out cells as well, it takes the place of the networks; so does
    a simple method where they predict held-out cells worse.
    """
    alike = [
        replace(task, corruption=copy.deepcopy(task.corruption), seed=task.seed + 100 * member) if member else task
        for task in tasks
        for member in range(members)
    ]
    learned = [task.corruption.learned for task in tasks]
    fits = fit_many(name, alike, [settings] * len(alike))
    found = []
    for number, (task, noise_learned) in enumerate(zip(tasks, learned, strict=True)):
        part = fits[number * members : (number + 1) * members]
        first, posterior = part[0], Ensemble([fit.posterior for fit in part])
        result = FitResult(posterior, first.histories, first.split, first.predicted)
        if task.linear and members > 1:
            result = _linear_instead(task, result)
        found.append(_simple_instead(task, result, noise_learned))
    return found


def _linear_instead(task: Task, fit: FitResult[Ensemble]) -> FitResult[Ensemble]:
    """Put linear models in the place of networks, if they predict held-out cells nearly as well."""
    split, by_networks, started = fit.split, fit.predicted, time.monotonic()
    corruption = fit.posterior.each[0].corruption
    late = fit.interrupted or (task.deadline is not None and started > task.deadline)
    if split is None or by_networks is None or late or corruption.categorical or task.obs.values.numel() > LINEAR_CELLS:
        return fit
    noise = corruption.std.detach()

    def fitted(obs: Observations, count: int) -> list[PosteriorLVM]:
        every = resampled_factors(obs, noise, count, task.seed)
        return [linear_posterior(factors, copy.deepcopy(corruption)) for factors in every]

    try:
        predicted = split.predict(fitted(split.seen, 4), task.n_candidates)
        linear_score, score = (split.crps(x.to(noise.device), corruption) for x in (predicted, by_networks))
        taken = linear_score <= LINEAR_TOLERANCE * score
        posteriors = fitted(task.obs, LINEAR_MEMBERS) if taken else []
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # columns that are not to be told apart
        return fit
    which = "the linear model, not networks" if taken else "networks, not the linear model"
    said = f"{which}: CRPS of held-out cells {linear_score:.4f} by the linear model, {score:.4f} by networks"
    fit = replace(fit, histories=(*fit.histories, _chosen(said, started)))
    return replace(fit, posterior=Ensemble(posteriors), predicted=predicted.cpu()) if taken else fit


def _simple_instead(task: Task, fit: FitResult[Ensemble], learned: bool) -> FitResult[Ensemble]:
    """Put the nearest pixels of images, or else marginals, in the place of what predicts held-out cells worse than they."""
    split, by_trained, started = fit.split, fit.predicted, time.monotonic()
    if split is None or by_trained is None:
        return fit
    corruption = fit.posterior.each[0].corruption
    untold = copy.deepcopy(corruption)
    if learned:  # a level that was found by what does worse than a simple method says nothing
        untold.forget_noise()
    name = "independent columns" if task.image is None else "the nearest pixel"
    simple: nn.Module
    if task.image is None:
        simple = marginals(split.seen, untold)
    else:
        places = torch.arange(task.features) if task.places is None else task.places
        simple = NearestPixels(task.image, places, untold).to(split.given.values).learn(split.given, split.held)
    predicted = split.predict([cast(PosteriorLVM, simple)])
    simple_score = split.crps(predicted, untold)
    score = split.crps(by_trained.to(predicted.device), corruption)
    if score <= SIMPLE_TOLERANCE * simple_score:
        return fit
    said = f"{name}, not networks: CRPS of held-out cells {simple_score:.4f} by {name}, {score:.4f} by networks"
    posterior = Ensemble([simple if task.image is not None else marginals(task.obs, untold)])
    histories = (*fit.histories, _chosen(said, started))
    return replace(fit, posterior=posterior, predicted=predicted.cpu(), replaced_by=name, histories=histories)


def _chosen(said: str, started: float) -> History:
    return History(seconds=time.monotonic() - started, ended=Ended.NOT_TRAINED, note=said)


class _Fitting:
    """A recipe on its way: the stage that it has come to, and what happened so far."""

    def __init__(self, task: Task, recipe: Recipe):
        self.task, self.recipe = task, recipe
        self.steps = task.training.steps
        self.histories: list[History] = []
        self.split: Split | None = None
        self.predicted: Tensor | None = None
        self.stage: Stage | None = None
        self.posterior: PosteriorLVM | None = None

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
        config = replace(task.training, steps=max(1, int(self.steps * stage.share)), max_seconds=seconds)
        config = config if stage.warmup is None else replace(config, warmup=stage.warmup)
        return Run(stage.posterior, stage.objective.to(task.obs.values), task.obs, config, task.seed + len(self.histories))

    def result(self) -> FitResult[PosteriorLVM]:
        """What was found."""
        assert self.posterior is not None
        return FitResult(self.posterior, tuple(self.histories), self.split, self.predicted)


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
    if stages[0].watched and not first.fixed_steps:
        watched = train_watched(runs, first.n_candidates, first.on_step, first.checkpoint, stages[0].hold)
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


@torch.no_grad()
def _settle_noise(tasks: Sequence[Task]) -> None:
    """Models of the same data take the mean of the levels they found, where there is one a column.

    A level that takes half of what a column varies by, or more, is the column's own spread as much as noise, as others
    do not explain it: such a column is taken as exact.
    """
    obs, corruptions = tasks[0].obs, [task.corruption for task in tasks]
    if not corruptions[0].by_entry:
        return
    level = torch.stack([corruption.std for corruption in corruptions]).mean(0)
    _, sd = by_columns(variance, obs.values.double(), obs.observed)
    untold = (level.square() >= (1 - TOLD) * sd.square()) & corruptions[0].searched
    for corruption in corruptions:
        corruption.set_level(level)
        corruption.forget_noise(untold)


def _start(name: str, task: Task, settings: dict[str, Any]) -> Recipe:
    recipe = METHODS[name].seeing if task.architecture.decoder_sees else METHODS[name].recipe
    if recipe is None:
        raise InvalidData(f"method {name!r} uses its decoder as a model of p(x), so it must not see y: decoder_sees=False.")
    known = set(inspect.signature(recipe).parameters) - {"task"}
    if unknown := sorted(set(settings) - known):
        raise InvalidData(f"method {name!r} has the settings {sorted(known)}, got {unknown}.")
    return recipe(task, **settings)
