"""Stacks: shares by held-out cells, turns of draws, kinds in words, cheap models first, files."""

import numpy as np
import pytest
import torch

from unfade import Recoverer
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.methods.stacking import _mixed, _order, _shares
from unfade.models.kinds import in_words, shares
from unfade.training.early_stopping import Rival, Split


def split_of(y):
    obs = Observations(y, torch.ones_like(y, dtype=torch.bool))
    return Split(obs, torch.arange(len(y)), obs, obs, 0)


def table(n=400, seed=0):
    """Columns that a linear model does not explain: a circle, a step, a copy with noise."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    Y = np.stack([np.cos(angle), np.sin(angle), (np.cos(angle) > 0) * 2.0, np.sin(angle) + 0.1 * rng.normal(size=n)], 1)
    return np.where(rng.random(Y.shape) < 0.25, np.nan, Y)


def test_shares_are_those_of_the_mixture_that_the_data_come_from():
    generator = torch.Generator().manual_seed(0)
    right, wrong = torch.randn(48, 2000, 1, generator=generator), 3 + torch.randn(48, 2000, 1, generator=generator)
    for part, least, most in ((0.0, 0, 0), (0.5, 6, 10), (1.0, 16, 16)):
        second = torch.rand(2000, 1, generator=generator) < part
        y = torch.where(second, 3.0, 0.0) + torch.randn(2000, 1, generator=generator)
        found, score = _shares(split_of(y), [right, wrong], GaussianNoise())
        assert least <= found[1] <= most
        assert sum(found) == 16
        plain = split_of(y).crps(_mixed([right, wrong], _order(found)), GaussianNoise())
        assert score == pytest.approx(plain, abs=0.03)


def test_any_first_draws_are_near_the_shares():
    order = _order([9, 5, 2])
    for number in range(1, 17):
        counts = np.bincount(order[:number], minlength=3)
        assert np.abs(counts - number * np.array([9, 5, 2]) / 16).max() < 1.01


def test_networks_that_stay_behind_are_ended():
    rival = Rival(1.0, lambda predicted: True)
    assert not rival.ahead({100: 9.0, 200: 9.0}, 5000)  # too early to say
    assert rival.ahead({500: 2.02, 1000: 2.0}, 5000)
    assert not rival.ahead({500: 1.5, 1000: 1.3}, 5000)


def test_a_stack_is_fitted_drawn_saved_and_named(tmp_path):
    Y = table()
    rec = Recoverer(random_state=0, verbose=0, max_seconds=20).fit(Y)
    found = shares(rec.posterior_)
    assert sum(found.values()) == pytest.approx(1.0)
    assert "trees" in found
    assert f"{round(16 * found['trees'])}" in in_words(rec.posterior_)
    draws = rec.sample(Y, 20).values
    assert np.array_equal(draws[:7], rec.sample(Y, 7).values)
    assert np.array_equal(draws[:, 5:8], rec.sample(Y[5:8], 20, row_ids=[5, 6, 7]).values)
    rec.save(tmp_path / "m.unfade")
    again = Recoverer.load(tmp_path / "m.unfade")
    assert np.array_equal(draws, again.sample(Y, 20).values)
    assert np.array_equal(rec.transform(Y), again.transform(Y))
    assert shares(again.posterior_) == found


def test_one_second_gives_an_answer_that_is_far_better_than_independent_columns():
    Y = table(300)
    rec = Recoverer(random_state=0, verbose=0, max_seconds=1).fit(Y)
    held = rec.held_out_
    rng = np.random.default_rng(0)
    own = np.stack([rng.choice(Y[~np.isnan(Y[:, c]), c], 20) for c in held.columns], 1)
    assert held.scores().mean() < 0.6 * held.scores(own).mean()


def test_fixed_steps_and_other_methods_train_networks_alone():
    for options in ({"max_steps": 5}, {"method": "miwae", "max_steps": 5}):
        rec = Recoverer(random_state=0, verbose=0, **options).fit(table(60))
        assert list(shares(rec.posterior_)) == ["networks"]


def test_the_plan_names_the_models():
    assert "trees" in str(Recoverer(verbose=0).plan(table(60)))
    assert "trees" not in str(Recoverer(verbose=0, max_steps=5).plan(table(60)))
