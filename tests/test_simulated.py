"""Corruptions that are simulated: each step against what it is, and flows that undo them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.ndimage import gaussian_filter

from unfade import FlowArchitecture, Recoverer, TrainingConfig
from unfade.corruption.simulated import (
    STEPS,
    Blurred,
    Downsampled,
    Gaussian,
    Multiplicative,
    Outliers,
    Poisson,
    Quantised,
    Saturated,
    Simulated,
    SimulatedCorruption,
    Stripes,
    from_json,
    steps_of,
    to_json,
)
from unfade.errors import InvalidData
from unfade.rng import generator_normals

EXAMPLES = [
    Gaussian(0.1), Poisson(30.0), Multiplicative(0.2), Outliers(0.1), Quantised(0.25), Saturated(0.1, 0.9), Blurred(1.0),
    Downsampled(2), Stripes(0.1),
]  # fmt: skip


def normals(seed=0):
    return generator_normals(torch.Generator().manual_seed(seed))


def images(count=3, height=12, width=10):
    return torch.rand(count, height, width, generator=torch.Generator().manual_seed(1))


def test_there_is_an_example_of_each_step():
    assert {type(step) for step in EXAMPLES} == set(STEPS.values())


@pytest.mark.parametrize("step", EXAMPLES, ids=lambda step: step.name)
@pytest.mark.parametrize("shape", [(3, 12, 10), (3, 12, 10, 2)], ids=str)
def test_steps_keep_the_shape_and_follow_from_the_numbers(step, shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    first, again = (step.apply(x, normals()) for _ in range(2))
    assert first.shape == x.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, x)


@pytest.mark.parametrize("mean", [0.3, 4.0, 11.9, 12.1, 80.0])
def test_poisson_numbers_have_the_distribution(mean):
    found = (Poisson(1.0).apply(torch.full((40_000,), mean), normals())).numpy()
    assert np.array_equal(found, found.round())
    counts = np.bincount(found.astype(int))
    expected = stats.poisson.pmf(np.arange(len(counts)), mean)
    assert np.abs(counts / len(found) - expected).sum() / 2 < 0.02


def test_blur_is_that_of_scipy():
    x = images()
    blurred = Blurred(1.3).apply(x, normals())
    exact = np.stack([gaussian_filter(image, 1.3, mode="nearest", truncate=4 / 1.3) for image in x.numpy()])
    assert np.abs(blurred.numpy() - exact).max() < 2e-3


def test_squares_of_pixels_have_their_mean():
    x = images(1, 5, 4)
    found = Downsampled(2).apply(x, normals())
    assert torch.allclose(found[0, :2, :2], x[0, :2, :2].mean().expand(2, 2))
    assert torch.allclose(found[0, 4, :2], x[0, 4, :2].mean().expand(2))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Gaussian(0.2), 0.2), (Multiplicative(0.5), 0.25), (Stripes(0.3), 0.3),
        (Outliers(0.3, 2.0, 2.0), 1.5 * (0.3 * 0.7) ** 0.5),
    ],
    ids=lambda part: getattr(part, "name", ""),
)  # fmt: skip
def test_spread_is_as_given(step, expected):
    x = torch.full((400, 20, 20), 0.5)
    found = step.apply(x, normals())
    assert abs(found.std().item() / expected - 1) < 0.05


def corruption_of(steps, shape=(12, 10)):
    size = int(np.prod(shape))
    units = torch.full((size,), 0.5), torch.full((size,), 2.0)
    return SimulatedCorruption(steps_of(steps), shape, *units, torch.arange(size), torch.zeros(size))


def test_steps_work_in_the_units_of_the_data():
    x = images().flatten(1)
    observed = torch.rand(x.shape) < 0.7
    found = corruption_of([Quantised(0.5)]).corrupt((x - 0.5) / 2, observed, normals())
    values = 0.5 + 2 * found.values[observed]
    assert torch.allclose(values, (2 * values).round() / 2, atol=1e-6)
    assert not found.values[~observed].any()


def test_the_level_after_other_steps_is_found():
    corruption = corruption_of([Blurred(1.0), Gaussian()])
    assert corruption.learned
    x = images(50).flatten(1)
    corruption.set_level(torch.tensor([0.2]))
    obs = corruption.corrupt(x, torch.ones_like(x, dtype=torch.bool), normals())
    corruption.set_level(torch.tensor([1.0]))
    corruption.fit_noise(corruption.squares(obs, x))
    assert abs(corruption.std.item() - 0.2) < 0.01


def test_steps_are_stored_by_name():
    steps = steps_of([Blurred(1.5), Quantised(0.1), Gaussian("learn")])
    assert from_json(to_json(steps)) == steps

    def rough(clean, rng):
        return clean + rng.normal(size=clean.shape)

    stored = to_json(steps_of(rough))
    assert stored == [{"step": "function", "named": "rough"}]
    with pytest.raises(InvalidData, match="corruption=rough"):
        from_json(stored)[0].apply(images(), normals())
    assert from_json(stored, rough)[0].apply(images(), normals()).shape == images().shape


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("blur", "is made of Gaussian"), (Blurred(0), "positive"), (Outliers(1.5), "positive"),
        (Downsampled(1.5), "integer"),
        ([Gaussian("learn"), Blurred(1.0)], "last step"), (Poisson(float("nan")), "positive"),
    ],
)  # fmt: skip
def test_what_is_no_corruption_is_refused(given, message):
    with pytest.raises(InvalidData, match=message):
        steps_of(given)


def test_a_function_must_keep_the_shape():
    with pytest.raises(InvalidData, match="shape it was given"):
        Simulated(lambda clean, rng: clean[:1]).apply(images(), normals())


def test_it_belongs_to_flows():
    with pytest.raises(InvalidData, match="needs method='flow'"):
        Recoverer(corruption=Blurred(1.0), verbose=0).fit(np.random.default_rng(0).random((30, 8, 8)))


@pytest.fixture(scope="module")
def stripes():
    rng = np.random.default_rng(0)
    X = np.zeros((100, 8, 8))
    for image in X:
        image[:, rng.integers(8)] = 1
    return X


def recoverer(corruption):
    config = TrainingConfig(steps=300, batch_size=32, learning_rate=3e-3, check_every=50)
    network = FlowArchitecture((8, 8, 1), (16, 32), dropout=0.0, steps=6)
    return Recoverer(
        "flow", corruption=corruption, architecture=network, training=config, calibrate=False, random_state=0, verbose=0
    )


def test_blur_and_noise_are_undone(stripes, tmp_path):
    rng = np.random.default_rng(1)
    steps = [Blurred(0.8), Gaussian(0.05)]
    corrupted = stripes
    for step in steps[:1]:
        corrupted = step.apply(torch.from_numpy(corrupted), normals()).numpy()
    corrupted = corrupted + 0.05 * rng.normal(size=corrupted.shape)
    corrupted = np.where(rng.random(corrupted.shape) < 0.2, np.nan, corrupted)
    rec = recoverer(steps).fit(corrupted)
    clean = rec.sample(corrupted, 8).values.mean(0)
    before = np.sqrt(np.nanmean((corrupted - stripes) ** 2))
    after = np.sqrt(np.mean((clean - stripes) ** 2))
    print(f"RMSE of what is observed {before:.3f}, of the mean of all pixels {after:.3f}")
    assert after < 0.8 * before
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert np.array_equal(again.sample(corrupted, 2).values, rec.sample(corrupted, 2).values)
    assert again.corruption == steps
    assert again.noise_ == pytest.approx(0.05)  # that of the last step
    assert "Blurred" in str(rec.plan(corrupted))


@pytest.mark.parametrize("step", [Stripes(0.1), Blurred(1.0), Downsampled(2)])
def test_tables_have_no_stripes(step):
    table = np.random.default_rng(0).normal(size=(60, 5))
    with pytest.raises(InvalidData, match="are for images"):
        recoverer([step]).set_params(architecture=None).fit(table)


def test_columns_that_are_no_continuous_numbers_are_refused():
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60), "yes": [True, False] * 30})
    with pytest.raises(InvalidData, match="column 'yes' is boolean"):
        Recoverer("flow", corruption=Multiplicative(0.1), verbose=0).fit(frame)
