"""Predictive checks without the truth: observed cells are hidden, predicted and compared with their values."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics.pairwise import nan_euclidean_distances

from unfade.corruption.noise import GaussianNoise
from unfade.data.columns import DAY, Column, value_of
from unfade.data.containers import Container, open_container
from unfade.data.observations import Observations, as_observations
from unfade.data.options import TOLD
from unfade.errors import InvalidData
from unfade.inference.fit import fit, read_to_fit
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.methods.parameters import Parameters
from unfade.metrics import crps
from unfade.models.architectures import image_of, is_image
from unfade.models.interpolation import linear_interpolation, nearest_pixel
from unfade.models.linear import factor_analysis, linear_posterior
from unfade.rng import generator_normals
from unfade.training.early_stopping import hold_out_as
from unfade.training.objectives import hide_holes


def held_out(
    parameters: Parameters, X: Any, share: float = 0.1, n_draws: int = 50, seed: int = 0, model: FittedModel | None = None
) -> HeldOut:
    """Hide a share of the observed cells, fit on the rest (unless a model is given), and predict the hidden ones.

    At least one observed cell of every row is kept; of images, holes like those of other images are hidden. Predictions
    by a model that was trained on these cells are too optimistic.
    """
    kinds = parameters.kinds, parameters.missing
    data, container = open_container(X, None if model is None else model.columns, *kinds)
    table = np.array(data, dtype=float)
    shape, table = table.shape, table.reshape(len(table), -1)
    images = is_image(shape[1:])
    hidden = _hidden_holes(table, shape[1:], seed) if images else _hidden_cells(table, share, seed)
    if not hidden.any():
        raise InvalidData("There is nothing to hide: every row has one observed cell at most.")
    seen = np.where(hidden, np.nan, table)
    shown = seen.reshape(shape) if container.columns is None else container.hide(hidden)
    fitted = fit(parameters, read_to_fit(parameters, shown)) if model is None else model
    cells = _predict(fitted, container, table, hidden, shown, n_draws, seed)
    return cells if images else cells.judged()


def _hidden_cells(table: np.ndarray, share: float, seed: int) -> np.ndarray:
    chance = np.where(np.isnan(table), 2.0, np.random.default_rng(seed).random(table.shape))
    return (chance < share) & (chance < chance.max(1, where=chance < 2, initial=-1)[:, None])


def _hidden_holes(table: np.ndarray, event_shape: Sequence[int], seed: int) -> np.ndarray:
    """Choose the pixels that training would hold out of images."""
    hidden = np.zeros(table.shape, dtype=bool)
    split = hold_out_as(hide_holes(image_of(event_shape)))(as_observations(table), seed, GaussianNoise())
    if split is not None:
        hidden[split.rows.numpy()] = split.held.observed.numpy()
    return hidden


def _predict(
    model: FittedModel, container: Container, table: np.ndarray, hidden: np.ndarray, shown: Any, n_draws: int, seed: int
) -> HeldOut:
    """Draw the observable values of hidden cells; shown: the data without them."""
    rows, columns = np.nonzero(hidden)
    draws = model.sample(shown, n_draws, seed=seed).values.reshape(n_draws, *table.shape)[:, rows, columns]
    noise: Any = noise_by_column(model, container.columns, table.shape[1:])[columns]
    if model.noise_law is not None:
        noise = model.noise_law[0] + model.noise_law[1] * draws**2
    draws = draws + noise * np.random.default_rng(seed).normal(size=draws.shape)
    return HeldOut(rows, columns, table[hidden], draws, np.where(hidden, np.nan, table), container.columns)


def predicted_cells(model: FittedModel, X: Any, n_draws: int = 50, folds: int = 10, seed: int = 0) -> HeldOut:
    """Predict every observed cell from the rest of its row, with one of `folds` parts of the cells hidden at a time."""
    parts = [_hidden_fold(model, X, n_draws, fold, folds, seed) for fold in range(folds)]
    kept = [part for part in parts if part is not None]
    if not kept:
        raise InvalidData("There is nothing to predict: no row has more than one observed cell.")
    return HeldOut(
        rows=np.concatenate([part.rows for part in kept]),
        columns=np.concatenate([part.columns for part in kept]),
        values=np.concatenate([part.values for part in kept]),
        draws=np.concatenate([part.draws for part in kept], 1),
        seen=np.array(open_container(X, model.columns)[0], dtype=float),
        kinds=kept[0].kinds,
    )


def _hidden_fold(model: FittedModel, X: Any, n_draws: int, fold: int, folds: int, seed: int) -> HeldOut | None:
    data, container = open_container(X, model.columns)
    table = np.array(data, dtype=float)
    which = np.random.default_rng(seed).integers(0, folds, table.shape)
    hidden = ~np.isnan(table) & (which == fold)
    hidden &= (~np.isnan(table) & ~hidden).any(1)[:, None]
    if not hidden.any():
        return None
    shown = np.where(hidden, np.nan, table) if container.columns is None else container.hide(hidden)
    return _predict(model, container, table, hidden, shown, n_draws, seed)


@dataclass(frozen=True)
class Outlier:
    """An observed value that the rest of its row does not predict.

    Parameters
    ----------
    row : int
    column, value : object
    expected : object
        Median of the draws; of a category the most frequent value.
    low, high : object
        Central 90 % of the draws; None for categories without order.
    distance : float
        From the mean in standard deviations; for categories minus the logarithm of the value's probability.
    """

    row: int
    column: Any
    value: Any
    expected: Any
    low: Any
    high: Any
    distance: float


def outliers(model: FittedModel, X: Any, most: int = 20, n_draws: int = 100, seed: int = 0) -> list[Outlier]:
    """List the observed cells that the rest of their row predicts worst: likely errors of entry or measurement.

    Parameters
    ----------
    model : FittedModel
    X : array, tensor or frame, (samples, *event)
    most, n_draws, seed : int
        Cells to list; draws per cell; seed of the draws.

    Returns
    -------
    list of Outlier
        The most distant first.
    """
    cells = predicted_cells(model, X, n_draws, seed=seed)
    named = cells.discrete()[cells.columns]
    distance = np.abs(cells.values - cells.draws.mean(0)) / np.maximum(cells.draws.std(0), 1e-12)
    agreed = ((cells.draws == cells.values).sum(0) + 0.5) / (n_draws + 1)
    distance = np.where(named, -np.log(agreed), distance)
    usual = cells.moments()[1][cells.columns]
    distance = np.where(~named & (np.abs(cells.values - cells.draws.mean(0)) < 1e-9 * usual), 0.0, distance)
    low, middle, high = np.quantile(cells.draws, [0.05, 0.5, 0.95], axis=0, method="inverted_cdf")
    found = []
    for i in np.argsort(-distance)[:most]:
        column = cells.kinds[cells.columns[i]] if cells.kinds else None
        value, expected, least, largest = (_shown(part[i], column) for part in (cells.values, middle, low, high))
        if column is not None and column.kind in ("category", "boolean"):
            codes, times = np.unique(cells.draws[:, i], return_counts=True)
            expected, least, largest = _shown(codes[times.argmax()], column), None, None
        name = column.name if column else int(cells.columns[i])
        found.append(Outlier(int(cells.rows[i]), name, value, expected, least, largest, float(distance[i])))
    return found


def _shown(code: float, column: Column | None) -> Any:
    if column is None:
        return float(code)
    whole_day = column.kind == "date" and column.step >= DAY
    return value_of(float(code), column, datetime.date.min if whole_day else None)


@dataclass(frozen=True)
class ColumnNoise:
    """Noise level of a column, with an interval.

    Parameters
    ----------
    column : object
    sd, low, high : float
        Estimate and interval, in the column's units.
    explained : float
        Share of the column's variance that the rest of the row explains.
    """

    column: Any
    sd: float
    low: float
    high: float
    explained: float

    @property
    def told(self) -> bool:
        """Whether the data identify the level: the rest of the row must explain half of the column."""
        return self.explained >= TOLD

    def __str__(self) -> str:
        level = f"{self.column}: sd {self.sd:.4g} ({self.low:.4g} to {self.high:.4g})"
        if self.told:
            return f"{level}, the rest of the row explains {self.explained:.0%} of the column"
        return f"{level}, not identified: the rest of the row explains little of the column"


def noise_report(model: FittedModel, X: Any, seed: int = 0) -> list[ColumnNoise]:
    """Estimate the noise level of each column of numbers, with an interval.

    The upper end of the interval takes for noise all that other columns do not explain.

    Parameters
    ----------
    model : FittedModel
    X : array, tensor or frame, (samples, *event)
    seed : int

    Returns
    -------
    list of ColumnNoise
    """
    return column_noise(predicted_cells(model, X, seed=seed), model)


def noise_by_column(model: FittedModel, columns: Sequence[Column] | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the noise levels of the caller's columns; 0 for categories and columns that are not modelled."""
    levels = np.ravel(0.0 if model.noise is None else model.noise)
    if columns is None or model.columns is None:
        return np.broadcast_to(levels, shape)
    each = np.broadcast_to(levels, len(model.columns))
    known = {column.name: level for column, level in zip(model.columns, each, strict=True) if not column.discrete}
    return np.array([known.get(column.name, 0.0) for column in columns])


