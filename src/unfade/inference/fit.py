"""Fit: read, plan, train, and judge what was found by the observed cells that training held out."""

import copy
import sys
import time
from dataclasses import replace

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from unfade import storage
from unfade.corruption.noise import Corruption
from unfade.corruption.simulated import to_json
from unfade.data.dataset import Dataset
from unfade.data.options import without_extremes
from unfade.errors import InvalidData, notice
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.inference.sampling import draw_blocks
from unfade.methods.flow import build_flow
from unfade.methods.parameters import Parameters
from unfade.methods.plan import Plan, resolve
from unfade.methods.recipes import Task
from unfade.methods.registry import FitResult
from unfade.methods.series import fit_series, series_seconds
from unfade.methods.stacking import fit_ensembles
from unfade.models.architectures import FlowArchitecture, is_image, of_images
from unfade.models.kinds import all_of
from unfade.models.latent_variable import Ensemble
from unfade.training.checkpoints import Checkpoint
from unfade.training.early_stopping import Split, widths, without_ties
from unfade.training.loop import FEW_STEPS, Ended, OnStep
from unfade.training.progress import progress_bar
from unfade.training.threads import one_thread


def read_to_fit(parameters: Parameters, X: object) -> Dataset:
    """Read data to fit on: kinds of columns are found, and impossible values left out."""
    data = parameters.read(X)
    if data.deduced is not None:  # a copy of other cells, which would make held-out cells of its column easy to predict
        data = data.of(data.obs.only(~data.deduced))
    if not data.obs.observed.any():
        raise InvalidData("Nothing is observed in the whole table: every entry is missing. Give at least one number.")
    return data.of(without_extremes(data.obs, data.columns))


def plan_for(parameters: Parameters, data: Dataset) -> Plan:
    """Decide everything, and train nothing."""
    return resolve(parameters, data, int(check_random_state(parameters.random_state).randint(2**31 - 1)))


def fit(
    parameters: Parameters,
    data: Dataset,
    on_step: OnStep | None = None,
    checkpoint: Checkpoint | None = None,
    then_draw: int | None = None,
) -> FittedModel:
    """Fit a model; `Recoverer.fit` describes the arguments."""
    started = time.monotonic()
    plan = plan_for(parameters, data)
    task = plan.task(data)
    searched = task.corruption.searched.clone() if task.corruption.learned else torch.zeros(1, dtype=torch.bool)
    if parameters.max_seconds:
        rest = parameters.max_seconds - (0.0 if then_draw is None else _seconds_to_draw(parameters, plan, task, then_draw))
        task = replace(task, deadline=started + 0.9 * rest)  # a tenth is left for what follows training
    if checkpoint is not None:
        if plan.clock is not None:
            raise InvalidData("With time= there are no checkpoints: a fit takes seconds to minutes. Leave checkpoint out.")
        checkpoint.begin(_fingerprint(parameters, plan, task))
    result = _train(parameters, plan, replace(task, checkpoint=checkpoint), data, on_step)
    _warn_how_it_ended(result)
    unidentified = searched & task.corruption.exact.cpu()
    _warn_unidentified_noise(unidentified, plan, data)
    model = FittedModel(
        parameters, plan.encoder, data.container.columns, result.posterior, plan.architecture, plan.seed,
        support_gaps=plan.support_gaps, histories=result.histories, clock=plan.clock,
    )  # fmt: skip
    return _calibrated(model, result, data) if result.split is not None and result.predicted is not None else model


def training_seconds(plan: Plan, data: Dataset) -> float:
    """Estimate how long training takes at most on this machine, by 20 steps of it."""
    if data.timeline is not None:
        return series_seconds(plan.task(data), data.timeline)
    trial = replace(plan.training, steps=20, check_every=10, max_seconds=None)
    task = replace(plan.task(data), training=trial, fixed_steps=True, stacked=False)
    images = of_images(plan.architecture)
    with one_thread(None if images else trial.batch_size * plan.n_members * plan.encoder.features):
        (result,) = fit_ensembles(plan.method, [task], plan.settings, plan.n_members)
    slowest = max(history.seconds / history.steps[-1] for history in result.histories if history.steps)
    return slowest * plan.training.steps * (1.0 if plan.fixed_steps else 1.5)


def _train(
    parameters: Parameters, plan: Plan, task: Task, data: Dataset, on_step: OnStep | None
) -> FitResult[Ensemble | None]:
    if not plan.encoder.features:
        return FitResult(None)
    images = of_images(plan.architecture)
    entries = None if images else plan.training.batch_size * plan.n_members * plan.encoder.features
    with one_thread(entries), progress_bar(parameters.verbose > 0 and on_step is None) as bar:
        task = replace(task, on_step=on_step or bar)
        if data.timeline is not None:
            result = fit_series(task, data.timeline)
        else:
            (result,) = fit_ensembles(plan.method, [task], plan.settings, plan.n_members)
    if parameters.verbose > 1:
        for stage, history in enumerate(result.histories, 1):
            print(f"stage {stage}: {history}", file=sys.stderr)
    return result


def _fingerprint(parameters: Parameters, plan: Plan, task: Task) -> str:
    """A hash of the data and settings of a fit, which its checkpoints carry."""
    given = {name: getattr(parameters, name) for name in parameters.__dataclass_fields__}
    given["corruption"] = repr(to_json(plan.steps))
    given |= {"random_state": plan.seed, "verbose": 0, "device": plan.device.type, "max_seconds": None}
    return storage.digest(storage.FORMAT, tuple(task.obs.parts()), given, task.training, plan.n_members)


