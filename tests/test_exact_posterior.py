"""Draws against the exact posterior of linear-Gaussian data: mean, spread, coverage, ranks, a classifier."""

import pytest
import torch
from linear_gaussian import make
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from unfade.corruption.noise import GaussianNoise
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.methods.registry import fit_method
from unfade.metrics import covered, crps
from unfade.models.architectures import Architecture
from unfade.models.latent_variable import PriorLVM
from unfade.training.loop import TrainingConfig, train
from unfade.training.objectives import TAE

ARCHITECTURE = Architecture(latent=2, hidden=(64, 64), decoder_hidden=(), skip=True, shared_variance=True)
ROWS = 400


@pytest.fixture(scope="module")
def data():
    return make(4000)


def draw(posterior, obs, draws=1000, n_candidates=0):
    blocks = draw_blocks(posterior, obs, torch.arange(len(obs)), draws, 0, n_candidates)
    return torch.cat([values for _, values in blocks], 1).double()


def compare(data, draws):
    """Error of the mean in exact sd, ratio of sd, 90 % coverage, CRPS relative to exact draws; on missing cells."""
    model, clean, obs = data
    obs, truth, missing = obs[:ROWS], clean[:ROWS].double(), ~obs.observed[:ROWS]
    mean, covariance = model.posterior(obs)
    sd = covariance.diagonal(dim1=1, dim2=2).sqrt()
    exact = mean + sd * torch.randn(draws.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    error = ((draws.mean(0) - mean) / sd)[missing].abs().mean()
    ratio = (draws.std(0) / sd)[missing].mean()
    coverage = covered(draws[:, missing], truth[missing], 0.9).double().mean()
    return (
        error.item(),
        ratio.item(),
        coverage.item(),
        (crps(draws, truth)[missing].mean() / crps(exact, truth)[missing].mean()).item(),
    )


def fit(data, name, **settings):
    task = Task(data[2], GaussianNoise(0.3), ARCHITECTURE, TrainingConfig(steps=3000), seed=0, fixed_steps=True)
    return fit_method(name, task, settings).posterior


@pytest.fixture(scope="module")
def tae(data):
    return fit(data, "auto", weights=10)


def test_miwae_with_resampling_meets_the_exact_posterior(data):
    drawn = draw(fit(data, "miwae", weights=10), data[2][:ROWS], n_candidates=500)
    error, ratio, coverage, relative = compare(data, drawn)
    print(f"miwae 500: error {error:.3f}, sd ratio {ratio:.3f}, coverage {coverage:.3f}, CRPS ratio {relative:.3f}")
    assert error < 0.15
    assert 0.96 < ratio < 1.05
    assert 0.875 < coverage < 0.925
    assert relative < 1.02


@pytest.mark.parametrize("n_candidates", [0, 500])
def test_tae_meets_the_exact_posterior(data, tae, n_candidates):
    error, ratio, coverage, relative = compare(data, draw(tae, data[2][:ROWS], n_candidates=n_candidates))
    print(
        f"tae {n_candidates}: error {error:.3f}, sd ratio {ratio:.3f}, coverage {coverage:.3f}, CRPS ratio {relative:.3f}"
    )
    assert error < 0.15
    assert 0.95 < ratio < 1.05
    assert 0.875 < coverage < 0.925
    assert relative < 1.02


@pytest.fixture(scope="module")
def predictive(data):
    return fit(data, "masked")


@pytest.mark.parametrize("n_candidates", [0, 500])
def test_what_predicts_meets_the_exact_posterior(data, predictive, n_candidates):
    """Trained on hidden entries alone; resampled with q(z|nothing) for p(z)."""
    error, ratio, coverage, relative = compare(data, draw(predictive, data[2][:ROWS], n_candidates=n_candidates))
    print(
        f"predictive n_candidates {n_candidates}: error {error:.3f}, sd ratio {ratio:.3f}, coverage {coverage:.3f}, "
        f"CRPS ratio {relative:.3f}"
    )
    assert error < 0.20
    assert 0.95 < ratio < 1.10
    assert 0.875 < coverage < 0.93
    assert relative < 1.04


def test_exact_bound_meets_the_exact_posterior(data):
    posterior = fit(data, "tae", weights=10, posterior_weights=8)
    error, ratio, coverage, relative = compare(data, draw(posterior, data[2][:ROWS]))
    print(f"exact bound: error {error:.3f}, sd ratio {ratio:.3f}, coverage {coverage:.3f}, CRPS ratio {relative:.3f}")
    assert error < 0.30
    assert 0.95 < ratio < 1.08
    assert 0.875 < coverage < 0.93
    assert relative < 1.09


def test_a_blind_decoder_is_caught(data):
    """The same bound with q(x|z) that does not see y: too narrow by far. The tolerances above can fail."""
    task = Task(data[2], GaussianNoise(0.3), ARCHITECTURE, TrainingConfig(steps=1500), seed=0)
    posterior = task.posterior(conditioned=False)
    prior = PriorLVM(ARCHITECTURE.encoder(8), ARCHITECTURE.decoder(8))
    train(posterior, TAE(prior, ARCHITECTURE.encoder(24), weights=1), task.obs, task.training)
    _, ratio, coverage, _ = compare(data, draw(posterior, data[2][:ROWS]))
    assert ratio < 0.8
    assert coverage < 0.8


def test_ranks_of_the_truth_are_flat(data, tae):
    """Simulation-based calibration: one missing cell a row, the rank of its truth among 99 draws."""
    _, clean, obs = data
    rows = (~obs.observed).any(1).nonzero().flatten()[:2000]
    cell = (~obs.observed[rows]).int().argmax(1)
    draws = draw(tae, obs[rows], draws=99, n_candidates=200)
    ranks = (draws[:, range(len(rows)), cell] < clean[rows, cell]).sum(0)
    shares = torch.histc(ranks.double(), bins=10, min=0, max=99.999) / len(rows)
    assert (shares - 0.1).abs().max() < 0.03  # sd of a share is 0.0067


def test_a_classifier_cannot_tell_draws_from_the_exact_posterior(data, tae):
    model, _, obs = data
    some = obs[:5]
    mean, covariance = model.posterior(some)
    generator = torch.Generator().manual_seed(0)
    draws = draw(tae, some, draws=500, n_candidates=500)
    for i in range(len(some)):
        factor = torch.linalg.cholesky(covariance[i])
        exact = mean[i] + torch.randn(500, 8, generator=generator, dtype=torch.double) @ factor.T
        both = torch.linalg.solve_triangular(factor, (torch.cat([draws[:, i], exact]) - mean[i]).T, upper=False).T
        labels = torch.arange(1000) >= 500
        accuracy = cross_val_score(KNeighborsClassifier(20), both.numpy(), labels.numpy(), cv=5).mean()
        assert accuracy < 0.6
