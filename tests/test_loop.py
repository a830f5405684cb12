import math
from dataclasses import replace

import pytest
import torch
from linear_gaussian import make

from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.errors import InvalidData, TrainingFailed
from unfade.methods.recipes import Task
from unfade.methods.registry import METHODS, fit_many, fit_method
from unfade.models.architectures import Architecture, FlowArchitecture
from unfade.training import early_stopping
from unfade.training import loop as training
from unfade.training.early_stopping import train_watched
from unfade.training.loop import Ended, Run, TrainingConfig, batches, scoped_seed, train, train_many
from unfade.training.objectives import MIWAE, Bound, Objective, PaperTAE

TINY = Architecture(latent=2, hidden=(16,), prior_hidden=(8,), prior_latent=2)


def task(steps=60, **changes):
    _, _, obs = make(300)
    config = TrainingConfig(steps=steps, check_every=10, **changes)
    return Task(obs, GaussianNoise(0.3), TINY, config, seed=0, fixed_steps=True)


SETTINGS = {"flow": {"start_steps": 20}}


def suited(name, given):
    """A task with networks that a method takes."""
    return replace(given, architecture=FlowArchitecture(units=16, blocks=1, steps=2)) if name == "flow" else given


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_is_reproducible(name):
    first, second = (fit_method(name, suited(name, task()), SETTINGS.get(name, {})).posterior for _ in range(2))
    assert torch.equal(weights(first), weights(second))
    assert torch.isfinite(weights(first)).all()


def test_training_improves_the_value():
    t = task(steps=300)
    history = train(t.posterior(), MIWAE(5), t.obs, t.training)
    values = history.terms["value"]
    assert values[-1] > values[0] + 1
    assert history.steps[-1] == 300


def test_global_random_state_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    fit_method("auto", task(), {})
    assert torch.equal(torch.rand(4), expected)


def test_unknown_settings_are_refused():
    with pytest.raises(InvalidData, match="has the settings"):
        fit_method("mvae", task(), {"wings": 2})


class Breaks(Objective):
    """MIWAE whose value is not finite at some calls."""

    def __init__(self, when):
        super().__init__()
        self.when, self.calls, self.inner = when, 0, MIWAE(2)

    def forward(self, posterior, obs, normals, warmup=1.0):
        self.calls += 1
        bound = self.inner(posterior, obs, normals)
        return Bound(bound.value * (math.nan if self.when(self.calls) else 1.0), {})


def test_a_value_that_is_not_finite_backs_off():
    t = task()
    posterior = t.posterior()
    train(posterior, Breaks(lambda call: call == 25), t.obs, t.training)
    assert torch.isfinite(weights(posterior)).all()


def test_a_value_that_stays_non_finite_ends_with_an_error():
    t = task(steps=200)
    posterior = t.posterior()
    with pytest.raises(TrainingFailed, match="not finite"):
        train(posterior, Breaks(lambda call: call > 25), t.obs, t.training)


def test_ctrl_c_keeps_what_is_there():
    t = task(steps=200)
    posterior = t.posterior()
    before = weights(posterior).clone()

    def interrupt(progress):
        if progress.step == 50:
            raise KeyboardInterrupt

    history = train(posterior, MIWAE(2), t.obs, t.training, on_step=interrupt)
    assert history.ended is Ended.INTERRUPTED
    assert torch.isfinite(weights(posterior)).all()
    assert not torch.equal(weights(posterior), before)


@pytest.mark.parametrize("at", [1, 3])
def test_ctrl_c_ends_the_whole_fit_with_what_is_there(at):
    calls = []

    def interrupt(progress):
        calls.append(progress.step)
        if len(calls) == at:
            raise KeyboardInterrupt

    found = fit_method("auto", replace(task(steps=200), fixed_steps=at == 3, on_step=interrupt), {})
    assert len(calls) == at
    assert found.interrupted
    assert torch.isfinite(weights(found.posterior)).all()


def test_time_budget_ends_a_run():
    t = task(steps=10**6, max_seconds=0.5)
    history = train(t.posterior(), MIWAE(2), t.obs, t.training)
    assert history.seconds < 5
    assert history.ended is Ended.OUT_OF_TIME


def test_progress_tells_time_left():
    seen = []
    t = task()
    train(t.posterior(), MIWAE(2), t.obs, t.training, on_step=lambda progress: seen.append(progress))
    assert [p.step for p in seen] == [10, 20, 30, 40, 50, 60]
    assert seen[-1].seconds_left == pytest.approx(0, abs=1e-6)
    assert all(p.seconds_left >= 0 for p in seen)


def test_schedules():
    config = TrainingConfig(learning_rate=1.0, decay=0.5, warmup=(0.1, 0.2, 0.01))
    assert [config.rate_at(p) for p in (0, 0.5, 0.75, 1)] == [1, 1, 0.5, 0]
    assert [round(config.warmup_at(p), 4) for p in (0, 0.1, 0.15, 0.2, 1)] == [0.01, 0.01, 0.505, 1, 1]
    assert TrainingConfig().warmup_at(0) == 1


