"""The linear model: factor analysis of corrupted data, with p(z|y) in closed form.

Where a table is no more than means and correlations, networks learn weak relations last, and what they leave out
biases every regression on their draws. This model learns them first.
"""

from math import ceil, log, pi, sqrt

import torch
from torch import Tensor, nn
from torch.distributions import Independent

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.distributions import Cells
from unfade.models.conditional_densities import Conditional
from unfade.models.latent_variable import PosteriorLVM
from unfade.models.networks import product

Factors = tuple[Tensor, Tensor, Tensor]  # loadings (features, factors), means and variances of what is left (features,)
_MOST_FACTORS = 16
_LEAST = 1e-4  # share of a column's variance that factors leave at least


class CorrelatedCells(Cells):
    """Gaussian entries that are not independent: loc + root @ normals, root (..., entries, entries) lower triangular."""

    def __init__(self, loc: Tensor, root: Tensor):
        super().__init__(loc, root.diagonal(dim1=-2, dim2=-1))
        self.root = root

    def log_prob(self, value: Tensor) -> Tensor:
        """Terms whose sum over the entries is the log-density."""
        normals = torch.linalg.solve_triangular(self.root, (value - self.loc)[..., None], upper=False)[..., 0]
        return -0.5 * normals.square() - self.scale.log() - 0.5 * log(2 * pi)

    def at(self, normals: Tensor) -> Tensor:
        """A draw."""
        return self.loc + (self.root @ normals[..., None])[..., 0]


class LinearDecoder(Conditional):
    """p(x|z): mean + loadings z, one variance an entry."""

    def __init__(self, loadings: Tensor, mean: Tensor, variance: Tensor):
        super().__init__()
        self.loadings, self.mean, self.variance = (nn.Parameter(part) for part in (loadings, mean, variance))

    def forward(self, *condition: Tensor) -> Independent:
        """z: (..., factors)."""
        loc = product(condition[0], self.loadings.T) + self.mean
        return Independent(Cells(loc, self.variance.sqrt().expand(loc.shape)), 1, validate_args=False)


class LinearEncoder(Conditional):
    """p(z|y,alpha) of the same model, exactly where entries are Gaussian; variance: noise included."""

    def __init__(self, loadings: Tensor, mean: Tensor, variance: Tensor):
        super().__init__()
        self.loadings, self.mean, self.variance = (nn.Parameter(part.clone()) for part in (loadings, mean, variance))

    def forward(self, *condition: Tensor) -> Independent:
        """values and observed, (samples, features)."""
        y, seen = condition
        given = (part.double() for part in (y, seen, self.loadings, self.mean, self.variance))
        loc, covariance = latent_moments(*given)
        root = torch.linalg.cholesky(covariance)
        return Independent(CorrelatedCells(loc.to(y.dtype), root.to(y.dtype)), 1, validate_args=False)


