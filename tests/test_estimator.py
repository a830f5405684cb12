import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from unfade import Architecture, DataNotice, InvalidData, Recoverer, TrainingConfig
from unfade.training.early_stopping import Split


def quick(**parameters):
    return Recoverer(**{"max_steps": 5, "n_candidates": 10, "random_state": 0, "verbose": 0, **parameters})


def test_observed_cells_come_back_exactly(table):
    rec = quick().fit(table)
    seen = ~np.isnan(table)
    assert np.array_equal(rec.transform(table)[seen], table[seen])
    assert all(np.array_equal(draw[seen], table[seen]) for draw in rec.sample(table, 3))
    assert rec.noise_ == 0


def test_warnings_point_at_the_line_of_the_user(table):
    with pytest.warns(DataNotice) as fit:
        rec = quick(noise="learn").fit(table)
    frame = pd.DataFrame(table, columns=list("abcd")[: table.shape[1]])
    with pytest.warns(DataNotice) as use:
        quick().fit(frame).transform(frame.assign(extra=1.0))
    with pytest.warns(FutureWarning) as old:
        quick(members=1)
    assert {each.filename for each in [*fit, *use, *old]} == {__file__}
    assert rec.model_ is rec.model_  # what it has computed is kept


def test_noisy_cells_are_denoised(table):
    rec = quick(noise=3.0).fit(table)
    seen = ~np.isnan(table)
    assert not np.array_equal(rec.transform(table)[seen], table[seen])
    assert rec.noise_ == pytest.approx(3.0)


def test_learned_noise_is_in_the_users_units(table):
    assert quick(noise="learn", scaling="joint-variance").fit(table).noise_ > 0
    with pytest.warns(DataNotice, match=r"noise of 0, 1, 2, 3 cannot be identified.*noise=\{0"):  # after so few steps
        assert quick(noise="learn").fit(table).noise_ == 0


