"""How the cells of a table are recorded: numbers with or without noise, values that occur again and again, categories.

A value that occurs more than once, a count, a rank, a value below a detection limit say only that the
clean number lies in an interval. Entries of such columns are logistic given z, so that an interval's mass has a
closed form; a category has one entry for each of its values, and the decoder's means are its logits.
"""

from math import pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Independent
from torch.nn.functional import logsigmoid

from unfade.corruption.noise import Corruption, GaussianNoise, GrowingNoise
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
    """log of the standard logistic density's mass between low and high.

    sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)), which loses no digits anywhere. Ends that single
    precision cannot tell apart have next to no mass between them.

    >>> interval_log_mass(torch.tensor([-1e9, 30.0]), torch.tensor([0.0, 31.0])).exp()
    tensor([5.0000e-01, 5.9151e-14])
    """
    inside = -torch.expm1(low - high)
    return logsigmoid(high) + logsigmoid(-low) + torch.log(inside.clamp(min=torch.finfo(inside.dtype).tiny))


class MixedCells(Cells):
    """Entries of a table's row: Gaussian or logistic numbers, some within an interval or known; categories in groups.

    stepped: which features are logistic, (features,); members: the features of each category, (categories, most),
    the first one again where there are fewer.
    """

    def __init__(self, loc: Tensor, scale: Tensor, obs: Observations, known: Tensor, stepped: Tensor, members: Tensor):
        super().__init__(loc, scale)
        self.obs, self.known, self.stepped, self.members = obs, known, stepped, members

    def at(self, normals: Tensor) -> Tensor:
        """A draw: by inverse distribution functions, and for a category the largest logit with Gumbel noise on it."""
        share = torch.special.ndtr(normals).clamp(_TINY, 1 - _TINY)
        x = torch.where(self.stepped, self._logistic(share), super().at(normals))
        if len(self.members):
            score = self.loc.clamp(-_MOST, _MOST) - (-share.log()).log()
            largest = score[..., self.members].amax(-1)
            x[..., self.members] = (score[..., self.members] == largest[..., None]).to(x.dtype)
        return torch.where(self.known, self.obs.values, x)

    def _logistic(self, share: Tensor) -> Tensor:
        """The value below which `share` of the density lies, between low and high where the entry is observed."""
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
    """Cells of a table: missing or seen; numbers with Gaussian noise or without, within intervals, categories.

    noise: on the numbers; none on stepped features and categories. steps: for each stepped feature where one
    value ends and the next begins, and a point for each value. groups: (first, after last) feature of each category.
    """

    def __init__(
        self, noise: GaussianNoise, features: int, steps: dict[int, tuple[Tensor, Tensor]], groups: list[tuple[int, int]]
    ):
        super().__init__()
        self.noise = noise
        stepped = torch.zeros(features, dtype=torch.bool)
        stepped[list(steps)] = True
        self.register_buffer("stepped", stepped)
        self.stepped: Tensor
        self.members: Tensor
        self.ones: Tensor
        self.where_stepped: Tensor
        self.edges: Tensor
        self.points: Tensor
        self.number: Tensor
        self.register_buffer("edges", _padded([edges for edges, _ in steps.values()]))
        self.register_buffer("points", _padded([points for _, points in steps.values()]))
        most = max((last - first for first, last in groups), default=0)
        places = [[*range(first, last), *[first] * (most - last + first)] for first, last in groups]
        self.register_buffer("members", torch.tensor(places, dtype=torch.long).reshape(len(groups), most))
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
        self.register_buffer("where_stepped", torch.tensor(list(steps), dtype=torch.long))

    @property
    def exact(self) -> Tensor:  # type: ignore[override]
        """Which features are seen as they are."""
        return self.noise.exact | ~self.number

    @property
    def std(self) -> Tensor:
        """The noise level of each feature."""
        return torch.where(self.number, self.noise.std, 0.0)

    @property
    def learned(self) -> bool:
        """Whether the level is being learned."""
        return self.noise.learned

    @property
    def by_entry(self) -> bool:
        """Whether each feature has a level of its own."""
        return self.noise.by_entry

    @property
    def searched(self) -> Tensor:
        """Features whose level is, or was, to be found."""
        return self.noise.searched & self.number

    def forget_noise(self, of: Tensor | None = None) -> None:
        """From now on features are seen without error, all of them or some."""
        self.noise.forget_noise(of)

    def set_level(self, level: Tensor) -> None:
        """Take a noise level as found."""
        self.noise.set_level(level)

    def whole(self, mask: Tensor) -> Tensor:
        """The values of a category go with its first."""
        return mask[..., self.firsts]

    def corrupt(self, clean: Tensor, observed: Tensor, normals: Normals) -> Observations:
        """Noise on the numbers; stepped features are recorded as the value they are nearest to."""
        noisy = self.noise.corrupt(clean, observed, normals).values
        return Observations(torch.where(observed & ~self.number, self._snapped(clean), noisy), observed)

    def _snapped(self, x: Tensor) -> Tensor:
        """The points of the intervals that stepped features lie in; other features as they are."""
        some = x[..., self.stepped].movedim(-1, 0).flatten(1)
        points = self.points.gather(1, torch.searchsorted(self.edges, some.contiguous()))
        snapped = x.clone()
        snapped[..., self.stepped] = points.reshape(-1, *x.shape[:-1]).movedim(0, -1)
        return snapped

    def log_prob(self, obs: Observations, clean: Tensor, unknowns: Tensor | None = None) -> Tensor:
        """Of the numbers; what is seen without noise adds nothing."""
        return self.noise.log_prob(obs.only(self.number), clean, unknowns)

    def marginal_log_prob(self, obs: Observations, clean: Independent) -> Tensor:
        """Densities of numbers, masses of intervals and categories, over seen entries."""
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
        """Numbers by their noise; intervals by truncation; categories as seen."""
        return self._recorded(obs, self.noise.condition(obs.only(self.number), clean))

    def pin(self, obs: Observations, clean: Independent) -> Independent:
        """What is seen exactly is known."""
        return self._recorded(obs, self.noise.pin(obs.only(self.number), clean))

    def _recorded(self, obs: Observations, clean: Independent) -> Independent:
        base = clean.base_dist
        known = obs.observed & ~self.number & ~self.stepped
        cells = MixedCells(base.loc, base.scale, obs, known, self.stepped, self.members)
        return Independent(cells, clean.reinterpreted_batch_ndims, validate_args=False)


