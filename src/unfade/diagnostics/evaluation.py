"""Scores against a truth that only the evaluator knows."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from unfade.data.containers import open_container
from unfade.data.observations import Observations, as_observations
from unfade.errors import InvalidData
from unfade.inference.draws import Draws
from unfade.metrics import coverage_due, covered, crps, energy_score
from unfade.models.architectures import Architecture
from unfade.models.conditional_densities import Conditional, reparametrise, standard_normal
from unfade.models.latent_variable import PosteriorLVM
from unfade.rng import Normals, generator_normals
from unfade.training.loop import Run, TrainingConfig, scoped_seed, train_many
from unfade.training.objectives import Bound, Objective


@dataclass(frozen=True)
class Scores:
    """Scores of draws on some cells. Lower is better, but psnr; coverage is best at coverage_due, its nominal value.

    Parameters
    ----------
    cells : {"missing", "observed", "all"}
    count, draws : int
        Numbers of cells and of draws.
    rmse, mae, psnr : float
        Of the posterior mean.
    crps : float
        Mean over cells.
    energy_score : float
        Mean over rows.
    level : float
        Level of the central intervals.
    coverage, coverage_due : float
        Share of cells inside their intervals, and its nominal value.
    spread : float
        Mean standard deviation.
    """

    cells: str
    count: int
    draws: int
    rmse: float
    mae: float
    psnr: float
    crps: float
    energy_score: float
    level: float
    coverage: float
    coverage_due: float
    spread: float


def evaluate(
    draws: Draws | Any, truth: Any, observed: Any = None, cells: str = "missing", level: float = 0.9, unit: Any = None,
    peak: float = 1.0,
) -> Scores:  # fmt: skip
    """Score draws of the clean data against the truth.

    Parameters
    ----------
    draws : Draws or array, (draws, samples, *event)
    truth : array, tensor or frame, (samples, *event)
    observed : bool array (True: observed), or the observations with NaN, (samples, *event)
    cells : {"missing", "observed", "all"}
        Cells to score.
    level : float
        Level of the central intervals.
    unit : float or array, (columns,), or None
        Unit of errors.
    peak : float
        Largest value of the data, for psnr.

    Returns
    -------
    Scores
    """
    for frame in (truth, observed):
        _check_same_columns(draws, frame)
    if cells not in ("missing", "observed", "all"):
        raise InvalidData(f"cells must be 'missing', 'observed' or 'all', got {cells!r}.")
    values = torch.as_tensor(np.array(draws.values if isinstance(draws, Draws) else draws)).double()
    columns = draws._container.columns if isinstance(draws, Draws) else None
    known = as_observations(open_container(truth, columns)[0])
    target = known.values.double()
    if values.shape[1:] != target.shape:
        raise InvalidData(f"Draws of {tuple(values.shape[1:])} and a truth of {tuple(target.shape)} do not match.")
    chosen = torch.ones_like(known.observed) if cells == "all" else _seen(observed, target, columns) ^ (cells == "missing")
    chosen = chosen & known.observed  # a truth that is not known cannot be scored against
    scale = torch.as_tensor(np.array(1.0 if unit is None else unit, dtype=np.float64))
    return _scores((values / scale).flatten(2), (target / scale).flatten(1), chosen.flatten(1), cells, level, peak)


def _check_same_columns(draws: Any, frame: Any) -> None:
    """Refuse a frame whose columns stand in another order than those of the draws."""
    names = draws.columns if isinstance(draws, Draws) else None
    given = [str(name) for name in getattr(frame, "column_names", getattr(frame, "columns", ()))]
    if names is not None and given and given != list(names):
        raise InvalidData(
            f"The draws have the columns {list(names)[:5]}, in this order, got {given[:5]}. Put them in the same order."
        )


def _scores(values: Tensor, target: Tensor, chosen: Tensor, cells: str, level: float, peak: float) -> Scores:
    """Compute all scores of flat data."""
    if not chosen.any():
        raise InvalidData(f"There are no {cells} cells to score.")
    m = len(values)
    error = (values.mean(0) - target)[chosen]
    rows = chosen.any(1)
    return Scores(
        cells=cells,
        count=int(chosen.sum()),
        draws=m,
        rmse=float(error.square().mean().sqrt()),
        mae=float(error.abs().mean()),
        psnr=float(20 * torch.log10(peak / error.square().mean().sqrt())),
        crps=float(crps(values[:, chosen], target[chosen]).mean()),
        energy_score=float(energy_score(values[:, rows], target[rows], chosen[rows]).mean()),
        level=level,
        coverage=float(covered(values[:, chosen], target[chosen], level).double().mean()),
        coverage_due=coverage_due(level, m),
        spread=float(values.std(0)[chosen].mean()) if m > 1 else 0.0,
    )


def _seen(observed: Any, target: Tensor, columns: Any) -> Tensor:
    """Convert a mask, or observations with NaN, to a mask of the truth's shape."""
    if observed is None:
        raise InvalidData("Expected observed, got None. Give a mask (True: observed), or the observations with NaN.")
    plain = np.asarray(observed)
    if np.issubdtype(plain.dtype, np.integer):
        raise InvalidData(
            "observed must be a mask of booleans, or observations with NaN, got integers. Use mask.astype(bool)."
        )
    seen = (
        torch.from_numpy(plain.copy())
        if plain.dtype == bool
        else as_observations(open_container(observed, columns)[0]).observed
    )
    return seen.expand(target.shape)


