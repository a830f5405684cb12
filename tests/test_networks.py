"""Convolutional networks, and the posterior that is trained to predict what is hidden from it."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt, label
from torch.distributions import Independent

from unfade import Architecture, InvalidData, Recoverer, TrainingConfig
from unfade.corruption.growing_noise import GrowingNoise
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.diagnostics.images import write_gallery
from unfade.distributions import Cells
from unfade.errors import DataNotice
from unfade.methods.recipes import Task, masked
from unfade.models import networks
from unfade.models.architectures import LARGE, ConvArchitecture, conv_architecture, network_for
from unfade.models.conditional_densities import Conditional, standard_normal
from unfade.models.interpolation import linear_interpolation, nearest_pixel
from unfade.models.latent_variable import PosteriorLVM
from unfade.rng import generator_normals
from unfade.training.early_stopping import hold_out_as
from unfade.training.objectives import PredictiveCRPS, hide_boxes, hide_holes

PAPER = ConvArchitecture((48, 64, 1))
SMALL = ConvArchitecture((24, 40, 1), (16, 24))  # of the kind of conv-large
SMALL_SQUARE = ConvArchitecture((32, 32, 1), (16, 24))


def waves(count=64, height=24, width=40, seed=0):
    """Plane waves, each with a hole; and without."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    clean = np.stack([np.sin((x * np.cos(a) + y * np.sin(a)) / 6 + b) for a, b in rng.uniform(0, 6, (count, 2))])
    given = clean.copy()
    for frame in given:
        top, left = rng.integers(0, height - 8), rng.integers(0, width - 10)
        frame[top : top + 8, left : left + 10] = np.nan
    return clean, given


def quick(**how):
    return Recoverer(**{"max_steps": 8, "random_state": 0, "verbose": 0, **how})


def test_networks_have_the_sizes_of_the_paper():
    encoder, decoder, prior = PAPER.encoder(2 * 48 * 64), PAPER.decoder(48 * 64), PAPER.prior(48 * 64)
    y = torch.zeros(2, 48 * 64)
    z = encoder(y, y).base_dist.loc
    assert z.shape == (2, 10 * 3 * 4)  # 10 channels at 1/16
    assert decoder(z, y, y).base_dist.loc.shape == y.shape
    z_p = prior.encoder(y).base_dist.loc
    assert z_p.shape == (2, 5 * 2 * 2)  # 5 channels at 1/32, 48 padded to 64
    assert prior.decoder(z_p).base_dist.loc.shape == y.shape
    kernels = [tuple(p.shape) for p in encoder.parameters() if p.ndim == 4]
    assert kernels == [(5, 2, 3, 3), (5, 5, 3, 3), (5, 5, 3, 3), (5, 5, 3, 3), (20, 5, 1, 1)]


@pytest.mark.parametrize("channels", [(5,), (8, 12)], ids=str)
@pytest.mark.parametrize("image", [(7, 9, 1), (16, 16, 3), (1, 33, 4)], ids=str)
def test_any_size_goes_through(image, channels):
    features = int(np.prod(image))
    shape = ConvArchitecture(image, channels)
    y = torch.randn(3, features)
    z = shape.encoder(2 * features)(y, y).base_dist.loc
    density = shape.decoder(features)(z.expand(4, *z.shape), y, torch.ones_like(y)).base_dist
    assert density.loc.shape == density.scale.shape == (4, 3, features)


def test_entries_stay_where_they_are():
    """A pixel that changes in a flat image with channels last changes the maps next to it, in its channel's place."""
    image = (8, 8, 2)
    joined = networks._joined([torch.arange(128.0)[None]], image, 4)
    assert joined.shape == (1, 2, 8, 8)
    assert joined[0, 1, 2, 3] == (2 * 8 + 3) * 2 + 1


