import numpy as np
import pytest
import torch
from linear_gaussian import make

from unfade import InvalidData
from unfade.corruption.noise import GaussianNoise
from unfade.diagnostics.evaluation import evaluate, reconstruction_elbo
from unfade.methods.recipes import Task
from unfade.methods.registry import fit_method
from unfade.metrics import coverage_due, crps, energy_distance, energy_score
from unfade.models.architectures import Architecture
from unfade.training.loop import TrainingConfig


def test_crps_equals_its_definition():
    draws, truth = torch.randn(7, 5), torch.randn(5)
    pairs = (draws[:, None] - draws[None]).abs().sum((0, 1)) / (2 * 7 * 6)
    assert torch.allclose(crps(draws, truth), (draws - truth).abs().mean(0) - pairs, atol=1e-6)


def test_crps_agrees_with_scoringrules():
    import scoringrules

    draws, truth = torch.randn(9, 50), torch.randn(50)
    peer = scoringrules.crps_ensemble(truth.numpy(), draws.numpy().T, estimator="fair")
    assert np.allclose(crps(draws, truth).numpy(), peer, atol=1e-5)


def test_energy_score_of_one_cell_is_crps():
    draws, truth = torch.randn(9, 4, 3), torch.randn(4, 3)
    cells = torch.zeros(4, 3, dtype=torch.bool)
    cells[:, 1] = True
    assert torch.allclose(energy_score(draws, truth, cells), crps(draws, truth)[:, 1], atol=1e-5)


def test_scores_are_proper():
    """The exact predictive distribution scores better than one too narrow, too wide or shifted."""
    truth = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(20, 20_000, generator=torch.Generator().manual_seed(1))
    scores = [crps(scale * noise + shift, truth).mean() for scale, shift in ((1, 0), (0.5, 0), (2, 0), (1, 0.5))]
    assert scores[0] == min(scores)


def test_coverage_of_exact_draws_is_what_is_due():
    rng = np.random.default_rng(0)
    for m in (20, 60):
        result = evaluate(rng.normal(size=(m, 3000, 5)), rng.normal(size=(3000, 5)), cells="all")
        assert abs(result.coverage - coverage_due(0.9, m)) < 0.01
        assert result.coverage_due == coverage_due(0.9, m)


def test_cells_and_units():
    truth = np.zeros((2, 2))
    observed = np.array([[1.0, np.nan], [np.nan, 1.0]])
    draws = np.array([[[1.0, 2.0], [2.0, 1.0]]] * 3)
    assert evaluate(draws, truth, observed, cells="missing").rmse == 2
    assert evaluate(draws, truth, observed, cells="observed").rmse == 1
    assert evaluate(draws, truth, ~np.isnan(observed), cells="missing", unit=2.0).mae == 1
    assert evaluate(draws, truth, observed, cells="observed", peak=10).psnr == pytest.approx(20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": "some"}, "cells must be"),
        ({"observed": None}, "Give a mask"),
        ({"truth": np.zeros((3, 2))}, "do not match"),
    ],
)
def test_bad_questions_are_refused(change, message):
    question = {"draws": np.zeros((2, 2, 2)), "truth": np.zeros((2, 2)), "observed": np.ones((2, 2), bool)}
    with pytest.raises(InvalidData, match=message):
        evaluate(**{**question, **change})


def test_frames_in_another_order_are_refused():
    import pandas as pd
    from conftest import small_table

    from unfade import Recoverer

    frame = pd.DataFrame(small_table(), columns=list("abcd"))
    draws = Recoverer(max_steps=5, verbose=0).fit(frame).sample(frame, 2)
    assert evaluate(draws, frame.fillna(0), frame).count > 0
    with pytest.raises(InvalidData, match="same order"):
        evaluate(draws, frame.fillna(0)[list("dcba")], frame)


