"""The objectives against plain NumPy, closed forms and each other."""

import numpy as np
import pytest
import torch
from linear_gaussian import make
from torch.distributions import Independent, Normal

from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.distributions import Cells
from unfade.errors import InvalidData
from unfade.methods.recipes import Task
from unfade.methods.registry import fit_method
from unfade.metrics import energy_score
from unfade.models.architectures import Architecture
from unfade.models.conditional_densities import Conditional
from unfade.models.latent_variable import PosteriorLVM
from unfade.rng import generator_normals
from unfade.training.loop import Run, TrainingConfig, scoped_seed
from unfade.training.objectives import MIWAE, MVAE, PaperTAE, Predictive, hide_share

SMALL = Architecture(latent=2, hidden=(64, 64), decoder_hidden=(), skip=True, shared_variance=True)


def normals(seed=0):
    return generator_normals(torch.Generator().manual_seed(seed))


def paper_parts(sees: bool, noise: float):
    architecture = Architecture(latent=3, hidden=(8, 8), prior_latent=2, prior_hidden=(5, 5), decoder_sees=sees)
    features, generator = 4, torch.Generator().manual_seed(1)
    with scoped_seed(0):
        objective = PaperTAE(
            architecture.prior(features), architecture.encoder((3 if sees else 1) * features), sees, lam=2.0, C=10.0
        )
        posterior = PosteriorLVM(
            architecture.encoder(2 * features), architecture.decoder(features), GaussianNoise(noise), False, sees
        )
    observed = torch.rand(6, features, generator=generator) > 0.4
    obs = Observations(torch.randn(6, features, generator=generator) * observed, observed)
    return posterior, objective, obs


def numpy_mlp(network, *inputs):
    out = np.concatenate(inputs, -1)
    layers = [layer for layer in network.layers if hasattr(layer, "weight")]
    for layer in layers[:-1]:
        out = out @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        out = np.where(out > 0, out, 0.01 * out)
    return out @ layers[-1].weight.detach().double().numpy().T + layers[-1].bias.detach().double().numpy()


def numpy_gaussian(conditional, *inputs):
    mean, raw = np.split(numpy_mlp(conditional.network, *inputs), 2, -1)
    return mean, conditional.width * (1 / (1 + np.exp(-4 * raw / conditional.width)) - 0.5)


def log_normal(x, mean, log_variance):
    return -0.5 * (np.log(2 * np.pi) + log_variance + (x - mean) ** 2 / np.exp(log_variance))


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("noise", [0.3, 0.0])
@pytest.mark.parametrize("penalty", ["sample", "expectation"])
def test_paper_terms_equal_the_equation_in_numpy(sees, noise, penalty):
    posterior, objective, obs = paper_parts(sees, noise)
    objective.penalty = penalty
    eps = [torch.randn(6, n, generator=torch.Generator().manual_seed(i)) for i, n in enumerate((3, 4, 2))]
    given = iter(eps)
    bound = objective(posterior, obs, lambda *shape: next(given).reshape(shape), warmup=0.3)
    e_z, e_x, e_p = (e.double().numpy() for e in eps)
    y, a = obs.values.double().numpy(), obs.observed.double().numpy()

    z_mean, z_lv = numpy_gaussian(posterior.encoder, y, a)
    z = z_mean + np.exp(z_lv / 2) * e_z
    x_mean, x_lv = numpy_gaussian(posterior.decoder, *((z, y, a) if sees else (z,)))
    x = x_mean + np.exp(x_lv / 2) * e_x
    free = np.ones_like(a)
    if noise == 0:  # x = y where seen; Hx over missing cells only
        x, free = np.where(a == 1, y, x), 1 - a
    p_mean, p_lv = numpy_gaussian(objective.prior.encoder, x)
    z_p = p_mean + np.exp(p_lv / 2) * e_p
    r_mean, r_lv = numpy_gaussian(objective.inverter, *((x, y, a) if sees else (x,)))
    expected = {
        "E": (a * log_normal(y, x, 2 * np.log(noise))).sum(1) if noise else np.zeros(6),
        "P": log_normal(x, *numpy_gaussian(objective.prior.decoder, z_p)).sum(1),
        "K": 0.5 * (np.exp(p_lv) + p_mean**2 - 1 - p_lv).sum(1),
        "Hz": 0.5 * (np.log(2 * np.pi * np.e) + z_lv).sum(1),
        "Hx": (free * 0.5 * (np.log(2 * np.pi * np.e) + x_lv)).sum(1),
        "R": log_normal(z, r_mean, r_lv).sum(1),
        "Q": log_normal(z, z_mean, z_lv).sum(1),
    }
    for name, term in expected.items():
        np.testing.assert_allclose(bound.terms[name].detach().numpy(), term, rtol=2e-4, atol=2e-4, err_msg=name)
    gap = expected["R"] - expected["Q"]
    gap = gap if penalty == "sample" else gap.mean()
    value = expected["E"] + 0.3 * (expected["P"] - expected["K"] + expected["Hx"]) + expected["Hz"] - 2 * abs(gap - 10)
    np.testing.assert_allclose(bound.value.detach().numpy(), value, rtol=2e-4, atol=2e-3)


