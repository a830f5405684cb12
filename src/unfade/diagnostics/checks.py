"""Checks of a recovery without the truth: verdicts in words, each with its number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unfade.data.observations import AT_ONCE, Observations
from unfade.data.support_gaps import describe_gaps
from unfade.diagnostics.comparison import Comparison, compare_cells, compare_pixels
from unfade.diagnostics.coverage import (
    COLLAPSED,
    LEAST,
    ColumnCheck,
    check_columns,
    collapsed,
    relative_width,
    relative_width_beneath_noise,
)
from unfade.diagnostics.missingness import MissingLink, missing_links
from unfade.diagnostics.predictions import ColumnNoise, column_noise, held_out, noise_by_column
from unfade.errors import InvalidData
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.models.architectures import is_image
from unfade.models.kinds import all_of, in_words, kind_of, shares
from unfade.models.latent_variable import Ensemble
from unfade.training.loop import FEW_STEPS, Ended, History

LEAD = {
    "green": "No check failed.",
    "amber": "Usable with care: read the warnings below.",
    "red": "Do not rely on these results before the red verdicts are resolved.",
}
LARGEST = 4096  # pixels of an image of which a page shows many


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    Parameters
    ----------
    what : str
        Name of the check.
    level : {"green", "amber", "red"}
    says : str
        The finding, in words.
    number : float
        The statistic that the level depends on.
    todo : str
        What to do.
    """

    what: str
    level: str
    says: str
    number: float
    todo: str = ""

    def __str__(self) -> str:
        return f"[{self.level:5}] {self.what}: {self.says}" + (f" {self.todo}" if self.todo else "")


@dataclass(frozen=True)
class Diagnosis:
    """Results of all checks, the most serious first.

    Parameters
    ----------
    verdicts : tuple of Verdict
    cells : HeldOut
        Observed cells that were hidden and predicted.
    columns : tuple of ColumnCheck
    simple : Comparison
        Scores of simple methods.
    links : tuple of MissingLink
    noise : tuple of ColumnNoise
    """

    verdicts: tuple[Verdict, ...]
    cells: HeldOut
    columns: tuple[ColumnCheck, ...]
    simple: Comparison
    links: tuple[MissingLink, ...]
    noise: tuple[ColumnNoise, ...]

    @property
    def level(self) -> str:
        """Level of the most serious verdict."""
        return max((verdict.level for verdict in self.verdicts), key=("green", "amber", "red").index)

    @property
    def summary(self) -> str:
        """The verdict of all checks in a sentence, and how many passed."""
        passed = sum(verdict.level == "green" for verdict in self.verdicts)
        return f"{LEAD[self.level]} {passed} of {len(self.verdicts)} checks passed."

    def __str__(self) -> str:
        return "\n".join([self.summary, *map(str, self.verdicts)])


