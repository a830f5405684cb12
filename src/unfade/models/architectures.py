"""Sizes and form of the networks: what builds the conditionals of a model for data of some shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.errors import InvalidData
from unfade.models import networks
from unfade.models.conditional_densities import Gaussian
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PriorLVM
from unfade.models.networks import MLP, Down, Up
from unfade.models.velocity_networks import FeatureNetwork, UNet, VelocityNetwork


@dataclass(frozen=True)
class Architecture:
    """Sizes and form of the fully connected networks.

    width: log-variances stay within (-width/2, width/2). skip: a linear path beside each network.
    shared_variance: the decoder has one variance a column. decoder_sees: q(x|z,y) rather than q(x|z), for method
    "tae-paper". bounded: the decoder's means keep within the data's bounds, (0, 1) unless said otherwise.

    Habits of others: xavier: weights start by Xavier's rule, biases at 0. plain_sigmoids: as `plain` of `Gaussian`.
    latent_width: `width` of densities over z. prior_bounded: `bounded` of p(x|z_p). added_variance: to that of x and z.
    """

    latent: int = 20
    hidden: tuple[int, ...] = (400, 400)
    decoder_hidden: tuple[int, ...] | None = None  # as `hidden` where None
    prior_latent: int = 5
    prior_hidden: tuple[int, ...] = (50, 50)
    activation: str = "leaky_relu"
    skip: bool = False
    width: float = 20.0
    shared_variance: bool = False
    decoder_sees: bool = False
    bounded: bool = False
    xavier: bool = False
    plain_sigmoids: bool = False
    latent_width: float | None = None
    prior_bounded: bool = False
    added_variance: float = 0.0

    def encoder(self, inputs: int) -> Gaussian:
        """A density over z given `inputs` numbers."""
        return self._latent(inputs, self.hidden, self.latent)

    def decoder(self, features: int) -> Gaussian:
        """A density over x given z, and y and alpha where `decoder_sees`."""
        inputs = self.latent + (2 * features if self.decoder_sees else 0)
        hidden = self.hidden if self.decoder_hidden is None else self.decoder_hidden
        outputs = features if self.shared_variance else 2 * features
        network = self._network(inputs, hidden, outputs)
        return Gaussian(network, features, self.width, self.shared_variance, self.bounded, **self._habits)

    def prior(self, features: int) -> PriorLVM:
        """The paper's shallow prior: q(z_p|x) and p(x|z_p)."""
        up = self._network(self.prior_latent, self.prior_hidden, 2 * features)
        return PriorLVM(
            self._latent(features, self.prior_hidden, self.prior_latent),
            Gaussian(up, features, self.width, bounded=self.prior_bounded, **self._habits),
        )

    def unknowns(self, features: int) -> Gaussian:
        """q(log beta|z,y,alpha): one noise level per sample."""
        return self._latent(self.latent + 2 * features, self.hidden, 1)

    def relative(self, inputs: int) -> Gaussian:
        """A density over z in units of another, N(0, 1) at first; its log-variances may leave that one's by the width."""
        network = self._network(inputs, self.hidden, 2 * self.latent).silent()
        return Gaussian(network, self.latent, 2 * self.width)

    def _latent(self, inputs: int, hidden: tuple[int, ...], features: int) -> Gaussian:
        width = self.width if self.latent_width is None else self.latent_width
        return Gaussian(self._network(inputs, hidden, 2 * features), features, width, **self._habits)

    def _network(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> MLP:
        network = MLP(inputs, hidden, outputs, self.activation, self.skip)
        return network.xavier() if self.xavier else network

    @property
    def _habits(self) -> dict[str, Any]:
        return {"plain": self.plain_sigmoids, "added": self.added_variance}


@dataclass(frozen=True)
class ConvArchitecture:
    """Sizes and form of the convolutional networks, for images of one size; latents are images too.

    image: height, width, channels. channels: one number for the paper's networks (supplement C), where every map has as
    many; several for stronger ones, residual and with group normalisation, of the maps at 1/2, 1/4, ... of the image.
    widest: what the decoder's sds stay below; 1, the sd of all pixels, as none is known less than one taken at random.
    latent, prior_latent: channels of z and z_p. width and decoder_sees as in `Architecture`.
    """

    image: tuple[int, int, int]
    channels: tuple[int, ...] = (5,)
    latent: int = 10
    prior_channels: int = 5
    prior_latent: int = 5
    width: float = 20.0
    decoder_sees: bool = True
    widest: float | None = None

    def encoder(self, inputs: int) -> Gaussian:
        """A density over latent images given `inputs` numbers: those of one image or more."""
        parts = inputs // self.features
        return Gaussian(Down(self.image, self._shrink(parts * self.image[2], 2 * self.latent), self.factor), 0, self.width)

    def decoder(self, features: int) -> Gaussian:
        """A density over x given z, and y and alpha where `decoder_sees`."""
        sees, seen = self.decoder_sees, 2 * self.image[2]
        side: nn.Module | None = None
        stack: nn.Module
        if self._plain:
            stack = networks.Doublings(self.image, self.latent, self.channels[0], 4, sees)
            side = networks.Listed(networks.halvings(self.image, seen, self.channels[0], 1)) if sees else None
        else:
            stack = networks.FromPyramid(self.image, self.latent, self.channels, sees)
            side = networks.Pyramid(self.image, 3 * self.image[2], self.channels) if sees else None
        up = Up(self.image, self.latent, stack, side, self.factor, fill=sees and not self._plain)
        return Gaussian(up, features, self.width, widest=self.widest)

    def prior(self, features: int) -> PriorLVM:
        """The paper's shallow prior, down to 1/32 of the image."""
        down = networks.quarterings(self.image, self.prior_channels, 2 * self.prior_latent)
        up = networks.Quadruplings(self.image, self.prior_channels, self.prior_latent)
        return PriorLVM(
            Gaussian(Down(self.image, down, 32), 0, self.width),
            Gaussian(Up(self.image, self.prior_latent, up, factor=32), features, self.width),
        )

    def unknowns(self, features: int) -> Gaussian:
        """Noise levels that differ from sample to sample are for fully connected networks."""
        raise InvalidData("noise='infer' is for fully connected networks, got convolutional ones. Use noise='learn'.")

    @property
    def features(self) -> int:
        """Entries of an image."""
        height, width, channels = self.image
        return height * width * channels

    @property
    def factor(self) -> int:
        """How much smaller the latent images are."""
        return 16 if self._plain else 2 ** len(self.channels)

    @property
    def _plain(self) -> bool:
        return len(self.channels) == 1

    def _shrink(self, inputs: int, outputs: int) -> nn.Module:
        if not self._plain:
            return networks.PyramidTop(self.image, inputs, self.channels, outputs)
        body = networks.halvings(self.image, inputs, self.channels[0], 4)
        return nn.Sequential(body, nn.Conv2d(self.channels[0], outputs, 1))


@dataclass(frozen=True)
class FlowArchitecture:
    """Sizes of the network of a flow posterior.

    image: height, width, channels, for a U-Net; None: residual layers over features. channels: of the maps at the size of
    the image, 1/2, 1/4, ...; patch: side of the squares of pixels that are one place of the largest maps. units, blocks: of
    residual layers. dropout: share of channels or units set to 0 in training. steps: of the differential equation.
    """

    image: tuple[int, int, int] | None = None
    channels: tuple[int, ...] = (64, 128, 128)
    patch: int = 1
    units: int = 512
    blocks: int = 4
    dropout: float = 0.1
    steps: int = 16
    decoder_sees: bool = True  # its draws need no proposals

    def network(self, features: int) -> VelocityNetwork:
        """The velocity network: x_t, y and mask, and t, to a velocity."""
        if self.image is None:
            return FeatureNetwork(features, self.units, self.blocks, 3, self.dropout)
        return UNet(self.image, self.channels, 3, self.patch, self.dropout)

    def posterior(self, features: int, corruption: Corruption, places: Tensor | None) -> FlowPosterior:
        """A flow with fresh weights. places: where the features lie in the image; None: they are all of its entries."""
        size = features if self.image is None else prod(self.image)
        entries = None if places is None or len(places) == size else places
        return FlowPosterior(self.network(features), corruption, entries, size, self.steps)


LatentArchitecture = Architecture | ConvArchitecture  # of models with latent variables
AnyArchitecture = LatentArchitecture | FlowArchitecture

# Supplement C: 400, 400 units and 20 latents, prior 50, 50 and 5; 500,000 steps of 20 at a rate printed as 2^-4.
PAPER = Architecture()
# As the paper's first author builds networks in public code for other papers (github.com/ftonolini45/VICI).
AUTHORS_HABITS: dict[str, Any] = {
    "activation": "leaky_relu_0.2", "bounded": True, "xavier": True, "plain_sigmoids": True, "latent_width": 10.0,
    "prior_bounded": True, "added_variance": 1e-5,
}  # fmt: skip


_WEIGHTS = 2_000_000  # of the first layer of networks for wide data, half of them
LARGE = (32, 48, 64, 64)  # channels of the stronger convolutional networks
NETWORKS = ("auto", "full", "conv", "conv-large")


def is_image(event_shape: Sequence[int], least: int = 8) -> bool:
    """Whether samples of some shape are images: two axes of so many entries at least, alike in length or long.

    Series of a few channels are none.
    """
    if len(event_shape) not in (2, 3):
        return False
    short, long = sorted(event_shape[:2])
    return short >= least and (long <= 4 * short or short >= 32)


def network_for(network: str, event_shape: Sequence[int], predictive: bool = True) -> str:
    """The kind of networks for samples of some shape: of "auto", convolutional ones for images.

    Of small images only where the posterior is trained to predict what is hidden, which is when these do better.
    """
    if network not in NETWORKS:
        raise InvalidData(f"network must be one of {', '.join(NETWORKS)}, got {network!r}.")
    if network == "auto":
        large = len(event_shape) > 1 and event_shape[0] * event_shape[1] > 64 * 64
        return "conv-large" if is_image(event_shape, 32 if large else 12) and (large or predictive) else "full"
    if network != "full" and len(event_shape) not in (2, 3):
        raise InvalidData(
            f"network {network!r} is for images, (samples, height, width) or (samples, height, width, channels), got "
            f"samples of shape {tuple(event_shape)}. Signals are images of height 1: (samples, 1, time, channels)."
        )
    return network


def of_images(architecture: AnyArchitecture) -> bool:
    """Whether networks are for images, which are large: they take all threads, and few draws for a mean."""
    return getattr(architecture, "image", None) is not None


def image_of(event_shape: Sequence[int]) -> tuple[int, int, int]:
    """Height, width and channels of samples (height, width) or (height, width, channels)."""
    height, width, channels = (*event_shape, 1)[:3]
    return height, width, channels


def flow_architecture(event_shape: Sequence[int], large: bool) -> FlowArchitecture:
    """Sizes of a flow's network for samples of some shape; large: where there is a GPU."""
    if len(event_shape) not in (2, 3):
        return FlowArchitecture(units=512 if large else 128, blocks=4 if large else 3)
    image = image_of(event_shape)
    side, patch = max(image[:2]), 2 if max(image[:2]) > 64 else 1
    halvings = max(1, min(3, (side // patch - 1).bit_length() - 3))  # down to 5 to 8 pixels, where there are so many
    first = 64 if large else 32
    return FlowArchitecture(image, (first, *[2 * first] * halvings), patch)


def conv_architecture(network: str, event_shape: Sequence[int], decoder_sees: bool) -> ConvArchitecture:
    """The convolutional networks of a name for images (height, width) or (height, width, channels)."""
    if network == "conv":
        return ConvArchitecture(image_of(event_shape), decoder_sees=decoder_sees)
    return ConvArchitecture(image_of(event_shape), LARGE, decoder_sees=decoder_sees, widest=1.0)


def architecture_for(samples: int, features: int, bounded: bool = False, stacked: bool = False) -> Architecture:
    """Sizes from the data: small nets for small tables and for stacks; the paper's width for images and wide tables."""
    if features > 100:  # of very wide data as many units as keep each layer within some millions of weights
        units = max(16, min(400, _WEIGHTS // features))
        return Architecture(latent=32, hidden=(units, units), skip=True, bounded=bounded)
    units, latent = (64, 8) if samples < 600 else (64 if stacked else 128, 16)
    return Architecture(latent=min(latent, 2 * features), hidden=(units, units), skip=True, bounded=bounded)
