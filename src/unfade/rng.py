"""Random numbers as inputs: the caller supplies their source, and no global seed is used.

`Normals` is any function that returns standard normal numbers of a given shape. In training they are keyed by step, so
that a model trains equally alone or with others; in drawing they are keyed by row, so that a row has equal draws in any
batch.
"""

from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

Normals = Callable[..., Tensor]

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer: the step of SplitMix64
_MIX = ((30, -4658895280553007687), (27, -7723592293110705685))
_CALL = 0xD1342543DE82EF95  # how far apart the streams of a step begin


def generator_normals(generator: torch.Generator) -> Normals:
    """Make a source of standard normal numbers from one generator, on its device."""
    return lambda *shape: torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)


def _shift(bits: Tensor, by: int) -> Tensor:
    """Shift 64-bit integers to the right, logically (not arithmetically)."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    """Apply the finaliser of SplitMix64: a bijection of 64-bit integers that looks random."""
    for by, factor in _MIX:
        bits = (bits ^ _shift(bits, by)) * factor
    return bits ^ _shift(bits, 31)


def _numbers(start: Tensor, size: int) -> Tensor:
    """Make `size` standard normal numbers along a new last axis, by SplitMix64 from each start and Box-Muller."""
    bits = _mix((start[..., None] + torch.arange(1, (size + 1) // 2 + 1, device=start.device)) * _GOLDEN)
    uniform = [(_shift(bits, 32).float() + 0.5) / 2**32, ((bits & 0xFFFFFFFF).float() + 0.5) / 2**32]
    radius, angle = (-2 * uniform[0].log()).sqrt(), 2 * torch.pi * uniform[1]
    return torch.cat([radius * angle.cos(), radius * angle.sin()], -1)[..., :size]


def step_keys(seeds: Tensor, steps: Tensor) -> Tensor:
    """Make one key per training step and seed, (steps, seeds); seeds and steps are integers."""
    return _mix(_mix(seeds * _GOLDEN) + _mix(steps * _GOLDEN + 1)[:, None])


def step_normals(key: Tensor) -> Normals:
    """Make the source of standard normal numbers of a training step: they depend on (key, call, position) alone."""
    calls = count()

    def normals(*shape: int) -> Tensor:
        start = key + ((next(calls) * _CALL + 2**63) % 2**64 - 2**63)  # as a signed 64-bit integer
        return _numbers(start, torch.Size(shape).numel()).reshape(shape)

    return normals


class KeyedNormals:
    """Standard normal numbers that depend on (seed, row, call, draw, position) alone: SplitMix64 and Box-Muller.

    `rows`: one integer a row, shape (samples,). Each call takes a shape (draws, samples, *event) and
    is a stream of its own; `first_draw` is the number of the first draw in it.

    >>> rows = torch.tensor([7, 8, 9])
    >>> whole, part = KeyedNormals(0, rows)(4, 3, 5), KeyedNormals(0, rows[1:], first_draw=2)(2, 2, 5)
    >>> torch.equal(whole[2:, 1:], part)
    True
    """

    def __init__(self, seed: int, rows: Tensor, first_draw: int = 0, stream: int = 0):
        self.keys = _mix(_mix(rows.long() * _GOLDEN) + _mix(torch.tensor(seed, device=rows.device) + _GOLDEN))
        self.first_draw = first_draw
        self.stream = stream

    def __call__(self, draws: int, samples: int, *event: int) -> Tensor:
        """Make standard normal numbers of shape (draws, samples, *event)."""
        device, size = self.keys.device, torch.Size(event).numel()
        draw = torch.arange(self.first_draw, self.first_draw + draws, device=device)
        start = _mix(self.keys + _mix(draw[:, None] * 64 + self.stream))
        self.stream += 1
        return _numbers(start, size).reshape(draws, samples, *event)
