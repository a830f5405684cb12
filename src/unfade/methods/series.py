"""Fit series: state-space models of one and two lags, chosen by cells held out in blocks as the data's gaps are."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.data.timeline import Timeline
from unfade.methods.recipes import Task
from unfade.methods.registry import FitResult
from unfade.methods.rounds import Rounds
from unfade.models.latent_variable import Ensemble
from unfade.models.series import series_blocks
from unfade.models.state_space import StateSpace
from unfade.models.state_space_fitting import rounds_of
from unfade.training.early_stopping import Split
from unfade.training.loop import Ended, History

LAGS = (1, 2)
WINDOW, MOST_STEPS = 96, 40_000  # steps of a window of training, and of all windows
ROUNDS, ROUNDS_WITH_NOISE = 30, 120
_HELD, _HELD_CELLS, _SCORED_ROWS = 0.1, 1000, 8192
_DRAWS = 32  # of held-out cells


@dataclass(frozen=True)
class _Trial:
    """A model fitted without the held-out cells, its draws of these, and their CRPS."""

    lags: int
    model: StateSpace
    predicted: Tensor
    crps: float


def fit_series(task: Task, timeline: Timeline) -> FitResult[Ensemble]:
    """Fit state-space models of each number of lags; the one that predicts held-out cells best is fitted to all data.

    Ctrl-C and callbacks end the fit with the best model so far.

    Parameters
    ----------
    task : Task
    timeline : Timeline
        Of the task's rows.

    Returns
    -------
    FitResult
    """
    obs, histories, trials = task.obs.to("cpu"), list[History](), list[_Trial]()
    split = hold_out_blocks(obs, timeline, task.seed, task.corruption)
    choices = () if split is None else LAGS[:1] if task.corruption.learned else LAGS  # a second lag looks much like noise
    rounds = Rounds(task, len(choices) + 1, _rounds(task.corruption))
    for lags in choices:
        if split is not None and not rounds.hurry():
            trials += _trial(task, split, timeline, lags, rounds, histories)
    best = min(trials, key=lambda trial: trial.crps, default=None)
    lags = LAGS[-1] if best is None else best.lags
    started = time.monotonic()
    member = None if rounds.stopped else rounds.run(_fits(obs, timeline, task.corruption, task.seed, lags, rounds))
    if member is None:
        assert best is not None
        member = best.model
    else:
        histories.append(_history(started, f"state space, {lags} lags, on all cells", rounds.ended))
    posterior = Ensemble([member.requires_grad_(False).eval()])
    return FitResult(posterior, tuple(histories), split, None if best is None else best.predicted)


def _rounds(corruption: Corruption) -> int:
    return ROUNDS_WITH_NOISE if corruption.learned else ROUNDS


def _trial(
    task: Task, split: Split, timeline: Timeline, lags: int, rounds: Rounds, histories: list[History]
) -> list[_Trial]:
    """Fit to what is seen and predict the held-out cells; nothing if not a round was done."""
    started, corruption = time.monotonic(), copy.deepcopy(task.corruption)
    model = rounds.run(_fits(split.seen, timeline, corruption, task.seed, lags, rounds))
    if model is None:
        return []
    predicted = _predicted(Ensemble([model]), split, timeline, task.seed)
    score = split.crps(predicted, corruption)
    note = f"state space, {lags} lags: CRPS of held-out cells {score:.4f}"
    histories.append(_history(started, note, rounds.ended))
    return [_Trial(lags, model, predicted, score)]


def _history(started: float, note: str, ended: Ended) -> History:
    return History(seconds=time.monotonic() - started, ended=ended, note=note)


def series_seconds(task: Task, timeline: Timeline) -> float:
    """Estimate how long `fit_series` takes on this machine, by two rounds.

    Parameters
    ----------
    task : Task
    timeline : Timeline

    Returns
    -------
    float
    """
    started = time.monotonic()
    rounds = Rounds(task, 1, 2)
    rounds.run(_fits(task.obs, timeline, copy.deepcopy(task.corruption), task.seed, LAGS[-1], rounds))
    fits = (1 if task.corruption.learned else len(LAGS)) + 1
    return (time.monotonic() - started) / 2 * fits * _rounds(task.corruption)


def _fits(
    obs: Observations, timeline: Timeline, corruption: Corruption, seed: int, lags: int, rounds: Rounds
) -> Iterator[StateSpace]:
    """Fit to windows of the series, a model per round; a noise level that is to be learned is, in the corruption."""
    rows, times = _windows(timeline, lags, seed)
    there, safe = (rows >= 0)[..., None], rows.clamp(min=0)
    y, season = obs.values.double()[safe] * there, timeline.clock.season(times)
    return rounds_of(y, obs.observed[safe] & there, season, corruption, seed, lags, rounds.left)


def _windows(timeline: Timeline, lags: int, seed: int) -> tuple[Tensor, Tensor]:
    """Cut series into windows of one length: rows or -1 and times, (windows, steps)."""
    grid = timeline.grid
    length = max(lags + 1, min(WINDOW, int(grid.lengths.max())))
    per_series = -(-grid.lengths // length)
    which = torch.repeat_interleave(torch.arange(len(per_series)), per_series)
    number = torch.arange(len(which)) - torch.repeat_interleave(per_series.cumsum(0) - per_series, per_series)
    if len(which) * length > MOST_STEPS:
        generator = torch.Generator().manual_seed(seed)
        some = torch.randperm(len(which), generator=generator)[: max(1, MOST_STEPS // length)].sort().values
        which, number = which[some], number[some]
    steps = number[:, None] * length + torch.arange(length)
    inside = steps < grid.lengths[which][:, None]
    place = (grid.starts[which][:, None] + steps).clamp(max=len(grid.rows) - 1)
    rows = torch.where(inside, grid.rows[place], -1)
    return rows, grid.times[place]


def hold_out_blocks(obs: Observations, timeline: Timeline, seed: int, corruption: Corruption) -> Split | None:
    """Hold observed cells out in blocks of the lengths and columns of the data's own gaps, at other times.

    Parameters
    ----------
    obs : Observations, (rows, features)
    timeline : Timeline
    seed : int
    corruption : Corruption

    Returns
    -------
    Split or None
        None where that would leave nothing to see or nothing to predict.
    """
    rows, generator = timeline.grid.rows, torch.Generator().manual_seed(seed)
    seen = obs.observed[rows.clamp(min=0)] & (rows >= 0)[:, None]
    total = int(seen.sum())
    wanted = min(total // 4, max(int(_HELD * total), _HELD_CELLS))
    hidden, left = torch.zeros_like(seen), wanted
    for length, columns in _gaps(seen, generator):
        start = int(torch.randint(max(1, len(seen) - length + 1), (1,), generator=generator))
        block = seen[start : start + length] & columns & ~hidden[start : start + length]
        hidden[start : start + length] |= block
        left -= int(block.sum())
        if left <= 0:
            break
    held = torch.zeros_like(obs.observed)
    held[rows[rows >= 0]] = hidden[rows >= 0]
    held = obs.observed & corruption.whole_categories(held)
    chosen = held.any(1).nonzero().flatten()
    keep = torch.randperm(len(chosen), generator=generator)[:_SCORED_ROWS].sort().values
    remaining, chosen = obs.only(~held), chosen[keep]
    if not (len(chosen) and remaining.observed.any()):
        return None
    return Split(remaining, chosen, remaining[chosen], obs[chosen].only(held[chosen]), seed)


def _gaps(seen: Tensor, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
    """Give gaps of the data again and again, in random order: length, and columns that are missing for most of it."""
    found = []
    for column in range(seen.shape[1]):
        edge = torch.nn.functional.pad((~seen[:, column]).int(), (1, 1)).diff()
        starts, ends = (edge == 1).nonzero().flatten(), (edge == -1).nonzero().flatten()
        found += [(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if b - a < len(seen) // 4]
    some = torch.randperm(len(found), generator=generator)[:5000].tolist()
    for k in range(100_000):
        if not found:
            yield 1, torch.arange(seen.shape[1]) == torch.randint(seen.shape[1], (1,), generator=generator)
            continue
        start, end = found[some[k % len(some)]]
        yield end - start, (~seen[start:end]).double().mean(0) > 0.5


def _predicted(posterior: Ensemble, split: Split, timeline: Timeline, seed: int) -> Tensor:
    """Draw the clean values of the rows with held-out cells, (draws, rows, features)."""
    place = torch.full((len(split.seen),), -1)
    place[split.rows] = torch.arange(len(split.rows))
    result = torch.zeros(_DRAWS, *split.given.values.shape)
    for rows, values in series_blocks(posterior, split.seen, torch.arange(len(split.seen)), _DRAWS, seed + 1, timeline):
        wanted = place[rows] >= 0
        result[:, place[rows[wanted]]] = values[:, wanted].float()
    return result
