"""How long to train: for as long as observed cells that were held out are predicted better and better."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unfade.corruption.noise import Corruption
from unfade.data.observations import Observations
from unfade.metrics import central_interval, coverage_due, crps, stretch
from unfade.rng import generator_normals
from unfade.training import distributed as processes
from unfade.training.checkpoints import Checkpoint
from unfade.training.loop import History, OnStep, Progress, Run, train_many
from unfade.training.objectives import Hiding
from unfade.training.step import Trained

HoldOut = Callable[[Observations, int, Corruption], "Split | None"]  # by a seed


@dataclass(frozen=True)
class Split:
    """Data without some of the observed cells, and up to 1,024 samples that have such cells, with what was held out.

    seen: what is left of all samples; rows: those samples; given, held: what is left of them and what was held out.
    """

    seen: Observations
    rows: Tensor
    given: Observations
    held: Observations
    seed: int

    @torch.no_grad()
    def predict(self, posteriors: Sequence[Any], n_candidates: int = 0, draws: int = 20) -> Tensor:
        """Draws of the clean values, (draws, rows, features): as many by each posterior."""
        normals = generator_normals(torch.Generator(self.given.values.device).manual_seed(self.seed))
        entries, cpu = self.given.values.shape[1], self.given.values.device.type == "cpu"
        parts, height = [], max(1, min(256 if cpu else 1024, 2 ** (18 if cpu else 24) // entries))
        for start in range(0, len(self.given), height):
            y = self.given[start : start + height]
            drawn = [each.draw(y, draws, normals, each.source(y, min(n_candidates, 50), normals)) for each in posteriors]
            parts.append(torch.cat(drawn))
        return torch.cat(parts, 1)

    @torch.no_grad()
    def observed(self, clean: Tensor, corruption: Corruption) -> Tensor:
        """What would be observed of clean values: with noise, and the value of the interval they fall in."""
        normals = generator_normals(torch.Generator(clean.device).manual_seed(self.seed + 1))
        return corruption.corrupt(clean, self.held.observed.to(clean.device), normals).values

    def crps(self, clean: Tensor, corruption: Corruption) -> float:
        """Mean CRPS of predictions of the held-out cells, noise included."""
        return float(crps(self.observed(clean, corruption), self.held.values)[self.held.observed].mean())


def widths(
    split: Split, clean: Tensor, corruption: Corruption, fine: Tensor, rows: Tensor | None = None, level: float = 0.9
) -> Tensor:
    """By how much draws of each feature must be wider about their mean for held-out cells to be covered as they should.

    The quantile, over the cells of a feature, of how far their central interval must be stretched to hold what was
    observed (split conformal prediction); of all cells together where a feature has fewer than a hundred; 1 where there
    are fewer than fifty in all. With noise, which is not to be stretched, it is what the clean draws need for that.
    Never less than half or more than twice as wide. Features that are not `fine` (categories, a handful of values) are
    left as they are, and those whose values are often the end of their interval (mostly zeros). rows: those to go by, all
    where not given.
    """
    held = split.held.observed.cpu() & fine
    if rows is not None:
        held = held & rows[:, None]
    y = split.observed(clean, corruption)
    noise = corruption.level(clean.mean(0).to(corruption.exact.device)).detach().cpu().square()
    noise = noise.expand(len(held), len(fine)).mean(0)
    truth = split.held.values.to(y.device)
    low, high = (end.cpu() for end in central_interval(y, level))
    tied = held & ((low == truth.cpu()) | (high == truth.cpu()))  # inside, whatever the scale
    held = held & (tied.sum(0) <= _OFTEN * held.sum(0))
    far, spread = stretch(y, truth, level).cpu().masked_fill(tied, 0.0), clean.var(0).cpu()
    found = torch.ones(len(fine))
    if held.sum() < 50:
        return found

    def quantile(cells: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        share = min(1.0, coverage_due(level, len(clean)) * (1 + 1 / len(cells)))
        return cells.sort().values[min(len(cells) - 1, int(share * len(cells)))].square(), own.mean() + 1e-12

    enough, totals, variances = held.sum(0) >= 100, torch.empty(len(fine)), torch.empty(len(fine))
    totals[:], variances[:] = quantile(far[held], spread[held])
    for j in (fine & enough).nonzero().flatten().tolist():
        totals[j], variances[j] = quantile(far[held[:, j], j], spread[held[:, j], j])
    wanted = ((totals * (variances + noise) - noise) / variances).clamp(min=0).sqrt()
    return torch.where(fine & held.any(0), wanted, found).clamp(0.5, 2.0)


_OFTEN = 0.2  # share of the held-out cells of a feature


def without_ties(split: Split, clean: Tensor, corruption: Corruption, level: float = 0.9) -> Split:
    """Leave out held-out cells of repeated values at an end of their interval: no scale moves them in or out."""
    ends = central_interval(split.observed(clean, corruption), level)
    tied = torch.stack([end == split.held.values for end in ends]).any(0)
    return replace(split, held=split.held.only(~tied))


def hold_out(obs: Observations, seed: int, corruption: Corruption) -> Split | None:
    """Hold some observed cells out; None where that would leave nothing to see or nothing to predict.

    A tenth of them, or more where that would be fewer than a thousand, up to a quarter: scores of few cells are noise.
    """
    generator = torch.Generator(obs.values.device).manual_seed(seed)
    share = min(0.25, max(0.1, 1000 / max(1, int(obs.observed.sum()))))
    chosen = torch.rand(obs.observed.shape, generator=generator, device=obs.values.device) < share
    held = obs.observed & corruption.whole_categories(chosen)
    rows = held.any(1).nonzero().flatten()
    most = max(16, min(1024, 2**21 // held.shape[1]))
    some = rows[torch.randperm(len(rows), generator=generator, device=generator.device)[:most]]
    seen = obs.only(~held)
    if not (len(rows) and seen.observed.any()):
        return None
    return Split(seen, some, seen[some], obs[some].only(held[some]), seed)


def hold_out_as(hide: Hiding) -> HoldOut:
    """Hold out as training hides: of images holes, as single pixels among others that are seen are easily predicted."""

    def hold(obs: Observations, seed: int, corruption: Corruption) -> Split | None:
        generator = torch.Generator(obs.values.device).manual_seed(seed)
        entries = obs.values.shape[1]
        most = max(1, min(len(obs) // 5, max(32, 2**17 // entries), 2**21 // entries))  # of small images more
        some = torch.randperm(len(obs), generator=generator, device=generator.device)[:most]
        hidden = obs.observed[some] & corruption.whole_categories(hide(obs[some], generator_normals(generator)))
        held = torch.zeros_like(obs.observed)
        held[some] = hidden
        seen = obs.only(~held)
        return Split(seen, some, seen[some], obs[some].only(hidden), seed) if hidden.any() and seen.observed.any() else None

    return hold


@dataclass(frozen=True)
class Rival:
    """Other models that predict the same held-out cells, to which networks are to add something.

    crps: theirs; helped_by: whether predictions (draws, rows, features) are given a share beside theirs.
    """

    crps: float
    helped_by: Callable[[Tensor], bool]

    def ahead(self, scores: dict[int, float], most: int) -> bool:
        """Whether networks will stay too far behind to help, by their scores at some steps.

        They go on gaining with each doubling of the steps, a fifth less each time.
        """
        last = max(scores)
        if last < _PATIENCE:
            return False
        half = scores[min(scores, key=lambda step: abs(step - last / 2))]
        doublings = np.log2(max(most, last) / last)
        gain = max(0.0, half - scores[last]) * (1 - 0.8**doublings) / 0.2
        return scores[last] - gain > _HOPELESS * self.crps


_PATIENCE, _HOPELESS = 300, 1.13  # steps before networks are judged; times the rival's CRPS that they may stay above


@dataclass(frozen=True)
class Watched:
    """Results of runs: histories of both parts of each, the steps of both; and, where both were run, for each run the
    cells that were held out and how they were predicted before training went on with all cells.
    """

    histories: list[list[History]]
    steps: int
    splits: Sequence[Split] = ()
    predicted: Sequence[Tensor] = ()


class _Watch:
    """Scores models at steps that grow by a quarter each time, and keeps their states from when they were good."""

    def __init__(self, score: Callable[[], float], trained: nn.Module, rival: Rival | None = None):
        self.score, self.trained, self.rival = score, trained, rival
        self.scores: dict[int, float] = {}
        self.states: dict[int, dict[str, Tensor]] = {}

    def __call__(self, progress: Progress) -> bool:
        if progress.step < 1.25 * max(self.scores, default=0) and progress.step < progress.steps:
            return False
        self.scores[progress.step] = processes.agreed(self.score())
        self.states[progress.step] = {name: value.clone() for name, value in self.trained.state_dict().items()}
        best = _best_step(self.scores)
        for step in [step for step in self.states if 4 * step < best]:
            del self.states[step]
        if self.rival is not None and self.rival.ahead(self.scores, progress.steps):
            return True
        return progress.step >= max(500 if self.rival is None else 250, 2 * best)

    def back_to_start(self) -> tuple[int, float]:
        """Take the parameters back to where training continues with all cells; give that step and the one to end at."""
        best, part = _best_step(self.scores), 0.7 if self.rival is None else 0.85
        start = min(self.states, key=lambda step: abs(step - max(100, part * best)))
        if best >= 0.99 * max(self.scores):  # it would have gone on falling
            start = max(self.scores)
            best = start / part
        self.trained.load_state_dict(self.states[start])
        return start, best

    def state(self) -> dict[str, Tensor]:
        kept = {f"{step}.{name}": value for step, state in self.states.items() for name, value in state.items()}
        return kept | {"scores": torch.tensor(list(self.scores.items()), dtype=torch.float64)}

    def load(self, state: dict[str, Tensor]) -> None:
        self.scores = {int(step): score for step, score in state.pop("scores").tolist()}
        for name, value in state.items():
            step, _, name = name.partition(".")
            self.states.setdefault(int(step), {})[name] = value


def train_watched(
    runs: Sequence[Run],
    n_candidates: int = 0,
    on_step: OnStep | None = None,
    checkpoint: Checkpoint | None = None,
    hold: HoldOut = hold_out,
    rival: Rival | None = None,
) -> Watched:
    """Train for as long as held-out observed cells are predicted better and better, by CRPS; for at most `config.steps`.

    First at a constant rate, some of the observed cells held out. They are predicted at steps that grow by a quarter
    each time: by all runs that share their data together, and with averaged parameters, which do as well as
    those of a run of that length whose rate has fallen. Then on all cells, from seven tenths (beside a rival, which asks
    for less, 85 %) of the best number of steps up to that number, the rate falling to zero; where the scores still fell at
    the end, from there on for as many steps more, unless they would not help a rival. Each part is a hundred steps at
    least: among fewer, scores of small tables are noise.
    """
    started, most = time.monotonic(), runs[0].config.max_seconds
    held = _Held.of(runs, hold, n_candidates)
    if held is None:
        return Watched([[history] for history in train_many(runs, on_step, checkpoint=checkpoint)], runs[0].config.steps)
    watch = _Watch(held.score, nn.ModuleList([Trained(run.posterior, run.objective) for run in runs]), rival)
    first = held.without_held_out(0.7)
    histories = train_many(first, on_step, watch, checkpoint)
    if histories[0].interrupted or not watch.scores:
        return Watched([[history] for history in histories], max(histories[0].steps, default=1))
    start, best = watch.back_to_start()
    found = held.found()
    left = most and processes.agreed(most - (time.monotonic() - started))
    too_late = left is not None and left < 0.1 * (most or 0.0)  # the first part took all of it: nothing settles
    if too_late or (rival is not None and not rival.helped_by(found[1][0])):
        return Watched([[history] for history in histories], start, *found)
    rest = max(min(100, runs[0].config.steps), round(best - start))
    second = [
        replace(run, config=replace(run.config, steps=rest, decay=1.0, max_seconds=left), seed=run.seed + 1) for run in runs
    ]
    both = [list(pair) for pair in zip(histories, train_many(second, on_step, checkpoint=checkpoint), strict=True)]
    return Watched(both, start + rest, *found)


@dataclass(frozen=True)
class _Held:
    """Held-out cells of runs, which share them where they share their data; splits: by the identity of the data."""

    runs: Sequence[Run]
    splits: dict[int, Split]
    n_candidates: int

    @classmethod
    def of(cls, runs: Sequence[Run], hold: HoldOut, n_candidates: int) -> "_Held | None":
        """Hold cells out of the data of all runs; None where that is not possible."""
        splits = {id(run.obs): hold(run.obs, run.seed, run.posterior.corruption) for run in _one_each(runs)}
        possible = {key: split for key, split in splits.items() if split is not None}
        return cls(runs, possible, n_candidates) if len(possible) == len(splits) else None

    def predict(self, run: Run) -> Tensor:
        """Predict the held-out cells of a run's data, by all runs that share them."""
        together = [other.posterior for other in self.runs if other.obs is run.obs]
        return self.splits[id(run.obs)].predict(together, self.n_candidates)

    def score(self) -> float:
        """Compute the mean CRPS of the held-out cells."""
        some = _one_each(self.runs)[:16]  # of many, the first speak for all
        return sum(self.splits[id(run.obs)].crps(self.predict(run), run.posterior.corruption) for run in some) / len(some)

    def without_held_out(self, time_share: float) -> list[Run]:
        """Give the runs at a constant rate, without these cells, for a share of the time."""
        most = self.runs[0].config.max_seconds
        changes: dict[str, Any] = {"decay": 0.0, "max_seconds": most and time_share * most}
        return [replace(run, obs=self.splits[id(run.obs)].seen, config=replace(run.config, **changes)) for run in self.runs]

    def found(self) -> tuple[list[Split], list[Tensor]]:
        """Give the held-out cells of each run, and how they are predicted."""
        predicted = {id(run.obs): self.predict(run).cpu() for run in _one_each(self.runs)}
        each = [id(run.obs) for run in self.runs]
        return [self.splits[key] for key in each], [predicted[key] for key in each]


def _one_each(runs: Sequence[Run]) -> list[Run]:
    """One run of each data set: the last of those that share it, at the place of the first."""
    return list({id(run.obs): run for run in runs}.values())


def _best_step(scores: dict[int, float]) -> float:
    """The number of steps with the lowest score.

    By a parabola over the logarithm of the steps, as single scores are noisy. Only the last two doublings count: the fall
    before them is much steeper. Where they still fall it is the last step.
    """
    last = max(scores)
    steps = [step for step in scores if 4 * step >= last]
    if len(steps) < 6:
        return float(min(scores, key=scores.__getitem__))
    logs = np.log(steps)
    curve = np.polynomial.Polynomial.fit(logs, [scores[step] for step in steps], 2)
    places = np.linspace(logs[0], logs[-1], 1000)
    return float(np.exp(places[curve(places).argmin()]))
