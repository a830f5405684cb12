"""Plan: every decision of a fit, made in one place before it begins. Printed, it says what will be trained, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from unfade.corruption.mixed import recording
from unfade.corruption.noise import Corruption
from unfade.corruption.simulated import SimulatedCorruption, Step, steps_of
from unfade.data.columns import TEMPORAL
from unfade.data.constraints import Constraints, warn_conflicts
from unfade.data.dataset import Dataset
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations
from unfade.data.options import (
    model_space,
    named_noise,
    relative_noise,
    warn_few_images,
    warn_passthrough_with_missing,
    warn_unusual,
)
from unfade.data.sensor_faults import warn_faults
from unfade.data.support_gaps import SupportGap, find_gaps, warn_gaps
from unfade.data.timeline import Clock
from unfade.errors import InvalidData
from unfade.methods.parameters import Parameters
from unfade.methods.recipes import NARROW, Task, predicts
from unfade.methods.registry import METHODS, training_for
from unfade.models.architectures import (
    AnyArchitecture,
    Architecture,
    ConvArchitecture,
    FlowArchitecture,
    architecture_for,
    conv_architecture,
    flow_architecture,
    image_of,
    is_image,
    network_for,
)
from unfade.training.loop import TrainingConfig

_FEW = 10  # values of integers that carry no noise to learn
MANY = 10_000  # samples from which networks of a stack are as wide as alone


@dataclass(frozen=True)
class Plan:
    """What will be trained, on what, and why.

    encoder: how entries become features; noise: of the observed cells, without names; steps: of a simulated corruption;
    settings: of the method; training: batch size, rate and the most steps; n_members: ensemble members side by side;
    n_candidates: proposals a draw is resampled from; image: height, width and channels, or None; stacked: whether a
    linear model and trees are fitted too; support_gaps: missing cells outside the support of the observed ones; samples,
    missing: of the data; clock: of series.
    """

    method: str
    settings: dict[str, Any]
    noise: Any
    steps: tuple[Step, ...]
    encoder: FeatureEncoder
    architecture: AnyArchitecture
    training: TrainingConfig
    n_members: int
    n_candidates: int
    predictive: bool
    fixed_steps: bool
    stacked: bool
    image: tuple[int, int, int] | None
    support_gaps: tuple[SupportGap, ...]
    exempt: tuple[bool, ...]
    seed: int
    device: torch.device
    samples: int
    missing: float
    clock: Clock | None = None

    def corruption(self) -> Corruption:
        """How clean became observed, in the encoder's units; its noise level may be to be learned."""
        if self.steps:
            encoder, places = self.encoder, self.encoder.numbers
            scaling = encoder.scaling[places]
            units = scaling.centre.flatten(), scaling.scale.flatten()
            return SimulatedCorruption(self.steps, encoder.event_shape, *units, places, encoder.fill)
        exempt = torch.tensor(self.exempt) if self.exempt else None
        return recording(1.0 if _is(self.noise, "infer") else self.noise, self.encoder, exempt)

    def task(self, data: Dataset) -> Task:
        """The fit as recipes take it."""
        return Task(
            data.features(self.encoder).to(self.device),
            self.corruption(),
            self.architecture,
            self.training,
            self.seed,
            n_candidates=self.n_candidates,
            fixed_steps=self.fixed_steps,
            stacked=self.stacked,
            ends=self.encoder.ends,
            image=self.image,
            places=self.encoder.numbers.to(self.device),
        )

    def __str__(self) -> str:
        what = "pixels" if self.image else "columns"
        lines = [
            f"data: {self.samples:,} samples of {len(self.encoder.modelled):,} {what}, {self.missing:.1%} missing, "
            f"{self.encoder.features:,} features",
            f"corruption: {', '.join(map(repr, self.steps))}" if self.steps else f"noise: {_noise_in_words(self.noise)}",
            f"method: {self.method}{' by masked prediction' if self.predictive else ''}, {self._networks()}, "
            f"{self.n_members} ensemble member{'s' if self.n_members > 1 else ''}",
            f"training: {self._steps()} steps of {min(self.training.batch_size, self.samples)} samples",
            f"draws: {f'resampled from {self.n_candidates} proposals' if self.n_candidates else 'plain'}",
        ]
        if self.clock is not None:
            lines[2:] = [f"time: {self.clock}", "model: state space of one or two lags, chosen by cells held out in blocks"]
        elif self.stacked:
            lines.append("models: linear, trees, then networks while they help; draws by shares that held-out cells decide")
        if self.support_gaps:
            lines.append(f"{len(self.support_gaps)} columns with missing cells outside the support of the observed ones")
        return "\n".join(lines)

    def _networks(self) -> str:
        if isinstance(self.architecture, ConvArchitecture):
            return f"convolutional networks of {', '.join(map(str, self.architecture.channels))} channels"
        if isinstance(self.architecture, FlowArchitecture):
            return "a flow by a U-Net" if self.architecture.image else "a flow by fully connected networks"
        hidden = " x ".join(map(str, self.architecture.hidden))
        return f"fully connected networks of {hidden} units, {self.architecture.latent} latent variables"

    def _steps(self) -> str:
        return f"{self.training.steps:,}" if self.fixed_steps else f"at most {self.training.steps:,} (early stopping)"


