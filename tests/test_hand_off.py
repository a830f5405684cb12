"""Draws handed to other tools: R's mice pools them as unfade does; long tables for Stata and SPSS; xarray."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unfade import Draws, InvalidData, Recoverer, fit_pooled
from unfade.downstream import d1, d2, d3, pool

GOLDEN = Path(__file__).parent / "golden"
SCRIPT = Path(__file__).parent / "pool.R"
LONG, WHERE = GOLDEN / "mice_long.csv", GOLDEN / "mice_where.csv"  # of draws with a column that was cleaned
R = json.loads((GOLDEN / "mice_hand_off.json").read_text())  # what tests/pool.R makes of them


def completed():
    """The completed data sets of the stored draws, and how the columns of R's coefficients are called here."""
    long = pd.read_csv(LONG)
    return [part.drop(columns=[".imp", ".id"]) for number, part in long.groupby(".imp") if number > 0]


def fits():
    import statsmodels.formula.api as smf

    tables = completed()
    full = [smf.ols("y ~ x + z + C(g)", table).fit() for table in tables]
    return full, [smf.ols("y ~ x", table).fit() for table in tables], tables


ORDER = ["Intercept", "x", "z", "C(g)[T.b]", "C(g)[T.c]"]
TESTED = ORDER[2:]


def check_pooled(found, pooled, order, rtol):
    index = [list(pooled.names).index(name) for name in order]
    for name in ("estimate", "std_error", "df", "riv", "fmi"):
        assert np.allclose(getattr(pooled, name)[index], found[name], rtol=rtol), name
    assert np.allclose(pooled.lambda_[index], found["lambda"], rtol=rtol)


def check(found):
    import statsmodels.formula.api as smf

    full, reduced, tables = fits()
    check_pooled(found["linear"], pool(full), ORDER, 1e-8)
    logits = [smf.logit("b ~ x + z", table).fit(disp=0, tol=1e-13) for table in tables]
    check_pooled(found["logistic"], pool(logits), ["Intercept", "x", "z"], 1e-6)
    statistics = [
        float(
            fit.wald_test(np.eye(5)[[list(fit.params.index).index(t) for t in TESTED]], use_f=False, scalar=True).statistic
        )
        for fit in full
    ]
    assert np.allclose(statistics, found["wald"])
    for name, made in (
        ("d1", d1(full, TESTED)), ("d1_large", d1(full, TESTED, df=np.inf)), ("d2", d2(statistics, 3)),
        ("d3", d3(full, reduced)),
    ):  # fmt: skip
        assert np.allclose([made.statistic, made.df1, made.df2, made.riv], found[name], rtol=1e-8), name


def test_pooling_is_that_of_rs_mice_on_the_draws_it_was_handed():
    check(R)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")
def test_rs_mice_gives_the_stored_figures_today():
    run = subprocess.run(["Rscript", SCRIPT, LONG, WHERE], capture_output=True, text=True, check=False)
    if "there is no package" in run.stderr:
        pytest.skip("R has no mice or mitml")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    check(found)


def data(n=40):
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"x": rng.normal(size=n), "g": rng.choice(["a", "b"], n)})
    made["y"] = made["x"] + rng.normal(size=n)
    return made.mask(rng.random(made.shape) < 0.2)


@pytest.fixture(scope="module")
def fitted():
    return Recoverer(max_steps=20, n_members=1, random_state=0, verbose=0, noise={"x": 0.3}).fit(data())


LIBRARIES = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "pyarrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("form", "names", "first"),
    [
        ("unfade", ("draw", "row"), 0),
        ("mice", (".imp", ".id"), 1),
        ("stata", ("mi_m", "mi_id"), 1),
        ("spss", ("Imputation_", "id_"), 1),
    ],
)
def test_long_tables(fitted, library, form, names, first):
    given = LIBRARIES[library](data())
    draws = fitted.sample(given, 3)
    long = draws.to_long(form)
    assert type(long) is type(given)
    long = long.to_pandas() if library != "pandas" else long
    assert tuple(long.columns[:2]) == names
    assert long[names[0]].tolist() == np.repeat(range(3 + first), 40).tolist()
    assert long[names[1]].tolist() == list(range(first, 40 + first)) * (3 + first)
    if first:
        assert (long.iloc[:40, 2:].isna().to_numpy() == data().isna().to_numpy()).all()
        assert np.allclose(long["y"][:40], data()["y"], equal_nan=True)
    where = draws.where()
    where = where.to_pandas() if library != "pandas" else where
    expected = data().isna().assign(x=True)
    assert (where.to_numpy(bool) == expected.to_numpy()).all()


def test_values_that_stand_for_missing_ones_are_missing_in_the_original():
    given = data().fillna({"y": -99.0})
    draws = (
        Recoverer(max_steps=20, n_members=1, random_state=0, verbose=0, missing={"y": [-99]}).fit(given).sample(given, 2)
    )
    long = draws.to_long("mice")
    assert (long.loc[long[".imp"] == 0, "y"].isna().to_numpy() == data()["y"].isna()).all()


def test_arrays_have_columns_by_number(fitted):
    array = data()[["x", "y"]].to_numpy()
    draws = Recoverer(max_steps=20, n_members=1, random_state=0, verbose=0).fit(array).sample(array, 2)
    assert draws.to_long("mice").column_names == [".imp", ".id", "x0", "x1"]
    assert np.array_equal(draws.where()["x1"].to_numpy(), np.isnan(array[:, 1]))


def test_xarray_has_the_dimensions_that_arviz_expects(fitted):
    draws = fitted.sample(data(), 4)
    found = draws.to_xarray()
    assert dict(found.sizes) == {"chain": 1, "draw": 4, "row": 40}
    assert np.array_equal(found["x"].to_numpy()[0], draws.values[..., 0])
    assert found["g"].attrs["categories"] == ["a", "b"]


def test_what_cannot_be_handed_off_is_said(fitted):
    draws = fitted.sample(data(), 2)
    with pytest.raises(InvalidData, match="got 'sas'"):
        draws.to_long("sas")
    with pytest.raises(InvalidData, match="do not know the data"):
        Draws(draws.values).to_long("mice")
    with pytest.raises(InvalidData, match="images"):
        Draws(np.zeros((2, 3, 4, 4)), given=np.zeros((3, 4, 4))).to_long("mice")
    named = data().rename(columns={"x": ".imp"})
    taken = Recoverer(max_steps=20, n_members=1, random_state=0, verbose=0).fit(named).sample(named, 2)
    with pytest.raises(InvalidData, match="Rename"):
        taken.to_long("mice")


def test_one_line_pools_an_analysis_of_all_draws(fitted):
    import statsmodels.formula.api as smf

    draws = fitted.sample(data(), 5)
    found = fit_pooled(draws, lambda table: smf.ols("y ~ x", table).fit())
    assert np.allclose(found.estimate, pool([smf.ols("y ~ x", table).fit() for table in draws]).estimate)
    assert found.covariance.shape == (2, 2)
    assert np.allclose(np.sqrt(np.diag(found.covariance)), found.std_error)
