"""The user's options on columns, checked against the data: noise, bounds, detection limits; warnings about the data."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade.data.columns import DAY, TEMPORAL, Column
from unfade.data.containers import Container, detection_limits
from unfade.data.encoder import FeatureEncoder, skewed
from unfade.data.observations import Observations, by_columns, variance
from unfade.errors import InvalidData, notice

FEW_IMAGES = 5  # of fewer, a fifth to judge by is none

LEARNED = ("learn", "learn-by-column", "learn-shared", "learn-by-value")
LEARN = -np.inf  # stands for a level that is to be learned
PERCENT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*%\s*")  # noise relative to the value
IDENTIFIED = 0.97  # share of a column's variance that others must explain for its noise to be identified


def named_noise(noise: Any, names: Sequence[Any], joint: bool, kinds: Sequence[str] = ()) -> Any:
    """Replace names in a user's `noise` by one level per column.

    Columns that are not named get 0, those to be learned -inf. "learn" means one level if all entries share a unit
    (joint scaling), else one per column. kinds: kinds of the columns, if they have any.
    """
    if isinstance(noise, str) and noise == "learn":
        return "learn-shared" if joint else "learn-by-column"
    if (share := percent(noise)) is not None:
        return share * np.array([kind in ("continuous", "integer") for kind in kinds] or [True] * len(names))
    if not isinstance(noise, dict):
        return noise
    levels = np.zeros(len(names))
    for name, level in noise.items():
        if name not in names:
            raise InvalidData(f"noise names {name!r}, which is no column. Columns are {list(names)[:10]}.")
        if level != "learn" and not isinstance(level, Real) and percent(level) is None:
            raise InvalidData(f"noise of {name!r} must be a number, '5 %' (of the value) or 'learn', got {level!r}.")
        kind = kinds[list(names).index(name)] if kinds else "continuous"
        if level and kind in ("boolean", "ordinal", "category", "passthrough"):
            raise InvalidData(
                f"noise names {name!r}, which holds no numbers (its kind is {kind}). Leave it out, or correct it."
            )
        share = percent(level)
        levels[list(names).index(name)] = share if share is not None else LEARN if isinstance(level, str) else float(level)
    return levels


def percent(noise: Any) -> float | None:
    """Return the share of noise that is relative to the value, such as 0.05 for "5 %"; None for any other."""
    found = PERCENT.fullmatch(noise) if isinstance(noise, str) else None
    return None if found is None else float(found[1]) / 100


def relative_noise(noise: Any, names: Sequence[Any] | None, obs: Observations, columns: Sequence[Column]) -> Tensor | None:
    """Find the columns whose noise is relative to the value, (entries,): they are modelled by their logarithms.

    The level is the standard deviation of the logarithm, about that of the value relative to the value.
    """
    keys: list[Any] = list(names or range(obs.event_shape[0]))
    if percent(noise) is not None:
        found = [column.kind in ("continuous", "integer") for column in columns] or [True] * len(keys)
    elif isinstance(noise, dict):
        found = [percent(noise.get(key)) is not None for key in keys]
    else:
        return None
    if any(found) and len(obs.event_shape) != 1:
        raise InvalidData("noise relative to the value, such as '5 %', is for tables. Use 'learn-by-value' for images.")
    relative = torch.tensor(found, dtype=torch.bool)
    low = torch.where(obs.observed, obs.values.double(), torch.inf).amin(0)
    if bad := (relative & (low <= 0)).nonzero().flatten().tolist():
        raise InvalidData(
            f"noise of {keys[bad[0]]!r} is relative to the value, which needs positive values; its least is "
            f"{float(low[bad[0]]):g}. Give the level in the units of the column."
        )
    return relative if any(found) else None


def noise_levels(noise: Any, entries: int) -> Tensor | None:
    """Convert a user's `noise` to one sd per entry, -inf if it is to be learned; None: in all entries."""
    if isinstance(noise, str):
        if noise not in LEARNED:
            raise InvalidData(f"noise must be None, a number, one number per column, or one of {LEARNED}, got {noise!r}.")
        return None
    try:
        std = torch.as_tensor(np.asarray(0.0 if noise is None else noise, dtype=np.float64)).flatten()
    except (ValueError, TypeError):
        raise InvalidData(f"noise must be a number, or one per column, got {noise!r}.") from None
    if len(std) not in (1, entries):
        raise InvalidData(f"noise must be one number, or one per column ({entries}), got {len(std)} numbers.")
    if not bool(((std >= 0) & torch.isfinite(std) | (std == LEARN)).all()):
        raise InvalidData(f"noise is a standard deviation, so finite and at least 0, got {noise!r}.")
    return std.expand(entries)