def test_the_nearest_pixel_that_was_measured_is_found():
    rng = np.random.default_rng(0)
    observed = rng.random((4, 2, 19, 33)) < 0.03
    values = rng.normal(size=observed.shape)
    found, far = networks.nearest(*(torch.from_numpy(part).float() for part in (values * observed, observed)))
    for image, seen, near, distance in zip(
        *(np.asarray(part).reshape(-1, 19, 33) for part in (values, observed, found, far)), strict=True
    ):
        away, place = distance_transform_edt(~seen, return_indices=True)
        right = np.isclose(distance, away, atol=1e-4)
        assert right.mean() > 0.97  # the search up and down now and then finds the second nearest
        assert (distance <= away + 2).all()
        alone = right & np.isclose(near, image[tuple(place)], atol=1e-5)
        assert alone.mean() > 0.9  # of several at the same distance it may be another


def test_boxes_are_hidden_and_the_holes_of_others():
    observed = torch.ones(4, 30 * 20, dtype=torch.bool)
    observed[0, :5] = False
    obs = Observations(torch.zeros(4, 600), observed)
    shares = []
    for seed in range(50):
        hidden = hide_boxes((30, 20, 1))(obs, generator_normals(torch.Generator().manual_seed(seed)))
        assert hidden[1, :5].all()
        box = hidden[2].reshape(30, 20)
        rows, columns = box.any(1).nonzero().flatten(), box.any(0).nonzero().flatten()
        if len(rows):
            assert box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
            assert len(rows) <= 16
            assert len(columns) <= 11
        shares.append(float(box.float().mean()))
    assert 0.01 < np.mean(shares) < 0.2


def test_what_is_held_out_of_images_is_like_their_holes():
    """Also by fully connected networks, and where the model knows some pixels only."""
    given = np.zeros((20, 16, 12))
    for number, image in enumerate(given):
        top, left = divmod(number, 4)
        image[3 * top : 3 * top + 4, 2 * left : 2 * left + 5] = np.nan
    holes = np.isnan(given).reshape(20, -1)
    places = torch.from_numpy(np.delete(np.arange(16 * 12), 3 * 12 + 4))
    data = torch.from_numpy(given).reshape(20, -1)[:, places].float()
    obs = Observations(data.nan_to_num(), ~data.isnan())
    split = hold_out_as(hide_holes((16, 12, 1), places))(obs, 0, GaussianNoise())
    shapes = [set(np.nonzero(hole[places])[0].tolist()) for hole in holes]
    for row, held in zip(split.rows.tolist(), split.held.observed.numpy(), strict=True):
        own = shapes[row]
        assert any(set(np.nonzero(held)[0].tolist()) == other - own for other in shapes)
    complete = Observations(torch.zeros(5, 192), torch.ones(5, 192, dtype=torch.bool))
    box = hide_holes((16, 12, 1))(complete, generator_normals(torch.Generator().manual_seed(0))).reshape(5, 16, 12)
    assert 0 < box.float().mean() < 0.3


def test_fully_connected_networks_of_images_learn_to_fill_holes():
    """Half of the samples of a batch have a box hidden, the others single pixels; scores are of holes."""
    _, given = waves(50, 20, 20)
    data = torch.from_numpy(given).reshape(50, -1).float()
    obs = Observations(data.nan_to_num(), ~data.isnan())
    architecture = Architecture(latent=2, hidden=(8,))
    task = Task(obs, GaussianNoise(0.1), architecture, TrainingConfig(), 0, image=(20, 20, 1))
    stage = next(masked(task))
    hidden = stage.objective.hide(obs, generator_normals(torch.Generator().manual_seed(0))).reshape(50, 20, 20).numpy()
    alone = [(each & (np.convolve(each.ravel(), [1, 0, 1], "same") == 0).reshape(20, 20)).any() for each in hidden]
    assert 10 < np.sum(alone) < 40
    held = stage.hold(obs, 0, GaussianNoise(0.1)).held.observed.reshape(-1, 20, 20).numpy()
    assert all(label(each)[1] <= 2 for each in held)  # a hole, perhaps cut in two by the own one


