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
from unfade.errors import InvalidFile, TrainingFailed
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.methods.registry import FLOW_TRAINING, FitResult, fit_many
from unfade.metrics import coverage_due, covered, crps, energy_score
from unfade.models.architectures import PAPER, Architecture, flow_architecture
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.paper.datasets import LOADERS, Dataset, load
from unfade.paper.settings import NOISE, TABLE_1, Schedule
from unfade.paper.ways import ALL_WAYS, FLOW, WAYS, Way
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


GREY_LEVELS = 2 / 255  # distance of pixels that no purpose needs told apart


@dataclass(frozen=True)
class Study:
    """Conditions of an experiment: schedule, folder of data, device, networks, whether the noise level is known.

    data, missing, ways, lims, masks: parts of tables to run; a lim is the width of the interval of log-variances; no ways
    or masks are all of them. by_row: keep scores of single rows along with their means, to compare methods row by row.
    """

    schedule: Schedule
    data_dir: Path | None
    device: torch.device
    architecture: Architecture = PAPER
    noise_known: bool = True
    together: int = 30  # models trained side by side
    data: Sequence[str] = tuple(LOADERS)
    missing: Sequence[float] = tuple(dict.fromkeys(missing for _, missing in TABLE_1))
    ways: Sequence[str] = ()
    lims: Sequence[float] = (10.0, 20.0)
    masks: Sequence[int] = ()
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

    def fits(
        self,
        way: Way,
        data: Sequence[Observations],
        seeds: Sequence[int],
        settings: Sequence[dict[str, Any]] | None = None,
        image: tuple[int, int] | None = None,
    ) -> list[FitResult[PosteriorLVM]]:
        """Fit the method of a way to draw, once for each set of observations, together; flows one after another.

        settings: of the method, for each. image: height and width of the rows, which flows need to know.
        """
        if way.method == "flow":
            fits = [fit_many("flow", [self._flow_task(*each, image)], [{}])[0] for each in zip(data, seeds, strict=True)]
        else:
            networks, training = way.architecture(self.architecture), way.training(self.schedule.training)
            tasks = [
                Task(obs, self._noise(way), networks, training, seed, fixed_steps=not way.stopped)
                for obs, seed in zip(data, seeds, strict=True)
            ]
            fits = fit_many(way.method, tasks, [{**dict(way.settings), **each} for each in settings or [{}] * len(tasks)])
        if any(fit.interrupted for fit in fits):  # half-trained models are nobody's result
            raise KeyboardInterrupt
        for fit in fits:
            fit.posterior.conditioned = way.conditioned
        return fits

    def fit(
        self,
        way: Way,
        data: Sequence[Observations],
        seeds: Sequence[int],
        settings: Sequence[dict[str, Any]] | None = None,
    ) -> list[PosteriorLVM]:
        """Fit posteriors for a way to draw."""
        return [fit.posterior for fit in self.fits(way, data, seeds, settings)]

    def _flow_task(self, obs: Observations, seed: int, image: tuple[int, int] | None) -> Task:
        """Describe the fit of a flow, within [0, 1]."""
        training = replace(FLOW_TRAINING, steps=min(FLOW_TRAINING.steps, self.schedule.training.steps))
        networks = flow_architecture(image or (1,), self.device.type == "cuda")
        ends = torch.tensor([0.0, 1.0], device=self.device)[:, None].expand(2, obs.values.shape[1])
        size = None if image is None else (*image, 1)
        deadline = None if self.seconds is None else time.monotonic() + self.seconds
        return Task(obs, self._noise(FLOW["flow"]), networks, training, seed, image=size, ends=ends, deadline=deadline)

    def _noise(self, way: Way) -> GaussianNoise:
        return way.noise(self.noise_known).to(self.device)

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
        black pixels would dominate it. exploding: share of draws of rows with an entry more than 1 outside of [0, 1].
        """
        some, truth = obs[: self.schedule.scored], clean[: self.schedule.scored]
        vary = _observed_variance(obs) > NOISE**2 + 0.01
        counted = ~some.observed if columns is None else ~some.observed & columns.to(truth.device)
        totals, energies, each = dict.fromkeys(("squares", "all", "variance", "covered", "near", "far"), 0.0), [], []
        n_candidates, started = self.schedule.n_candidates if refined else 0, time.monotonic()
        blocks = draw_blocks(
            posterior, some, torch.arange(len(some)), self.schedule.draws, seed=1, n_candidates=n_candidates
        )
        for where, drawn in blocks:
            target, missing = truth[where], counted[where]
            energies.append(energy_score(drawn, target, missing))
            each.append((crps(drawn, target) * missing).sum(1))
            squares = (drawn.mean(0) - target).square()
            totals["squares"] += float(squares[missing].sum())
            totals["all"] += float(squares.sum())
            totals["far"] += float(((drawn - 0.5).abs() > 1.5).any(-1).double().mean(0).sum())
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
            "PSNR": _psnr(totals["squares"] / cells),
            "PSNR, all entries": _psnr(totals["all"] / truth.numel()),
            "exploding": totals["far"] / len(some),
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
        return [
            {
                "ELBO": each.elbo,
                "ELBO's standard error": each.standard_error,
                "ELBO of q(z|y)": each.start,
                "ELBO's median": each.median,
                "ELBO's K": each.divergence,
            }
            for each in found
        ]

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


def _psnr(square: float) -> float:
    return float(-10 * torch.tensor(square).log10())


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
        self.found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {"seconds": 0.0}
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
    known: dict[str, Way] = ALL_WAYS,
) -> None:
    """Train and score models whose results are missing, way by way, as many together as fit.

    A group whose training fails for good has no results.
    """
    for trained in dict.fromkeys(known[name].trained for name in names):
        ways = {name: known[name] for name in names if known[name].trained == trained}
        todo = [s for s in settings if any(key(s, name, label) not in results for name in ways)]
        models = list(dict.fromkeys(replace(setting, trained_on=False) for setting in todo))  # scored on one part or both
        for group in study.groups(models, alike=trained.stopped):
            say(f"{label}: {next(iter(ways))}, {len(group)} models together, first {group[0]}")
            train, seeds = [study.rows(setting, "train")[1] for setting in group], [setting.mask for setting in group]
            started = time.monotonic()
            try:
                fits = study.fits(trained, train, seeds, image=study.dataset(group[0].data).image)
            except TrainingFailed as error:
                say(str(error))
                continue
            seconds = (time.monotonic() - started) / len(group)
            for trained_on in (False, True):
                each = [(replace(s, trained_on=trained_on), fit) for s, fit in zip(group, fits, strict=True)]
                if asked := [(setting, fit) for setting, fit in each if setting in todo]:
                    _score(study, results, [s for s, _ in asked], label, ways, [fit for _, fit in asked], seconds)


def _score(
    study: Study,
    results: Results,
    group: Sequence[Setting],
    label: str,
    ways: dict[str, Way],
    fits: Sequence[FitResult[PosteriorLVM]],
    seconds: float,
) -> None:
    """Score posteriors, one for each setting of a group, drawn from in each way.

    seconds: training time of one.
    """
    test = [study.rows(setting, "train" if setting.trained_on else "test") for setting in group]
    posteriors = [fit.posterior for fit in fits]
    elbos: dict[bool, list[dict[str, float]]] = {}
    for name, way in ways.items():
        for posterior in posteriors:
            posterior.conditioned = way.conditioned
        if way.conditioned not in elbos:
            elbos[way.conditioned] = study.elbos(posteriors, *map(list, zip(*test, strict=True)))
        found = {}
        for setting, elbo, fit, rows in zip(group, elbos[way.conditioned], fits, test, strict=True):
            scores = study.scores(fit.posterior, *rows, way.refined, study.dataset(setting.data).distinct)
            said = {**noise_of(fit.posterior, rows[1]), "training seconds": seconds}
            found[key(setting, name, label)] = elbo | scores | said | localisation(fit)
        results.put(found)


@torch.no_grad()
def noise_of(posterior: PosteriorLVM, obs: Observations) -> dict[str, float]:
    """Return the noise level; where it is inferred row by row, the mean and quantiles over rows."""
    if getattr(posterior, "unknowns", None) is None:
        return {"noise": float(posterior.corruption.std.mean())}
    assert posterior.unknowns is not None
    z = posterior.latent(obs).base_dist.loc
    levels = posterior.unknowns(z, obs.values, obs.observed.to(z.dtype)).base_dist.loc.exp().flatten()
    quantiles = {f"noise, {share:.0%} of rows below": float(levels.quantile(share)) for share in (0.05, 0.5, 0.95)}
    return {"noise": float(levels.mean()), **quantiles}


def localisation(fit: FitResult[PosteriorLVM]) -> dict[str, float]:
    """Return the mean of R - Q in the last steps of training, which the printed TAE is to bring to C; of others nothing."""
    terms = fit.histories[-1].terms if fit.histories else {}
    return {"R - Q": terms["R"][-1] - terms["Q"][-1]} if {"R", "Q"} <= set(terms) else {}


def key(setting: Setting, way: str, label: str) -> str:
    """Name a result."""
    return f"{setting}; {way}; {label}"


def over_repeats(values: Sequence[float]) -> tuple[float, float]:
    """Compute mean and standard deviation; 0 for a single value."""
    return mean(values), stdev(values) if len(values) > 1 else 0.0
