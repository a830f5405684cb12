"""The objectives, side by side: MVAE, MIWAE, the paper's TAE, the TAE by its exact bound, and by what it predicts.

Letters are the paper's: x clean, y observations, z the posterior's latent, z_p the prior's. `normals`
gives the random numbers. Every value is per sample and is maximised.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.nn import functional

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.models.conditional_densities import Conditional, reparametrise, standard_normal, unstacked
from unfade.models.latent_variable import PosteriorLVM, PriorLVM
from unfade.rng import Normals

Hiding = Callable[[Observations, Normals], Tensor]  # which entries of samples to hide, (samples, *event)


@dataclass(frozen=True)
class Bound:
    """An objective's value for each sample, and the named terms it is made of; all (samples,)."""

    value: Tensor
    terms: dict[str, Tensor]


class Objective(nn.Module, ABC):
    """What training maximises. Owns the networks that only it needs.

    compiles: whether it compiles on a GPU what is slow, so that the step as a whole is not. captures: whether a GPU can
    record its step.
    """

    compiles = False
    captures = True

    @abstractmethod
    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """The value at one set of random numbers; `warmup` is the paper's gamma."""


class MVAE(Objective):
    """E_q(z|y) log p(y|z) - KL(q(z|y) || p(z)), with p(y|z) in closed form (equation 2)."""

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """A bound on log p(y)."""
        q = posterior.latent(obs)
        z = reparametrise(q, normals(*q.base_dist.loc.shape))
        E = posterior.corruption.marginal_log_prob(obs, posterior.decode(z, obs))
        K = kl_divergence(q, standard_normal(z))
        return Bound(E - K, {"E": E, "K": K})


class MIWAE(Objective):
    """E log 1/k sum_j p(y|z_j) p(z_j) / q(z_j|y), z_j from q(z|y): MVAE's bound with k weights."""

    def __init__(self, weights: int = 20):
        super().__init__()
        self.weights = weights

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """A bound on log p(y), tight as the number of weights grows."""
        q = posterior.latent(obs)
        z = reparametrise(q, normals(self.weights, *q.base_dist.loc.shape))
        log_w = posterior.log_weight(z, obs, q)
        bound = log_w.logsumexp(0) - log(self.weights)
        ess = 1 / log_w.detach().softmax(0).square().sum(0)
        return Bound(bound, {"effective weights": ess})


class PaperTAE(Objective):
    """E + gamma (P - K + Hx) + Hz - lambda |R - Q - C|, equation TAE_WU to the letter. Not a bound.

    inverter: r(z|x), or r(z|x,y,alpha) where `inverter_sees`. penalty: "sample" takes |.| of each sample
    (the pseudo-code), "expectation" of the batch mean (the equation). pinned: of entries observed without noise, x = y;
    otherwise x is drawn there too and E is the log-density of y under q(x|z), masked: y replaces x in draws only.
    """

    def __init__(
        self,
        prior: PriorLVM,
        inverter: Conditional,
        inverter_sees: bool = False,
        lam: float = 2.0,
        C: float = 10.0,
        penalty: str = "sample",
        pinned: bool = True,
    ):
        super().__init__()
        self.prior = prior
        self.pinned = pinned
        self.inverter = inverter
        self.inverter_sees = inverter_sees
        self.lam: Tensor
        self.C: Tensor
        self.register_buffer("lam", torch.tensor(float(lam)))  # buffers, so that models side by side may differ
        self.register_buffer("C", torch.tensor(float(C)))
        self.penalty = penalty

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """The paper's value; gamma = warmup."""
        q_z = posterior.latent(obs)
        z = reparametrise(q_z, normals(*q_z.base_dist.loc.shape))
        q_x = posterior.clean(z, obs) if self.pinned else posterior.decode(z, obs)
        x = reparametrise(q_x, normals(*q_x.base_dist.loc.shape))
        seen = (obs.values, obs.observed.to(x.dtype))
        unknowns = None
        if posterior.unknowns is not None:  # beta ~ q(beta|z,y,alpha), supplement B.2
            q_beta = posterior.unknowns(z, *seen)
            unknowns = reparametrise(q_beta, normals(*q_beta.base_dist.loc.shape)).exp()

        E = (
            posterior.corruption.log_prob(obs, x, unknowns)
            if self.pinned
            else posterior.corruption.marginal_log_prob(obs, q_x)
        )
        P, K = self.prior.elbo(x, normals)
        Hz, Hx = q_z.entropy(), q_x.entropy()
        R = self.inverter(x, *(seen if self.inverter_sees else ())).log_prob(z)
        Q = q_z.log_prob(z)

        localisation = R - Q if self.penalty == "sample" else (R - Q).mean().expand(len(obs))
        value = E + warmup * (P - K + Hx) + Hz - self.lam * (localisation - self.C).abs()
        return Bound(value, {"E": E, "P": P, "K": K, "Hz": Hz, "Hx": Hx, "R": R, "Q": Q})


