"""Conditional densities: modules whose forward(*condition) returns a torch Distribution."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.distributions import Independent

from unfade.distributions import Cells, between


def squeezed(raw: Tensor, width: float) -> Tensor:
    """A number in (-width/2, width/2) with slope 1 at 0, so that log-variances learn at the rate of means."""
    return width / 2 * torch.tanh(2 / width * raw)


def reparametrise(density: Independent, normals: Tensor) -> Tensor:
    """A draw of a density as a function of standard normal numbers; differentiable where it is Gaussian."""
    return density.base_dist.at(normals)


def unstacked(density: Independent) -> list[Independent]:
    """The densities along the first axis, as where one pass of a network gave several."""
    loc, scale = density.base_dist.loc.unbind(), density.base_dist.scale.unbind()
    return [Independent(Cells(*each), 1, validate_args=False) for each in zip(loc, scale, strict=True)]


class Conditional(nn.Module, ABC):
    """A density given something: forward(*condition) returns a Distribution.

    offset: where its log-variances start.
    """

    offset: Tensor

    @abstractmethod
    def forward(self, *condition: Tensor) -> Independent:
        """The density, one for each entry of the condition's leading axes."""


class Gaussian(Conditional):
    """Independent Gaussians whose means and log-variances come from a network.

    The log-variance stays within (-width/2, width/2): `width` is what the docs call the variance floor, and
    the ELBO of the truth depends on it. With `shared_variance` there is one log-variance an entry, the same
    for all conditions; the network then returns means only. With `bounded`, means stay between `ends` (2, features).
    widest: what sds stay below. plain: sigmoids of the network's outputs as they are, of slope 1/4 at 0, for bounded means
    and for log-variances, width (sigmoid(raw / width) - 1/2). added: what is added to variances.
    """

    def __init__(
        self,
        network: nn.Module,
        features: int,
        width: float = 20.0,
        shared_variance: bool = False,
        bounded: bool = False,
        widest: float | None = None,
        plain: bool = False,
        added: float = 0.0,
    ):
        super().__init__()
        self.widest = widest
        self.plain, self.added = plain, added
        self.ends: Tensor | None
        self.network = network
        self.width = width
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("ends", torch.tensor([[0.0], [1.0]]).repeat(1, features) if bounded else None)
        # A parameter shared by all samples learns ten times faster: Adam steps in tens.
        self.raw_tens = nn.Parameter(torch.zeros(features)) if shared_variance else None

    def forward(self, *condition: Tensor) -> Independent:
        """Condition tensors (..., features_i); returns a density over (..., features)."""
        out = self.network(*condition)
        if self.raw_tens is None:
            mean, raw = out.chunk(2, -1)
        else:
            mean, raw = out, (10 * self.raw_tens).expand(out.shape)
        if self.ends is not None:
            mean = between(self._flatter(mean, self.ends) if self.plain else mean, self.ends)
        raw = raw / 4 if self.plain else raw
        scale = (squeezed(raw + self.offset, self.width) / 2).exp()
        if self.added:
            scale = (scale.square() + self.added).sqrt()
        if self.widest is not None:
            scale = self.widest * torch.tanh(scale / self.widest)
        return Independent(Cells(mean, scale), 1, validate_args=False)

    @staticmethod
    def _flatter(mean: Tensor, ends: Tensor) -> Tensor:
        """What `between` maps to the interval by a sigmoid of slope 1/4."""
        middle = ends.mean(0)
        return torch.where(middle.isfinite(), mean / 4 + middle.nan_to_num(posinf=0.0, neginf=0.0), mean)


def standard_normal(like: Tensor) -> Independent:
    """N(0, I) over the last axis, shaped and placed like a tensor."""
    return Independent(Cells(torch.zeros_like(like), torch.ones_like(like)), 1, validate_args=False)
