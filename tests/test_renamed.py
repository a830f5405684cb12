"""Old public names still work, and say what they are called now."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from unfade import Recoverer
from unfade.cli.app import app
from unfade.renamed import ATTRIBUTES, KINDS, PARAMETERS, format_2, format_3

FAST = {"max_steps": 5, "n_members": 1, "n_candidates": 0, "random_state": 0, "verbose": 0}


@pytest.fixture(scope="module")
def fitted():
    return Recoverer(**FAST).fit(np.random.default_rng(0).normal(size=(30, 3)))


@pytest.mark.parametrize(("old", "new"), PARAMETERS.items())
def test_an_old_parameter_sets_the_new_one(old, new):
    with pytest.warns(FutureWarning, match=f"{old!r} is now called {new!r}"):
        rec = Recoverer(**{old: 1})
    assert rec.get_params()[new] == 1
    assert old not in rec.get_params()
    with pytest.warns(FutureWarning, match=f"{old!r} is now called {new!r}"):
        assert rec.set_params(**{old: 2}).get_params()[new] == 2


@pytest.mark.parametrize(("old", "new"), ATTRIBUTES.items())
def test_an_old_attribute_gives_the_new_one(fitted, old, new):
    with pytest.warns(FutureWarning, match=f"{old!r} is now called {new!r}"):
        found = getattr(fitted, old)
    assert found is getattr(fitted, new) or found == getattr(fitted, new)


def test_an_unknown_attribute_is_an_attribute_error(fitted):
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fitted.nothing  # noqa: B018


def test_draws_take_the_old_name_of_candidates(fitted):
    X = np.full((4, 3), np.nan)
    with pytest.warns(FutureWarning, match="'n_candidates'"):
        old = fitted.sample(X, 3, refine=7)
    assert np.array_equal(old.values, fitted.sample(X, 3, n_candidates=7).values)


def test_old_kinds_and_settings_are_understood():
    frame = pl.DataFrame({"a": [1.0, 2.0, None, 4.0] * 10, "b": ["x", "y", "x", "x"] * 10})
    with pytest.warns(FutureWarning, match="'ordered' is now called 'ordinal'"):
        rec = Recoverer(kinds={"a": "number", "b": "ordered"}, settings={"sharpness": 2.0}, **FAST).fit(frame)
    assert [column.kind for column in rec.columns_] == ["continuous", "ordinal"]


def test_old_options_of_the_command_line_give_a_note(tmp_path):
    pl.DataFrame({"a": [1.0, 2.0, None, 4.0] * 5, "b": [1.5, 0.5, 1.0, 2.0] * 5}).write_csv(tmp_path / "t.csv")
    arguments = ["recover", str(tmp_path / "t.csv"), "-o", str(tmp_path / "o.csv"), "--max-steps", "5"]
    result = CliRunner().invoke(app, [*arguments, "--members", "1", "--refine", "0", "--limit", "a<1"])
    assert result.exit_code == 0, result.output
    assert "--members is now called --n-members" in result.output
    assert "--refine is now called --n-candidates" in result.output
    assert "--limit is now called --detection-limit" in result.output
    assert "--members" not in CliRunner().invoke(app, ["recover", "--help"]).output.replace("--n-members", "")


def test_the_words_of_format_1_become_those_of_format_2():
    column = {"name": "a", "kind": "whole", "limits": True, "categories": []}
    meta = {"parameters": {"refine": 3, "kinds": {"a": "ordered"}, "settings": {"sharpness": 1.0}}, "columns": [column]}
    present = format_2(meta)
    assert present["parameters"] == {"n_candidates": 3, "kinds": {"a": "ordinal"}, "settings": {"energy_weight": 1.0}}
    assert present["columns"] == [{"name": "a", "kind": "integer", "censored": True, "categories": []}]
    assert format_2({"parameters": 7, "columns": [3]}) == {"parameters": 7, "columns": [3]}
    assert set(KINDS.values()) == {"continuous", "integer", "ordinal", "passthrough"}


def test_the_default_of_format_2_is_that_of_format_3():
    assert format_3({"parameters": {"method": "tae"}})["parameters"] == {"method": "auto"}
    assert format_3({"parameters": {"method": "miwae"}})["parameters"] == {"method": "miwae"}
    assert format_3({"parameters": 7}) == {"parameters": 7}
