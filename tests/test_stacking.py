"""Stacks: shares by held-out cells, turns of draws, kinds in words, cheap models first, files."""

import numpy as np
import pandas as pd
import pytest
import torch

from unfade import DataNotice, Recoverer
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
    assert rival.ahead({300: 1.33, 600: 1.24}, 1200)  # some 1.15 in the end: next to no share
    assert not rival.ahead({300: 1.27, 600: 1.16}, 1200)


def test_a_stack_is_fitted_drawn_saved_and_named(tmp_path):
    Y = table()
    rec = Recoverer(random_state=0, verbose=0, max_seconds=20).fit(Y)
    found = shares(rec.posterior_)
    assert sum(found.values()) == pytest.approx(1.0)
    assert "trees" in found
    words = in_words(rec.posterior_)
    assert ("all draws from trees" if len(found) == 1 else f"{round(16 * found['trees'])}") in words
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
    assert rec.histories_[0].note.startswith("trees")  # first in a hurry


def test_fixed_steps_and_other_methods_train_networks_alone():
    for options in ({"max_steps": 5}, {"method": "miwae", "max_steps": 5}):
        rec = Recoverer(random_state=0, verbose=0, **options).fit(table(60))
        assert list(shares(rec.posterior_)) == ["networks"]


def test_the_plan_names_the_models():
    assert "trees" in str(Recoverer(verbose=0).plan(table(60)))
    assert "trees" not in str(Recoverer(verbose=0, max_steps=5).plan(table(60)))


def test_networks_get_no_share_that_held_out_cells_do_not_ask_for():
    generator = torch.Generator().manual_seed(1)
    y, alike = torch.randn(60, 1, generator=generator), torch.randn(48, 60, 1, generator=generator)
    assert _shares(split_of(y), [alike, alike.clone()], GaussianNoise())[0] == (0, 16)
    near = y + 0.1 * alike
    assert _shares(split_of(y), [near, alike], GaussianNoise())[0] == (16, 0)


def test_seconds_of_the_user_leave_networks_more_steps():
    few, many = (Recoverer(verbose=0, max_seconds=seconds).plan(table(60)).training.steps for seconds in (None, 60))
    assert few < many


def test_rules_between_discrete_columns_are_kept():
    """Treatment and site decide a length: trees find the rule, which networks blur."""
    rng = np.random.default_rng(0)
    treatment, site = rng.integers(0, 3, 400), rng.integers(0, 2, 400)
    length = np.array([[4, 9], [7, 2], [12, 5]])[treatment, site]
    frame = pd.DataFrame({"treatment": pd.Categorical.from_codes(treatment, ["a", "b", "c"]), "site": site == 1})
    frame["length"] = pd.array(np.where(rng.random(400) < 0.3, None, length), dtype="Int64")
    rec = Recoverer(random_state=0, verbose=0, max_seconds=8).fit(frame)
    hidden = frame["length"].isna().to_numpy()
    right = [(draw["length"].to_numpy()[hidden] == length[hidden]).mean() for draw in rec.sample(frame, 16)]
    assert np.mean(right) > 0.85  # one in six by chance


def test_no_draw_is_further_than_one_observed_range_outside_what_was_observed():
    rng = np.random.default_rng(0)
    z = rng.normal(size=200)
    Y = np.stack([np.exp(1.5 * z), z + rng.normal(size=200), rng.standard_t(2, 200) + z], 1)
    Y = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    low, high = np.nanmin(Y, 0), np.nanmax(Y, 0)
    for options in ({"max_steps": 20}, {"max_steps": 20, "noise": 0.5}):  # networks that have learned next to nothing
        draws = Recoverer(random_state=0, verbose=0, **options).fit(Y).sample(Y, 50).values
        hidden = np.where(np.isnan(Y), draws, np.nan)
        assert (np.nanmin(hidden, (0, 1)) >= low - (high - low)).all()
        assert (np.nanmax(hidden, (0, 1)) <= high + (high - low)).all()


def test_noise_of_columns_that_explain_each_other_weakly_does_no_harm():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(400, 1))
    Y = common + rng.normal(size=(400, 4)) + 0.3 * rng.normal(size=(400, 4))  # most of what is left is the columns' own
    Y[rng.random(Y.shape) < 0.1] = np.nan
    with pytest.warns(DataNotice, match="noise of 0, 1, 2, 3 cannot be identified"):
        rec = Recoverer(noise="learn", max_steps=400, random_state=0, verbose=0).fit(Y)
    seen = ~np.isnan(Y)
    assert np.array_equal(rec.transform(Y)[seen], Y[seen])
    assert all(column.low == 0 and not column.told for column in rec.noise_report(Y))
