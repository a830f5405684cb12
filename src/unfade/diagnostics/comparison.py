"""Comparison of predicted held-out cells with predictions by simple methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics.pairwise import nan_euclidean_distances

from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.data.timeline import Timeline
from unfade.diagnostics.predictions import held_out
from unfade.errors import InvalidData
from unfade.inference.fit import fit, read_to_fit
from unfade.inference.held_out import HeldOut
from unfade.methods.parameters import Parameters
from unfade.metrics import crps
from unfade.models.architectures import is_image
from unfade.models.interpolation import linear_interpolation, nearest_pixel
from unfade.models.linear import factor_analysis, linear_posterior
from unfade.rng import generator_normals


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
    """Compare a fit with simple methods on observed cells that were hidden from all of them, of series in blocks.

    Parameters
    ----------
    parameters : Parameters
    X : array, tensor or frame, (samples, *event)
    share : float
        Of the cells of tables.
    n_draws, seed : int

    Returns
    -------
    Comparison
    """
    if parameters.time is not None:
        data = read_to_fit(parameters, X)
        blocks = fit(parameters, data).held_out
        if blocks is None:
            raise InvalidData(
                "No observed cell could be held out, so there is nothing to compare. Give more observed cells."
            )
        return compare_cells(blocks, n_draws, seed, timeline=data.timeline)
    cells, event_shape = held_out(parameters, X, share, n_draws, seed), np.shape(X)[1:]
    return compare_pixels(cells, event_shape) if is_image(event_shape) else compare_cells(cells, n_draws, seed)


def compare_cells(
    cells: HeldOut, n_draws: int = 50, seed: int = 0, without: str = "", timeline: Timeline | None = None
) -> Comparison:
    """Compare predictions of hidden cells with simple methods; without: a simple method to leave out."""
    rng = np.random.default_rng(seed)
    all_scores = {"unfade": cells.scores()}
    for name, draw in ((name, draw) for name, draw in SIMPLE.items() if name != without):
        all_scores[name] = cells.scores(draw(cells, n_draws, rng))
    if timeline is not None:
        for name, seasonal in (("linear interpolation", False), ("seasonal interpolation", True)):
            if timeline.clock.periods or not seasonal:
                all_scores[name] = cells.scores(_interpolated(cells, timeline, seasonal)[None])
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


def _interpolated(cells: HeldOut, timeline: Timeline, seasonal: bool) -> np.ndarray:
    """Fill cells by linear interpolation in time, around seasonal means or around 0, (cells,)."""
    guess, order = np.empty(len(cells)), np.lexsort((timeline.times, timeline.series))
    series = np.flatnonzero(np.diff(timeline.series[order])) + 1
    season = timeline.clock.season(torch.from_numpy(timeline.times)).numpy() * seasonal
    for column in np.unique(cells.columns):
        filled, values = np.empty(len(order)), cells.seen[:, column]
        known = ~np.isnan(values)
        base = season @ np.linalg.lstsq(season[known], values[known], rcond=None)[0]
        for rows in np.split(order, series):
            seen = rows[known[rows]]
            far = np.interp(timeline.times[rows], timeline.times[seen], (values - base)[seen]) if len(seen) else 0.0
            filled[rows] = base[rows] + far
        here = cells.columns == column
        guess[here] = filled[cells.rows[here]]
    return np.where(cells.discrete()[cells.columns], np.round(guess), guess)


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
