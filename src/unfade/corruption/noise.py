"""Corruptions: how clean data became observations. They simulate, score, and condition in closed form."""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from unfade.data.observations import Observations
from unfade.distributions import Cells
from unfade.errors import InvalidData
from unfade.rng import Normals


class PinnedNormal(Cells):
    """Gaussian entries whose pinned ones are known: they have no spread, and add nothing to log_prob and entropy."""

    def __init__(self, loc: Tensor, scale: Tensor, pinned: Tensor):
        self.pinned = pinned.expand(loc.shape)
        self.spread = scale
        super().__init__(loc, torch.where(self.pinned, 0.0, scale))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density of the free entries, 0 at the pinned ones."""
        free = Normal(self.loc, torch.where(self.pinned, 1.0, self.spread), validate_args=False)
        return torch.where(self.pinned, 0.0, free.log_prob(value))

    def entropy(self) -> Tensor:
        """Entropy of the free entries, 0 at the pinned ones."""
        free = Normal(self.loc, torch.where(self.pinned, 1.0, self.spread), validate_args=False)
        return torch.where(self.pinned, 0.0, free.entropy())


class Corruption(nn.Module, ABC):
    """p(y | x, alpha, beta): alpha says which entries were seen, beta holds the unknowns of the corruption.

    `clean` is a tensor (..., samples, *event) or an `Independent(Normal)` of that shape; `unknowns`
    replaces the corruption's own beta where it is inferred for each sample. `exact`: which entries are
    seen without error; `std`: the noise level of the others; `learned`: whether it is being learned.
    """

    exact: Tensor
    categorical = 0  # features that are categories' values

    @property
    @abstractmethod
    def std(self) -> Tensor:
        """The noise level; 0 where there is no noise."""

    @property
    @abstractmethod
    def learned(self) -> bool:
        """Whether the level is being learned."""

    def level(self, clean: Tensor) -> Tensor:
        """The noise level at clean values: the same at all, unless it grows with them."""
        return self.std

    def whole(self, mask: Tensor) -> Tensor:
        """A mask of features that takes no feature without those it belongs to (the values of one category)."""
        return mask

    @property
    @abstractmethod
    def by_entry(self) -> bool:
        """Whether each entry has a level of its own."""

    @property
    @abstractmethod
    def searched(self) -> Tensor:
        """Entries whose level is, or was, to be found."""

    @abstractmethod
    def forget_noise(self, of: Tensor | None = None) -> None:
        """From now on entries are seen without error, all of them or some."""

    @abstractmethod
    def set_level(self, level: Tensor) -> None:
        """Take a noise level as found."""

    @abstractmethod
    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Simulate: observations of `clean` where only the entries `observed` are seen."""

    @abstractmethod
    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """log p(y | x), summed over the seen entries of each sample."""

    @abstractmethod
    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """log of the integral of p(y | x) p(x | z) over x, summed over the seen entries of each sample."""

    @abstractmethod
    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """p(x | z, y), proportional to p(x | z) p(y | x)."""

    @abstractmethod
    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """`clean` with the entries that the observations give exactly set to their values."""


class GaussianNoise(Corruption):
    """Entries go missing; the seen ones carry Gaussian noise: y = x + std * eps where observed.

    std: one number, or one an entry; where it is 0 the seen values are the clean ones (no noise at all).
    With `learn` it is where the search for the noise level starts, in all entries or in those that it marks. exact: entries
    without noise, whatever `std` says.

    >>> noise = GaussianNoise(0.5)
    >>> y = Observations(torch.tensor([[2.0, 0.0]]), torch.tensor([[True, False]]))
    >>> clean = Independent(Normal(torch.zeros(1, 2), torch.full((1, 2), 0.5)), 1)
    >>> noise.condition(y, clean).mean
    tensor([[1., 0.]])
    """

    def __init__(self, std: Tensor | float = 0.0, learn: bool | Tensor = False, exact: Tensor | None = None):
        super().__init__()
        std = torch.as_tensor(std, dtype=torch.float32)
        none = std < 1e-15  # smaller ones would vanish when squared in single precision
        self.register_buffer("exact", none if exact is None else none | exact)
        self.pins = bool(self.exact.any())
        # A level shared by all samples must learn ten times faster than the networks; Adam's steps are of
        # one size in each parameter, so the parameter is the logarithm in tens.
        log_std = torch.where(none, 1.0, std).log() / 10
        some = isinstance(learn, Tensor)
        self.log_std_tens = nn.Parameter(log_std, requires_grad=some or bool(learn))
        self.register_buffer("known", ~learn if isinstance(learn, Tensor) else None, persistent=False)
        self.known: Tensor | None

    @property
    def learned(self) -> bool:
        """Whether the level is being learned."""
        return self.log_std_tens.requires_grad

    @property
    def std(self) -> Tensor:
        """The noise level; 0 where there is no noise."""
        log_std = self.log_std_tens
        some = log_std if self.known is None else torch.where(self.known, log_std.detach(), log_std)
        return torch.where(self.exact, 0.0, (10 * some).exp())

    @property
    def by_entry(self) -> bool:
        """Whether each entry has a level of its own."""
        return self.log_std_tens.numel() > 1

    @property
    def searched(self) -> Tensor:
        """Entries whose level is, or was, to be found."""
        return ~self.exact if self.known is None else ~self.exact & ~self.known

    def forget_noise(self, of: Tensor | None = None) -> None:
        """From now on entries are seen without error, all of them or some."""
        self.exact = self.exact | (torch.ones_like(self.exact) if of is None else of)
        self.pins = bool(self.exact.any())

    @torch.no_grad()
    def set_level(self, level: Tensor) -> None:
        """Take a noise level as found."""
        self.log_std_tens.copy_(torch.where(self.exact, self.log_std_tens, level.clamp(min=1e-15).log() / 10))

    def keep_below(self, std: float) -> None:
        """Lower the level to this one where it is higher."""
        with torch.no_grad():
            self.log_std_tens.clamp_(max=log(std) / 10)

    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """y = x + std * eps where observed."""
        noisy = clean + self.level(clean) * normals(*clean.shape)
        return Observations(torch.where(observed, noisy, 0.0), observed)

    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Sum of log N(y; x, std^2) over seen entries; 0 for those without noise, where x is y."""
        std = self.level(clean) if unknowns is None else unknowns
        cells = Normal(clean, torch.where(self.exact, 1.0, std), validate_args=False).log_prob(obs.values)
        return _total(torch.where(obs.observed & ~self.exact, cells, 0.0), obs)

    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Sum of log N(y; mean, scale^2 + std^2) over seen entries: variances add."""
        base = clean.base_dist
        variance = base.scale.square() + self.level(base.loc).square()
        cells = (obs.values - base.loc).square() / variance + variance.log() + log(2 * pi)
        return -0.5 * _total(torch.where(obs.observed, cells, 0.0), obs)

    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """On seen entries precisions add; seen entries without noise are pinned to their values."""
        base = clean.base_dist
        variance, noise = base.scale.square(), torch.where(self.exact, 1.0, self.level(base.loc)).square()
        gain = torch.where(obs.observed, variance / (variance + noise), 0.0)
        loc = base.loc + gain * (obs.values - base.loc)
        scale = base.scale * torch.where(obs.observed, noise / (variance + noise), 1.0).sqrt()
        cells = Cells(loc, scale)
        return self.pin(obs, Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False))

    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """Seen entries without noise are known."""
        if not self.pins:
            return clean
        base, pinned = clean.base_dist, obs.observed & self.exact
        cells = PinnedNormal(torch.where(pinned, obs.values, base.loc), base.scale, pinned)
        return Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False)


