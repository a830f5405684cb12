"""Tables as people have them: kinds of columns, what comes back, rules for what was not there at fit."""

import datetime
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from torch.distributions import Independent

from unfade import DataNotice, InvalidData, Recoverer
from unfade.corruption.mixed import MixedLikelihood, interval_log_mass
from unfade.corruption.noise import GaussianNoise
from unfade.data import columns as tables
from unfade.data.containers import open_container
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations, as_observations
from unfade.diagnostics.predictions import held_out
from unfade.distributions import Cells
from unfade.models.architectures import Architecture
from unfade.training.loop import TrainingConfig


def quick(**parameters):
    return Recoverer(**{"max_steps": 60, "random_state": 0, "verbose": 0, "device": "cpu", **parameters})


@pytest.fixture(scope="module")
def mixed():
    """A frame with a column of each kind and holes in all of them but the key."""
    rng = np.random.default_rng(0)
    rows, size = 80, rng.normal(size=80)
    frame = pd.DataFrame(
        {
            "key": [f"row {i}" for i in range(rows)],
            "size": size,
            "count": rng.poisson(np.exp(size / 2)).astype(float),
            "grade": pd.Categorical.from_codes(rng.integers(0, 3, rows), ["low", "mid", "high"], ordered=True),
            "town": np.array(["Oslo", "Rome", "Lima"])[rng.integers(0, 3, rows)],
            "sick": rng.random(rows) < 0.5,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, rows), unit="D"),
        },
        index=pd.Index(range(100, 180), name="id"),
    )
    frame["sick"] = frame["sick"].astype("boolean")
    for name in frame.columns[1:]:
        frame.loc[frame.index[rng.random(rows) < 0.2], name] = None
    return frame


def test_kinds_are_found(mixed):
    _, container = open_container(mixed)
    kinds = [column.kind for column in container.columns]
    assert kinds == ["passthrough", "continuous", "integer", "ordinal", "category", "boolean", "date"]
    assert container.columns[3].categories == ("low", "mid", "high")
    assert container.columns[4].categories == ("Lima", "Oslo", "Rome")
    _, other = open_container(mixed, kinds={"town": "passthrough", "count": "category"})
    assert [column.kind for column in other.columns][2:5:2] == ["category", "passthrough"]
    with pytest.raises(InvalidData, match="cannot be of kind 'continuous'"):
        open_container(mixed, kinds={"town": "continuous"})
    with pytest.raises(InvalidData, match="Kinds of columns are"):
        open_container(mixed, kinds={"town": "city"})
    with pytest.raises(InvalidData, match="which do not exist"):
        open_container(mixed, kinds={"village": "category"})


def check_filled(before, after):
    """Everything filled, nothing that was there changed, dtypes and names as before."""
    for name in before.columns:
        old, new = before[name], after[name]
        assert new.dtype == old.dtype, name
        assert not new.isna().any(), name
        assert (new[old.notna()] == old[old.notna()]).all(), name


def test_a_mixed_frame_comes_back_filled(mixed):
    rec = quick().fit(mixed)
    clean, draws = rec.transform(mixed), rec.sample(mixed, 5)
    check_filled(mixed, clean)
    assert clean.index.equals(mixed.index)
    for table in draws:
        check_filled(mixed, table)
        assert (table["count"] == table["count"].round()).all()
    probabilities, values = draws.probabilities("town")
    assert values == ("Lima", "Oslo", "Rome")
    assert np.allclose(probabilities.sum(1), 1)
    assert set(draws.changes().ravel()) == {"observed", "imputed"}
    assert set(draws.changes()[:, 0]) == {"observed"}  # the key, which passes through
    with pytest.raises(InvalidData, match="no numbers that could be shifted"):
        draws.shifted({"key": 1.0})
    assert draws.std()["town"].between(0, 1).all()
    assert draws.quantile(0.5)["grade"].dtype == mixed["grade"].dtype
    with pytest.raises(InvalidData, match="holds numbers"):
        draws.probabilities("size")


def test_a_mixed_model_is_saved_whole(mixed, tmp_path):
    rec = quick().fit(mixed)
    rec.save(tmp_path / "m.unfade")
    again = Recoverer.load(tmp_path / "m.unfade")
    pd.testing.assert_frame_equal(again.transform(mixed), rec.transform(mixed))
    assert np.array_equal(again.sample(mixed, 3).values, rec.sample(mixed, 3).values, equal_nan=True)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_libraries_give_the_same(mixed, library):
    plain = mixed.reset_index(drop=True).assign(grade=mixed["grade"].astype(object).to_numpy())
    frame = pl.from_pandas(plain) if library == "polars" else pa.Table.from_pandas(plain, preserve_index=False)
    clean = quick().fit_transform(frame)
    assert type(clean) is type(frame)
    assert clean.schema == frame.schema if library == "polars" else clean.schema.types == frame.schema.types
    back = clean.to_pandas()
    assert not back.isna().any().any()
    kept = plain["town"].notna()
    assert (back["town"][kept] == plain["town"][kept]).all()


