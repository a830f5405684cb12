"""Two demonstrations on embedded data: corrupted digits, and the paper's experiment in two dimensions."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade.corruption.masks import mask_at_random
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations, as_observations
from unfade.diagnostics.evaluation import Scores, evaluate
from unfade.estimator import Recoverer
from unfade.inference.draws import Draws
from unfade.metrics import energy_distance
from unfade.models.architectures import Architecture
from unfade.rng import generator_normals
from unfade.training.loop import TrainingConfig


@dataclass(frozen=True)
class Shown:
    """Results of a demonstration, as text and numbers, and the pictures it wrote."""

    text: str
    scores: dict[str, Any]
    pictures: list[str]
    seconds: float


# Digits

SD_TOP = 0.5  # the brightest colour of a standard deviation


def digits(folder: Path, seed: int = 0, verbose: int = 1) -> Shown:
    """Hide half of the pixels of scikit-learn's 8 x 8 digits, add noise, recover them, score and draw pictures."""
    from sklearn.datasets import load_digits

    started = time.monotonic()
    clean = torch.from_numpy(load_digits().data / 16)
    corrupted = corrupt(clean, missing=0.5, noise=0.1, seed=seed)
    rec = Recoverer(noise="learn", scaling="joint-interval", bounds=(0, 1), random_state=seed, verbose=verbose)
    rec.fit(corrupted)
    draws = rec.sample(corrupted, n_draws=50)
    scores = {"unfade (50 draws)": evaluate(draws, clean, corrupted)}
    scores |= {name: evaluate(fill[None], clean, corrupted) for name, fill in _simple_fills(corrupted).items()}
    picture = folder / "digits.png"
    _draw_digits(picture, corrupted, draws, clean.numpy())
    text = [
        "Corrupted digits: half of the pixels hidden, noise of sd 0.1 on the rest (black 0, white 1).",
        f"Estimated noise level: {rec.noise_:.3f}",
        _table(scores),
        f"Pictures: {picture}",
    ]
    numbers = {name: vars(score) for name, score in scores.items()} | {"noise": rec.noise_}
    return Shown("\n".join(text), numbers, [str(picture)], time.monotonic() - started)


def corrupt(clean: Tensor, missing: float, noise: float, seed: int) -> np.ndarray:
    """Add noise to every entry, then hide entries completely at random, as NaN."""
    generator = torch.Generator().manual_seed(seed)
    observed = mask_at_random(clean.shape, missing, generator)
    obs = GaussianNoise(noise).corrupt(clean, observed, generator_normals(generator))
    return torch.where(obs.observed, obs.values, torch.nan).numpy()


def _simple_fills(corrupted: np.ndarray) -> dict[str, np.ndarray]:
    """Fill missing pixels by two methods of scikit-learn."""
    from sklearn.impute import KNNImputer, SimpleImputer

    return {
        "column mean": SimpleImputer(keep_empty_features=True).fit_transform(corrupted),
        "k nearest neighbours": KNNImputer(keep_empty_features=True).fit_transform(corrupted),
    }


def _table(scores: dict[str, Scores]) -> str:
    """Format scores as a table of text."""
    lines = [f"{'on hidden pixels':22}{'RMSE':>8}{'CRPS':>8}{'energy':>8}{'90 % coverage (nominal)':>22}"]
    for name, score in scores.items():
        covered = f"{score.coverage:.3f} ({score.coverage_due:.3f})" if score.draws > 1 else "a single value"
        lines.append(f"{name:22}{score.rmse:8.3f}{score.crps:8.3f}{score.energy_score:8.3f}{covered:>22}")
    return "\n".join(lines)