def sensors(rows=400):
    """Two columns of noise .5 and 2 that explain each other, one without noise that nothing explains."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=rows)
    clean = np.stack([20 + 5 * common, 1000 - 20 * common, rng.normal(size=rows)], 1)
    Y = clean + [0.5, 2.0, 0.0] * rng.normal(size=clean.shape)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    return clean, Y


def test_noise_is_learned_per_column_and_not_given_to_columns_that_nothing_explains():
    clean, Y = sensors()
    with pytest.warns(DataNotice, match="noise of 2 cannot be identified"):
        rec = Recoverer(noise="learn", n_members=1, max_steps=700, n_candidates=5, random_state=0, verbose=0).fit(Y)
    assert rec.noise_[0] == pytest.approx(0.5, rel=0.5)
    assert rec.noise_[1] == pytest.approx(2, rel=0.5)
    assert rec.noise_[2] == 0
    seen = ~np.isnan(Y)
    found = rec.transform(Y)
    assert np.array_equal(found[seen[:, 2], 2], Y[seen[:, 2], 2])
    for column in (0, 1):  # cleaned cells are nearer to the truth than those given
        error, left = (np.abs(x[:, column] - clean[:, column])[seen[:, column]].mean() for x in (found, Y))
        assert error < left


def test_noise_by_name_is_of_those_columns_alone(tmp_path):
    frame = pd.DataFrame(sensors()[1], columns=["temp", "pressure", "other"])
    rec = Recoverer(
        noise={"temp": 0.5, "pressure": "learn"}, max_steps=600, n_members=1, n_candidates=5, random_state=0, verbose=0
    ).fit(frame)
    assert rec.noise_[0] == pytest.approx(0.5)
    assert 1 < rec.noise_[1] < 4
    assert rec.noise_[2] == 0
    rec.save(tmp_path / "m")
    assert np.allclose(Recoverer.load(tmp_path / "m").noise_, rec.noise_)
    with pytest.raises(InvalidData, match="noise names 'hum', which is no column"):
        quick(noise={"hum": 1.0}).fit(frame)
    with pytest.raises(InvalidData, match="must be a number, '5 %'"):
        quick(noise={"temp": "much"}).fit(frame)
    with pytest.raises(InvalidData, match="noise names 'side', which holds no numbers"):
        quick(noise={"side": 0.5}).fit(frame.assign(side=np.where(np.arange(len(frame)) % 2, "left", "right")))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_come_back_as_they_came(table, kind):
    columns = {name: table[:, i] for i, name in enumerate(["b", "a", "d", "c"])}
    frame = kind({k: pa.array(v, from_pandas=True) for k, v in columns.items()} if kind is pa.table else columns)
    rec = quick().fit(frame)
    out = rec.transform(frame)
    assert type(out) is type(frame)
    assert list(getattr(out, "column_names", getattr(out, "columns", None))) == ["b", "a", "d", "c"]
    seen = ~np.isnan(table)
    assert np.array_equal(rec.sample(frame, 1).values[0][seen], table[seen])
    assert len(np.unique(rec.sample(frame, 2).values[:, ~seen])) == 2 * (~seen).sum()
    assert type(next(iter(rec.sample(frame, 2)))) is type(frame)
    assert type(rec.sample(frame, 2).mean()) is type(frame)


def test_index_tensors_and_images_come_back(table):
    frame = pd.DataFrame(table, columns=list("abcd"), index=[f"row {i}" for i in range(len(table))])
    assert list(quick().fit_transform(frame).index) == list(frame.index)
    assert isinstance(quick().fit_transform(torch.from_numpy(table)), torch.Tensor)
    images = table.reshape(-1, 2, 2)
    rec = quick(scaling="joint-variance").fit(images)
    assert rec.transform(images).shape == images.shape
    assert rec.sample(images, 3).values.shape == (3, *images.shape)


def test_integer_and_boolean_columns_are_numbers():
    frame = pd.DataFrame({"count": [1, 2, 3, 4], "flag": [True, False, True, True], "x": [1.0, None, 2.0, 3.0]})
    assert not quick().fit_transform(frame).isna().any().any()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "magic"}, "method must be one of"),
        ({"noise": -1.0}, "at least 0"),
        ({"noise": "infer"}, "belongs to method 'tae-paper'"),
        ({"scaling": "wrong"}, "scaling must be"),
        ({"n_candidates": -1}, "n_candidates must be"),
        ({"n_members": 0}, "n_members must be"),
        ({"n_members": "many"}, "n_members must be"),
        ({"n_candidates": 5, "method": "tae-paper"}, "needs p"),
        ({"max_steps": 0}, "max_steps must be a positive"),
        ({"max_steps": "10"}, "max_steps must be a positive"),
        ({"device": "gpu"}, "device must be"),
        ({"settings": {"wings": 2}}, "has the settings"),
        ({"settings": {"posterior": "wrong"}}, "posterior must be one of"),
        ({"method": "tae-paper", "n_candidates": 0, "settings": {"penalty": "none"}}, "penalty must be"),
    ],
)
def test_bad_parameters_are_refused(table, parameters, message):
    with pytest.raises(InvalidData, match=message):
        quick(**parameters).fit(table)


def test_bad_questions_are_refused(table, fitted):
    with pytest.raises(InvalidData, match="n_draws"):
        fitted.sample(table, 0)
    with pytest.raises(InvalidData, match="row_ids"):
        fitted.sample(table, 1, row_ids=[1, 2])
    with pytest.raises(InvalidData, match="seed must be"):
        fitted.sample(table, 1, seed=1.5)
    with pytest.raises(InvalidData, match="batch_size must be positive"):
        TrainingConfig(batch_size=0)
    with pytest.raises(ValueError, match="features"):
        fitted.transform(table[:, :2])
    with pytest.raises(InvalidData, match="as at fit"):
        quick(scaling="joint-variance").fit(table.reshape(-1, 2, 2)).transform(
            table.reshape(-1, 4)[:, :2].reshape(-1, 2, 1)
        )


def test_bad_frames_are_refused():
    with pytest.raises(InvalidData, match="'x' more than once"):
        quick().fit(pd.DataFrame([[1.0, 2.0]], columns=["x", "x"]))
    with pytest.raises(InvalidData, match="column 'x', row 1"):
        quick().fit(pd.DataFrame({"x": [1.0, np.inf]}))
    with pytest.raises(InvalidData, match="Nothing is observed"):
        quick().fit(np.full((3, 2), np.nan))


def test_empty_and_constant_columns_are_kept_and_said(table):
    frame = pd.DataFrame(table, columns=list("abcd")).assign(never=np.nan, always=7.0)
    frame.loc[0, "always"] = np.nan
    with pytest.warns(DataNotice) as said:
        rec = quick().fit(frame)
    assert any("'never'" in str(w.message) and "left missing" in str(w.message) for w in said)
    assert any("'always'" in str(w.message) for w in said)
    out = rec.transform(frame)
    assert out["never"].isna().all()
    assert (out["always"] == 7).all()
    assert not out[list("abcd")].isna().any().any()


def test_only_constant_columns_need_no_model():
    with pytest.warns(DataNotice):
        rec = quick().fit([[1.0, 2.0], [1.0, np.nan]])
    assert rec.transform([[1.0, np.nan]]).tolist() == [[1.0, 2.0]]
    assert rec.sample([[np.nan, np.nan]], 3).values.shape == (3, 1, 2)


def test_a_row_with_nothing_observed_gets_draws_of_the_prior():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(800, 1)) @ np.ones((1, 3)) + 0.3 * rng.normal(size=(800, 3)) + 50
    table[rng.random(table.shape) < 0.3] = np.nan
    rec = quick(max_steps=600, n_candidates=200).fit(table)
    draws = rec.sample(np.full((1, 3), np.nan), 500).values[:, 0]
    assert np.allclose(draws.mean(0), 50, atol=0.4)
    assert np.allclose(draws.std(0), 1.04, atol=0.35)
    assert np.corrcoef(draws.T)[0, 1] > 0.6


def test_one_column_one_row_and_another_order(table):
    assert quick().fit_transform(table[:, :1]).shape == (len(table), 1)
    frame = pd.DataFrame(table, columns=list("abcd"))
    rec = quick().fit(frame)
    assert rec.transform(frame.iloc[[0]]).shape == (1, 4)
    moved = frame[list("dbca")]
    pd.testing.assert_frame_equal(rec.transform(moved), rec.transform(frame)[list("dbca")])
    pd.testing.assert_frame_equal(rec.sample(moved, 2)[1], rec.sample(frame, 2)[1][list("dbca")])
    with pytest.raises(ValueError, match="fitted on are missing"):
        rec.transform(frame.rename(columns={"a": "z"}))


def test_scikit_learn_tools(table):
    y = np.nan_to_num(table).sum(1)
    search = GridSearchCV(make_pipeline(quick(), LinearRegression()), {"recoverer__method": ["auto", "miwae"]}, cv=2)
    assert np.isfinite(search.fit(table, y).best_score_)
    rec = clone(quick(architecture=Architecture(latent=2, hidden=(8,)))).set_output(transform="pandas")
    assert isinstance(rec.fit_transform(table), pd.DataFrame)
    assert list(quick().fit(table).get_feature_names_out()) == ["x0", "x1", "x2", "x3"]


@pytest.mark.filterwarnings("ignore:Time was up")  # on a busy machine
def test_time_budget_and_chosen_steps(table):
    rec = quick(max_steps=None, max_seconds=2).fit(table)
    assert sum(history.seconds for history in rec.histories_) < 4
    assert np.isfinite(rec.transform(table)).all()


def test_small_tables_have_several_members(table):
    wide = np.random.default_rng(0).normal(size=(30, 65))
    members = [
        len(rec.posterior_.each)
        for rec in (quick().fit(table), quick(n_members=2).fit(table), quick(method="miwae").fit(table), quick().fit(wide))
    ]
    assert members == [4, 2, 1, 1]


def test_wide_data_are_trained_by_what_they_predict():
    """More than 64 numbers a sample; what was trained decides whether draws are resampled."""
    values = np.random.default_rng(0).normal(size=(30, 70))
    values[:, 1] = np.round(values[:, 1])  # a column of values that occur again and again
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(70)]).assign(kind=list("ab") * 15)
    frame = frame.mask(np.random.default_rng(1).random(frame.shape) < 0.3)
    rec = quick(n_candidates="auto").fit(frame)
    assert rec.posterior_.each[0].own_prior
    assert rec.model_.n_candidates == 0
    assert set(rec.histories_[-1].terms) == {"value", "E", "F", "K"}
    filled = rec.transform(frame)
    assert not filled.isna().any().any()
    assert set(filled["kind"]) <= {"a", "b"}
    numbers = quick(noise=0.1).fit(values[:, 2:])
    assert "energy score" in numbers.histories_[-1].terms
    forward = quick(n_candidates="auto", settings={"posterior": "forward"}).fit(values)
    assert (forward.posterior_.each[0].own_prior, forward.model_.n_candidates) == (False, 200)
    narrow = quick(n_candidates="auto", settings={"posterior": "predictive"}).fit(values[:, :5])
    assert (narrow.posterior_.each[0].own_prior, narrow.model_.n_candidates) == (True, 0)


def test_members_differ_and_are_scored_together(table, monkeypatch):
    scored, predict = [], Split.predict
    monkeypatch.setattr(
        Split, "predict", lambda self, members, *rest: scored.append(len(members)) or predict(self, members, *rest)
    )
    rec = quick(method="miwae", n_members=4, max_steps=None, training=TrainingConfig(steps=60)).fit(table)
    weights = [torch.cat([p.flatten() for p in member.parameters()]) for member in rec.posterior_.each]
    assert not any(torch.allclose(weights[0], other, atol=1e-2) for other in weights[1:])
    assert set(scored[:-1]) == {4}  # the last is a simple method
    assert len(rec.histories_) == 2  # of the first member: until scores rise, then on all cells


def test_same_seed_same_fit(table):
    assert np.array_equal(quick().fit_transform(table), quick().fit_transform(table))
    assert not np.array_equal(quick().fit_transform(table), quick(random_state=1).fit_transform(table))


def test_progress_is_shown_or_not(table, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    quick(verbose=0).fit(table)
    assert capfd.readouterr().err == ""
    quick(verbose=1, max_steps=60).fit(table)
    assert "left, value" in capfd.readouterr().err


def test_dtypes_come_back_where_the_values_fit(table):
    frame = pd.DataFrame(table, columns=list("abcd")).assign(n=range(len(table)), flag=[True, False] * (len(table) // 2))
    frame["single"] = frame["a"].fillna(frame["a"].mean()).astype("float32")
    frame["Int"] = pd.array([1, None, 3, 4] * (len(table) // 4), dtype="Int64")
    out = quick().fit_transform(frame)
    assert [str(out[name].dtype) for name in ("n", "flag", "single", "Int")] == ["int64", "bool", "float32", "Int64"]
    unnamed = quick().fit_transform(pd.DataFrame(table))
    assert list(unnamed.columns) == [0, 1, 2, 3]


def test_masked_arrays_and_objects_come_in(table):
    masked = np.ma.masked_invalid(np.where(np.isnan(table), -999, table))
    masked.mask = np.isnan(table)
    assert np.array_equal(quick().fit_transform(masked), quick().fit_transform(table))
    frame = pd.DataFrame({"x": pd.Series([1, None, pd.NA, 4.5] * 5, dtype=object), "y": np.arange(20.0)})
    assert not quick().fit_transform(frame).isna().any().any()


def test_a_failed_refit_leaves_the_old_fit(table):
    rec = quick().fit(table)
    before = rec.transform(table)
    with pytest.raises(InvalidData):
        rec.set_params(settings={"wings": 1}).fit(table)
    assert np.array_equal(rec.transform(table), before)
    with pytest.raises(InvalidData):
        rec.set_params(settings={"wings": 1}).fit(pd.DataFrame(table, columns=list("abcd")))
    assert rec.columns_ is None


def test_an_error_while_drawing_leaves_no_trace(table, monkeypatch):
    rec = quick().fit(table)
    with monkeypatch.context() as patched:
        patched.setattr("unfade.data.encoder.FeatureEncoder.leave", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rec.sample(table, 2)
    assert not torch.is_inference_mode_enabled()
    with torch.no_grad():
        quick().fit(table)


def test_extreme_values_give_finite_draws(table):
    rec = quick().fit(table)
    row = table[:1].copy()
    row[0] = [1e18, np.nan, np.nan, np.nan]
    assert np.isfinite(rec.transform(row)).all()
    huge = np.where(np.isnan(table), np.nan, table * 1e160)
    assert np.isfinite(quick().fit(huge).sample(huge, 2).values).all()


def test_a_decoder_that_is_the_model_must_not_see_y(table):
    with pytest.raises(InvalidData, match="must not see y"):
        quick(method="miwae", n_candidates=0, architecture=Architecture(latent=2, hidden=(8,), decoder_sees=True)).fit(
            table
        )
    sees = Architecture(latent=2, hidden=(8,), prior_hidden=(8,), decoder_sees=True)
    assert np.isfinite(quick(method="tae-paper", n_candidates=0, architecture=sees).fit_transform(table)).all()


def test_tiny_noise_levels_keep_their_own_numbers(table):
    noise = quick(noise=[1e-9, 9e-9, 5e-9, 2e-9]).fit(table * 1e-7).noise_
    assert np.allclose(noise, [1e-9, 9e-9, 5e-9, 2e-9], rtol=1e-4, atol=0)


def test_complete_rows_are_not_touched(table):
    complete = np.nan_to_num(table)
    assert np.array_equal(quick().fit(table).sample(complete, 2).values, np.stack([complete] * 2))


def test_threads_do_not_disturb_each_other(table):
    from concurrent.futures import ThreadPoolExecutor

    alone = quick().fit_transform(table)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(result, alone) for result in pool.map(lambda _: quick().fit_transform(table), range(4)))


def test_a_fitted_recoverer_can_be_copied_and_pickled(table, fitted):
    import copy
    import pickle

    expected = fitted.transform(table)
    assert np.array_equal(copy.deepcopy(fitted).transform(table), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).transform(table), expected)


def test_draws_go_into_an_array_that_is_given(table, tmp_path):
    Y, rec = table, quick().fit(table)
    whole = rec.sample(Y, 3).values
    out = np.memmap(tmp_path / "draws", np.float64, "w+", shape=(3, *Y.shape))
    draws = rec.sample(Y, 3, out=out)
    assert draws.values is out
    assert np.array_equal(out, whole)
    with pytest.raises(InvalidData, match="out must hold"):
        rec.sample(Y, 4, out=out)


def test_draws_of_a_frame_in_another_order_go_into_an_array_in_that_order(table):
    frame = pd.DataFrame(table, columns=list("abcd"))
    rec, other = quick().fit(frame), list("dbca")
    out = np.empty((20, *table.shape), np.float32)
    rec.sample(frame[other], 20, out=out)
    assert np.allclose(out, rec.sample(frame, 20).values[:, :, [3, 1, 2, 0]], rtol=1e-6)


def test_large_tables_go_in_parts_that_change_nothing(table, monkeypatch):
    whole = quick().fit(table)
    monkeypatch.setattr("unfade.data.observations.AT_ONCE", 32)
    parts = quick().fit(table)
    assert np.allclose(parts.sample(table, 3).values, whole.sample(table, 3).values, rtol=1e-4)
    assert np.allclose(parts.transform(table), whole.transform(table), rtol=1e-4)


def test_verbose_2_says_how_the_step_was_run(table, capsys):
    quick(verbose=2).fit(table)
    assert "5 steps in" in (said := capsys.readouterr().err)
    assert "eager" in said
