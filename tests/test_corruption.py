import pytest
import torch
from torch.distributions import Independent, Normal

from unfade.corruption.masks import mask_at_random, mask_by_own_value, mask_given_others, mask_window
from unfade.corruption.mixed import recording
from unfade.corruption.noise import GaussianNoise
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations, as_observations
from unfade.errors import InvalidData
from unfade.rng import generator_normals
from unfade.training.loop import scoped_seed


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def some_case(features=5):
    torch_generator = generator()
    clean = Independent(
        Normal(
            torch.randn(3, features, generator=torch_generator), 0.5 + torch.rand(3, features, generator=torch_generator)
        ),
        1,
    )
    observed = torch.tensor([[True, False, True, False, True]] * 3)
    values = clean.base_dist.loc + 0.5 * torch.randn(3, features, generator=torch_generator)
    obs = Observations(values * observed, observed)
    return clean, obs


def test_marginal_equals_the_integral():
    clean, obs = some_case()
    noise = GaussianNoise(0.4)
    with scoped_seed(0):
        x = clean.sample((200_000,))
    by_hand = noise.log_prob(obs, x).logsumexp(0) - torch.tensor(200_000.0).log()
    assert torch.allclose(noise.marginal_log_prob(obs, clean), by_hand, atol=0.05)


def test_bayes_rule_joins_prior_marginal_and_condition():
    clean, obs = some_case()
    noise = GaussianNoise(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]))
    x = torch.randn(3, 5)
    joint = clean.log_prob(x) + noise.log_prob(obs, x)
    assert torch.allclose(noise.condition(obs, clean).log_prob(x) + noise.marginal_log_prob(obs, clean), joint, atol=1e-4)


def test_without_noise_observed_entries_are_pinned():
    clean, obs = some_case()
    pinned = GaussianNoise(0.0).condition(obs, clean)
    draw = pinned.base_dist.loc + pinned.base_dist.scale * torch.randn(3, 5)
    assert torch.equal(draw[obs.observed], obs.values[obs.observed])
    missing = Normal(clean.base_dist.loc[~obs.observed], clean.base_dist.scale[~obs.observed])
    assert torch.allclose(pinned.log_prob(draw).sum(), missing.log_prob(draw[~obs.observed]).sum())
    assert torch.allclose(pinned.entropy().sum(), missing.entropy().sum())
    assert GaussianNoise(0.0).log_prob(obs, draw).abs().max() == 0


def test_gradients_stay_finite_where_entries_are_pinned():
    loc, scale = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    obs = Observations(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]]))
    density = GaussianNoise(0.0).condition(obs, Independent(Normal(loc, scale), 1))
    (density.log_prob(torch.ones(1, 2)) + density.entropy()).sum().backward()
    assert torch.isfinite(loc.grad).all()
    assert torch.isfinite(scale.grad).all()


def test_columns_with_and_without_noise_side_by_side():
    clean, obs = some_case(5)
    noise = GaussianNoise(torch.tensor([0.0, 0.0, 0.3, 0.3, 0.3]))
    density = noise.condition(obs, clean)
    assert torch.equal(density.base_dist.loc[:, 0], obs.values[:, 0])
    assert (density.base_dist.scale[:, 0] == 0).all()
    assert (density.base_dist.scale[:, 2] > 0).all()
    assert (density.base_dist.scale[:, 2] < 0.3).all()


def test_simulated_noise_has_its_level():
    clean = torch.zeros(20_000, 2)
    obs = GaussianNoise(torch.tensor([0.2, 0.5])).corrupt(
        clean, torch.ones_like(clean, dtype=torch.bool), generator_normals(generator())
    )
    assert torch.allclose(obs.values.std(0), torch.tensor([0.2, 0.5]), rtol=0.03)


def test_masks_hide_the_share_they_say():
    clean = torch.randn(5000, 6, generator=generator())
    masks = (
        mask_at_random(clean.shape, 0.3, generator(1)),
        mask_given_others(clean, 0.3, generator(1)),
        mask_by_own_value(clean, 0.3, generator(1)),
    )
    for mask in masks:
        assert abs((~mask).float().mean() - 0.3) < 0.02


def test_mechanisms_are_what_they_say():
    clean = torch.randn(5000, 6, generator=generator())
    at_random = mask_given_others(clean, 0.3, generator(1))
    assert at_random[:, :3].all()
    own = mask_by_own_value(clean, 0.3, generator(1))
    assert clean[~own].mean() > clean[own].mean() + 0.5
    window = mask_window(100, (28, 28), (10, 10), generator())
    assert window.shape == (100, 28, 28)
    assert (window.sum((1, 2)) == 100).all()


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (-0.1, "at least 0"),
        ("loud", "noise must be None"),
        ([0.1, 0.2, 0.3], "one per column"),
        ({}, "must be a number"),
        (float("nan"), "finite"),
    ],
)
def test_bad_noise_is_refused(noise, message):
    space = FeatureEncoder.fit(as_observations([[1.0, 2.0], [3.0, 5.0]]), "variance")
    with pytest.raises(InvalidData, match=message):
        recording(noise, space)


def test_noise_in_units_is_scaled_with_the_data():
    space = FeatureEncoder.fit(as_observations([[0.0, 0.0], [2.0, 200.0]]), "variance")
    assert torch.allclose(recording(0.5, space).std, torch.tensor([0.5, 0.005]))
    assert torch.allclose(recording([0.5, 50.0], space).std, torch.tensor([0.5, 0.5]))