def test_what_was_not_there_at_fit(mixed):
    rec = quick().fit(mixed)
    odd = mixed.iloc[:3].copy()
    odd["town"] = ["Paris", None, "Rome"]
    out = rec.transform(odd)
    assert out["town"].tolist()[0] == "Paris"  # an unseen category stays, and tells the model nothing
    assert out["town"].tolist()[1] in ("Lima", "Oslo", "Rome")
    with pytest.raises(InvalidData, match=r"are missing: \['size'\]"):
        rec.transform(mixed.drop(columns="size"))
    with pytest.warns(DataNotice, match="passed through"):
        more = rec.transform(mixed.assign(extra="x"))
    assert (more["extra"] == "x").all()
    pd.testing.assert_frame_equal(more.drop(columns="extra"), rec.transform(mixed))
    turned = mixed[mixed.columns[::-1]]
    pd.testing.assert_frame_equal(rec.transform(turned)[mixed.columns], rec.transform(mixed))
    check_filled(mixed.iloc[[5]], rec.transform(mixed.iloc[[5]]))


def test_networks_keep_within_bounds(tmp_path):
    """Where both ends are known the means of p(x|z) stay between them, in the user's units; a saved model still does."""
    rng = np.random.default_rng(1)
    X = rng.random((200, 3)) * [1.0, 10.0, 1.0] + [5.0, 0.0, 0.0]
    Y = np.where(rng.random(X.shape) < 0.3, np.nan, X + 0.1 * rng.normal(size=X.shape))
    rec = quick(noise=0.1, bounds={0: (5, 6), 1: (0, 10), 2: (0, None)}).fit(Y)
    rec.save(tmp_path / "m.unfade")
    for each in (rec, Recoverer.load(tmp_path / "m.unfade")):
        decoder = each.posterior_.each[0].decoder
        far = 100 * torch.randn(500, each.architecture_.latent, generator=torch.Generator().manual_seed(0))
        means = each.encoder_.scaling.undo(decoder(far).base_dist.loc)
        assert means[:, 0].aminmax() == pytest.approx((5, 6), abs=1e-4)
        assert means[:, 1].aminmax() == pytest.approx((0, 10), abs=1e-3)
        assert means[:, 2].min() < -1
        assert means[:, 2].max() > 2
    one = quick(noise=0.1, bounds=(0, 10)).fit(Y)
    assert torch.equal(one.encoder_.bounds, torch.tensor([[0.0] * 3, [10.0] * 3]).double())
    assert not quick(noise=0.1, bounds={0: (5, None)}).fit(Y).architecture_.bounded
    with pytest.raises(InvalidData, match="needs bounds with both ends"):
        quick(noise=0.1, architecture=Architecture(bounded=True)).fit(Y)


