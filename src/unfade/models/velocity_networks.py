"""Velocity networks v(x_t, t, y, mask): a U-Net for images and signals, residual layers for features.

Both take parts (samples, inputs, *image) or (samples, inputs * features), the time t (samples,), and normal numbers by
which channels are dropped out in training. What they give at first is 0.
"""

from collections.abc import Sequence
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

FREQUENCIES = 32  # of the sines of t


class VelocityNetwork(nn.Module):
    """A network as `FlowPosterior` calls it. dropout: share of channels dropped; dropped: how many numbers that takes."""

    dropout: float
    dropped: int


def _zeroed(layer: nn.Conv2d | nn.Linear) -> Any:
    """Give the layer, with weights and biases of 0."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class Time(nn.Module):
    """Sines and cosines of t, through two layers: (samples,) to (samples, outputs)."""

    frequencies: Tensor

    def __init__(self, outputs: int):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, log(1000), FREQUENCIES)), persistent=False)
        self.layers = nn.Sequential(nn.Linear(2 * FREQUENCIES, outputs), nn.SiLU(), nn.Linear(outputs, outputs), nn.SiLU())

    def forward(self, t: Tensor) -> Tensor:
        """Embed times."""
        angle = t[:, None] * self.frequencies
        return self.layers(torch.cat([angle.sin(), angle.cos()], 1))


class Dropout:
    """Sets channels to 0, by normal numbers (samples, channels) that the layers take one after another."""

    def __init__(self, share: float, numbers: Tensor | None):
        self.share, self.numbers, self.first = share, numbers, 0

    def __call__(self, x: Tensor) -> Tensor:
        """Drop channels of (samples, channels, ...), and scale the others up."""
        if self.numbers is None or not self.share:
            return x
        own = self.numbers[:, self.first : self.first + x.shape[1]]
        self.first += x.shape[1]
        kept = (torch.special.ndtr(own) >= self.share).to(x.dtype) / (1 - self.share)
        return x * kept.reshape(*kept.shape, *[1] * (x.ndim - 2))


class Convolutions(nn.Module):
    """x + two convolutions, each after group normalisation; t scales and shifts the maps between them."""

    def __init__(self, inputs: int, outputs: int, times: int, kernel: tuple[int, int]):
        super().__init__()
        around = kernel[0] // 2, kernel[1] // 2
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)])
        self.first = nn.Conv2d(inputs, outputs, kernel, padding=around)
        self.second = _zeroed(nn.Conv2d(outputs, outputs, kernel, padding=around))
        self.time = nn.Linear(times, 2 * outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor, dropout: Dropout) -> Tensor:
        """Compute the maps, (samples, outputs, height, width)."""
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        h = self.norms[1](self.first(functional.silu(self.norms[0](x)))) * (1 + scale) + shift
        return self.skip(x) + self.second(dropout(functional.silu(h)))


class Attention(nn.Module):
    """x + what each place takes from all others."""

    def __init__(self, channels: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm, self.asked = nn.GroupNorm(8, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.out = _zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the maps, of the shape of x."""
        samples, channels, height, width = x.shape
        parts = self.asked(self.norm(x)).reshape(samples, 3, self.heads, channels // self.heads, -1).transpose(-1, -2)
        found = functional.scaled_dot_product_attention(*parts.unbind(1))
        return x + self.out(found.transpose(-1, -2).reshape(samples, channels, height, width))


class UNet(VelocityNetwork):
    """Maps at full size (or of patches), 1/2, 1/4, ... with attention between the smallest ones.

    Parameters
    ----------
    image : (int, int, int)
        Height, width, channels; images are padded to what the network shrinks them by. An axis of length 1 is not shrunk.
    channels : sequence of int
        Of the maps of each size.
    inputs : int
        Images that it is given together.
    patch : int
        Side of the squares of pixels that are one place of the largest maps.
    dropout : float
        Share of channels that are set to 0 in training.
    """

    def __init__(self, image: tuple[int, int, int], channels: Sequence[int], inputs: int, patch: int, dropout: float):
        super().__init__()
        self.image, self.dropout = image, dropout
        sides = [side > 1 for side in image[:2]]
        kernel = 3 if sides[0] else 1, 3 if sides[1] else 1
        self.patch = tuple(patch if side else 1 for side in sides)
        self.shrunk = tuple(
            own * 2 ** (len(channels) - 1) if side else 1 for own, side in zip(self.patch, sides, strict=True)
        )
        stride, around = (2 if sides[0] else 1, 2 if sides[1] else 1), (kernel[0] // 2, kernel[1] // 2)
        pixels = self.patch[0] * self.patch[1] * image[2]
        times = 4 * channels[0]
        self.time = Time(times)
        self.first = nn.Conv2d(inputs * pixels, channels[0], kernel, padding=around)
        before = [channels[0], *channels[:-1]]
        self.down = nn.ModuleList(Convolutions(i, o, times, kernel) for i, o in zip(before, channels, strict=True))
        self.halve = nn.ModuleList(nn.Conv2d(c, c, kernel, stride, around) for c in channels[:-1])
        last = channels[-1]
        self.middle = nn.ModuleList([Convolutions(last, last, times, kernel), Convolutions(last, last, times, kernel)])
        self.attention = Attention(last)
        above = [*channels[1:], last]
        self.up = nn.ModuleList(Convolutions(a + c, c, times, kernel) for a, c in zip(above, channels, strict=True))
        self.last = nn.Sequential(
            nn.GroupNorm(8, channels[0]), nn.SiLU(), _zeroed(nn.Conv2d(channels[0], pixels, kernel, padding=around))
        )
        self.dropped = 2 * sum(channels) + 2 * last  # channels that dropout has a number for

    def forward(self, parts: Sequence[Tensor], t: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Compute velocities of flat images.

        Parameters
        ----------
        parts : Tensors, (samples, height * width * channels) each
        t : Tensor, (samples,)
        numbers : Tensor, (samples, dropped), or None
            Normal numbers for dropout.

        Returns
        -------
        Tensor, (samples, height * width * channels)
        """
        dropout, time = Dropout(self.dropout, numbers), self.time(t)
        x, maps = self.first(self._maps(parts)), []
        for number, block in enumerate(self.down):
            x = block(self.halve[number - 1](x) if number else x, time, dropout)
            maps.append(x)
        x = self.middle[1](self.attention(self.middle[0](x, time, dropout)), time, dropout)
        for number in reversed(range(len(self.up))):
            x = self.up[number](torch.cat([x, maps[number]], 1), time, dropout)
            if number:
                x = _enlarged(x, maps[number - 1].shape)
        return self._flat(self.last(x))

    def _maps(self, parts: Sequence[Tensor]) -> Tensor:
        """Flat images as one stack of maps, (samples, inputs * channels, height, width), padded; squares as channels."""
        images = torch.cat([part.reshape(-1, *self.image) for part in parts], -1).movedim(-1, 1)
        below, right = (-side % by for side, by in zip(self.image, self.shrunk, strict=False))
        images = functional.pad(images, (0, right, 0, below)) if below or right else images
        if self.patch != (1, 1):
            images = images.unflatten(2, (-1, self.patch[0])).unflatten(4, (-1, self.patch[1]))
            images = images.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        return images.contiguous(memory_format=torch.channels_last)

    def _flat(self, maps: Tensor) -> Tensor:
        if self.patch != (1, 1):
            maps = maps.unflatten(1, (self.image[2], *self.patch)).permute(0, 1, 4, 2, 5, 3).flatten(2, 3).flatten(3, 4)
        return maps[..., : self.image[0], : self.image[1]].movedim(1, -1).flatten(1)


def _enlarged(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Each place of the maps as two by two of them, or as two along the only axis; quicker than an interpolation."""
    high, wide = shape[2] // x.shape[2], shape[3] // x.shape[3]
    return x[:, :, :, None, :, None].expand(-1, -1, -1, high, -1, wide).reshape(shape[0], -1, *shape[2:])


class FeatureNetwork(VelocityNetwork):
    """Residual fully connected layers.

    Parameters
    ----------
    features : int
    units : int
        Of each layer.
    blocks : int
    inputs : int
        Vectors of features that it is given together.
    dropout : float
        Share of units that are set to 0 in training.
    """

    def __init__(self, features: int, units: int, blocks: int, inputs: int, dropout: float):
        super().__init__()
        self.dropout, self.dropped = dropout, units * blocks
        self.time = Time(units)
        self.first, self.last = nn.Linear(inputs * features, units), _zeroed(nn.Linear(units, features))
        self.norms = nn.ModuleList(nn.LayerNorm(units) for _ in range(blocks))
        self.wide = nn.ModuleList(nn.Linear(units, units) for _ in range(blocks))
        self.back = nn.ModuleList(_zeroed(nn.Linear(units, units)) for _ in range(blocks))
        self.times = nn.ModuleList(nn.Linear(units, 2 * units) for _ in range(blocks))

    def forward(self, parts: Sequence[Tensor], t: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Compute velocities, (samples, features); arguments as of `UNet`."""
        dropout, time = Dropout(self.dropout, numbers), self.time(t)
        x = self.first(torch.cat(list(parts), -1))
        for norm, wide, back, layer in zip(self.norms, self.wide, self.back, self.times, strict=True):
            scale, shift = layer(time).chunk(2, -1)
            x = x + back(dropout(functional.silu(wide(norm(x) * (1 + scale) + shift))))
        return self.last(x)