def test_noise_is_looked_for_from_what_pixels_next_to_each_other_say():
    rng = np.random.default_rng(0)
    given = waves(20, 24, 24)[1]
    data = torch.from_numpy(given + 0.05 * rng.normal(size=given.shape)).reshape(20, -1).float()
    obs = Observations(data.nan_to_num(), ~data.isnan())
    task = Task(obs, GaussianNoise(0.5, learn=True), Architecture(latent=2, hidden=(8,)), TrainingConfig(), 0,
                image=(24, 24, 1))  # fmt: skip
    stage = next(masked(task))
    assert float(stage.posterior.corruption.std.detach()) == pytest.approx(0.05, rel=0.1)


def test_holes_are_filled_linearly_and_by_the_nearest_pixel():
    y, x = np.mgrid[:9, :11]
    clean = np.stack([y + 2.0 * x, 5.0 - x])[..., None] * [1.0, -2.0]
    given = clean.copy()
    given[:, 3:6, 4:7] = np.nan
    given[1, 0, 0, 1] = np.nan
    inside = np.s_[:, 3:6, 4:7]
    assert linear_interpolation(given)[inside] == pytest.approx(clean[inside])
    assert np.array_equal(nearest_pixel(given)[0, 3, 4], clean[0, 2, 4]) or np.array_equal(
        nearest_pixel(given)[0, 3, 4], clean[0, 3, 3]
    )
    assert np.isfinite(linear_interpolation(given)).all()
    assert np.isnan(linear_interpolation(np.full((1, 3, 3), np.nan))).all()
    line = np.full((1, 3, 3), np.nan)
    line[0, 1] = 1, 2, 3
    assert np.isfinite(linear_interpolation(line)).all()


def test_few_images_are_said_to_be_few_and_filled_all_the_same():
    _, given = waves(3, 12, 14)
    with pytest.warns(DataNotice, match="3 images are too few"):
        assert np.isfinite(quick(max_steps=1).fit(given).transform(given)).all()
    with pytest.warns(DataNotice, match="1 image is too few"):
        assert np.isfinite(quick(max_steps=1).fit(given[:1]).transform(given[:1])).all()
    with pytest.warns(DataNotice, match="too few"), pytest.warns(DataNotice, match="worse than the nearest pixel"):
        rec = quick(
            architecture=ConvArchitecture((12, 14, 1), (8,) * 2),
            max_steps=None,
            training=TrainingConfig(steps=20, batch_size=2),
        ).fit(given)
    assert len(rec.held_out_) > 0  # though no other image shows anything in the rows that are kept


def test_a_verdict_on_small_images_is_beside_what_is_around_their_holes():
    _, given = waves(40, 16, 18)
    small = ConvArchitecture((16, 18, 1), (8, 8))
    with pytest.warns(DataNotice, match="worse than the nearest pixel"):  # after so few steps
        rec = quick(architecture=small, max_steps=None, training=TrainingConfig(steps=100, batch_size=8)).fit(given)
    found = rec.diagnose(given)
    assert set(found.simple.scores) == {"unfade", "the nearest pixel", "linear interpolation"}
    assert {verdict.what for verdict in found.verdicts} >= {"width of draws", "simple methods", "90 % intervals"}
    alone = quick(architecture=small, max_steps=3).fit(given)  # holds nothing out: a clone is fitted with holes hidden
    cells = alone.diagnose(given).cells
    assert 0 < len(np.unique(cells.rows)) <= 8


WAYS = [{"network": "conv", "method": method} for method in ("auto", "tae-paper", "mvae", "miwae")]


BLIND = ConvArchitecture((24, 40, 1), (8, 8), decoder_sees=False)  # trained to predict, as with noise


