"""Networks: tensors to tensors, no probability."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ACTIVATIONS: dict[str, Any] = {
    "leaky_relu": nn.LeakyReLU,
    "leaky_relu_0.2": partial(nn.LeakyReLU, 0.2),
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix, in which a row's result is the same at any place among the rows, bit for bit, when nothing is trained.

    Libraries multiply by some widths in pieces that begin at different rows; multiples of 16 columns are safe.
    """
    more = -matrix.shape[-1] % 16
    if not (more and torch.is_inference_mode_enabled()):
        return rows @ matrix
    return (rows @ functional.pad(matrix, (0, more)))[..., : matrix.shape[-1]]


class RowLinear(nn.Linear):
    """A linear layer whose results do not depend on the place of a row, when nothing is trained."""

    def forward(self, input: Tensor) -> Tensor:
        """Rows (rows, inputs)."""
        if not torch.is_inference_mode_enabled():
            return super().forward(input)
        return product(input, self.weight.T) + self.bias


class MLP(nn.Module):
    """Fully connected layers over the joined inputs, with an optional linear path around them.

    Inputs (..., features_i), joined along the last axis; output (..., outputs).

    >>> MLP(3, [8, 8], 2)(torch.zeros(5, 1), torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "leaky_relu", skip: bool = False
    ):
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for units in hidden:
            layers += [RowLinear(width, units), ACTIVATIONS[activation]()]
            width = units
        self.layers = nn.Sequential(*layers, RowLinear(width, outputs))
        self.skip = nn.Linear(inputs, outputs, bias=False) if skip else None

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs broadcast against each other in all axes but the last."""
        lead = torch.broadcast_shapes(*(part.shape[:-1] for part in inputs))
        joined = torch.cat([part.expand(*lead, part.shape[-1]) for part in inputs], -1) if len(inputs) > 1 else inputs[0]
        rows = joined.reshape(-1, joined.shape[-1])  # two axes all the way: fewer operations
        out = self.layers(rows)
        if self.skip is not None:
            if torch.is_inference_mode_enabled():
                out = out + product(rows, self.skip.weight.T)
            else:
                out = torch.addmm(out, rows, self.skip.weight.T)
        return out.reshape(*lead, -1)

    def xavier(self) -> "MLP":
        """Start again from Xavier's uniform weights and biases of 0."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        return self

    def silent(self) -> "MLP":
        """Start from an output of 0, whatever the inputs."""
        for layer in (self.layers[-1], self.skip):
            if isinstance(layer, nn.Linear):
                for parameter in layer.parameters():
                    nn.init.zeros_(parameter)
        return self


Image = tuple[int, int, int]  # height, width, channels: how the entries of a flat sample lie


class Down(nn.Module):
    """Flat images, joined as channels, to flat latent images by a stack of convolutions.

    Inputs (..., height * width * channels) each. Images are padded to a multiple of what the stack shrinks them by; an
    axis of length 1 is not shrunk.

    >>> Down((12, 16, 1), halvings((12, 16, 1), 2, 5, 2))(torch.zeros(3, 192), torch.ones(3, 192)).shape
    torch.Size([3, 60])
    """

    def __init__(self, image: Image, stack: nn.Module, factor: int = 4):
        super().__init__()
        self.image, self.factor, self.stack = image, factor, stack

    def forward(self, *inputs: Tensor) -> Tensor:
        """(..., channels * height * width) of the latent images."""
        lead = torch.broadcast_shapes(*(part.shape[:-1] for part in inputs))
        images = _joined([part.expand(*lead, part.shape[-1]) for part in inputs], self.image, self.factor)
        return self.stack(images).reshape(*lead, -1)


class Up(nn.Module):
    """Flat latent images, and what is seen of the images, to two flat images: means and log-variances.

    stack: from latent images and a list of maps of what is seen to twice the channels; side: from images of what is seen
    to those maps. With `fill`, what is not seen is the nearest that is, and means are relative to it.
    """

    def __init__(
        self,
        image: Image,
        latent: int,
        stack: nn.Module,
        side: nn.Module | None = None,
        factor: int = 16,
        fill: bool = False,
    ):
        super().__init__()
        self.image, self.factor, self.latent = image, factor, latent
        self.stack, self.side, self.fill = stack, side, fill

    def forward(self, z: Tensor, *seen: Tensor) -> Tensor:
        """z (..., latent numbers), seen (samples, entries) each; maps of what is seen are made once for all z."""
        height, width, channels = self.image
        lead, maps, middle = z.shape[:-1], [], None
        if self.side is not None:
            images = _joined(seen, self.image, self.factor)
            if self.fill:
                middle, far = nearest(*images.chunk(2, 1))
                images = torch.cat([middle, images.chunk(2, 1)[1], (-far / 8).exp()], 1)
            maps = [one.expand(*lead[:-1], *one.shape).reshape(-1, *one.shape[1:]) for one in self.side(images)]
        small = [-(-side // self.factor) if side > 1 else 1 for side in (height, width)]
        out = self.stack(z.reshape(-1, self.latent, *small), maps)
        mean, raw = out.reshape(*lead, 2, channels, *out.shape[2:]).unbind(-4)
        if middle is not None:
            mean = mean + middle
        parts = [part[..., :height, :width].movedim(-3, -1).reshape(*lead, -1) for part in (mean, raw)]
        return torch.cat(parts, -1)


def _joined(parts: Sequence[Tensor], image: Image, factor: int) -> Tensor:
    """Flat images as (images, channels of all, height, width), padded with zeros to a multiple of `factor`."""
    height, width, _ = image
    images = torch.cat([part.reshape(-1, *image) for part in parts], -1).movedim(-1, 1)
    below, right = (-side % factor if side > 1 else 0 for side in (height, width))
    return functional.pad(images, (0, right, 0, below)) if below or right else images


def nearest(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest observed value of each pixel of images (images, channels, height, width), and how far away it is.

    First along the rows, exactly; then each pixel asks those 2^k, ..., 2, 1 above and below it for the nearest that they
    know of. Now and then it gets the second nearest. Where nothing is observed at all, 0 and a distance beyond any other.

    >>> nearest(torch.tensor([[[[2.0, 0.0, 0.0, 5.0]]]]), torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]]))
    (tensor([[[[2., 2., 5., 5.]]]]), tensor([[[[0., 1., 1., 0.]]]]))
    """
    height, width = values.shape[-2:]
    outside = 2 * (height + width)
    row, column = torch.arange(height, device=values.device)[:, None], torch.arange(width, device=values.device)
    before = torch.where(observed > 0, column, -outside).cummax(-1).values
    after = torch.where(observed > 0, column, width + outside).flip(-1).cummin(-1).values.flip(-1)
    own = torch.where(column - before <= after - column, before, after)
    found = (values * observed).gather(-1, own.clamp(0, width - 1))
    known = torch.stack([row.expand(own.shape).to(values.dtype), (own - column).to(values.dtype), found])  # where, and what
    distance = known[1].square()
    for step in [2**k for k in reversed(range((height - 1).bit_length()))]:
        for down in (-step, step):
            other = functional.pad(known, (0, 0, -down, down), value=4 * outside)
            far = (other[0] - row).square() + other[1].square()
            known, distance = torch.where(far < distance, other, known), torch.minimum(far, distance)
    return known[2], distance.sqrt()


