"""Masks for experiments: entries missing completely at random, at random, not at random, or outside a window."""

import torch
from torch import Tensor

from unfade.errors import InvalidData


def mask_at_random(shape: torch.Size | tuple[int, ...], missing: float, generator: torch.Generator) -> Tensor:
    """Draw a mask with values missing completely at random (MCAR).

    Parameters
    ----------
    shape : tuple of int
    missing : float
        Probability that an entry is missing.
    generator : torch.Generator

    Returns
    -------
    bool Tensor, shape
        True: observed.
    """
    return torch.rand(shape, generator=generator) >= missing


def mask_given_others(clean: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """Draw a mask with values missing at random (MAR): missingness depends on columns that are always observed.

    The first half of the columns is observed; entries of the others are missing more often if a random combination of
    the first half is large.

    Parameters
    ----------
    clean : Tensor, (samples, features)
    missing : float
        Share of all entries that are missing, on average.
    generator : torch.Generator

    Returns
    -------
    bool Tensor, (samples, features)
        True: observed.
    """
    drivers = clean.shape[1] // 2
    if missing * clean.shape[1] > clean.shape[1] - drivers:
        raise InvalidData(f"Half of the columns are always observed: expected a share of at most 0.5, got {missing}.")
    weights = torch.randn(drivers, clean.shape[1] - drivers, generator=generator)
    score = _standardised(clean[:, :drivers]) @ weights.to(clean.dtype)
    hidden = _hide_large(score, missing * clean.shape[1] / (clean.shape[1] - drivers), generator)
    return torch.cat([torch.ones(len(clean), drivers, dtype=torch.bool), ~hidden], 1)


def mask_by_own_value(clean: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """Draw a mask with values missing not at random (MNAR, self-masking): large entries are missing more often.

    Parameters
    ----------
    clean : Tensor, (samples, features)
    missing : float
        Share of the entries of each column that are missing, on average.
    generator : torch.Generator

    Returns
    -------
    bool Tensor, (samples, features)
        True: observed.
    """
    return ~_hide_large(clean, missing, generator)


def mask_window(samples: int, image: tuple[int, int], window: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Draw a mask with one observed window per image, at a random place (supplement D.2).

    Parameters
    ----------
    samples : int
    image, window : (int, int)
        Height and width.
    generator : torch.Generator

    Returns
    -------
    bool Tensor, (samples, height, width)
        True: observed.
    """
    seen = []
    for side, size in zip(image, window, strict=True):
        start = torch.randint(side - size + 1, (samples, 1), generator=generator)
        place = torch.arange(side)
        seen.append((place >= start) & (place < start + size))
    return seen[0][:, :, None] & seen[1][:, None, :]


def _standardised(values: Tensor) -> Tensor:
    """Scale each column to mean 0 and standard deviation 1."""
    return (values - values.mean(0)) / values.std(0).clamp(min=1e-12)


def _hide_large(score: Tensor, missing: float, generator: torch.Generator) -> Tensor:
    """Hide entries with a probability that rises with their score, `missing` on average in each column."""
    score = 2 * _standardised(score).double()
    low, high = torch.full(score.shape[1:], -30.0).double(), torch.full(score.shape[1:], 30.0).double()
    for _ in range(60):  # bisection for the intercept of a logistic curve
        middle = (low + high) / 2
        above = torch.sigmoid(score + middle).mean(0) > missing
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.rand(score.shape, generator=generator) < torch.sigmoid(score + high)
