"""Plots: axes in, the same axes out; patterns counted and ordered as R's md.pattern does."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from unfade import Draws, InvalidData, Recoverer, TrainingConfig
from unfade.diagnostics import plots

# mice::nhanes and what mice 3.15's md.pattern makes of it
NHANES = pd.DataFrame(
    {
        "age": [1, 2, 1, 3, 1, 3, 1, 1, 2, 2, 1, 2, 3, 2, 1, 1, 3, 2, 1, 3, 1, 1, 1, 3, 2],
        "bmi": [None, 22.7, None, None, 20.4, None, 22.5, 30.1, 22.0, None, None, None, 21.7, 28.7, 29.6, None, 27.2, 26.3,
                35.3, 25.5, None, 33.2, 27.5, 24.9, 27.4],
        "hyp": [None, 1, 1, None, 1, None, 1, 1, 1, None, None, None, 1, 2, 1, None, 2, 2, 1, 2, None, 1, 1, 1, 1],
        "chl": [None, 187, 187, None, 113, 184, 118, 187, 238, None, None, None, 206, 204, None, None, 284, 199, 218, None,
                None, 229, 131, None, 186],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(150, 1)) + 0.5 * rng.normal(size=(150, 3)), columns=list("abc"))
    data = data.mask(rng.random(data.shape) < 0.2)
    rec = Recoverer(random_state=0, verbose=0, n_members=1, training=TrainingConfig(steps=150)).fit(data)
    return rec, data, rec.sample(data, 5)


def axes():
    return Figure().subplots()


def test_patterns_are_those_of_rs_md_pattern():
    names, patterns, counts = plots.missing_patterns(NHANES)
    assert names == ["age", "hyp", "bmi", "chl"]
    assert counts.tolist() == [13, 3, 1, 1, 7]
    assert patterns.astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 0]]


def test_the_plot_of_patterns_shows_counts_and_order():
    ax = plots.pattern(NHANES, given := axes())
    assert ax is given
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["13", "3", "1", "1", "7"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["age", "hyp", "bmi", "chl"]
    assert [text.get_text() for text in ax.texts] == ["0", "1", "1", "2", "3", "0", "8", "9", "10"]
    assert ax.images[0].get_array().shape == (5, 4)


def test_the_matrix_shows_every_row():
    ax = plots.matrix(NHANES)
    assert np.array_equal(ax.images[0].get_array().astype(bool), NHANES.notna().to_numpy())


def test_upset_shows_the_sets_by_their_size():
    top, below = plots.upset(NHANES)
    assert [bar.get_height() for bar in top.patches] == [7, 3, 1, 1]
    assert [tick.get_text() for tick in below.get_yticklabels()] == ["hyp", "bmi", "chl"]


def test_strip_and_density_show_observed_and_drawn_values(fitted):
    _, data, draws = fitted
    ax = plots.strip(draws, "a", given := axes())
    assert ax is given
    assert len(ax.collections) == 6
    assert sorted(ax.collections[0].get_offsets()[:, 1]) == sorted(data["a"].dropna())
    assert len(ax.collections[1].get_offsets()) == data["a"].isna().sum()
    lines = plots.density(draws, "a").get_lines()
    assert len(lines) == 6
    for line in lines:
        x, y = line.get_data()
        assert (y * np.gradient(x)).sum() == pytest.approx(np.sqrt(2 * np.pi), rel=0.15)


def test_traces_and_calibration_are_those_of_the_fit(fitted):
    rec, _, _ = fitted
    assert plots.traces(rec).get_xlabel() == "step"
    ax = plots.calibration(rec, given := axes())
    assert ax is given
    nominal, found = ax.get_lines()[1].get_data()
    held = rec.held_out_.numbers()
    assert nominal[0] == pytest.approx(held.due(0.1))
    assert found[-1] == pytest.approx(held.covered(0.95).mean())


def test_what_cannot_be_plotted_is_said(fitted):
    _, data, draws = fitted
    with pytest.raises(InvalidData, match="no column 'z'"):
        plots.strip(draws, "z")
    with pytest.raises(InvalidData, match="which cells were observed"):
        plots.density(Draws(draws.values), 0)
    with pytest.raises(InvalidData, match="held out no cells"):
        plots.calibration(Recoverer(max_steps=5, n_members=1, random_state=0, verbose=0).fit(data))
    with pytest.raises(InvalidData, match="for tables"):
        plots.matrix(np.full((3, 4, 4), np.nan))
