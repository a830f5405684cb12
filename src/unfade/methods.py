"""The methods by name: each a recipe that yields one stage after another, and ends with a posterior."""

import copy
import inspect
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unfade.architectures import PAPER, AnyArchitecture, Architecture, ConvArchitecture
from unfade.checkpoints import Checkpoint
from unfade.corruption import Corruption
from unfade.errors import InvalidData
from unfade.linear import linear_posterior, resampled_factors
from unfade.models import Ensemble, PosteriorLVM, PriorLVM
from unfade.objectives import (
    MIWAE,
    MVAE,
    TAE,
    ForwardKL,
    Objective,
    PaperTAE,
    Predictive,
    PredictiveCRPS,
    hide_boxes,
    hide_share,
)
from unfade.observations import Observations
from unfade.training import History, OnStep, Run, TrainingConfig, scoped_seed, train_many
from unfade.watching import HoldOut, Split, hold_out, hold_out_as, train_watched

DEFAULT_TRAINING = TrainingConfig()
IMAGE_TRAINING = TrainingConfig(batch_size=8, learning_rate=1e-3)
IMAGE_PIXELS = 640_000  # of a batch: two of 640 x 480, which is some gigabytes of maps
NARROW = 64  # numbers up to which data count as narrow: among a few hundred candidates of z some fit y
LINEAR_MEMBERS, LINEAR_TOLERANCE, LINEAR_CELLS = 16, 1.01, 200_000  # of the linear model that small tables are also given
PAPER_TRAINING = TrainingConfig(steps=500_000, batch_size=20, learning_rate=2e-4, decay=0.0)


def members_for(method: str, features: int) -> int:
    """How many posteriors stand side by side: several for small tables, where one alone is too sure of itself."""
    return METHODS[method].members if features <= NARROW else 1


def refine_for(method: str, architecture: AnyArchitecture, numbers: int) -> int:
    """Candidates a draw is chosen from.

    None where the decoder sees y, so is no prior, none for images' many z, and none where q(x|y) was trained by what it
    predicts: its plain draws are better. numbers: features that are no category's.
    """
    predictive = method == "tae" and numbers > NARROW
    none = architecture.decoder_sees or isinstance(architecture, ConvArchitecture) or predictive
    return 0 if none else METHODS[method].refine


