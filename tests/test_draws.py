import re

import numpy as np
import pytest

from unfade import Draws, InvalidData, Recoverer


@pytest.fixture
def draws():
    return Draws(np.arange(24.0).reshape(4, 3, 2))


def test_summaries(draws):
    assert np.array_equal(draws.mean(), draws.values.mean(0))
    assert np.array_equal(draws.std(), draws.values.std(0, ddof=1))
    low, high = draws.interval(0.5)
    assert np.array_equal(low, np.quantile(draws.values, 0.25, 0))
    assert np.array_equal(high, draws.quantile(0.75))


def test_iterating_gives_completed_data_sets(draws):
    assert len(list(draws)) == len(draws) == 4
    assert np.array_equal(draws[2], draws.values[2])
    assert repr(draws) == "Draws(4 completed data sets of 3 x 2)"


def test_bad_levels_are_refused(draws):
    with pytest.raises(InvalidData, match="between 0 and 1"):
        draws.interval(1.5)
    with pytest.raises(InvalidData, match="between 0 and 1"):
        draws.quantile(-0.1)


def test_notebooks_show_draws_with_bands():
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"<a>": rng.normal(size=60), "b": rng.normal(size=60), "town": rng.choice(["Oslo", "Rome"], 60)})
    frame["b"] += frame["<a>"]
    holed = frame.mask(np.tile([[False, True, True], [False, False, False]], (30, 1)))
    rec = Recoverer(max_steps=20, random_state=0, verbose=0, n_members=1).fit(holed)
    draws = rec.sample(holed, 20)
    shown = draws._repr_html_()
    assert "<th>" not in shown.split("&lt;a&gt;")[0]
    assert "20 completed data sets of 60 rows and 3 columns, of which the first are shown." in shown
    low, high = (float(each["b"].iloc[0]) for each in (draws.quantile(0.05), draws.quantile(0.95)))
    ends = [float(end) for end in re.search(r"<b>(-?[\d.]+) to (-?[\d.]+)</b>", shown).groups()]
    assert np.allclose(ends, [low, high], atol=0.3)
    assert f"{frame['b'].iloc[1]:.4g}" in shown
    assert "%</b>" in shown
    assert Draws(np.zeros((2, 3, 4, 4)))._repr_html_() is None
    facts = rec._repr_html_()
    assert "2 continuous, 1 category" in facts
    assert "Recoverer" in facts
    assert "continuous" not in Recoverer()._repr_html_().split("<style")[0]
