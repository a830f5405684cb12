"""How fast unfade is: ratios in one run. `python benchmarks/speed.py step wide many draws small large growth memory`.

step: a plain eager loop with torch.optim.Adam against the shipped step, at the paper's sizes (784 entries, 400
units, 20 latents, batch 20) and at those of a small table; wide: a step of each method as the scoreboard of wide data
trains it (784 entries, batch 200), eager and compiled; many: models side by side; draws: rows a minute,
plain and refined; small, large: a whole fit and 20 draws beside two peers, with CRPS on the missing cells, on UCI's
concrete table (--data-dir: a folder with concrete.csv.gz) and on one of 20,000 x 20; growth: seconds when rows,
columns and draws double; memory: the most anonymous memory that a fit on a million rows and 20 draws into a
memory map take.
"""

import argparse
import copy
import json
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import peers
import torch
from torch import nn

from unfade import Recoverer
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.diagnostics.evaluation import evaluate
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.models.architectures import PAPER, Architecture, architecture_for
from unfade.training.loop import TrainingConfig, scoped_seed
from unfade.training.objectives import MIWAE, MVAE, Objective, PaperTAE, Predictive, hide_share
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


def step(device: str) -> dict[str, float]:
    """Microseconds a step."""
    sizes = {"paper": (paper_model, BATCH), "table of 1,030 x 9": (table_model, 128)}
    result = {}
    for size, (build, batch) in sizes.items():
        steps = 200 if device == "cuda" else 50
        result[f"{size}: plain eager loop"] = timed(plain_step(device, build, batch), steps, device)
        for compiled in (False, True):
            stepper = stepper_of(1, device, build, batch)
            started = time.perf_counter()
            said = stepper.accelerate(compile=compiled)
            seconds = time.perf_counter() - started
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
    result = {}
    for n_candidates, rows in ((0, SAMPLES), (200, 1000)):
        some = obs[:rows]
        for _ in range(2):
            synchronise(device)
            started = time.perf_counter()
            for _where, _values in draw_blocks(posterior, some, torch.arange(rows, device=device), 16, 0, n_candidates):
                pass
            synchronise(device)
            seconds = time.perf_counter() - started
        result[f"million draws of 784 entries a minute, n_candidates={n_candidates}"] = 60 * 16 * rows / seconds / 1e6
    return result


def tanh_table(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Five factors through a random tanh network, unit variance, and noise of sd 0.3 of its own."""
    rng = np.random.default_rng(seed)
    factors, first, second = rng.normal(size=(rows, 5)), rng.normal(size=(5, 32)), rng.normal(size=(32, columns))
    smooth = np.tanh(factors @ first) @ second
    return smooth / smooth.std(0) + 0.3 * rng.normal(size=smooth.shape)


def with_holes(X: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.3, np.nan, X)


def small(device: str, data_dir: Path) -> Iterator[tuple[str, float]]:
    yield from _beside_peers(np.genfromtxt(data_dir / "concrete.csv.gz", delimiter=",", skip_header=1), device)


def large(device: str, data_dir: Path) -> Iterator[tuple[str, float]]:
    yield from _beside_peers(tanh_table(20_000, 20), device)


def _beside_peers(X: np.ndarray, device: str) -> Iterator[tuple[str, float]]:
    """Seconds of a fit and 20 draws, beside peers on the same table; the CRPS on missing cells with each."""
    name, Y = f"{len(X):,} x {X.shape[1]}", with_holes(X)
    started = time.perf_counter()
    rec = Recoverer(random_state=0, device=device, verbose=0).fit(Y)
    fitted = time.perf_counter() - started
    draws = rec.sample(Y, 20)
    results = {"unfade": (draws.values, time.perf_counter() - started)}
    started = time.perf_counter()
    rec.sample(Y, 100, n_candidates=0)
    yield f"{name}: seconds of 100 more plain draws, over those of the fit", (time.perf_counter() - started) / fitted
    for peer in ("miceforest", "IterativeImputer"):
        found = peers.run(peer, Y, 20, seed=0)
        results[peer] = found["draws"], found["seconds"]
    for method, (values, seconds) in results.items():
        scores = evaluate(values, X, Y, unit=X.std(0))
        how = f"{name}: {method} (CRPS {scores.crps:.3f}, 90 % covers {scores.coverage:.3f} of {scores.coverage_due:.3f})"
        yield f"{how}, seconds", seconds


def growth(device: str) -> Iterator[tuple[str, float]]:
    """Seconds of a fit of 200 steps and of drawing, as one size doubles, with networks of one size; x 2 is linear."""
    start = {"rows": 16_000, "columns": 16, "draws": 16}
    networks = Architecture(latent=16, hidden=(128, 128), skip=True)
    for what in start:
        before = None
        for doubling in range(4):
            size = {**start, what: start[what] << doubling}
            Y = with_holes(tanh_table(size["rows"], size["columns"]))
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                rec = Recoverer(max_steps=200, architecture=networks, random_state=0, device=device, verbose=0).fit(Y)
                fitted = time.perf_counter()
                rec.sample(Y, size["draws"], n_candidates=0)
                seconds.append((fitted - started, time.perf_counter() - fitted))
            fit, drawing = (min(column) for column in zip(*seconds, strict=True))
            ratio = "" if before is None else f" (x {fit / before[0]:.2f} and x {drawing / before[1]:.2f})"
            yield (
                f"{size['rows']} x {size['columns']}, {size['draws']} draws: fit {fit:.2f} s, draws of all rows{ratio}, s",
                drawing,
            )
            before = fit, drawing


def memory(device: str) -> Iterator[tuple[str, float]]:
    """GB of anonymous memory beyond the table, at its peak: import, fit of 1,000 steps, and 20 plain draws."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(1_000_000, 1)) * np.ones(50) + 0.5 * rng.normal(size=(1_000_000, 50))
    Y[rng.random(Y.shape, dtype=np.float32) < 0.3] = np.nan
    size = Y.nbytes / 1e9
    yield "1,000,000 x 50 table itself, GB", size
    yield "before the fit, libraries included, GB", _anonymous() - size
    with tempfile.TemporaryDirectory() as folder, _peak() as most:
        training = TrainingConfig(steps=1000)
        rec = Recoverer(training=training, random_state=0, device=device, verbose=0).fit(Y)
        yield "fit, GB", most[0] - size
        out = np.memmap(Path(folder) / "draws", np.float32, "w+", shape=(20, *Y.shape))
        rec.sample(Y, 20, n_candidates=0, out=out)
    yield "fit and 20 draws into a memory map, GB", most[0] - size


def _anonymous() -> float:
    """Anonymous memory of this process now, in GB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1e6


@contextmanager
def _peak() -> Iterator[list[float]]:
    """The most anonymous memory, looked at every 20 ms."""
    most, over = [_anonymous()], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], _anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "wide", "many", "draws", "small", "large", "growth", "memory"], nargs="+")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-dir", type=Path, default=Path("."))
    arguments = parser.parse_args()
    machine = torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine()
    print(json.dumps({"machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for what in arguments.what:
        given = (arguments.device, arguments.data_dir) if what in ("small", "large") else (arguments.device,)
        measured = globals()[what](*given)
        for name, number in measured.items() if isinstance(measured, dict) else measured:
            print(f"{what}: {name}: {number:.4g}", flush=True)


if __name__ == "__main__":
    main()