def test_miwae_with_one_weight_equals_mvae():
    _, _, obs = make(200)
    task = Task(obs, GaussianNoise(0.3), SMALL, TrainingConfig(), seed=0)
    posterior = task.posterior()
    random = normals()
    with torch.no_grad():
        one = torch.stack([MIWAE(1)(posterior, obs, random).value.mean() for _ in range(400)])
        mvae = torch.stack([MVAE()(posterior, obs, random).value.mean() for _ in range(400)])
    error = (one.var() / len(one) + mvae.var() / len(mvae)).sqrt()
    assert abs(one.mean() - mvae.mean()) < 3 * error + 1e-4


def fitted_by(name, task, settings):
    """The posterior, and the objective of its last stage."""
    objectives = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("unfade.methods.registry.Run", lambda *given: objectives.append(given[1]) or Run(*given))
        return fit_method(name, task, settings).posterior, objectives[-1]


@pytest.fixture(scope="module")
def trained():
    """The three bounds trained on linear-Gaussian data, valued on fresh rows beside their exact evidence."""
    model, _, obs = make(4000)
    obs, fresh = obs[:2000], obs[2000:]
    values = {}
    for name, settings in (("mvae", {}), ("miwae", {"weights": 10}), ("tae", {})):
        task = Task(obs, GaussianNoise(0.3), SMALL, TrainingConfig(steps=1000), seed=0, fixed_steps=True)
        posterior, objective = fitted_by(name, task, settings)
        with torch.no_grad():
            values[name] = objective(posterior, fresh, normals()).value.double()
    return model.log_prob(fresh), values


@pytest.mark.parametrize("name", ["mvae", "miwae", "tae"])
def test_bounds_stay_below_the_exact_evidence(trained, name):
    exact, values = trained
    gap = values[name] - exact
    error = gap.std() / len(gap) ** 0.5
    print(f"{name}: bound {values[name].mean():.3f}, exact {exact.mean():.3f}")
    assert gap.mean() < 3 * error
    assert gap.mean() > -0.5  # and close below, or a wrong sign or weight would pass


def test_the_predictive_bound_stays_below_the_exact_density_of_what_is_hidden():
    """log p(y_h|y_s) = log p(y) - log p(y_s), exactly known of linear-Gaussian data."""
    model, _, obs = make(4000)
    obs, fresh = obs[:2000], obs[2000:]
    task = Task(obs, GaussianNoise(0.3), SMALL, TrainingConfig(steps=1000), seed=0, fixed_steps=True)
    posterior = fit_method("masked", task, {}).posterior
    hidden = hide_share(fresh, normals(1))
    with torch.no_grad():
        terms = Predictive(lambda obs, normals: hidden)(posterior, fresh, normals()).terms
    gap = (terms["E"] - terms["K"]).double() - (model.log_prob(fresh) - model.log_prob(fresh.only(~hidden)))
    print(f"predictive: {gap.mean():.3f} from the exact density of what is hidden")
    assert gap.mean() < 3 * gap.std() / len(gap) ** 0.5
    assert gap.mean() > -0.5