class TAE(Objective):
    """E + log p(x) - log q(x|y), each of the last two by an importance-weighted bound: a true bound on log p(y).

    log p(x)     >= E log 1/k sum_j p(x|z_pj) p(z_pj) / q(z_pj|x)
    -log q(x|y)  >= -E log 1/(k+1) sum_j q(x|z_j,y) q(z_j|y) / r(z_j|x,y), z_0 the z that made x, the others from r.

    It needs neither C nor lambda nor the reduced entropy: r = q(z|x,y) makes it tight at any k.
    """

    def __init__(self, prior: PriorLVM, inverter: Conditional, weights: int = 8):
        super().__init__()
        self.prior = prior
        self.inverter = inverter
        self.weights = weights

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """A bound on log p(y) at warmup = 1."""
        q_z = posterior.latent(obs)
        z = reparametrise(q_z, normals(*q_z.base_dist.loc.shape))
        q_x = posterior.clean(z, obs)
        x = reparametrise(q_x, normals(*q_x.base_dist.loc.shape))
        r = self.inverter(x, obs.values, obs.observed.to(x.dtype))
        others = reparametrise(r, normals(self.weights, *z.shape))
        zs = torch.cat([z[None], others])

        E = posterior.corruption.log_prob(obs, x)
        P = self.prior.log_prob(x, self.weights, normals)
        log_w = posterior.clean(zs, obs).log_prob(x) + q_z.log_prob(zs) - r.log_prob(zs)
        H = log(self.weights + 1) - log_w.logsumexp(0)
        return Bound(E + warmup * (P + H), {"E": E, "P": P, "H": H})


class ForwardKL(Objective):
    """sum_j w_j log q(z_j|y), w_j = p(y|z_j) p(z_j) / q(z_j|y) normalised, z_j from q(z|y).

    Fits the encoder to the model's own p(z|y) from outside in, -KL(p(z|y) || q(z|y)) up to a constant: it
    covers all modes, where the bounds above prefer one. The model p(x|z) is given and stays as it is.
    """

    def __init__(self, weights: int = 20):
        super().__init__()
        self.weights = weights

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """Not a bound on log p(y); its gradient reaches the encoder alone."""
        q = posterior.latent(obs)
        with torch.no_grad():
            z = reparametrise(q, normals(self.weights, *q.base_dist.loc.shape))
            w = posterior.log_weight(z, obs, q).softmax(0)
        value = (w * q.log_prob(z)).sum(0)
        return Bound(value, {"effective weights": 1 / w.square().sum(0)})


