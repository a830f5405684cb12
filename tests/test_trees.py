"""Chained trees: donors, regressions under trees, noise, rows and draws by key, what a file may hold."""

import numpy as np
import pytest
import torch

from unfade.corruption.mixed import MixedLikelihood
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.models import tree_fitting
from unfade.models.tree_fitting import chained_trees
from unfade.models.trees import blank_trees
from unfade.rng import KeyedNormals


def holed(x, share=0.3, seed=0):
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) > share
    return Observations(x * observed, observed)


def drawn(trees, obs, draws, rows=None, first=0):
    keys = torch.arange(len(obs)) if rows is None else rows
    return trees.draw(obs, draws, KeyedNormals(0, keys, first), first=first)


def steps_and_line(n=600):
    """A column, a step function of it, and a straight line."""
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(n, generator=generator)
    line = a + 0.05 * torch.randn(n, generator=generator)
    return torch.stack([a, (a > 0).float() * 3, line], 1)


def test_draws_are_values_that_were_observed():
    x = steps_and_line()
    obs = holed(x)
    likelihood = MixedLikelihood(GaussianNoise(), 3, {1: (torch.tensor([1.5]), torch.tensor([0.0, 3.0]))}, [])
    x = drawn(chained_trees(obs, likelihood, 0, chains=4), obs, 4)
    assert set(x[..., 1].unique().tolist()) == {0.0, 3.0}
    assert torch.equal(x[:, obs.observed], obs.values[obs.observed].expand(4, -1))


def test_a_step_and_a_line_are_found():
    x = steps_and_line()
    obs = holed(x)
    means = drawn(chained_trees(obs, GaussianNoise(), 0), obs, 12).mean(0)
    seen = ~obs.observed[:, 1] & obs.observed[:, 0]
    assert float((means[seen, 1] - x[seen, 1]).abs().mean()) < 0.3  # 1.5 by the column's own spread
    seen = ~obs.observed[:, 2] & obs.observed[:, 0]
    assert float((means[seen, 2] - x[seen, 2]).square().mean().sqrt()) < 0.15  # 0.05 at best


def curve(n=500):
    """A smooth function of two columns, and noise of its own."""
    generator = torch.Generator().manual_seed(2)
    x = 2 * torch.randn(n, 3, generator=generator)
    x[:, 2] = x[:, 0].sin() + x[:, 1].cos() + 0.5 * torch.randn(n, generator=generator)
    return x


def test_draws_of_a_smooth_column_vary_as_much_as_they_err(monkeypatch):
    x = curve()
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) > torch.tensor([0.0, 0.0, 0.4])
    obs, hidden = Observations(x * observed, observed), ~observed[:, 2]

    def ratio():
        draws = drawn(chained_trees(obs, GaussianNoise(), 0), obs, 12)[:, hidden, 2]
        error = (draws.mean(0) - x[hidden, 2]).square().mean()
        return float((error / (draws.var(0).mean() * (1 + 1 / 12))).sqrt())

    narrowed = ratio()
    monkeypatch.setattr(tree_fitting, "_NARROWEST", 1.0)
    plain = ratio()
    assert abs(np.log(narrowed)) < abs(np.log(plain)) - 0.05
    assert narrowed == pytest.approx(1.0, abs=0.15)


def test_donors_of_a_column_of_many_zeros_are_observed_values():
    x = curve()
    x[:, 2] = (x[:, 2] * 10).clamp(min=0)
    trees = chained_trees(holed(x), GaussianNoise(), 0)
    plain = (~trees.slope.any(-1))[:, 2].nonzero().flatten().tolist()
    first, count = trees.spans[plain[0], 2].tolist()
    assert set(trees.donors[first : first + count].tolist()) <= set(x[:, 2].tolist())


def test_a_regression_stands_under_the_trees_where_it_predicts_better():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(300, 5, generator=generator)
    x[:, 4] = x[:, :4].sum(1)  # a sum, which trees find hard
    used = chained_trees(holed(x, 0.1), GaussianNoise(), 0).slope[..., :-1].abs().sum(-1) > 0
    assert used[:, 4].all()
    x[:, 4] = (x[:, 0] * x[:, 1] > 0).float()  # no line says anything of this
    used = chained_trees(holed(x, 0.1), GaussianNoise(), 0).slope[..., :-1].abs().sum(-1) > 0
    assert not used[:, 4].all()