def column_noise(cells: HeldOut, model: FittedModel) -> list[ColumnNoise]:
    """Estimate the noise level of each column from cells that were hidden and predicted."""
    levels = noise_by_column(model, cells.kinds, cells.seen.shape[1:])
    found = []
    for i in np.unique(cells.columns):
        if cells.discrete()[i]:
            continue
        here = cells.columns == i
        left = float(np.sqrt(np.mean((cells.values[here] - cells.draws[:, here].mean(0)) ** 2)))
        spread, count = float(np.nanstd(cells.seen[:, i])), int(here.sum())
        explained = 1 - (left / spread) ** 2 if spread > 0 else 0.0
        reach = 1.96 / np.sqrt(2 * count)
        low = levels[i] * max(0.0, 1 - reach) if explained >= TOLD else 0.0
        name = cells.kinds[i].name if cells.kinds else int(i)
        found.append(ColumnNoise(name, float(levels[i]), float(low), max(left, levels[i] * (1 + reach)), explained))
    return found


@dataclass(frozen=True)
class Comparison:
    """Scores of methods on held-out observed cells; lower is better.

    Parameters
    ----------
    scores : dict
        Mean CRPS by method, `unfade` first.
    errors : dict
        Standard error over rows of the difference from the first, by method.
    cells : int
    """

    scores: dict[str, float]
    errors: dict[str, float]  # standard error of the difference to the first
    cells: int

    def __str__(self) -> str:
        (ours, score), *others = self.scores.items()
        lines = [f"{name:22}{value:8.4f}" for name, value in self.scores.items()]
        name, best = min(others, key=lambda pair: pair[1])
        if best + 2 * self.errors[name] < score:
            verdict = f"{name} predicts held-out cells better than {ours} ({best:.3f}, {score:.3f}): use it here."
        elif best - 2 * self.errors[name] <= score:
            verdict = f"{name} predicts held-out cells as well as {ours} ({best:.3f}, {score:.3f}), and is simpler."
        else:
            verdict = f"{ours} predicts held-out cells {1 - score / best:.0%} better than {name}, the best simple method."
        return "\n".join(
            [f"mean CRPS of {self.cells} held-out observed cells, in column sds (lower is better)", *lines, verdict]
        )


