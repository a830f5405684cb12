"""Cells that do not apply, derived columns, sums, order: exact in every draw, at every entrance."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from unfade import DataNotice, InvalidData, Recoverer
from unfade.cli.app import app
from unfade.data.constraints import Constraints
from unfade.engines import recover_batch
from unfade.io.tables import read_table, write_table
from unfade.streaming import fit_stream, recover_stream

RULES = {
    "applicable": {"age_moved": "moved == 'yes'"},
    "derived": {"bmi": "wgt / (hgt / 100) ** 2"},
    "sums": {"total": ["rent", "food", "rest"]},
    "order": ["low <= mid <= high"],
}
OPTIONS = [
    "--applicable", "age_moved=moved == 'yes'", "--derived", "bmi=wgt / (hgt / 100) ** 2", "--sum", "total=rent+food+rest",
    "--order", "low <= mid <= high",
]  # fmt: skip
FAST = {"max_steps": 30, "n_members": 1, "n_candidates": 5, "random_state": 0, "verbose": 0}


def survey(n=300, seed=0, missing=0.25):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({"hgt": rng.normal(170, 10, n).round(1)})
    made["wgt"] = (made["hgt"] - 100 + rng.normal(0, 8, n)).round(1)
    made["bmi"] = made["wgt"] / (made["hgt"] / 100) ** 2
    made["moved"] = rng.choice(["yes", "no"], n)
    made["age_moved"] = rng.integers(0, 70, n) + 0.5
    for name in ("rent", "food", "rest"):
        made[name] = rng.gamma(2, 100, n)
    made["total"] = made["rent"] + made["food"] + made["rest"]
    made["low"] = rng.normal(size=n)
    made["mid"] = made["low"] + rng.gamma(2, 1, n)
    made["high"] = made["mid"] + rng.gamma(2, 1, n)
    made.loc[made["moved"] == "no", "age_moved"] = np.nan
    return made.mask(rng.random(made.shape) < missing)


def consistent(table):
    """The share of rows that meet all constraints."""
    good = np.isclose(table["bmi"], table["wgt"] / (table["hgt"] / 100) ** 2, rtol=1e-9)
    good &= np.isclose(table["total"], table["rent"] + table["food"] + table["rest"], rtol=1e-9)
    good &= (table["low"] <= table["mid"]) & (table["mid"] <= table["high"])
    return (good & ((table["moved"] == "yes") == table["age_moved"].notna())).mean()


@pytest.fixture(scope="module")
def fitted():
    return Recoverer(**FAST, **RULES).fit(survey())


def test_every_draw_and_the_mean_meet_all_constraints(fitted):
    data = survey()
    for table in (fitted.transform(data), *fitted.sample(data, 8)):
        assert consistent(table) == 1
        assert table.drop(columns="age_moved").notna().all(axis=None)
        seen = data.notna()
        assert (table[seen] == data[seen])[seen].sum().sum() == seen.sum().sum()


def test_draws_do_not_depend_on_the_batch(fitted):
    data = survey()
    whole = fitted.sample(data, 3).values
    part = fitted.sample(data.iloc[40:60], 3, row_ids=range(40, 60)).values
    assert np.array_equal(whole[:, 40:60], part, equal_nan=True)


def test_a_saved_model_keeps_its_constraints(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    data = survey()
    assert np.array_equal(
        Recoverer.load(tmp_path / "m").sample(data, 2).values, fitted.sample(data, 2).values, equal_nan=True
    )


def test_every_entrance_holds_them(tmp_path):
    data = survey()
    write_table(_arrow(data), tmp_path / "t.parquet")
    fast = ["--max-steps", "30", "--n-members", "1", "--n-candidates", "5", "-q"]
    for target in ("out.parquet", "out"):
        done = CliRunner().invoke(
            app, ["recover", str(tmp_path / "t.parquet"), "-o", str(tmp_path / target), *OPTIONS, *fast]
        )
        assert done.exit_code == 0, done.output
    rec = fit_stream(Recoverer(**FAST, **RULES), tmp_path / "t.parquet")
    recover_stream(rec, tmp_path / "t.parquet", tmp_path / "again")
    made = [read_table(tmp_path / "out.parquet")]
    made += [read_table(tmp_path / name / "clean.parquet" / "part-000000.parquet") for name in ("out", "again")]
    made.append(recover_batch(rec)(read_table(tmp_path / "t.parquet")))
    assert [consistent(each.to_pandas()) for each in made] == [1, 1, 1, 1]


def _arrow(data):
    import pyarrow as pa

    return pa.Table.from_pandas(data, preserve_index=False)


def test_cells_that_do_not_apply_are_not_counted_as_missing(tmp_path):
    data = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "moved": ["yes", "no"] * 30})
    data["age"] = np.where(data["moved"] == "yes", data["x"] + 1, np.nan)
    data.to_csv(tmp_path / "t.csv", index=False)
    done = CliRunner().invoke(
        app, ["recover", str(tmp_path / "t.csv"), "-o", str(tmp_path / "o.csv"), "--applicable", "age=moved == 'yes'"]
    )
    assert "No cell is missing" in done.output
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "t.csv").read_bytes()


def test_a_parent_is_drawn_so_that_an_observed_answer_applies():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"moved": rng.integers(0, 2, 200).astype(float), "x": rng.normal(size=200)})
    data["age"] = np.where(data["moved"] == 1, rng.normal(30, 5, 200), np.nan)
    answered = data["age"].notna()
    data.loc[answered & (rng.random(200) < 0.5), "moved"] = np.nan
    draws = Recoverer(**FAST, applicable={"age": "moved == 1"}).fit(data).sample(data, 5)
    assert all((table.loc[answered, "moved"] == 1).all() for table in draws)


@pytest.mark.parametrize("condition", ["x1 > x2", "x1 >= x2 + 1", "x1 != x2", "x1 > x2 and x1 > 3"])
def test_conditions_between_columns_are_made_true(condition):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (4, 50, 3)).astype(float)
    fixed = np.zeros((50, 3), dtype=bool)
    fixed[:, [0, 2]] = True
    bound = Constraints.bind(None, (3,), applicable={"x0": condition})
    before = values.copy()
    bound.settle(values, fixed)
    held = bound.applicable["x0"].evaluate(bound.named(values)) == 1
    assert held.all()
    assert (before[..., 1] != values[..., 1]).any()
    assert np.array_equal(before[..., [0, 2]], values[..., [0, 2]])


def test_observed_totals_are_shared_exactly_and_without_negative_parts():
    bound = Constraints.bind(None, (4,), sums={"x3": ["x0", "x1", "x2"]})
    values = np.array([[[1.0, 2.0, 5.0, 20.0], [3.0, 1.0, 1.0, 2.0]]])
    fixed = np.array([[True, False, False, True], [False, False, False, True]])
    bound.settle(values, fixed)
    assert np.allclose(values[0, :, :3].sum(-1), [20, 2])
    assert np.allclose(values[0, 0], [1, 19 * 2 / 7, 19 * 5 / 7, 20])
    assert (values >= 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_order_holds_for_any_draw_and_keeps_what_is_fixed(seed):
    rng = np.random.default_rng(seed)
    values, truth = rng.normal(size=(6, 50, 4)), np.sort(rng.normal(size=(50, 4)), -1)
    fixed = rng.random((50, 4)) < 0.4
    values = np.where(fixed, truth, values)
    Constraints.bind(None, (4,), order=[("x0", "x1", "x2", "x3")]).settle(values, fixed)
    assert (np.diff(values) >= 0).all()
    assert (values == truth)[:, fixed].all()


def test_values_that_follow_from_observed_ones_are_computed_not_drawn():
    bound = Constraints.bind(None, (3,), derived={"x2": "x0 * x1"})
    values = np.array([[2.0, 3.0, np.nan], [2.0, np.nan, 8.0], [np.nan, np.nan, 8.0]])
    assert bound.deduce(values).tolist() == [[False, False, True], [False, True, False], [False, False, False]]
    assert np.array_equal(values, [[2, 3, 6], [2, 4, 8], [np.nan, np.nan, 8]], equal_nan=True)
    body = Constraints.bind(None, (3,), derived={"x2": "x1 / (x0 / 100) ** 2"})
    heights, weights = np.linspace(150, 200, 51).round(1), np.linspace(50, 100, 51).round(1)
    values = np.stack([heights, np.full(51, np.nan), weights / (heights / 100) ** 2], 1)
    body.deduce(values)
    assert np.array_equal(values[:, 1], weights)  # to the bit: values that repeat do so


def test_noise_is_cleaned_before_a_column_is_derived():
    data = survey(missing=0.1)[["hgt", "wgt", "bmi"]]
    draws = Recoverer(**FAST, noise={"wgt": 2.0}, derived=RULES["derived"]).fit(data).sample(data, 3)
    assert (draws[0]["wgt"] != data["wgt"]).all()
    for table in draws:
        assert np.allclose(table["bmi"], table["wgt"] / (table["hgt"] / 100) ** 2)
        seen = data["hgt"].notna()
        assert (table.loc[seen, "hgt"] == data.loc[seen, "hgt"]).all()


def test_where_names_the_cells_that_are_filled(fitted):
    data = survey()
    where = np.random.default_rng(1).random(data.shape) < 0.5
    for given in (where, pd.DataFrame(where, columns=data.columns)[data.columns[::-1]]):
        table = fitted.transform(data, where=given)
        assert (table.isna() | where | data.notna()).all(axis=None)
        assert table[data.columns[:3]].isna().sum().sum() > 20
        assert fitted.sample(data, 2, where=given)[1].isna().sum().sum() >= table.isna().sum().sum() - 60
    with pytest.raises(InvalidData, match="shape"):
        fitted.transform(data, where=where[:5])
    with pytest.raises(InvalidData, match="True"):
        fitted.transform(data, where=3 * where)


def test_contradictions_in_the_data_are_named_and_kept():
    data = survey(missing=0.0).dropna(axis=1)
    data.loc[:4, "bmi"] = np.arange(90.0, 95.0)
    data.loc[:9, "low"] = 50.0
    data.loc[50, "hgt"] = np.nan
    with pytest.warns(DataNotice, match=r"'bmi' differs .* in 5 rows; low <= mid <= high is false in 10 rows"):
        rec = Recoverer(**FAST, derived=RULES["derived"], order=RULES["order"]).fit(data)
    assert (rec.transform(data)["bmi"][:5] == np.arange(90.0, 95.0)).all()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"derived": {"nothing": "a + b"}}, "names 'nothing'"),
        ({"derived": {"a": "b + nothing"}}, "'nothing'"),
        ({"derived": {"a": "b", "b": "a"}}, "need each other"),
        ({"derived": {"c": "a"}}, "holds no numbers"),
        ({"derived": "a = b"}, "dictionary"),
        ({"sums": {"a": ["b"]}}, "at least two"),
        ({"sums": {"a": ["b", "c"]}}, "holds no numbers"),
        ({"sums": {"a": ["b", "d"]}, "derived": {"a": "b"}}, "both"),
        ({"order": "a <= b"}, "list"),
        ({"order": ["a < b"]}, "order takes"),
        ({"order": ["a <= nothing"]}, "names 'nothing'"),
        ({"applicable": {"a": "c == 'zzz'"}}, "no value of 'c'"),
        ({"applicable": {"a": "open('x')"}}, "functions in an expression"),
    ],
)
def test_bad_constraints_are_refused_by_a_sentence(how, message):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {"a": rng.normal(size=30), "b": rng.normal(size=30), "c": ["u", "v"] * 15, "d": rng.normal(size=30)}
    )
    with pytest.raises(InvalidData, match=message):
        Recoverer(**FAST, **how).fit(data)


def test_images_have_no_constraints():
    with pytest.raises(InvalidData, match="for tables"):
        Recoverer(**FAST, derived={"x0": "x1"}).fit(np.random.default_rng(0).normal(size=(20, 4, 4)))


def test_noise_relative_to_the_value():
    rng = np.random.default_rng(0)
    clean = np.exp(rng.normal(size=400))
    data = pd.DataFrame({"a": clean * np.exp(0.2 * rng.normal(size=400)), "b": clean * np.exp(0.2 * rng.normal(size=400))})
    rec = Recoverer(**FAST | {"max_steps": 400}, noise={"a": "20 %", "b": "20%"}).fit(data)
    assert rec.noise_ == pytest.approx(0.2)
    error = [np.sqrt((np.log(table["a"] / clean) ** 2).mean()) for table in (data, rec.transform(data))]
    assert error[1] < 0.85 * error[0]
    whole = Recoverer(**FAST, noise="20 %").fit(data)
    assert whole.noise_ == pytest.approx(0.2)
    with pytest.raises(InvalidData, match="needs positive values"):
        Recoverer(**FAST, noise={"a": "5 %"}).fit(data - 10)
    with pytest.raises(InvalidData, match="5 %"):
        Recoverer(**FAST, noise={"a": "5 percent"}).fit(data)