class Alike(Conditional):
    """The same Gaussian for every sample."""

    def __init__(self, features, loc, scale):
        super().__init__()
        self.features, self.loc, self.scale = features, loc, scale

    def forward(self, first, *rest):
        loc = torch.full((*first.shape[:-1], self.features), self.loc)
        return Independent(Cells(loc, torch.full_like(loc, self.scale)), 1)


def test_the_energy_score_of_what_is_hidden():
    """Of one entry it is the CRPS, known in closed form for a Gaussian: here of N(0.5, 0.3^2 + 0.4^2) at 1."""
    posterior = PosteriorLVM(Alike(2, 0.0, 1.0), Alike(1, 0.5, 0.3), GaussianNoise(0.4), conditioned=True)
    obs = Observations(torch.ones(100_000, 1), torch.ones(100_000, 1, dtype=torch.bool))
    found = Predictive(lambda obs, normals: obs.observed, energy_weight=3.0)(posterior, obs, normals())
    gauss = torch.distributions.Normal(0.0, 1.0)
    one = torch.tensor(1.0)
    crps = 0.5 * ((2 * gauss.cdf(one) - 1) + 2 * gauss.log_prob(one).exp() - np.pi**-0.5)
    assert float(found.terms["energy score"].mean()) == pytest.approx(float(crps), rel=0.01)
    density = torch.distributions.Normal(0.5, 0.5).log_prob(one)
    assert found.terms["K"].abs().max() == 0
    assert float(found.value.mean()) == pytest.approx(float(density - 3 * crps), rel=0.01)


def test_the_energy_score_is_that_of_hidden_entries_together():
    """Of many draws it is what `energy_score` says; what is shown adds nothing."""
    posterior = PosteriorLVM(Alike(2, 0.0, 1.0), Alike(3, 0.5, 0.3), GaussianNoise(0.4), conditioned=True)
    values = torch.tensor([[1.0, -0.5, 9.0]]).expand(50_000, 3)
    obs = Observations(values, torch.ones(50_000, 3, dtype=torch.bool))
    hidden = torch.tensor([True, True, False]).expand(50_000, 3)
    found = float(Predictive(lambda obs, normals: hidden)(posterior, obs, normals()).terms["energy score"].mean())
    draws = 0.5 + 0.5 * torch.randn(2000, 1, 3, generator=torch.Generator().manual_seed(0))
    assert found == pytest.approx(float(energy_score(draws, values[:1], hidden[:1]).mean()), rel=0.02)