def _strides(image: Image, factor: int) -> tuple[int, int]:
    return factor if image[0] > 1 else 1, factor if image[1] > 1 else 1


def _doubling(image: Image, inputs: int, outputs: int) -> nn.Module:
    """A transposed convolution of 3 x 3 with a stride of 2."""
    rows, columns = _strides(image, 2)
    return nn.ConvTranspose2d(inputs, outputs, 3, (rows, columns), 1, (rows - 1, columns - 1))


def halvings(image: Image, inputs: int, channels: int, depth: int) -> nn.Sequential:
    """Convolutions of 3 x 3, each with a stride of 2."""
    layers: list[nn.Module] = []
    for level in range(depth):
        layers += [nn.Conv2d(channels if level else inputs, channels, 3, _strides(image, 2), 1), nn.ELU()]
    return nn.Sequential(*layers)


def quarterings(image: Image, channels: int, latent: int) -> nn.Sequential:
    """The paper's shallow encoder: twice to a quarter, then to half of that; each pixel of the last goes by itself."""
    four, two = _strides(image, 4), _strides(image, 2)
    first = nn.Conv2d(image[2], channels, four, four)
    return nn.Sequential(
        first, nn.ELU(), nn.Conv2d(channels, channels, four, four), nn.ELU(), nn.Conv2d(channels, latent, two, two)
    )


