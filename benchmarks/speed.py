"""How fast a step is: ratios in one run. `python benchmarks/speed.py step wide many draws frames`.

step: a plain eager loop with torch.optim.Adam against the shipped step, at the paper's sizes (784 entries, 400
units, 20 latents, batch 20) and at those of a small table; wide: a step of each method as the board of wide data
trains it (784 entries, batch 200), eager and compiled; many: models side by side; draws: rows a minute,
plain and refined; frames: steps and recovery of frames of 480 x 608. Times are CPU time (on a GPU, of the clock).
"""

import argparse
import copy
import json
import platform
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from speed_models import (
    BATCH,
    ENTRIES,
    SAMPLES,
    paper_model,
    plain_step,
    planned,
    stepper_of,
    synchronise,
    table_model,
    timed,
)
from store import clock

from unfade import Observations, Recoverer, TrainingConfig
from unfade.corruption.noise import GaussianNoise
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.models.architectures import architecture_for
from unfade.training.objectives import MIWAE, MVAE, Objective, PaperTAE, Predictive, hide_share
from unfade.training.step import Trained


def step(device: str) -> dict[str, float]:
    """Microseconds a step."""
    now, sizes = clock(device), {"paper": (paper_model, BATCH), "table of 1,030 x 9": (table_model, 128)}
    result = {}
    for size, (build, batch) in sizes.items():
        steps = 200 if device == "cuda" else 50
        result[f"{size}: plain eager loop"] = timed(plain_step(device, build, batch), steps, device)
        for compiled in (False, True):
            stepper = stepper_of(1, device, build, batch)
            started = now()
            said = stepper.accelerate(compile=compiled)
            seconds = now() - started
            steps = 1000 if device == "cuda" else 50
            result[f"{size}: shipped step, {said} (in {seconds:.0f} s)"] = timed(planned(stepper), steps, device)
    return result


def wide(device: str) -> dict[str, float]:
    """Microseconds a step of each method, one model of the networks of a default fit."""
    networks = architecture_for(SAMPLES, ENTRIES, bounded=True)

    def build(objective: Callable[[], Objective], seed: int, device: str) -> tuple[Trained, Observations]:
        _, obs = paper_model(seed, device)
        posterior = Task(obs, GaussianNoise(0.1), networks, TrainingConfig(), seed).posterior(own_prior=True)
        return Trained(posterior, objective().to(device)), obs

    objectives: dict[str, Callable[[], Objective]] = {
        "MVAE": MVAE,
        "MIWAE, 20 weights": MIWAE,
        "TAE as printed": lambda: PaperTAE(networks.prior(ENTRIES), networks.encoder(ENTRIES)),
        "unfade": lambda: Predictive(hide_share),
    }
    result = {}
    for compiled in (False, True):
        for name, objective in objectives.items():
            stepper = stepper_of(1, device, partial(build, objective), batch=200)
            said = stepper.accelerate(compile=compiled)
            result[f"{name}, {said}"] = timed(planned(stepper), 1000 if device == "cuda" else 20, device)
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
    """Millions of draws of 784 entries a minute, 16 a row: plain, and each row's from 200 candidates."""
    model, obs = paper_model(0, device)
    posterior = copy.deepcopy(model.posterior).requires_grad_(False)
    posterior.conditioned = True
    result, now = {}, clock(device)
    for n_candidates, rows in ((0, SAMPLES), (200, 1000)):
        some = obs[:rows]
        for _ in range(2):
            synchronise(device)
            started = now()
            for _where, _values in draw_blocks(posterior, some, torch.arange(rows, device=device), 16, 0, n_candidates):
                pass
            synchronise(device)
            seconds = now() - started
        result[f"million draws of 784 entries a minute, n_candidates={n_candidates}"] = 60 * 16 * rows / seconds / 1e6
    return result


def frames(device: str, height: int = 480, width: int = 608) -> dict[str, float]:
    """Milliseconds of a step of two frames of the paper's size, and frames recovered a second."""
    rng, now, result = np.random.default_rng(0), clock(device), {}
    given = np.where(rng.random((32, height, width)) < 0.2, np.nan, 2000 + 500 * rng.normal(size=(32, height, width)))
    given = given.astype(np.float32)
    for network, method in (("conv", "tae-paper"), ("conv-large", "masked")):
        ticks: list[tuple[int, float]] = []
        training = TrainingConfig(batch_size=2, learning_rate=1e-3)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        rec = Recoverer(method, network=network, training=training, max_steps=400, device=device, random_state=0, verbose=0)
        rec.fit(given, on_step=lambda told, ticks=ticks: ticks.append((told.step, now())))
        (first, began), (last, ended) = ticks[0], ticks[-1]
        name = f"{method}, {network}, 2 frames of {height} x {width}"
        result[f"{name}: ms a step"] = 1e3 * (ended - began) / (last - first)
        if device == "cuda":
            result[f"{name}: GB"] = torch.cuda.max_memory_allocated() / 1e9
        recoveries = {"8 draws": lambda rec=rec: rec.sample(given, 8), "means": lambda rec=rec: rec.transform(given)}
        for what, recover in recoveries.items():
            began = now()
            recover()
            result[f"{name}: frames recovered a second, {what}"] = len(given) / (now() - began)
    return result


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"step": step, "wide": wide, "many": many, "draws": draws, "frames": frames}
    parser.add_argument("what", choices=parts, nargs="+")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args(arguments)
    machine = torch.cuda.get_device_name() if chosen.device == "cuda" else platform.machine()
    print(json.dumps({"machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for what in chosen.what:
        for name, number in parts[what](chosen.device).items():
            print(f"{what}: {name}: {number:.4g}", flush=True)


if __name__ == "__main__":
    main()
