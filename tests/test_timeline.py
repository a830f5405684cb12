"""Rows as steps of series: order, step, gaps, seasons, and messages."""

import numpy as np
import pandas as pd
import pytest

from unfade.data.containers import open_container
from unfade.data.timeline import DAY, LONGEST_GAP, read_timeline
from unfade.errors import InvalidData


def timeline(frame, panel=(), clock=None):
    kinds = dict.fromkeys({"t", *panel} & set(frame.columns), "passthrough")
    return read_timeline(open_container(frame, kinds=kinds)[1], "t", panel, clock)


def table(times, **more):
    return pd.DataFrame({"t": times, **more, "x": np.arange(len(times), dtype=float)})


def test_rows_are_laid_in_order_of_time_with_gaps():
    found = timeline(table([40.0, 10.0, 20.0, 60.0]))
    assert found.clock.step == 10
    assert found.grid.rows.tolist() == [1, 2, -1, 0, -1, 3]
    assert found.grid.times.tolist() == [10, 20, 30, 40, 50, 60]


def test_series_are_told_apart_and_may_be_ragged():
    frame = table([2, 1, 1, 2, 3], p=["b", "b", "a", "a", "a"])
    assert timeline(frame, ("p",)).grid.rows.tolist() == [1, 0, 2, 3, 4]
    assert timeline(frame, ("p",)).grid.lengths.tolist() == [2, 3]


def test_a_long_gap_begins_a_new_series():
    times = [0, 1, 2, 3 + LONGEST_GAP, 4 + LONGEST_GAP]
    assert timeline(table(times)).grid.lengths.tolist() == [3, 2]


def test_irregular_times_keep_their_order_and_never_share_a_step():
    times = np.random.default_rng(0).exponential(1.0, 300).cumsum()
    grid = timeline(table(times)).grid
    assert grid.rows[grid.rows >= 0].tolist() == list(range(300))
    assert len(grid.rows) < 8 * 300


@pytest.mark.parametrize("as_text", [False, True])
def test_seasons_are_those_that_the_span_allows(as_text):
    def periods(count, frequency):
        times = pd.Series(pd.date_range("2024-01-01", periods=count, freq=frequency))
        return [
            period / DAY
            for period, _ in timeline(table(times.dt.strftime("%Y-%m-%d %H:%M") if as_text else times)).clock.periods
        ]

    assert periods(48, "h") == []
    assert periods(24 * 10, "h") == [1]
    assert periods(24 * 40, "h") == [1, 7]
    assert periods(800, "D") == [7, 365.25]
    assert periods(40, "MS") == [365.25]


def test_new_rows_have_the_step_of_the_fit():
    clock = timeline(table([0.0, 1.0, 2.0, 3.0])).clock
    assert timeline(table([0.0, 4.0]), clock=clock).grid.rows.tolist() == [0, -1, -1, -1, 1]


def test_text_dates_of_new_rows_are_read_as_at_fit():
    days = pd.Series(pd.date_range("2024-01-25", periods=40)).dt.strftime("%d/%m/%Y")
    clock = timeline(table(days)).clock
    new = timeline(table(["01/03/2024", "02/03/2024", "05/03/2024"]), clock=clock)  # alone: of January to May
    assert new.grid.rows.tolist() == [0, 1, -1, -1, 2]
    with pytest.raises(InvalidData, match="Expected dates, as at fit"):
        timeline(table([1.0, 2.0]), clock=clock)
    with pytest.raises(InvalidData, match="Expected dates in column"):
        timeline(table(["2024-13-01"]), clock=clock)


def test_repeated_times_of_new_rows_are_refused():
    clock = timeline(table([0.0, 1.0, 2.0])).clock
    with pytest.raises(InvalidData, match="one time to several rows"):
        timeline(table([4.0, 4.0]), clock=clock)


@pytest.mark.parametrize(("frequency", "months"), [("MS", 1), ("ME", 1), ("QE", 3), ("YS", 12)])
def test_steps_of_months_follow_the_calendar(frequency, months):
    times = pd.date_range("1990-01-01", periods=360, freq=frequency)
    kept = np.setdiff1d(np.arange(360), [17, 18, 200])
    found = timeline(table(times[kept]))
    assert found.clock.months == months
    assert np.flatnonzero(found.grid.rows == -1).tolist() == [17, 18, 200]
    far = pd.to_datetime(found.grid.times.numpy(), unit="us") - times
    assert np.abs(far.total_seconds()).max() < 5 * 86400
    assert timeline(table(times[300:310]), clock=found.clock).grid.rows.tolist() == list(range(10))


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S+00:00"])
def test_iso_times_as_text_are_times(form):
    times = pd.Series(pd.date_range("2024-01-01", periods=5, freq="h"))
    assert (timeline(table(times.dt.strftime(form))).times == timeline(table(times)).times).all()


@pytest.mark.parametrize(
    ("frame", "panel", "message"),
    [
        (table([1.0, None, 3.0]), (), "time of every row"),
        (table([1.0, 1.0, 2.0]), (), "panel="),
        (table(["a", "b", "c"]), (), "Expected dates, times or numbers"),
        (table([1.0, 2.0]), ("q",), "do not exist"),
        (table([1.0, 2.0], p=["a", "b"]), ("p",), "one row only"),
    ],
)
def test_what_has_no_order_is_refused_in_words(frame, panel, message):
    with pytest.raises(InvalidData, match=message):
        timeline(frame, panel)