def test_batches_see_every_row_once_a_pass():
    stream = batches(10, 3, seed=0)
    one_pass = torch.cat([next(stream) for _ in range(3)])
    assert len(one_pass.unique()) == 9
    assert len(next(batches(2, 5, seed=0))) == 2


def test_training_ends_where_held_out_cells_get_worse():
    _, _, obs = make(60)
    wide = Architecture(latent=8, hidden=(64, 64))
    t = Task(obs, GaussianNoise(0.01), wide, TrainingConfig(steps=3000), seed=0, n_candidates=20)
    watched = train_watched([Run(t.posterior(), MIWAE(5), obs, t.training)], n_candidates=20)
    [[first, settled]], steps = watched.histories, watched.steps
    assert first.steps[-1] < 2500
    assert settled.steps[-1] < steps < first.steps[-1]


def test_all_steps_are_taken_where_held_out_cells_get_better_and_better():
    t = task(steps=200)
    watched = train_watched([Run(t.posterior(), MIWAE(5), t.obs, t.training)])
    [[first, settled]], steps = watched.histories, watched.steps
    assert first.steps[-1] == 200
    assert steps == 200 + settled.steps[-1] == 300


def test_watched_side_by_side_models_share_their_length_and_differ_in_what_they_saw():
    t = task(steps=200)
    runs = [Run(t.posterior(), MIWAE(5), t.obs, t.training, seed) for seed in (0, 1)]
    watched = train_watched(runs)
    histories, steps = watched.histories, watched.steps
    assert [h.steps[-1] for h in histories[0]] == [h.steps[-1] for h in histories[1]] == [200, steps - 200]
    assert not torch.allclose(weights(runs[0].posterior), weights(runs[1].posterior), atol=1e-2)


@pytest.mark.parametrize(("rows", "share"), [(100, 0.25), (800, 0.19), (3000, 0.1)])
def test_more_cells_are_held_out_of_small_tables(rows, share):
    _, _, obs = make(rows)
    split = early_stopping.hold_out(obs, 0, GaussianNoise())
    left = float(split.seen.observed.sum() / obs.observed.sum())
    assert 1 - left == pytest.approx(1000 / int(obs.observed.sum()) if rows == 800 else share, abs=0.03)
    assert not (split.seen.observed & ~obs.observed).any()
    assert not (split.given.observed & split.held.observed).any()
    assert len(split.held) <= 1024
    assert split.held.observed.any(1).all()


def test_averages_are_seen_by_the_watcher_alone():
    seen = []
    t = task(steps=100)
    posterior = t.posterior()
    run = Run(posterior, MIWAE(5), t.obs, t.training)
    train_many([run], watch=lambda progress: seen.append(weights(posterior).clone()))
    other = t.posterior()
    train(other, MIWAE(5), t.obs, t.training)
    assert torch.equal(weights(posterior), weights(other))
    assert not torch.allclose(seen[-1], weights(posterior), atol=1e-3)
    assert torch.allclose(seen[-1], weights(posterior), atol=0.2)


@pytest.mark.parametrize("rate", [TrainingConfig().learning_rate, 2e-4])
def test_noise_is_found_where_it_can_be_told(rate):
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(2000, 1, generator=generator)
    clean = factor * torch.tensor([1.0, -1.0, 0.7, 0.5, 1.2, 0.9])  # no spread of their own
    observed = torch.rand(clean.shape, generator=generator) > 0.2
    from unfade.rng import generator_normals

    obs = GaussianNoise(0.3).corrupt(clean, observed, generator_normals(generator))
    t = Task(
        obs,
        GaussianNoise(torch.full((1,), 0.8), learn=True),
        Architecture(latent=4, hidden=(64, 64), skip=True),
        TrainingConfig(steps=5000, learning_rate=rate),
        0,
    )
    stage = next(METHODS["miwae"].recipe(t, weights=8))  # which finds the noise level
    config = replace(t.training, steps=int(t.training.steps * stage.share))
    train_many([Run(stage.posterior, stage.objective, t.obs, config)])
    assert abs(float(t.corruption.std.detach()) - 0.3) < 0.03