DetectionLimits = dict[Any, tuple[str, float]]
Pair = tuple[float | None, float | None]
Bounds = dict[Any, Pair] | Pair  # of columns by name, or of all


def with_detection_limits(X: Any, obs: Observations, container: Container, limits: DetectionLimits | None) -> Observations:
    """Add detection limits to observations: the user's, and those in cells such as <0.5 of the data X."""
    found = detection_limits(X, container.columns or ())
    if found is None and not limits:
        return obs
    if found is None:
        found = np.full(obs.values.shape, -np.inf), np.full(obs.values.shape, np.inf)
    low, high = map(torch.from_numpy, found)
    names: list[Any] = list(container.names or range(obs.event_shape[0]))
    for name, pair in (limits or {}).items():
        if name not in names:
            raise InvalidData(f"detection_limits names {name!r}, which is no column. Columns are {names[:10]}.")
        right = isinstance(pair, (tuple, list)) and len(pair) == 2 and pair[0] in ("<", ">")
        if not right or not isinstance(pair[1], Real):
            raise InvalidData(
                f"Expected detection limits such as {{{names[0]!r}: ('<', 0.5)}}, got {{{name!r}: {pair!r}}}."
            )
        i, sign, limit = names.index(name), pair[0], float(pair[1])
        beyond = obs.values[:, i] <= limit if sign == "<" else obs.values[:, i] >= limit
        (high if sign == "<" else low)[beyond & obs.observed[:, i], i] = limit
    free = low.isinf() & high.isinf()
    return Observations(obs.values, obs.observed, *(torch.where(free, obs.values.double(), end) for end in (low, high)))


def matched(obs: Observations, container: Container, columns: Sequence[Column]) -> tuple[Observations, Container]:
    """Match columns by name: results return in the caller's order; columns that the fit did not see are passed through."""
    names, given = [column.name for column in columns], list(container.names or ())
    if absent := [name for name in names if name not in given]:
        raise InvalidData(f"Columns that the model was fitted on are missing: {absent[:10]}. Add them, if need be empty.")
    if extra := [name for name in given if name not in names]:
        notice(f"Columns that the fit did not have are passed through unchanged: {extra[:10]}.")
    back = np.array([names.index(name) if name in names else -1 for name in given])
    return obs[:, [given.index(name) for name in names]], replace(container, back=back)


def model_space(
    obs: Observations,
    columns: Sequence[Column],
    scaling: str | None,
    noise: Any,
    bounds: Bounds | None,
    mixed: bool,
    images: bool = False,
    relative: Tensor | None = None,
) -> FeatureEncoder:
    """Build the encoder of columns. mixed: the method takes intervals and categories; images: all pixels count.

    relative: columns whose noise is relative to the value.
    """
    if relative is not None and not (mixed and scaling == "variance"):
        raise InvalidData("noise relative to the value, such as '5 %', needs method 'auto' or 'miwae' and scaling 'auto'.")
    entries = obs.event_shape.numel()
    counts = {i: len(c.categories) for i, c in enumerate(columns) if c.kind == "category" and len(c.categories) > 2}
    if not mixed and counts:
        names = [columns[i].name for i in counts]
        raise InvalidData(f"This method takes numbers only, got the categories {names[:5]}. Use method 'auto' or 'miwae'.")
    exact = None
    if mixed and len(obs.event_shape) == 1:
        levels = None if isinstance(noise, str) and noise == "infer" else noise_levels(noise, entries)
        exact = torch.zeros(entries, dtype=torch.bool) if levels is None else levels == 0
        for i, column in enumerate(columns):
            exact[i] |= column.discrete or (np.size(noise) == 1 and column.kind in TEMPORAL)
    unit = torch.zeros(entries, dtype=torch.float64)
    unit[: len(columns)] = torch.tensor([column.unit for column in columns], dtype=torch.float64)
    ends = _ends(bounds, entries, columns)
    if exact is not None:
        ends[0, exact & ends[0].isinf() & _from_zero(obs, columns)] = 0.0
    space = FeatureEncoder.fit(obs, scaling, exact, counts, unit, ends, images, relative)
    if lost := [i for i in obs.within().flatten(1).any(0).nonzero().flatten().tolist() if i not in space.repeated]:
        name = columns[lost[0]].name if columns else lost[0]
        raise InvalidData(
            f"Column {name!r} has detection limits: expected at least two values beyond them, no noise on that column, "
            "and method 'auto', 'miwae' or 'mvae'. Leave the detection limits out otherwise."
        )
    return space