def diagnose(model: FittedModel, X: Any) -> Diagnosis:
    """Judge a fitted model without the truth, by the data it was fitted on.

    It uses the observed cells that training held out; if it held out none (a fixed number of steps, a model from a
    file), another model is fitted with a tenth of the cells hidden.

    Parameters
    ----------
    model : FittedModel
    X : array, tensor or frame, (samples, *event)
        The data of the fit.

    Returns
    -------
    Diagnosis
    """
    data = model.read(X)
    few = max(1, min(1000, AT_ONCE // data.obs.event_shape.numel()))
    entered = data.some_features(model.encoder, slice(few)).to(model.parameters.torch_device())
    if is_image(model.encoder.event_shape):
        return _diagnose_images(model, X, entered)
    cells = model.held_out
    if cells is None:
        cells = held_out(model.parameters, X, seed=model.seed)
    if not len(cells):
        raise InvalidData("No observed cell could be held out, so there is nothing to judge by. Give more observed cells.")
    linear = all_of(model.posterior, "linear model", "trees")
    own = "linear Gaussian" if all_of(model.posterior, "linear model") else ""
    simple = compare_cells(cells, seed=model.seed, without=own, timeline=data.timeline)
    columns, links = check_columns(cells), missing_links(cells)
    noise = tuple(column_noise(cells, model)) if _noisy(model) else ()
    verdicts = [
        _calibration(cells),
        _collapse(cells, noise_by_column(model, cells.kinds, cells.seen.shape[1:])),
        _by_column(columns),
        _against_simple(simple),
        *([] if linear else [_convergence(model.histories, model.parameters.max_steps)]),
        *_models(model.posterior),
        _missingness(links),
        _enough(cells),
        *_support(model),
        *_noise(noise, stated=not isinstance(model.parameters.noise, str)),
        *([] if linear else _latents(model.posterior, entered)),
        *_localisation(model.histories, (model.parameters.settings or {}).get("C", 10.0)),
    ]
    order = ("red", "amber", "green")
    return Diagnosis(tuple(sorted(verdicts, key=lambda v: order.index(v.level))), cells, columns, simple, links, noise)


def large_images(model: FittedModel) -> bool:
    """Check whether samples have so many pixels that a few of them fill a page."""
    return len(model.encoder.event_shape) > 1 and len(model.encoder.modelled) > LARGEST


def _diagnose_images(model: FittedModel, X: Any, entered: Observations) -> Diagnosis:
    """Judge a model of images by all held-out pixels together, compared with interpolation."""
    cells = model.held_out
    if cells is None and large_images(model):
        raise InvalidData(
            "Training held no pixels out, so there is nothing to judge by: fit without max_steps, by method 'auto', and "
            "use the recoverer that was fitted, not one from a file."
        )
    cells = held_out(model.parameters, X, seed=model.seed) if cells is None else cells
    if not len(cells):
        raise InvalidData("No pixel could be held out, so there is nothing to judge by. Give more observed pixels.")
    cells = cells.only(np.random.default_rng(0).permutation(len(cells))[:20_000])
    simple = compare_pixels(cells, model.encoder.event_shape)
    verdicts = [
        _calibration(cells),
        _collapse(cells, noise_by_column(model, None, cells.seen.shape[1:])),
        _against_simple(simple),
        _convergence(model.histories, model.parameters.max_steps),
        _enough(cells),
        *_latents(model.posterior, entered),
    ]
    order = ("red", "amber", "green")
    return Diagnosis(tuple(sorted(verdicts, key=lambda v: order.index(v.level))), cells, (), simple, (), ())


def _models(posterior: Ensemble | None) -> list[Verdict]:
    """List the kinds of models that the draws come from, if there are several."""
    if posterior is None or len(found := shares(posterior)) == 1:
        return []
    says = f"{in_words(posterior)}; held-out cells have chosen these shares."
    return [Verdict("models", "green", says, max(found.values()))]


def _collapse(cells: HeldOut, noise: Any) -> Verdict:
    """Check whether draws have collapsed, or are narrow."""
    numbers = cells.numbers()
    if not len(numbers):
        return Verdict("width of draws", "green", "there are no columns of numbers.", float("nan"))
    found, plain = relative_width(numbers), numbers.as_drawn()
    if collapsed(plain, noise):  # before draws were widened: that cannot bring back what was lost
        found = relative_width(plain)
        if found >= COLLAPSED:
            found = relative_width_beneath_noise(plain, noise)[0]
        says = f"draws have collapsed: their width is {found:.0%} of that needed for held-out cells."
        return Verdict("width of draws", "red", says, found, "Do not use intervals; fit again by method 'auto'.")
    says = f"the width of draws agrees with their errors ({found:.0%})."
    if found < 0.85:
        says = f"draws are narrow: their width is {found:.0%} of that needed for held-out cells."
        return Verdict("width of draws", "amber", says, found, "Widen intervals, or fit with calibrate=True.")
    return Verdict("width of draws", "green", says, found)


def _calibration(cells: HeldOut, level: float = 0.9) -> Verdict:
    """Check the coverage of intervals over all held-out cells of numbers."""
    numbers = cells.numbers()
    if not len(numbers):
        return Verdict("90 % intervals", "green", "there are no columns of numbers.", float("nan"))
    inside, due = numbers.covered(level), numbers.due(level)
    chance = np.sqrt(due * (1 - due) / len(numbers))  # the least it can be: all of a few cells say little
    share, error = float(inside.mean()), max(chance, numbers.error_by_row(inside.astype(float)))
    says = (
        f"empirical coverage {share:.1%} of {len(numbers)} held-out cells "
        f"(nominal for {len(numbers.draws)} draws: {due:.1%}, ± {2 * error:.1%})."
    )
    off = max(0.0, abs(share - due) - 2 * error)
    if off <= 0.03:
        return Verdict("90 % intervals", "green", says, share)
    todo = "They are too narrow: widen them." if share < due else "They are wider than necessary."
    return Verdict("90 % intervals", "red" if share < due and off > 0.1 else "amber", says, share, todo)


def _by_column(checks: Sequence[ColumnCheck]) -> Verdict:
    """Check the coverage of intervals of each column."""
    columns = [column for column in checks if column.cells >= LEAST]
    off = [column for column in columns if column.finding != "within tolerance"]
    if not columns:
        return Verdict("coverage per column", "amber", f"no column has the {LEAST} held-out cells that a check needs.", 0.0)
    if not off:
        says = f"coverage is within tolerance in all {len(columns)} columns with {LEAST} held-out cells or more."
        return Verdict("coverage per column", "green", says, 0.0)
    worst = sorted(off, key=lambda column: abs(column.coverage - (column.low + column.high) / 2), reverse=True)[:5]
    listed = "; ".join(f"{c.column} {c.finding} ({c.coverage:.0%}, nominal: {(c.low + c.high) / 2:.0%})" for c in worst)
    narrow = any(column.finding == "too narrow" for column in off)
    todo = "Trust intervals of these columns less." if narrow else ""
    return Verdict(
        "coverage per column",
        "amber",
        f"{len(off)} of {len(columns)} columns are outside tolerance: {listed}.",
        float(len(off)),
        todo,
    )


def _against_simple(simple: Comparison) -> Verdict:
    """Compare CRPS with the best simple method."""
    (_, score), *others = simple.scores.items()
    name, best = min(others, key=lambda pair: pair[1])
    gain = 1 - score / best if best > 0 else 0.0
    percent = f"{abs(gain):.0%}"
    how = "as well as" if percent == "0%" else f"{percent} {'better' if gain >= 0 else 'worse'} than"
    says = f"held-out cells are predicted {how} by {name}, the best simple method."
    if best + 2 * simple.errors[name] < score:
        return Verdict("simple methods", "red", says, gain, f"Use {name}, or give the fit more steps.")
    if best - 2 * simple.errors[name] <= score:
        says = f"{says[:-1]}, a difference that chance may explain."
        return Verdict("simple methods", "amber", says, gain, "A simple method may suffice.")
    return Verdict("simple methods", "green", says, gain)


def _convergence(histories: Sequence[History], max_steps: int | None = None) -> Verdict:
    """Check whether training converged, by its longest stage."""
    stages = sorted((history for history in histories if history.steps), key=lambda history: -history.steps[-1])
    if not stages:
        return Verdict("training", "green", "there was nothing to train.", float("nan"))
    cut = (Ended.INTERRUPTED, Ended.OUT_OF_TIME, Ended.STOPPED)
    short = [history for history in stages if history.ended in cut]
    if short:
        says = f"was cut short: {short[0].reason}."
        return Verdict("training", "amber", says, float(stages[-1].steps[-1]), "Give it more time.")
    values = next(iter(stages[0].terms.values()), [])
    rise = _late_rise(values)
    total = sum(history.steps[-1] for history in stages)
    if stages[0].ended is Ended.ALL_STEPS and rise > 0.02:
        says = f"took all {total} steps and the objective was still rising ({rise:.0%} of its rise came in the last fifth)."
        more = "training=TrainingConfig(steps=20000)" if max_steps is None else f"max_steps={4 * max_steps}"
        return Verdict("training", "amber", says, rise, f"Give it more: {more}.")
    if total < FEW_STEPS:
        says = f"took {total} steps, too few to check convergence."
        return Verdict("training", "amber", says, float(total), f"Give it {FEW_STEPS} steps at least.")
    says = f"took {total} steps and converged ({rise:.0%} of the objective's rise came in the last fifth)."
    if stages[0].ended is Ended.EARLY:
        says = f"took {total} steps and ended by early stopping: the CRPS of held-out cells no longer decreased."
    return Verdict("training", "green", says, rise)


def _late_rise(values: Sequence[float]) -> float:
    """Compute the share of the rise of a curve, after its first tenth, that its last fifth makes."""
    v = np.asarray(values, dtype=float)
    if len(v) < 10:
        return 0.0
    first, before, last = v[len(v) // 10], np.mean(v[-len(v) * 2 // 5 : -len(v) // 5]), np.mean(v[-len(v) // 5 :])
    return float(np.clip((last - before) / max(last - first, 1e-12), 0.0, 1.0)) if last > first else 0.0


def _missingness(links: Sequence[MissingLink]) -> Verdict:
    """Check whether missingness depends on observed columns."""
    if not links:
        says = "no dependence of missingness on observed columns was found."
        return Verdict("missingness", "green", says, 0.0)
    one = links[0]
    says = (
        f"{one.column!r} is missing more often where {one.where} "
        f"(by {abs(one.shift):.2f} sd; {len(links)} such pairs). The draws allow for that (MAR); they "
        "cannot allow for missingness that depends on the missing value itself (MNAR)."
    )
    return Verdict("missingness", "amber", says, float(len(links)), "Try draws.shifted() to see how results would change.")


def _enough(cells: HeldOut) -> Verdict:
    """Check the number of held-out cells."""
    count = len(cells)
    says = f"the verdicts rest on {count} held-out cells."
    if count < 200:
        return Verdict("held-out cells", "amber", says, float(count), "These are few: take verdicts as hints.")
    return Verdict("held-out cells", "green", says, float(count))


def _support(model: FittedModel) -> list[Verdict]:
    """Check for missing cells outside the support of the observed ones."""
    gaps = model.support_gaps
    if not gaps:
        return []
    listed = describe_gaps(gaps, model.columns or ())
    says = f"{'; '.join(listed[:5])}. Held-out cells cannot judge the values filled there."
    todo = "They are filled from the nearest rows: leave them empty, or check them by other knowledge."
    return [Verdict("support", "amber", says, float(sum(gap.cells for gap in gaps)), todo)]


def _noisy(model: FittedModel) -> bool:
    """Check whether any column has noise."""
    return model.noise is not None and bool(np.any(np.asarray(model.noise) > 0))


def _noise(noise: Sequence[ColumnNoise], stated: bool) -> list[Verdict]:
    """Check whether the noise of each column can be identified."""
    if not noise or stated:
        return []
    lost = [str(column.column) for column in noise if not column.told]
    if not lost:
        says = "the level of each column is identified, as other columns explain a part of it."
        return [Verdict("noise", "green", says, 0.0)]
    listed = ", ".join(lost[:5]) + (" and others" if len(lost) > 5 else "")
    says = (
        f"{len(lost)} of {len(noise)} columns are hardly explained by others, so that their noise cannot be identified: "
        f"{listed}."
    )
    return [Verdict("noise", "amber", says, float(len(lost)), "Give their noise, if you know it.")]


def _latents(posterior: Ensemble | None, entered: Observations) -> list[Verdict]:
    """Count the latent variables that depend on the sample; networks only."""
    networks = [] if posterior is None else [each for each in posterior.each if kind_of(each) == "networks"]
    if not networks or networks[0].decoder_sees:  # a decoder that sees y may do without
        return []
    with torch.no_grad():
        q = networks[0].latent(entered)
        means, unit = q.base_dist.loc, networks[0].prior(entered, q).base_dist.scale.mean(0)
    active, count = int(((means / unit).var(0) > 0.01).sum()), means.shape[-1]
    says = f"{active} of {count} latent variables depend on the row."
    if active == 0:
        todo = "The model ignores observed cells: fit longer, or by method 'auto'."
        return [Verdict("latent variables", "red", says, 0.0, todo)]
    return [Verdict("latent variables", "green", says, float(active))]


def _localisation(histories: Sequence[History], target: float) -> list[Verdict]:
    """Compare the paper's localisation term with its target."""
    terms = [np.subtract(history.terms["R"], history.terms["Q"]) for history in histories if "R" in history.terms]
    if not terms or not len(terms[-1]):
        return []
    last = float(np.mean(terms[-1][-5:]))
    says = f"the localisation term is {last:.1f}, its target {target:g}."
    off = abs(last - target) > 0.5 * abs(target)
    return [Verdict("localisation", "amber" if off else "green", says, last, "Change lam or C." if off else "")]
