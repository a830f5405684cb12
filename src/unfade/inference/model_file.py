"""The model file: a fitted model as tensors and JSON, and back."""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import date, datetime
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from unfade import storage
from unfade.corruption import simulated
from unfade.corruption.growing_noise import GrowingNoise
from unfade.corruption.mixed import MixedLikelihood
from unfade.corruption.noise import Corruption, GaussianNoise
from unfade.corruption.simulated import SimulatedCorruption, UserFunction
from unfade.data.containers import Column
from unfade.data.encoder import FeatureEncoder, unlimited
from unfade.data.observations import Scaling
from unfade.data.support_gaps import SupportGap
from unfade.data.text_formats import TextFormat
from unfade.data.timeline import Clock
from unfade.errors import InvalidData, InvalidFile
from unfade.inference import model_schema
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters
from unfade.methods.recipes import build_posterior
from unfade.models.architectures import AnyArchitecture, Architecture, ConvArchitecture, FlowArchitecture, image_of
from unfade.models.baselines import NearestPixels
from unfade.models.kinds import kind_of
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import blank_factors, linear_posterior
from unfade.models.state_space import blank_state_space
from unfade.models.trees import ChainedTrees, blank_trees
from unfade.renamed import format_2, format_3
from unfade.training.loop import History, TrainingConfig


def save_model(model: FittedModel, path: str | os.PathLike[str]) -> None:
    """Write a model as one file, whole or not at all."""
    storage.save(path, *to_state(model))


def load_model(path: str | os.PathLike[str], corruption: UserFunction | None = None) -> FittedModel:
    """Read a model that `save_model` wrote; raise InvalidFile for a damaged or crafted file."""
    tensors, meta = storage.load(path)
    try:
        return from_state(tensors, meta, corruption)
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise InvalidFile(f"{path} is damaged: its parts do not fit together ({error}). Save it again.") from None


