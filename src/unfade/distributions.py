"""Densities of independent entries; a map of numbers into an interval."""

from math import log, pi

import torch
from torch import Tensor
from torch.distributions import Normal


class Cells(Normal):
    """Independent Gaussian entries: torch's Normal without checks, its density in fewer operations."""

    def __init__(self, loc: Tensor, scale: Tensor):
        super().__init__(loc, scale, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log-density of each entry."""
        return -0.5 * ((value - self.loc) / self.scale).square() - self.scale.log() - 0.5 * log(2 * pi)

    def at(self, normals: Tensor) -> Tensor:
        """Compute a draw, as a differentiable function of standard normal numbers."""
        return self.loc + self.scale * normals


def between(raw: Tensor, ends: Tensor) -> Tensor:
    """Map numbers into an interval (2, entries): the identity, of slope 1, in the middle, and where an end is infinite.

    >>> between(torch.tensor([-9.0, 0.5, 9.0, 9.0]), torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, torch.inf]])).round(decimals=1)
    tensor([0.0000, 0.5000, 1.0000, 9.0000])
    """
    low, span = ends[0], ends[1] - ends[0]
    known = span.isfinite()
    low, span = torch.where(known, low, 0.0), torch.where(known, span, 1.0)
    return torch.where(known, low + span * torch.sigmoid(4 / span * (raw - low) - 2), raw)