def _from_zero(obs: Observations, columns: Sequence[Column]) -> Tensor:
    """Find columns of numbers whose least observed value is 0, or that are positive and skewed: none lies below 0."""
    numbers = torch.tensor([column.kind in ("continuous", "integer") for column in columns] or [True] * obs.event_shape[0])
    least = torch.where(obs.observed & ~obs.within(), obs.values, torch.inf).amin(0)
    return numbers & ((least == 0) | ((least > 0) & skewed(obs)))


def warn_passthrough_with_missing(container: Container, kinds: dict[str, str] | None) -> None:
    """Warn of columns that are passed through although the user did not ask for it."""
    there, columns = container.present(), container.columns or ()
    if there is None:
        return
    for column in columns:
        if column.reason:
            notice(f"Column {column.name!r}: {column.reason}.")
    left = [
        column.name
        for column, seen in zip(columns, there.T, strict=True)
        if column.kind == "passthrough" and not column.reason and column.name not in (kinds or {})
        and seen.any() and not seen.all()
    ]  # fmt: skip
    warn_text_with_missing(left)


def warn_text_with_missing(left: Sequence[str]) -> None:
    """Warn of text columns that are passed through with missing cells."""
    if left:
        notice(
            f"Text that hardly ever repeats is passed through with its missing cells: column "
            f"{', '.join(map(repr, left[:10]))}. Correct what should be numbers or dates; or give its kind, as in "
            f"kinds={{{left[0]!r}: 'category'}} (--kind {shlex.quote(left[0])}=category), or 'passthrough' to accept it."
        )


_CODES = {sign * code for code in (9, 77, 88, 99, 777, 888, 999, 9999, 99999) for sign in (-1.0, 1.0)}
FAR_OUT = 1e6  # interquartile ranges from the median, beyond which a value is an error


