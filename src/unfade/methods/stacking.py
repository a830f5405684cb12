"""Stacking: models of several kinds as one posterior, a linear pool whose shares held-out cells decide.

    CRPS(sum_k w_k F_k) = sum_k w_k E|X_k - y| - 1/2 sum_kl w_k w_l E|X_k - X_l|,  X_k ~ F_k,

is minimised over shares w in sixteenths. Cheap kinds come first: a linear model and chained trees take a second or two;
networks train only for as long as they may add to these.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import cycle, product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.methods.recipes import Task
from unfade.methods.registry import FitResult, fit_many
from unfade.models.baselines import NearestPixels, marginals
from unfade.models.latent_variable import Ensemble, PosteriorLVM
from unfade.models.linear import linear_posterior, resampled_factors
from unfade.models.tree_fitting import chained_trees
from unfade.training.early_stopping import Rival, Split, hold_out
from unfade.training.loop import Ended, History

TURNS, LEAST = 16, 2  # draws that shares are counted in; the least share that is not none, of these
LEAST_CHAINS = 8  # of trees on all data
HURRY = 3.0  # seconds, where fewer are left
LINEAR_CELLS = 200_000  # that the linear model is fitted to; of more rows, to some
SIMPLE_TOLERANCE = 1.02  # of CRPS: what is further behind a simple method on held-out cells is not given
TRIAL_CHAINS, TRIAL_FACTORS, MOST_NETWORKS = 6, 3, 4  # of trees and linear models that are to predict held-out cells
_CELLS = 4000  # held-out cells that shares go by at most


@dataclass(frozen=True)
class Kind:
    """Models of one kind: how they predict held-out cells, (draws, rows, features), and how many to give on all data."""

    name: str
    predicted: Tensor
    fit: Callable[[int], list[nn.Module]]  # so many members


def fit_ensembles(name: str, tasks: Sequence[Task], settings: dict[str, Any], members: int) -> list[FitResult[Ensemble]]:
    """Fit ensembles, one per task.

    Parameters
    ----------
    name : of the method
    tasks : data and how to fit; networks of all train side by side. One alone may be `stacked`.
    settings : of the method
    members : networks of each ensemble; they differ in their seeds

    Returns
    -------
    list of FitResult
        Where what was fitted predicts held-out cells worse than a simple method, the simple method is in its place.
    """
    learned = [task.corruption.learned for task in tasks]
    if len(tasks) == 1 and tasks[0].stacked:
        results = [_stack(name, tasks[0], settings, members)]
    else:
        results = _networks(name, tasks, settings, members)
    return [_simple_instead(*each) for each in zip(tasks, results, learned, strict=True)]


def _networks(name: str, tasks: Sequence[Task], settings: dict[str, Any], members: int) -> list[FitResult[Ensemble]]:
    alike = [
        replace(task, corruption=copy.deepcopy(task.corruption), seed=task.seed + 100 * member) if member else task
        for task in tasks
        for member in range(members)
    ]
    fits = fit_many(name, alike, [settings] * len(alike))
    parts = [fits[start : start + members] for start in range(0, len(fits), members)]
    return [_as_ensemble(part) for part in parts]


def _as_ensemble(fits: Sequence[FitResult[PosteriorLVM]]) -> FitResult[Ensemble]:
    """Give what was found of the first member, with the posteriors of all."""
    first = {field.name: getattr(fits[0], field.name) for field in fields(FitResult)}
    return FitResult(**first | {"posterior": Ensemble([fit.posterior for fit in fits])})


def _stack(name: str, task: Task, settings: dict[str, Any], members: int) -> FitResult[Ensemble]:
    """Fit linear model, trees and networks as one; where the noise is to be learned, networks come first and find it."""
    split = hold_out(task.obs, task.seed, task.corruption)
    if split is None:
        return _networks(name, [task], settings, members)[0]
    task = replace(task, split=split)
    kinds: list[Kind] = []
    histories: tuple[History, ...] = ()
    if not task.corruption.learned:
        kinds, histories = _cheap_kinds(task, task.corruption)
    result = None
    if not (kinds and _late(task)):
        result = _networks(name, [replace(task, rival=_rival(task, kinds))], settings, members)[0]
        histories += result.histories
        if result.predicted is None and (result.interrupted or not kinds):
            return result if not kinds else _pooled(task, kinds, histories, result.interrupted)
        corruption = result.posterior.each[0].corruption
        if not kinds:
            kinds, more = _cheap_kinds(task, corruption)
            histories += more
        if result.predicted is not None:
            found = result
            kinds = [Kind("networks", result.predicted, lambda _: _more_networks(name, task, settings, found)), *kinds]
    return _pooled(task, kinds, histories)


def _more_networks(name: str, task: Task, settings: dict[str, Any], fit: FitResult[Ensemble]) -> list[nn.Module]:
    """Give the networks that were trained and, where these took few of the steps, train others for the rest of them."""
    members = list(fit.posterior.members)
    more = min(MOST_NETWORKS, task.training.steps // max(1, fit.steps)) - len(members)
    known = copy.deepcopy(fit.posterior.each[0].corruption).requires_grad_(False)
    for number in range(1, more + 1):
        if fit.interrupted or _late(task):
            break
        training = replace(task.training, steps=fit.steps)
        again = replace(
            task, corruption=copy.deepcopy(known), training=training, seed=task.seed + 100 * number, fixed_steps=True
        )
        members += _networks(name, [again], settings, 1)[0].posterior.members
    return members


def _late(task: Task) -> bool:
    return task.deadline is not None and time.monotonic() > task.deadline - 0.5


def _cheap_kinds(task: Task, corruption: Corruption) -> tuple[list[Kind], tuple[History, ...]]:
    """Fit the linear model and the trees to what is left of the data without held-out cells; trees first in a hurry."""
    split, histories = task.split, []
    kinds: list[Kind] = []
    assert split is not None
    hurry = task.deadline is not None and task.deadline - time.monotonic() < HURRY
    for name, fitted in sorted((("linear model", _linear_members), ("trees", _tree_members)), reverse=hurry):
        started = time.monotonic()
        if (name == "linear model" and corruption.categorical) or (kinds and _late(task)):
            continue
        try:
            part = task if task.deadline is None else replace(task, deadline=started + (task.deadline - started) / 3)
            trial = fitted(part, split.seen, corruption, TRIAL_FACTORS if name == "linear model" else TRIAL_CHAINS)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # columns that are not to be told apart
            continue
        predicted = split.predict(cast(list[PosteriorLVM], trial), task.n_candidates, 48 // len(trial))

        kinds.append(Kind(name, predicted, partial(fitted, task, task.obs, corruption)))
        note = f"{name}: CRPS of held-out cells {split.crps(predicted, corruption):.4f}"
        histories.append(History(seconds=time.monotonic() - started, ended=Ended.NOT_TRAINED, note=note))
    return sorted(kinds, key=lambda kind: kind.name), tuple(histories)


def _linear_members(task: Task, obs: Observations, corruption: Corruption, count: int) -> list[nn.Module]:
    rows = max(2, LINEAR_CELLS // obs.values.shape[1])
    chosen = torch.randperm(len(obs), generator=torch.Generator().manual_seed(task.seed))[:rows].sort().values
    every = resampled_factors(obs[chosen.to(obs.values.device)], corruption.std.detach(), count, task.seed)
    return [linear_posterior(factors, copy.deepcopy(corruption)) for factors in every]


def _tree_members(task: Task, obs: Observations, corruption: Corruption, count: int) -> list[nn.Module]:
    """Fit trees of so many chains, or some more, as one member."""
    trees = chained_trees(obs, copy.deepcopy(corruption), task.seed, max(LEAST_CHAINS, count), task.deadline)
    return [trees.to(obs.values.device).requires_grad_(False).eval()]


def _rival(task: Task, kinds: Sequence[Kind]) -> Rival | None:
    """Give what networks are to add to."""
    if not kinds or task.split is None:
        return None
    split, corruption = task.split, task.corruption

    def helped(predicted: Tensor) -> bool:
        return _shares(split, [predicted, *(kind.predicted for kind in kinds)], corruption)[0][0] > 0

    return Rival(_shares(split, [kind.predicted for kind in kinds], corruption)[1], helped)


def _pooled(
    task: Task, kinds: Sequence[Kind], histories: Sequence[History], interrupted: bool = False
) -> FitResult[Ensemble]:
    """Fit all kinds that have a share to all data, and make one posterior of them."""
    split, corruption = task.split, task.corruption
    assert split is not None
    shares, score = _shares(split, [kind.predicted for kind in kinds], corruption)
    started = time.monotonic()
    order = _order(shares)
    models = [cycle(kind.fit(share) if share else ()) for kind, share in zip(kinds, shares, strict=True)]
    drawing = [next(models[kind]) for kind in order]  # the model of each turn
    members = list(dict.fromkeys(drawing))  # by their first turns: what has none among few draws is never before what has
    turns = [members.index(model) for model in drawing]
    text = ", ".join(f"{kind.name} {share}" for kind, share in zip(kinds, shares, strict=True) if share)
    note = f"shares of {TURNS} draws: {text}; CRPS of held-out cells {score:.4f}"
    ended = Ended.INTERRUPTED if interrupted else Ended.NOT_TRAINED
    history = History(seconds=time.monotonic() - started, ended=ended, note=note)
    predicted = _mixed([kind.predicted for kind in kinds], order)
    return FitResult(Ensemble(members, turns), (*histories, history), split, predicted.cpu())


def _order(shares: Sequence[int]) -> list[int]:
    """Choose which kind gives each of the draws, so that any first few are near the shares.

    >>> _order([8, 4, 4])
    [0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0]
    """
    given, order = [0] * len(shares), []
    for number in range(1, sum(shares) + 1):
        owed = [share * number / sum(shares) - count for share, count in zip(shares, given, strict=True)]
        order.append(int(np.argmax(owed)))
        given[order[-1]] += 1
    return order


def _mixed(predicted: Sequence[Tensor], order: Sequence[int]) -> Tensor:
    """Join draws of the kinds, (draws, rows, features): of each as many as it has turns, over and over while they last."""
    rounds = min(len(predicted[kind]) // order.count(kind) for kind in set(order))
    parts = [part[: max(1, rounds) * order.count(kind)] for kind, part in enumerate(predicted)]
    return torch.cat([part.cpu() for part in parts])


def _shares(split: Split, predicted: Sequence[Tensor], corruption: Corruption) -> tuple[tuple[int, ...], float]:
    """Find the shares that predict held-out cells best, in sixteenths, and the CRPS of the pool.

    Small tables have few such cells, and what predicts them has seen less than all data, which networks mind least: of
    shares within half a standard error of the best those are taken that give networks, the first kind of three, least.
    """
    device, cells = split.held.values.device, split.held.observed.nonzero()
    generator = torch.Generator().manual_seed(split.seed)
    cells = cells[torch.randperm(len(cells), generator=generator)[:_CELLS].to(cells.device)].T
    y = split.held.values[tuple(cells)]
    draws = [split.observed(part.to(device), corruption)[:, cells[0], cells[1]] for part in predicted]
    errors = torch.stack([(x - y).abs().mean(0) for x in draws])
    apart = torch.stack([torch.stack([_apart(a, b, a is b) for b in draws]) for a in draws])
    grid = [shares for shares in product(range(0, TURNS + 1, LEAST), repeat=len(draws)) if sum(shares) == TURNS]
    w = torch.tensor(grid, dtype=errors.dtype, device=device) / TURNS
    scores = w @ errors - torch.einsum("gk,gl,klc->gc", w, w, apart) / 2  # (shares, cells)
    best = int(scores.mean(1).argmin())
    behind = scores - scores[best]
    error = behind.std(1) / len(y) ** 0.5
    close = [place for place in range(len(grid)) if place == best or behind[place].mean() <= error[place] / 2]
    chosen = min(close, key=lambda place: (grid[place][0], float(scores[place].mean())))
    return grid[chosen], float(scores[chosen].mean())


def _apart(a: Tensor, b: Tensor, same: bool) -> Tensor:
    """Compute the mean distance of a draw of each, (cells,); of two draws where both are the same."""
    total = torch.stack([(x - b).abs().sum(0) for x in a]).sum(0)
    return total / (len(a) * (len(a) - 1 if same else len(b)))


def _simple_instead(task: Task, fit: FitResult[Ensemble], learned: bool) -> FitResult[Ensemble]:
    """Put the nearest pixels of images, or else marginals, in the place of what predicts held-out cells worse than they."""
    split, by_trained, started = fit.split, fit.predicted, time.monotonic()
    if split is None or by_trained is None:
        return fit
    corruption = fit.posterior.each[0].corruption
    untold = copy.deepcopy(corruption)
    if learned:  # a level that was found by what does worse than a simple method says nothing
        untold.forget_noise()
    name = "independent columns" if task.image is None else "the nearest pixel"
    simple: nn.Module
    if task.image is None:
        simple = marginals(split.seen, untold)
    else:
        places = torch.arange(task.features) if task.places is None else task.places
        simple = NearestPixels(task.image, places, untold).to(split.given.values).learn(split.given, split.held)
    predicted = split.predict([cast(PosteriorLVM, simple)])
    simple_score = split.crps(predicted, untold)
    score = split.crps(by_trained.to(predicted.device), corruption)
    if score <= SIMPLE_TOLERANCE * simple_score:
        return fit
    note = f"{name}, not what was trained: CRPS of held-out cells {simple_score:.4f} by {name}, {score:.4f} by that"
    posterior = Ensemble([simple if task.image is not None else marginals(task.obs, untold)])
    history = History(seconds=time.monotonic() - started, ended=Ended.NOT_TRAINED, note=note)
    return replace(
        fit, posterior=posterior, predicted=predicted.cpu(), replaced_by=name, histories=(*fit.histories, history)
    )
