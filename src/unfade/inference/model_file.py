"""A fitted Recoverer as tensors and JSON, and back: what a model file holds."""

from dataclasses import asdict
from datetime import date, datetime
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from unfade.corruption.mixed import Recording
from unfade.corruption.noise import Corruption, GaussianNoise, GrowingNoise
from unfade.data.containers import Column
from unfade.data.encoder import ModelSpace, unlimited
from unfade.data.observations import Scaling
from unfade.data.support import SupportGap
from unfade.data.text_formats import TextFormat
from unfade.errors import InvalidData
from unfade.inference import model_schema
from unfade.methods.recipes import build_posterior
from unfade.models.architectures import AnyArchitecture, Architecture, ConvArchitecture, image_of
from unfade.models.baselines import NearestPixels
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import blank_factors, is_linear, linear_posterior
from unfade.training.loop import History, TrainingConfig


def packed(rec: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that a fitted recoverer needs to draw."""
    space, posterior = rec.space_, rec.posterior_
    for column in rec.columns_ or ():
        if odd := [value for value in column.categories if not isinstance(value, (str, int, float, date))]:
            raise InvalidData(
                f"A model file holds categories that are text, numbers or dates, column {column.name!r} has {odd[0]!r}. "
                f"Fit on frame[{column.name!r}].astype(str) to save the model."
            )
    tensors = {"centre": space.scaling.centre, "scale": space.scaling.scale, "logged": space.scaling.logged}
    tensors |= {"modelled": space.modelled, "fill": space.fill, "unit": space.unit, "bounds": space.bounds}
    tensors["reach"] = space.reach
    tensors |= {f"steps.{entry}": values for entry, values in space.steps.items()}
    tensors |= {f"donors.{number}": gap.donors for number, gap in enumerate(rec.support_gaps_)}
    if rec.widths_ is not None:
        tensors["widths"] = rec.widths_
    if posterior is not None:
        tensors |= {f"posterior.{name}": value.cpu() for name, value in posterior.state_dict().items()}
    meta = {
        "parameters": _to_json({**rec.get_params(deep=False), "random_state": rec.seed_, "device": "auto"}),
        "seed": rec.seed_,
        "event_shape": space.event_shape,
        "spread": space.spread,
        "feature_names": [str(name) for name in getattr(rec, "feature_names_in_", [])] or None,
        "columns": rec.columns_ and [_column_to_json(column) for column in rec.columns_],
        "levels": list(space.levels.items()),
        "limited": space.limited,
        "support_gaps": [
            {name: getattr(gap, name) for name in ("column", "other", "sign", "edge", "cells")} for gap in rec.support_gaps_
        ],
        "noise": _to_json(rec.noise_),
        "architecture": asdict(rec.architecture_),
        "histories": [asdict(history) for history in rec.histories_],
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


def unpacked(kind: Any, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Any:
    """A fitted recoverer of that class; a ValueError says what is wrong with a file that is not as it should be."""
    model_schema.check(meta, tensors)
    parameters = dict(meta["parameters"])
    parameters["architecture"] = _architecture(parameters["architecture"])
    parameters["training"] = _from_json(TrainingConfig, parameters["training"])
    for name in ("bounds", "limits"):
        if not meta["columns"] and isinstance(parameters.get(name), dict):  # of an array, by the number of the column
            parameters[name] = {int(column): pair for column, pair in parameters[name].items()}
    rec = kind(**parameters)
    rec.seed_ = meta["seed"]
    scaling = Scaling(tensors["centre"], tensors["scale"], tensors["logged"])
    steps = {int(name.removeprefix("steps.")): tensors[name] for name in tensors if name.startswith("steps.")}
    unit = tensors["unit"] if "unit" in tensors else tensors["whole"].double()  # of the first files
    rec.space_ = ModelSpace(
        tuple(meta["event_shape"]), scaling, tensors["modelled"], tensors["fill"], meta["spread"],
        dict(sorted(steps.items())), dict(meta["levels"]), tuple(meta["limited"]), unit, tensors["bounds"],
        tensors["reach"] if "reach" in tensors else unlimited(len(unit)),
    )  # fmt: skip
    columns = meta["columns"]
    rec.columns_ = columns and tuple(_column_from_json(column) for column in columns)
    rec.n_features_in_ = rec.space_.event_shape[0]
    if meta["feature_names"]:
        rec.feature_names_in_ = np.asarray(meta["feature_names"], dtype=object)
    rec.noise_ = np.asarray(meta["noise"]) if isinstance(meta["noise"], list) else meta["noise"]
    rec.widths_, rec.held_out_ = tensors.get("widths"), None
    rec.support_gaps_ = [
        SupportGap(**gap, donors=tensors[f"donors.{number}"]) for number, gap in enumerate(meta.get("support_gaps", ()))
    ]
    rec.architecture_ = _architecture(meta["architecture"])
    rec.histories_ = [History(**history) for history in meta["histories"]]
    state = {name.removeprefix("posterior."): value for name, value in tensors.items() if name.startswith("posterior.")}
    rec.posterior_ = _posterior(rec, state, **meta["posterior"]) if meta["posterior"] else None
    rec.noise_law_ = rec._noise_law()
    return rec


def _posterior(
    rec: Any,
    state: dict[str, Tensor],
    members: int,
    conditioned: bool,
    infer_noise: bool,
    model: bool,
    linear: bool,
    own_prior: bool = False,
    nearest: tuple[int, int, int] | None = None,
) -> Ensemble:
    space = rec.space_
    if nearest is None:
        _check_sizes(rec.architecture_, space.features, state, members, linear)
    noise_of = "members.0.corruption." if space.plain else "members.0.corruption.noise."
    exact, level = state[noise_of + "exact"], torch.ones_like(state[noise_of + "log_std_tens"])
    factors = state["members.0.decoder.loadings"].shape[1] if linear else None
    growing = "members.0.corruption.log_growth_tens" in state

    def built() -> nn.Module:
        noise = GrowingNoise(level, 1.0, torch.zeros(1)) if growing else GaussianNoise(level, exact=exact)
        corruption: Corruption = noise
        if not space.plain:
            corruption = Recording(noise, space.features, space.model_steps(), space.groups)
        if nearest is not None:
            return NearestPixels(image_of(space.event_shape), space.numbers, corruption)
        if linear:
            return linear_posterior(blank_factors(space.features, factors), corruption)
        return build_posterior(rec.architecture_, space.features, corruption, conditioned, infer_noise, own_prior)

    ensemble = Ensemble([built() for _ in range(members)])
    for member in ensemble.each:
        if model:
            member.model = cast(PosteriorLVM, built())
    ensemble.load_state_dict(state)
    return ensemble.requires_grad_(False).eval().to(rec._device())


def _check_sizes(
    architecture: AnyArchitecture, features: int, state: dict[str, Tensor], members: int, linear: bool
) -> None:
    """Refuse sizes that the tensors do not have before memory is taken for them."""
    there = sum(value.numel() for value in state.values())
    with torch.device("meta"):
        parts = [] if linear else [architecture.encoder(2 * features), architecture.decoder(features)]
    said = sum(p.numel() for part in parts for p in part.parameters()) if parts else features
    if members != len({name.split(".")[1] for name in state}) or members * said > there:
        raise ValueError(f"{members} models of {said} parameters are announced, {there} parameters are there")


def _column_to_json(column: Column) -> dict[str, Any]:
    dated = [{type(value).__name__: value.isoformat()} if isinstance(value, date) else value for value in column.categories]
    return {**asdict(column), "categories": dated}


def _column_from_json(column: dict[str, Any]) -> Column:
    kinds = {"date": date, "datetime": datetime, "Timestamp": datetime}

    def category(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        [(kind, said)] = value.items()
        return kinds[kind].fromisoformat(said)

    text = column.get("text") and TextFormat(**column["text"])
    kind = "passthrough" if column["kind"] == "excluded" else column["kind"]  # as the first files call it
    categories = tuple(category(value) for value in column["categories"])
    return Column(
        **{**column, "kind": kind, "categories": categories, "text": text, "missing": tuple(column.get("missing", ()))}
    )


def _to_json(value: Any) -> Any:
    if isinstance(value, (Architecture, ConvArchitecture, TrainingConfig)):
        return asdict(value)
    if isinstance(value, dict):
        return {int(name) if isinstance(name, np.integer) else name: _to_json(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_json(part) for part in value]
    plain = value is None or isinstance(value, (str, int, float))
    return value if plain else np.asarray(value).tolist()


def _architecture(value: dict[str, Any] | None) -> Any:
    return _from_json(ConvArchitecture if value and "image" in value else Architecture, value)


def _from_json(kind: Any, value: dict[str, Any] | None) -> Any:
    return value and kind(**{name: tuple(part) if isinstance(part, list) else part for name, part in value.items()})
