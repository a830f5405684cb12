"""Scores of draws against a truth, one definition each; draw axis first.

The mean of a fair score does not depend on the number of draws.
"""

import torch
from torch import Tensor


def crps(draws: Tensor, truth: Tensor) -> Tensor:
    """Compute the fair continuous ranked probability score of each entry.

    mean |x_j - t| - sum_{j != k} |x_j - x_k| / (2 m (m - 1)) of m draws x_j and the truth t; lower is better.

    Parameters
    ----------
    draws : Tensor, (draws, *shape)
    truth : Tensor, (*shape)

    Returns
    -------
    Tensor, (*shape)

    Examples
    --------
    >>> crps(torch.tensor([[0.0], [2.0]]), torch.tensor([1.0]))
    tensor([0.])
    """
    m = len(draws)
    error = (draws - truth).abs().mean(0)
    if m == 1:
        return error
    order = torch.arange(m, dtype=draws.dtype, device=draws.device)
    rank = (2 * order - m + 1).reshape(-1, *[1] * truth.ndim)
    return error - (draws.sort(0).values * rank).sum(0) / (m * (m - 1))


def energy_score(draws: Tensor, truth: Tensor, cells: Tensor) -> Tensor:
    """Compute the fair energy score of each row over its chosen cells: CRPS with Euclidean norms.

    Parameters
    ----------
    draws : Tensor, (draws, samples, features)
    truth : Tensor, (samples, features)
    cells : bool Tensor, (samples, features)
        Cells that count.

    Returns
    -------
    Tensor, (samples,)
        Lower is better.
    """
    m = len(draws)
    chosen = torch.where(cells, draws, 0).transpose(0, 1)
    error = (chosen - torch.where(cells, truth, 0)[:, None]).norm(dim=-1).mean(1)
    return error - torch.cdist(chosen, chosen).sum((1, 2)) / (2 * m * (m - 1)) if m > 1 else error


def central_interval(draws: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Compute the central interval of draws, by linearly interpolated quantiles over the first axis.

    Parameters
    ----------
    draws : Tensor, (draws, *shape)
    level : float
        Share of the draws inside.

    Returns
    -------
    low, high : Tensor, (*shape)
    """
    place = (1 - level) / 2 * (len(draws) - 1)
    below, ordered = int(place), draws.sort(0).values
    above = min(below + 1, len(draws) - 1)
    low = torch.lerp(ordered[below], ordered[above], place - below)
    high = torch.lerp(ordered[-1 - below], ordered[-1 - above], place - below)
    return low, high


def covered(draws: Tensor, truth: Tensor, level: float, tolerance: float = 0.0) -> Tensor:
    """Check for each truth whether it lies inside the central interval of its draws.

    Parameters
    ----------
    draws : Tensor, (draws, *shape)
    truth : Tensor, (*shape)
    level : float
    tolerance : float
        Distance from the interval that counts as inside, as of grey levels of images.

    Returns
    -------
    bool Tensor, (*shape)
    """
    low, high = central_interval(draws, level)
    return (truth >= low - tolerance) & (truth <= high + tolerance)


def stretch(draws: Tensor, truth: Tensor, level: float) -> Tensor:
    """Compute the factor by which the central interval of draws must be scaled about their mean to contain the truth.

    Parameters
    ----------
    draws : Tensor, (draws, *shape)
    truth : Tensor, (*shape)
    level : float

    Returns
    -------
    Tensor, (*shape)
    """
    (low, high), mean = central_interval(draws, level), draws.mean(0)
    above, below = (high - mean).clamp(min=1e-6), (mean - low).clamp(min=1e-6)
    return torch.maximum((truth - mean) / above, (mean - truth) / below)


def coverage_due(level: float, draws: int) -> float:
    """Compute the nominal coverage: that of draws of the exact posterior, level (m - 1) / (m + 1).

    Parameters
    ----------
    level : float
    draws : int
        Their number, m.

    Returns
    -------
    float

    Examples
    --------
    >>> round(coverage_due(0.9, 20), 3)
    0.814
    """
    return level * (draws - 1) / (draws + 1)


def energy_distance(first: Tensor, second: Tensor) -> float:
    """Compute the energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'| of two sets of draws: 0 if they agree.

    Parameters
    ----------
    first, second : Tensor, (draws, features)

    Returns
    -------
    float
    """
    within = [torch.cdist(s, s).sum() / (len(s) * (len(s) - 1)) for s in (first, second)]
    return float(2 * torch.cdist(first, second).mean() - within[0] - within[1])
