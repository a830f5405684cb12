"""The same seed gives the same draws, bit for bit, whatever the batch, the order or the number of draws."""

import numpy as np
import pytest
import torch
from conftest import small_table
from torch.distributions import Independent

from unfade import Recoverer
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.distributions import Cells
from unfade.inference.sampling import _block_size, draw_blocks, mean_blocks
from unfade.models.conditional_densities import Conditional
from unfade.models.latent_variable import Ensemble, Pool, PosteriorLVM


@pytest.mark.parametrize("n_candidates", [0, 20])
def test_draws_of_a_row_hang_on_its_id_alone(fitted, n_candidates):
    table = small_table(700)
    ids = np.arange(len(table))
    whole = fitted.sample(table, 20, n_candidates=n_candidates).values
    assert np.array_equal(fitted.sample(table, 7, n_candidates=n_candidates).values, whole[:7])
    for rows in (ids[:1], ids[300:303], ids[::-1], np.random.default_rng(0).permutation(ids)[:513]):
        part = fitted.sample(table[rows], 20, n_candidates=n_candidates, row_ids=rows).values
        assert np.array_equal(part, whole[:, rows])


def test_draws_differ_between_rows_draws_and_seeds(fitted):
    table = np.repeat(small_table(1), 3, 0)
    table[:, 0] = np.nan
    draws = fitted.sample(table, 5).values[..., 0]
    assert len(np.unique(draws)) == draws.size
    assert not np.array_equal(fitted.sample(table, 5, seed=99).values[..., 0], draws)


def test_transform_agrees_on_subsets_and_orders(fitted):
    table = small_table(600)
    whole = fitted.transform(table)
    assert np.array_equal(fitted.transform(table[::-1]), whole[::-1])
    assert np.array_equal(fitted.transform(table[5:6]), whole[5:6])


def test_transform_is_the_mean_of_the_draws(fitted):
    table = small_table(40)
    draws = fitted.sample(table, 4000, n_candidates=0)
    gap = np.abs(draws.mean() - fitted.set_params(n_candidates=0).transform(table)) / (draws.values.std(0) + 1e-9)
    fitted.set_params(n_candidates=20)
    assert np.nanmean(gap[np.isnan(table)]) < 0.15


def test_a_pool_is_picked_from_by_weight():
    z = torch.arange(4.0)[:, None, None].expand(4, 1, 1)
    pool = Pool(z, torch.tensor([[0.1], [0.0], [0.6], [0.3]]))
    picked = pool.pick(torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0))).flatten()
    shares = torch.bincount(picked.long(), minlength=4) / 20_000
    assert torch.allclose(shares, torch.tensor([0.1, 0.0, 0.6, 0.3]), atol=0.01)


class Fixed(Conditional):
    """One Gaussian whatever the condition; loc None: centred on the condition's first entry."""

    def __init__(self, loc, scale):
        super().__init__()
        self.loc, self.scale = loc, scale
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, condition, *rest):
        loc = condition[..., :1] if self.loc is None else torch.full_like(condition[..., :1], self.loc)
        return Independent(Cells(loc, torch.full_like(loc, self.scale)), 1)


NOTHING = Observations(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.bool))


def test_candidates_of_the_prior_mend_a_narrow_and_wrong_encoder():
    """Nothing is seen, so z is N(0, 1); the encoder is sure that it is 3."""
    posterior = PosteriorLVM(Fixed(3.0, 0.01), Fixed(None, 0.01), GaussianNoise(0.1))
    [(_, drawn)] = list(draw_blocks(posterior, NOTHING, torch.arange(1), 2000, seed=0, n_candidates=8000))
    assert abs(float(drawn.mean())) < 0.1
    assert float(drawn.std()) == pytest.approx(1, abs=0.1)


def test_members_take_turns():
    members = [PosteriorLVM(Fixed(0.0, 1.0), Fixed(10.0 * i, 0.1), GaussianNoise(0.1 + 0.2 * i)) for i in range(3)]
    ensemble = Ensemble(members)
    [(_, drawn)] = list(draw_blocks(ensemble, NOTHING, torch.arange(1), 40, seed=0))
    turns = (drawn.flatten() / 10).round().tolist()
    assert turns == [i % 16 % 3 for i in range(40)]  # sixteen draws go through the networks together
    [(_, mean)] = list(mean_blocks(ensemble, NOTHING, torch.arange(1), 30, seed=0))
    assert float(mean) == pytest.approx(10, abs=0.1)
    assert float(ensemble.noise) == pytest.approx(0.3)


@pytest.mark.parametrize("columns", [2, 3, 5, 7])
def test_a_row_has_the_same_draws_at_any_place_of_a_narrow_table(columns):
    """Libraries multiply matrices of a few columns in pieces whose results depend on the place of a row."""
    rng = np.random.default_rng(columns)
    Y = rng.normal(size=(300, 2)) @ rng.normal(size=(2, columns)) + 0.3 * rng.normal(size=(300, columns))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    rec = Recoverer(n_members=1, max_steps=30, n_candidates=5, random_state=0, verbose=0).fit(Y)
    rows = rng.permutation(300)[:150]
    assert np.array_equal(rec.sample(Y[rows], 20, row_ids=rows).values, rec.sample(Y, 20).values[:, rows])


def test_a_row_alone_is_not_drawn_with_hundreds():
    """A block is as costly as its rows, however many of them were asked for."""
    assert _block_size(10, 200, "cpu") == 128
    assert _block_size(10, 16, "cpu") == 512
