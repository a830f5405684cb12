"""Schema of a model file: types and ranges of every field, declared once, and checks that its parts fit together.

A file may come from anywhere. A field that is not declared here is refused before anything is built from it.
"""

import re
from collections.abc import Callable, Collection
from math import inf, isfinite, prod
from typing import Any

import torch
from torch import Tensor

from unfade.corruption.simulated import STEPS
from unfade.data.columns import KINDS
from unfade.data.observations import SCALINGS
from unfade.data.options import LEARNED, PERCENT
from unfade.methods.parameters import MOST_CANDIDATES
from unfade.methods.registry import METHODS
from unfade.models.architectures import NETWORKS, image_of
from unfade.models.networks import ACTIVATIONS

Check = Callable[[Any, str], None]  # of a value and of where it stands; raises ValueError
_SIZE, _COUNT = 2**16, 2**53


def _fail(where: str, wanted: str, got: Any) -> None:
    """Raise a ValueError that names the field, the expected value and the value found."""
    raise ValueError(f"{where} must be {wanted}, got {repr(got)[:60]}")


def anything(value: Any, where: str) -> None:
    """Accept any JSON value: it is checked where it is used."""


def whole(low: int = 0, high: int = _COUNT) -> Check:
    """Check for an integer from `low` to `high`."""

    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            _fail(where, f"an integer from {low} to {high}", value)

    return check


def number(low: float = -inf, high: float = inf) -> Check:
    """Check for a finite number from `low` to `high`."""

    def check(value: Any, where: str) -> None:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (plain and isfinite(value) and low <= value <= high):
            _fail(where, f"a finite number from {low:g} to {high:g}", value)

    return check


def flag(value: Any, where: str) -> None:
    """Check for true or false."""
    if not isinstance(value, bool):
        _fail(where, "true or false", value)


def text(pattern: str = ".*") -> Check:
    """Check for a text that matches a pattern as a whole."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.DOTALL):
            _fail(where, "a text" + (f" such as {pattern}" if pattern != ".*" else ""), value)

    return check


def one_of(*values: Any) -> Check:
    """Check for one of some texts."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in values:
            _fail(where, f"one of {', '.join(values)}", value)

    return check


def either(*checks: Check) -> Check:
    """Check for a value that one of the checks accepts; the last one raises the error."""

    def check(value: Any, where: str) -> None:
        for each in checks[:-1]:
            try:
                return each(value, where)
            except ValueError:
                continue
        checks[-1](value, where)

    return check


def maybe(check: Check) -> Check:
    """Check for null, or a value that the check accepts."""
    return lambda value, where: None if value is None else check(value, where)


def many(check: Check, low: int = 0, high: float = inf) -> Check:
    """Check for a list of `low` to `high` values."""

    def each(value: Any, where: str) -> None:
        if not isinstance(value, list) or not low <= len(value) <= high:
            _fail(where, f"a list of {low} to {high:g}", value)
        for i, part in enumerate(value):
            check(part, f"{where}[{i}]")

    return each


