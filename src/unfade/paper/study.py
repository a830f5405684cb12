"""Common parts of the experiments: corrupted data, models trained together, scores, results that survive a kill."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from unfade.corruption.masks import mask_at_random, mask_window
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.diagnostics.evaluation import reconstruction_elbos
from unfade.errors import InvalidFile
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.methods.registry import FLOW_TRAINING, fit_many
from unfade.metrics import coverage_due, covered, crps, energy_score
from unfade.models.architectures import PAPER, Architecture, flow_architecture
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.paper.datasets import LOADERS, Dataset, load
from unfade.paper.settings import NOISE, TABLE_1, Schedule
from unfade.rng import generator_normals
from unfade.storage import whole_or_nothing

Say = Callable[[str], None]  # told what is being done


@dataclass(frozen=True)
class Setting:
    """Data and their corruption. missing: share of entries, or None for a visible window of 10 x 10; mask: its seed.

    rows: number of training rows (None: as in the schedule); trained_on: score these instead of test rows.
    """

    data: str
    missing: float | None
    mask: int = 0
    rows: int | None = None
    trained_on: bool = False

    @property
    def hidden(self) -> str:
        """Missing entries, in words."""
        return "window" if self.missing is None else f"{self.missing:.0%} missing"

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", {self.rows} rows"
        return f"{self.data}, {self.hidden}, mask {self.mask}{rows}" + (", trained on" if self.trained_on else "")


@dataclass(frozen=True)
class Way:
    """A way to draw: the method that trains for it, with closed-form conditioning or not, resampled or not.

    stopped: training ends by early stopping, at most after all steps.
    """

    method: str
    conditioned: bool
    refined: bool = False
    stopped: bool = False


WAYS = {
    "MVAE": Way("mvae", conditioned=False),
    "MIWAE": Way("miwae", conditioned=False),
    "MIWAE, conditioned": Way("miwae", conditioned=True),
    "MIWAE, conditioned, resampled": Way("miwae", conditioned=True, refined=True),
    "TAE as printed": Way("tae-paper", conditioned=False),
    "unfade": Way("tae", conditioned=True, stopped=True),
    "unfade, resampled": Way("tae", conditioned=True, refined=True, stopped=True),
}
# The strongest baseline as unfade is trained, for scoreboards.
STOPPED = {
    "MIWAE, stopped": Way("miwae", conditioned=True, stopped=True),
    "MIWAE, stopped, resampled": Way("miwae", conditioned=True, refined=True, stopped=True),
}
FLOW = {"flow": Way("flow", conditioned=False, stopped=True)}
GREY_LEVELS = 2 / 255  # distance of pixels that no purpose needs told apart


@dataclass(frozen=True)
class Study:
    """Conditions of an experiment: schedule, folder of data, device, networks, whether the noise level is known.

    data, missing, ways, lims: parts of tables to run; a lim is the width of the interval of log-variances. by_row: keep
    scores of single rows along with their means, to compare methods row by row.
    """

    schedule: Schedule
    data_dir: Path | None
    device: torch.device
    architecture: Architecture = PAPER
    noise_known: bool = True
    together: int = 30  # models trained side by side
    data: Sequence[str] = tuple(LOADERS)
    missing: Sequence[float] = tuple(dict.fromkeys(missing for _, missing in TABLE_1))
    ways: Sequence[str] = tuple(WAYS)
    lims: Sequence[float] = (10.0, 20.0)
    by_row: bool = False
    seconds: float | None = None  # that a flow is trained for at most

    def rows(self, setting: Setting, part: str) -> tuple[Tensor, Observations]:
        """Return clean rows of the "train" or "test" part and their observations, on the device."""
        dataset = self.dataset(setting.data)
        clean = self._trained_on(setting) if part == "train" else dataset.test[: self.schedule.test_rows]
        return clean.to(self.device), corrupt(clean, setting, dataset, part).to(self.device)

    def _trained_on(self, setting: Setting) -> Tensor:
        return self.dataset(setting.data).train[: self.schedule.train_rows][: setting.rows]

    def dataset(self, name: str) -> Dataset:
        """Load a data set, once."""
        key = name, self.data_dir
        if key not in _LOADED:
            _LOADED[key] = load(name, self.data_dir)
        return _LOADED[key]

    def fit(
        self,
        method: str,
        data: Sequence[Observations],
        seeds: Sequence[int],
        settings: Sequence[dict[str, Any]] | None = None,
        stopped: bool = False,
        image: tuple[int, int] | None = None,
    ) -> list[PosteriorLVM]:
        """Fit posteriors of one method, one for each set of observations, together.

        image: height and width of the rows, which flows need to know.

        stopped: as in `Way`. Entries are held out during 0.7 of the steps at most; the rest trains on all of them.
        """
        training = self.schedule.training
        if method == "flow":
            return self._fit_flows(data, seeds, image)
        training = replace(training, steps=max(1, int(0.7 * training.steps))) if stopped else training
        tasks = [
            Task(obs, self._noise(), self.architecture, training, seed, fixed_steps=not stopped)
            for obs, seed in zip(data, seeds, strict=True)
        ]
        fits = fit_many(method, tasks, settings or [{}] * len(tasks))
        if any(fit.interrupted for fit in fits):  # half-trained models are nobody's result
            raise KeyboardInterrupt
        return [fit.posterior for fit in fits]

    def _fit_flows(
        self, data: Sequence[Observations], seeds: Sequence[int], image: tuple[int, int] | None
    ) -> list[PosteriorLVM]:
        """Fit flows, one after another, within [0, 1]."""
        steps = min(FLOW_TRAINING.steps, self.schedule.training.steps)
        networks = flow_architecture(image or (1,), self.device.type == "cuda")
        ends = torch.tensor([0.0, 1.0], device=self.device)
        tasks = [
            Task(
                obs, self._noise(), networks, replace(FLOW_TRAINING, steps=steps), seed,
                image=None if image is None else (*image, 1), ends=ends[:, None].expand(2, obs.values.shape[1]),
            )
            for obs, seed in zip(data, seeds, strict=True)
        ]  # fmt: skip
        fits = [fit_many("flow", [replace(task, deadline=self._deadline())], [{}])[0] for task in tasks]
        if any(fit.interrupted for fit in fits):
            raise KeyboardInterrupt
        return [fit.posterior for fit in fits]

    def _deadline(self) -> float | None:
        return None if self.seconds is None else time.monotonic() + self.seconds

    def fit_way(self, way: Way, data: Sequence[Observations], seeds: Sequence[int]) -> list[PosteriorLVM]:
        """Fit posteriors for a way to draw."""
        posteriors = self.fit(way.method, data, seeds, stopped=way.stopped)
        for posterior in posteriors:
            posterior.conditioned = way.conditioned
        return posteriors

    def _noise(self) -> GaussianNoise:
        noise = GaussianNoise(NOISE) if self.noise_known else GaussianNoise(torch.full((1,), 0.3), learn=True)
        return noise.to(self.device)

    def groups(self, settings: Sequence[Setting], alike: bool = False) -> Iterator[list[Setting]]:
        """Group settings whose models have one shape, as many as are trained together.

        alike: in a group only masks differ, as models trained together share the number of steps.
        """
        by_shape: dict[Any, list[Setting]] = {}
        for setting in settings:
            kind = (self._trained_on(setting).shape, alike and (setting.data, setting.missing))
            by_shape.setdefault(kind, []).append(setting)
        for same in by_shape.values():
            yield from (same[i : i + self.together] for i in range(0, len(same), self.together))

    def scores(
        self, posterior: PosteriorLVM, clean: Tensor, obs: Observations, refined: bool, columns: Tensor | None = None
    ) -> dict[str, Any]:
        """Compute energy score, CRPS, coverage and PSNR on the missing entries of the first `scored` rows.

        columns: those that count; None: all. Coverage leaves out entries that hardly vary in the observations: constant
        black pixels would dominate it.
        """
        some, truth = obs[: self.schedule.scored], clean[: self.schedule.scored]
        vary = _observed_variance(obs) > NOISE**2 + 0.01
        counted = ~some.observed if columns is None else ~some.observed & columns.to(truth.device)
        totals, energies, each = {"squares": 0.0, "variance": 0.0, "covered": 0.0, "near": 0.0}, [], []
        n_candidates, started = self.schedule.n_candidates if refined else 0, time.monotonic()
        blocks = draw_blocks(
            posterior, some, torch.arange(len(some)), self.schedule.draws, seed=1, n_candidates=n_candidates
        )
        for where, drawn in blocks:
            target, missing = truth[where], counted[where]
            energies.append(energy_score(drawn, target, missing))
            each.append((crps(drawn, target) * missing).sum(1))
            totals["squares"] += float((drawn.mean(0) - target).square()[missing].sum())
            totals["variance"] += float(drawn.var(0)[missing].sum())
            totals["covered"] += float(covered(drawn, target, 0.9)[missing & vary].sum())
            totals["near"] += float(covered(drawn, target, 0.9, GREY_LEVELS)[missing & vary].sum())
        cells, energy, total = float(counted.sum()), torch.cat(energies).double(), torch.cat(each).double()
        by_row = {"energy score": energy, "CRPS": total * (len(some) / cells)}
        kept = {name: [round(value, 6) for value in rows.tolist()] for name, rows in by_row.items()}
        return ({"by row": kept} if self.by_row else {}) | {
            "energy score": float(energy.mean()),
            "energy score's standard error": float(energy.std() / len(some) ** 0.5),
            "CRPS": float(total.sum()) / cells,
            "CRPS's standard error": float(total.std()) * len(some) ** 0.5 / cells,
            "PSNR": float(-10 * torch.tensor(totals["squares"] / cells).log10()),
            "coverage": totals["covered"] / max(1.0, float((counted & vary).sum())),
            "coverage within two grey levels": totals["near"] / max(1.0, float((counted & vary).sum())),
            "error over sd": (totals["squares"] / (totals["variance"] * (1 + 1 / self.schedule.draws))) ** 0.5,
            "coverage due": coverage_due(0.9, self.schedule.draws),
            "drawing seconds": time.monotonic() - started,
        }

    def elbos(
        self, posteriors: Sequence[PosteriorLVM], clean: Sequence[Tensor], obs: Sequence[Observations]
    ) -> list[dict[str, float]]:
        """Compute the ELBO of the truth; its inference network is trained on these rows, as the paper's on the test set.

        Flows have a density, so that of the scored rows is taken, with its divergence estimated by a random probe.
        """
        if any(isinstance(posterior, FlowPosterior) for posterior in posteriors):
            return [self._density(*each) for each in zip(posteriors, clean, obs, strict=True)]
        found = reconstruction_elbos(posteriors, obs, clean, self.architecture, self.schedule.inference)
        return [{"ELBO": each.elbo, "ELBO's standard error": each.standard_error} for each in found]

    def _density(self, posterior: Any, clean: Tensor, obs: Observations) -> dict[str, float]:
        parts, rows = [], min(len(clean), self.schedule.scored)
        for start in range(0, rows, 100):
            some = slice(start, min(start + 100, rows))
            normals = generator_normals(torch.Generator(self.device).manual_seed(start))
            parts.append(posterior.log_prob(clean[some], obs[some], normals))
        values = torch.cat(parts).double()
        return {"ELBO": float(values.mean()), "ELBO's standard error": float(values.std() / len(values) ** 0.5)}


_LOADED: dict[tuple[str, Path | None], Dataset] = {}


def corrupt(clean: Tensor, setting: Setting, dataset: Dataset, part: str) -> Observations:
    """Add noise of sd 0.1 to clean rows, and hide entries by the setting's own seed."""
    generator = torch.Generator().manual_seed(1000 * setting.mask + (part == "test"))
    if setting.missing is None:
        observed = mask_window(len(clean), dataset.image or (1, 1), (10, 10), generator).flatten(1)
    else:
        observed = mask_at_random(clean.shape, setting.missing, generator)
    return GaussianNoise(NOISE).corrupt(clean, observed, generator_normals(generator))