class Predictive(Objective):
    """E + F - K - w (E|y' - y_h| - 1/2 E|y' - y''|): log score and energy score of entries y_h that are hidden, and F.

    E - K = E_q(z|y) log p(y_h|z) - KL(q(z|y) || q(z|y_s)) <= log q(y_h|y_s), y_s what is left of y; the energy score by
    two draws y', y'' of y_h given y_s. No distribution scores better by either, on average, than the true one. So q(x|y)
    learns as a density of real data, from entries whose values are known: no p(z) has to be right. With all hidden the
    first is MVAE's bound, q(z|nothing) for p(z). F = log p(y_s|z) is no score of a prediction: it lets the decoder learn
    from all there is. The encoder is told of it by the share `fidelity` only, as it would learn to pass on the noise in
    what it sees. hide: which entries to hide; energy_weight: w, 0 where entries are more than numbers with noise.
    """

    def __init__(self, hide: Hiding, energy_weight: float = 10.0, fidelity: float = 0.3):
        super().__init__()
        self.hide, self.energy_weight, self.fidelity = hide, energy_weight, fidelity

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """A bound on the log-density of what is hidden less its energy score, and the log-density of what is shown."""
        hidden = obs.observed & posterior.corruption.whole_categories(self.hide(obs, normals))
        shown, target = obs.only(~hidden), obs.only(hidden)
        q, q_s = unstacked(posterior.latent(obs.beside(shown)))  # one pass for both, and one for all z below
        z = reparametrise(q, normals(*q.base_dist.loc.shape))
        damped = z.detach() + self.fidelity * (z - z.detach())  # the same z, with less of a gradient
        fresh = reparametrise(q_s, normals(2, *z.shape)) if self.energy_weight else ()
        p, p_damped, *pair = unstacked(posterior.decode(torch.stack([z, damped, *fresh]), shown))
        E = posterior.corruption.marginal_log_prob(target, p)
        F = posterior.corruption.marginal_log_prob(shown, p_damped)
        K = kl_divergence(q, q_s)
        if not self.energy_weight:
            return Bound(E + F - K, {"E": E, "F": F, "K": K})

        numbers = normals(2, *p.base_dist.loc.shape)
        x = torch.stack([reparametrise(*each) for each in zip(pair, numbers, strict=True)])
        first, second = posterior.corruption.corrupt(x, hidden, normals).values.unbind(0)
        S = (_distance(first, target.values) + _distance(second, target.values) - _distance(first, second)) / 2
        return Bound(E + F - K - self.energy_weight * S, {"E": E, "F": F, "K": K, "energy score": S})


def _distance(first: Tensor, second: Tensor) -> Tensor:
    """Euclidean distances of samples; differentiable where they are equal too."""
    return ((first - second).square().flatten(1).sum(1) + 1e-12).sqrt()


class PredictiveCRPS(Objective):
    """-sum over squares s of |s| (E|x_s - y_s| - 1/2 E|x_s - x'_s|): some of y is hidden, x and x' drawn given the rest.

    For flat images. x_s and y_s are averages over the hidden pixels of a square, |s| the number of these; squares of 1, 2,
    4, ... pixels a side tile the image, each channel by itself. Each term is a CRPS, which no distribution makes lower than
    the true one: of single pixels, and of how those of a square hang together. So the posterior learns from entries whose
    values are known; it needs no model p(x|z), and its decoder may see y. Unlike in a log-density, errors at edges do not
    outweigh all else. hide: which entries to hide.
    """

    def __init__(self, image: tuple[int, int, int], hide: Hiding, scales: int = 5):
        super().__init__()
        self.image, self.hide = image, hide
        self.scales = min(scales, 1 + (max(image[:2]) - 1).bit_length())  # up to one square for all

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """Minus the sum of scores, each estimated without bias from two draws."""
        hidden = obs.observed & self.hide(obs, normals)
        shown = obs.only(~hidden)
        q_z = posterior.latent(shown)
        q_x = posterior.decode(reparametrise(q_z, normals(2, *q_z.base_dist.loc.shape)), shown)
        x = reparametrise(q_x, normals(*q_x.base_dist.loc.shape))

        error, count = self._images((x - obs.values) * hidden), self._images(hidden.to(x.dtype))
        terms = {}
        for scale in range(self.scales):
            if scale:
                error, count = (
                    functional.avg_pool2d(part, 2, ceil_mode=True, divisor_override=1) for part in (error, count)
                )
            first, second = (error.unflatten(0, (2, -1)) / count.clamp(min=1)).unbind(0)
            crps = (first.abs() + second.abs() - (first - second).abs()) / 2
            terms[f"CRPS {2**scale}"] = (count * crps).flatten(1).sum(1)
        return Bound(-torch.stack(list(terms.values())).sum(0), terms)

    def _images(self, flat: Tensor) -> Tensor:
        return flat.reshape(-1, *self.image).movedim(-1, 1)