def _noise_in_words(noise: Any) -> str:
    if noise is None:
        return "none, observed cells are unchanged"
    return f"{noise}" if isinstance(noise, str) else f"standard deviation {np.round(noise, 6)}"


def resolve(parameters: Parameters, data: Dataset, seed: int) -> Plan:
    """Decide everything that a fit to these data needs, and warn of what users would want to know."""
    obs, columns, parameters = data.obs, data.columns, parameters.for_images(data.obs.event_shape)
    method, settings, constraints = parameters.method, _settings(parameters), parameters.bound(data)
    conv, growing = _convolutional(parameters, obs), _is(parameters.noise, "learn-by-value")
    scaling = _scaling(parameters.scaling, conv is not None, growing)
    noise, mixed = _noise(parameters, data, scaling), METHODS[method].mixed and settings.get("posterior") != "bound"
    relative = relative_noise(parameters.noise, data.container.names, obs, columns)
    encoder = model_space(obs, columns, scaling, noise, parameters.bounds, mixed, conv is not None, relative)
    gaps = [] if data.timeline else [g for g in find_gaps(obs, columns) if not constraints.explains(g.column, g.other)]
    _warn(parameters, data, encoder, gaps, images := conv is not None or is_image(obs.event_shape), constraints)
    architecture = conv or _fully_connected(parameters, len(obs), encoder, _stacked(parameters, encoder, growing))
    by_prediction = predicts(settings.get("posterior", "auto"), len(encoder.numbers))
    predictive = (method == "masked" or (method == "auto" and by_prediction)) and not architecture.decoder_sees
    members = parameters.members_to_train(encoder.features, stacked := _stacked(parameters, encoder, growing))
    training = parameters.training or training_for(
        method, members, len(obs), encoder.features if conv is not None else None, predictive, stacked,
        timed=parameters.max_seconds is not None,
    )  # fmt: skip
    return Plan(
        method=method,
        settings=settings,
        noise=noise,
        steps=() if parameters.corruption is None else steps_of(parameters.corruption),
        encoder=encoder,
        architecture=architecture,
        training=replace(training, steps=int(parameters.max_steps or training.steps)),
        n_members=members,
        n_candidates=parameters.candidates_to_use(architecture, predictive),
        predictive=predictive,
        fixed_steps=parameters.max_steps is not None,
        stacked=stacked,
        image=image_of(obs.event_shape) if images else None,
        support_gaps=tuple(gaps),
        exempt=_exempt(data, isinstance(noise, str)),
        seed=seed,
        device=parameters.torch_device(),
        samples=len(obs),
        clock=None if data.timeline is None else data.timeline.clock,
        missing=1 - float((data.observed if data.closed is None else data.observed | data.closed).double().mean()),
    )


def _refuse_mixtures(parameters: Parameters, data: Dataset, encoder: FeatureEncoder) -> None:
    """Refuse columns that the model asked for cannot hold."""
    if data.timeline is not None and encoder.limited:
        raise InvalidData("time= does not take censored values such as <0.5. Leave time out, or give them as missing.")
    if parameters.corruption is not None:
        for column in data.columns:
            if column.discrete or column.kind in ("integer", *TEMPORAL):
                raise InvalidData(
                    f"corruption= is for continuous numbers and images, column {column.name!r} is {column.kind}. Leave the "
                    "column out, or give kinds={...: 'continuous'}."
                )


def _noise(parameters: Parameters, data: Dataset, scaling: str | None) -> Any:
    """Give the noise without names."""
    if _is(parameters.noise, "learn-by-value") and scaling != "joint-variance":
        raise InvalidData(f"noise='learn-by-value' needs scaling='joint-variance' (one unit for all), got {scaling!r}.")
    names = data.container.names or range(data.obs.event_shape[0])
    return named_noise(parameters.noise, names, "joint" in str(scaling), [column.kind for column in data.columns])


def _exempt(data: Dataset, learned: bool) -> tuple[bool, ...]:
    """Find columns without noise: dates and times; if levels are learned, integers of few values, such as a year."""
    values = (data.obs.values[data.obs.observed[:, i], i] for i in range(len(data.columns)))
    return tuple(
        column.kind in TEMPORAL or (learned and column.kind == "integer" and len(each.unique()) <= _FEW)
        for column, each in zip(data.columns, values, strict=True)
    )