def test_bounds_far_from_the_data_leave_networks_alone():
    """A map between wide bounds would begin far from the data; steps, logarithms and categories have maps of their own."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({
        "near": rng.normal(100, 50, 300).clip(0, 300),
        "far": rng.normal(100, 50, 300),
        "stepped": rng.integers(0, 5, 300) / 2,
        "skewed": np.exp(2 * rng.normal(size=300)),
        "kind": rng.choice(["a", "b", "c"], 300),
    })  # fmt: skip
    frame.loc[:10, "near"] += 0.01 * rng.random(11)  # hardly a value occurs twice
    ends = {"near": (-10, 310), "far": (0, 1e6), "stepped": (0, 2), "skewed": (0.001, 1e4)}
    frame["far"] = frame["far"].abs()
    rec = quick(bounds=ends, max_steps=5).fit(frame)
    found = dict(zip(["near", "far", "stepped", "skewed"], rec.encoder_.ends.T.isfinite().all(1).tolist(), strict=False))
    assert found == {"near": True, "far": False, "stepped": False, "skewed": False}
    assert rec.encoder_.ends.shape == (2, rec.encoder_.features)
    assert quick(bounds={"far": (0, 1e6)}, max_steps=5).fit(frame).encoder_.ends is None


def test_what_is_held_out_may_lie_beyond_the_bounds_by_its_noise():
    """Bounds are those of clean values: of a column that is nearly always 0, half of the noisy ones lie below."""
    rng = np.random.default_rng(0)
    clean = np.where(rng.random((400, 3)) < 0.1, 1.0, 0.0)
    noisy = clean + 0.1 * rng.normal(size=clean.shape)
    noisy[rng.random(noisy.shape) < 0.2] = np.nan
    rec = Recoverer(noise=0.1, bounds=(0, 1), training=TrainingConfig(steps=300), random_state=0, verbose=0).fit(noisy)
    assert rec.held_out_.draws.min() < -0.1
    assert rec.held_out_.covered().mean() > rec.held_out_.due() - 0.08
    assert rec.sample(noisy, 5).values.min() >= 0


def test_bounds_in_other_units_are_noticed():
    """Pixels from 0 to 255 are not within (0, 1); that half of the noisy black ones lie below 0 is no surprise."""
    rng = np.random.default_rng(0)
    images = np.where(rng.random((200, 4, 4)) < 0.3, 1.0, 0.0)
    images[:, 0, 0] = 0.0
    noisy = images + 0.1 * rng.normal(size=images.shape)
    quick(noise=0.1, bounds=(0, 1)).fit(noisy)
    with pytest.warns(DataNotice, match=r"mean of the observed values of 15 of 16 pixels lies outside its bounds"):
        quick(noise=25.5, bounds=(0, 1)).fit(255 * noisy)
    with pytest.warns(DataNotice, match="mean of the observed values of column 'age' lies outside"):
        quick(bounds={"age": (0, 1)}).fit(pd.DataFrame({"age": rng.normal(40, 10, 60), "b": rng.random(60)}))
    with pytest.warns(DataNotice) as notices:
        quick(bounds={"age": (18, 99)}).fit(pd.DataFrame({"age": np.full(60, np.nan), "b": rng.random(60)}))
    assert [str(notice.message).split(":")[0] for notice in notices] == ["Nothing is observed in column 'age'"]


def test_bounds_are_kept():
    rng = np.random.default_rng(1)
    X = np.abs(rng.normal(size=(60, 2)))
    X[rng.random(X.shape) < 0.3] = np.nan
    with pytest.warns(DataNotice, match=r"\d+ observed values of column 0, 1 lie outside the bounds: they are kept"):
        rec = quick(bounds={0: (0, 0.5), 1: (0.1, None)}).fit(X)
    draws = rec.sample(X, 20).values
    hidden = np.isnan(X)
    assert draws[:, hidden[:, 0], 0].max() <= 0.5
    assert draws[:, hidden[:, 1], 1].min() >= 0.1
    with pytest.raises(InvalidData, match="no column"):
        quick(bounds={"age": (0, 1)}).fit(X)
    with pytest.raises(InvalidData, match="a lower and a higher"):
        quick(bounds={0: (1, 0)}).fit(X)
    with pytest.raises(InvalidData, match="must be a pair"):
        quick(bounds=(0, 1, 2)).fit(X)
    frame = pd.DataFrame({"n": X[:, 0], "kind": rng.choice(["a", "b", "c", "d"], 60)})
    with pytest.warns(DataNotice, match="outside the bounds"):
        everywhere = quick(bounds=(0, 0.5)).fit(frame)  # of numbers: categories have no ends
    assert everywhere.encoder_.bounds[:, 1].isinf().all()
    assert float(everywhere.encoder_.bounds[1, 0]) == 0.5


def test_values_that_occur_are_the_ones_that_are_drawn():
    rng = np.random.default_rng(2)
    X = np.stack([rng.choice([0.0, 0.5, 7.0], 100), rng.normal(size=100)], 1)
    X[rng.random(X.shape) < 0.2] = np.nan
    draws = quick().fit(X).sample(X, 10).values
    assert set(np.unique(draws[..., 0])) == {0.0, 0.5, 7.0}


def test_cells_below_a_detection_limit_are_drawn_below_it():
    rng = np.random.default_rng(3)
    factor = rng.normal(size=300)
    clean = np.stack([factor + 0.3 * rng.normal(size=300), factor + 0.3 * rng.normal(size=300)], 1)
    frame = pd.DataFrame({"lead": [f"{v:.4f}" if v > -0.5 else "<-0.5" for v in clean[:, 0]], "zinc": clean[:, 1]})
    rec = quick(max_steps=800).fit(frame)
    draws = rec.sample(frame, 50)
    below = (frame["lead"] == "<-0.5").to_numpy()
    assert (draws.values[:, below, 0] <= -0.5 + 1e-6).all()
    assert np.allclose(draws.values[:, ~below, 0], frame["lead"][~below].astype(float))
    error = draws.values[:, below, 0].mean(0) - clean[below, 0]
    assert abs(error.mean()) < 0.15  # the limit itself would be off by .6 on average
    assert np.corrcoef(draws.values[:, below, 0].mean(0), clean[below, 0])[0, 1] > 0.7
    same = quick(max_steps=800, detection_limits={0: ("<", -0.5)}).fit(np.where(clean < [-0.5, -9], [-0.5, 0], clean))
    assert (same.sample(np.where(clean < [-0.5, -9], [-0.5, 0], clean), 5).values[:, below, 0] <= -0.5 + 1e-6).all()
    with pytest.raises(InvalidData, match="no noise on that column"):
        quick(noise=0.1).fit(frame)
    with pytest.raises(InvalidData, match="limits names 5, which is no column"):
        quick(detection_limits={5: ("<", 1)}).fit(clean)


def test_interval_masses_add_up():
    edges = torch.linspace(-8, 8, 41)
    ends = torch.cat([torch.tensor([-1e9]), edges, torch.tensor([1e9])])
    assert float(interval_log_mass(ends[:-1], ends[1:]).exp().sum()) == pytest.approx(1, abs=1e-5)
    low = torch.tensor([-1e3, 20.0, -3.0], requires_grad=True)
    value = interval_log_mass(low, torch.tensor([-900.0, 21.0, 1e3]))
    value.sum().backward()
    assert value.isfinite().all()
    assert low.grad.isfinite().all()


def test_draws_follow_what_was_recorded():
    """Stepped cells within their interval; categories by their logits; known ones as they are."""
    edges, points = torch.tensor([-1.0, 1.0]), torch.tensor([-2.0, 0.0, 2.0])
    recorded = MixedLikelihood(GaussianNoise(torch.zeros(5)), 5, {0: (edges, points)}, [(2, 5)])
    obs = Observations(
        torch.tensor([[0.0, 0.3, 0, 1, 0], [0.0, 0.0, 0, 0, 0]]),
        torch.tensor([[True] * 5, [False] * 5]),
        torch.tensor([[-1.0] + [-1e3] * 4] * 2),
        torch.tensor([[1.0] + [1e3] * 4] * 2),
    )
    logits = torch.tensor([0.5, 0.2, 0.0, 1.0, 2.0])
    density = Independent(Cells(logits.expand(20_000, 2, 5), torch.ones(5).expand(20_000, 2, 5)), 1)
    x = recorded.condition(obs, density).base_dist.at(torch.randn(20_000, 2, 5, generator=torch.Generator().manual_seed(0)))
    assert x[:, 0, 0].min() >= -1
    assert x[:, 0, 0].max() <= 1
    assert (x[:, 0, 1] == 0.3).all()
    assert (x[:, 0, 2:] == torch.tensor([0.0, 1, 0])).all()
    assert torch.allclose(x[:, 1, 2:].mean(0), logits[2:].softmax(0), atol=0.02)
    assert float(x[:, 1, 0].std()) == pytest.approx(1, abs=0.05)
    assert float(x[:, 1, 0].mean()) == pytest.approx(0.5, abs=0.03)
    shares = torch.stack([(x[:, 1, 0] < -1), (x[:, 1, 0] >= -1) & (x[:, 1, 0] < 1), (x[:, 1, 0] >= 1)]).double().mean(1)
    seen = Observations(obs.values[:1], torch.tensor([[True, False, False, False, False]]), obs.low[:1], obs.high[:1])
    mass = recorded.marginal_log_prob(seen, Independent(Cells(density.base_dist.loc[0, :1], torch.ones(1, 5)), 1)).exp()
    assert float(mass) == pytest.approx(float(shares[1]), abs=0.01)
    snapped = recorded.corrupt(torch.tensor([[0.9, 0.0, 0, 0, 1]]), torch.ones(1, 5, dtype=torch.bool), torch.zeros)
    assert snapped.values[0, 0] == 0


def test_a_space_goes_there_and_back(mixed):
    array, container = open_container(mixed.drop(columns="key"))
    obs = as_observations(array)
    exact = torch.ones(6, dtype=torch.bool)
    space = FeatureEncoder.fit(obs, "variance", exact, {3: 3})
    entered = space.enter(obs)
    assert entered.values.shape == (80, 5 + 3)
    assert entered.low is not None
    assert ((entered.low <= entered.values) & (entered.values <= entered.high))[:, :5][entered.observed[:, :5]].all()
    back = space.leave(entered.values, Observations(obs.values, torch.zeros_like(obs.observed)), exact[:5])
    assert torch.allclose(back[obs.observed], obs.values[obs.observed], rtol=1e-6)
    assert space.groups == [(5, 8)]
    assert container.names == tuple(mixed.columns[1:])


cells = {
    "continuous": st.floats(-1e6, 1e6, allow_nan=False, width=32),
    "integer": st.integers(-1000, 1000),
    "boolean": st.booleans(),
    "text": st.sampled_from(["a", "b", "c", "ø"]),
    "date": st.dates(datetime.date(1950, 1, 1), datetime.date(2050, 1, 1)),
}


@st.composite
def frames(draw):
    rows = draw(st.integers(2, 12))
    columns = draw(st.lists(st.sampled_from(sorted(cells)), min_size=1, max_size=4))
    return pl.DataFrame(
        {
            f"{kind} {i}": pl.Series(draw(st.lists(st.none() | cells[kind], min_size=rows, max_size=rows)), strict=False)
            for i, kind in enumerate(columns)
        }
    )


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames())
@pytest.mark.filterwarnings("ignore")
def test_random_frames_come_back_as_they_came(frame):
    if all(frame[name].null_count() == len(frame) for name in frame.columns):
        with pytest.raises(InvalidData, match="Nothing is observed"):
            quick(max_steps=3).fit(frame)
        return
    for table in (quick(max_steps=3).fit_transform(frame), quick(max_steps=3).fit(frame).sample(frame, 2)[1]):
        assert table.columns == frame.columns
        for name in frame.columns:
            seen = frame[name].is_not_null()
            assert table[name].filter(seen).equals(frame[name].filter(seen)), name
            assert table[name].dtype == frame[name].dtype
            assert table[name].null_count() in (0, len(frame))


def skewed_table(rows=300):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=rows)
    income = np.exp(10 + 1.2 * factor + 0.3 * rng.normal(size=rows))
    table = np.column_stack([income, factor + 0.3 * rng.normal(size=rows), 0.5 + rng.random(rows)])
    holes = rng.random(table.shape) < 0.3
    return table, np.where(holes, np.nan, table)


def test_skewed_positive_columns_are_modelled_by_their_logarithms(tmp_path):
    table, holed = skewed_table()
    rec = Recoverer(max_steps=300, n_candidates=20, random_state=0, verbose=0).fit(holed)
    assert rec.encoder_.scaling.logged.tolist() == [True, False, False]
    draws = rec.sample(holed, 20)
    assert (draws.values[..., 0] > 0).all()
    assert draws.values[..., 0].max() < 3 * np.nanmax(holed[:, 0])
    seen = ~np.isnan(holed)
    assert (draws.values[:, seen] == holed[seen]).all()
    assert (
        np.abs(np.log(draws.values[..., 0]).mean(0) - np.log(table[:, 0]))[~seen[:, 0]].mean() < 0.7
    )  # guessing the middle gives 1
    assert rec.transform(holed)[:, 0].mean() == pytest.approx(rec.sample(holed, 100).values[..., 0].mean(), rel=0.1)
    rec.save(tmp_path / "model")
    assert np.array_equal(Recoverer.load(tmp_path / "model").sample(holed, 20).values, draws.values)


def test_noise_is_in_the_units_of_the_data_so_that_nothing_is_logged():
    _, holed = skewed_table()
    for noise in (5.0, "learn-shared", [1.0, 0.0, 0.0]):
        rec = Recoverer(noise=noise, max_steps=3, n_candidates=5, random_state=0, verbose=0).fit(holed)
        assert not rec.encoder_.scaling.logged[0]


def test_bounds_of_the_user_hold_on_logarithms_too():
    _, holed = skewed_table()
    low, middle, high = np.nanquantile(holed[:, 0], [0, 0.5, 1])
    with pytest.warns(DataNotice, match="outside the bounds"):
        rec = Recoverer(bounds={0: (middle, None)}, max_steps=5, n_candidates=5, random_state=0, verbose=0).fit(holed)
    drawn = rec.sample(holed, 50).values[:, np.isnan(holed[:, 0]), 0]
    assert drawn.min() == middle
    assert drawn.max() <= high * (high / low) ** 0.1 * (1 + 1e-9)


@pytest.mark.parametrize("code", [-1e30, 1e30, np.inf])
def test_a_date_out_of_all_bounds_is_the_last_there_is(code):
    moment = tables.value_of(code, tables.Column("when", "date"))
    assert moment.year in (2, 9998)


LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": lambda columns: pa.table(columns)}


def there_and_back(frame, codes=None, **how):
    """A frame through the door and back, a hole filled by the code that stands for it in `codes`."""
    array, container = open_container(frame, **how)
    array = np.where(np.isnan(array), 0.0 if codes is None else codes, array)
    return container, container.wrap(array)


def listed(frame, name):
    column = frame[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()


@pytest.mark.parametrize("library", LIBRARIES)
def test_categories_among_floats_come_back_as_categories(library):
    frame = LIBRARIES[library]({"zip": [10115.0, None, 20095.0, float("nan"), 10115.0], "x": [0.1, 0.2, 0.3, 0.4, 0.5]})
    container, clean = there_and_back(frame, 1.0, kinds={"zip": "category"})
    assert container.columns[0].categories == (10115.0, 20095.0)
    assert listed(clean, "zip") == [10115.0, 20095.0, 20095.0, 20095.0, 10115.0]


def test_a_column_that_is_empty_now_is_filled_with_what_it_held_at_fit():
    columns = (tables.Column("town", "category", ("Lima", "Oslo")), tables.Column("day", "date"))
    noon = 1e6 * datetime.datetime(2020, 5, 1, 12, tzinfo=datetime.UTC).timestamp()
    for empty in (
        pd.DataFrame({"town": [np.nan] * 2, "day": [np.nan] * 2}),
        pl.DataFrame({"town": [None] * 2, "day": [None] * 2}),
        pa.table({"town": pa.nulls(2), "day": pa.nulls(2)}),
    ):
        _, clean = there_and_back(empty, np.array([1.0, noon]), columns=columns)
        assert listed(clean, "town") == ["Oslo", "Oslo"]
        assert listed(clean, "day") == [datetime.datetime(2020, 5, 1, 12)] * 2


@pytest.mark.parametrize("values", [[1, 2, 3], [True, False, True], [0.5, 1.5, 2.5]])
def test_categories_need_not_be_text(values):
    grade = pd.Series([*values, None] * 10).astype("category")
    container, clean = there_and_back(pd.DataFrame({"grade": grade}))
    assert container.columns[0] == tables.Column("grade", "category", tuple(sorted(set(values))))
    assert clean["grade"].dtype == grade.dtype
    assert clean["grade"].notna().all()
    assert (clean["grade"][grade.notna()] == grade.dropna()).all()
    arrow = pa.table({"grade": pa.array([*values, None] * 10).dictionary_encode()})
    container, clean = there_and_back(arrow)
    assert container.columns[0].kind == "category"
    assert None not in listed(clean, "grade")


@pytest.mark.parametrize("library", LIBRARIES)
def test_times_keep_their_zone(library):
    zone = datetime.timezone(datetime.timedelta(0))
    first = datetime.datetime(2024, 7, 1, 12, tzinfo=zone)
    moments = [first, None, first + datetime.timedelta(hours=2)]
    if library == "pandas":
        frame = pd.DataFrame({"t": pd.Series(pd.to_datetime(moments, utc=True)).dt.tz_convert("Europe/Paris")})
    elif library == "polars":
        frame = pl.DataFrame({"t": pl.Series(moments).dt.convert_time_zone("Europe/Paris")})
    else:
        frame = pa.table({"t": pa.array(moments, pa.timestamp("s", "Europe/Paris"))})
    array, container = open_container(frame)
    array[1] = array[[0, 2]].mean() + 3  # three microseconds after the middle
    clean = container.wrap(array)
    middle = listed(clean, "t")[1] - first
    assert abs(middle - datetime.timedelta(hours=1)) < datetime.timedelta(seconds=1)
    assert clean["t"].type == frame["t"].type if library == "pyarrow" else clean["t"].dtype == frame["t"].dtype


def test_days_are_rounded():
    days = [datetime.date(2024, 7, 1), datetime.date(2024, 7, 5), None]
    for frame in (pl.DataFrame({"day": days}), pa.table({"day": days})):
        array, container = open_container(frame)
        array[2] = array[1]
        assert listed(container.wrap(array - 1e6), "day") == [days[0], days[1], days[1]]  # a second before midnight


def test_truth_values_that_are_hidden_are_missing():
    frame = pd.DataFrame({"sick": [True, False, True], "n": [1, 2, 3]})
    _, container = open_container(frame)
    hidden = container.hide(np.array([[True, False], [False, True], [False, False]]))
    array, _ = open_container(hidden)
    assert np.array_equal(array, [[np.nan, 1], [0, np.nan], [1, 3]], equal_nan=True)


def test_whole_numbers_that_do_not_fit_are_given_more_room():
    for dtype, code in (("uint8", -1), ("uint8", 300), ("int8", 130), ("UInt8", 300)):
        frame = pd.DataFrame({"n": pd.array([1, 2, 3], dtype=dtype)})
        _, container = open_container(frame)
        assert container.wrap(np.array([[code], [2.0], [3.0]]))["n"].tolist() == [code, 2, 3]
    _, container = open_container(pl.DataFrame({"n": pl.Series([1, 2, 3], dtype=pl.UInt8)}))
    assert container.wrap(np.array([[300.0], [2.0], [3.0]]))["n"].to_list() == [300, 2, 3]


def test_decimals_are_filled_to_their_last_place():
    from decimal import Decimal

    money = [Decimal("1.10"), None, Decimal("2.25")]
    filled = [Decimal("1.10"), Decimal("3.46"), Decimal("2.25")]
    for frame in (pl.DataFrame({"m": pl.Series(money, dtype=pl.Decimal(9, 2))}), pa.table({"m": money})):
        _, clean = there_and_back(frame, 3.4567)
        assert listed(clean, "m") == filled


def test_noise_is_learned_beside_columns_that_carry_none(mixed):
    rec = quick(noise="learn-shared").fit(mixed)
    assert all(bool(member.decoder.offset.isfinite()) for member in rec.posterior_.each)
    level = dict(zip(mixed.columns, rec.noise_, strict=True))
    assert level["size"] > 0
    assert level["sick"] == level["town"] == level["day"] == 0


@pytest.mark.parametrize("noise", [0.3, "learn-shared"])
def test_noise_is_not_meant_of_dates(mixed, noise, tmp_path):
    rec = quick(noise=noise).fit(mixed)
    clean = rec.transform(mixed)
    there = mixed["day"].notna()
    assert (clean["day"][there] == mixed["day"][there]).all()
    assert clean["size"][mixed["size"].notna()].ne(mixed["size"].dropna()).all()
    rec.save(tmp_path / "m")
    pd.testing.assert_frame_equal(Recoverer.load(tmp_path / "m").transform(mixed), clean)
    with pytest.raises(InvalidData, match="noise must be one number"):
        quick(noise=[0.1, 0.2]).fit(mixed)


def test_limits_and_bounds_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    array = np.maximum(rng.normal(size=(80, 3)), -0.5)
    array[::7, 1] = np.nan
    for data, lead in ((array, 0), (pd.DataFrame(array, columns=["lead", "b", "c"]), "lead")):
        rec = quick(detection_limits={lead: ("<", -0.5)}, bounds={lead: (-3, None)}).fit(data)
        rec.save(tmp_path / "m")
        again = Recoverer.load(tmp_path / "m")
        assert np.array_equal(np.asarray(again.transform(data)), np.asarray(rec.transform(data)))
        clone(again).fit(data)
    quick(detection_limits={0: ("<", np.int64(-1))}, bounds={np.int64(1): (-9, 9)}).fit(array).save(tmp_path / "m")
    for wrong in (0.5, "<5", ("<", "5")):
        with pytest.raises(InvalidData, match="Expected detection limits such as"):
            quick(detection_limits={0: wrong}).fit(array)


def test_categories_that_a_file_cannot_hold_are_named(tmp_path):
    ages = pd.DataFrame({"age": pd.cut(np.arange(40) % 9, 3), "x": np.arange(40) / 7 % 1})
    rec = quick().fit(ages)
    with pytest.raises(InvalidData, match=r"column 'age' has Interval.*astype\(str\)"):
        rec.save(tmp_path / "m")


def test_noise_levels_go_by_the_names_of_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame((rng.normal(size=(60, 1)) + 0.01 * rng.normal(size=(60, 3))) * [1, 10, 100], columns=list("abc"))
    rec = quick(noise={"a": 0.1, "b": 1.0, "c": 10.0}).fit(frame)
    other = frame[["c", "a", "b"]].assign(more=1.0)
    with pytest.warns(DataNotice, match="more"):
        found = {each.column: each.sd for each in rec.noise_report(other)}
    assert found == {each.column: each.sd for each in rec.noise_report(frame)}


ZONES = [None, "UTC", "America/New_York", "Etc/GMT+5", datetime.timezone(datetime.timedelta(hours=5, minutes=30))]


@pytest.mark.parametrize("code", [1_699_920_000e6, -1e30, 1e30])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ZONES)
def test_dates_keep_their_zone_and_unit(zone, unit, code):
    """Dates that are filled in have the resolution of the others: code is a whole number of milliseconds."""
    given = pd.Series(pd.to_datetime(["2024-01-01 10:00:00.123456789", None])).dt.as_unit(unit).dt.tz_localize(zone)
    seconds = pa.array([1_704_067_200, None], pa.int64())
    frames = [pd.DataFrame({"t": given}), pa.table({"t": seconds.cast(pa.timestamp(unit, zone and "+05:30"))})]
    if isinstance(zone, str) and unit != "s":
        frames.append(pl.DataFrame({"t": pl.Series([1_704_067_200_000, None]).cast(pl.Datetime(unit, zone))}))
    for frame in frames:
        array, container = open_container(frame)
        back = container.wrap(np.where(np.isnan(array), code, array))
        new, old = back["t"], frame["t"]
        assert new.type == old.type if isinstance(frame, pa.Table) else new.dtype == old.dtype
        assert new[0] == old[0]  # to the nanosecond
        found = open_container(back)[0][1, 0]
        assert found == code if abs(code) < 1e20 else found * code > 0  # the last there is


def test_numbers_of_all_dtypes_come_back_in_theirs():
    money = pa.decimal128(9, 2)
    for dtype in ("Float64", "Float32", "double[pyarrow]", "float32", pd.ArrowDtype(money)):
        first = [Decimal("1.25"), Decimal("2.5"), None] if dtype == pd.ArrowDtype(money) else [1.25, 2.5, None]
        array, container = open_container(pd.DataFrame({"x": pd.Series(first).astype(dtype)}))
        back = container.wrap(np.where(np.isnan(array), 3.4567, array))["x"]
        assert back.dtype == dtype
        assert float(back[2]) == pytest.approx(3.4567, abs=0.004)
    ids = [2076315979518901757, 2076315979518901758, None]
    array, container = open_container(pa.table({"id": ids}))
    assert container.columns[0].kind == "passthrough"
    assert container.wrap(np.where(np.isnan(array), 5.0, array))["id"].to_pylist() == ids
    kind = pa.dictionary(pa.int8(), pa.large_string())
    array, container = open_container(pa.table({"c": pa.array(["a", "b", None, "a"]).dictionary_encode().cast(kind)}))
    assert container.wrap(np.where(np.isnan(array), 1.0, array))["c"].type == kind


@pytest.mark.parametrize("cells", [[[1], [2], None], [{"a": 1}, None, None]])
def test_cells_that_cannot_be_modelled_pass_through_with_a_notice(cells):
    frame = pa.table({"x": cells, "y": [1.0, 2.0, None]})
    with pytest.warns(DataNotice, match="Column 'x': it holds (list|dict) objects"):
        rec = quick(max_steps=5).fit(frame)
    assert rec.transform(frame)["x"].to_pylist() == cells
    with pytest.raises(InvalidData, match="cannot be of kind"):
        open_container(frame, kinds={"x": "category"})


@pytest.mark.parametrize(
    ("kind", "cells"), [("boolean", [1, 2, 1]), ("date", ["01/01/2024", "x", "x"]), ("continuous", "abc")]
)
def test_kinds_that_a_column_cannot_be_of_are_refused(kind, cells):
    with pytest.raises(InvalidData, match=f"cannot be of kind '{kind}'"):
        open_container(pd.DataFrame({"x": list(cells)}), kinds={"x": kind})


def test_noise_that_nothing_carries_is_none():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(60) < 0.5, "b": np.array(["x", "y", "z"])[rng.integers(0, 3, 60)]})
    frame["t"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**9, 60), unit="s")
    frame.loc[::7, "b"] = None
    for noise in ("learn", "learn-shared"):
        check_filled(frame, quick(noise=noise).fit_transform(frame))
    with pytest.raises(InvalidData, match="needs numbers of one unit"):
        quick(noise="learn-by-value").fit(frame[["t"]].assign(x=1.5 + np.arange(60) / 7))


def test_values_that_single_precision_cannot_tell_apart_are_fitted():
    rng = np.random.default_rng(0)
    cents = np.round(rng.normal(5, 2, size=(200, 2)), 1)
    cents[0, 0], cents[::9, 1] = 1e6, np.nan
    assert np.isfinite(quick().fit_transform(pd.DataFrame(cents, columns=["a", "b"]))).all().all()
    assert interval_log_mass(torch.zeros(1), torch.zeros(1)).isfinite().all()


def test_categories_carry_no_noise():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "c": np.array(["p", "q", "r"])[rng.integers(0, 3, 80)]})
    rec = quick(noise=0.3).fit(frame)
    cells = held_out(rec.parameters(), frame, model=rec.model_)
    codes = cells.draws[:, cells.columns == 1]
    assert (codes == codes.round()).all()


def test_several_detection_limits_do_not_widen_draws():
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(900, 1)) + 0.3 * rng.normal(size=(900, 2))
    limit = np.where(rng.random(900) < 0.5, -1.5, 1.0)
    texts = [f"{v:.4f}" if v > end else f"<{end}" for v, end in zip(clean[:, 0], limit, strict=True)]
    frame = pd.DataFrame({"lead": texts, "zinc": clean[:, 1]})
    frame.loc[::6, "lead"] = None
    rec = Recoverer(n_members=1, random_state=0, verbose=0, training=TrainingConfig(steps=600)).fit(frame)
    assert rec.calibration_scale_[0] < 1.5  # 2, the most, where limits count as values


def test_text_with_holes_that_passes_through_is_said():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "said": [f"remark {i}" if i % 5 else None for i in range(60)]})
    with pytest.warns(DataNotice, match=r"is passed through with its missing cells: column 'said'.*--kind said=category"):
        quick().fit(frame)
    quick(kinds={"said": "passthrough"}).fit(frame)  # as was asked for


def test_categories_may_be_dates(tmp_path):
    days = [datetime.date(2024, 1, 1 + i % 4) for i in range(60)]
    frame = pa.table({"day": days, "x": [None if i % 7 == 0 else i / 9 % 1 for i in range(60)]})
    rec = quick(kinds={"day": "category"}).fit(frame)
    rec.save(tmp_path / "m")
    again = Recoverer.load(tmp_path / "m")
    assert again.columns_ == rec.columns_
    assert again.transform(frame).equals(rec.transform(frame))


def test_nothing_is_drawn_below_a_least_value_of_zero():
    rng = np.random.default_rng(0)
    amounts = rng.uniform(size=(200, 3)) + rng.uniform(size=(200, 1))
    amounts[rng.random(amounts.shape) < 0.3] = np.nan
    amounts -= [*np.nanmin(amounts, 0)[:2], 1]  # a single 0 in two of the columns
    draws = quick().fit(amounts).sample(amounts, 20).values
    assert draws[..., :2].min() == 0
    assert draws[..., 2].min() < 0
    assert quick(noise=0.1).fit(amounts).encoder_.bounds.isinf().all()  # what is seen with noise bounds nothing


def test_skewed_whole_numbers_above_zero_are_drawn_above_zero():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"people": np.exp(rng.normal(10, 1.5, 300)).round(), "x": rng.normal(size=300)})
    frame.loc[::5, "people"] = np.nan
    rec = Recoverer(max_steps=10, n_members=1, n_candidates=0, random_state=0, verbose=0).fit(frame)
    assert rec.sample(frame, 20).values[..., 0].min() >= 0


def test_networks_that_had_no_time_are_named():
    with pytest.warns(DataNotice, match="Time was up after"):
        Recoverer("miwae", max_seconds=0.01, random_state=0, verbose=0).fit(np.random.default_rng(0).normal(size=(50, 3)))


def test_a_value_beyond_belief_is_left_out_and_kept():
    """A lone 1e300 would be the scale of its column: every other number would be drawn around it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 1)) + 0.1 * rng.normal(size=(100, 3)), columns=list("abc"))
    frame.loc[3, "a"], frame.loc[4:20, "a"], frame.loc[3, "b"] = 1e300, np.nan, np.nan
    with pytest.warns(DataNotice, match=r"not used.*1e\+300 in column 'a' \(row 3\)"):
        rec = quick().fit(frame)
    filled = rec.transform(frame)
    assert filled.loc[3, "a"] == 1e300
    assert filled.loc[4:20, "a"].abs().max() < 10
    assert abs(filled.loc[3, "b"]) < 10