@pytest.mark.parametrize("how", [*WAYS, {"architecture": SMALL}, {"architecture": BLIND}], ids=str)
def test_measured_pixels_stay_and_draws_are_kept_in_the_file(tmp_path, how):
    _, given = waves(16)
    rec = quick(**how).fit(given)
    draws = rec.sample(given, 3).values
    seen = ~np.isnan(given)
    assert np.isfinite(draws).all()
    assert all(np.array_equal(draw[seen], given[seen]) for draw in draws)
    assert np.array_equal(rec.sample(given[3:5], 2, row_ids=[3, 4]).values, draws[:2, 3:5])
    rec.save(tmp_path / "model.unfade")
    assert np.array_equal(Recoverer.load(tmp_path / "model.unfade").sample(given, 3).values, draws)


def test_holes_are_filled_from_what_is_around_them():
    clean, given = waves()
    rec = quick(architecture=SMALL, max_steps=100).fit(given)
    hole = np.isnan(given)
    draws = rec.sample(given, 20).values
    error = np.sqrt(np.mean((draws.mean(0) - clean)[hole] ** 2))
    assert error < 0.35  # of an sd of 0.7
    spread = draws.std(0)[hole].mean()
    assert 0.4 * error < spread < 2.5 * error


def test_models_side_by_side_are_convolutional_too():
    """Several go through the step as one batch of models, as all do on a GPU."""
    _, given = waves(8)
    for how in ({"network": "conv"}, {"architecture": SMALL}):
        rec = quick(**how, n_members=2, max_steps=3).fit(given)
        assert len(rec.posterior_.each) == 2
        assert np.isfinite(rec.sample(given, 2).values).all()


def test_a_pixel_never_measured_is_filled_in():
    _, given = waves(16)
    given[:, 3, 4] = np.nan
    assert np.isfinite(quick(network="conv").fit(given).transform(given)).all()


def test_networks_by_name():
    assert quick(network="conv-large", max_steps=1).fit(waves(5)[1]).architecture_.channels == LARGE
    assert network_for("auto", (28, 28)) == network_for("auto", (32, 32, 3)) == "conv-large"
    assert network_for("auto", (8, 8)) == network_for("auto", (28, 28), predictive=False) == "full"
    assert network_for("auto", (120, 160)) == "conv-large"
    assert network_for("auto", (30_000,)) == "full"
    with pytest.raises(InvalidData, match="for images"):
        quick(network="conv").fit(np.zeros((5, 3)))
    with pytest.raises(InvalidData, match="network must be one of"):
        quick(network="small").fit(np.zeros((5, 3)))
    assert network_for("auto", (1000, 12)) == "full"
    given = waves(8)[1]
    with pytest.raises(InvalidData, match="n_candidates needs"):
        quick(network="conv", n_candidates=20).fit(given)
    with pytest.raises(InvalidData, match="images of"):
        quick(architecture=ConvArchitecture((8, 8, 1))).fit(given)
    with pytest.raises(InvalidData, match="without noise"):
        quick(architecture=ConvArchitecture((24, 40, 1)), noise=0.1).fit(given)
    with pytest.raises(InvalidData, match="has the settings"):
        quick(network="conv", settings={"weights": 3}).fit(given)
    assert not quick(network="conv", noise=0.1).fit(given).architecture_.decoder_sees
    by_pixel = np.full((24, 40), 0.1)
    assert not quick(network="conv", noise=by_pixel, max_steps=1).fit(given).architecture_.decoder_sees


def test_large_images_have_a_report(tmp_path):
    _, given = waves(20, 66, 66)
    rec = Recoverer(network="conv", random_state=0, verbose=0, training=TrainingConfig(steps=200, batch_size=8))
    with pytest.warns(DataNotice, match="worse than the nearest pixel"):  # after so few steps
        rec.fit(given)
    assert len(rec.held_out_) > 100
    assert rec.calibration_scale_ is not None
    found = rec.diagnose(given)
    assert {"width of draws", "simple methods"} <= {verdict.what for verdict in found.verdicts}
    rec.report(tmp_path / "page.html", given)
    assert "the nearest pixel" in (tmp_path / "page.html").read_text()
    with pytest.raises(InvalidData, match="held no pixels out"):
        quick(network="conv", max_steps=2).fit(given).diagnose(given)