class FlowMatching(Objective):
    """-|v(x_t, t, y') - (x - e)|^2 at x_t = (1-t) e + t x, e normal: the forward KL from q(x|y') to p(x|y').

    The data are draws x of clean rows. y' is x corrupted again, with the mask of another row; one row in twenty shows
    nothing, so that the same network is p(x). posterior: a FlowPosterior. corruption: held in a list, as the E step
    changes it while training goes on.
    """

    compiles = True
    NOTHING = -1.645  # quantile of the normal distribution below which a row shows nothing

    def __init__(self, corruption: Corruption):
        super().__init__()
        self.corruption = [corruption]
        self.captures = getattr(corruption, "captures", True)

    def forward(self, posterior: Any, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """Minus the mean squared error of the velocity."""
        shown = obs.observed.roll(1, 0) & (normals(len(obs), 1) > self.NOTHING)
        y = self.corruption[0].corrupt(obs.values, shown, normals)
        x, start = posterior.scaled(obs.values), normals(*obs.values.shape)
        t = normals(len(obs)).sigmoid()
        x_t = torch.lerp(start, x, t[:, None])
        numbers = normals(len(obs), posterior.dropped) if posterior.dropped else None
        error = (posterior.velocity(x_t, t, y, numbers) - (x - start)).square().mean(1)
        return Bound(-error, {"squared error": error})


def hide_as_others(obs: Observations, normals: Normals) -> Tensor:
    """What another sample does not show; a share of the entries where that hides nothing."""
    theirs = obs.observed & ~obs.observed.roll(1, 0)
    return torch.where(theirs.any(1, keepdim=True), theirs, hide_share(obs, normals))


def hide_share(obs: Observations, normals: Normals) -> Tensor:
    """A share of the entries of each sample that is uniform between none and all."""
    share, place = torch.special.ndtr(normals(len(obs), 1)), torch.special.ndtr(normals(*obs.values.shape))
    return place.flatten(1).lt(share).reshape(obs.values.shape)


def hide_boxes(image: tuple[int, int, int], places: Tensor | None = None) -> Hiding:
    """For flat images: what another one does not show, and a box of any place, up to half as high and wide.

    places: which entries of the image the data hold, (features,); all where not given.
    """

    def hide(obs: Observations, normals: Normals) -> Tensor:
        return _boxes(image, places, obs, normals) | ~obs.observed.roll(1, 0)

    return hide


def hide_holes(image: tuple[int, int, int], places: Tensor | None = None) -> Hiding:
    """For flat images: what another one does not show, as are the holes of the data; a box where that hides nothing."""

    def hide(obs: Observations, normals: Normals) -> Tensor:
        theirs = obs.observed & ~obs.observed.roll(1, 0)
        return torch.where(theirs.any(1, keepdim=True), theirs, _boxes(image, places, obs, normals))

    return hide


def hide_either(first: Hiding, second: Hiding) -> Hiding:
    """Hide in one of two ways, by the toss of a coin for each sample."""

    def hide(obs: Observations, normals: Normals) -> Tensor:
        return torch.where(normals(len(obs), 1) < 0, first(obs, normals), second(obs, normals))

    return hide


def _boxes(image: tuple[int, int, int], places: Tensor | None, obs: Observations, normals: Normals) -> Tensor:
    """A box of any place in each image, up to half as high and wide, (samples, features)."""
    within = []
    for side, (place, size) in zip(image[:2], torch.special.ndtr(normals(2, 2, len(obs), 1)), strict=True):
        far = (torch.arange(side, device=place.device) + 0.5 - side * place).abs()
        within.append(far < side / 4 * size if side > 1 else torch.ones_like(far, dtype=torch.bool))
    box = within[0][:, :, None] & within[1][:, None, :]
    flat = box[..., None].expand(-1, *image).reshape(len(obs), -1)
    return flat if places is None else flat[:, places]
