"""Missing cells outside the support of the observed ones: found, filled from its edge, named."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

from unfade import DataNotice, Recoverer
from unfade.data.columns import Column
from unfade.data.observations import as_observations
from unfade.data.support_gaps import SupportGap, describe_gaps, find_gaps


def puberty(rows=400, seed=0):
    """A measure that is 2 at the age of 8 and 20 at that of 18, and never taken under the age of 8."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 18, rows)
    stage = np.clip(2 + 1.8 * (age - 8), 1, None) + rng.normal(0, 0.3, rows)
    frame = pd.DataFrame({"age": age, "height": 60 + 6 * age + rng.normal(0, 4, rows), "stage": stage})
    frame.loc[(age < 8) | (rng.random(rows) < 0.3), "stage"] = np.nan
    return frame


@pytest.fixture(scope="module")
def fitted():
    frame = puberty()
    with pytest.warns(DataNotice, match="'stage' was never observed where 'age' is below 8"):
        rec = Recoverer(max_steps=30, n_candidates=5, n_members=1, random_state=0, verbose=0).fit(frame)
    return frame, rec


def test_infants_get_the_values_of_the_youngest_that_were_measured(fitted):
    frame, rec = fitted
    infants = (frame["age"] < 6).to_numpy()
    draws = rec.sample(frame, 40).values[:, infants, 2]
    assert np.quantile(draws, 0.95) < 5  # the network alone, after so few steps, would draw from all ages
    assert 1 < rec.transform(frame)["stage"][infants].mean() < 4
    donors = frame["stage"][frame["stage"].notna()].to_numpy()
    assert np.isin(draws, donors).all()


def test_draws_outside_the_support_hang_on_the_row_alone(fitted, tmp_path):
    frame, rec = fitted
    rows = np.arange(0, 400, 7)
    part = rec.sample(frame.iloc[rows], 20, row_ids=rows).values
    assert np.array_equal(part, rec.sample(frame, 20).values[:, rows])
    rec.save(tmp_path / "m")
    assert np.array_equal(Recoverer.load(tmp_path / "m").sample(frame, 20).values, rec.sample(frame, 20).values)


def test_the_diagnosis_names_what_nothing_supports(fitted):
    frame, rec = fitted
    with pytest.warns(DataNotice, match="never observed"):  # of the fit that holds cells out
        found = rec.diagnose(frame)
    verdict = next(verdict for verdict in found.verdicts if verdict.what == "support")
    assert {check.column for check in found.columns} >= {"height", "stage"}
    assert verdict.level == "amber"
    assert "'stage'" in verdict.says
    assert "'age' is below 8" in verdict.says


@pytest.mark.parametrize("seed", range(5))
def test_cells_missing_at_random_are_within_the_support(seed):
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))
    clean[rng.random(clean.shape) < 0.3] = np.nan
    assert find_gaps(as_observations(clean), ()) == []


@pytest.mark.parametrize("seed", range(5))
def test_cells_missing_more_often_where_another_is_large_are_mostly_supported(seed):
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(500, 3))
    clean[rng.random(500) < 1 / (1 + np.exp(-2 * clean[:, 0])), 1] = np.nan
    assert find_gaps(as_observations(clean), ()) == []


def test_both_edges_are_found():
    values = torch.linspace(-3, 3, 301)[:, None].repeat(1, 2).numpy().copy()
    values[np.abs(values[:, 0]) > 1.5, 1] = np.nan
    low, high = find_gaps(as_observations(values), ())
    assert (low.sign, high.sign) == (-1, 1)
    assert (low.edge, high.edge) == pytest.approx((-1.5, 1.5), abs=0.02)
    assert low.cells == high.cells == 75


def test_the_edge_of_a_gap_is_written_in_digits():
    said = [describe_gaps([SupportGap(0, 1, 1, edge, 5, torch.zeros(1))], ())[0] for edge in (10901.0, 0.5, 3e13)]
    assert [line.split("above ")[1] for line in said] == [
        "10901 (5 missing cells)",
        "0.5 (5 missing cells)",
        "3e+13 (5 missing cells)",
    ]


def test_a_category_in_which_a_column_was_never_observed_is_named(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], 300), "age": rng.normal(size=300), "psa": rng.normal(size=300)})
    frame.loc[(frame["sex"] == "F") | (rng.random(300) < 0.2), "psa"] = np.nan
    with pytest.warns(DataNotice, match="'psa' was never observed where 'sex' is 'F'"):
        rec = Recoverer(max_steps=5, n_candidates=5, n_members=1, random_state=0, verbose=0).fit(frame)
    rec.save(tmp_path / "m")
    assert np.array_equal(Recoverer.load(tmp_path / "m").sample(frame, 3).values, rec.sample(frame, 3).values)
    frame["psa"] = rng.normal(size=300)
    frame.loc[rng.random(300) < 0.3, "psa"] = np.nan
    Recoverer(max_steps=5, n_candidates=5, n_members=1, random_state=0, verbose=0).fit(frame)  # without a warning


def test_wide_tables_are_searched_in_seconds():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, 40))
    values[:, 20:] = rng.integers(0, 20, (20_000, 20))
    values[rng.random(values.shape) < 0.1] = np.nan
    values[values[:, 30] == 3, 5] = np.nan
    values[values[:, 0] > 0.5, 6] = np.nan
    columns = [Column(str(k), "continuous" if k < 20 else "category") for k in range(40)]
    began = time.process_time()
    found = find_gaps(as_observations(values), columns)
    assert [(gap.column, gap.other, gap.sign) for gap in found] == [(5, 30, 0), (6, 0, 1)]
    assert time.process_time() - began < 3  # a tenth of it; minutes if each pair of columns is looked at by itself
