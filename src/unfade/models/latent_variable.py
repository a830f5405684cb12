"""The two latent-variable models: the posterior q(x|y) and the prior p(x)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Independent, kl_divergence

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.models.conditional_densities import Conditional, reparametrise, standard_normal
from unfade.rng import Normals


@dataclass(frozen=True)
class Pool:
    """Weighted proposals of z for each sample: z (proposals, samples, latent), weights (proposals, samples)."""

    z: Tensor
    weights: Tensor

    def pick(self, normals: Tensor) -> Tensor:
        """One proposal for each entry of `normals` (draws, samples), by its weight: (draws, samples, latent)."""
        uniform = 0.5 * torch.erfc(-normals / 2**0.5)
        steps = self.weights.cumsum(0).T.contiguous()
        index = torch.searchsorted(steps, (uniform * steps[:, -1]).T.contiguous()).T.clamp(max=len(self.z) - 1)
        return self.z.gather(0, index[..., None].expand(*index.shape, self.z.shape[-1]))


Source = Pool | Independent  # where draws take their z from: a pool of candidates, or q(z|y)


class PosteriorLVM(nn.Module):
    """q(x|y) = integral of q(z|y,alpha) q(x|z,y,alpha) over z.

    encoder: q(z|y,alpha), given values and observed; decoder: given z, and also values and observed where
    `decoder_sees`. With `conditioned` the decoder's density is conditioned on y in closed form. `unknowns`,
    where given, is q(log beta|z,y,alpha). The latent prior p(z) is N(0, I), or q(z|nothing) with `own_prior`.

    Draws are plain (z from q(z|y)) or refined: z picked by importance weight from a `pool` of candidates.
    """

    def __init__(
        self,
        encoder: Conditional,
        decoder: Conditional,
        corruption: Corruption,
        conditioned: bool = True,
        decoder_sees: bool = False,
        unknowns: Conditional | None = None,
        own_prior: bool = False,
    ):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.corruption = corruption
        self.conditioned = conditioned
        self.decoder_sees = decoder_sees
        self.unknowns = unknowns
        self.own_prior = own_prior
        self.model: PosteriorLVM | None = None  # what resampling draws with; None: this one

    def latent(self, obs: Observations) -> Independent:
        """q(z|y,alpha)."""
        return self.encoder(obs.values, obs.observed.to(obs.values.dtype))

    def prior(self, obs: Observations, q: Independent) -> Independent:
        """p(z), of the shape of q(z|y), or one for all samples."""
        if not self.own_prior:
            return standard_normal(q.base_dist.loc)
        nothing = torch.zeros_like(obs.values[:1])
        return self.encoder(nothing, nothing)

    def decode(self, z: Tensor, obs: Observations) -> Independent:
        """The decoder's own density: p(x|z) of MVAE and MIWAE, before y is used."""
        if self.decoder_sees:
            return self.decoder(z, obs.values, obs.observed.to(z.dtype))
        return self.decoder(z)

    def clean(self, z: Tensor, obs: Observations) -> Independent:
        """q(x|z,y,alpha). z: (..., samples, latent)."""
        density = self.decode(z, obs)
        return self.corruption.condition(obs, density) if self.conditioned else self.corruption.pin(obs, density)

    def log_weight(self, z: Tensor, obs: Observations, q: Independent) -> Tensor:
        """log p(y|z) p(z) / q(z|y), of shape (..., samples)."""
        likelihood = self.corruption.marginal_log_prob(obs, self.decode(z, obs))
        return likelihood + self.prior(obs, q).log_prob(z) - q.log_prob(z)

    def pool(self, obs: Observations, candidates: int, normals: Normals) -> Pool:
        """Proposals from q(z|y), a quarter of them from p(z), with their importance weights under the decoder.

        The quarter is for rows unlike those of training, where q(z|y) may be narrow and wrong: weights are bounded.
        """
        q, share = self.latent(obs), (candidates // 4) / candidates
        p = self.prior(obs, q)
        numbers = normals(candidates, *q.base_dist.loc.shape)
        first = candidates - candidates // 4
        z = torch.cat([reparametrise(q, numbers[:first]), reparametrise(p, numbers[first:])])
        prior, own = p.log_prob(z), q.log_prob(z)
        source = torch.logaddexp(own + log1p(-share), prior + log(share)) if share else own
        likelihood = self.corruption.marginal_log_prob(obs, self.decode(z, obs))
        weights = (likelihood + prior - source).softmax(0)
        return Pool(z, torch.where(weights.isfinite(), weights, 1 / candidates))  # far outside the data: all alike

    def drawn_with(self, n_candidates: int) -> "PosteriorLVM":
        """What draws are made with: where they are resampled, the model they are resampled by."""
        return self.model if n_candidates and self.model is not None else self

    def source(self, obs: Observations, n_candidates: int, normals: Normals) -> Source:
        """Where draws take their z from: q(z|y), or `n_candidates` weighted proposals."""
        return self.pool(obs, n_candidates, normals) if n_candidates else self.latent(obs)

    def draw(self, obs: Observations, draws: int, normals: Normals, source: Source, first: int = 0) -> Tensor:
        """Draws of x, (draws, samples, *event); first: number of the first, which nothing here depends on."""
        if isinstance(source, Pool):
            z = source.pick(normals(draws, len(obs)))
        else:
            z = reparametrise(source, normals(draws, *source.base_dist.loc.shape))
        density = self.clean(z, obs)
        return reparametrise(density, normals(*density.base_dist.loc.shape))

    def mean(self, obs: Observations, draws: int, normals: Normals, source: Source) -> Tensor:
        """Posterior mean of x, (samples, *event): E[x|z,y] averaged over `draws` of z, or over proposals by weight."""
        if isinstance(source, Pool):
            pool = source
        else:
            z = reparametrise(source, normals(draws, *source.base_dist.loc.shape))
            pool = Pool(z, torch.full(z.shape[:2], 1 / draws, device=z.device))
        centres = self.clean(pool.z, obs).base_dist.mean
        weights = pool.weights.reshape(*pool.weights.shape, *[1] * len(obs.event_shape))
        return (weights * centres).sum(0)


class Ensemble(nn.Module):
    """Posteriors as one, a mixture: each gives its share of the draws, means are averaged by shares.

    Each has learned something else where the data leave room for it, so that their draws together say what
    one alone does not know.

    turns: which member gives each of 16 draws, and of the next 16 in the same order; None: each in turn.
    """

    def __init__(self, members: Sequence[nn.Module], turns: Sequence[int] | None = None):
        super().__init__()
        self.members = nn.ModuleList(members)
        self.turns = None if turns is None else tuple(turns)

    @property
    def each(self) -> list[PosteriorLVM]:
        """The ensemble members."""
        return [cast(PosteriorLVM, member) for member in self.members]

    @property
    def exact(self) -> Tensor:
        """Which features are observed without noise; the same for all ensemble members."""
        return self.each[0].corruption.exact

    @property
    def noise(self) -> Tensor | None:
        """The noise level, a mean where ensemble members have learned it; None where it depends on the sample.

        Where it grows with the value, the level at 0, the mean of the data.
        """
        if self.each[0].unknowns is not None:
            return None
        middle = torch.zeros((), device=next(self.parameters()).device)
        return torch.stack([member.corruption.level(middle) for member in self.each]).mean(0)

    def drawn_with(self, n_candidates: int) -> "Ensemble":
        """What draws are made with."""
        return Ensemble([member.drawn_with(n_candidates) for member in self.each], self.turns)

    def source(self, obs: Observations, n_candidates: int, normals: Normals) -> list[Source]:
        """Where the draws of each ensemble member take their z from."""
        return [member.source(obs, n_candidates, normals) for member in self.each]

    def draw(
        self, obs: Observations, draws: int, normals: Normals, source: list[Source], together: int, first: int = 0
    ) -> Tensor:
        """The first `draws` of `together` draws of x, (draws, samples, *event); those of no draw are not run.

        first: number of the first of them, a multiple of `together`.
        """
        turns = self._places(together)
        parts, order = [], []
        for member, turn, own in zip(self.each, turns, source, strict=True):
            if turn and turn[0] < draws:
                parts.append(member.draw(obs, len(turn), normals, own, first // together * len(turn)))
                order += turn
        return torch.cat(parts)[torch.tensor(order, device=obs.values.device).argsort()[:draws]]

    def _places(self, together: int) -> list[list[int]]:
        """Which of so many draws each ensemble member gives."""
        turns = self.turns or range(len(self.members))
        return [[k for k in range(together) if turns[k % len(turns)] == member] for member in range(len(self.members))]

    def mean(self, obs: Observations, draws: int, normals: Normals, source: list[Source]) -> Tensor:
        """Posterior mean of x, (samples, *event)."""
        turns = self.turns or range(len(self.members))
        means = torch.zeros_like(obs.values)
        for number, (member, own) in enumerate(zip(self.each, source, strict=True)):
            share = sum(turn == number for turn in turns) / len(turns)
            if share:
                means += share * member.mean(obs, max(1, int(draws * share)), normals, own)
        return means


class PriorLVM(nn.Module):
    """p(x) = integral of p(z_p) p(x|z_p) over z_p, p(z_p) = N(0, I), with its encoder q(z_p|x)."""

    def __init__(self, encoder: Conditional, decoder: Conditional):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def elbo(self, x: Tensor, normals: Normals) -> tuple[Tensor, Tensor]:
        """P = log p(x|z_p) at one draw of z_p, and K = KL(q(z_p|x) || p(z_p)); log p(x) >= E[P - K]."""
        q = self.encoder(x)
        z = reparametrise(q, normals(*q.base_dist.loc.shape))
        return self.decoder(z).log_prob(x), kl_divergence(q, standard_normal(z))

    def log_prob(self, x: Tensor, weights: int, normals: Normals) -> Tensor:
        """Importance-weighted bound on log p(x), tight as `weights` grows."""
        q = self.encoder(x)
        z = reparametrise(q, normals(weights, *q.base_dist.loc.shape))
        log_w = self.decoder(z).log_prob(x) + standard_normal(z).log_prob(z) - q.log_prob(z)
        return log_w.logsumexp(0) - log(weights)
