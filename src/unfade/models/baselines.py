"""Posteriors that need no training: what is given where networks predict held-out cells worse than these do."""

from math import prod

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.models.latent_variable import PosteriorLVM
from unfade.models.linear import blank_factors, linear_posterior
from unfade.rng import Normals

_SHARES = 33  # quantiles of residuals that are kept
_FAR = (1.5, 2.5, 4.5, 8.5, 16.5)  # distances in pixels between bins of residuals

Filled = tuple[Tensor, Tensor]  # values of the nearest pixels, and which bin their distance is in


def marginals(obs: Observations, corruption: Corruption) -> PosteriorLVM:
    """Independent columns: a linear model without loadings. Noise is part of each column's variance."""
    seen, values = obs.observed, obs.values.double()
    count = seen.sum(0).clamp(min=1)
    mean = (values * seen).sum(0) / count
    variance = ((values - mean).square() * seen).sum(0) / count
    if first := obs.values.shape[1] - corruption.categorical:
        noise = corruption.std.detach().square().expand(obs.values.shape[1])
        variance[:first] = torch.maximum(variance - noise, 0.01 * variance)[:first]
    mean[first:] = ((mean[first:] * count[first:] + 0.5) / (count[first:] + 1)).log()  # a category's logits
    loadings, _, _ = blank_factors(obs.values.shape[1], 1)
    return linear_posterior((loadings.to(mean), mean, variance.clamp(min=1e-8)), corruption)


class NearestPixels(nn.Module):
    """Missing pixels as the nearest measured one, and residuals of held-out pixels as far from their nearest one.

    image: height, width, channels; pixels: the place of each feature in the image, (features,); residuals: quantiles of
    what was missed, by distance (bins, quantiles); ends: least and largest measured value. Has what an `Ensemble` asks of
    a posterior.
    """

    unknowns = None
    model = None
    own_prior = conditioned = False
    decoder_sees = True
    pixels: Tensor
    residuals: Tensor
    ends: Tensor

    def __init__(self, image: tuple[int, int, int], pixels: Tensor, corruption: Corruption):
        super().__init__()
        self.image, self.corruption = image, corruption
        self.register_buffer("pixels", pixels)
        self.register_buffer("residuals", torch.zeros(len(_FAR) + 1, _SHARES))
        self.register_buffer("ends", torch.zeros(2))

    def learn(self, given: Observations, held: Observations) -> "NearestPixels":
        """Take residuals from pixels that were held out; bins that have few take those of the bin before."""
        near, bins = self.source(given)
        self.ends = torch.stack([given.values[given.observed].min(), given.values[given.observed].max()])
        shares = torch.linspace(0, 1, _SHARES, device=near.device)
        left, found = held.values - near, torch.zeros(_SHARES, device=near.device)
        for number in range(len(self.residuals)):
            here = left[held.observed & (bins == number)]
            if len(here) >= _SHARES:
                found = torch.from_numpy(np.quantile(here.cpu().numpy(), shares.cpu().numpy())).to(near)
            self.residuals[number] = found
        return self

    def drawn_with(self, n_candidates: int) -> "NearestPixels":
        """What draws are made with."""
        return self

    def source(self, obs: Observations, n_candidates: int = 0, normals: Normals | None = None) -> Filled:
        """The nearest measured pixel of each, (samples, features), and the bin of its distance."""
        size, place = prod(self.image), self.pixels.cpu().numpy()
        flat = np.zeros((len(obs), size), dtype=bool), np.zeros((len(obs), size), dtype=np.float32)
        flat[0][:, place], flat[1][:, place] = obs.observed.cpu().numpy(), obs.values.cpu().numpy()
        seen, values = (part.reshape(len(obs), *self.image) for part in flat)
        distance = np.zeros(seen.shape, dtype=np.float32)
        middle = values[seen].mean() if seen.any() else 0.0
        for i, c in np.ndindex(len(obs), self.image[2]):
            if not (there := seen[i, ..., c]).any():
                values[i, ..., c], distance[i, ..., c] = middle, sum(self.image)
                continue
            distance[i, ..., c], (rows, columns) = distance_transform_edt(np.logical_not(there), return_indices=True)
            values[i, ..., c] = values[i, rows, columns, c]
        near = torch.from_numpy(values.reshape(len(obs), size)[:, place]).to(obs.values)
        bins = torch.from_numpy(np.digitize(distance.reshape(len(obs), size)[:, place], _FAR)).to(near.device)
        return near, bins

    def draw(self, obs: Observations, draws: int, normals: Normals, source: Filled, first: int = 0) -> Tensor:
        """Draws of x, (draws, samples, features); first: number of the first, which nothing here depends on."""
        near, bins = source
        share = torch.special.ndtr(normals(draws, *near.shape)) * (_SHARES - 1)
        below = share.floor().long().clamp(0, _SHARES - 2)
        table = self.residuals.to(near)
        ends = table[bins, below], table[bins, below + 1]
        drawn = (near + torch.lerp(*ends, share - below)).clamp(*self.ends.to(near))
        return torch.where(obs.observed, obs.values, drawn)

    def mean(self, obs: Observations, draws: int, normals: Normals, source: Filled) -> Tensor:
        """Posterior mean of x, (samples, features)."""
        near, bins = source
        centre = (near + self.residuals.to(near).mean(1)[bins]).clamp(*self.ends.to(near))
        return torch.where(obs.observed, obs.values, centre)
