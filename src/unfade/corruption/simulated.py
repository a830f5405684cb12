"""Corruptions that can be simulated: blur, Poisson noise, quantisation and others, one after another, or a user's function.

    y = steps_k(... steps_1(x)),   missing entries aside.

A flow posterior needs no more of a corruption than this; its density is not needed. Steps work in the units of the data.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Independent
from torch.nn import functional

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.errors import InvalidData
from unfade.rng import Normals

UserFunction = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class Step(ABC):
    """One step of a corruption: values (..., samples, *event) to values of the same shape."""

    name: ClassVar[str]

    @abstractmethod
    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Simulate the step.

        Parameters
        ----------
        x : Tensor, (samples, *event)
            Images have the axes height, width and, if there are several, channels.
        normals : callable
            Gives standard normal numbers of a shape.

        Returns
        -------
        Tensor, (samples, *event)
        """


@dataclass(frozen=True)
class Gaussian(Step):
    """Additive noise. std: in units of the data, or "learn"; the last step, if it is to be learned."""

    std: float | str = "learn"
    name: ClassVar[str] = "gaussian"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Add noise."""
        return x + float(self.std) * normals(*x.shape)


@dataclass(frozen=True)
class Poisson(Step):
    """Counts of photons. peak: their number at a value of 1; values below 0 count as 0."""

    peak: float
    name: ClassVar[str] = "poisson"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Count, and divide by the peak."""
        return _poisson((self.peak * x).clamp(min=0), normals(*x.shape)) / self.peak


@dataclass(frozen=True)
class Multiplicative(Step):
    """Noise in proportion to the value (speckle). sd: relative."""

    sd: float
    name: ClassVar[str] = "multiplicative"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Multiply by 1 + sd times a normal number."""
        return x * (1 + self.sd * normals(*x.shape))


@dataclass(frozen=True)
class Outliers(Step):
    """Entries replaced by any value between low and high (salt and pepper). share: of the entries."""

    share: float
    low: float = 0.0
    high: float = 1.0
    name: ClassVar[str] = "outliers"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Replace entries."""
        which, value = torch.special.ndtr(normals(2, *x.shape))
        return torch.where(which < self.share, self.low + (self.high - self.low) * value, x)


@dataclass(frozen=True)
class Quantised(Step):
    """Values rounded to multiples of a size."""

    size: float
    name: ClassVar[str] = "quantised"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Round."""
        return self.size * (x / self.size).round()


@dataclass(frozen=True)
class Saturated(Step):
    """Values cut off at the ends of what a sensor can record."""

    low: float = 0.0
    high: float = 1.0
    name: ClassVar[str] = "saturated"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Keep values between both ends."""
        return x.clamp(self.low, self.high)


@dataclass(frozen=True)
class Blurred(Step):
    """Images blurred by a Gaussian kernel. sigma: in pixels."""

    sigma: float
    name: ClassVar[str] = "blurred"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Apply the kernel along both axes, as if images repeated their outermost pixels."""
        width = max(1, ceil(3 * self.sigma))
        places = torch.arange(-width, width + 1, device=x.device, dtype=x.dtype)
        kernel = (-0.5 * (places / self.sigma).square()).exp()
        kernel = (kernel / kernel.sum())[None, None]
        maps = _as_maps(x)
        for axis in (2, 3):
            lines = maps.movedim(axis, -1)
            flat = functional.pad(lines.reshape(-1, 1, lines.shape[-1]), (width, width), mode="replicate")
            maps = functional.conv1d(flat, kernel).reshape(lines.shape).movedim(-1, axis)
        return _as_images(maps, x)


@dataclass(frozen=True)
class Downsampled(Step):
    """Images of squares of pixels, each their mean. factor: side of a square."""

    factor: int
    name: ClassVar[str] = "downsampled"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Average over squares."""
        maps = _as_maps(x)
        small = functional.avg_pool2d(maps, self.factor, ceil_mode=True, count_include_pad=False)
        large = small.repeat_interleave(self.factor, 2).repeat_interleave(self.factor, 3)
        return _as_images(large[:, :, : maps.shape[2], : maps.shape[3]], x)


