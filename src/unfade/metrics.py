"""Scores of draws against a truth: one definition each. Draw axis first; `fair` ones do not reward few draws."""

import torch
from torch import Tensor


def crps(draws: Tensor, truth: Tensor) -> Tensor:
    """Fair continuous ranked probability score of each entry: mean |x_j - t| - sum_{j != k} |x_j - x_k| / (2 m (m - 1)).

    draws (draws, *shape), truth (*shape); returns (*shape), lower is better.

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
    """Fair energy score of each row over its chosen cells: CRPS with Euclidean norms.

    draws (draws, samples, features), truth and cells (samples, features); returns (samples,).
    """
    m = len(draws)
    chosen = torch.where(cells, draws, 0).transpose(0, 1)
    error = (chosen - torch.where(cells, truth, 0)[:, None]).norm(dim=-1).mean(1)
    return error - torch.cdist(chosen, chosen).sum((1, 2)) / (2 * m * (m - 1)) if m > 1 else error


def central_interval(draws: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Ends of the central interval of draws, by linear-interpolated quantiles over the first axis."""
    place = (1 - level) / 2 * (len(draws) - 1)
    below, ordered = int(place), draws.sort(0).values
    above = min(below + 1, len(draws) - 1)
    low = torch.lerp(ordered[below], ordered[above], place - below)
    high = torch.lerp(ordered[-1 - below], ordered[-1 - above], place - below)
    return low, high


def covered(draws: Tensor, truth: Tensor, level: float) -> Tensor:
    """Whether each truth lies inside the central interval of its draws."""
    low, high = central_interval(draws, level)
    return (truth >= low) & (truth <= high)


def stretch(draws: Tensor, truth: Tensor, level: float) -> Tensor:
    """By how much the central interval of draws must be stretched about their mean to hold the truth, entry by entry."""
    (low, high), mean = central_interval(draws, level), draws.mean(0)
    above, below = (high - mean).clamp(min=1e-6), (mean - low).clamp(min=1e-6)
    return torch.maximum((truth - mean) / above, (mean - truth) / below)


def coverage_due(level: float, draws: int) -> float:
    """The coverage that draws of the exact posterior give: level (m - 1) / (m + 1)."""
    return level * (draws - 1) / (draws + 1)


def energy_distance(first: Tensor, second: Tensor) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of two sets of draws (draws, features): 0 where they agree."""
    within = [torch.cdist(s, s).sum() / (len(s) * (len(s) - 1)) for s in (first, second)]
    return float(2 * torch.cdist(first, second).mean() - within[0] - within[1])