def test_models_side_by_side_end_as_if_alone():
    def runs():
        built = []
        for seed in range(3):
            t = task(steps=40)
            data = make(300, seed=seed)[2]
            with scoped_seed(seed):
                prior, inverter = TINY.prior(8), TINY.encoder(8)
            t = replace(t, seed=seed)
            objective = PaperTAE(prior, inverter, lam=1.0 + seed, C=5.0 * seed)
            config = TrainingConfig(steps=40, check_every=10, learning_rate=1e-3 * (seed + 1), warmup=(0.1, 0.5, 0.01))
            built.append(Run(t.posterior(conditioned=False), objective, data, config, seed))
        return built

    together, alone = runs(), runs()
    histories = train_many(together)
    for run, history in zip(alone, histories, strict=True):
        single = train(run.posterior, run.objective, run.obs, run.config, run.seed)
        assert single.terms["value"] == pytest.approx(history.terms["value"], rel=1e-3)
    for first, second in zip(together, alone, strict=True):
        assert torch.allclose(weights(first.posterior), weights(second.posterior), atol=1e-4)
    assert not torch.allclose(weights(together[0].posterior), weights(together[1].posterior), atol=1e-2)


@pytest.mark.slow
def test_a_compiled_step_ends_where_the_plain_one_does(monkeypatch):
    ends = []
    for compile_from in (10**9, 1):
        monkeypatch.setattr(training, "COMPILE_FROM", compile_from)
        t = task(steps=40)
        history = train(posterior := t.posterior(), MIWAE(5), t.obs, t.training)
        ends.append((weights(posterior), history.step))
    assert [how.split(" ")[0] for _, how in ends] == ["eager", "compiled"]
    assert torch.allclose(ends[0][0], ends[1][0], atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_methods_side_by_side_end_as_if_alone(name):
    def tasks():
        noises = [GaussianNoise(0.8, learn=name != "tae-paper") for _ in range(3)]
        return [suited(name, replace(task(steps=30), seed=s, corruption=noise)) for s, noise in enumerate(noises)]

    settings = SETTINGS.get(name, {})
    together = fit_many(name, tasks(), [settings] * 3)
    for t, found in zip(tasks(), together, strict=True):
        assert torch.allclose(weights(fit_method(name, t, settings).posterior), weights(found.posterior), atol=1e-3)
    assert not torch.allclose(weights(together[0].posterior), weights(together[1].posterior), atol=1e-2)


def test_what_cannot_go_side_by_side_is_refused():
    with pytest.raises(InvalidData, match="same stages"):
        fit_many("auto", [task(steps=2), task(steps=2)], [{}, {"posterior": "bound"}])
    with pytest.raises(InvalidData, match="must be equal"):
        fit_many("mvae", [task(steps=2), task(steps=3)], [{}, {}])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (lambda log: (log - 8) ** 2, math.exp(8)),  # a bottom
        (lambda log: -log, 5000),  # still falling
        (lambda log: -((9 - log) ** 2), 1250),  # rising all the way, bent downwards
    ],
)
def test_the_best_length_is_the_bottom_of_a_parabola(shape, expected):
    steps = [400, 500, 625, 800, 1000, 1250, 1600, 2000, 2500, 3200, 4000, 5000]
    assert early_stopping._best_step({step: shape(math.log(step)) for step in steps}) == pytest.approx(expected, rel=5e-3)


def test_a_callback_ends_a_watched_run():
    t = task(steps=200)
    run = Run(t.posterior(), MIWAE(2), t.obs, t.training)
    [[first, *_]] = train_watched([run], on_step=lambda progress: progress.step >= 20).histories
    assert first.steps[-1] == 20


class BreaksOnTheWay(Objective):
    """MIWAE whose value is not finite while the warm-up passes 0.5."""

    def forward(self, posterior, obs, normals, warmup=1.0):
        value = MIWAE(2)(posterior, obs, normals).value
        return Bound(torch.where((warmup > 0.45) & (warmup < 0.55), math.nan, value), {})


def test_one_model_goes_back_and_its_neighbour_does_not():
    def run(seed, warmup):
        t = replace(task(steps=60, warmup=warmup), seed=seed)
        return Run(t.posterior(), BreaksOnTheWay(), t.obs, t.training, seed)

    falls, stands, alone = run(0, (0.0, 1.0, 0.0)), run(1, (0.0, 0.0, 1.0)), run(1, (0.0, 0.0, 1.0))
    histories = train_many([falls, stands])
    assert len(histories[0].steps) < len(histories[1].steps) == 6
    assert torch.isfinite(weights(falls.posterior)).all()
    train_many([alone])
    assert torch.allclose(weights(stands.posterior), weights(alone.posterior), atol=1e-4)


def test_networks_that_found_the_noise_level_have_no_say_in_held_out_cells():
    obs = Observations(torch.randn(50, 4), torch.rand(50, 4) < 0.8)
    noise = GaussianNoise(torch.full((1,), 0.8), learn=True)
    task = Task(obs, noise, Architecture(latent=2, hidden=(8,)), TrainingConfig(steps=20), 0)
    recipe = METHODS["mvae"].recipe(task)
    first, second = next(recipe), recipe.send(False)
    assert second.watched
    assert first.posterior is not second.posterior
    assert first.posterior.corruption is second.posterior.corruption
    assert not second.posterior.corruption.learned