def without_extremes(obs: Observations, columns: Sequence[Column]) -> Observations:
    """Leave impossible values out of a table; warn of them and of codes for missing values.

    A value a million interquartile ranges from the median would set the scale of its column alone.
    """
    if len(obs.event_shape) != 1:
        return obs
    seen, far = obs.observed.clone(), []
    for i in range(obs.event_shape[0]):
        if columns and columns[i].kind not in ("continuous", "integer"):
            continue
        name = repr(columns[i].name) if columns else str(i)
        values = obs.values[obs.observed[:, i], i].double().numpy()
        if len(values) < 4:
            continue
        low, middle, high = np.percentile(values[:: max(1, len(values) // 20_000)], [25, 50, 75])
        with np.errstate(over="ignore"):
            extreme = np.abs(values / 2 - middle / 2) > FAR_OUT * max(high - low, np.finfo(float).tiny) / 2
        if high > low and extreme.any():
            rows = obs.observed[:, i].nonzero().flatten()[torch.from_numpy(extreme)]
            seen[rows, i] = False
            far.append(f"{values[extreme][0]:g} in column {name} (row {int(rows[0])})")
        if columns and (code := _missing_code(values)) is not None:
            option = f"{shlex.quote(columns[i].name)}={code:g}"
            notice(
                f"Column {name} holds {code:g} {int((values == code).sum())} times, far from its other values. If that "
                f"stands for missing values, give missing={{{name}: [{code:g}]}} (--missing {option})."
            )
    if far:
        notice(
            f"Values a million times further from the median than others are not used, and are kept: "
            f"{', '.join(far[:5])}. Correct them, or leave them empty."
        )
    return Observations(obs.values * seen, seen, obs.low, obs.high) if far else obs


def _missing_code(values: np.ndarray) -> float | None:
    """Find a code such as -99 or 999: at the end of a column, half the range of its other values away from them."""
    for code in (values.min(), values.max()):
        others = values[values != code]
        if code not in _CODES or len(others) == len(values) - 1 or len(np.unique(others)) < 2:
            continue
        if np.abs(others - code).min() > max(0.5 * (others.max() - others.min()), 4.0):
            return float(code)
    return None


def warn_unusual(obs: Observations, space: FeatureEncoder, columns: Sequence[Column], noisy: bool = False) -> None:
    """Warn of entries that cannot be modelled, and of bounds that the data do not keep."""
    names = [column.name for column in columns] or range(len(space.modelled))
    fill, modelled = space.fill.reshape(space.event_shape), space.modelled.reshape(space.event_shape)
    if columns:  # what passes through is nobody's surprise
        modelled = modelled | torch.tensor([column.kind == "passthrough" for column in columns])
    mean_beyond = _beyond_bounds(obs, space)
    low, high = space.bounds.reshape(2, *space.event_shape)
    beyond = obs.observed & ((obs.values < low) | (obs.values > high))
    some_beyond = beyond.any(0) & ~mean_beyond & (not noisy)
    for where, sentence in (
        (~modelled & fill.isnan(), "Nothing is observed in {}: it is left missing."),
        (~modelled & ~fill.isnan(), "Only one value is observed in {}: missing entries are filled with it."),
        (
            mean_beyond,
            "The mean of the observed values of {} lies outside its bounds: give bounds in the units of the data.",
        ),
        (
            some_beyond,
            f"{int(beyond[:, some_beyond].sum())} observed values of {{}} lie outside the bounds: they are kept.",
        ),
    ):
        if where.ndim == 1:
            what = "column " + ", ".join(repr(names[i]) for i in where.nonzero().flatten().tolist())
        else:
            what = f"{int(where.sum())} of {where.numel()} pixels"
        if where.any():
            notice(sentence.format(what))


def warn_few_images(images: int) -> None:
    """Warn of too few images to learn from, and say what is done with them."""
    if images < FEW_IMAGES:
        many = "1 image is" if images == 1 else f"{images} images are"
        notice(
            f"{many} too few to learn the distribution of such images. The networks are trained to fill holes cut into "
            "them, and holes in one image alone decide when training stops and how wide draws are. Give "
            f"{FEW_IMAGES} images at least, or compare with the nearest pixel (diagnose, --report)."
        )


def _beyond_bounds(obs: Observations, space: FeatureEncoder) -> Tensor:
    """Find entries whose observed mean lies outside the bounds by more than noise of mean 0 explains."""
    bounded = space.bounds.isfinite().any(0) & obs.observed.flatten(1).any(0)
    observed, (low, high) = obs.observed.flatten(1)[:, bounded], space.bounds[:, bounded]
    mean, sd = by_columns(variance, obs.values.flatten(1)[:, bounded], observed)
    chance = 5 * sd / observed.sum(0).sqrt() + 1e-6 * mean.abs()
    beyond = torch.zeros_like(bounded)
    beyond[bounded] = (mean < low - chance) | (mean > high + chance)
    return beyond.reshape(space.event_shape)


def _ends(bounds: Bounds | None, entries: int, columns: Sequence[Column]) -> Tensor:
    """Return the least and largest value of each entry, (2, entries)."""
    ends = torch.tensor([-torch.inf, torch.inf]).double()[:, None].repeat(1, entries)
    for i, column in enumerate(columns):
        if column.kind == "time":
            ends[:, i] = torch.tensor([0.0, DAY - column.step], dtype=torch.float64)
    if bounds is not None and not isinstance(bounds, dict):
        numbers = [column.kind in ("continuous", "integer") for column in columns] or [True] * entries
        ends[:, torch.tensor(numbers)] = _pair("all numbers", bounds)[:, None]
        return ends
    places: dict[Any, int] = {column.name: i for i, column in enumerate(columns)} or {i: i for i in range(entries)}
    for name, pair in (bounds or {}).items():
        if name not in places:
            raise InvalidData(f"bounds names {name!r}, which is no column. Columns are {list(places)[:10]}.")
        ends[:, places[name]] = _pair(repr(name), pair)
    return ends


def _pair(of: str, pair: Any) -> Tensor:
    """Check one pair of bounds."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidData(f"bounds of {of} must be a pair such as (0, 1), got {pair!r}.")
    if not all(end is None or isinstance(end, Real) for end in pair):
        raise InvalidData(f"bounds of {of} must be numbers, or None for no bound, got {pair!r}.")
    low, high = (far if end is None else float(end) for end, far in zip(pair, (-np.inf, np.inf), strict=True))
    if not low < high:
        raise InvalidData(f"bounds of {of} must be a lower and a higher number, got {pair!r}.")
    return torch.tensor([low, high], dtype=torch.float64)
