"""Held-out cells, simple methods beside ours, outliers and what is known of the noise."""

import datetime

import numpy as np
import pandas as pd
import pytest

from unfade import DataNotice, InvalidData, Recoverer
from unfade.diagnostics.comparison import compare
from unfade.diagnostics.evaluation import evaluate
from unfade.diagnostics.predictions import HeldOut, held_out


def quick(**parameters):
    return Recoverer(**{"max_steps": 400, "random_state": 0, "verbose": 0, "device": "cpu", **parameters})


@pytest.fixture(scope="module")
def line():
    """Three columns that follow one factor, and one that follows nothing."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(250, 1))
    X = np.concatenate([factor * [1.0, -2.0, 3.0] + 0.1 * rng.normal(size=(250, 3)), rng.normal(size=(250, 1))], 1)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


def test_held_out_cells_were_observed_and_are_scored_by_their_definition(line):
    cells = held_out(quick().parameters(), line, n_draws=8)
    assert np.allclose(cells.values, line[cells.rows, cells.columns])
    assert np.isnan(cells.seen[cells.rows, cells.columns]).all()
    assert not np.isnan(cells.seen).all(1).any()
    chosen = np.zeros(line.shape, dtype=bool)
    chosen[cells.rows, cells.columns] = True
    draws = np.zeros((8, *line.shape))
    draws[:, cells.rows, cells.columns] = cells.draws
    unit = np.nanstd(cells.seen, 0)
    expected = evaluate(draws, np.where(chosen, line, 0), ~chosen, unit=unit).crps
    assert cells.scores().mean() == pytest.approx(expected)


def test_categories_are_scored_by_agreement():
    from unfade.data.columns import Column

    cells = HeldOut(np.array([0]), np.array([0]), np.array([1.0]), np.array([[1.0], [1.0], [2.0], [0.0]]),
                    np.array([[1.0], [0.0]]), (Column("c", "category", ("a", "b", "c")),))  # fmt: skip
    assert cells.scores()[0] == pytest.approx(0.5 - 0.5 * (10 / 12))


def test_simple_methods_are_told_when_they_do_as_well(line):
    good = compare(quick(max_steps=1500).parameters(), line)
    assert good.scores["unfade"] < 0.8 * good.scores["column marginals"]
    assert good.scores["linear Gaussian"] < 0.8 * good.scores["column marginals"]
    bad = compare(quick(max_steps=1).parameters(), line)
    assert "linear Gaussian predicts held-out cells better" in str(bad)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(["x", "y", "z"], 60), "c": rng.normal(size=60)})
    assert set(compare(quick(max_steps=30).parameters(), frame, n_draws=10).scores) == set(good.scores)


def test_a_wrong_entry_is_the_greatest_surprise(line):
    frame = pd.DataFrame(line, columns=list("abcd")).assign(side=np.where(np.nan_to_num(line[:, 1]) > 0, "low", "high"))
    frame.loc[17, ["a", "b", "c"]] = [1.0, 2.0, 3.0]  # b should be -2
    frame.loc[40, ["a", "b", "c"]] = [1.0, -2.0, 3.0]
    found = quick(max_steps=1500).fit(frame).outliers(frame, most=5)
    assert 17 in [each.row for each in found[:3]]  # any two of a, b and c say that the third is wrong
    assert found[0].distance > 3
    assert all(each.low <= each.expected <= each.high for each in found if each.column != "side")


def test_noise_is_told_only_where_other_columns_explain_something(line):
    with pytest.warns(DataNotice, match="noise of 3 cannot be identified"):
        rec = quick(noise="learn", max_steps=1500).fit(line)
    a, b, c, alone = rec.noise_report(line)
    assert all(column.told for column in (a, b, c))
    assert not alone.told
    assert "not identified" in str(alone)
    assert a.low <= a.sd <= a.high


def test_dates_and_integers_of_few_values_carry_no_noise_to_learn(line):
    frame = pd.DataFrame(line[:, :3], columns=list("abc"))
    frame["year"] = np.where(line[:, 0] > 0, 1997, 1993)  # follows from a, b and c
    frame["day"] = pd.date_range("2024-01-01", periods=len(line))
    rec = quick(noise="learn").fit(frame)
    assert (rec.noise_[:3] > 0).all()
    assert rec.noise_[3] == 0
    assert {each.column for each in rec.noise_report(frame)} == {"a", "b", "c", "year"}


def test_what_cannot_be_held_out_is_said():
    with pytest.raises(InvalidData, match="nothing to hide"):
        held_out(quick().parameters(), np.array([[1.0, np.nan], [np.nan, 2.0]]))


def test_images_are_held_out_pixel_by_pixel():
    images = np.random.default_rng(0).normal(size=(30, 3, 2))
    cells = held_out(quick().parameters(), images)
    assert np.array_equal(cells.values, images.reshape(30, 6)[cells.rows, cells.columns])


def test_surprises_are_told_in_values_of_their_columns():
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    day = np.datetime64("2024-01-01", "D") + np.round(30 * a).astype(int)
    frame = pd.DataFrame(
        {"a": a, "day": day.astype("datetime64[us]"), "town": rng.permutation(["ash", "mid", "zoo", "ash", "zoo"] * 40)}
    )
    frame.loc[5, "day"] = pd.Timestamp("2030-06-01")
    found = quick(max_steps=100, n_members=1).fit(frame).outliers(frame, most=600)
    days = [each for each in found if each.column == "day"]
    assert days[0].value == datetime.date(2030, 6, 1)
    assert all(type(each.low) is datetime.date and each.low <= each.expected <= each.high for each in days)
    towns = [each for each in found if each.column == "town"]
    assert {(each.low, each.high) for each in towns} == {(None, None)}
    assert sum(each.expected == "mid" for each in towns) < 20  # the middle of the alphabet, half as likely as the others