@pytest.mark.parametrize("code", [-99, 999, 9999])
def test_a_code_for_missing_values_is_named_with_the_option(code):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 100).astype(float), "x": rng.normal(size=100)})
    frame.loc[::10, "age"] = code
    with pytest.warns(DataNotice, match=rf"Column 'age' holds {code} 10 times.*--missing age={code}"):
        quick(max_steps=5).fit(frame)
    rec = quick(max_steps=5, missing={"age": [code]}).fit(frame)
    assert rec.transform(frame)["age"].between(0, 150).all()
    everywhere = quick(max_steps=5, missing=[code]).fit(frame)
    assert everywhere.columns_ == tuple(replace(column, missing=(code,)) for column in rec.columns_)


def test_numbers_above_what_floats_hold_pass_through():
    frame = pd.DataFrame({"id": [2**60 + i**2 for i in range(40)], "x": np.arange(40) % 7 / 3})
    with pytest.warns(DataNotice, match="Column 'id': it holds integers above 2"):
        rec = quick(max_steps=5).fit(frame)
    assert rec.transform(frame)["id"].equals(frame["id"])


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_filled_is_a_value_that_the_column_can_hold(library):
    """Of codes, counts, steps, dates: a mean of 1.41 is no treatment."""
    rng = np.random.default_rng(0)
    n = 150
    days = np.datetime64("2024-01-01", "us") + rng.integers(0, 90, n) * np.timedelta64(1, "D")
    made = {
        "treatment": rng.choice([1.0, 2.0], n),
        "stage": rng.integers(1, 5, n).astype(float),
        "half": rng.integers(0, 9, n) / 2,
        "day": days.astype(object),
        "x": rng.normal(size=n),
    }
    holes = rng.random((n, 5)) < 0.3
    columns = {
        name: [None if gone else value for value, gone in zip(values.tolist(), hole, strict=True)]
        for (name, values), hole in zip(made.items(), holes.T, strict=True)
    }
    frame = LIBRARIES[library](columns)
    for fill in ("mean", "median", "draw"):
        filled = quick(fill=fill).fit(frame).transform(frame)
        for name, known in made.items():
            if name != "x":
                values = [getattr(value, "to_pydatetime", lambda v=value: v)() for value in column_of(filled, name)]
                assert all(value in known for value in values) if name != "day" else all(v.hour == 0 for v in values), fill
    with pytest.raises(InvalidData, match="fill must be one of"):
        quick(fill="mode").fit(frame)


def column_of(frame, name):
    return frame[name].to_pylist() if isinstance(frame, pa.Table) else list(frame[name])


def test_settings_must_be_a_dictionary(table):
    with pytest.raises(InvalidData, match="settings must be a dictionary"):
        quick(settings=3).fit(table)