class ReconstructionELBO(Objective):
    """log q(x|y) >= E_q'(z|x,y) log q(x|z,y) - KL(q'(z|x,y) || q(z|y)): the paper's ELBO of the truth.

    q' is relative to q(z|y) = N(mu, sigma^2): it is N(mu + sigma m, sigma^2 s^2) with m and s given x and y. So the KL is
    that of N(m, s^2) and N(0, 1), and at m = 0, s = 1 the bound is E_q(z|y) log q(x|z,y). Its samples hold the clean truth
    next to y: values (samples, 2, entries), truth first.
    """

    def __init__(self, relative: Conditional):
        super().__init__()
        self.relative = relative

    def forward(self, posterior: PosteriorLVM, obs: Observations, normals: Normals, warmup: Tensor | float = 1.0) -> Bound:
        """Compute a bound on log q(x|y) at the truth x."""
        x, y = obs.values[:, 0], obs[:, 1]
        relative, q = self.relative(x, y.values, y.observed.to(x.dtype)), posterior.latent(y)
        inside = reparametrise(relative, normals(*relative.base_dist.loc.shape))
        E = posterior.clean(reparametrise(q, inside), y).log_prob(x)
        K = kl_divergence(relative, standard_normal(inside))
        return Bound(E - K, {"E": E, "K": K})


@dataclass(frozen=True)
class TruthELBO:
    """ELBO of the truth, with the smallest variance that the decoder may give, on which it depends.

    Parameters
    ----------
    elbo, standard_error, variance_floor : float
    start : float
        E_q(z|y) log q(x|z,y), the ELBO if q' is q(z|y), from where its training starts.
    median : float
        Median over rows.
    divergence : float
        KL(q' || q(z|y)), a mean over rows.
    """

    elbo: float
    standard_error: float
    variance_floor: float
    start: float
    median: float
    divergence: float


def reconstruction_elbo(
    posterior: PosteriorLVM,
    obs: Observations,
    clean: Tensor,
    architecture: Architecture,
    config: TrainingConfig,
    scored: slice | None = None,
    seed: int = 0,
) -> TruthELBO:
    """Compute the paper's ELBO of the clean truth: q'(z|x,y) is trained on it, the posterior is fixed.

    It is a bound for q(x|y) before any resampling.

    Parameters
    ----------
    posterior : PosteriorLVM
    obs : Observations, (samples, entries)
        In model space, on the device of `clean`.
    clean : Tensor, (samples, entries)
    architecture : Architecture
        Sizes of q'.
    config : TrainingConfig
        Training of q', on all rows.
    scored : slice or None
        Rows to average; None: all.
    seed : int

    Returns
    -------
    TruthELBO
    """
    return reconstruction_elbos([posterior], [obs], [clean], architecture, config, scored, seed)[0]


def reconstruction_elbos(
    posteriors: Sequence[PosteriorLVM],
    obs: Sequence[Observations],
    clean: Sequence[Tensor],
    architecture: Architecture,
    config: TrainingConfig,
    scored: slice | None = None,
    seed: int = 0,
) -> list[TruthELBO]:
    """Compute `reconstruction_elbo` for posteriors of one shape, with their inference networks trained together.

    Parameters
    ----------
    posteriors, obs, clean : sequences of equal length
    architecture, config, scored, seed : as in `reconstruction_elbo`

    Returns
    -------
    list of TruthELBO
    """
    runs = []
    for posterior, seen, truth in zip(posteriors, obs, clean, strict=True):
        with scoped_seed(seed):
            objective = ReconstructionELBO(architecture.relative(3 * seen.event_shape.numel())).to(truth.device)
        values, observed = [truth, seen.values], [torch.ones_like(seen.observed), seen.observed]
        fixed = copy.deepcopy(posterior).requires_grad_(False)
        runs.append(Run(fixed, objective, Observations(torch.stack(values, 1), torch.stack(observed, 1)), config, seed))
    starts = [_by_row(run, scored) for run in runs]
    if train_many(runs)[0].interrupted:
        raise KeyboardInterrupt
    floor = float(np.exp(-architecture.width / 2))
    return [_better(start, _by_row(run, scored), floor) for start, run in zip(starts, runs, strict=True)]


@torch.no_grad()
def _by_row(run: Run, scored: slice | None) -> Tensor:
    """Compute the bound and K of each row, averaged over ten draws of z, (2, rows)."""
    rows = run.obs[scored or slice(None)]
    normals = generator_normals(torch.Generator(rows.values.device).manual_seed(run.seed))
    parts = []
    for i in range(0, len(rows), 1000):
        bounds = [run.objective(run.posterior, rows[i : i + 1000], normals) for _ in range(10)]
        parts.append(torch.stack([torch.stack([bound.value, bound.terms["K"]]) for bound in bounds]).mean(0))
    return torch.cat(parts, 1).double()


def _better(start: Tensor, trained: Tensor, floor: float) -> TruthELBO:
    """Sum up the bound of the trained q', or, if it is not above, of q' = q(z|y), which is one of those allowed."""
    values, K = trained if trained[0].mean() > start[0].mean() else start
    error = float(values.std() / len(values) ** 0.5)
    return TruthELBO(float(values.mean()), error, floor, float(start[0].mean()), float(values.median()), float(K.mean()))
