"""Predictive checks without the truth: observed cells are hidden, predicted and compared with their values."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unfade.corruption.noise import GaussianNoise
from unfade.data.columns import DAY, TEMPORAL, Column, value_of
from unfade.data.containers import Container
from unfade.data.dataset import Dataset, read
from unfade.data.observations import as_observations
from unfade.errors import InvalidData
from unfade.inference.fit import fit, read_to_fit
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.methods.parameters import Parameters
from unfade.models.architectures import image_of, is_image
from unfade.training.early_stopping import hold_out_as
from unfade.training.objectives import hide_holes

_DRAWN = 2**26  # numbers that are drawn together


def held_out(
    parameters: Parameters, X: Any, share: float = 0.1, n_draws: int = 50, seed: int = 0, model: FittedModel | None = None
) -> HeldOut:
    """Hide a share of the observed cells, fit on the rest (unless a model is given), and predict the hidden ones.

    At least one observed cell of every row is kept; of images, holes like those of other images are hidden. Predictions
    by a model that was trained on these cells are too optimistic.
    """
    given = X.given() if isinstance(X, Dataset) else X
    data = read(given, None if model is None else model.columns, parameters.kinds, parameters.missing)
    table, container = data.table(), data.container
    shape, table = table.shape, table.reshape(len(table), -1)
    images = is_image(shape[1:])
    hidden = _hidden_holes(table, shape[1:], seed) if images else _hidden_cells(table, share, seed)
    if not hidden.any():
        raise InvalidData("There is nothing to hide: every row has one observed cell at most.")
    seen = np.where(hidden, np.nan, table)
    shown = seen.reshape(shape) if container.columns is None else container.hide(hidden)
    if model is None:
        shown = read(shown, None, parameters.kinds, parameters.missing, parameters.detection_limits)
        model = fit(parameters, read_to_fit(parameters, shown))
    cells = _predict(model, container, table, hidden, shown, n_draws, seed)
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
    draws = _as_observed(model, container.columns, table.shape[1:], columns, draws, seed)
    return HeldOut(rows, columns, table[hidden], draws, np.where(hidden, np.nan, table), container.columns)


def _as_observed(
    model: FittedModel,
    kinds: Sequence[Column] | None,
    shape: tuple[int, ...],
    columns: np.ndarray,
    draws: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Add the noise of the cells' columns to draws (draws, cells) of clean values."""
    noise: Any = noise_by_column(model, kinds, shape)[columns]
    if model.noise_law is not None:
        noise = model.noise_law[0] + model.noise_law[1] * draws**2
    return draws + noise * np.random.default_rng(seed).normal(size=draws.shape)


def predicted_cells(model: FittedModel, X: Any, n_draws: int = 50, folds: int = 10, seed: int = 0) -> HeldOut:
    """Predict every observed cell from the rest of its row, with one of `folds` parts of the cells hidden at a time."""
    data = model.read(X)
    table = data.table()
    which = np.random.default_rng(seed).integers(0, folds, table.shape)
    known = ~np.isnan(table)
    hidden = np.stack([known & (which == fold) for fold in range(folds)])
    hidden &= (known & ~hidden).any(2)[..., None]
    fold, rows, columns = np.nonzero(hidden)
    if not len(fold):
        raise InvalidData("There is nothing to predict: no row has more than one observed cell.")
    clean = _draws_of_hidden(model, data, hidden, n_draws, seed)
    shape, kinds = table.shape[1:], data.container.columns
    parts = [_as_observed(model, kinds, shape, columns[f], clean[:, f], seed) for f in (fold == k for k in np.unique(fold))]
    return HeldOut(rows, columns, table[rows, columns], np.concatenate(parts, 1), table, kinds)


def _draws_of_hidden(model: FittedModel, data: Dataset, hidden: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Draw the cells `hidden` (folds, samples, columns) from the rest of their rows: (draws, cells).

    The rows of all folds are encoded together, some at a time if their draws would take too much memory.
    """
    if data.timeline is not None:  # a step is predicted from all others
        without = [replace(data.of(data.hide(cells)), deduced=None) for cells in hidden]
        draws = [model.sample(each, n_draws, seed=seed).values for each in without]
        return np.concatenate([x[:, cells] for x, cells in zip(draws, hidden, strict=True)], 1)
    fold, rows = np.nonzero(hidden.any(2))
    found, height = [], max(1, _DRAWN // (n_draws * hidden.shape[2]))
    for start in range(0, len(rows), height):
        part, gone = rows[start : start + height], hidden[fold, rows][start : start + height]
        repeated = data.rows(part)
        shown = Dataset(repeated.hide(gone), replace(repeated.container, dtype=np.dtype(np.float64)))
        values = model.sample(shown, n_draws, seed=seed, row_ids=part.tolist()).values
        found.append(values[:, gone])
    return np.concatenate(found, 1)


EXPLAINED = 0.9  # share of held-out cells' variance that the rest of the row must explain: noise is less than what is left


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
        """Whether the data identify the level: the rest of the row must explain nine tenths of the column."""
        return self.explained >= EXPLAINED

    def __str__(self) -> str:
        level = f"{self.column}: sd {self.sd:.4g} ({self.low:.4g} to {self.high:.4g})"
        if self.told:
            return f"{level}, the rest of the row explains {self.explained:.0%} of the column"
        return f"{level}, not identified: the rest of the row leaves more than a tenth of the column open"


def noise_report(model: FittedModel, X: Any, seed: int = 0) -> list[ColumnNoise]:
    """Estimate the noise level of each column of numbers, with an interval.

    The upper end of the interval takes for noise all that other columns do not explain; the lower one takes half of that
    for the column's own variance, or all of it where the level is not identified.

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
        if cells.discrete()[i] or (cells.kinds and cells.kinds[i].kind in TEMPORAL):
            continue
        here = cells.columns == i
        left = float(np.sqrt(np.mean((cells.values[here] - cells.draws[:, here].mean(0)) ** 2)))
        sd, count = float(np.nanstd(cells.seen[:, i])), int(here.sum())
        explained = 1 - (left / sd) ** 2 if sd > 0 else 0.0
        reach = 1.96 / np.sqrt(2 * count)
        low = levels[i] * max(0.0, 0.5**0.5 - reach) if explained >= EXPLAINED else 0.0
        name = cells.kinds[i].name if cells.kinds else int(i)
        found.append(ColumnNoise(name, float(levels[i]), float(low), max(left, levels[i] * (1 + reach)), explained))
    return found
