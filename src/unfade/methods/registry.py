"""The methods by name: a recipe each, what it uses where the user says nothing, and how recipes are run."""

import copy
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations, by_columns, variance
from unfade.data.options import TOLD
from unfade.errors import InvalidData
from unfade.methods import recipes
from unfade.methods.recipes import NARROW, Recipe, Stage, Task
from unfade.models.architectures import PAPER, AnyArchitecture, Architecture, ConvArchitecture
from unfade.models.baselines import NearestPixels, marginals
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import linear_posterior, resampled_factors
from unfade.training.early_stopping import train_watched
from unfade.training.loop import History, TrainingConfig, train_many

DEFAULT_TRAINING = TrainingConfig()
IMAGE_TRAINING = TrainingConfig(batch_size=8, learning_rate=1e-3)
IMAGE_PIXELS = 640_000  # of a batch: two of 640 x 480, which is some gigabytes of maps
LINEAR_MEMBERS, LINEAR_TOLERANCE, LINEAR_CELLS = 16, 1.01, 200_000  # of the linear model that small tables are also given
SIMPLE_TOLERANCE = 1.02  # of CRPS: networks that are further behind a simple method on held-out cells are not given
PAPER_TRAINING = TrainingConfig(steps=500_000, batch_size=20, learning_rate=2e-4, decay=0.0)


def members_for(method: str, features: int) -> int:
    """How many posteriors stand side by side: several for small tables, where one alone is too sure of itself."""
    return METHODS[method].members if features <= NARROW else 1