def _draw_digits(path: Path, corrupted: np.ndarray, draws: Draws, clean: np.ndarray, rows: int = 8) -> None:
    """Draw a line per digit: corrupted, mean, six draws, standard deviation, truth."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    chosen = range(10, 10 + rows)
    columns = [("corrupted", corrupted), ("mean", draws.mean())]
    columns += [(f"draw {i + 1}", draws.values[i]) for i in range(6)]
    columns += [("sd", draws.std()), ("truth", clean)]
    figure = Figure(figsize=(1.1 * len(columns), 1.15 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, len(columns))
    for line, (row, sample) in enumerate(zip(axes, chosen, strict=True)):
        for axis, (title, values) in zip(row, columns, strict=True):
            colours, top = ("magma", SD_TOP) if title == "sd" else ("gray", 1.0)
            axis.imshow(as_colours(values[sample].reshape(8, 8), colours, top), interpolation="nearest")
            axis.set_axis_off()
            if line == 0:
                axis.set_title(title)
    scale = ScalarMappable(Normalize(0, SD_TOP), "magma")
    figure.colorbar(
        scale, ax=axes, location="bottom", shrink=0.3, aspect=40, label="sd of the draws (black 0, white 1 in the data)"
    )
    figure.savefig(path, dpi=110)


def as_colours(image: np.ndarray, colours: str = "gray", top: float = 1.0) -> np.ndarray:
    """Convert an image to grey, or another colour scale, with missing pixels in blue."""
    from matplotlib import colormaps

    shown = colormaps[colours](np.clip(np.nan_to_num(image) / top, 0, 1))[..., :3]
    shown[np.isnan(image)] = (0.23, 0.42, 0.66)
    return shown


# Two dimensions


@dataclass(frozen=True)
class Ring:
    """Clean points near a circle of radius 1; the exact posterior of an observation is computed by weighting points."""

    thickness: float = 0.05
    noise: float = 0.1
    generator: torch.Generator = field(default_factory=torch.Generator)

    def clean(self, samples: int) -> Tensor:
        """Draw points of the prior, (samples, 2)."""
        angle = 2 * torch.pi * torch.rand(samples, generator=self.generator)
        circle = torch.stack([angle.cos(), angle.sin()], 1)
        return circle + self.thickness * torch.randn(samples, 2, generator=self.generator)

    def observe(self, clean: Tensor) -> Observations:
        """Add noise, and hide one coordinate in two thirds of the points."""
        hidden = torch.randint(3, (len(clean), 1), generator=self.generator)
        observed = torch.arange(2) != hidden
        return GaussianNoise(self.noise).corrupt(clean, observed, generator_normals(self.generator))

    def exact(self, obs: Observations, draws: int) -> Tensor:
        """Draw from the exact posterior of one observation (1, 2): (draws, 2)."""
        points = self.clean(200_000)
        weights = GaussianNoise(self.noise).log_prob(obs, points).softmax(0)
        return points[torch.multinomial(weights, draws, replacement=True, generator=self.generator)]


TOY_POINTS = (  # the observations drawn: values, observed
    ("second coordinate missing", (0.45, float("nan"))),
    ("first coordinate missing", (float("nan"), -0.6)),
    ("both seen", (0.75, 0.72)),
)
TOY_STEPS = 5000
TOY_NETWORKS = Architecture(latent=4, hidden=(128, 128), prior_latent=4, prior_hidden=(128, 128), skip=True)
TOY_METHODS = {  # name: (recoverer, candidates); networks, steps and number of weights are the same for all
    "MVAE": (Recoverer("mvae"), 0),
    "MIWAE": (Recoverer("miwae"), 0),
    "TAE as printed": (Recoverer("tae-paper", training=TrainingConfig(learning_rate=5e-4)), 0),
    "unfade": (Recoverer("auto", settings={"weights": 20}), 0),
    "MIWAE, n_candidates=500": (Recoverer("miwae"), 500),
    "unfade, n_candidates=500": (Recoverer("auto", settings={"weights": 20}), 500),
}


def toy(folder: Path, seed: int = 0, verbose: int = 1, steps: int | None = None) -> Shown:
    """Reproduce figure 1(b): points near a circle with noise and missing coordinates, compared with the exact posterior."""
    from sklearn.base import clone

    started = time.monotonic()
    ring = Ring(generator=torch.Generator().manual_seed(seed))
    obs = ring.observe(ring.clean(4000))
    observed = torch.where(obs.observed, obs.values, torch.nan).numpy()
    points = np.array([point for _, point in TOY_POINTS])
    exact = [ring.exact(as_observations(point[None]), 1000) for point in points]
    drawn, scores = {}, {}
    fitted: dict[str, Recoverer] = {}
    for name, (method, candidates) in TOY_METHODS.items():
        if method.method not in fitted:
            rec = clone(method).set_params(
                noise=ring.noise, random_state=seed, max_steps=steps or TOY_STEPS, verbose=verbose
            )
            fitted[method.method] = rec.set_params(architecture=TOY_NETWORKS).fit(observed)
        drawn[name] = fitted[method.method].sample(points, n_draws=1000, n_candidates=candidates).values
        distances = [
            energy_distance(torch.from_numpy(drawn[name][:, i]).float(), exact[i].float()) for i in range(len(points))
        ]
        scores[name] = float(np.mean(distances))
    picture = folder / "toy.png"
    _draw_toy(picture, observed, {"exact": np.stack([e.numpy() for e in exact], 1), **drawn}, points, scores)
    lines = ["Points near a circle, noise 0.1, one coordinate of two hidden in two thirds of the rows.",
             "Energy distance of the draws to the exact posterior, mean over three observations (0 is exact):"]  # fmt: skip
    lines += [f"  {name:24}{score:.4f}" for name, score in scores.items()]
    return Shown("\n".join([*lines, f"Picture: {picture}"]), scores, [str(picture)], time.monotonic() - started)


def _draw_toy(
    path: Path, observed: np.ndarray, drawn: dict[str, np.ndarray], points: np.ndarray, scores: dict[str, float]
) -> None:
    """Draw the observed points, and draws of each method with those of the exact posterior."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.3 * (len(drawn) + 1), 7), layout="constrained")
    axes = figure.subplots(3, len(drawn) + 1, sharex=True, sharey=True)
    for row, (axis_row, (what, point)) in enumerate(zip(axes, TOY_POINTS, strict=True)):
        complete = observed[~np.isnan(observed).any(1)][:600]
        axis_row[0].plot(*complete.T, ".", ms=2, color="0.6")
        axis_row[0].set_ylabel(what)
        for axis, (name, values) in zip(axis_row[1:], drawn.items(), strict=True):
            axis.plot(*values[:400, row].T, ".", ms=3, color="black" if name == "exact" else "tab:blue", alpha=0.6)
            if row == 0:
                axis.set_title(name if name == "exact" else f"{name}\nenergy distance {scores[name]:.3f}", fontsize=9)
        for axis in axis_row:
            axis.add_artist(_circle())
            for line, value in ((axis.axvline, point[0]), (axis.axhline, point[1])):
                if not np.isnan(value):
                    line(value, color="tab:orange", lw=1)
            axis.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal")
    axes[0][0].set_title("observed set\n(complete points)", fontsize=9)
    figure.savefig(path, dpi=100)


def _circle() -> Any:
    """Make the circle that clean points lie near."""
    from matplotlib.patches import Circle

    return Circle((0, 0), 1, fill=False, color="0.8", lw=3, zorder=0)