def latent_moments(y: Tensor, seen: Tensor, loadings: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (samples, factors) and covariance of z given what is seen, 1.0 where it is."""
    precise = loadings / variance[:, None]
    outer = (precise[:, :, None] * loadings[:, None, :]).flatten(1)
    eye = torch.eye(loadings.shape[1], dtype=y.dtype, device=y.device)
    covariance = torch.linalg.inv(product(seen, outer).unflatten(-1, eye.shape) + eye)
    covariance = (covariance + covariance.mT) / 2
    return (covariance @ product(seen * (y - mean), precise)[..., None])[..., 0], covariance


def linear_posterior(factors: Factors, corruption: Corruption) -> PosteriorLVM:
    """q(x|y) by a linear encoder and decoder."""
    loadings, mean, variance = (part.float() for part in factors)
    total = variance + corruption.std.detach().square()
    posterior = PosteriorLVM(LinearEncoder(loadings, mean, total), LinearDecoder(loadings, mean, variance), corruption)
    return posterior.requires_grad_(False).eval()


def blank_factors(features: int, factors: int | None = None) -> Factors:
    """Factors of the right shapes, to be filled in."""
    return torch.zeros(features, factors or factors_for(features)), torch.zeros(features), torch.ones(features)


def factors_for(features: int) -> int:
    """As many as it takes to fit any covariance (Ledermann's bound), within reason.

    >>> factors_for(6), factors_for(60)
    (3, 16)
    """
    return max(1, min(_MOST_FACTORS, ceil(features + 0.5 - sqrt(2 * features + 0.25))))


@torch.no_grad()
def factor_analysis(
    obs: Observations, noise: Tensor, weights: Tensor | None = None, start: Factors | None = None, rounds: int = 300
) -> Factors:
    """The likeliest factors by expectation-maximisation, from what is observed.

    noise: its sd in each feature; weights: one a sample. After every round the factors are brought back to N(0, I)
    (parameter-expanded EM), which saves most of the rounds.
    """
    y, seen = obs.values.double(), obs.observed.double()
    w = torch.ones_like(y[:, 0]) if weights is None else weights.double() / weights.double().mean()
    extra = noise.double().square().expand(y.shape[1])
    cells = (w[:, None] * seen).T  # (features, samples)
    counts = cells.sum(1).clamp(min=1e-6)
    squares = (cells * y.T.square()).sum(1)
    own = (squares / counts - ((cells * y.T).sum(1) / counts).square()).clamp(min=1e-12)  # of each column
    loadings, mean, variance = _start(y, cells / counts[:, None], own) if start is None else start
    variance, unit = variance + extra, own.sqrt().outer(own.sqrt())
    for _ in range(rounds):
        before = loadings @ loadings.T
        loc, covariance = latent_moments(y, seen, loadings, mean, variance)
        joint = _with_one(loc)[:, :, None] * _with_one(loc)[:, None, :]  # E[(z, 1)(z, 1)'] of each sample
        joint[:, :-1, :-1] += covariance
        gram = (cells @ joint.flatten(1)).unflatten(-1, joint.shape[1:])
        gram = gram + 1e-6 * counts[:, None, None] * torch.eye(joint.shape[1], dtype=y.dtype, device=y.device)
        cross = (cells * y.T) @ _with_one(loc)
        solved = torch.linalg.solve(gram, cross)
        variance = torch.maximum((squares - (cross * solved).sum(1)) / counts, extra + _LEAST * own)
        moments = (w[:, None, None] * joint).mean(0)
        centre, covariance = moments[-1, :-1], moments[:-1, :-1] - moments[-1, :-1].outer(moments[-1, :-1])
        mean = solved[:, -1] + solved[:, :-1] @ centre
        loadings = solved[:, :-1] @ torch.linalg.cholesky(covariance)
        if ((loadings @ loadings.T - before) / unit).abs().max() < 1e-3:
            break
    return loadings, mean, variance - extra


def _start(y: Tensor, shares: Tensor, own: Tensor) -> Factors:
    """Half of each column's own variance left to itself, half to factors at random; shares: (features, samples)."""
    mean, half = (shares * y.T).sum(1), own / 2
    factors = factors_for(y.shape[1])
    random = torch.randn(len(mean), factors, generator=torch.Generator().manual_seed(0), dtype=y.dtype).to(y.device)
    return (half / factors).sqrt()[:, None] * random, mean, half


def _with_one(loc: Tensor) -> Tensor:
    return torch.cat([loc, torch.ones_like(loc[:, :1])], 1)


def resampled_factors(obs: Observations, noise: Tensor, fits: int, seed: int) -> list[Factors]:
    """Factors from as many reweightings of the samples (the Bayesian bootstrap): what the data leave open about them."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.empty(fits, len(obs)).exponential_(generator=generator).to(obs.values.device)
    middle = factor_analysis(obs, noise)
    return [factor_analysis(obs, noise, each, start=middle, rounds=100) for each in weights]