def refine_for(method: str, architecture: AnyArchitecture, predictive: bool) -> int:
    """Candidates a draw is chosen from.

    None where the decoder sees y, so is no prior, none for images' many z, and none where q(x|y) is trained by what it
    predicts: its plain draws are better.
    """
    none = architecture.decoder_sees or isinstance(architecture, ConvArchitecture) or predictive
    return 0 if none else METHODS[method].refine


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

    refine: candidates a draw is chosen from; architecture: None means sizes chosen from the data.
    seeing: the recipe for a decoder that sees y, q(x|z,y); None where it is also the model p(x|z), which must not see y.
    mixed: whether it takes steps and categories; it must then use nothing of x but p(y|z). members: posteriors that
    are trained side by side for small tables, each from a start of its own.
    """

    recipe: Callable[..., Recipe]
    refine: int
    training: TrainingConfig = DEFAULT_TRAINING
    architecture: Architecture | None = None
    seeing: Callable[..., Recipe] | None = None
    mixed: bool = True
    members: int = 1


METHODS = {
    "tae": Method(recipes.tae, refine=200, seeing=recipes.seeing_tae, members=4),
    "tae-paper": Method(recipes.paper_tae, 0, PAPER_TRAINING, PAPER, seeing=recipes.paper_tae, mixed=False),
    "mvae": Method(recipes.mvae, refine=0),
    "miwae": Method(recipes.miwae, refine=200),
}


def fit_method(name: str, task: Task, settings: dict[str, Any]) -> PosteriorLVM:
    """Fit a method by its name with its own settings; what happened is in `task.histories`."""
    return fit_many(name, [task], [settings])[0]


def fit_ensembles(name: str, tasks: Sequence[Task], settings: dict[str, Any], members: int) -> list[Ensemble]:
    """For each task as many posteriors as one, all side by side; they differ in their seeds.

    Where a task allows it and a linear model predicts held-out cells as well, it takes the place of the networks; so does
    a simple method where they predict held-out cells worse. A task keeps the histories of its first member.
    """
    alike = [
        replace(task, corruption=copy.deepcopy(task.corruption), seed=task.seed + 100 * member, histories=[])
        if member
        else task
        for task in tasks
        for member in range(members)
    ]
    learned = [task.corruption.learned for task in tasks]
    posteriors = fit_many(name, alike, [settings] * len(alike))
    parts = [posteriors[first : first + members] for first in range(0, len(alike), members)]
    found: list[Ensemble] = []
    for task, part, noise_learned in zip(tasks, parts, learned, strict=True):
        corruption = part[0].corruption
        instead = _linear_instead(task, corruption) if task.linear and members > 1 else None
        found.append(Ensemble(_simple_instead(task, corruption, noise_learned) or instead or part))
    return found


def _linear_instead(task: Task, corruption: Corruption) -> list[PosteriorLVM] | None:
    """Linear models that take the place of networks, if they predict held-out cells nearly as well."""
    split, by_networks, started = task.split, task.predicted, time.monotonic()
    late = task.interrupted or (task.deadline is not None and started > task.deadline)
    if split is None or by_networks is None or late or corruption.categorical or task.obs.values.numel() > LINEAR_CELLS:
        return None
    noise = corruption.std.detach()

    def fitted(obs: Observations, count: int) -> list[PosteriorLVM]:
        every = resampled_factors(obs, noise, count, task.seed)
        return [linear_posterior(factors, copy.deepcopy(corruption)) for factors in every]

    try:
        predicted = split.predict(fitted(split.seen, 4), task.refine)
        linear_score, score = (split.crps(x.to(noise.device), corruption) for x in (predicted, by_networks))
        taken = linear_score <= LINEAR_TOLERANCE * score
        found = fitted(task.obs, LINEAR_MEMBERS) if taken else []
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # columns that are not to be told apart
        return None
    if taken:
        task.predicted = predicted.cpu()
    which = "the linear model, not networks" if taken else "networks, not the linear model"
    said = f"{which}: CRPS of held-out cells {linear_score:.4f} by the linear model, {score:.4f} by networks"
    task.histories.append(History(seconds=time.monotonic() - started, ended=said))
    return found


def _simple_instead(task: Task, corruption: Corruption, learned: bool) -> list[nn.Module] | None:
    """The nearest pixels of images, or else marginals, if what was trained predicts held-out cells worse than they do."""
    split, by_trained, started = task.split, task.predicted, time.monotonic()
    if split is None or by_trained is None:
        return None
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
        return None
    task.predicted, task.simple = predicted.cpu(), name
    said = f"{name}, not networks: CRPS of held-out cells {simple_score:.4f} by {name}, {score:.4f} by networks"
    task.histories.append(History(seconds=time.monotonic() - started, ended=said))
    return [simple if task.image is not None else marginals(task.obs, untold)]


def fit_many(name: str, tasks: Sequence[Task], settings: Sequence[dict[str, Any]]) -> list[PosteriorLVM]:
    """Fit tasks of one shape side by side: each as `fit_method` would alone, but that they share their number of steps."""
    started = [_start(name, task, each) for task, each in zip(tasks, settings, strict=True)]
    while True:
        steps = [_advance(recipe) for recipe in started]
        stages = [step for step in steps if isinstance(step, Stage)]
        if not stages:
            return [step for step in steps if isinstance(step, PosteriorLVM)]
        if len(stages) < len(steps):
            raise InvalidData(
                "Side by side, all models take the same stages: expected settings that differ in numbers only."
            )
        if not tasks[0].interrupted:  # once a stage was interrupted, what is there is kept as it is
            _train(tasks, stages)


def _train(tasks: Sequence[Task], stages: Sequence[Stage]) -> None:
    first, now = tasks[0], time.monotonic()
    runs = [task.run_of(stage, now) for task, stage in zip(tasks, stages, strict=True)]
    if stages[0].watched and not first.fixed_steps:
        watched = train_watched(runs, first.refine, first.on_step, first.checkpoint, stages[0].hold)
        histories = watched.histories
        for task in tasks:
            task.training = replace(task.training, steps=watched.steps)
        for task, split, predicted in zip(tasks, watched.splits, watched.predicted, strict=False):
            task.split, task.predicted = split, predicted
    else:
        histories = [[history] for history in train_many(runs, first.on_step, checkpoint=first.checkpoint)]
    for task, found in zip(tasks, histories, strict=True):
        task.keep(found)
    if stages[0].finds_noise:
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


def _advance(recipe: Recipe) -> Stage | PosteriorLVM:
    """The next stage of a recipe, or what it ends with."""
    try:
        return next(recipe)
    except StopIteration as end:
        return end.value.requires_grad_(False).eval()
