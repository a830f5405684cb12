"""Boosted trees with lags on the settings of `time_series.py`: `python benchmarks/series_trees.py --data-dir FOLDER`.

A regression per column (scikit-learn's histogram gradient boosting, absolute error) on all columns at the same step and up
to three steps before and after, missing ones included, the column interpolated linearly and the hour. It learns from
observed cells of the training part, hidden in the way of the setting. Its predictions are averaged with the mean of the
state-space model, by the share (0, 0.25, 0.5, 0.75 or 1) that is best on the hidden cells of the validation part.
"""

from typing import Any

import numpy as np
import pandas as pd
from boards import parser_of, run_all, written
from report import markdown
from sklearn.ensemble import HistGradientBoostingRegressor
from store import Cell, found
from time_series import PUBLISHED, SETTINGS, hidden, interpolated, masked, recovered

SHARES, LAGS, ROUNDS = (0.0, 0.25, 0.5, 0.75, 1.0), (-3, -2, -1, 0, 1, 2, 3), 3
METHODS = ["trees with lags"]


def features(y: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Lay out columns at each lag, interpolated columns and the hour, (windows, steps, features)."""
    padded = np.pad(y, ((0, 0), (3, 3), (0, 0)), constant_values=np.nan)
    lags = [padded[:, 3 + lag : 3 + lag + y.shape[1]] for lag in LAGS]
    hours = pd.DatetimeIndex(times.ravel()).hour.to_numpy().reshape(*times.shape, 1)
    return np.concatenate([*lags, interpolated(y, np.zeros_like(y)), hours], -1)


def trees(given: list[np.ndarray], times: list[np.ndarray], name: str, setting: str, seed: int) -> list[np.ndarray]:
    """Fit a regression per column to cells that are hidden again, and predict validation and test part."""
    rng, sets = np.random.default_rng(seed + 100), []
    for _ in range(ROUNDS):
        gone = hidden(given[0], name, setting, rng)
        sets.append((features(np.where(gone, np.nan, given[0]), times[0]), gone & ~np.isnan(given[0])))
    inside = [features(y, t) for y, t in zip(given[1:], times[1:], strict=True)]
    result = [np.zeros_like(y) for y in given[1:]]
    for column in range(given[0].shape[-1]):
        x = np.concatenate([each[cells[..., column]] for each, cells in sets])
        own = ~np.isnan(x).all(0)  # the column itself is always hidden, and in blocks others with it
        target = np.concatenate([given[0][..., column][cells[..., column]] for _, cells in sets])
        model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=150, random_state=seed).fit(x[:, own], target)
        for part, each in zip(result, inside, strict=True):
            part[..., column] = model.predict(each.reshape(-1, each.shape[-1])[:, own]).reshape(each.shape[:2])
    return result


def result(data_dir: Any, cell: Cell) -> dict[str, Any]:
    """Score trees, the state-space model and their average."""
    whole, masks, given, times = masked(cell.table, cell.setting, cell.seed, data_dir)
    by_trees = trees(given, times, cell.table, cell.setting, cell.seed)
    by_model = [recovered(given, times, which, cell.seed, both=False)[0] for which in (1, 2)]

    def error(which: int, share: float) -> float:
        mean = share * by_trees[which - 1] + (1 - share) * by_model[which - 1]
        return float(np.abs(mean - whole[which])[masks[which]].mean())

    share = min(SHARES, key=lambda share: error(1, share))
    return {"trees": error(2, 1.0), "state space": error(2, 0.0), "share": share, "pooled": error(2, share)}


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, METHODS, seeds=1)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=SETTINGS)
    options = parser.parse_args(arguments)
    cells = [
        Cell("series_trees", name, setting, seed, METHODS[0])
        for seed in range(options.seeds)
        for setting in options.settings
        for name in PUBLISHED
    ]
    if not options.report:
        run_all(cells, 1, lambda cell: result(options.data_dir, cell))
    keys = ["trees", "state space", "pooled", "share"]
    rows = [
        [f"{cell.table}, {cell.setting}", *(f"{found(cell)[key]:.3f}" for key in keys)] for cell in cells if found(cell)
    ]
    written("series_trees", markdown(["MAE", *keys[:3], "share of trees"], rows))


if __name__ == "__main__":
    main()