def test_the_encoder_learns_from_what_is_shown_by_a_share():
    """fidelity scales the encoder's gradient of log p(y_s|z), not the value, nor the decoder's gradient."""
    _, _, obs = make(50)
    posterior = SMALL.encoder(2 * 8), SMALL.decoder(8)
    posterior = PosteriorLVM(*posterior, GaussianNoise(0.3), own_prior=True)
    hidden = hide_share(obs, normals(1))
    found = {}
    for fidelity in (0.0, 0.3, 1.0):
        terms = Predictive(lambda obs, normals: hidden, 0.0, fidelity)(posterior, obs, normals()).terms
        parts = [next(part.parameters()) for part in (posterior.encoder, posterior.decoder)]
        found[fidelity] = [terms["F"].detach(), *torch.autograd.grad(terms["F"].sum(), parts, allow_unused=True)]
    none, some, whole = found.values()
    torch.testing.assert_close(none[0], whole[0])
    assert float(none[1].abs().max()) == 0
    torch.testing.assert_close(some[1], 0.3 * whole[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(some[2], whole[2], rtol=1e-4, atol=1e-6)


def test_any_share_is_hidden():
    obs = Observations(torch.zeros(2000, 50), torch.ones(2000, 50, dtype=torch.bool))
    hidden = hide_share(obs, normals())
    shares = hidden.float().mean(1)
    assert torch.quantile(shares, torch.tensor([0.1, 0.5, 0.9])).tolist() == pytest.approx([0.1, 0.5, 0.9], abs=0.04)
    assert hidden.float().mean(0).tolist() == pytest.approx([0.5] * 50, abs=0.05)


def test_entries_that_are_not_pinned_are_drawn_and_scored_by_the_decoder():
    """As the paper trains on data without noise: E is the masked log-density of y, and x is drawn in every entry."""
    posterior, objective, obs = paper_parts(True, 0.0)
    pinned = objective(posterior, obs, normals()).terms
    objective.pinned = False
    free = objective(posterior, obs, normals()).terms
    assert not pinned["E"].any()
    q_z = posterior.latent(obs).base_dist
    q_x = posterior.decode(q_z.at(normals()(*q_z.loc.shape)), obs).base_dist
    by_hand = (Normal(q_x.loc, q_x.scale).log_prob(obs.values) * obs.observed).sum(1)
    assert torch.allclose(free["E"], by_hand, rtol=1e-4)
    assert torch.allclose(free["Hx"], q_x.entropy().sum(1), rtol=1e-4)
    assert (free["P"] != pinned["P"]).all()
    with pytest.raises(InvalidData, match="without noise"):
        fit_method("tae-paper", Task(obs, GaussianNoise(0.3), SMALL, TrainingConfig(), seed=0), {"pinned": False})


class Rescaled(Conditional):
    """A conditional over z in other units: z is `factor` times as large."""

    def __init__(self, conditional, factor, latent_is_input=False):
        super().__init__()
        self.conditional, self.factor, self.latent_is_input = conditional, factor, latent_is_input

    def forward(self, *condition):
        if self.latent_is_input:
            return self.conditional(condition[0] / self.factor, *condition[1:])
        base = self.conditional(*condition).base_dist
        return Independent(Cells(base.loc * self.factor, base.scale * self.factor), 1)


def test_the_papers_value_is_no_bound():
    """Other units of z change neither q(x|y) nor R - Q, but raise Hz, and with it the value, without limit."""
    model, _, obs = make(500)
    architecture = Architecture(latent=3, hidden=(8, 8), prior_latent=2, prior_hidden=(5, 5))
    task = Task(obs, GaussianNoise(0.3), architecture, TrainingConfig(), seed=0)
    with scoped_seed(0):
        posterior, objective = task.posterior(conditioned=False), PaperTAE(architecture.prior(8), architecture.encoder(8))
    before = objective(posterior, obs, normals())
    factor = 1e18
    posterior.encoder, objective.inverter = Rescaled(posterior.encoder, factor), Rescaled(objective.inverter, factor)
    posterior.decoder = Rescaled(posterior.decoder, factor, latent_is_input=True)
    after = objective(posterior, obs, normals())
    assert torch.allclose(after.value - before.value, torch.tensor(3 * np.log(factor)).float(), rtol=1e-3)
    for same in ("E", "P", "K", "Hx"):
        assert torch.allclose(after.terms[same], before.terms[same], rtol=1e-3, atol=1e-3)
    excess = after.value.mean() - model.log_prob(obs).mean()
    print(f"with untrained networks tae-paper's value is {excess:.1f} nats above the exact log p(y)")
    assert excess > 0


def test_more_weights_tighten_the_bounds():
    _, _, obs = make(1000)
    posterior = Task(obs, GaussianNoise(0.3), SMALL, TrainingConfig(), seed=0).posterior()
    with torch.no_grad():
        values = [MIWAE(k)(posterior, obs, normals()).value.mean() for k in (1, 10, 100)]
    assert values[0] < values[1] < values[2]