def to_state(model: FittedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Convert a fitted model to tensors and JSON."""
    for column in model.columns or ():
        if odd := [value for value in column.categories if not isinstance(value, (str, int, float, date))]:
            raise InvalidData(
                f"A model file holds categories that are text, numbers or dates, column {column.name!r} has {odd[0]!r}. "
                f"Fit on frame[{column.name!r}].astype(str) to save the model."
            )
    return _tensors_of(model), _facts_of(model)


def _tensors_of(model: FittedModel) -> dict[str, Tensor]:
    encoder = model.encoder
    tensors = {"centre": encoder.scaling.centre, "scale": encoder.scaling.scale, "logged": encoder.scaling.logged}
    tensors |= {name: getattr(encoder, name) for name in ("modelled", "fill", "unit", "bounds", "reach")}
    tensors |= {f"steps.{entry}": values for entry, values in encoder.repeated.items()}
    tensors |= {f"donors.{number}": gap.donors for number, gap in enumerate(model.support_gaps)}
    if model.calibration is not None:
        tensors["widths"] = model.calibration
    if model.posterior is not None:
        tensors |= {f"posterior.{name}": value.cpu() for name, value in model.posterior.state_dict().items()}
    return tensors


def _facts_of(model: FittedModel) -> dict[str, Any]:
    """Convert the fields that are no tensors to JSON."""
    encoder = model.encoder
    parameters = {field.name: getattr(model.parameters, field.name) for field in fields(Parameters)}
    if model.parameters.corruption is not None:
        parameters["corruption"] = simulated.to_json(simulated.steps_of(model.parameters.corruption))
    gap_fields = ("column", "other", "sign", "edge", "cells")
    return {
        "parameters": _to_json(parameters | {"random_state": model.seed, "device": "auto"}),
        "seed": model.seed,
        "event_shape": encoder.event_shape,
        "spread": encoder.mean_sd,
        "feature_names": list(model.feature_names) or None,
        "columns": model.columns and [_column_to_json(column) for column in model.columns],
        "levels": list(encoder.n_categories.items()),
        "limited": encoder.limited,
        "support_gaps": [{name: getattr(gap, name) for name in gap_fields} for gap in model.support_gaps],
        "clock": model.clock and asdict(model.clock),
        "noise": _to_json(model.noise),
        "architecture": asdict(model.architecture),
        "histories": [asdict(history) for history in model.histories],
        "posterior": model.posterior and _facts_of_posterior(model.posterior),
    }  # fmt: skip


def _facts_of_posterior(posterior: Ensemble) -> dict[str, Any]:
    """Convert what the networks, if there are any, and the ensemble were built from to JSON."""
    lead = next((member for member in posterior.each if kind_of(member) == "networks"), posterior.each[0])
    return {
        "members": len(posterior.each),
        "conditioned": lead.conditioned,
        "infer_noise": lead.unknowns is not None,
        "model": lead.model is not None,
        "own_prior": lead.own_prior,
        "kinds": [kind_of(member) for member in posterior.each],
        "turns": posterior.turns and list(posterior.turns),
        "nearest": getattr(posterior.each[0], "image", None),
    }


def from_state(tensors: dict[str, Tensor], meta: dict[str, Any], corruption: UserFunction | None = None) -> FittedModel:
    """Build the model from the result of `to_state`; raise ValueError if parts do not fit together."""
    meta = format_2(meta) if meta.get("format") == 1 else meta
    meta = format_3(meta) if meta.get("format") in (1, 2) else meta
    model_schema.check(meta, tensors)
    given = dict(meta["parameters"])
    given["architecture"] = _architecture(given["architecture"])
    if given.get("corruption"):
        given["corruption"] = list(simulated.from_json(given["corruption"], corruption))
    given["training"] = _from_json(TrainingConfig, given["training"])
    for name in ("bounds", "detection_limits", "missing", "applicable", "derived", "sums"):
        if not meta["columns"] and isinstance(given.get(name), dict):  # of an array, by the number of the column
            given[name] = {_number(column): pair for column, pair in given[name].items()}
    parameters, encoder, columns = Parameters(**given), _encoder(tensors, meta), meta["columns"]
    architecture = _architecture(meta["architecture"])
    state = {name.removeprefix("posterior."): value for name, value in tensors.items() if name.startswith("posterior.")}
    steps = given.get("corruption") or ()
    posterior = _posterior(encoder, architecture, state, steps=steps, **meta["posterior"]) if meta["posterior"] else None
    gaps = meta.get("support_gaps", ())
    model = FittedModel(
        parameters,
        encoder,
        columns and tuple(_column_from_json(column) for column in columns),
        posterior and posterior.to(parameters.torch_device()),
        architecture,
        meta["seed"],
        calibration=tensors.get("widths"),
        support_gaps=tuple(SupportGap(**gap, donors=tensors[f"donors.{number}"]) for number, gap in enumerate(gaps)),
        histories=tuple(History.of(history) for history in meta["histories"]),
        feature_names=tuple(meta["feature_names"] or ()),
        clock=_clock(meta.get("clock")),
    )
    _ = model.constraints  # refused here if they do not fit the columns
    return model


def _number(column: str) -> int | str:
    """Convert the name of a column of an array to its number."""
    return int(column) if column.lstrip("-").isdecimal() else column


def _clock(value: dict[str, Any] | None) -> Clock | None:
    """Build the clock of series."""
    if value is None:
        return None
    periods = tuple((float(period), int(harmonics)) for period, harmonics in value["periods"])
    column = value.get("column") and _column_from_json(value["column"])
    span = value.get("span") and (float(value["span"][0]), float(value["span"][1]))
    return Clock(value["time"], tuple(value["panel"]), value["step"], periods, value.get("months", 0), column, span)


def _encoder(tensors: dict[str, Tensor], meta: dict[str, Any]) -> FeatureEncoder:
    """Build the encoder."""
    scaling = Scaling(tensors["centre"], tensors["scale"], tensors["logged"])
    repeated = {int(name.removeprefix("steps.")): tensors[name] for name in tensors if name.startswith("steps.")}
    unit = tensors["unit"] if "unit" in tensors else tensors["whole"].double()  # of the first files
    return FeatureEncoder(
        tuple(meta["event_shape"]), scaling, tensors["modelled"], tensors["fill"], meta["spread"],
        dict(sorted(repeated.items())), dict(meta["levels"]), tuple(meta["limited"]), unit, tensors["bounds"],
        tensors["reach"] if "reach" in tensors else unlimited(len(unit)),
    )  # fmt: skip


def _posterior(
    space: FeatureEncoder,
    architecture: AnyArchitecture,
    state: dict[str, Tensor],
    members: int,
    conditioned: bool,
    infer_noise: bool,
    model: bool,
    linear: bool = False,
    own_prior: bool = False,
    nearest: tuple[int, int, int] | None = None,
    kinds: list[str] | None = None,
    turns: list[int] | None = None,
    steps: Sequence[simulated.Step] = (),
) -> Ensemble:
    """Build the posterior and load its tensors; steps: of a simulated corruption."""
    kinds = kinds or ["nearest pixel" if nearest else "linear model" if linear else "networks"] * members
    _check_sizes(architecture, space.features, state, kinds, members)

    def built(number: int) -> nn.Module:
        """Build one ensemble member."""
        corruption = _corruption(space, state, steps)
        if isinstance(architecture, FlowArchitecture):
            places = torch.zeros_like(state["members.0.entries"]) if "members.0.entries" in state else None
            return architecture.posterior(space.features, corruption, places)
        if kinds[number] == "networks":
            return build_posterior(architecture, space.features, corruption, conditioned, infer_noise, own_prior)
        return _without_networks(kinds[number], space, corruption, _of_member(state, number))

    ensemble = Ensemble([built(number) for number in range(members)], turns)
    for number, member in enumerate(ensemble.each):
        if model and kinds[number] == "networks":
            member.model = cast(PosteriorLVM, built(number))
    ensemble.load_state_dict(state)
    _check_ensemble(ensemble)
    return ensemble.requires_grad_(False).eval()


def _corruption(space: FeatureEncoder, state: dict[str, Tensor], steps: Sequence[simulated.Step]) -> Corruption:
    """Build the corruption of an ensemble member."""
    if steps:
        units = torch.zeros(len(space.numbers)), torch.ones(len(space.numbers))
        return SimulatedCorruption(steps, space.event_shape, *units, space.numbers, space.fill)
    noise_of = "members.0.corruption." if space.plain else "members.0.corruption.noise."
    exact, level = state[noise_of + "exact"], torch.ones_like(state[noise_of + "log_std_tens"])
    growing = "members.0.corruption.log_growth_tens" in state
    noise = GrowingNoise(level, 1.0, torch.zeros(1)) if growing else GaussianNoise(level, exact=exact)
    if space.plain:
        return noise
    return MixedLikelihood(noise, space.features, space.model_intervals(), space.groups)


def _without_networks(kind: str, space: FeatureEncoder, corruption: Corruption, state: dict[str, Tensor]) -> nn.Module:
    """Build an ensemble member that holds no network."""
    if kind == "nearest pixel":
        return NearestPixels(image_of(space.event_shape), space.numbers, corruption)
    if kind == "state space":
        return blank_state_space(corruption, space.features, state)
    if kind == "trees":
        return blank_trees(corruption, space.features, state)
    return linear_posterior(blank_factors(space.features, state["decoder.loadings"].shape[1]), corruption)


def _check_ensemble(ensemble: Ensemble) -> None:
    """Refuse, by a ValueError, turns of models that do not exist, and trees that lead nowhere."""
    if max(ensemble.turns or (0,)) >= len(ensemble.members):
        raise ValueError(f"expected turns of {len(ensemble.members)} models, found {ensemble.turns}")
    for trees in ensemble.members:
        if isinstance(trees, ChainedTrees):
            trees.check()


def _of_member(state: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    prefix = f"members.{number}."
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _check_sizes(
    architecture: AnyArchitecture, features: int, state: dict[str, Tensor], kinds: list[str], members: int
) -> None:
    """Refuse sizes that differ from those of the tensors, before memory is allocated for them."""
    if not members == len(kinds) == len({name.split(".")[1] for name in state}):
        raise ValueError(f"{members} models are announced, of {len(kinds)} kinds")
    with torch.device("meta"):
        parts: list[nn.Module] = []
        if isinstance(architecture, FlowArchitecture):
            parts = [architecture.network(features)] if "flow" in kinds else []
        elif "networks" in kinds:
            parts = [architecture.encoder(2 * features), architecture.decoder(features)]
    networks = sum(p.numel() for part in parts for p in part.parameters())
    for number, kind in enumerate(kinds):
        there = sum(value.numel() for value in _of_member(state, number).values())
        if there < (networks if kind in ("networks", "flow") else features):
            raise ValueError(f"a model of {networks or features} parameters is announced, {there} parameters were found")


def _column_to_json(column: Column) -> dict[str, Any]:
    """Convert a column to JSON; dates among its categories become text."""
    dated = [{type(value).__name__: value.isoformat()} if isinstance(value, date) else value for value in column.categories]
    return {**asdict(column), "categories": dated}


def _column_from_json(column: dict[str, Any]) -> Column:
    """Build a column from JSON."""
    kinds = {"date": date, "datetime": datetime, "Timestamp": datetime}

    def category(value: Any) -> Any:
        """Convert a category back to a date if it was one."""
        if not isinstance(value, dict):
            return value
        [(kind, said)] = value.items()
        return kinds[kind].fromisoformat(said)

    text = column.get("text") and TextFormat(**column["text"])
    categories = tuple(category(value) for value in column["categories"])
    return Column(**{**column, "categories": categories, "text": text, "missing": tuple(column.get("missing", ()))})


def _to_json(value: Any) -> Any:
    """Convert a value to JSON."""
    if isinstance(value, (Architecture, ConvArchitecture, FlowArchitecture, TrainingConfig)):
        return asdict(value)
    if isinstance(value, dict):
        return {int(name) if isinstance(name, np.integer) else name: _to_json(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_json(part) for part in value]
    plain = value is None or isinstance(value, (str, int, float))
    return value if plain else np.asarray(value).tolist()


def _architecture(value: dict[str, Any] | None) -> Any:
    """Build an architecture from JSON."""
    known = set(value or ())
    kind = FlowArchitecture if "units" in known else ConvArchitecture if "image" in known else Architecture
    return _from_json(kind, value)


def _from_json(kind: Any, value: dict[str, Any] | None) -> Any:
    """Build a dataclass from JSON, lists as tuples."""
    return value and kind(**{name: tuple(part) if isinstance(part, list) else part for name, part in value.items()})
