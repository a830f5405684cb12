"""What is given where networks predict held-out cells worse than a method that needs no training."""

import numpy as np
import pytest
import torch

from unfade import DataNotice, Recoverer
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import as_observations
from unfade.models.architectures import architecture_for
from unfade.models.baselines import NearestPixels, marginals
from unfade.rng import generator_normals


def wide():
    """20 rows of 3,000 columns: no network learns anything in a step or two."""
    rng = np.random.default_rng(0)
    Y = rng.normal(5, 2, size=(20, 3000))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    return Y


def pictures(count=16, size=48):
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:size, :size]
    images = np.stack([127 + 100 * np.sin((a * across + b * down) / 12 + c) for a, b, c in rng.normal(size=(count, 3))])
    holed = images.copy()
    for image in holed:
        row, column = rng.integers(0, size - 12, 2)
        image[row : row + 12, column : column + 12] = np.nan
    return images, holed


def test_a_wide_table_without_time_is_filled_from_its_columns(tmp_path):
    Y = wide()
    with pytest.warns(DataNotice, match="(?i)give max_seconds more"):
        rec = Recoverer(max_seconds=0.5, random_state=0, verbose=0).fit(Y)
    draws = rec.sample(Y, 10).values[:, np.isnan(Y)]
    assert 1 < draws.std() < 3
    assert abs(draws.mean() - 5) < 0.2
    assert draws.min() > -10
    assert draws.max() < 20
    rec.save(tmp_path / "m")
    assert np.array_equal(Recoverer.load(tmp_path / "m").sample(Y, 3).values, rec.sample(Y, 3).values)


def test_images_without_time_are_filled_from_the_nearest_pixels(tmp_path):
    images, holed = pictures()
    with pytest.warns(DataNotice, match="worse than the nearest pixel"):
        rec = Recoverer(network="conv-large", max_seconds=0.5, random_state=0, verbose=0).fit(holed)
    gone = np.isnan(holed)
    draws = rec.sample(holed, 10).values
    assert np.abs(draws.mean(0) - images)[gone].mean() < 0.5 * images.std()
    assert draws.min() > np.nanmin(holed) - 20
    assert draws.max() < np.nanmax(holed) + 20
    rec.save(tmp_path / "m")
    assert np.array_equal(Recoverer.load(tmp_path / "m").sample(holed, 3).values, rec.sample(holed, 3).values)


def test_marginals_have_the_moments_of_each_column():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(2000, 2)) * [1.0, 3.0] + [0.0, 7.0]
    Y[rng.random(Y.shape) < 0.5] = np.nan
    obs, normals = as_observations(Y), generator_normals(torch.Generator().manual_seed(0))
    obs = type(obs)(obs.values.float(), obs.observed)
    posterior = marginals(obs, GaussianNoise())
    drawn = posterior.draw(obs, 50, normals, posterior.source(obs, 0, normals))[:, ~obs.observed[:, 1], 1]
    assert float(drawn.mean()) == pytest.approx(7, abs=0.2)
    assert float(drawn.std()) == pytest.approx(3, rel=0.05)


def test_the_nearest_pixel_is_that_of_the_same_channel():
    values = torch.tensor([[1.0, 10.0, 0.0, 20.0, 3.0, 0.0]])  # one row of three pixels, two channels
    observed = torch.tensor([[True, True, False, True, True, False]])
    posterior = NearestPixels((1, 3, 2), torch.arange(6), GaussianNoise())
    obs = type(as_observations([[0.0]]))(values, observed)
    near, bins = posterior.source(obs)
    assert near[0].tolist() in ([1.0, 10.0, 1.0, 20.0, 3.0, 20.0], [1.0, 10.0, 3.0, 20.0, 3.0, 20.0])
    assert bins[0].tolist() == [0, 0, 0, 0, 0, 0]


def test_very_wide_data_have_narrow_networks():
    assert architecture_for(100, 784).hidden == (400, 400)
    assert architecture_for(100, 50_000).hidden == (40, 40)


def test_no_draw_lies_further_out_than_the_range_of_what_was_observed():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(60, 3)).cumsum(1)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    rec = Recoverer(max_steps=1, n_candidates=0, n_members=1, random_state=0, verbose=0).fit(Y)
    with torch.no_grad():
        rec.posterior_.each[0].decoder.network.layers[-1].bias += 50  # a decoder that went astray
    draws, low, high = rec.sample(Y, 20).values, np.nanmin(Y, 0), np.nanmax(Y, 0)
    assert (draws >= 2 * low - high - 1e-9).all()
    assert (draws <= 2 * high - low + 1e-9).all()
