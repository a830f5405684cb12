"""Mixed likelihood of a table: continuous columns with or without noise, repeated values as intervals, categories.

A value that occurs more than once, a count, a rank, a value below a detection limit are known only to lie in an
interval. Entries of such columns are logistic given z, so that an interval's mass has a closed form; a category has one
entry for each of its values, and the decoder's means are its logits.
"""

from math import pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Independent
from torch.nn.functional import logsigmoid

from unfade.corruption.growing_noise import GrowingNoise
from unfade.corruption.noise import Corruption, GaussianNoise
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations
from unfade.data.options import LEARN, noise_levels
from unfade.distributions import Cells
from unfade.errors import InvalidData
from unfade.rng import Normals

_UNIT = sqrt(3) / pi  # scale of a logistic density of sd 1
_TINY = 1e-6
_MOST = 30.0  # logits beyond are as good as certain


def interval_log_mass(low: Tensor, high: Tensor) -> Tensor:
    """Compute the log of the mass of the standard logistic density between low and high.

    sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)), which loses no digits anywhere. Ends that are
    equal in single precision have almost no mass between them.

    Parameters
    ----------
    low, high : Tensor, (*shape)

    Returns
    -------
    Tensor, (*shape)

    Examples
    --------
    >>> interval_log_mass(torch.tensor([-1e9, 30.0]), torch.tensor([0.0, 31.0])).exp()
    tensor([5.0000e-01, 5.9151e-14])
    """
    inside = -torch.expm1(low - high)
    return logsigmoid(high) + logsigmoid(-low) + torch.log(inside.clamp(min=torch.finfo(inside.dtype).tiny))


class MixedCells(Cells):
    """Entries of a table's row: Gaussian or logistic, some within an interval or known; categories in groups of features.

    Parameters
    ----------
    loc, scale : Tensor, (..., samples, features)
    obs : Observations
    known : bool Tensor, (samples, features)
        Entries set to their observed values.
    stepped : bool Tensor, (features,)
        Logistic features.
    members : Tensor, (categories, most)
        Features of each category; its first one again if it has fewer.
    """

    def __init__(self, loc: Tensor, scale: Tensor, obs: Observations, known: Tensor, stepped: Tensor, members: Tensor):
        super().__init__(loc, scale)
        self.obs, self.known, self.stepped, self.members = obs, known, stepped, members

    def at(self, normals: Tensor) -> Tensor:
        """Draw entries: by inverse distribution functions; of a category, the largest logit after Gumbel noise.

        Parameters
        ----------
        normals : Tensor, (..., samples, features)
            Standard normal numbers.

        Returns
        -------
        Tensor, (..., samples, features)
        """
        share = torch.special.ndtr(normals).clamp(_TINY, 1 - _TINY)
        x = torch.where(self.stepped, self._logistic(share), super().at(normals))
        if len(self.members):
            score = self.loc.clamp(-_MOST, _MOST) - (-share.log()).log()
            largest = score[..., self.members].amax(-1)
            x[..., self.members] = (score[..., self.members] == largest[..., None]).to(x.dtype)
        return torch.where(self.known, self.obs.values, x)

    def _logistic(self, share: Tensor) -> Tensor:
        """Compute the quantile `share` of logistic entries, within low and high if the entry is observed."""
        scale = _UNIT * self.scale
        if self.obs.low is None or self.obs.high is None:
            return self.loc + scale * share.logit()
        bounds = [
            torch.where(self.obs.observed, end, far)
            for end, far in ((self.obs.low, -torch.inf), (self.obs.high, torch.inf))
        ]
        below, above = (((end - self.loc) / scale).sigmoid() for end in bounds)
        inside = (below + share * (above - below)).clamp(_TINY, 1 - _TINY)
        return (self.loc + scale * inside.logit()).clamp(*bounds)


