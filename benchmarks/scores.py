"""Scores of draws against the truth, by `unfade.metrics` alone."""

import numpy as np
import pandas as pd
import torch

from unfade.metrics import coverage_due, covered, crps, energy_score


def score(truth: np.ndarray, observed: np.ndarray, draws: np.ndarray, unit: np.ndarray | float = 1.0) -> dict[str, float]:
    """Score draws (draws, rows, columns) on the missing and on the observed cells, in units of each column.

    CRPS and energy score are the fair ones. For coverage ties are broken at random, else columns of few values
    would make it look better than it is.
    """
    values, target = torch.from_numpy(draws / unit), torch.from_numpy(truth / unit)
    chance = torch.Generator().manual_seed(0)
    apart, true_apart = (v + 1e-6 * torch.rand(v.shape, generator=chance, dtype=v.dtype) for v in (values, target))
    result = {"nominal coverage": coverage_due(0.9, len(draws))}
    for name, cells in (("missing", ~observed), ("observed", observed)):
        chosen, rows = torch.from_numpy(cells), torch.from_numpy(cells.any(1))
        error = values.mean(0)[chosen] - target[chosen]
        result |= {
            f"{name}: CRPS": float(crps(values[:, chosen], target[chosen]).mean()),
            f"{name}: energy score": float(energy_score(values[:, rows], target[rows], chosen[rows]).mean()),
            f"{name}: RMSE": float(error.square().mean().sqrt()),
            f"{name}: coverage": float(covered(apart[:, chosen], true_apart[chosen], 0.9).double().mean()),
        }
    return result


def column_units(truth: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Compute the sd of each column's clean values over its observed cells."""
    columns = zip(truth.T, observed.T, strict=True)
    return np.array([column[seen].std() or column.std() for column, seen in columns])


def score_categories(frame: pd.DataFrame, given: pd.DataFrame, draws: pd.DataFrame) -> dict[str, float]:
    """Score hidden categories: log score and Brier score, a mean over columns of means over cells.

    draws: one table below the other. Of m draws, a category that k name has probability (k + 1/2) / (m + c/2), c the
    number of categories.
    """
    logs, squares = [], []
    for column in frame.select_dtypes(exclude="number"):
        hidden = (given[column].isna() & frame[column].notna()).to_numpy()
        values = sorted(frame[column].dropna().unique())
        drawn = draws[column].astype(str).to_numpy().reshape(-1, len(frame))[:, hidden]
        counts = np.stack([(drawn == value).sum(0) for value in values])
        chance = (counts + 0.5) / (counts.sum(0) + 0.5 * len(values))
        true = frame[column].to_numpy()[hidden] == np.array(values, dtype=object)[:, None]
        logs.append(-np.log(chance[true]).mean())
        squares.append(((chance - true) ** 2).sum(0).mean())
    return {"missing: log score": float(np.mean(logs)), "missing: Brier score": float(np.mean(squares))}
