"""Gaussian noise whose standard deviation grows with the clean value."""

from math import pi

import torch
from torch import Tensor, nn

from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations


class GrowingNoise(GaussianNoise):
    """Gaussian noise with sd = std + growth (x - zero)^2, as of depth sensors.

    Given z, the level is taken at the decoder's mean, so that p(y|z) and p(x|z,y) keep closed forms.

    Parameters
    ----------
    std, growth, zero : float or Tensor, (*event)
    learn : bool
        Whether `std` and `growth` are learned.

    Examples
    --------
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
        """Increase of the sd per squared unit of the clean value."""
        return (10 * self.log_growth_tens).exp()

    def level(self, clean: Tensor) -> Tensor:
        """Compute the noise level at clean values."""
        return self.std + self.growth * (clean - self.zero).square()

    def squares(self, obs: Observations, clean: Tensor) -> Tensor:
        """Sum the products of the least squares of |y - x| on 1 and (x - zero)^2, per row."""
        far = (clean - self.zero).square()
        left = (obs.values - clean).abs() * (pi / 2) ** 0.5  # whose mean is the level
        products = torch.stack([torch.ones_like(far), far, far.square(), left, left * far])
        return torch.where(obs.observed, products, 0.0).sum(-1).mean(1)

    @torch.no_grad()
    def fit_noise(self, squares: Tensor) -> None:
        """Set level and growth to the line of least squares, neither below a thousandth of the mean."""
        one, far, both, left, across = squares.double()
        growth = (one * across - far * left) / (one * both - far.square()).clamp(min=1e-12)
        mean = left / one
        growth = growth.clamp(min=1e-3 * mean / (far / one).clamp(min=1e-12), max=mean * one / far.clamp(min=1e-12))
        level = (mean - growth * far / one).clamp(min=1e-3 * mean)
        self.log_std_tens.fill_(float(level.log() / 10))
        self.log_growth_tens.fill_(float(growth.log() / 10))