def test_unknown_truth_is_left_out_and_masks_are_taken_at_their_word():
    import pandas as pd

    truth = np.array([[5.0, np.nan], [5.0, 5.0]])
    assert evaluate(np.full((3, 2, 2), 5.0), truth, cells="all").rmse == 0
    seen = pd.DataFrame([[True, False], [True, True]])
    assert evaluate(np.zeros((3, 2, 2)), np.zeros((2, 2)), seen, cells="observed").count == 3
    with pytest.raises(InvalidData, match="booleans"):
        evaluate(np.zeros((3, 2, 2)), np.zeros((2, 2)), np.ones((2, 2), int))
    draws = np.zeros((3, 2, 2))
    draws[:, :, 1] = np.nan  # a column never seen
    assert evaluate(draws, np.zeros((2, 2)), np.array([[False, True]] * 2)).energy_score == 0


def test_energy_distance_is_zero_for_equal_laws_and_not_for_others():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 1500, 2, generator=generator)
    assert abs(energy_distance(first, second)) < 0.02
    assert energy_distance(first, second + 1) > 0.3


def test_reconstruction_elbo_stays_below_the_posteriors_own_density():
    model, clean, obs = make(2000)
    architecture = Architecture(latent=2, hidden=(64, 64), decoder_hidden=(), skip=True, shared_variance=True)
    task = Task(obs, GaussianNoise(0.3), architecture, TrainingConfig(steps=1500), seed=0, fixed_steps=True)
    posterior = fit_method("auto", task, {}).posterior
    score = reconstruction_elbo(posterior, obs, clean, architecture, TrainingConfig(steps=1500))
    mean, covariance = model.posterior(obs)
    exact = torch.distributions.MultivariateNormal(mean, covariance).log_prob(clean.double()).mean()
    assert exact - 1.0 < score.elbo < exact + 3 * score.standard_error
    assert score.variance_floor == pytest.approx(np.exp(-10))


@pytest.mark.parametrize(("method", "conditioned"), [("mvae", False), ("miwae", True), ("tae-paper", False)])
def test_no_elbo_is_below_that_of_the_posteriors_own_latents(method, conditioned):
    """q' may be q(z|y): training starts there, and gains on it."""
    _, clean, obs = make(500)
    architecture = Architecture(latent=2, hidden=(32, 32))
    training = TrainingConfig(steps=400, batch_size=64)
    posterior = fit_method(method, Task(obs, GaussianNoise(0.3), architecture, training, 0, fixed_steps=True), {}).posterior
    posterior.conditioned = conditioned
    z = posterior.latent(obs).sample((500,))
    own = posterior.clean(z, obs).log_prob(clean).mean(1).reshape(50, 10).mean(1)  # of ten draws a row, fifty times
    still, trained = (
        reconstruction_elbo(posterior, obs, clean, architecture, TrainingConfig(steps=steps, learning_rate=rate))
        for steps, rate in ((1, 1e-12), (300, 1e-3))
    )
    assert still.start == pytest.approx(float(own.mean()), abs=4 * float(own.std()))
    assert float(own.std()) < 0.3 * abs(float(own.mean()))
    assert still.elbo == pytest.approx(still.start, rel=1e-4)
    assert still.divergence == pytest.approx(0, abs=1e-5)
    assert trained.start == still.start
    assert trained.elbo > trained.start + 0.05
    assert trained.divergence > 0.01


def test_an_inference_network_that_training_spoiled_is_not_used():
    _, clean, obs = make(200)
    architecture = Architecture(latent=2, hidden=(8, 8))
    training = TrainingConfig(steps=50, batch_size=64)
    posterior = fit_method("mvae", Task(obs, GaussianNoise(0.3), architecture, training, 0, fixed_steps=True), {}).posterior
    spoiled = reconstruction_elbo(posterior, obs, clean, architecture, TrainingConfig(steps=3, learning_rate=50.0))
    assert spoiled.elbo == spoiled.start