def _stacked(parameters: Parameters, encoder: FeatureEncoder, growing: bool) -> bool:
    """Whether cheaper models are fitted too: for narrow tables, not images or signals, if the models are left open."""
    if len(encoder.event_shape) > 1 or "joint" in str(parameters.scaling):
        return False
    left_open = parameters.method == "auto" and not (parameters.settings or parameters.architecture or parameters.max_steps)
    return left_open and encoder.features <= NARROW and not (encoder.limited or growing)


def _is(noise: Any, word: str) -> bool:
    return isinstance(noise, str) and noise == word


def _settings(parameters: Parameters) -> dict[str, Any]:
    """Settings of the method; the noise level may come from q(beta|z,y)."""
    settings = dict(parameters.settings or {})
    if _is(parameters.noise, "infer"):
        if parameters.method != "tae-paper":
            raise InvalidData(f"noise='infer' belongs to method 'tae-paper', got {parameters.method!r}. Use noise='learn'.")
        settings["infer_noise"] = True
    return settings


def _scaling(asked: str | None, convolutional: bool, growing: bool) -> str | None:
    """One unit for all entries of images and for noise that grows with the value, where the user leaves it open."""
    if asked != "auto":
        return asked
    return "joint-variance" if convolutional or growing else "variance"


def _warn(
    parameters: Parameters, data: Dataset, encoder: FeatureEncoder, gaps: Sequence[SupportGap], images: bool,
    constraints: Constraints,
) -> None:  # fmt: skip
    """Refuse what the model cannot hold; warn of what users would want to know of their data before a fit."""
    _refuse_mixtures(parameters, data, encoder)
    warn_unusual(data.obs, encoder, data.columns, noisy=not parameters.exact)
    warn_conflicts(constraints, np.where(data.obs.observed, data.obs.values, np.nan).astype(float))
    warn_passthrough_with_missing(data.container, parameters.kinds)
    warn_gaps(gaps, data.columns)
    if data.timeline is not None:
        warn_faults(data.obs, data.timeline, data.columns)
    if images:
        warn_few_images(len(data.obs))


def _flow(parameters: Parameters, obs: Observations) -> FlowArchitecture | None:
    """The network of a flow for images; None for features."""
    given = parameters.architecture
    if parameters.method != "flow" or not isinstance(given, (FlowArchitecture, type(None))):
        raise InvalidData(f"Method 'flow' and FlowArchitecture go together, got {parameters.method!r} and {given!r}.")
    if len(obs.event_shape) < 2:
        return None
    return given or flow_architecture(obs.event_shape, parameters.torch_device().type == "cuda")


def _convolutional(parameters: Parameters, obs: Observations) -> ConvArchitecture | FlowArchitecture | None:
    """The convolutional networks to use, if they are to be used."""
    given, noise, method = parameters.architecture, parameters.noise, parameters.method
    if method == "flow" or isinstance(given, FlowArchitecture):
        return _flow(parameters, obs)
    if isinstance(given, ConvArchitecture):
        if given.image != image_of(obs.event_shape):
            there = image_of(obs.event_shape)
            raise InvalidData(f"The architecture is for images of {given.image}, the data are of {there}.")
        return given
    exact = noise is None or not (isinstance(noise, str) or np.any(noise))
    predictive = method in ("auto", "masked") and not parameters.settings and parameters.n_candidates in ("auto", 0)
    network = network_for(parameters.network, obs.event_shape, predictive)
    if given is not None or network == "full":
        return None
    paper = method == "tae-paper"
    network = "conv" if paper and parameters.network == "auto" else network
    return conv_architecture(network, obs.event_shape, paper or (method in ("auto", "masked") and exact))


def _fully_connected(parameters: Parameters, samples: int, encoder: FeatureEncoder, stacked: bool) -> AnyArchitecture:
    """The user's networks, the method's own, or some that suit the data."""
    bounded = encoder.ends is not None
    if parameters.method == "flow":
        return parameters.architecture or flow_architecture(encoder.event_shape, parameters.torch_device().type == "cuda")
    chosen = parameters.architecture or METHODS[parameters.method].architecture
    small = stacked and parameters.exact and parameters.max_seconds is None and samples < MANY  # trees model noise too
    chosen = chosen or architecture_for(samples, int(encoder.modelled.sum()), bounded, small)
    if isinstance(chosen, Architecture) and chosen.bounded and not bounded:
        raise InvalidData(
            "A bounded architecture needs bounds with both ends, near the data, of at least one column of numbers that "
            f"hardly ever repeat. Give them, such as bounds=(0, 1), or leave `bounded` out; got {parameters.bounds!r}."
        )
    return chosen