def compare(parameters: Parameters, X: Any, share: float = 0.1, n_draws: int = 50, seed: int = 0) -> Comparison:
    """Compare a fit with simple methods on observed cells that were hidden from all of them.

    Parameters
    ----------
    parameters : Parameters
    X : array, tensor or frame, (samples, *event)
    share : float
    n_draws, seed : int

    Returns
    -------
    Comparison
    """
    cells, event_shape = held_out(parameters, X, share, n_draws, seed), np.shape(X)[1:]
    return compare_pixels(cells, event_shape) if is_image(event_shape) else compare_cells(cells, n_draws, seed)


def compare_cells(cells: HeldOut, n_draws: int = 50, seed: int = 0, without: str = "") -> Comparison:
    """Compare predictions of hidden cells with simple methods; without: a simple method to leave out."""
    rng = np.random.default_rng(seed)
    all_scores = {"unfade": cells.scores()}
    for name, draw in ((name, draw) for name, draw in SIMPLE.items() if name != without):
        all_scores[name] = cells.scores(draw(cells, n_draws, rng))
    errors = {name: cells.error_by_row(scores - all_scores["unfade"]) for name, scores in all_scores.items()}
    return Comparison({name: float(s.mean()) for name, s in all_scores.items()}, errors, len(cells.rows))


def compare_pixels(cells: HeldOut, event_shape: Sequence[int]) -> Comparison:
    """Compare predictions of hidden pixels with interpolation; CRPS in sds of all pixels."""
    seen, unit = cells.seen.reshape(len(cells.seen), *event_shape), float(np.nanstd(cells.seen)) or 1.0
    truth = torch.from_numpy(cells.values)
    scores = {"unfade": crps(torch.from_numpy(cells.draws), truth).numpy() / unit}
    for name, fill in PIXELS.items():
        guess = fill(seen).reshape(len(seen), -1)[cells.rows, cells.columns]
        scores[name] = np.abs(np.nan_to_num(guess, nan=float(np.nanmean(seen))) - cells.values) / unit
    errors = {name: cells.error_by_row(each - scores["unfade"]) for name, each in scores.items()}
    return Comparison({name: float(each.mean()) for name, each in scores.items()}, errors, len(cells))


