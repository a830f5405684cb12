"""Series through a state-space model: rows laid on their grid of steps, draws and means given back by row.

A long series goes through in windows that overlap, so memory is bounded and time grows linearly; the path that knows no
data runs through the whole series, so draws join without a seam.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from unfade.data.observations import Observations
from unfade.data.timeline import Timeline
from unfade.models.latent_variable import Ensemble
from unfade.models.state_space import Gains, StateSpace
from unfade.rng import KeyedNormals

CORE, MARGIN = 256, 96  # steps of a window that are kept, and at each side those that only inform them
_TOGETHER, _DRAWS, _WINDOWS = 2**15, 16, 64  # steps, draws and windows at once
NEAR, PRIOR, FAR = 24, 6.0, 6.0  # steps at each side, prior cells and largest innovation of the volatility
_PRIOR_OF_ALL = 100.0  # prior cells of the average over all series
_EMPTY = 2**40  # apart from the keys of rows


@dataclass(frozen=True)
class Series:
    """Series of about one length on the grid.

    rows: their numbers or -1, (series, steps); values, cells seen and season; keys of steps, and of first rows,
    (series,); outside: steps at times before or after those of the fit, (series, steps).
    """

    rows: Tensor
    values: Tensor
    seen: Tensor
    season: Tensor
    keys: Tensor
    origins: Tensor
    outside: Tensor


def series_of(obs: Observations, timeline: Timeline, keys: Tensor) -> Iterator[Series]:
    """Lay rows on the grid, some series at a time, the longest first."""
    grid, origins = timeline.grid, timeline.origin_keys(keys)
    order, start = grid.lengths.argsort(descending=True, stable=True), 0
    while start < len(order):
        longest = int(grid.lengths[order[start]])
        count = max(1, _TOGETHER // longest)
        yield _laid(obs, timeline, order[start : start + count], longest, keys, origins)
        start += count


def _laid(obs: Observations, timeline: Timeline, which: Tensor, longest: int, keys: Tensor, origins: Tensor) -> Series:
    grid, steps = timeline.grid, torch.arange(longest)
    place = grid.starts[which][:, None] + steps
    inside = steps < grid.lengths[which][:, None]
    place = place.clamp(max=len(grid.rows) - 1)
    rows = torch.where(inside, grid.rows[place], -1)
    there, safe = (rows >= 0)[..., None], rows.clamp(min=0)
    seen = obs.observed[safe] & there
    last = torch.where(rows >= 0, steps, 0).cummax(1).values  # of each step, the last that has a row
    key = keys[rows.gather(1, last)] + (steps - last) * _EMPTY
    season, outside = timeline.clock.season(grid.times[place]), timeline.clock.outside(grid.times[place])
    return Series(rows, obs.values[safe].double() * seen, seen, season, key, origins[rows[:, 0]], outside)


@torch.no_grad()
def series_blocks(
    posterior: Ensemble | None,
    obs: Observations,
    keys: Tensor,
    draws: int,
    seed: int,
    timeline: Timeline,
    widths: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Give blocks of (numbers of rows, their draws (draws, rows, features)); with draws=0 their means (rows, features).

    Parameters
    ----------
    posterior : Ensemble of StateSpace, or None if nothing varies
    obs : Observations, (rows, features)
    keys : Tensor, (rows,)
        Numbers on which random numbers depend.
    draws, seed : int
    timeline : Timeline
    widths : Tensor, (features,), or None
        Factors by which draws of unobserved cells are scaled about their mean, at times of the fit.

    Returns
    -------
    iterator of (Tensor, Tensor)
    """
    if posterior is None:
        yield torch.arange(len(obs)), obs.values.expand(draws, *obs.values.shape) if draws else obs.values
        return
    members = [cast(StateSpace, member) for member in posterior.members]
    turns = posterior.turns or tuple(range(len(members)))
    varies = draws > 0 and bool(members[0].corruption.exact.all())
    average = average_volatility(members[0], series_of(obs, timeline, keys)) if varies else torch.ones(0)
    for series in series_of(obs, timeline, keys):
        means = [_mean(member, series) for member in members]
        mean = torch.stack([means[turn] for turn in turns]).mean(0)
        there = series.rows >= 0
        if not draws:
            yield series.rows[there], mean[there].to(obs.values.dtype)
            continue
        parts = []
        if varies:
            variance, cells = volatility(members[0], series, average)
            spread = torch.where(series.seen, 1.0, variance.sqrt())
        for first in range(0, draws, _DRAWS):
            count = min(_DRAWS, draws - first)
            x = _drawn(members, turns, series, seed, first, count)
            if varies:
                x = mean + spread * _heavy(series, cells, seed, first, count) * (x - mean)
            if widths is not None:
                x = torch.where(series.seen, x, mean + _factors(series, widths.double()) * (x - mean))
            parts.append(x[:, there].to(obs.values.dtype))
        yield series.rows[there], torch.cat(parts)


