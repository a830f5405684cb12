"""What `speed.py` times: models of the paper's and of a table's size, the shipped step, and a plain one."""

from collections.abc import Callable

import torch
from store import clock
from torch import nn

from unfade import Observations, TrainingConfig
from unfade.corruption.noise import GaussianNoise
from unfade.methods.recipes import Task
from unfade.models.architectures import PAPER, architecture_for
from unfade.training.loop import scoped_seed
from unfade.training.objectives import MIWAE, PaperTAE
from unfade.training.step import Stepper, Trained

ENTRIES, BATCH, SAMPLES = 784, 20, 10_000


def paper_model(seed: int, device: str) -> tuple[Trained, Observations]:
    """One TAE as printed, and observations of the paper's shape (random numbers: only time matters here)."""
    generator = torch.Generator(device).manual_seed(seed)
    observed = torch.rand(SAMPLES, ENTRIES, generator=generator, device=device) > 0.5
    obs = Observations(torch.rand(SAMPLES, ENTRIES, generator=generator, device=device) * observed, observed)
    with scoped_seed(seed):
        objective = PaperTAE(PAPER.prior(ENTRIES), PAPER.encoder(ENTRIES)).to(device)
    posterior = Task(obs, GaussianNoise(0.1), PAPER, TrainingConfig(), seed).posterior(conditioned=False)
    return Trained(posterior, objective), obs


def table_model(seed: int, device: str) -> tuple[Trained, Observations]:
    """The default recipe's main stage on a table of 1,030 x 9."""
    generator = torch.Generator(device).manual_seed(seed)
    observed = torch.rand(1030, 9, generator=generator, device=device) > 0.3
    obs = Observations(torch.randn(1030, 9, generator=generator, device=device) * observed, observed)
    task = Task(obs, GaussianNoise(0.0), architecture_for(1030, 9), TrainingConfig(), seed)
    return Trained(task.posterior(), MIWAE(8)), obs


Build = Callable[[int, str], tuple[Trained, Observations]]


def stepper_of(models: int, device: str, build: Build = paper_model, batch: int = BATCH) -> Stepper:
    built = [build(seed, device) for seed in range(models)]
    stepper = Stepper([m for m, _ in built], [obs for _, obs in built], list(range(models)), [20.0] * models)
    steps = 50
    rows = torch.randint(len(built[0][1]), (steps, models, batch))
    stepper.plan(0, rows, torch.full((steps, models), 2e-4), torch.ones(steps, models))
    return stepper


def timed(step, steps: int, device: str, warm: int = 5) -> float:
    """Microseconds a step: the best of three stretches."""
    best, now = float("inf"), clock(device)
    for _ in range(warm):
        step()
    for _ in range(3):
        synchronise(device)
        started = now()
        for _ in range(steps):
            step()
        synchronise(device)
        best = min(best, (now() - started) / steps)
    return 1e6 * best


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plain_step(device: str, build: Build = paper_model, batch: int = BATCH):
    """The same objective in a loop as one would write it first."""
    model, obs = build(0, device)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-4)

    def step() -> None:
        rows = torch.randint(len(obs), (batch,), device=device)
        bound = model(obs[rows], lambda *shape: torch.randn(shape, device=device), torch.ones((), device=device))
        optimiser.zero_grad()
        (-bound.value.mean()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 20.0)
        optimiser.step()

    return step


def planned(stepper: Stepper):
    """A step that starts its plan anew when it comes to its end."""
    taken = 0

    def step() -> None:
        nonlocal taken
        if taken % 50 == 0:
            stepper.place.zero_()
        taken += 1
        stepper.step()

    return step