def by_numbers(centre: float, spread: float, shared: float, pixels: int = 64) -> PosteriorLVM:
    """Draws of every pixel are `centre`, plus noise of sd `shared` that all pixels share, plus each one's own."""

    class Fixed(Conditional):
        def __init__(self, sizes):
            super().__init__()
            self.sizes = sizes

        def forward(self, first, *rest):
            if len(self.sizes) == 1:  # z given y: one number
                return standard_normal(first[..., :1])
            loc = centre + shared * first.expand(*first.shape[:-1], pixels)
            return Independent(Cells(loc, torch.full_like(loc, spread)), 1, validate_args=False)

    exact = GaussianNoise(torch.zeros(pixels))
    return PosteriorLVM(Fixed([1]), Fixed([1, 64]), exact, conditioned=False, decoder_sees=True)


def test_the_predictive_score_is_best_for_the_true_distribution():
    """Pixels are a level that an image shares plus noise of their own: wider, narrower or independent draws score worse."""
    rng = torch.Generator().manual_seed(0)
    values = 0.6 * torch.randn(20_000, 1, generator=rng) + 0.8 * torch.randn(20_000, 64, generator=rng)
    obs = Observations(values, torch.ones(20_000, 64, dtype=torch.bool))
    every = PredictiveCRPS((8, 8, 1), lambda obs, normals: obs.observed, scales=4)

    def terms(*numbers):
        bound = every(by_numbers(*numbers), obs, generator_normals(torch.Generator().manual_seed(1)))
        return {name: float(term.mean()) / 64 for name, term in bound.terms.items()} | {"value": float(bound.value.mean())}

    true = terms(0.0, 0.8, 0.6)
    for side in (1, 2, 4, 8):  # the CRPS of N(0, s^2) against itself is s / sqrt(pi)
        assert true[f"CRPS {side}"] == pytest.approx((0.36 + 0.64 / side**2) ** 0.5 / np.pi**0.5, rel=0.02)
    others = [(0.3, 0.8, 0.6), (0.0, 1.1, 0.6), (0.0, 0.5, 0.6), (0.0, 0.8, 0.9), (0.0, 0.8, 0.3), (0.0, 1.0, 0.0)]
    assert all(terms(*other)["value"] < true["value"] for other in others)
    assert terms(0.0, 1.0, 0.0)["CRPS 1"] == pytest.approx(true["CRPS 1"], rel=0.01)  # pixel by pixel they are alike


