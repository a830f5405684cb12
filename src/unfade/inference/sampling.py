"""Sampling in blocks: bounded memory, and draws of a row that do not depend on the rows drawn with it.

Every row goes through the networks in a block of a fixed number of rows and draws (the last one padded), so that the
order of floating-point operations does not depend on the batch; random numbers are keyed by row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from unfade.data.observations import Observations
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.rng import KeyedNormals, Normals

_DRAWS = 16  # draws that go through the networks together
_ENTRIES = {"cpu": 2**21, "cuda": 2**25}  # entries of x that are in memory together, roughly
_LATENTS = {"cpu": 2**15, "cuda": 2**19}  # and as many z


def draw_blocks(
    posterior: PosteriorLVM | Ensemble | None,
    obs: Observations,
    rows: Tensor,
    draws: int,
    seed: int,
    n_candidates: int = 0,
    widths: Tensor | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Give blocks of (which samples, their draws (draws, samples in block, *event)), on the posterior's device.

    rows: one key per sample; widths: factors by which draws of unobserved entries are scaled about their mean.
    """

    def work(model: Ensemble, block: Observations, keys: Tensor, source: Any) -> Tensor:
        """Draw a block, and scale its draws about their mean."""
        stream = max(8, len(model.each))  # the first ones are those of pools
        chunks = [
            model.draw(block, min(draws - first, _DRAWS), KeyedNormals(seed, keys, first, stream), source, _DRAWS, first)
            for first in range(0, draws, _DRAWS)
        ]
        x = torch.cat(chunks)
        if widths is None:
            return x
        mean = model.mean(block, _DRAWS, _mirrored(KeyedNormals(seed + 1, keys)), source)
        return torch.where(block.observed, x, mean + widths.to(x.device) * (x - mean))

    if posterior is None:
        yield slice(0, len(obs)), obs.values.expand(draws, *obs.values.shape)
        return
    yield from _blocks(posterior, obs, seed, rows, n_candidates, work)


def mean_blocks(
    posterior: PosteriorLVM | Ensemble | None, obs: Observations, rows: Tensor, draws: int, seed: int, n_candidates: int = 0
) -> Iterator[tuple[slice, Tensor]]:
    """Give blocks of (which samples, their posterior means (samples in block, *event)), on the posterior's device."""

    def work(model: Ensemble, block: Observations, keys: Tensor, source: Any) -> Tensor:
        """Compute the posterior mean of a block."""
        return model.mean(block, draws, _mirrored(KeyedNormals(seed, keys, stream=8)), source)

    if posterior is None:
        yield slice(0, len(obs)), obs.values
        return
    yield from _blocks(posterior, obs, seed, rows, n_candidates, work, draws, _mirrored)


def _blocks(
    posterior: PosteriorLVM | Ensemble,
    obs: Observations,
    seed: int,
    rows: Tensor,
    n_candidates: int,
    work: Callable[[Ensemble, Observations, Tensor, Any], Tensor],
    together: int = _DRAWS,
    pool_normals: Callable[[Normals], Normals] = lambda normals: normals,
) -> Iterator[tuple[slice, Tensor]]:
    """Apply `work` to blocks of one size, the last one padded."""
    model = (posterior if isinstance(posterior, Ensemble) else Ensemble([posterior])).drawn_with(n_candidates)
    device = next(posterior.parameters()).device
    size = _block_size(obs.event_shape.numel(), max(n_candidates, together), device.type)
    for start in range(0, len(obs), size):
        stop = min(start + size, len(obs))
        padded = torch.arange(start, start + size).clamp(max=len(obs) - 1)
        with torch.inference_mode():
            block, keys = obs[padded].to(device), rows[padded].to(device)
            source = model.source(block, n_candidates, pool_normals(KeyedNormals(seed, keys)))
            values = work(model, block, keys, source).narrow(-1 - len(obs.event_shape), 0, stop - start)
        yield slice(start, stop), values


def _block_size(entries: int, together: int, device: str) -> int:
    """Compute the rows per block, a power of two up to 512, from the model, the device and how many z a row needs."""
    kind = device if device in _ENTRIES else "cpu"
    fit = min(_ENTRIES[kind] // entries, _LATENTS[kind]) // together
    return min(512, 1 << max(fit, 1).bit_length() - 1)


def _mirrored(normals: Normals) -> Normals:
    """Return numbers in pairs of opposite sign along the first axis: their mean is 0, so most errors of means cancel."""

    def half(count: int, *shape: int) -> Tensor:
        """Double half of the numbers by their negatives."""
        numbers = normals((count + 1) // 2, *shape)
        return torch.cat([numbers, -numbers])[:count]

    return half