def _seconds_to_draw(parameters: Parameters, plan: Plan, task: Task, draws: int) -> float:
    """About how long `transform` and so many draws of the data will take: by a block of networks that know nothing."""
    most, seconds = 0.6 * float(parameters.max_seconds or 0.0), 0.0
    if plan.clock is not None:  # draws of series take less than half of the time of a fit
        return most / 2
    fresh, rows = Ensemble([_fresh(task) for _ in range(plan.n_members)]).eval(), torch.arange(len(task.obs))
    for _ in range(2):  # the first time is longer than any later one
        started = time.monotonic()
        where, _ = next(iter(draw_blocks(fresh, task.obs, rows, 16, 0, task.n_candidates)))
        seconds = (time.monotonic() - started) * len(rows) / where.stop * (2 + draws / 16)
    if seconds > most:
        notice(
            f"To draw will take about {seconds:.0f} s, more than max_seconds={parameters.max_seconds:g} leaves for it. "
            "Give more time, or ask for fewer draws or for n_candidates=0."
        )
    return min(seconds, most)


def _fresh(task: Task) -> nn.Module:
    return build_flow(task, task.obs) if isinstance(task.architecture, FlowArchitecture) else task.posterior()


def _calibrated(model: FittedModel, result: FitResult[Ensemble | None], data: Dataset) -> FittedModel:
    """The model with the cells that were held out, and with the calibration scale that they ask for."""
    split, predicted, encoder = result.split, result.predicted, model.encoder
    assert split is not None
    assert predicted is not None
    assert model.posterior is not None
    noise = copy.deepcopy(model.posterior.each[0].corruption).cpu()
    measured = encoder.measured(data.obs[split.rows.cpu()]).to(split.held.observed.device)
    split = replace(split, held=split.held.only(measured))
    if model.parameters.calibrate:
        model = replace(model, calibration=_scale(model, split, predicted, noise))
    return replace(model, held_out=_held_out(model, split, predicted, noise, data))


def _scale(model: FittedModel, split: Split, clean: Tensor, noise: Corruption, rows: Tensor | None = None) -> Tensor:
    """The calibration scale by some rows, (features,)."""
    split = split if model.clock is None else without_ties(split, clean, noise)
    return widths(split, clean, noise, model.encoder.fine, rows)


def _held_out(model: FittedModel, split: Split, clean: Tensor, noise: Corruption, data: Dataset) -> HeldOut:
    """The cells that training held out, in the user's units, with draws of what would be observed there.

    Where draws are calibrated, those of half of the rows are by the calibration scale that the other half asks for.
    """
    obs, encoder, rows, wider = data.obs, model.encoder, split.rows.cpu(), clean.clone()
    hidden = encoder.entries(split.held.observed.cpu()) & obs.observed[rows]
    given = obs[rows].only(~hidden)
    for half in () if model.calibration is None else (rows % 2 == 0, rows % 2 == 1):
        factors, mean = _scale(model, split, clean, noise, ~half), clean[:, half].mean(0)
        wider[:, half] = mean + factors * (clean[:, half] - mean)

    def cells(x: Tensor) -> np.ndarray:
        each = split.observed(x, noise)
        drawn = [encoder.leave(y[None], given, model.exact, noisy=True)[0][hidden] for y in each]
        return torch.stack(drawn).double().numpy()

    where, columns = hidden.flatten(1).nonzero().T.numpy()
    places = rows.numpy()[where]
    if of_images(model.architecture):  # images are large: only those with pixels held out are kept
        obs, places = obs[rows], where
    seen = np.where(obs.observed, obs.values, np.nan).reshape(len(obs), -1).astype(float)
    values = seen[places, columns]
    seen[places, columns] = np.nan
    plain = None if model.calibration is None else cells(clean)
    held = HeldOut(places, columns, values, cells(wider), seen, data.container.columns, plain)
    return held if is_image(obs.event_shape) else held.judged()  # of pixels those beside them say something


def _warn_unidentified_noise(unidentified: Tensor, plan: Plan, data: Dataset) -> None:
    """Warn of columns whose noise was to be learned and cannot be identified."""
    encoder, columns = plan.encoder, data.columns
    entries = encoder.numbers[unidentified.expand(encoder.features)[: len(encoder.numbers)]].tolist()
    if entries:
        names = [columns[i].name if columns else i for i in entries]
        notice(
            f"The noise of {', '.join(map(repr, names[:10]))} cannot be identified, as other columns "
            "explain less than 97 % of each: observed cells are left unchanged. If you know the level, give "
            f"noise={{{names[0]!r}: 0.1, ...}} (--noise '{names[0]}=0.1,...')."
        )


def _warn_how_it_ended(result: FitResult[Ensemble | None]) -> None:
    """Warn of training that was cut short, and of networks that were not good enough to be given."""
    taken = sum(history.steps[-1] for history in result.histories if history.steps)
    late = any(history.ended is Ended.OUT_OF_TIME for history in result.histories)
    said = ""
    if result.interrupted:
        said = "Training was interrupted: what it had reached is kept."
    elif result.replaced_by:
        said = (
            f"Networks predict held-out cells worse than {result.replaced_by}, which is given in their place: expect wide "
            f"intervals. They took {taken} steps{'; give max_seconds more' if late else ''}."
        )
    elif late and taken < FEW_STEPS and all_of(result.posterior, "networks"):
        said = f"Time was up after {taken} steps: after fewer than {FEW_STEPS} draws mean little. Give max_seconds more."
    if said:
        notice(said)