def test_the_predictive_score_of_squares_by_hand():
    """Sides that are no powers of two, two channels, a part hidden: the same as loops over squares."""
    height, width, channels = image = (5, 7, 2)
    rng = np.random.default_rng(0)
    values, hidden = rng.normal(size=(3, *image)).astype(np.float32), rng.random((3, *image)) < 0.4
    hidden[1] = False

    def hide(obs, normals):
        return torch.from_numpy(hidden).flatten(1)

    obs = Observations(torch.from_numpy(values).flatten(1), torch.ones(3, 70, dtype=torch.bool))
    seen = []
    numbers = generator_normals(torch.Generator().manual_seed(0))

    def normals(*shape):
        seen.append(numbers(*shape))
        return seen[-1]

    terms = PredictiveCRPS(image, hide)(by_numbers(0.0, 1.0, 0.5, 70), obs, normals).terms
    x = (0.5 * seen[0] + seen[1]).numpy().reshape(2, 3, *image)
    assert list(terms) == [f"CRPS {side}" for side in (1, 2, 4, 8)]
    for side in (1, 2, 4, 8):
        for sample in range(3):
            total = 0.0
            for top, left, channel in product(range(0, height, side), range(0, width, side), range(channels)):
                square = np.s_[sample, top : top + side, left : left + side, channel]
                if count := hidden[square].sum():
                    y, drawn = values[square][hidden[square]].mean(), [each[square][hidden[square]].mean() for each in x]
                    apart = abs(drawn[0] - y) + abs(drawn[1] - y) - abs(drawn[0] - drawn[1])
                    total += count * apart / 2
            assert float(terms[f"CRPS {side}"][sample]) == pytest.approx(total, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_nearest_pixel_is_found_in_long_images_and_empty_ones(dtype):
    values, observed = torch.zeros(1, 1, 2, 30_000, dtype=dtype), torch.zeros(1, 1, 2, 30_000, dtype=dtype)
    values[..., 0, 7], observed[..., 0, 7] = 3.0, 1.0
    found, far = networks.nearest(values, observed)
    assert (found == 3).all()
    assert float(far[0, 0, 1, -1]) == pytest.approx((29_992**2 + 1) ** 0.5, rel=1e-4)
    found, far = networks.nearest(values, torch.zeros_like(observed))
    assert (found == 0).all()
    assert (far > 30_000).all()


def test_a_decoder_that_sees_y_is_for_images():
    sees = Architecture(latent=2, hidden=(8,), decoder_sees=True)
    with pytest.raises(InvalidData, match="for images alone"):
        quick(architecture=sees).fit(np.random.default_rng(0).normal(size=(50, 3)))


def test_draws_in_a_hole_have_the_known_distribution():
    """Images of one level and noise: what is predicted in a hole is known."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(400, 1, 1)) + 0.2 * rng.normal(size=(400, 32, 32))
    Y[::2, 8:20, 8:20] = np.nan
    rec = quick(architecture=SMALL_SQUARE, max_steps=300, training=TrainingConfig(batch_size=8, learning_rate=2e-3)).fit(Y)
    draws = rec.sample(Y[::4], 40).values[:, :, 8:20, 8:20]
    level = np.nanmean(Y[::4], (1, 2))
    assert np.abs(draws.mean((0, 2, 3)) - level).mean() < 0.1
    assert 0.15 < draws.std(0).mean() < 0.3
    assert draws.mean((2, 3)).std(0).mean() < 0.1  # the level of a hole is known, though its pixels are not


def test_noise_that_grows_with_distance_is_found():
    rng = np.random.default_rng(0)
    shapes = rng.normal(size=(2, 24))
    depth = 2500 + 600 * np.tanh(rng.normal(size=(1000, 2)) @ shapes / 2)
    a, b = 10.0, 8e-6
    Y = depth + (a + b * depth**2) * rng.normal(size=depth.shape)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    rec = Recoverer(noise="learn-by-value", random_state=0, verbose=0, max_steps=1000, n_members=1).fit(Y)
    found, growth = rec.noise_law_
    for x in (1900, 2500, 3100):
        assert (found + growth * x**2) / (a + b * x**2) == pytest.approx(1, abs=0.25)
    seen = ~np.isnan(Y)
    cleaned = rec.transform(Y)
    assert np.mean((cleaned - depth)[seen] ** 2) < 0.3 * np.mean((Y - depth)[seen] ** 2)
    assert GrowingNoise(1.0, 0.5, 0.0).level(torch.tensor(2.0)) == pytest.approx(3.0)
    with pytest.raises(InvalidData, match="joint-variance"):
        quick(noise="learn-by-value", scaling="variance").fit(Y)


def test_a_gallery_is_a_picture(tmp_path):
    _, given = waves(8)
    rec = quick(network="conv").fit(given)
    write_gallery(rec, given[:3], tmp_path / "page.png", draws=4)
    assert (tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"


def test_no_pixel_is_drawn_wider_than_one_taken_at_random():
    built = conv_architecture("conv-large", (16, 16), decoder_sees=True)
    decoder = built.decoder(256)
    decoder.offset.fill_(9.0)
    y = torch.zeros(2, 256)
    scale = decoder(torch.zeros(2, 10), y, y).base_dist.scale
    assert 0.9 < float(scale.detach().max()) <= 1.0
