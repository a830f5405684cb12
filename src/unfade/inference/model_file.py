"""The model file: a fitted model as tensors and JSON, and back."""

import os
from dataclasses import asdict, fields
from datetime import date, datetime
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from unfade import storage
from unfade.corruption.mixed import MixedLikelihood
from unfade.corruption.noise import Corruption, GaussianNoise, GrowingNoise
from unfade.data.containers import Column
from unfade.data.encoder import FeatureEncoder, unlimited
from unfade.data.observations import Scaling
from unfade.data.support_gaps import SupportGap
from unfade.data.text_formats import TextFormat
from unfade.errors import InvalidData, InvalidFile
from unfade.inference import model_schema
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters
from unfade.methods.recipes import build_posterior
from unfade.models.architectures import AnyArchitecture, Architecture, ConvArchitecture, image_of
from unfade.models.baselines import NearestPixels
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import blank_factors, is_linear, linear_posterior
from unfade.renamed import format_2
from unfade.training.loop import History, TrainingConfig


def save_model(model: FittedModel, path: str | os.PathLike[str]) -> None:
    """Write a model as one file, whole or not at all."""
    storage.save(path, *to_state(model))


def load_model(path: str | os.PathLike[str]) -> FittedModel:
    """Read a model that `save_model` wrote; raise InvalidFile for a damaged or crafted file."""
    tensors, meta = storage.load(path)
    try:
        return from_state(tensors, meta)
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise InvalidFile(f"{path} is damaged: its parts do not fit together ({error}). Save it again.") from None