def _observed_variance(obs: Observations) -> Tensor:
    count = obs.observed.sum(0).clamp(min=1)
    mean = obs.values.sum(0) / count
    return ((obs.values - mean).square() * obs.observed).sum(0) / count


class Results:
    """Results of an experiment by name, written as they come with its seconds; no result is computed twice."""

    def __init__(self, folder: Path, settings: dict[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / "results.json"
        kept = folder / "settings.json"
        if kept.exists() and json.loads(kept.read_text()) != settings:
            raise InvalidFile(f"{folder} holds results of other settings. Choose another folder, or delete it.")
        _write_json(kept, settings)
        self.found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self._started = time.monotonic() - self.found.get("seconds", 0.0)

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def __getitem__(self, key: str) -> Any:
        return self.found[key]

    def put(self, found: dict[str, Any]) -> None:
        """Add results and write the file."""
        self.found |= found | {"seconds": time.monotonic() - self._started}
        _write_json(self.path, self.found)


def _write_json(path: Path, content: Any) -> None:
    with whole_or_nothing(path) as part:
        Path(part).write_text(json.dumps(content, indent=1))


def fill(
    study: Study,
    results: Results,
    settings: Sequence[Setting],
    label: str,
    say: Say,
    names: Sequence[str] = tuple(WAYS),
    known: dict[str, Way] = WAYS,
) -> None:
    """Train and score models whose results are missing, method by method, as many together as fit."""
    for method, stopped in dict.fromkeys((known[name].method, known[name].stopped) for name in names):
        ways = {name: known[name] for name in names if (known[name].method, known[name].stopped) == (method, stopped)}
        todo = [s for s in settings if any(key(s, name, label) not in results for name in ways)]
        models = list(dict.fromkeys(replace(setting, trained_on=False) for setting in todo))  # scored on one part or both
        for group in study.groups(models, alike=stopped):
            say(f"{label}: {method}, {len(group)} models together, first {group[0]}")
            train, seeds = [study.rows(setting, "train")[1] for setting in group], [setting.mask for setting in group]
            started = time.monotonic()
            image = study.dataset(group[0].data).image
            posteriors = study.fit(method, train, seeds, stopped=stopped, image=image)
            seconds = (time.monotonic() - started) / len(group)
            for trained_on in (False, True):
                each = [(replace(s, trained_on=trained_on), p) for s, p in zip(group, posteriors, strict=True)]
                if asked := [(setting, posterior) for setting, posterior in each if setting in todo]:
                    _score(study, results, [s for s, _ in asked], label, ways, [p for _, p in asked], seconds)


def _score(
    study: Study,
    results: Results,
    group: Sequence[Setting],
    label: str,
    ways: dict[str, Way],
    posteriors: Sequence[PosteriorLVM],
    seconds: float,
) -> None:
    """Score posteriors, one for each setting of a group, drawn from in each way.

    seconds: training time of one.
    """
    test = [study.rows(setting, "train" if setting.trained_on else "test") for setting in group]
    elbos: dict[bool, list[dict[str, float]]] = {}
    for name, way in ways.items():
        for posterior in posteriors:
            posterior.conditioned = way.conditioned
        if way.conditioned not in elbos:
            elbos[way.conditioned] = study.elbos(posteriors, *map(list, zip(*test, strict=True)))
        found = {}
        for setting, elbo, posterior, rows in zip(group, elbos[way.conditioned], posteriors, test, strict=True):
            scores = study.scores(posterior, *rows, way.refined, study.dataset(setting.data).distinct)
            said = {"noise": float(posterior.corruption.std.mean()), "training seconds": seconds}
            found[key(setting, name, label)] = elbo | scores | said
        results.put(found)


def key(setting: Setting, way: str, label: str) -> str:
    """Name a result."""
    return f"{setting}; {way}; {label}"


def over_repeats(values: Sequence[float]) -> tuple[float, float]:
    """Compute mean and standard deviation; 0 for a single value."""
    return mean(values), stdev(values) if len(values) > 1 else 0.0
