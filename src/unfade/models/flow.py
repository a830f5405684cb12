"""FlowPosterior: q(x|y) as an ordinary differential equation from noise to clean data, given the observations.

    dx_t = v(x_t, t, y, mask) dt,   x_0 ~ N(0, I),   x_1 ~ q(x|y);

with everything masked the same network gives draws of the prior p(x). It does not depend on how v is trained.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from math import log

import torch
from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.models.velocity_networks import VelocityNetwork
from unfade.rng import Normals

ROWS = 2048  # that go through the network together on a GPU: one shape, so that it is compiled once


class FlowPosterior(nn.Module):
    """Draws of x given y. Each step evaluates the network once, at x_t, t: the clean values it leads to, x_t + (1 - t) v.

    These change by little, and are taken as linear in t over a step and the one before; with that the equation is solved
    exactly.

    Parameters
    ----------
    network : VelocityNetwork
        Called with x_t, y and mask (samples, features) each, t (samples,), and normal numbers for dropout.
    corruption : Corruption
    entries : Tensor, (features,), or None
        Where the features lie among the entries of an image; None: all, in order.
    size : int
        Number of entries of an image.
    steps : int
        Of the differential equation, each an evaluation of the network.
    """

    unknowns = None
    model = None
    own_prior = True
    conditioned = False
    decoder_sees = True
    centre: Tensor
    scale: Tensor
    ends: Tensor

    def __init__(
        self,
        network: VelocityNetwork,
        corruption: Corruption,
        entries: Tensor | None = None,
        size: int = 0,
        steps: int = 16,
    ):
        super().__init__()
        self.network, self.corruption, self.steps, self.size = network, corruption, steps, size
        self.register_buffer("entries", entries)
        self.entries: Tensor | None
        self.register_buffer("centre", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("ends", torch.tensor([-torch.inf, torch.inf]))

    def velocity(
        self, x_t: Tensor, t: Tensor, obs: Observations, numbers: Tensor | None = None, compiled: bool = True
    ) -> Tensor:
        """Compute v at x_t, in units of the network.

        Parameters
        ----------
        x_t : Tensor, (samples, features)
        t : Tensor, (samples,)
        obs : Observations
        numbers : Tensor or None
            For dropout.
        compiled : bool
            Whether a GPU compiles it, once for each number of samples.

        Returns
        -------
        Tensor, (samples, features)
        """
        seen = obs.observed.to(x_t.dtype)
        parts = [x_t, (obs.values - self.centre) / self.scale * seen, 2 * seen - 1]
        run = _compiled if compiled and x_t.device.type == "cuda" else _evaluate
        found = run(self.network, [self._spread(part) for part in parts], t, numbers)
        return found if self.entries is None else found[:, self.entries]

    def scaled(self, x: Tensor) -> Tensor:
        """Clean values in units of the network."""
        return (x - self.centre) / self.scale

    @property
    def dropped(self) -> int:
        """Count the numbers that dropout needs per sample."""
        return self.network.dropped if self.network.dropout else 0

    def flow(self, start: Tensor, obs: Observations, steps: int) -> Tensor:
        """Carry noise (samples, features) to clean values of the same shape."""
        x = start
        times = [1 - (1 - step / steps) ** 2 for step in range(steps + 1)]  # closer to each other towards clean values
        before, at = x, -1.0
        for now, then in pairwise(times):
            clean = x + (1 - now) * self.velocity(x, x.new_full((len(x),), now), obs)
            change = (clean - before) / (now - at) if now else torch.zeros_like(clean)
            left = (1 - then) / (1 - now)
            late = then - now + ((1 - then) * log(left) if left else 0.0)
            x = left * x + (1 - left) * clean + late * change
            before, at = clean, now
        return self._clean(x, obs)

    def drawn_with(self, n_candidates: int) -> "FlowPosterior":
        """What draws are made with."""
        return self

    def source(self, obs: Observations, n_candidates: int = 0, normals: Normals | None = None) -> None:
        """Nothing is computed before the draws."""

    def draw(self, obs: Observations, draws: int, normals: Normals, source: None = None, first: int = 0) -> Tensor:
        """Draws of x, (draws, samples, features)."""
        return self.redraw(obs, normals(draws, *obs.values.shape), self.steps)

    def mean(self, obs: Observations, draws: int, normals: Normals, source: None = None) -> Tensor:
        """Posterior mean of x, (samples, features)."""
        return self.draw(obs, draws, normals).mean(0)

    def redraw(self, obs: Observations, start: Tensor, steps: int) -> Tensor:
        """Carry noise (draws, samples, features) to draws, as many at a time as go through the network together."""
        draws, flat = len(start), start.flatten(0, 1)
        rows = torch.arange(len(obs), device=flat.device).repeat(draws)
        height = ROWS if flat.device.type == "cuda" else len(flat)
        parts = []
        with torch.inference_mode(), _without_gradients(self.network):
            for begin in range(0, len(flat), height):
                places = torch.arange(begin, begin + height, device=flat.device).clamp(max=len(flat) - 1)
                parts.append(self.flow(flat[places], obs[rows[places]], steps)[: len(flat) - begin])
        return torch.cat(parts).reshape(start.shape)

    def log_prob(self, x: Tensor, obs: Observations, normals: Normals, steps: int = 32, probes: int = 1) -> Tensor:
        """Compute log q(x|y) by the equation backwards; its divergence is estimated by random probes.

        Parameters
        ----------
        x : Tensor, (samples, features)
        obs : Observations
        normals : callable
            Gives the probes; where there are as many as features, unit vectors are taken and the divergence is exact.
        steps, probes : int

        Returns
        -------
        Tensor, (samples,)
        """
        features = x.shape[1]
        exact = probes >= features
        vectors = torch.eye(features).to(x)[:, None].expand(-1, *x.shape) if exact else normals(probes, *x.shape).sign()
        now, total = self.scaled(x), x.new_zeros(len(x))
        times = torch.linspace(1, 0, steps + 1).tolist()
        for start, stop in pairwise(times):
            slope, _ = self._divergence(now, start, obs, vectors[:0])
            middle = now + (stop - start) / 2 * slope
            slope, spread = self._divergence(middle, (start + stop) / 2, obs, vectors)
            now, total = now + (stop - start) * slope, total + (stop - start) * spread / (1 if exact else len(vectors))
        normal = torch.distributions.Normal(0.0, 1.0).log_prob(now).sum(1)
        return normal + total - features * self.scale.log()

    def _divergence(self, x: Tensor, t: float, obs: Observations, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """v at x, and the sum of the derivatives along the vectors, (samples,)."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            slope = self.velocity(x, x.new_full((len(x),), t), obs, compiled=False)
            total = torch.zeros(len(x), device=x.device)
            for vector in vectors:
                (found,) = torch.autograd.grad(slope, x, vector, retain_graph=True)
                total = total + (found * vector).sum(1)
        return slope.detach(), total

    def _clean(self, x: Tensor, obs: Observations) -> Tensor:
        """Values in units of the data, within their ends; entries observed without noise as they were observed."""
        x = (self.centre + self.scale * x).clamp(self.ends[0], self.ends[1])
        return torch.where(obs.observed & self.corruption.exact, obs.values, x)

    def _spread(self, part: Tensor) -> Tensor:
        """Features at their places in the image."""
        if self.entries is None:
            return part
        return part.new_zeros(len(part), self.size).index_copy(1, self.entries, part)


@contextmanager
def _without_gradients(network: nn.Module) -> Iterator[None]:
    """Parameters take no gradients inside, in training as afterwards: for a compiler, that is another program."""
    changed = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in changed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in changed:
            parameter.requires_grad_(True)


def _evaluate(network: nn.Module, parts: list[Tensor], t: Tensor, numbers: Tensor | None) -> Tensor:
    found: Tensor = network(parts, t, numbers)
    return found


@cache
def _compiler() -> Callable[..., Tensor]:
    return torch.compile(_evaluate, dynamic=False, options={"force_layout_optimization": True})  # channels last


def _compiled(network: nn.Module, parts: list[Tensor], t: Tensor, numbers: Tensor | None) -> Tensor:
    """Evaluate compiled code, one for all networks of a form, in sixteen bits."""
    with torch.autocast("cuda", torch.bfloat16):
        return _compiler()(network, parts, t, numbers).float()
