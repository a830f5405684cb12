"""Recipes: how each method trains, as generators that yield one stage after another and end with a posterior."""

import copy
from collections.abc import Generator
from dataclasses import dataclass
from math import prod
from statistics import NormalDist

import torch
from torch import Tensor

from unfade.corruption.growing_noise import GrowingNoise
from unfade.corruption.noise import Corruption, GaussianNoise
from unfade.data.observations import Observations
from unfade.errors import InvalidData
from unfade.models.architectures import AnyArchitecture, ConvArchitecture, FlowArchitecture, LatentArchitecture
from unfade.models.conditional_densities import Gaussian
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM, PriorLVM
from unfade.training.checkpoints import Checkpoint
from unfade.training.early_stopping import HoldOut, Rival, Split, hold_out, hold_out_as
from unfade.training.expectation import ExpectationStep
from unfade.training.loop import OnStep, TrainingConfig, scoped_seed
from unfade.training.objectives import (
    MIWAE,
    MVAE,
    TAE,
    ForwardKL,
    Objective,
    PaperTAE,
    Predictive,
    PredictiveCRPS,
    hide_boxes,
    hide_either,
    hide_holes,
    hide_share,
)

EPOCHS = 20  # over images that the search for their noise level takes at most
NARROW = 64  # numbers a sample up to which resampling works: of a few hundred candidates of z some fit y well


@dataclass(frozen=True)
class Stage:
    """A part of a recipe: what to train by what, for a share of the steps and of the time that is left.

    watched: for as long as observed cells say that `hold` holds out, unless the number of steps is fixed; the steps it
    took are what the shares of later stages refer to. finds_noise: whether it is there to find the noise level. warmup: of
    the objective, in place of the training's. training: in place of the task's. e_step: makes the data of the stage, and
    goes on making them. A recipe is told of each stage whether training was interrupted.
    """

    posterior: PosteriorLVM | FlowPosterior
    objective: Objective
    share: float = 1.0
    time_share: float = 1.0
    watched: bool = False
    hold: HoldOut = hold_out
    finds_noise: bool = False
    warmup: tuple[float, float, float] | None = None
    training: TrainingConfig | None = None
    e_step: ExpectationStep | None = None


Recipe = Generator[Stage, bool, PosteriorLVM]
FlowRecipe = Generator[Stage, bool, FlowPosterior]


@dataclass(frozen=True)
class Task:
    """The data of a fit, and how to fit: what every recipe is given.

    n_candidates: proposals that draws are resampled from, used where held-out cells are predicted. deadline: by
    time.monotonic(); each stage takes its share of the time that is left. stacked: whether a linear model and trees are
    fitted too; split, rival: the held-out cells of all kinds, and what networks are to add to. checkpoint: keeps what
    training has reached. ends: what the decoder's means stay between, (2, features), where the architecture is bounded;
    None: 0 and 1. image, places: height, width and channels of images, and which of their entries the features are;
    image is None for other data.
    """

    obs: Observations
    corruption: Corruption
    architecture: AnyArchitecture
    training: TrainingConfig
    seed: int
    n_candidates: int = 0
    fixed_steps: bool = False
    deadline: float | None = None
    on_step: OnStep | None = None
    stacked: bool = False
    split: Split | None = None
    rival: Rival | None = None
    checkpoint: Checkpoint | None = None
    ends: Tensor | None = None
    image: tuple[int, int, int] | None = None
    places: Tensor | None = None

    @property
    def features(self) -> int:
        """Number of entries of a sample."""
        return self.obs.event_shape.numel()

    @property
    def networks(self) -> LatentArchitecture:
        """Networks of a model with latent variables."""
        if isinstance(self.architecture, FlowArchitecture):
            raise InvalidData("Method 'flow' alone takes a FlowArchitecture. Give an Architecture or a ConvArchitecture.")
        return self.architecture

    def posterior(self, conditioned: bool = True, infer_noise: bool = False, own_prior: bool = False) -> PosteriorLVM:
        """A fresh posterior on the data's device."""
        kind = conditioned, infer_noise, own_prior
        built = build_posterior(self.networks, self.features, self.corruption, *kind, self.seed)
        decoder = built.decoder
        if isinstance(decoder, Gaussian) and decoder.ends is not None and self.ends is not None:
            decoder.ends.copy_(self.ends)
        return built.to(self.obs.values)


