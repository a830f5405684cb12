"""The recipe of a flow posterior: expectation and maximisation on draws that are corrupted afresh."""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

import torch

from unfade.corruption.noise import GaussianNoise
from unfade.corruption.simulated import SimulatedCorruption
from unfade.data.observations import Observations
from unfade.errors import InvalidData
from unfade.methods.recipes import FlowRecipe, Stage, Task, hold_for, noise_stage
from unfade.models.architectures import FlowArchitecture, architecture_for
from unfade.models.baselines import NearestPixels, marginals
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.training.early_stopping import hold_out_as
from unfade.training.expectation import ExpectationStep, drawn_once, judged
from unfade.training.loop import TrainingConfig, scoped_seed
from unfade.training.objectives import FlowMatching, Predictive, hide_as_others, hide_boxes, hide_either, hide_share

START = TrainingConfig(steps=6000, batch_size=200, learning_rate=1e-3)  # of what gives the first draws
ENTRIES = 4096  # of a sample up to which networks give them


def flow(task: Task, start_steps: int = START.steps) -> FlowRecipe:
    """Train q(x|y) as a flow.

    First a posterior by masked prediction, which finds the noise level and gives the first draws of all rows. Then the
    flow learns from draws, corrupted afresh, and draws the rows again as it goes.
    """
    learn, held = task.corruption.learned, hold_out_as(hide_as_others) if task.image is None else hold_for(task)
    split = None if task.fixed_steps else held(task.obs, task.seed, task.corruption)
    obs = task.obs if split is None else split.seen
    first: PosteriorLVM | NearestPixels
    if isinstance(task.corruption, SimulatedCorruption):
        first = _nearest(task, obs) if task.image is not None else marginals(obs, GaussianNoise())
    elif task.features <= ENTRIES:
        first = yield from _masked_prediction(replace(task, obs=obs), min(start_steps, task.training.steps))
    elif learn:
        raise InvalidData(f"Method 'flow' learns the noise of up to {ENTRIES} entries a sample, got {task.features}.")
    else:
        first = _nearest(task, obs)
    draws = Observations(drawn_once(first, obs, task.seed), obs.observed)
    score = 0.0 if split is None else judged(first, split)
    posterior = build_flow(task, obs)
    yield Stage(
        posterior,
        FlowMatching(task.corruption),
        e_step=ExpectationStep(posterior, obs, draws, task.training.batch_size, split, score, learn, task.seed),
    )
    return posterior


def build_flow(task: Task, obs: Observations) -> FlowPosterior:
    """Build a flow with fresh weights, in units of what is observed."""
    assert isinstance(task.architecture, FlowArchitecture)
    with scoped_seed(task.seed):
        posterior = task.architecture.posterior(task.features, task.corruption, task.places)
    seen = obs.values[obs.observed]
    posterior.centre.fill_(seen.mean())
    posterior.scale.fill_(seen.std().clamp(min=1e-6))
    if task.ends is not None:
        posterior.ends.copy_(torch.stack([task.ends[0].min(), task.ends[1].max()]))
    return posterior.to(obs.values)


def _masked_prediction(task: Task, steps: int) -> Generator[Stage, bool, PosteriorLVM]:
    """A posterior that is quick to train; the noise level first, if it is to be learned."""
    training = replace(START, steps=steps)
    bounded = task.ends is not None
    networks = architecture_for(len(task.obs), task.features, bounded)
    start = replace(task, architecture=networks, training=training)
    hide = hide_share if task.image is None else hide_either(hide_share, hide_boxes(task.image, task.places))
    objective = Predictive(hide)
    posterior = start.posterior(own_prior=True)
    if task.corruption.learned:
        search = noise_stage(start, posterior, objective, 300)
        stage = next(search)
        interrupted = yield replace(stage, training=replace(training, steps=max(1, round(stage.share * steps))))
        with suppress(StopIteration):
            search.send(interrupted)
        if not interrupted:
            posterior = start.posterior(own_prior=True)
    yield Stage(posterior, objective, training=training, time_share=0.1)
    return posterior.eval()


def _nearest(task: Task, obs: Observations) -> NearestPixels:
    assert task.image is not None
    places = torch.arange(task.features) if task.places is None else task.places
    split = hold_for(task)(obs, task.seed + 1, task.corruption)
    simple = NearestPixels(task.image, places, task.corruption).to(obs.values)
    return simple if split is None else simple.learn(split.given, split.held)