@dataclass(frozen=True)
class Stripes(Step):
    """Rows of an image shifted by one amount each, as by motion or a sensor read out by rows. sd: of the amounts."""

    sd: float
    name: ClassVar[str] = "stripes"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Shift rows."""
        _check_images(x)
        return x + self.sd * normals(*x.shape[:2], *[1] * (x.ndim - 2))


@dataclass(frozen=True)
class Simulated(Step):
    """A function of the user: clean values (samples, *event) and a random generator to observed values.

    A model file keeps its name; it is asked for again when the model is to be fitted or judged.
    """

    function: UserFunction | None
    named: str = ""
    name: ClassVar[str] = "function"

    def apply(self, x: Tensor, normals: Normals) -> Tensor:
        """Apply the function, by a generator that depends on the normal numbers alone."""
        if self.function is None:
            raise InvalidData(f"Files do not hold functions: load the model with corruption={self.named}.")
        seed = int((normals(1, 1).double() * 2**52).abs().long())
        found = np.asarray(self.function(x.cpu().numpy().astype(float), np.random.default_rng(seed)), dtype=float)
        if found.shape != x.shape or not np.isfinite(found).all():
            raise InvalidData(
                f"The corruption must return finite numbers of the shape it was given, {tuple(x.shape)}, got {found.shape}."
            )
        return torch.from_numpy(found).to(x)


STEPS = {
    kind.name: kind
    for kind in (Gaussian, Poisson, Multiplicative, Outliers, Quantised, Saturated, Blurred, Downsampled, Stripes)
}


def steps_of(given: Any) -> tuple[Step, ...]:
    """Check what a user gives as a corruption: a step, a function or a sequence of them."""
    parts = list(given) if isinstance(given, (list, tuple)) else [given]
    steps = [part if isinstance(part, Step) else _function(part) for part in parts]
    learned = [number for number, step in enumerate(steps) if isinstance(step, Gaussian) and step.std == "learn"]
    if learned and learned != [len(steps) - 1]:
        raise InvalidData("Noise to be learned must be the last step of a corruption, and the only one learned.")
    for step in steps:
        _check(step)
    return tuple(steps)


def _function(part: Any) -> Step:
    if not callable(part):
        names = ", ".join(kind.__name__ for kind in STEPS.values())
        raise InvalidData(f"A corruption is made of {names}, or is a function (clean, rng) -> observed, got {part!r}.")
    return Simulated(part, getattr(part, "__name__", "function"))


def _check(step: Step) -> None:
    """Refuse sizes that mean nothing."""
    for name, value in {} if isinstance(step, Simulated) else asdict(step).items():  # type: ignore[call-overload]
        free = name in ("low", "high") or (value == "learn" and isinstance(step, Gaussian))
        good = isinstance(value, (int, float)) and np.isfinite(value) and (value > 0 or free)
        if not (good or (value == "learn" and free)) or (name == "share" and value > 1):
            raise InvalidData(f"{type(step).__name__}({name}=...) must be a positive number, got {value!r}.")
        if name == "factor" and value != int(value):
            raise InvalidData(f"Downsampled(factor=...) must be an integer, got {value!r}.")


def to_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Write steps as JSON, functions by name."""
    return [
        {"step": step.name, "named": step.named} if isinstance(step, Simulated) else {"step": step.name, **asdict(step)}  # type: ignore[call-overload]
        for step in steps
    ]


def from_json(parts: Sequence[dict[str, Any]], function: UserFunction | None = None) -> tuple[Step, ...]:
    """Read steps from JSON; function: what the name of a function stands for."""
    made: list[Step] = []
    for part in parts:
        given = {name: value for name, value in part.items() if name != "step"}
        made.append(Simulated(function, **given) if part["step"] == "function" else STEPS[part["step"]](**given))
    return tuple(made)


