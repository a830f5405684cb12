"""Held-out cells, and what draws need to cover them."""

import pytest
import torch

from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.metrics import covered, stretch
from unfade.training.early_stopping import Split, widths


def split(values):
    """All cells held out, nothing to go by."""
    nothing = Observations(torch.zeros_like(values), torch.zeros_like(values, dtype=torch.bool))
    return Split(nothing, torch.arange(len(values)), nothing, Observations(values, ~nothing.observed), seed=0)


def normals(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_an_interval_that_is_stretched_so_far_just_holds_the_truth():
    draws, truth = normals(50, 300).exp(), normals(300, seed=1).exp()
    far, mean = stretch(draws, truth, 0.9), draws.mean(0)
    wider, narrower = (mean + share * far * (draws - mean) for share in (1.001, 0.999))
    assert covered(wider, truth, 0.9).all()
    assert not covered(narrower, truth, 0.9).any()


@pytest.mark.parametrize("shape", ["normal", "skewed"])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_widths_are_what_draws_lack(share, shape):
    bend = torch.exp if shape == "skewed" else lambda x: x
    values, draws = bend(normals(4000, 2)), bend(normals(60, 4000, 2, seed=1))
    draws = draws.mean(0) + share * (draws - draws.mean(0))
    found = widths(split(values), draws, GaussianNoise(torch.zeros(2)), torch.tensor([True, True]))
    assert found == pytest.approx(1 / share, rel=0.1)


def test_noise_is_not_stretched():
    """Clean draws of half their spread: they must be twice as wide, though what is observed is only 1.26 times."""
    clean, noise = 2 * normals(6000, 1), 2.0
    values, draws = clean + noise * normals(6000, 1, seed=1), normals(60, 6000, 1, seed=2)
    found = widths(split(values), draws, GaussianNoise(torch.tensor([noise])), torch.tensor([True]))
    assert found == pytest.approx(2.0, rel=0.08)


def test_few_cells_and_coarse_features_change_nothing():
    values, draws = normals(20, 2), 0.1 * normals(60, 20, 2, seed=1)
    exact = GaussianNoise(torch.zeros(2))
    assert widths(split(values), draws, exact, torch.tensor([True, True])).tolist() == [1, 1]
    values, draws = normals(300, 2), 0.6 * normals(60, 300, 2, seed=1)
    found = widths(split(values), draws, exact, torch.tensor([True, False]))
    assert found[0] > 1.3
    assert found[1] == 1


def test_mostly_zeros_are_left_as_they_are():
    exact, fine = GaussianNoise(torch.zeros(2)), torch.tensor([True, True])
    values, draws = normals(3000, 2), 1.5 * normals(60, 3000, 2, seed=1)
    assert widths(split(values), draws, exact, fine) == pytest.approx(1 / 1.5, rel=0.1)
    values[:, 1], draws[..., 1] = values[:, 1].clamp(min=0), draws[..., 1].clamp(min=0)
    found = widths(split(values), draws, exact, fine)
    assert found[0] == pytest.approx(1 / 1.5, rel=0.1)
    assert found[1] == 1


def test_ends_that_are_the_truth_hold_it_at_any_scale():
    """Draws too wide and rounded: a tenth of the cells tie with an end, and do not keep the scale at 1."""
    exact, fine = GaussianNoise(torch.zeros(1)), torch.tensor([True])
    values, draws = (4 * normals(3000, 1)).round() / 4, (4 * 1.3 * normals(60, 3000, 1, seed=1)).round() / 4
    assert float(widths(split(values), draws, exact, fine)) < 0.85
