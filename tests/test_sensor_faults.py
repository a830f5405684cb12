"""Stuck sensors and spikes are found, and what is no fault is left alone."""

import numpy as np
import pandas as pd
import pytest

from unfade import Recoverer
from unfade.data.sensor_faults import spikes, stuck
from unfade.errors import DataNotice


def walk(count=500, seed=0):
    return np.random.default_rng(seed).normal(size=count).cumsum()


def test_a_run_of_one_value_is_found():
    values = walk()
    values[200:220] = values[200]
    assert stuck(values) == (200, 20)
    assert stuck(walk()) is None


def test_repeats_that_are_frequent_are_no_fault():
    assert stuck(walk().round(-1)) is None
    assert stuck(np.random.default_rng(0).integers(0, 2, 500).astype(float)) is None


def test_spikes_are_found_and_jumps_are_not():
    values = walk()
    values[100] += 40
    assert spikes(values).tolist() == [100]
    values = walk()
    values[300:] += 40
    assert spikes(values).tolist() == []


def test_a_fit_warns_of_faults():
    values = walk(300)
    values[50], values[100:130] = values[50] + 60, values[100]
    table = pd.DataFrame({"t": np.arange(300), "x": values, "y": walk(300, seed=1)})
    with pytest.warns(DataNotice, match="'x' holds .* at 30 steps .* from row 100; 'x' has 1 spike, in row 50"):
        Recoverer(time="t", verbose=0).plan(table)
