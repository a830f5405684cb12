"""The flow posterior: its networks, its draws, its training by expectation and maximisation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from linear_gaussian import make
from test_exact_posterior import ROWS, compare, draw

from unfade import FlowArchitecture, Recoverer, TrainingConfig
from unfade.corruption.growing_noise import GrowingNoise
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.errors import InvalidData
from unfade.methods.flow import build_flow
from unfade.methods.parameters import Parameters
from unfade.methods.recipes import Task
from unfade.methods.registry import FLOW_TRAINING, fit_method
from unfade.models.flow import FlowPosterior
from unfade.models.velocity_networks import Dropout, FeatureNetwork, UNet
from unfade.rng import KeyedNormals, generator_normals
from unfade.training.checkpoints import Checkpoint
from unfade.training.expectation import USES, ExpectationStep
from unfade.training.loop import Progress

SMALL = FlowArchitecture(units=64, blocks=3, dropout=0.0, steps=12)


def task(obs, noise, steps=3200, architecture=SMALL):
    config = replace(FLOW_TRAINING, steps=steps, batch_size=128, learning_rate=2e-3)
    return Task(obs, noise, architecture, config, 0)


@pytest.fixture(scope="module")
def data():
    return make(16_000)


@pytest.fixture(scope="module")
def flow(data):
    return fit_method("flow", task(data[2], GaussianNoise(0.3)), {"start_steps": 1000}).posterior


def test_draws_are_those_of_the_exact_posterior(data, flow):
    error, ratio, coverage, relative = compare(data, draw(flow, data[2][:ROWS], 100))
    print(f"error {error:.3f}, sd ratio {ratio:.3f}, coverage {coverage:.3f}, CRPS ratio {relative:.3f}")
    assert error < 0.3
    assert 0.93 < ratio < 1.12
    assert 0.84 < coverage < 0.94
    assert relative < 1.06


@pytest.mark.parametrize("sd", [1.0, 0.5, 0.2, 0.05])
def test_sixteen_steps_give_the_spread_of_a_normal_distribution(sd):
    def velocity(parts, t, numbers):  # of x_t = (1 - t) e + t x, x normal with that standard deviation
        t = t[:, None]
        return parts[0] * (t * sd**2 - (1 - t)) / ((1 - t) ** 2 + t**2 * sd**2)

    flow = FlowPosterior(FeatureNetwork(3, 8, 1, 3, 0.0), GaussianNoise(0.1)).double()
    flow.network.forward = velocity
    obs = Observations(torch.zeros(1, 3).double(), torch.zeros(1, 3, dtype=torch.bool))
    drawn = flow.redraw(obs, torch.ones(1, 1, 3).double(), steps=16)
    assert float(drawn[0, 0, 0]) == pytest.approx(sd, rel=0.012)


def test_the_density_is_that_of_the_exact_posterior(data, flow):
    model, clean, obs = data
    mean, covariance = model.posterior(obs[:100])
    exact = torch.distributions.MultivariateNormal(mean, covariance).log_prob(clean[:100].double())
    found = flow.log_prob(clean[:100], obs[:100], generator_normals(torch.Generator().manual_seed(0)), probes=8)
    assert (found - exact).mean().abs() < 0.6
    assert np.corrcoef(found, exact)[0, 1] > 0.9


def test_what_shows_nothing_is_drawn_from_the_prior(data, flow):
    nothing = Observations(torch.zeros(1, 8), torch.zeros(1, 8, dtype=torch.bool))
    drawn = flow.draw(nothing, 2000, KeyedNormals(0, torch.zeros(1)))[:, 0].double()
    there = data[0].covariance.double()
    assert (drawn.T.cov() - there).abs().max() < 0.25 * there.diagonal().max()


def test_rows_have_the_same_draws_in_any_batch(data, flow):
    obs, rows = data[2][:40], torch.arange(40)
    together = flow.draw(obs, 3, KeyedNormals(1, rows))
    alone = torch.cat([flow.draw(obs[[i]], 3, KeyedNormals(1, rows[[i]])) for i in range(5)], 1)
    torch.testing.assert_close(together[:, :5], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("levels", [torch.tensor(0.3), torch.tensor([0.1, 0.3, 0.6])], ids=["shared", "per column"])
def test_noise_is_found_from_clean_rows(levels):
    rng = torch.Generator().manual_seed(0)
    x, observed = torch.randn(4000, 3, generator=rng), torch.rand(4000, 3, generator=rng) < 0.7
    obs = GaussianNoise(levels).corrupt(x, observed, generator_normals(rng))
    found = GaussianNoise(torch.ones(levels.shape), learn=True)
    halves = [found.squares(obs[rows], x[rows]) for rows in (slice(0, 2000), slice(2000, 4000))]
    found.fit_noise(sum(halves) / 2)
    torch.testing.assert_close(found.std.detach(), levels, rtol=0.04, atol=0)


@pytest.mark.parametrize(("image", "patch"), [((8, 8, 1), 1), ((7, 9, 3), 1), ((1, 24, 2), 1), ((30, 21, 1), 2)], ids=str)
def test_networks_of_any_size(image, patch):
    network, size = UNet(image, (16, 32), 3, patch, 0.2), int(np.prod(image))
    parts, t = [torch.randn(2, size) for _ in range(3)], torch.rand(2)
    assert network(parts, t).shape == (2, size)
    assert not network(parts, t).any()  # what it gives at first
    numbers = torch.randn(2, network.dropped)
    for parameter in network.parameters():
        parameter.data.normal_(0, 0.1)
    assert not torch.equal(network(parts, t, numbers), network(parts, t))


@pytest.mark.parametrize("network", [UNet((8, 8, 1), (16, 32, 32), 3, 1, 0.5), FeatureNetwork(5, 32, 2, 3, 0.5)])
def test_dropout_has_a_number_for_each_channel(network, monkeypatch):
    taken = []
    monkeypatch.setattr(Dropout, "__call__", lambda self, x: taken.append(x.shape[1]) or x)
    size = 64 if isinstance(network, UNet) else 5
    network([torch.randn(2, size) for _ in range(3)], torch.rand(2), torch.randn(2, network.dropped))
    assert sum(taken) == network.dropped


def test_dropout_keeps_the_mean():
    x = torch.ones(2000, 3)
    dropped = Dropout(0.25, torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)))(x)
    assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1) / 0.75)}
    assert abs(float(dropped.mean()) - 1) < 0.03


def test_each_draw_is_used_some_twelve_times(data, flow):
    obs = data[2][:100]
    draws = Observations(torch.zeros_like(obs.values), obs.observed)
    step = ExpectationStep(flow, obs, draws, batch=50, split=None, first=0.0, learn=False, seed=0)
    step(Progress(USES, 1000, 0.0, 0.0))
    assert int(draws.values.any(1).sum()) == 50
    step(Progress(2 * USES, 1000, 0.0, 0.0))
    assert bool(draws.values.any(1).all())


def test_growing_noise_is_found_from_clean_rows():
    rng = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(500, 40, generator=rng)
    true = GrowingNoise(0.1, 0.05, 0.0)
    obs = true.corrupt(x, torch.ones_like(x, dtype=torch.bool), generator_normals(rng))
    found = GrowingNoise(1.0, 1.0, torch.zeros(1), learn=True)
    found.fit_noise(found.squares(obs, x))
    assert abs(found.std.item() - 0.1) < 0.01
    assert abs(found.growth.item() - 0.05) < 0.005


@pytest.fixture(scope="module")
def stripes():
    """Images of one stripe each, at a random place, with missing pixels."""
    rng = np.random.default_rng(0)
    X = np.zeros((120, 8, 8))
    for image in X:
        image[:, rng.integers(8)] = 1
    return np.where(rng.random(X.shape) < 0.4, np.nan, X)


QUICK = FlowArchitecture((8, 8, 1), (8, 16), dropout=0.1, steps=4)


def recoverer(**options):
    config = TrainingConfig(steps=60, batch_size=32, learning_rate=2e-3, check_every=20)
    given = {"architecture": QUICK, "training": config, "settings": {"start_steps": 40}, "calibrate": False} | options
    return Recoverer("flow", random_state=0, verbose=0, **given)


def test_images_come_back_with_what_was_observed(stripes, tmp_path):
    rec = recoverer().fit(stripes)
    draws = rec.sample(stripes, 2)
    seen = ~np.isnan(stripes)
    assert np.array_equal(draws.values[0][seen], stripes[seen])
    assert np.isfinite(draws.values).all()
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert np.array_equal(again.sample(stripes, 2).values, draws.values)
    assert "a flow by a U-Net" in str(rec.plan(stripes))


def test_training_goes_on_to_the_same_result(tmp_path):
    """Also the noise level, and the draws that are trained on."""
    _, _, obs = make(200)

    def fitted(heard=None, checkpoint=None):
        noise = GaussianNoise(torch.full((1,), 0.8), learn=True)
        short = replace(task(obs, noise, 200), checkpoint=checkpoint, on_step=heard)
        if checkpoint is not None:
            checkpoint.begin("this fit")
        return fit_method("flow", short, {"start_steps": 100}).posterior.state_dict()

    heard = []
    expected = fitted(heard.append)

    def stop(progress):
        heard.pop()
        if len(heard) == 2:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fitted(stop, Checkpoint(tmp_path, every=0))
    again = fitted(checkpoint=Checkpoint(tmp_path, resume=True))
    assert all(torch.equal(again[name], value) for name, value in expected.items())


def test_a_state_holds_what_the_noise_is_learned_from():
    """Noise goes by the last quarter of the rows, which a single stretch of training does not use up."""
    _, _, obs = make(200)
    posterior = build_flow(task(obs, GaussianNoise(torch.full((1,), 0.8), learn=True), 200), obs)

    def step(calls, state=None):
        draws = Observations(obs.values.clone(), obs.observed)
        made = ExpectationStep(posterior, obs, draws, 100, None, 0.0, learn=True, seed=0)
        if state is not None:
            made.load(state)
        for _ in range(calls):
            made(Progress(made.step + 2, 1000, 0.0, 0.0))
        return made

    posterior.corruption.set_level(torch.tensor([0.8]))
    state = {name: value.clone() for name, value in step(2).state().items()}
    expected = step(1, state).posterior.corruption.std.clone()
    assert len(step(0, state).squares) == 2
    posterior.corruption.set_level(torch.tensor([0.5]))
    assert torch.equal(step(1, state).posterior.corruption.std, expected)
    forgotten = {name: value for name, value in state.items() if name not in ("rows", "squares")}
    assert not torch.equal(step(1, forgotten).posterior.corruption.std, expected)


def test_other_architectures_are_refused(stripes):
    with pytest.raises(InvalidData, match="go together"):
        Recoverer("mvae", architecture=QUICK, verbose=0).fit(stripes)


def test_images_are_given_to_a_flow_where_there_is_a_gpu(monkeypatch):
    def method(shape, **options):
        return Parameters(**options).for_images(shape).method

    assert method((28, 28)) == "auto"
    monkeypatch.setattr(Parameters, "torch_device", lambda self: torch.device("cuda"))
    assert method((28, 28)) == method((16, 16, 3)) == "flow"
    assert method((28,)) == method((128, 128)) == method((28, 28), network="full") == "auto"
    assert method((28, 28), method="masked") == "masked"
    assert method((28, 28), settings={"weights": 4}) == "auto"