def to_state(model: FittedModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Convert a fitted model to tensors and JSON."""
    space, posterior = model.encoder, model.posterior
    for column in model.columns or ():
        if odd := [value for value in column.categories if not isinstance(value, (str, int, float, date))]:
            raise InvalidData(
                f"A model file holds categories that are text, numbers or dates, column {column.name!r} has {odd[0]!r}. "
                f"Fit on frame[{column.name!r}].astype(str) to save the model."
            )
    tensors = {"centre": space.scaling.centre, "scale": space.scaling.scale, "logged": space.scaling.logged}
    tensors |= {"modelled": space.modelled, "fill": space.fill, "unit": space.unit, "bounds": space.bounds}
    tensors["reach"] = space.reach
    tensors |= {f"steps.{entry}": values for entry, values in space.steps.items()}
    tensors |= {f"donors.{number}": gap.donors for number, gap in enumerate(model.support_gaps)}
    if model.calibration is not None:
        tensors["widths"] = model.calibration
    if posterior is not None:
        tensors |= {f"posterior.{name}": value.cpu() for name, value in posterior.state_dict().items()}
    meta = {
        "parameters": _to_json(
            {field.name: getattr(model.parameters, field.name) for field in fields(Parameters)}
            | {"random_state": model.seed, "device": "auto"}
        ),
        "seed": model.seed,
        "event_shape": space.event_shape,
        "spread": space.spread,
        "feature_names": list(model.feature_names) or None,
        "columns": model.columns and [_column_to_json(column) for column in model.columns],
        "levels": list(space.levels.items()),
        "limited": space.limited,
        "support_gaps": [
            {name: getattr(gap, name) for name in ("column", "other", "sign", "edge", "cells")}
            for gap in model.support_gaps
        ],
        "noise": _to_json(model.noise),
        "architecture": asdict(model.architecture),
        "histories": [asdict(history) for history in model.histories],
        "posterior": posterior and {
            "members": len(posterior.each),
            "conditioned": posterior.each[0].conditioned,
            "infer_noise": posterior.each[0].unknowns is not None,
            "model": posterior.each[0].model is not None,
            "own_prior": posterior.each[0].own_prior,
            "linear": is_linear(posterior),
            "nearest": getattr(posterior.each[0], "image", None),
        },
    }  # fmt: skip
    return tensors, meta


def from_state(tensors: dict[str, Tensor], meta: dict[str, Any]) -> FittedModel:
    """Build the model from the result of `to_state`; raise ValueError if parts do not fit together."""
    meta = format_2(meta) if meta.get("format") == 1 else meta
    model_schema.check(meta, tensors)
    given = dict(meta["parameters"])
    given["architecture"] = _architecture(given["architecture"])
    given["training"] = _from_json(TrainingConfig, given["training"])
    for name in ("bounds", "detection_limits"):
        if not meta["columns"] and isinstance(given.get(name), dict):  # of an array, by the number of the column
            given[name] = {int(column): pair for column, pair in given[name].items()}
    parameters, encoder, columns = Parameters(**given), _encoder(tensors, meta), meta["columns"]
    architecture = _architecture(meta["architecture"])
    state = {name.removeprefix("posterior."): value for name, value in tensors.items() if name.startswith("posterior.")}
    posterior = _posterior(encoder, architecture, state, **meta["posterior"]) if meta["posterior"] else None
    gaps = meta.get("support_gaps", ())
    return FittedModel(
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
    )


def _encoder(tensors: dict[str, Tensor], meta: dict[str, Any]) -> FeatureEncoder:
    """Build the encoder."""
    scaling = Scaling(tensors["centre"], tensors["scale"], tensors["logged"])
    steps = {int(name.removeprefix("steps.")): tensors[name] for name in tensors if name.startswith("steps.")}
    unit = tensors["unit"] if "unit" in tensors else tensors["whole"].double()  # of the first files
    return FeatureEncoder(
        tuple(meta["event_shape"]), scaling, tensors["modelled"], tensors["fill"], meta["spread"],
        dict(sorted(steps.items())), dict(meta["levels"]), tuple(meta["limited"]), unit, tensors["bounds"],
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
    linear: bool,
    own_prior: bool = False,
    nearest: tuple[int, int, int] | None = None,
) -> Ensemble:
    """Build the posterior and load its tensors."""
    if nearest is None:
        _check_sizes(architecture, space.features, state, members, linear)
    noise_of = "members.0.corruption." if space.plain else "members.0.corruption.noise."
    exact, level = state[noise_of + "exact"], torch.ones_like(state[noise_of + "log_std_tens"])
    factors = state["members.0.decoder.loadings"].shape[1] if linear else None
    growing = "members.0.corruption.log_growth_tens" in state

    def built() -> nn.Module:
        """Build one ensemble member."""
        noise = GrowingNoise(level, 1.0, torch.zeros(1)) if growing else GaussianNoise(level, exact=exact)
        corruption: Corruption = noise
        if not space.plain:
            corruption = MixedLikelihood(noise, space.features, space.model_steps(), space.groups)
        if nearest is not None:
            return NearestPixels(image_of(space.event_shape), space.numbers, corruption)
        if linear:
            return linear_posterior(blank_factors(space.features, factors), corruption)
        return build_posterior(architecture, space.features, corruption, conditioned, infer_noise, own_prior)

    ensemble = Ensemble([built() for _ in range(members)])
    for member in ensemble.each:
        if model:
            member.model = cast(PosteriorLVM, built())
    ensemble.load_state_dict(state)
    return ensemble.requires_grad_(False).eval()


def _check_sizes(
    architecture: AnyArchitecture, features: int, state: dict[str, Tensor], members: int, linear: bool
) -> None:
    """Refuse sizes that differ from those of the tensors, before memory is allocated for them."""
    there = sum(value.numel() for value in state.values())
    with torch.device("meta"):
        parts = [] if linear else [architecture.encoder(2 * features), architecture.decoder(features)]
    said = sum(p.numel() for part in parts for p in part.parameters()) if parts else features
    if members != len({name.split(".")[1] for name in state}) or members * said > there:
        raise ValueError(f"expected {members} models of {said} parameters, found {there} parameters")


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
    if isinstance(value, (Architecture, ConvArchitecture, TrainingConfig)):
        return asdict(value)
    if isinstance(value, dict):
        return {int(name) if isinstance(name, np.integer) else name: _to_json(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_json(part) for part in value]
    plain = value is None or isinstance(value, (str, int, float))
    return value if plain else np.asarray(value).tolist()


def _architecture(value: dict[str, Any] | None) -> Any:
    """Build an architecture from JSON."""
    return _from_json(ConvArchitecture if value and "image" in value else Architecture, value)


def _from_json(kind: Any, value: dict[str, Any] | None) -> Any:
    """Build a dataclass from JSON, lists as tuples."""
    return value and kind(**{name: tuple(part) if isinstance(part, list) else part for name, part in value.items()})