class GrowingNoise(GaussianNoise):
    """Gaussian noise whose sd grows with the square of the clean value, as of depth sensors: std + growth (x - zero)^2.

    Given z, the level is taken at the decoder's mean, so that p(y|z) and p(x|z,y) have closed forms still.

    >>> GrowingNoise(0.5, 0.1, zero=-2.0).level(torch.tensor([-2.0, 0.0]))
    tensor([0.5000, 0.9000])
    """

    zero: Tensor

    def __init__(self, std: Tensor | float, growth: Tensor | float, zero: Tensor | float, learn: bool = False):
        super().__init__(std, learn)
        self.log_growth_tens = nn.Parameter(torch.as_tensor(growth, dtype=torch.float32).log() / 10, requires_grad=learn)
        self.register_buffer("zero", torch.as_tensor(zero, dtype=torch.float32))

    @property
    def growth(self) -> Tensor:
        """By how much the sd grows with the square of the clean value."""
        return (10 * self.log_growth_tens).exp()

    def level(self, clean: Tensor) -> Tensor:
        """The noise level at clean values."""
        return self.std + self.growth * (clean - self.zero).square()


def _total(cells: Tensor, obs: Observations) -> Tensor:
    return cells.flatten(-len(obs.event_shape)).sum(-1)


# Masks for experiments: True = seen. Each takes the share to hide, and reads no more than its name says.


def mask_at_random(shape: torch.Size | tuple[int, ...], missing: float, generator: torch.Generator) -> Tensor:
    """Completely at random (MCAR): each entry hidden with probability `missing`."""
    return torch.rand(shape, generator=generator) >= missing


def mask_given_others(clean: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """At random given other columns (MAR): the first half of the columns is seen, the rest hidden more
    often where a random combination of the first half is large. clean: (samples, features)."""
    drivers = clean.shape[1] // 2
    if missing * clean.shape[1] > clean.shape[1] - drivers:
        raise InvalidData(f"Half of the columns stay seen, so at most half of the entries can be hidden, got {missing}.")
    weights = torch.randn(drivers, clean.shape[1] - drivers, generator=generator)
    score = _standardised(clean[:, :drivers]) @ weights.to(clean.dtype)
    hidden = _hide_large(score, missing * clean.shape[1] / (clean.shape[1] - drivers), generator)
    return torch.cat([torch.ones(len(clean), drivers, dtype=torch.bool), ~hidden], 1)


def mask_by_own_value(clean: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """Not at random (MNAR, self-masking): large entries are hidden more often. clean: (samples, features)."""
    return ~_hide_large(clean, missing, generator)


def mask_window(samples: int, image: tuple[int, int], window: tuple[int, int], generator: torch.Generator) -> Tensor:
    """A visible window, placed at random in each image (supplement D.2). Returns (samples, height, width)."""
    seen = []
    for side, size in zip(image, window, strict=True):
        start = torch.randint(side - size + 1, (samples, 1), generator=generator)
        place = torch.arange(side)
        seen.append((place >= start) & (place < start + size))
    return seen[0][:, :, None] & seen[1][:, None, :]


def _standardised(values: Tensor) -> Tensor:
    return (values - values.mean(0)) / values.std(0).clamp(min=1e-12)


def _hide_large(score: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """Hide entries with a probability that rises with their score, `missing` on average in each column."""
    score = 2 * _standardised(score).double()
    low, high = torch.full(score.shape[1:], -30.0).double(), torch.full(score.shape[1:], 30.0).double()
    for _ in range(60):  # bisection for the intercept of a logistic curve
        middle = (low + high) / 2
        above = torch.sigmoid(score + middle).mean(0) > missing
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.rand(score.shape, generator=generator) < torch.sigmoid(score + high)