def test_draws_of_a_row_depend_on_its_key_and_the_draw_alone():
    obs = holed(steps_and_line(80))
    trees = chained_trees(obs, GaussianNoise(), 0, chains=3)
    whole, rows = drawn(trees, obs, 7), torch.tensor([40, 3, 41])
    assert torch.equal(whole[:, rows], drawn(trees, obs[rows], 7, rows))
    assert torch.equal(whole[4:], drawn(trees, obs, 3, first=4))


def test_noise_is_taken_out_of_draws_and_of_observed_cells():
    generator = torch.Generator().manual_seed(2)
    clean = torch.randn(2000, 1, generator=generator).expand(-1, 4) + 0.2 * torch.randn(2000, 4, generator=generator)
    noisy = clean + 0.5 * torch.randn(clean.shape, generator=generator)
    obs = holed(noisy)
    x = drawn(chained_trees(obs, GaussianNoise(0.5), 0), obs, 12)
    missing, seen = ~obs.observed, obs.observed
    error = (x.mean(0) - clean)[missing].square().mean().sqrt()
    assert float(error / x.std(0)[missing].square().mean().sqrt()) == pytest.approx(1.0, abs=0.2)
    assert float((x.mean(0) - clean)[seen].square().mean().sqrt()) < 0.42  # 0.5 if left alone


def test_categories_are_drawn_as_one_of_their_values():
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(500, generator=generator)
    one_hot = torch.nn.functional.one_hot((a > 0).long() + (a > 1).long(), 3).float()
    x = torch.cat([a[:, None], one_hot], 1)
    observed = torch.rand(500, 2, generator=generator) > 0.3
    observed = torch.cat([observed[:, :1], observed[:, 1:].expand(-1, 3)], 1)
    obs = Observations(x * observed, observed)
    likelihood = MixedLikelihood(GaussianNoise(), 4, {}, [(1, 4)])
    found = drawn(chained_trees(obs, likelihood, 0, chains=4), obs, 8)
    assert torch.equal(found[..., 1:].sum(-1), torch.ones(8, 500))
    hidden = ~observed[:, 1] & observed[:, 0]
    assert float((found[:, hidden, 1:] * x[hidden, 1:]).sum(-1).mean()) > 0.9


def test_odd_tables():
    alone = Observations(torch.randn(30, 1), torch.rand(30, 1) > 0.3)
    assert drawn(chained_trees(alone, GaussianNoise(), 0, chains=2), alone, 2).isfinite().all()
    never = holed(torch.randn(20, 3))
    never = never.only(torch.tensor([True, True, False]))
    assert drawn(chained_trees(never, GaussianNoise(), 0, chains=2), never, 2).isfinite().all()
    nothing = Observations(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool))
    assert drawn(chained_trees(holed(steps_and_line()), GaussianNoise(), 0, chains=2), nothing, 3).isfinite().all()


def test_the_same_seed_gives_the_same_trees():
    obs = holed(steps_and_line(100))
    one, two = (chained_trees(obs, GaussianNoise(), 5, chains=2).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("child", lambda t: t.fill_(0)),  # a path that never ends
        ("roots", lambda t: t.fill_(10**6)),
        ("feature", lambda t: t.fill_(9)),
        ("spans", lambda t: t.fill_(10**6)),
    ],
)
def test_crafted_trees_are_refused(name, spoil):
    trees = chained_trees(holed(steps_and_line(60)), GaussianNoise(), 0, chains=2)
    state = trees.state_dict()
    copy = blank_trees(GaussianNoise(), 3, state)
    copy.load_state_dict(state)
    copy.check()
    spoil(getattr(copy, name))
    with pytest.raises(ValueError, match="trees"):
        copy.check()


def test_many_rows_are_fitted_to_some(monkeypatch):
    monkeypatch.setattr("unfade.models.tree_fitting.MOST_ROWS", 50)
    trees = chained_trees(holed(steps_and_line(500)), GaussianNoise(), 0, chains=2)
    assert int(np.max(trees.spans[..., 1].numpy())) <= 50
