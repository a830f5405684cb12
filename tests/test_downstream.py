"""Rubin's rules against mice, and models fitted on draws."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import ShuffleSplit

from unfade import Recoverer
from unfade.data.containers import open_container
from unfade.downstream import (
    Predictions,
    cross_propagate,
    d1,
    d2,
    d3,
    pool,
    pool_predictions,
    propagate,
    tipping_points,
)
from unfade.errors import InvalidData
from unfade.inference.draws import Draws

MICE = json.loads((Path(__file__).parent / "golden" / "mice_pool.json").read_text())  # made with mice 3.15.0


@pytest.mark.parametrize("case", MICE, ids=[case["name"] for case in MICE])
def test_pooling_is_that_of_mice(case):
    pooled = pool(list(zip(case["estimates"], case["variances"], strict=True)), df=case["dfcom"])
    for name in ("estimate", "std_error", "df", "riv", "fmi"):
        assert np.allclose(getattr(pooled, name), case[name], rtol=1e-6), name
    assert np.allclose(pooled.lambda_, case["lambda"], rtol=1e-6)
    low, high = pooled.interval(0.95)
    assert np.allclose(low, case["low"], rtol=1e-6)
    assert np.allclose(high, case["high"], rtol=1e-6)
    assert np.allclose(pooled.p_value, case["p_value"], rtol=1e-6)


def test_fits_of_statsmodels_are_pooled_as_it_pools_them_itself():
    import statsmodels.api as sm
    from statsmodels.imputation.mice import MICE

    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    fits = [
        sm.OLS(
            x @ [1.0, -2.0] + rng.normal(size=80), sm.add_constant(pd.DataFrame(x + 0.2 * rng.normal(size=x.shape)))
        ).fit()
        for _ in range(7)
    ]
    pooled = pool(fits)
    own = MICE.__new__(MICE)
    own.results_list, own.model_class, own.exog_names, own.endog_names = fits, sm.OLS, pooled.names, "y"
    theirs = own.combine()
    assert np.allclose(pooled.estimate, theirs.params)
    assert np.allclose(pooled.std_error, theirs.bse)
    assert np.allclose(pooled.lambda_, theirs.frac_miss_info)


def test_results_of_the_kind_of_statsmodels_are_taken_as_they_are():
    names = pd.Index(["const", "x"])
    fits = [
        SimpleNamespace(params=pd.Series([1.0 + i, 2.0], names), bse=pd.Series([0.5, 0.1], names), df_resid=40)
        for i in range(3)
    ]
    pooled = pool(fits)
    same = pool([(np.array([1.0 + i, 2.0]), np.array([0.25, 0.01])) for i in range(3)], df=40)
    assert np.allclose(pooled.df, same.df)
    assert pooled.names == ("const", "x")
    head, first, second = str(pooled).splitlines()
    assert head.split("  ")[-1] == "fmi"
    assert first.split() == ["const", "2", "1.258", "1.59", "1.9", "0.258", "-3.634", "7.634", "0.906"]
    assert second.split()[:5] == ["x", "2", "0.1", "20.00", "38.1"]
    assert second.split()[5] == "<0.001"
    low, high = pooled.interval()
    assert [float(cell) for cell in first.split()[6:8]] == pytest.approx([low[0], high[0]], rel=1e-3)
    assert float(first.split()[5]) == pytest.approx(pooled.p_value[0], abs=1e-3)
    assert len({len(line) for line in (head, first, second)}) == 1


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([(1.0, 1.0)], "at least 2"),
        ([(1.0, 1.0), (1.0, -1.0)], "positive variance"),
        ([(1.0, 1.0, 2.0)] * 2, "got 3 parts"),
        ([object()] * 2, "got object"),
    ],
)
def test_what_cannot_be_pooled_is_said(results, message):
    with pytest.raises(InvalidData, match=message):
        pool(results)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=120)
    return np.where(rng.random(X.shape) < 0.2, np.nan, X), y


def test_predictions_are_distributions_over_draws(table):
    X, y = table
    draws = Recoverer(max_steps=100, random_state=0, verbose=0).fit(X).sample(X, 6)
    found = propagate(draws, LinearRegression(), y)
    assert found.values.shape == (6, 120)
    expected = LinearRegression().fit(draws[2], y).predict(draws[2])
    assert np.allclose(found.values[2], expected)
    low, high = found.interval(0.9)
    assert (low <= found.mean()).all()
    assert (found.mean() <= high).all()
    with pytest.raises(InvalidData, match="Votes are for classifiers"):
        found.votes()
    with pytest.raises(InvalidData, match="as many draws"):
        propagate(draws, LinearRegression(), y, Draws(draws.values[:2]))


def test_classifiers_vote(table):
    X, y = table
    draws = Recoverer(max_steps=100, random_state=0, verbose=0).fit(X).sample(X, 6)
    found = propagate(draws, LogisticRegression(), np.where(y > 0, "up", "down"))
    assert found.votes().shape == (120, 2)
    assert np.allclose(found.votes().sum(1), 1)
    assert set(found.likeliest()) <= {"up", "down"}
    by_hand = Predictions(np.array([["a", "b"], ["a", "a"], ["b", "b"]]), np.array(["a", "b"]))
    assert np.allclose(by_hand.votes(), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    assert by_hand.likeliest().tolist() == ["a", "b"]


def test_cross_validation_sees_nothing_of_the_rows_it_predicts(table):
    X, y = table
    seen = []

    class Spy(Recoverer):
        def fit(self, X, y=None):
            seen.append(X.copy())
            return super().fit(X)

    found = cross_propagate(Spy(max_steps=50, random_state=0, verbose=0), LinearRegression(), X, y, cv=3, n_draws=4)
    assert found.values.shape == (4, 120)
    assert [len(part) for part in seen] == [80, 80, 80]
    assert np.isfinite(found.values).all()


def test_coefficients_are_pooled_by_name():
    def fit(**params):
        return SimpleNamespace(params=pd.Series(params), bse=pd.Series(dict.fromkeys(params, 0.1)))

    pooled = pool([fit(x=1.0, y=10.0), fit(y=10.0, x=1.0)])
    assert pooled.names == ("x", "y")
    assert pooled.estimate.tolist() == [1.0, 10.0]
    with pytest.raises(InvalidData, match="Expected the coefficients"):
        pool([fit(x=1.0), fit(y=1.0)])
    with pytest.raises(InvalidData, match="same coefficients in all results"):
        pool([([1.0], [1.0]), ([1.0, 2.0], [1.0, 1.0])])
    with pytest.raises(InvalidData, match="level lies between 0 and 1"):
        pooled.interval(95)


def test_every_row_is_predicted_once(table):
    rec, (X, y) = Recoverer(max_steps=5, verbose=0), table
    with pytest.raises(InvalidData, match="predict every row once"):
        cross_propagate(rec, LinearRegression(), X, y, cv=ShuffleSplit(2))
    with pytest.raises(InvalidData, match="an outcome for each"):
        cross_propagate(rec, LinearRegression(), X, y[:10])


def test_classes_are_in_every_fold():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 30)
    X = 5 * y[:, None] + rng.normal(size=(90, 3))
    found = cross_propagate(Recoverer(max_steps=20, random_state=0, verbose=0), RidgeClassifier(), X, y, cv=3, n_draws=2)
    assert (found.values[0] == y).mean() > 0.6  # 0 where a class is never seen


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_small_shifts_of_whole_numbers_are_not_rounded_away(library):
    numbers = pd.array([1, 3, None], dtype="Int64") if library is pd.DataFrame else [1, 3, None]
    array, container = open_container(library({"n": numbers, "b": [1.0, 2.0, 3.0]}))
    draws = Draws(np.where(np.isnan(array), 2.0, array)[None], container, ~np.isnan(array))
    column = next(iter(draws.shifted({"n": 0.2})))["n"]
    found = column.to_pylist() if library is pa.table else list(column)
    assert found == pytest.approx([1, 3, 2.2])


def test_shifts_move_only_what_was_missing():
    frame = pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [1.0, 2.0, 3.0]})
    array, container = open_container(frame)
    values = np.stack([np.where(np.isnan(array), fill, array) for fill in (2.0, 4.0)])
    draws = Draws(values, container, ~np.isnan(array))
    moved = draws.shifted({"a": 0.5})
    assert np.allclose(moved.values[:, :2], values[:, :2])
    assert np.allclose(moved.values[:, 2, 0], [2.5, 4.5])  # the sd of the observed 1 and 3 is 1
    table = tipping_points(draws, "a", lambda t: (t["a"].mean(), 1.0), shifts=(0.0, 3.0))
    assert [shift for shift, _ in table] == [0.0, 3.0]
    assert table[1][1].estimate - table[0][1].estimate == pytest.approx(1.0)
    with pytest.raises(InvalidData, match="no column 'c'"):
        draws.shifted({"c": 1.0})


def test_results_of_other_libraries_are_pooled():
    from lifelines import CoxPHFitter
    from linearmodels.iv import IV2SLS

    rng = np.random.default_rng(0)
    frames = [pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80)}) for _ in range(4)]
    frames = [frame.assign(y=frame["a"] + rng.normal(size=80)) for frame in frames]
    lines = [IV2SLS(f["y"], f[["a", "b"]], None, None).fit(cov_type="unadjusted") for f in frames]
    pooled = pool(lines)
    assert pooled.names == ("a", "b")
    same = pool([(fit.params.to_numpy(), fit.cov.to_numpy()) for fit in lines], df=lines[0].df_resid)
    assert np.allclose(pooled.df, same.df)
    assert np.allclose(pooled.covariance, same.covariance)
    times = [f.assign(time=np.exp(f.y), seen=1) for f in frames]
    cox = [CoxPHFitter().fit(f[["a", "b", "time", "seen"]], "time", "seen") for f in times]
    pooled = pool(cox)
    assert np.allclose(pooled.estimate, np.mean([fit.params_ for fit in cox], 0))
    assert np.allclose(pooled.within, np.mean([fit.variance_matrix_ for fit in cox], 0))


def test_tables_of_coefficients_are_pooled_in_any_order():
    tidy = pd.DataFrame({"term": ["a", "b"], "estimate": [1.0, 2.0], "std.error": [0.5, 0.1]})
    turned = tidy.iloc[::-1].assign(estimate=[2.2, 1.4])
    wanted = pool([(np.array([1.0, 2.0]), np.array([0.25, 0.01])), (np.array([1.4, 2.2]), np.array([0.25, 0.01]))])
    triples = [("b", 2.2, 0.1), ("a", 1.4, 0.5)]
    for second in (turned, pl.from_pandas(turned), pa.Table.from_pandas(turned), triples):
        found = pool([tidy, second])
        assert found.names == ("a", "b")
        assert np.allclose(found.std_error, wanted.std_error)
    with pytest.raises(InvalidData, match=r"term, estimate and std\.error"):
        pool([tidy, tidy.rename(columns={"estimate": "x"})])


def test_degrees_of_freedom_have_no_floor_for_the_share_of_missing_information():
    """As in mice 3.19; mice 3.15 takes at least 0.0001."""
    pooled = pool([(1.0, 1.0), (1.0 + 1e-4, 1.0)], df=50.0)
    lambda_ = 1.5 * np.var([0, 1e-4], ddof=1) / (1 + 1.5 * np.var([0, 1e-4], ddof=1))
    old, observed = 1 / lambda_**2, 51 / 53 * 50 * (1 - lambda_)
    assert pooled.df[0] == pytest.approx(old * observed / (old + observed), rel=1e-12)
    same = pool([(1.0, 1.0), (1.0, 1.0)], df=50.0)
    assert same.df[0] == pytest.approx(51 / 53 * 50)
    assert np.isinf(pool([(1.0, 1.0), (1.0, 1.0)]).df[0])


def test_d1_of_one_coefficient_is_its_own_test_and_of_equal_fits_that_of_complete_data():
    fits = [(np.array([1.0 + 0.1 * i]), np.array([[0.3]])) for i in range(5)]
    pooled = pool(fits)
    found = d1(fits)
    assert found.statistic == pytest.approx((pooled.estimate / pooled.std_error)[0] ** 2)
    rng = np.random.default_rng(0)
    covariance = np.cov(rng.normal(size=(3, 50)))
    estimate = rng.normal(size=3)
    same = d1([(estimate, covariance)] * 4)
    assert same.statistic == pytest.approx(estimate @ np.linalg.solve(covariance, estimate) / 3)
    assert same.riv == pytest.approx(0)


@pytest.mark.parametrize("size", [0.05])
def test_the_tests_keep_their_size_under_the_hypothesis(size):
    """Outcome independent of two predictors, of which 30 % are drawn from their own distribution."""
    import statsmodels.api as sm

    rng, rejected = np.random.default_rng(0), []
    for _ in range(200):
        X, y = rng.normal(size=(80, 2)), rng.normal(size=80)
        gone = rng.random(X.shape) < 0.3
        fits = [sm.OLS(y, sm.add_constant(np.where(gone, rng.normal(size=X.shape), X))).fit() for _ in range(5)]
        rejected.append(d1(fits, [1, 2]).p_value < size)
    assert np.mean(rejected) == pytest.approx(size, abs=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d1([(1.0, 1.0)] * 3), "D1 needs covariances"),
        (lambda: d1([(np.ones(2), np.eye(2)), (np.zeros(2), np.eye(2))] * 3, ["x"]), "no coefficient 'x'"),
        (lambda: d1([(np.ones(2), np.eye(2)), (np.zeros(2), np.eye(2))] * 3, []), "at least one"),
        (lambda: d2([1.0], 2), "at least 2 statistics"),
        (lambda: d2([1.0, -1.0], 2), "at least 0"),
        (lambda: d3([1, 2], [1]), "as many results"),
        (lambda: d3([1, 2], [1, 2]), "log-likelihood"),
        (lambda: pool_predictions([1, 2], None), "get_prediction"),
        (lambda: pool([(1.0, 1.0), (1.1, 1.0)]).covariance, "variances only"),
    ],
)
def test_what_cannot_be_tested_is_said(call, message):
    with pytest.raises(InvalidData, match=message):
        call()


def test_predictions_have_the_models_own_error():
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    X = [sm.add_constant(rng.normal(size=(60, 1))) for _ in range(5)]
    fits = [sm.OLS(x @ [1.0, 2.0] + rng.normal(size=60), x).fit() for x in X]
    at = np.array([[1.0, 0.0], [1.0, 3.0]])
    mean, new = pool_predictions(fits, at), pool_predictions(fits, at, observations=True)
    variances = np.mean([fit.get_prediction(at).se_mean ** 2 for fit in fits], 0)
    between = np.var([fit.predict(at) for fit in fits], axis=0, ddof=1)
    assert np.allclose(mean.std_error**2, variances + 1.2 * between)
    assert (new.std_error > mean.std_error + 0.3).all()