def _padded(rows: list[Tensor]) -> Tensor:
    """Sorted rows of different lengths as one matrix; what is left over is infinite."""
    longest = max((len(row) for row in rows), default=0)
    padded = [torch.cat([row, row.new_full((longest - len(row),), torch.inf)]) for row in rows]
    return torch.stack(padded) if padded else torch.zeros(0, 0)


def recording(noise: Any, space: FeatureEncoder, sure: Tensor | None = None) -> GaussianNoise | MixedLikelihood:
    """The corruption that a user's `noise` means in model space: None, a number, one a column, or one of LEARNED.

    sure: entries that noise is not meant of, unless it is said column by column.

    The level is started high when it is learned: it slides down to the smallest sd of any entry (started
    below the truth it would stay there), so it is an upper bound where no column is free of its own spread.
    """
    others = torch.zeros(space.features - len(space.numbers))
    std = noise_levels(noise, len(space.modelled))
    exact = None
    if sure is not None and np.size(noise) == 1 and bool(sure[space.numbers].any()):
        exact = torch.cat([sure[space.numbers], others.bool()])
    if std is None and noise == "learn-by-value":
        zero = (-space.scaling.centre / space.scaling.scale).flatten()
        alike = bool((zero == zero[0]).all()) and bool((space.scaling.scale == space.scaling.scale[0]).all())
        if not (space.plain and alike and exact is None):
            raise InvalidData("noise='learn-by-value' needs numbers of one unit, got columns of several kinds.")
        share = 0.4 * space.spread
        return GrowingNoise(torch.full((1,), share), share / max(1.0, float(zero[0]) ** 2), zero[:1], learn=True)
    surely = torch.tensor([entry in space.steps for entry in space.numbers.tolist()], dtype=torch.bool)
    if std is None and bool((surely if exact is None else surely | exact[: len(surely)]).all()):
        std = torch.zeros(len(space.modelled))  # nothing is there to learn it from
    if std is None:
        levels = space.features if noise == "learn-by-column" else 1
        gaussian = GaussianNoise(torch.full((levels,), 0.8 * space.spread), learn=True, exact=exact)
    elif bool((std == LEARN).any()):
        learn = torch.cat([std[space.numbers] == LEARN, others.bool()])
        level = torch.cat([(std[space.numbers] / space.scale).float(), others])
        gaussian = GaussianNoise(torch.where(learn, 0.8 * space.spread, level), learn=learn, exact=exact)
    else:
        gaussian = GaussianNoise(torch.cat([(std[space.numbers] / space.scale).float(), others]), exact=exact)
    return gaussian if space.plain else MixedLikelihood(gaussian, space.features, space.model_steps(), space.groups)