class SimulatedCorruption(Corruption):
    """Steps of a corruption in model space; for flow posteriors, as it has no density.

    Parameters
    ----------
    steps : sequence of Step
    event_shape : sequence of int
        Of the data.
    centre, scale : Tensor, (features,)
        Of the units of model space.
    places : Tensor, (features,)
        Where the features lie among the entries.
    fill : Tensor, (entries,)
        Values of the other entries.
    """

    def __init__(
        self, steps: Sequence[Step], event_shape: Sequence[int], centre: Tensor, scale: Tensor, places: Tensor, fill: Tensor
    ):
        super().__init__()
        self.steps, self.event_shape = tuple(steps), tuple(event_shape)
        self.learns = isinstance(steps[-1], Gaussian) and steps[-1].std == "learn"
        self.register_buffer("units", torch.stack([centre, scale]).float())
        self.register_buffer("places", places)
        self.register_buffer("fill", fill.nan_to_num().float())
        self.register_buffer("exact", torch.zeros(1, dtype=torch.bool))
        start = 0.3 if self.learns else 0.0
        self.log_std_tens = nn.Parameter(torch.tensor([max(start, 1e-15)]).log() / 10, requires_grad=self.learns)

    units: Tensor
    places: Tensor
    fill: Tensor

    @property
    def captures(self) -> bool:
        """Whether a GPU can record it: functions of the user run on the CPU."""
        return not any(isinstance(step, Simulated) for step in self.steps)

    @property
    def learned(self) -> bool:
        """Whether the noise level is being learned."""
        return self.learns and self.log_std_tens.requires_grad

    @property
    def std(self) -> Tensor:
        """Level of the noise that is learned; 0 if none is."""
        return (10 * self.log_std_tens).exp() if self.learns else torch.zeros_like(self.log_std_tens)

    def level(self, clean: Tensor) -> Tensor:
        """Return the level of the noise, learned or given, that the last step adds."""
        last = self.steps[-1]
        return float(last.std) / self.units[1] if isinstance(last, Gaussian) and not self.learns else self.std

    @property
    def by_entry(self) -> bool:
        """Whether each entry has a noise level of its own."""
        return False

    @property
    def searched(self) -> Tensor:
        """Entries whose noise level is, or was, learned."""
        return torch.full_like(self.exact, self.learns)

    def forget_noise(self, of: Tensor | None = None) -> None:
        """Do nothing: the corruption is more than noise."""

    @torch.no_grad()
    def set_level(self, level: Tensor) -> None:
        """Set the noise level."""
        self.log_std_tens.copy_(level.clamp(min=1e-15).log().reshape(1) / 10)

    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Simulate all steps, and hide what is not observed."""
        y = self._stepped(clean, normals)
        if self.learns:
            y = y + self.std.detach() * normals(*clean.shape)
        return Observations(torch.where(observed, y, 0.0), observed)

    def squares(self, obs: Observations, clean: Tensor) -> Tensor:
        """Sum what the noise explains of the observations, (y - steps(x))^2, and count entries, per row."""
        generator = torch.Generator(clean.device).manual_seed(0)
        y = self._stepped(clean, lambda *shape: torch.randn(shape, generator=generator, device=clean.device))
        squares = torch.where(obs.observed, (obs.values - y).square(), 0.0)
        return torch.stack([squares, obs.observed.to(squares.dtype)]).mean(1).sum(-1, keepdim=True)

    def fit_noise(self, squares: Tensor) -> None:
        """Set the level to the root of the mean square."""
        total, count = squares
        self.set_level((total / count.clamp(min=1e-12)).sqrt())

    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Refuse: there is no density."""
        raise InvalidData("A corruption that is simulated has no density: use method='flow'.")

    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Refuse: there is no density."""
        return self.log_prob(obs, clean.mean)

    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """Refuse: there is no density."""
        raise InvalidData("A corruption that is simulated has no density: use method='flow'.")

    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """Return `clean`: no entry is exact."""
        return clean

    def _stepped(self, clean: Tensor, normals: Normals) -> Tensor:
        """Apply all steps but noise that is learned, in the units of the data."""
        flat = clean.flatten(0, -2)
        full = self.fill.expand(len(flat), -1).index_copy(1, self.places, self.units[0] + self.units[1] * flat)
        x = full.reshape(-1, *self.event_shape)
        for step in self.steps[: len(self.steps) - self.learns]:
            x = step.apply(x, normals)
        return ((x.flatten(1)[:, self.places] - self.units[0]) / self.units[1]).reshape(clean.shape)


def _as_maps(x: Tensor) -> Tensor:
    """Convert images (samples, height, width[, channels]) to maps (samples, channels, height, width)."""
    _check_images(x)
    return x.movedim(-1, 1) if x.ndim == 4 else x[:, None]


def _check_images(x: Tensor) -> None:
    if x.ndim not in (3, 4):
        raise InvalidData(f"Blurred, Downsampled and Stripes are for images, got samples of shape {tuple(x.shape[1:])}.")


def _as_images(maps: Tensor, like: Tensor) -> Tensor:
    return maps.movedim(1, -1) if like.ndim == 4 else maps[:, 0]


_FEW = 12.0  # mean of a Poisson variable below which its probabilities are added up


def _poisson(mean: Tensor, normals: Tensor) -> Tensor:
    """Convert normal numbers to Poisson ones of the same probability; by Cornish and Fisher if the mean is 12 or more."""
    share = torch.special.ndtr(normals).clamp(max=1 - 1e-7)
    few = mean.clamp(max=_FEW)
    probability = (-few).exp()
    total, count = probability.clone(), torch.zeros_like(mean)
    for number in range(1, int(_FEW + 7 * sqrt(_FEW)) + 1):
        count = count + (share > total)
        probability = probability * few / number
        total = total + probability
    root = mean.clamp(min=_FEW).sqrt()
    skew = (normals.square() - 1) / 6 - (normals**3 - 7 * normals) / (72 * root)
    many = (mean + root * normals + skew + 0.5).floor().clamp(min=0)
    return torch.where(mean < _FEW, count, many)