class MixedLikelihood(Corruption):
    """Likelihood of the cells of a table: numbers with or without Gaussian noise, intervals, categories, missing values.

    Parameters
    ----------
    noise : GaussianNoise
        Noise of the numbers; stepped features and categories have none.
    features : int
    intervals : dict
        Of each stepped feature: where one value ends and the next begins, and a point for each value.
    groups : list of (int, int)
        First feature of each category and the one after its last.
    """

    def __init__(
        self,
        noise: GaussianNoise,
        features: int,
        intervals: dict[int, tuple[Tensor, Tensor]],
        groups: list[tuple[int, int]],
    ):
        super().__init__()
        self.noise = noise
        stepped = torch.zeros(features, dtype=torch.bool)
        stepped[list(intervals)] = True
        self.register_buffer("stepped", stepped)
        self.stepped: Tensor
        self.members: Tensor
        self.ones: Tensor
        self.where_stepped: Tensor
        self.edges: Tensor
        self.points: Tensor
        self.number: Tensor
        self.register_buffer("edges", _padded([edges for edges, _ in intervals.values()]))
        self.register_buffer("points", _padded([points for _, points in intervals.values()]))
        most = max((last - first for first, last in groups), default=0)
        places = [[*range(first, last), *[first] * (most - last + first)] for first, last in groups]
        self.register_buffer("members", torch.tensor(places, dtype=torch.long).reshape(len(groups), most))
        self.groups = groups
        self.categorical = sum(last - first for first, last in groups)  # they stand last
        owner = torch.repeat_interleave(torch.tensor([last - first for first, last in groups], dtype=torch.long))
        self.register_buffer("ones", torch.nn.functional.one_hot(owner, max(1, len(groups))).float())
        firsts = torch.arange(features)
        for first, last in groups:
            firsts[first:last] = first
        self.register_buffer("firsts", firsts, persistent=False)
        self.firsts: Tensor
        number = ~stepped
        number[features - self.categorical :] = False
        self.register_buffer("number", number)
        self.register_buffer("where_stepped", torch.tensor(list(intervals), dtype=torch.long))

    @property
    def exact(self) -> Tensor:  # type: ignore[override]
        """Features observed without noise."""
        return self.noise.exact | ~self.number

    @property
    def std(self) -> Tensor:
        """Noise level of each feature."""
        return torch.where(self.number, self.noise.std, 0.0)

    @property
    def learned(self) -> bool:
        """Whether the noise level is being learned."""
        return self.noise.learned

    @property
    def by_entry(self) -> bool:
        """Whether each feature has a noise level of its own."""
        return self.noise.by_entry

    @property
    def searched(self) -> Tensor:
        """Features whose noise level is, or was, learned."""
        return self.noise.searched & self.number

    def forget_noise(self, of: Tensor | None = None) -> None:
        """Set the noise of all features, or of some, to 0."""
        self.noise.forget_noise(of)

    def set_level(self, level: Tensor) -> None:
        """Set the noise level."""
        self.noise.set_level(level)

    def whole_categories(self, mask: Tensor) -> Tensor:
        """Copy the mask of the first feature of a category to its other features."""
        return mask[..., self.firsts]

    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Add noise to numbers; round stepped features to the nearest of their values."""
        noisy = self.noise.corrupt(clean, observed, normals).values
        return Observations(torch.where(observed & ~self.number, self._snapped(clean), noisy), observed)

    def _snapped(self, x: Tensor) -> Tensor:
        """Replace stepped features by the points of the intervals that they lie in."""
        some = x[..., self.stepped].movedim(-1, 0).flatten(1)
        points = self.points.gather(1, torch.searchsorted(self.edges, some.contiguous()))
        snapped = x.clone()
        snapped[..., self.stepped] = points.reshape(-1, *x.shape[:-1]).movedim(0, -1)
        return snapped

    def snapped(self, values: Tensor, feature: int) -> Tensor:
        """Move values of a stepped feature to the points of the intervals that they lie in."""
        place = (self.where_stepped == feature).nonzero().flatten()
        if not len(place):
            return values
        return self.points[place[0]][torch.searchsorted(self.edges[place[0]], values.contiguous())]

    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Compute the log-density of observed numbers; entries observed without noise add nothing."""
        return self.noise.log_prob(obs.only(self.number), clean, unknowns)

    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Sum log-densities of numbers and log-masses of intervals and categories, over observed entries."""
        loc, scale = clean.base_dist.loc, clean.base_dist.scale
        total = self.noise.marginal_log_prob(obs.only(self.number), clean)
        if obs.low is not None and obs.high is not None:
            unit, centre = _UNIT * scale[..., self.where_stepped], loc[..., self.where_stepped]
            ends = [(end[..., self.where_stepped] - centre) / unit for end in (obs.low, obs.high)]
            total = total + torch.where(obs.observed[..., self.where_stepped], interval_log_mass(*ends), 0.0).sum(-1)
        if self.categorical:
            first = loc.shape[-1] - self.categorical
            logits = loc[..., first:].clamp(-_MOST, _MOST)
            mass = obs.values[..., first:] * logits @ self.ones - (logits.exp() @ self.ones).log()
            total = total + torch.where(obs.observed[..., self.members[:, 0]], mass, 0.0).sum(-1)
        return total

    def condition(self, obs: Observations, clean: Independent) -> Independent:
        """Condition numbers on their noisy values, intervals by truncation, categories on the observed value."""
        return self._recorded(obs, self.noise.condition(obs.only(self.number), clean))

    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """Set exactly observed entries to their values."""
        return self._recorded(obs, self.noise.pin(obs.only(self.number), clean))

    def _recorded(self, obs: Observations, clean: Independent) -> Independent:
        """Make the distribution of mixed entries from that of the numbers."""
        base = clean.base_dist
        known = obs.observed & ~self.number & ~self.stepped
        cells = MixedCells(base.loc, base.scale, obs, known, self.stepped, self.members)
        return Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False)


def _padded(rows: list[Tensor]) -> Tensor:
    """Join sorted rows of different lengths into one matrix, filled up with infinity."""
    longest = max((len(row) for row in rows), default=0)
    padded = [torch.cat([row, row.new_full((longest - len(row),), torch.inf)]) for row in rows]
    return torch.stack(padded) if padded else torch.zeros(0, 0)


def recording(noise: Any, space: FeatureEncoder, exempt: Tensor | None = None) -> GaussianNoise | MixedLikelihood:
    """Make the corruption that a user's `noise` means in model space.

    A learned level starts high and falls to the smallest sd of any entry (from a start below the truth it would not
    rise), so it is an upper bound if no column is fully explained by the others.

    Parameters
    ----------
    noise : None, float, array of one number per column, or str
        One of LEARNED, if it is a str.
    space : FeatureEncoder
    exempt : bool Tensor or None, (features,)
        Entries without noise, unless noise is given per column.

    Returns
    -------
    GaussianNoise or MixedLikelihood
    """
    others = torch.zeros(space.features - len(space.numbers))
    std = noise_levels(noise, len(space.modelled))
    exact = None
    if exempt is not None and np.size(noise) == 1 and bool(exempt[space.numbers].any()):
        exact = torch.cat([exempt[space.numbers], others.bool()])
    if std is None and noise == "learn-by-value":
        zero = (-space.scaling.centre / space.scaling.scale).flatten()
        alike = bool((zero == zero[0]).all()) and bool((space.scaling.scale == space.scaling.scale[0]).all())
        if not (space.plain and alike and exact is None):
            raise InvalidData("noise='learn-by-value' needs numbers of one unit, got columns of several kinds.")
        share = 0.4 * space.mean_sd
        return GrowingNoise(torch.full((1,), share), share / max(1.0, float(zero[0]) ** 2), zero[:1], learn=True)
    repeated = torch.tensor([entry in space.repeated for entry in space.numbers.tolist()], dtype=torch.bool)
    if std is None and bool((repeated if exact is None else repeated | exact[: len(repeated)]).all()):
        std = torch.zeros(len(space.modelled))  # nothing is there to learn it from
    if std is None:
        count = space.features if noise == "learn-by-column" else 1
        gaussian = GaussianNoise(torch.full((count,), 0.8 * space.mean_sd), learn=True, exact=exact)
    elif bool((std == LEARN).any()):
        learn = torch.cat([std[space.numbers] == LEARN, others.bool()])
        level = torch.cat([(std[space.numbers] / space.scale).float(), others])
        gaussian = GaussianNoise(torch.where(learn, 0.8 * space.mean_sd, level), learn=learn, exact=exact)
    else:
        gaussian = GaussianNoise(torch.cat([(std[space.numbers] / space.scale).float(), others]), exact=exact)
    return gaussian if space.plain else MixedLikelihood(gaussian, space.features, space.model_intervals(), space.groups)