PIXELS = {"the nearest pixel": nearest_pixel, "linear interpolation": linear_interpolation}


def _marginals(cells: HeldOut, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw from the observed values of the column."""
    drawn = np.empty((n_draws, len(cells.rows)))
    for column in np.unique(cells.columns):
        here, known = cells.columns == column, cells.seen[:, column]
        known = known[~np.isnan(known)]
        drawn[:, here] = rng.choice(known, (n_draws, int(here.sum()))) if len(known) else np.nan
    return drawn


def _neighbours(cells: HeldOut, n_draws: int, rng: np.random.Generator, k: int = 10, most: int = 2000) -> np.ndarray:
    """Draw from the values of the k nearest rows."""
    features = _features(cells)
    donors = rng.permutation(len(features))[:most]
    drawn = _marginals(cells, n_draws, rng)
    for start in range(0, len(cells.rows), 500):
        part = slice(start, start + 500)
        far = nan_euclidean_distances(features[cells.rows[part]], features[donors])
        usable = ~np.isnan(cells.seen[donors][:, cells.columns[part]]).T & ~np.isnan(far)
        order = np.where(usable, far, np.inf).argsort(1)[:, :k]
        for i, (near, ok) in enumerate(zip(order, np.take_along_axis(usable, order, 1), strict=True)):
            if ok.any():
                drawn[:, start + i] = rng.choice(cells.seen[donors[near[ok]], cells.columns[start + i]], n_draws)
    return drawn


def _linear(cells: HeldOut, n_draws: int, rng: np.random.Generator, most: int = 5000) -> np.ndarray:
    """Draw from a factor analysis, given the rest of the row."""
    features, places = torch.from_numpy(_features(cells)).float(), _places(cells)
    obs = Observations(features.nan_to_num(), ~features.isnan())
    some = torch.from_numpy(rng.permutation(len(features))[:most])
    posterior = linear_posterior(factor_analysis(obs[some], torch.zeros(1), rounds=100), GaussianNoise())
    normals = generator_normals(torch.Generator().manual_seed(int(rng.integers(2**31))))
    rows, which = np.unique(cells.rows, return_inverse=True)
    centre, sd = cells.moments()
    drawn = np.empty((n_draws, len(cells.rows)))
    for start in range(0, len(rows), 100):
        block = obs[torch.from_numpy(rows[start : start + 100])]
        x = posterior.draw(block, n_draws, normals, posterior.latent(block)).numpy()
        for i in np.nonzero((which >= start) & (which < start + 100))[0]:
            column, values = cells.columns[i], x[:, which[i] - start, places[cells.columns[i]]]
            drawn[:, i] = values.argmax(1) if values.shape[1] > 1 else values[:, 0] * sd[column] + centre[column]
    named = cells.discrete()[cells.columns]
    drawn[:, named] = np.round(drawn[:, named])
    return drawn


SIMPLE: dict[str, Callable[[HeldOut, int, np.random.Generator], np.ndarray]] = {
    "column marginals": _marginals,
    "k nearest neighbours": _neighbours,
    "linear Gaussian": _linear,
}


def _places(cells: HeldOut) -> list[np.ndarray]:
    """Find the features that each column of the table becomes."""
    counts = [len(c.categories) if c.kind == "category" else 1 for c in cells.kinds or ()] or [1] * cells.seen.shape[1]
    return np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])


def _features(cells: HeldOut) -> np.ndarray:
    """Encode the table for methods that need numbers: standardised, an indicator for each value of a category."""
    places, seen = _places(cells), cells.seen
    features = np.empty((len(seen), sum(map(len, places))))
    for i, where in enumerate(places):
        column = seen[:, i]
        if len(where) > 1:
            features[:, where] = np.where(np.isnan(column)[:, None], np.nan, column[:, None] == np.arange(len(where)))
        elif np.isnan(column).all():
            features[:, where[0]] = 0.0
        else:
            features[:, where[0]] = (column - np.nanmean(column)) / (np.nanstd(column) or 1.0)
    return features