class Doublings(nn.Module):
    """The paper's decoder: transposed convolutions of 3 x 3, the last also over a map of what is seen, at half size."""

    def __init__(self, image: Image, latent: int, channels: int, depth: int, sees: bool):
        super().__init__()
        layers: list[nn.Module] = []
        for level in range(depth - 1):
            layers += [_doubling(image, channels if level else latent, channels), nn.ELU()]
        self.first = nn.Sequential(*layers)
        self.last = _doubling(image, channels * (2 if sees else 1), 2 * image[2])

    def forward(self, z: Tensor, maps: list[Tensor]) -> Tensor:
        """(images, 2 channels, height, width)."""
        return self.last(torch.cat([self.first(z), *maps], 1))


class Quadruplings(nn.Module):
    """The mirror of `quarterings`."""

    def __init__(self, image: Image, channels: int, latent: int):
        super().__init__()
        four, two = _strides(image, 4), _strides(image, 2)
        layers = (nn.ConvTranspose2d(latent, channels, two, two), nn.ConvTranspose2d(channels, channels, four, four))
        self.layers = nn.Sequential(
            layers[0], nn.ELU(), layers[1], nn.ELU(), nn.ConvTranspose2d(channels, 2 * image[2], four, four)
        )

    def forward(self, z: Tensor, maps: list[Tensor]) -> Tensor:
        """(images, 2 channels, height, width)."""
        return self.layers(z)


class Listed(nn.Module):
    """A module's output as a list of one."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> list[Tensor]:
        """One map."""
        return [self.module(images)]


class Residual(nn.Module):
    """x + convolutions of it, each after group normalisation."""

    def __init__(self, channels: int):
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.GroupNorm(gcd(8, channels), channels), nn.ELU(), nn.Conv2d(channels, channels, 3, 1, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x + self.layers(x)


class Pyramid(nn.Module):
    """Maps of images at 1/2, 1/4, ... of their size, as many as `channels` says, after the images themselves."""

    def __init__(self, image: Image, inputs: int, channels: Sequence[int]):
        super().__init__()
        stride, widths = _strides(image, 2), [inputs, *channels]
        self.steps = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before, after, 3, stride, 1), Residual(after))
            for before, after in zip(widths, channels, strict=False)
        )

    def forward(self, images: Tensor) -> list[Tensor]:
        """Images first, the smallest maps last."""
        maps = [images]
        for step in self.steps:
            maps.append(step(maps[-1]))
        return maps


class PyramidTop(nn.Module):
    """The smallest maps of a pyramid, each pixel of them through a linear layer."""

    def __init__(self, image: Image, inputs: int, channels: Sequence[int], outputs: int):
        super().__init__()
        self.pyramid = Pyramid(image, inputs, channels)
        self.head = nn.Conv2d(channels[-1], outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(images, outputs, height, width) of the smallest."""
        return self.head(self.pyramid(images)[-1])


class FromPyramid(nn.Module):
    """From latent images back to images, with the maps of a pyramid of what is seen at every size."""

    def __init__(self, image: Image, latent: int, channels: Sequence[int], sees: bool, last: int = 8):
        super().__init__()
        self.first = nn.Conv2d(latent, channels[-1], 1)
        self.residuals = nn.ModuleList(Residual(width) for width in reversed(channels))
        widths = [*reversed(channels), last]
        self.steps = nn.ModuleList(_doubling(image, before, after) for before, after in pairwise(widths))
        self.last = nn.Conv2d(last + (3 * image[2] if sees else 0), 2 * image[2], 3, 1, 1)

    def forward(self, z: Tensor, maps: list[Tensor]) -> Tensor:
        """(images, 2 channels, height, width)."""
        x, seen = self.first(z), maps[:0:-1]
        for level, (residual, step) in enumerate(zip(self.residuals, self.steps, strict=True)):
            x = step(residual(x + seen[level] if seen else x))
        return self.last(torch.cat([functional.elu(x), *maps[:1]], 1))
