"""The linear model: against answers in closed form, and where it takes the place of networks."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from unfade import Recoverer, TrainingConfig
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations, as_observations
from unfade.models.kinds import shares
from unfade.models.linear import factor_analysis, linear_posterior, resampled_factors
from unfade.rng import generator_normals


def table(rows, missing=0.3, seed=0):
    """Rows of five correlated columns with holes, and the covariance they come from."""
    rng = np.random.default_rng(seed)
    loadings = np.array([[1.0, 0.0], [0.8, 0.3], [-0.5, 0.8], [0.0, 1.0], [0.4, -0.4]])
    covariance = loadings @ loadings.T + np.diag([0.3, 0.2, 0.4, 0.2, 0.5])
    X = rng.multivariate_normal([0.5, 0, -1, 0, 2], covariance, rows)
    return np.where(rng.random(X.shape) < missing, np.nan, X), covariance


def test_factors_are_those_of_the_population():
    Y, covariance = table(20_000)
    loadings, mean, variance = factor_analysis(as_observations(Y), torch.zeros(5))
    assert torch.allclose(mean, torch.tensor([0.5, 0, -1, 0, 2]).double(), atol=0.05)
    assert torch.allclose(loadings @ loadings.T + variance.diag(), torch.from_numpy(covariance), atol=0.05)


def test_known_noise_is_taken_off():
    Y, covariance = table(20_000)
    noisy = Y + 0.4 * np.random.default_rng(1).normal(size=Y.shape)
    loadings, _, variance = factor_analysis(as_observations(noisy), torch.full((5,), 0.4))
    assert torch.allclose(loadings @ loadings.T + variance.diag(), torch.from_numpy(covariance), atol=0.06)


@pytest.mark.parametrize("n_candidates", [0, 200])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_draws_are_those_of_the_exact_posterior(noise, n_candidates):
    _, covariance = table(1)
    loadings = torch.tensor([[1.0, 0.0], [0.8, 0.3], [-0.5, 0.8], [0.0, 1.0], [0.4, -0.4]])
    factors = (loadings, torch.zeros(5), torch.tensor([0.3, 0.2, 0.4, 0.2, 0.5]))
    posterior = linear_posterior(factors, GaussianNoise(torch.full((5,), noise)))
    y, seen = torch.tensor([[1.0, 0.0, -0.5, 0.0, 0.0]]), torch.tensor([[True, False, True, False, False]])
    obs = Observations(y.repeat(500, 1), seen.repeat(500, 1))
    normals = generator_normals(torch.Generator().manual_seed(0))
    x = posterior.draw(obs, 20, normals, posterior.source(obs, n_candidates, normals)).flatten(0, 1)
    known, total = seen[0], torch.from_numpy(covariance).float()
    gain = total[:, known] @ torch.linalg.inv(total[known][:, known] + noise**2 * torch.eye(2))
    assert torch.allclose(x.mean(0), gain @ y[0, known], atol=0.05)
    assert torch.allclose(torch.cov(x.T), total - gain @ total[known], atol=0.05)


def test_the_encoder_is_a_density():
    Y, _ = table(200)
    obs = as_observations(Y.astype("float32")).to(torch.float32)
    posterior = linear_posterior(factor_analysis(obs, torch.zeros(5)), GaussianNoise(torch.zeros(5)))
    q = posterior.latent(obs)
    full = MultivariateNormal(q.base_dist.loc, scale_tril=q.base_dist.root)
    z = torch.randn(7, *q.base_dist.loc.shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(q.log_prob(z), full.log_prob(z), atol=1e-3)


def test_reweighted_fits_spread_as_estimates_do():
    """The sd of a mean over fits is its standard error."""
    Y, covariance = table(400, missing=0.0)
    fits = resampled_factors(as_observations(Y), torch.zeros(5), 60, seed=0)
    spread = torch.stack([mean for _, mean, _ in fits]).std(0)
    expected = torch.from_numpy(np.sqrt(np.diag(covariance) / 400))
    assert torch.allclose(spread, expected, rtol=0.35)


def test_the_linear_model_has_a_share_where_it_is_as_good(tmp_path):
    Y, _ = table(150, seed=1)
    rec = Recoverer(training=TrainingConfig(steps=300, batch_size=64), random_state=0, verbose=0).fit(Y)
    assert shares(rec.posterior_).get("linear model", 0) > 0.2
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert np.array_equal(again.sample(Y, 3).values, rec.sample(Y, 3).values)


def test_the_linear_model_has_hardly_a_share_where_others_are_better():
    rng = np.random.default_rng(0)
    turn = rng.uniform(0, 2 * np.pi, 600)
    Y = np.stack([np.cos(turn), np.sin(turn), np.cos(2 * turn)], 1) + 0.05 * rng.normal(size=(600, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    rec = Recoverer(random_state=0, verbose=0, training=TrainingConfig(steps=1000, batch_size=64)).fit(Y)
    assert shares(rec.posterior_).get("linear model", 0) < 0.2


def test_what_a_user_asks_for_is_not_replaced():
    Y, _ = table(150, seed=1)
    short = {"training": TrainingConfig(steps=200, batch_size=64), "random_state": 0, "verbose": 0}
    for asked in (
        {"method": "miwae", "n_members": 2},
        {"settings": {"weights": 4}},
        {"detection_limits": {0: ("<", -1.0)}},
    ):
        rec = Recoverer(**asked, **short).fit(Y)
        assert list(shares(rec.posterior_)) == ["networks"]


def test_columns_on_any_scale_and_collinear_ones_are_fitted():
    rng = np.random.default_rng(0)
    Y = 1e4 * rng.normal(size=(200, 1)) * np.ones(30) + 1e-3 * rng.normal(size=(200, 30))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    obs = as_observations(Y).to(torch.float32)
    posterior = linear_posterior(factor_analysis(obs, torch.zeros(30)), GaussianNoise(torch.zeros(30)))
    assert posterior.latent(obs).base_dist.root.isfinite().all()