def training_for(method: str, members: int, samples: int, pixels: int | None = None) -> TrainingConfig:
    """How to train: half a batch for members that stand side by side, and for small tables; of images as many as fit."""
    training = METHODS[method].training
    if pixels is not None and training is DEFAULT_TRAINING:
        return replace(IMAGE_TRAINING, batch_size=max(1, min(IMAGE_TRAINING.batch_size, IMAGE_PIXELS // pixels)))
    half = training is DEFAULT_TRAINING and (members > 1 or samples < 5000)
    return replace(training, batch_size=training.batch_size // 2) if half else training


@dataclass(frozen=True)
class Stage:
    """A part of a recipe: what to train by what, for a share of the steps and of the time that is left.

    watched: for as long as observed cells say that `hold` holds out, unless the number of steps is fixed; the steps it
    took are what the shares of later stages refer to.
    """

    posterior: PosteriorLVM
    objective: Objective
    share: float = 1.0
    time_share: float = 1.0
    watched: bool = False
    hold: HoldOut = hold_out


Recipe = Generator[Stage, None, PosteriorLVM]


@dataclass
class Task:
    """What every recipe is given: the data and settings; and what became of them.

    refine: candidates that draws are chosen from, used where held-out cells are predicted. deadline: by
    time.monotonic(); each stage takes its share of the time that is left. linear: whether a linear model may take
    the place of networks. split, predicted: cells that were held out to find how long to train, and draws of their clean
    values. checkpoint: keeps what training has reached.
    """

    obs: Observations
    corruption: Corruption
    architecture: AnyArchitecture
    training: TrainingConfig
    seed: int
    refine: int = 0
    fixed_steps: bool = False
    deadline: float | None = None
    on_step: OnStep | None = None
    histories: list[History] = field(default_factory=list)
    interrupted: bool = False
    linear: bool = False
    split: Split | None = None
    predicted: Tensor | None = None
    checkpoint: Checkpoint | None = None

    @property
    def features(self) -> int:
        """Number of entries of a sample."""
        return self.obs.event_shape.numel()

    def posterior(self, conditioned: bool = True, infer_noise: bool = False) -> PosteriorLVM:
        """A fresh posterior on the data's device."""
        posterior = build_posterior(self.architecture, self.features, self.corruption, conditioned, infer_noise, self.seed)
        return posterior.to(self.obs.values)

    def run_of(self, stage: Stage, now: float) -> Run:
        """A stage that begins `now`, as `train_many` takes it."""
        seconds = None if self.deadline is None else max(1e-3, stage.time_share * (self.deadline - now))
        config = replace(self.training, steps=max(1, int(self.training.steps * stage.share)), max_seconds=seconds)
        objective = stage.objective.to(self.obs.values)
        return Run(stage.posterior, objective, self.obs, config, self.seed + len(self.histories))

    def keep(self, histories: list[History]) -> None:
        """Record what happened."""
        self.histories += histories
        self.interrupted = histories[-1].interrupted


def build_posterior(
    architecture: AnyArchitecture,
    features: int,
    corruption: Corruption,
    conditioned: bool,
    infer_noise: bool,
    seed: int = 0,
) -> PosteriorLVM:
    """A posterior with fresh weights from `seed`."""
    with scoped_seed(seed):
        return PosteriorLVM(
            architecture.encoder(2 * features),
            architecture.decoder(features),
            corruption,
            conditioned,
            architecture.decoder_sees,
            architecture.unknowns(features) if infer_noise else None,
        )


def _noise_stage(task: Task, posterior: PosteriorLVM, objective: Objective) -> Iterator[Stage]:
    """A short first stage that finds the noise level, if it is to be learned, and freezes it for the rest.

    Noise and decoder variance are not told apart by the likelihood, which sees their sum: the noise
    starts high and the decoder low, so that the noise falls to the smallest sd of any entry. Trained
    on, it would go on falling as the networks begin to fit the noise itself.
    """
    noise = posterior.corruption
    if noise.learned:
        posterior.decoder.offset.fill_(2 * float((noise.std.detach() / 16).log().mean()))
        share = max(0.1, min(1.0, 300 / max(1, task.training.steps)))  # the level needs some 300 steps to fall
        yield Stage(posterior, objective, share, time_share=0.15)
        noise.requires_grad_(False)


def _mvae(task: Task, conditioned: bool = False) -> Recipe:
    return (yield from _alone(task, task.posterior(conditioned), MVAE()))


def _miwae(task: Task, weights: int = 20, conditioned: bool = True) -> Recipe:
    return (yield from _alone(task, task.posterior(conditioned), MIWAE(weights)))


def _alone(task: Task, posterior: PosteriorLVM, objective: Objective, time_share: float = 1.0) -> Recipe:
    yield from _noise_stage(task, posterior, objective)
    yield Stage(posterior, objective, time_share=time_share, watched=True, hold=_hold(task))
    return posterior


def _paper_tae(
    task: Task,
    lam: float = 2.0,
    C: float = 10.0,
    penalty: str = "sample",
    gamma_floor: float = 0.01,
    gamma_start: float = 0.1,
    gamma_end: float = 0.2,
    infer_noise: bool = False,
) -> Recipe:
    """The paper's model with the settings of supplement C (gamma rises between 50,000 and 100,000 of 500,000 steps)."""
    if penalty not in ("sample", "expectation"):
        raise InvalidData(f"penalty must be 'sample' or 'expectation', got {penalty!r}.")
    architecture, features = task.architecture, task.features
    sees = architecture.decoder_sees
    with scoped_seed(task.seed + 1):
        inverter = architecture.encoder(3 * features if sees else features)
        objective = PaperTAE(architecture.prior(features), inverter, sees, lam, C, penalty)
    posterior = task.posterior(conditioned=False, infer_noise=infer_noise)
    task.training = replace(task.training, warmup=(gamma_start, gamma_end, gamma_floor))
    yield Stage(posterior, objective)
    return posterior


def _tae(
    task: Task,
    weights: int = 8,
    posterior: str = "auto",
    posterior_weights: int = 20,
    posterior_share: float = 0.15,
    sharpness: float = 10.0,
) -> Recipe:
    """Noise; then, of wide data, a posterior by what it predicts; of others a prior, and after it one of POSTERIOR_STAGES.

    posterior: "auto", "predictive" or a stage's name; weights: of the prior's bound; sharpness: weight of the energy score.
    """
    if posterior == "auto":
        posterior = "forward" if task.features - task.corruption.categorical <= NARROW else "predictive"
    if posterior == "predictive":
        own = task.posterior()
        own.own_prior = True
        return (yield from _alone(task, own, Predictive(hide_share, sharpness)))
    if posterior not in POSTERIOR_STAGES:
        raise InvalidData(f"posterior must be one of {['auto', 'predictive', *POSTERIOR_STAGES]}, got {posterior!r}.")
    model = yield from _alone(task, task.posterior(), MIWAE(weights), time_share=0.8)
    return (yield from POSTERIOR_STAGES[posterior](task, model, posterior_weights, posterior_share))


def _seeing_tae(task: Task) -> Recipe:
    """A decoder that sees y is no prior: its posterior is trained to predict observed pixels that are hidden from it."""
    if not isinstance(task.architecture, ConvArchitecture):
        raise InvalidData("Method 'tae' takes a decoder that sees y for images alone. Use decoder_sees=False.")
    if not bool(task.corruption.exact.all()):
        raise InvalidData("A decoder that sees y needs data without noise. Use decoder_sees=False, or noise=None.")
    image = task.architecture.image
    posterior = task.posterior(conditioned=False)
    yield Stage(posterior, PredictiveCRPS(image, hide_boxes(image)), watched=True, hold=_hold(task))
    return posterior


def _hold(task: Task) -> HoldOut:
    image = task.architecture.image if isinstance(task.architecture, ConvArchitecture) else None
    return hold_out if image is None else hold_out_as(hide_boxes(image))


def _forward_stage(task: Task, model: PosteriorLVM, weights: int, share: float) -> Recipe:
    """The encoder follows the model's own posterior by the forward KL; the model stays."""
    model.requires_grad_(False)
    model.encoder.requires_grad_(True)
    yield Stage(model, ForwardKL(weights), share)
    return model


def _bound_stage(task: Task, model: PosteriorLVM, weights: int, share: float) -> Recipe:
    """The exact TAE bound, started from the model: prior and posterior part ways from there.

    r and q(z_p|x) start fresh and are trained alone at first, else the loose bound would spoil the start.
    """
    with scoped_seed(task.seed + 1):
        prior = PriorLVM(task.architecture.encoder(task.features), copy.deepcopy(model.decoder))
        objective = TAE(prior, task.architecture.encoder(3 * task.features), weights)
    posterior = copy.deepcopy(model)
    posterior.model = model.requires_grad_(False)
    parts = (posterior.encoder, posterior.decoder, prior.decoder)
    for part in parts:
        part.requires_grad_(False)
    yield Stage(posterior, objective, share / 4, time_share=0.2)
    for part in parts:
        part.requires_grad_(True)
    yield Stage(posterior, objective, share)
    return posterior


POSTERIOR_STAGES = {"forward": _forward_stage, "bound": _bound_stage}


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
    "tae": Method(_tae, refine=200, seeing=_seeing_tae, members=4),
    "tae-paper": Method(_paper_tae, 0, PAPER_TRAINING, PAPER, seeing=_paper_tae, mixed=False),
    "mvae": Method(_mvae, refine=0),
    "miwae": Method(_miwae, refine=200),
}


def fit_method(name: str, task: Task, settings: dict[str, Any]) -> PosteriorLVM:
    """Fit a method by its name with its own settings; what happened is in `task.histories`."""
    return fit_many(name, [task], [settings])[0]


def fit_ensembles(name: str, tasks: Sequence[Task], settings: dict[str, Any], members: int) -> list[Ensemble]:
    """For each task as many posteriors as one, all side by side; they differ in their seeds.

    Where a task allows it and a linear model predicts held-out cells as well, it takes the place of the networks. A task
    keeps the histories of its first member.
    """
    alike = [
        replace(task, corruption=copy.deepcopy(task.corruption), seed=task.seed + 100 * member, histories=[])
        if member
        else task
        for task in tasks
        for member in range(members)
    ]
    posteriors = fit_many(name, alike, [settings] * len(alike))
    parts = [posteriors[first : first + members] for first in range(0, len(alike), members)]
    return [
        Ensemble((task.linear and members > 1 and _linear_instead(task, part[0].corruption)) or part)
        for task, part in zip(tasks, parts, strict=True)
    ]


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


def fit_many(name: str, tasks: Sequence[Task], settings: Sequence[dict[str, Any]]) -> list[PosteriorLVM]:
    """Fit tasks of one shape side by side: each as `fit_method` would alone, but that they share their number of steps."""
    recipes = [_start(name, task, each) for task, each in zip(tasks, settings, strict=True)]
    while True:
        steps = [_advance(recipe) for recipe in recipes]
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