def by_name(check: Check) -> Check:
    """Check for a dictionary with any keys."""

    def each(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            _fail(where, "a dictionary", value)
        for name, part in value.items():
            check(part, f"{where}.{name}")

    return each


def record(required: dict[str, Check] | None = None, **optional: Check) -> Check:
    """Check for a dictionary with these fields and no others."""
    required = required or {}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            _fail(where, "a dictionary", value)
        if absent := sorted(set(required) - set(value)):
            raise ValueError(f"{where} has no {absent}")
        for name, part in value.items():
            known = required.get(name) or optional.get(name)
            if known is None:
                raise ValueError(f"{where} has {name!r}, which this version does not know")
            known(part, f"{where}.{name}")

    return check


_POSITIVE, _SIZES = number(1e-300), many(whole(1, _SIZE), high=64)
_PAIR = many(maybe(number()), 2, 2)
_ARCHITECTURE = record(
    latent=whole(1, _SIZE), hidden=_SIZES, decoder_hidden=maybe(_SIZES), prior_latent=whole(1, _SIZE), prior_hidden=_SIZES,
    activation=one_of(*ACTIVATIONS), skip=flag, width=_POSITIVE, shared_variance=flag, decoder_sees=flag, bounded=flag,
    xavier=flag, plain_sigmoids=flag, latent_width=maybe(_POSITIVE), prior_bounded=flag, added_variance=number(0),
)  # fmt: skip
_CONVOLUTIONAL = record(
    {"image": many(whole(1, _SIZE), 3, 3)}, channels=many(whole(1, 4096), 1, 12), latent=whole(1, 4096),
    prior_channels=whole(1, 4096), prior_latent=whole(1, 4096), width=_POSITIVE, decoder_sees=flag,
    widest=maybe(_POSITIVE),
)  # fmt: skip
_FLOW = record(
    {"units": whole(1, _SIZE), "blocks": whole(1, 64)}, image=maybe(many(whole(1, _SIZE), 3, 3)),
    channels=many(whole(8, 4096), 1, 12), patch=whole(1, 64), dropout=number(0, 0.99), steps=whole(1, 10_000),
    decoder_sees=flag,
)  # fmt: skip
_TRAINING = record(
    steps=whole(1), batch_size=whole(1), learning_rate=_POSITIVE, clip_norm=_POSITIVE, decay=number(0),
    warmup=many(number(), 3, 3), max_seconds=maybe(_POSITIVE), check_every=whole(1), rise=whole(0),
)  # fmt: skip


def architecture(value: Any, where: str) -> None:
    """Check the sizes of networks, fully connected or convolutional."""
    known = set(value) if isinstance(value, dict) else set()
    (_FLOW if "units" in known else _CONVOLUTIONAL if "image" in known else _ARCHITECTURE)(value, where)


_STEP = record(
    {"step": one_of(*STEPS, "function")}, named=text(), std=either(one_of("learn"), _POSITIVE), peak=_POSITIVE,
    sd=_POSITIVE, size=_POSITIVE, share=number(0, 1), low=number(), high=number(), sigma=number(1e-3, 1e3),
    factor=whole(1, _SIZE),
)  # fmt: skip
_PARAMETERS = record(
    {"method": one_of(*METHODS), "n_candidates": either(one_of("auto"), whole(0, MOST_CANDIDATES))},
    corruption=maybe(many(_STEP, 1, 20)),
    noise=maybe(either(one_of(*LEARNED, "infer"), text(PERCENT.pattern), by_name(anything), many(number(0)), number(0))),
    kinds=maybe(by_name(one_of(*KINDS))),
    missing=anything,
    fill=one_of("mean", "median", "draw"),
    bounds=maybe(either(by_name(_PAIR), _PAIR)),
    detection_limits=maybe(by_name(many(either(number(), one_of("<", ">")), 2, 2))),
    applicable=maybe(by_name(text())),
    derived=maybe(by_name(text())),
    sums=maybe(by_name(many(either(text(), whole()), 2))),
    order=maybe(many(either(text(), many(either(text(), whole()), 2)))),
    time=maybe(text()),
    panel=maybe(either(text(), many(text()))),
    scaling=maybe(one_of("auto", *SCALINGS)),
    network=one_of(*NETWORKS),
    n_members=either(one_of("auto"), whole(1, 16)),
    calibrate=flag,
    max_steps=maybe(_POSITIVE),
    max_seconds=maybe(_POSITIVE),
    architecture=maybe(architecture),
    training=maybe(_TRAINING),
    settings=maybe(by_name(anything)),
    device=one_of("auto"),
    random_state=whole(),
    verbose=either(flag, whole(0, 9)),
)  # fmt: skip
_CATEGORY = either(
    text(), flag, number(), record(date=text(), datetime=text(), Timestamp=text()),
)  # fmt: skip
_COLUMN = record(
    {"name": text(), "kind": one_of(*KINDS), "categories": many(_CATEGORY)},
    censored=flag,
    text=maybe(record(
        {"kind": one_of("number", "date", "time")}, prefix=text(), suffix=text(), thousands=text(".?"),
        decimals=whole(0, 30), pattern=text("(%[dmYyHIMSpbBf]|[-/., :TZ+0])*"), padded=flag,
        decimal=one_of(".", ","),
    )),
    missing=many(anything),
    step=_POSITIVE,
    reason=text(),
)  # fmt: skip
_HISTORY = record(
    steps=many(whole(1)),
    terms=by_name(many(anything)),
    seconds=number(0),
    ended=text(),
    interrupted=flag,
    step=text(),
    planned=whole(),
    note=text(),
)
_POSTERIOR = record(
    {"members": whole(1, 16), "conditioned": flag, "infer_noise": flag, "model": flag},
    linear=flag,
    own_prior=flag,
    kinds=many(one_of("networks", "linear model", "trees", "nearest pixel", "flow", "state space"), 1, 16),
    turns=maybe(many(whole(0, 15), 16, 16)),
    nearest=maybe(many(whole(1, _SIZE), 3, 3)),
)
_GAP = record({"column": whole(), "other": whole(), "sign": whole(-1, 1), "edge": number(),
               "cells": whole()})  # fmt: skip
_CLOCK = record(
    {"time": text(), "panel": many(text()), "step": _POSITIVE, "periods": many(many(number(1e-300), 2, 2), high=8)},
    months=whole(0, 1200), column=maybe(_COLUMN), span=maybe(many(number(), 2, 2)),
)  # fmt: skip
_NOISE = either(number(0), many(anything, 1))
_META = record(
    {
        "parameters": _PARAMETERS, "seed": whole(0, 2**63 - 1), "event_shape": many(whole(1), 1, 8), "spread": _POSITIVE,
        "columns": maybe(many(_COLUMN, 1)), "levels": many(many(whole(), 2, 2)), "limited": many(whole()),
        "noise": maybe(_NOISE), "architecture": architecture, "histories": many(_HISTORY), "posterior": maybe(_POSTERIOR),
    },
    support_gaps=many(_GAP), clock=maybe(_CLOCK), format=whole(1), feature_names=maybe(many(text(), 1)),
)  # fmt: skip


def check(meta: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raise a ValueError for fields that are not declared, and for parts that do not fit together."""
    _META(meta, "the model")
    _check_tensors(meta, tensors)
    entries, columns = tensors["modelled"].numel(), meta["columns"]
    levels, steps = dict(meta["levels"]), {int(name[6:]) for name in tensors if name.startswith("steps.")}
    if columns is not None and (len(columns), 1) != (entries, len(meta["event_shape"])):
        raise ValueError(f"{len(columns)} columns, but samples of shape {meta['event_shape']}")
    if len(_distinct(meta["feature_names"] or ())) not in (0, meta["event_shape"][0]):
        raise ValueError(f"{len(meta['feature_names'])} names of columns for {meta['event_shape'][0]}")
    _distinct([column["name"] for column in columns or ()])
    _distinct([entry for entry, _ in meta["levels"]])
    modelled = set(tensors["modelled"].nonzero().flatten().tolist())
    if not (modelled >= levels.keys() | steps | set(meta["limited"]) and steps.isdisjoint(levels)):
        raise ValueError("levels, steps or detection limits of columns that are not modelled so")
    if (meta["posterior"] is None) != (not modelled):
        raise ValueError("a posterior belongs to entries that are modelled, and only to them")
    for number, gap in enumerate(meta.get("support_gaps", ())):
        donors = tensors.get(f"donors.{number}", torch.zeros(0, 0))
        fits = donors.ndim == 1 and bool(len(donors)) == bool(gap["sign"])
        if max(gap["column"], gap["other"]) >= entries or not fits:
            raise ValueError(f"support gap {number} has no donors, or is of columns that are not there")
    image = meta["architecture"].get("image")
    if image is not None and (len(meta["event_shape"]) not in (2, 3) or tuple(image) != image_of(meta["event_shape"])):
        raise ValueError(f"networks for images of {image}, but samples of shape {meta['event_shape']}")
    if any(columns is None or len(columns[entry]["categories"]) != count for entry, count in levels.items()):
        raise ValueError("categories whose values are not those of their column")


def _check_tensors(meta: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Check shapes, types and ranges of tensors."""
    shape = tuple(meta["event_shape"])
    entries = prod(shape)
    for name, size, finite in (
        ("centre", (entries,), True), ("scale", (entries,), True), ("logged", (entries,), False),
        ("modelled", (entries,), False), ("fill", (entries,), False), ("bounds", (2, entries), False),
        ("unit" if "unit" in tensors else "whole", (entries,), True),
        ("reach" if "reach" in tensors else "bounds", (2, entries), False),
    ):  # fmt: skip
        if name not in tensors or tuple(tensors[name].shape) != size:
            raise ValueError(f"{name} must be a tensor of shape {size}")
        if (tensors[name].dtype == torch.bool) != (name in ("logged", "modelled", "whole")):
            raise ValueError(f"{name} is of type {tensors[name].dtype}")
        if finite and not tensors[name].isfinite().all():
            raise ValueError(f"{name} holds numbers that are not finite")
    low, high = tensors["bounds"]
    if "reach" in tensors and not (tensors["reach"][0] <= tensors["reach"][1]).all():
        raise ValueError("a reach that is not in order")
    if not ((tensors["scale"] > 0).all() and (low <= high).all()):
        raise ValueError("scales that are not positive, or bounds that are not in order")
    for name, values in tensors.items():
        if name.startswith("steps."):
            plain = values.ndim == 1 and len(values) > 1 and values.is_floating_point()
            if not (re.fullmatch(r"steps\.(0|[1-9]\d{0,9})", name) and plain and (values.diff() > 0).all()):
                raise ValueError(f"{name} must hold numbers in their order")
        if name.startswith("posterior.") and values.isnan().any():  # infinite are the outermost edges of intervals
            raise ValueError(f"{name} holds NaN")


def _distinct(names: Collection[Any]) -> Collection[Any]:
    """Return names, or raise a ValueError if one occurs twice."""
    if len(set(names)) < len(names):
        raise ValueError(f"names that occur twice among {list(names)[:10]}")
    return names