def _factors(series: Series, widths: Tensor) -> Tensor:
    """Give the calibration scale of each cell, (series, steps, columns).

    Held-out cells lie at times of the fit: draws at other times become narrower half-way only.
    """
    return torch.where(series.outside[..., None] & (widths < 1), widths.sqrt(), widths)


def _heavy(series: Series, cells: Tensor, seed: int, first: int, count: int) -> Tensor:
    """Draw the uncertainty of the volatility: the root of n / chi-squared with n cells, so that draws are Student's t."""
    normals = KeyedNormals(seed, series.origins, first, 3)(count, len(series.rows), cells.shape[-1]).double()
    share = 2 / (9 * cells)
    chi = (1 - share + share.sqrt() * normals[:, :, None]).clamp(min=0.1) ** 3  # Wilson and Hilferty
    return chi.rsqrt()


def _mean(model: StateSpace, series: Series) -> Tensor:
    season = series.season @ model.season
    return season + in_windows(model.smoothed, model, ((series.values - season) * series.seen)[None], series.seen)[0]


def average_volatility(model: StateSpace, all_series: Iterable[Series]) -> Tensor:
    """Average the squares of standardised innovations of each column over all series, (columns,); 1 if the model holds."""
    total = torch.full((2, model.columns), _PRIOR_OF_ALL, dtype=torch.float64)
    for series in all_series:
        total += torch.stack([_squares(model, series).sum((0, 1)), series.seen.sum((0, 1))])
    return total[0] / total[1]


def volatility(model: StateSpace, series: Series, average: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate by how much a series varies more than the model expects, near each step.

    Squares of standardised innovations are averaged over NEAR steps at each side, beside PRIOR cells of the average size.

    Returns
    -------
    variance, cells : Tensor, (series, steps, columns)
        Variance relative to the expected one, and the cells that it rests on.
    """

    def near(x: Tensor) -> Tensor:
        total = torch.nn.functional.pad(x, (0, 0, NEAR + 1, NEAR)).cumsum(1)
        return total[:, 2 * NEAR + 1 :] - total[:, : -2 * NEAR - 1]

    cells = PRIOR + near(series.seen.double())
    return (PRIOR * average + near(_squares(model, series))) / cells, cells


def _squares(model: StateSpace, series: Series) -> Tensor:
    """Square the standardised innovations, (series, steps, columns); 0 where nothing is seen."""
    z = ((series.values - series.season @ model.season) * series.seen)[None]
    return in_windows(model.innovations, model, z, series.seen)[0].square().clamp(max=FAR**2)


def _drawn(members: list[StateSpace], turns: tuple[int, ...], series: Series, seed: int, first: int, count: int) -> Tensor:
    """Draw paths number `first` and on, (count, series, steps, columns): each by the ensemble member whose turn it is."""
    lengths, columns = series.rows.shape, series.values.shape[-1]
    steps = KeyedNormals(seed, series.keys.flatten(), first)
    shocks, errors = (steps(count, lengths.numel(), columns).double().unflatten(1, lengths) for _ in range(2))
    x = torch.empty_like(shocks)
    for number, model in enumerate(members):
        mine = torch.tensor([turns[(first + k) % len(turns)] == number for k in range(count)])
        if mine.any():
            begin = KeyedNormals(seed, series.keys[:, 0], first, 2)(count, len(series.rows), model.states).double()
            path = model.path(shocks[mine], begin[mine])
            season = series.season @ model.season
            noise = errors[mine] * model.noise_variance.sqrt()
            apart = (series.values - season - path - noise) * series.seen
            x[mine] = season + path + in_windows(model.smoothed, model, apart, series.seen)
    return x


def in_windows(run: Callable[[Tensor, Gains], Tensor], model: StateSpace, y: Tensor, seen: Tensor) -> Tensor:
    """Filter or smooth paths, (paths, series, steps, columns), long ones in windows that overlap."""
    steps = seen.shape[1]
    if steps <= CORE + 2 * MARGIN:
        return run(y, model.gains(seen))
    margin = MARGIN + min(512, _longest_hole(seen))
    count = -(-steps // CORE)
    after = count * CORE - steps + margin
    padded = torch.nn.functional.pad(y, (0, 0, margin, after))
    known = torch.nn.functional.pad(seen, (0, 0, margin, after))
    y_cut, seen_cut = (part.unfold(-2, CORE + 2 * margin, CORE).mT for part in (padded, known))
    y_cut, seen_cut = y_cut.flatten(1, 2), seen_cut.flatten(0, 1)
    parts = [
        run(y_cut[:, start : start + _WINDOWS], model.gains(seen_cut[start : start + _WINDOWS]))
        for start in range(0, len(seen_cut), _WINDOWS)
    ]
    kept = torch.cat(parts, 1)[:, :, margin : margin + CORE]
    return kept.unflatten(1, (len(seen), count)).flatten(2, 3)[:, :, :steps]


def _longest_hole(seen: Tensor) -> int:
    """Count the steps of the longest run in which nothing is seen."""
    step = torch.arange(seen.shape[1])
    last = torch.where(seen.any(-1), step, -1).cummax(1).values.clamp(min=0)
    return int((step - last).max())