def build_posterior(
    architecture: LatentArchitecture,
    features: int,
    corruption: Corruption,
    conditioned: bool,
    infer_noise: bool,
    own_prior: bool = False,
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
            own_prior,
        )


def noise_stage(task: Task, posterior: PosteriorLVM, objective: Objective, most: int) -> Generator[Stage, bool, bool]:
    """A short first stage that finds the noise level and freezes it.

    Noise and decoder variance are not told apart by the likelihood, which sees their sum: the noise
    starts high and the decoder low, so that the noise falls to the smallest sd of any entry. Trained
    on, it would go on falling as the networks begin to fit the noise itself. It falls as fast as the rate
    lets it: the stage has `most` steps or fewer, at rates below 1e-3 more in proportion. Of images it is never more than
    what pixels next to each other say, and few of them are gone through a few times only: wide networks learn a few
    hundred by heart, noise and all.
    """
    noise = posterior.corruption
    plain = isinstance(noise, GaussianNoise) and not isinstance(noise, GrowingNoise)
    roughness = _roughness(task) if plain and task.image is not None else None
    few = torch.inf if roughness is None else EPOCHS * len(task.obs) / task.training.batch_size
    _keep_below(noise, roughness)
    level = noise.std.detach()[noise.std > 0]  # of what carries noise
    posterior.decoder.offset.fill_(2 * float((level / 16).log().mean()))
    steps = task.training.steps
    pace = min(1.0, 1e3 * task.training.learning_rate)
    needed = max(300, min(most, steps // 10)) / pace  # the level needs some 300 to fall
    taken = int(min(steps, needed, max(20, few)))
    interrupted = yield Stage(posterior, objective, taken / steps, time_share=0.15, finds_noise=True)
    _keep_below(noise, roughness)
    noise.requires_grad_(False)
    return interrupted


def _keep_below(noise: Corruption, roughness: float | None) -> None:
    if roughness is not None and isinstance(noise, GaussianNoise):
        noise.keep_below(roughness)


def _roughness(task: Task) -> float | None:
    """The sd of noise that would explain how pixels differ from those next to them: what is left of it is the picture's.

    The median of |a - b - c + d| / 2 over squares of pixels, which is the noise's own wherever the picture is smooth;
    None where that says nothing.
    """
    assert task.image is not None
    values = torch.full((len(task.obs), prod(task.image)), torch.nan)
    places = slice(None) if task.places is None else task.places.cpu()
    values[:, places] = torch.where(task.obs.observed, task.obs.values, torch.nan).float().cpu()
    images = values.reshape(-1, *task.image)
    across = images[:, 1:] - images[:, :-1]
    squares = (across[:, :, 1:] - across[:, :, :-1]).abs() / 2
    found = squares[~squares.isnan()]
    level = float(found.median() / NormalDist().inv_cdf(0.75)) if len(found) else 0.0
    return level or None


def mvae(task: Task, conditioned: bool = False) -> Recipe:
    """One stage by MVAE's bound."""
    return (yield from _alone(task, MVAE(), conditioned=conditioned))


def miwae(task: Task, weights: int = 20, conditioned: bool = True) -> Recipe:
    """One stage by the importance-weighted bound."""
    return (yield from _alone(task, MIWAE(weights), conditioned=conditioned))


def _alone(task: Task, objective: Objective, time_share: float = 1.0, noise_steps: int = 500, **kind: bool) -> Recipe:
    """A posterior of that kind by one objective; the noise level first, and the posterior then again, as if it were known.

    The networks that found the level have seen all cells, also those that are held out from then on.
    """
    posterior = task.posterior(**kind)
    if posterior.corruption.learned:
        interrupted = yield from noise_stage(task, posterior, objective, noise_steps)
        if not interrupted:
            posterior = task.posterior(**kind)
    yield Stage(posterior, objective, time_share=time_share, watched=True, hold=hold_for(task))
    return posterior


def paper_tae(
    task: Task,
    lam: float = 2.0,
    C: float = 10.0,
    penalty: str = "sample",
    gamma_floor: float = 0.01,
    gamma_start: float = 0.1,
    gamma_end: float = 0.2,
    infer_noise: bool = False,
    pinned: bool = True,
) -> Recipe:
    """The paper's model with the settings of supplement C (gamma rises between 50,000 and 100,000 of 500,000 steps)."""
    if not (pinned or bool(task.corruption.exact.all())):
        raise InvalidData("pinned=False is for data without noise, as otherwise nothing is pinned. Use noise=None.")
    if penalty not in ("sample", "expectation"):
        raise InvalidData(f"penalty must be 'sample' or 'expectation', got {penalty!r}.")
    architecture, features = task.networks, task.features
    sees = architecture.decoder_sees
    with scoped_seed(task.seed + 1):
        inverter = architecture.encoder(3 * features if sees else features)
        objective = PaperTAE(architecture.prior(features), inverter, sees, lam, C, penalty, pinned)
    posterior = task.posterior(conditioned=False, infer_noise=infer_noise)
    yield Stage(posterior, objective, warmup=(gamma_start, gamma_end, gamma_floor))
    return posterior


def masked(task: Task, energy_weight: float = 10.0, fidelity: float = 0.3) -> Recipe:
    """Noise; then masked prediction: a posterior trained by how it predicts what is hidden from it.

    energy_weight, fidelity: of `Predictive`.
    """
    plain = isinstance(task.corruption, GaussianNoise)
    hide = hide_share if task.image is None else hide_either(hide_share, hide_boxes(task.image, task.places))
    objective = Predictive(hide, energy_weight if plain else 0.0, fidelity)
    return (yield from _alone(task, objective, noise_steps=300, own_prior=True))


def tae(task: Task, weights: int = 8, posterior_weights: int = 20, posterior_share: float = 0.5) -> Recipe:
    """A prior, then a posterior and a prior of their own by the exact bound.

    weights: of the first prior's bound; posterior_weights, posterior_share: of the last stage, its weights and how many
    steps it has.
    """
    return (yield from auto(task, weights, "bound", posterior_weights, posterior_share))


def auto(
    task: Task,
    weights: int = 8,
    posterior: str = "auto",
    posterior_weights: int = 20,
    posterior_share: float = 0.15,
    energy_weight: float = 10.0,
    fidelity: float = 0.3,
) -> Recipe:
    """Of wide data, masked prediction; of others a prior, then a posterior that follows it, of the same decoder.

    posterior: one of POSTERIORS; weights: of the prior's bound; energy_weight, fidelity: of `masked`; posterior_weights,
    posterior_share: of the last stage, its weights and how many steps it has. In a stack weights are half as many.
    """
    if posterior not in POSTERIORS:
        raise InvalidData(f"posterior must be one of {', '.join(POSTERIORS)}, got {posterior!r}.")
    if predicts(posterior, task.features - task.corruption.categorical):
        return (yield from masked(task, energy_weight, fidelity))
    part = 0.5 if task.stacked else 1.0
    model = yield from _alone(task, MIWAE(int(part * weights)), time_share=0.8)
    last = _bound_stage if posterior == "bound" else _forward_stage
    return (yield from last(task, model, int(part * posterior_weights), posterior_share * (part + 1) / 2))


POSTERIORS = ("auto", "predictive", "forward", "bound")


def predicts(posterior: str, numbers: int) -> bool:
    """Whether a posterior is trained by masked prediction. numbers: features that are no category's."""
    return posterior == "predictive" or (posterior == "auto" and numbers > NARROW)


def seeing(task: Task) -> Recipe:
    """A decoder that sees y is no prior: its posterior is trained to predict observed pixels that are hidden from it."""
    if not isinstance(task.architecture, ConvArchitecture):
        raise InvalidData("This method takes a decoder that sees y for images alone. Use decoder_sees=False.")
    if not bool(task.corruption.exact.all()):
        raise InvalidData("A decoder that sees y needs data without noise. Use decoder_sees=False, or noise=None.")
    image = task.architecture.image
    posterior = task.posterior(conditioned=False)
    yield Stage(posterior, PredictiveCRPS(image, hide_boxes(image)), watched=True, hold=hold_for(task))
    return posterior


def hold_for(task: Task) -> HoldOut:
    """Held-out cells are like missing ones: of images, holes."""
    if task.split is not None:
        return lambda *_: task.split
    return hold_out if task.image is None else hold_out_as(hide_holes(task.image, task.places))


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
        prior = PriorLVM(task.networks.encoder(task.features), copy.deepcopy(model.decoder))
        objective = TAE(prior, task.networks.encoder(3 * task.features), weights)
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
