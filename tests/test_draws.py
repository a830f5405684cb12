import numpy as np
import pytest

from unfade import Draws, InvalidData


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
