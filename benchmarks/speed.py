"""How fast the step and the draws are: ratios measured in one run. `python benchmarks/speed.py step many draws`.

step: a plain eager loop with torch.optim.Adam against the shipped step; many: models side by side; draws:
rows a minute, plain and refined. Sizes are the paper's (784 entries, 400 units, 20 latents, batch 20).
"""

import argparse
import copy
import json
import platform
import time

import torch
from torch import nn

from unfade.corruption import GaussianNoise
from unfade.drawing import draw_blocks
from unfade.methods import PAPER, Task
from unfade.objectives import PaperTAE
from unfade.observations import Observations
from unfade.stepping import Stepper, Trained
from unfade.training import TrainingConfig, scoped_seed

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


def stepper_of(models: int, device: str) -> Stepper:
    built = [paper_model(seed, device) for seed in range(models)]
    stepper = Stepper([m for m, _ in built], [obs for _, obs in built], list(range(models)), [20.0] * models)
    steps = 50
    rows = torch.randint(SAMPLES, (steps, models, BATCH))
    stepper.plan(0, rows, torch.full((steps, models), 2e-4), torch.ones(steps, models))
    return stepper


def timed(step, steps: int, device: str, warm: int = 5) -> float:
    """Microseconds a step: the best of three stretches."""
    best = float("inf")
    for _ in range(warm):
        step()
    for _ in range(3):
        synchronise(device)
        started = time.perf_counter()
        for _ in range(steps):
            step()
        synchronise(device)
        best = min(best, (time.perf_counter() - started) / steps)
    return 1e6 * best


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plain_step(device: str):
    """The same objective in a loop as one would write it first."""
    model, obs = paper_model(0, device)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-4)

    def step() -> None:
        rows = torch.randint(SAMPLES, (BATCH,), device=device)
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


def step(device: str) -> dict[str, float]:
    steps = 200 if device == "cuda" else 30
    result = {"plain eager loop": timed(plain_step(device), steps, device)}
    stepper = stepper_of(1, device)
    result["shipped step, eager"] = timed(planned(stepper), steps, device)
    if device == "cuda":
        for compiled in (False, True):
            stepper = stepper_of(1, device)
            started = time.perf_counter()
            said = stepper.accelerate(compile=compiled)
            seconds = time.perf_counter() - started
            result[f"shipped step, {said} (prepared in {seconds:.0f} s)"] = timed(planned(stepper), 1000, device)
    return result


def many(device: str, counts: tuple[int, ...] = (1, 15, 45)) -> dict[str, float]:
    result = {}
    for models in counts if device == "cuda" else (1, 4):
        stepper = stepper_of(models, device)
        stepper.accelerate(compile=device == "cuda")
        result[f"{models} side by side, a model-step"] = (
            timed(planned(stepper), 200 if device == "cuda" else 10, device) / models
        )
        del stepper
    return result


def draws(device: str) -> dict[str, float]:
    """Rows of 784 entries drawn a minute: one plain draw a row, and one of 200 candidates."""
    model, obs = paper_model(0, device)
    posterior = copy.deepcopy(model.posterior).requires_grad_(False)
    posterior.conditioned = True
    result = {}
    for refine, rows in ((0, SAMPLES), (200, 1000)):
        some = obs[:rows]
        for _ in range(2):
            synchronise(device)
            started = time.perf_counter()
            for _where, _values in draw_blocks(posterior, some, torch.arange(rows, device=device), 16, 0, refine):
                pass
            synchronise(device)
            seconds = time.perf_counter() - started
        result[f"million rows x 784 a minute, refine={refine}"] = 60 * 16 * rows / seconds / 1e6
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["step", "many", "draws"], nargs="+")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    machine = (
        torch.cuda.get_device_name() if arguments.device == "cuda" else f"{platform.processor() or platform.machine()}"
    )
    print(json.dumps({"machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}))
    for what in arguments.what:
        for name, number in {"step": step, "many": many, "draws": draws}[what](arguments.device).items():
            print(f"{what}: {name}: {number:.1f}", flush=True)


if __name__ == "__main__":
    main()
