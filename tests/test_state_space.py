"""The state-space posterior against the exact one of the joint Gaussian law, and against statsmodels' Kalman smoother."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from unfade.corruption.noise import GaussianNoise
from unfade.models.state_space import StateSpace
from unfade.models.state_space_fitting import state_space

STEPS, COLUMNS = 12, 2
LAGS = torch.tensor([[[0.6, 0.2], [-0.1, 0.5]], [[0.2, 0.0], [0.1, 0.1]]]).double()
ROOT = torch.tensor([[0.7, 0.0], [0.3, 0.5]]).double()


@pytest.fixture
def model():
    return StateSpace(GaussianNoise(torch.tensor([0.3, 0.5])), LAGS, ROOT, torch.zeros(1, COLUMNS))


@pytest.fixture
def data(model):
    """One window with a gap over both columns, and cells missing at random; values from the model itself."""
    generator = torch.Generator().manual_seed(1)
    seen = torch.rand(1, STEPS, COLUMNS, generator=generator) < 0.7
    seen[:, 4:7] = False
    clean = model.path(normal(generator, 1, 1, STEPS, COLUMNS), normal(generator, 1, 1, 2 * COLUMNS))[0]
    return (clean + torch.tensor([0.3, 0.5]) * normal(generator, *clean.shape)) * seen, seen


def normal(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def joint(model):
    """Covariance of z over all steps, (steps * columns, steps * columns)."""
    state, transition = model.stationary(), model.transition()
    blocks, power = [], torch.eye(len(transition)).double()
    for _ in range(STEPS):
        blocks.append((power @ state)[:COLUMNS, :COLUMNS])
        power = transition @ power
    rows = [torch.cat([blocks[t - s] if t >= s else blocks[s - t].T for s in range(STEPS)], 1) for t in range(STEPS)]
    return torch.cat(rows)


def exact(model, y, seen):
    prior, at = joint(model), seen.flatten()
    noise = torch.diag(model.noise_variance.repeat(STEPS))
    gain = prior[:, at] @ torch.linalg.inv((prior + noise)[at][:, at])
    return gain @ y.flatten()[at], prior - gain @ prior[at]


def test_the_mean_and_the_likelihood_are_exact(model, data):
    y, seen = data
    mean, _ = exact(model, y, seen)
    assert torch.allclose(model.smoothed(y[None], model.gains(seen))[0].flatten(), mean, atol=1e-8)
    at = seen.flatten()
    covariance = (joint(model) + torch.diag(model.noise_variance.repeat(STEPS)))[at][:, at]
    expected = multivariate_normal.logpdf(y.flatten()[at].numpy(), cov=covariance.numpy())
    assert float(model.log_likelihood(y, seen)) == pytest.approx(expected, abs=1e-7)


def test_draws_have_the_exact_law_along_time(model, data):
    """Means and covariances of all pairs of steps and columns, in standard errors."""
    y, seen = data
    mean, covariance = exact(model, y, seen)
    draws, generator = 20_000, torch.Generator().manual_seed(2)
    shape = (draws, 1, STEPS, COLUMNS)
    normals = (normal(generator, *shape), normal(generator, *shape), normal(generator, draws, 1, 2 * COLUMNS))
    z = model.simulate(y.expand(draws, -1, -1, -1), seen, model.gains(seen), normals).flatten(1)
    sd = covariance.diagonal().sqrt()
    assert ((z.mean(0) - mean) / sd).abs().max() < 4.5 / draws**0.5
    assert ((torch.cov(z.T) - covariance) / sd.outer(sd)).abs().max() < 5.5 / draws**0.5


def test_the_mean_is_that_of_statsmodels(model, data):
    smoother = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")
    y, seen = data
    size = 2 * COLUMNS
    kalman = smoother.KalmanSmoother(COLUMNS, size, COLUMNS)
    kalman["design"] = np.eye(COLUMNS, size)
    kalman["obs_cov"] = np.diag(model.noise_variance)
    kalman["transition"], kalman["selection"] = model.transition().numpy(), np.eye(size, COLUMNS)
    kalman["state_cov"] = (ROOT @ ROOT.T).numpy()
    kalman.bind(np.where(seen[0], y[0], np.nan))
    kalman.initialize_known(np.zeros(size), model.stationary().numpy())
    found = kalman.smooth().smoothed_state[:COLUMNS].T
    assert np.allclose(model.smoothed(y[None], model.gains(seen))[0, 0].numpy(), found, atol=1e-7)


def test_the_fit_finds_transition_covariance_and_noise():
    generator, lags = torch.Generator().manual_seed(0), torch.tensor([[[0.9, 0.1], [-0.1, 0.8]]]).double()
    true = StateSpace(GaussianNoise(0.5), lags, ROOT, torch.zeros(1, COLUMNS))
    clean = true.path(normal(generator, 1, 60, 100, COLUMNS), normal(generator, 1, 60, COLUMNS))[0]
    seen = torch.rand(clean.shape, generator=generator) < 0.8
    y = (clean + 0.5 * normal(generator, *clean.shape) + 3) * seen
    corruption = GaussianNoise(torch.full((COLUMNS,), 0.8), learn=True)
    fitted = state_space(y, seen, torch.ones(*y.shape[:2], 1), corruption, seed=0, lags=1, rounds=80)
    assert torch.allclose(fitted.lags, lags, atol=0.05)
    assert torch.allclose(fitted.root @ fitted.root.T, ROOT @ ROOT.T, atol=0.08)
    assert torch.allclose(corruption.std.double(), torch.tensor(0.5).double(), atol=0.05)
    assert torch.allclose(fitted.season, torch.tensor(3.0).double(), atol=0.2)
