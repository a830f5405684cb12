"""Linear-Gaussian data whose posterior is known exactly: x = A z + sd e, y = x + noise, some entries missing."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unfade.corruption.masks import mask_at_random
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.rng import generator_normals


@dataclass(frozen=True)
class LinearGaussian:
    loadings: Tensor  # (features, factors)
    idiosyncratic: float
    noise: float

    @property
    def covariance(self) -> Tensor:
        return self.loadings @ self.loadings.T + self.idiosyncratic**2 * torch.eye(len(self.loadings))

    def posterior(self, obs: Observations) -> tuple[Tensor, Tensor]:
        """Exact mean (samples, features) and covariance (samples, features, features) of x given y."""
        S = self.covariance.double()
        seen = obs.observed.double()
        C = seen[:, :, None] * (S + self.noise**2 * torch.eye(len(S))) * seen[:, None, :] + torch.diag_embed(1 - seen)
        gain = (S * seen[:, None, :]) @ torch.linalg.inv(C)
        return (gain @ obs.values.double()[..., None])[..., 0], S - gain @ (S * seen[:, None, :]).mT

    def log_prob(self, obs: Observations) -> Tensor:
        """Exact log p(y) of each sample."""
        S = self.covariance.double() + self.noise**2 * torch.eye(len(self.loadings))
        seen = obs.observed.double()
        C = seen[:, :, None] * S * seen[:, None, :] + torch.diag_embed(1 - seen)
        y = obs.values.double()
        quadratic = (y[:, None] @ torch.linalg.solve(C, y[..., None])).flatten()
        return -0.5 * (quadratic + torch.logdet(C) + seen.sum(1) * torch.log(torch.tensor(2 * torch.pi)))


def make(samples: int = 4000, seed: int = 0, features: int = 8, factors: int = 2, missing: float = 0.3):
    """The model, clean data and observations: rank 2 of 8 columns, sd .3, noise .3, 30 % missing."""
    generator = torch.Generator().manual_seed(seed)
    model = LinearGaussian(torch.randn(features, factors, generator=generator), 0.3, 0.3)
    z = torch.randn(samples, factors, generator=generator)
    clean = z @ model.loadings.T + 0.3 * torch.randn(samples, features, generator=generator)
    observed = mask_at_random(clean.shape, missing, generator)
    return model, clean, GaussianNoise(model.noise).corrupt(clean, observed, generator_normals(generator))
