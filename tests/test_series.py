"""Tables of series in, the same tables out: order, keys, joins, new rows, noise, the model file."""

import json
import re
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from unfade import Recoverer
from unfade.corruption.noise import GaussianNoise
from unfade.data.observations import Observations
from unfade.data.timeline import Clock, Timeline
from unfade.diagnostics.checks import diagnose
from unfade.diagnostics.comparison import compare_cells
from unfade.errors import DataNotice, InvalidData
from unfade.inference.held_out import HeldOut
from unfade.methods.series import hold_out_blocks
from unfade.models import series as series_module
from unfade.models.series import in_windows
from unfade.models.state_space import StateSpace
from unfade.training.checkpoints import Checkpoint
from unfade.training.loop import Ended


def sensors(count=400, seed=0, noise=0.0):
    """Two sensors that share a slow signal with a daily cycle, hourly, one gap of 12 hours, a fifth of cells missing."""
    rng = np.random.default_rng(seed)
    slow, own = (np.zeros((count, size)) for size in (1, 2))
    for t in range(1, count):
        slow[t] = 0.95 * slow[t - 1] + 0.3 * rng.normal(size=1)
        own[t] = 0.8 * own[t - 1] + 0.2 * rng.normal(size=2)
    hours = np.arange(count)
    clean = slow * [1.0, -0.8] + own + np.sin(2 * np.pi * hours / 24)[:, None] + [20.0, 50.0]
    given = np.where(rng.random(clean.shape) < 0.2, np.nan, clean + noise * rng.normal(size=clean.shape))
    given[100:112] = np.nan
    when = pd.date_range("2024-03-01", periods=count, freq="h")
    return pd.DataFrame({"when": when, "a": given[:, 0], "b": given[:, 1]}), clean


@pytest.fixture(scope="module")
def fitted():
    table, clean = sensors()
    return Recoverer(time="when", random_state=0, verbose=0).fit(table), table, clean


def test_the_same_table_comes_back_and_gaps_are_better_than_interpolation(fitted):
    rec, table, clean = fitted
    shuffled = table.sample(frac=1.0, random_state=0)
    back = rec.transform(shuffled)
    assert list(back.columns) == list(table.columns)
    assert (back.index == shuffled.index).all()
    assert (back["when"] == shuffled["when"]).all()
    gone = table[["a", "b"]].isna().to_numpy()
    found = back.sort_index()[["a", "b"]].to_numpy()
    assert (found[~gone] == table[["a", "b"]].to_numpy()[~gone]).all()
    straight = table[["a", "b"]].interpolate(limit_direction="both").to_numpy()
    assert np.abs(found - clean)[gone].mean() < 0.8 * np.abs(straight - clean)[gone].mean()


def test_interpolation_is_among_the_methods_compared_with(fitted):
    rec, table, _ = fitted
    found = rec.compare(table)
    assert found.scores["unfade"] < found.scores["linear interpolation"] < found.scores["column marginals"]
    assert "seasonal interpolation" in found.scores
    assert "seasonal interpolation" in diagnose(rec.model_, table).simple.scores


def test_interpolation_is_that_of_numpy():
    times = np.array([3.0, 0.0, 1.0, 2.0, 0.0, 1.0])
    seen = np.array([[6.0], [0.0], [np.nan], [np.nan], [5.0], [np.nan]])
    timeline = Timeline(times, np.array([0, 0, 0, 0, 1, 1]), Clock("t", ("p",), 1.0))
    cells = HeldOut(np.array([2, 3, 5]), np.zeros(3, int), np.array([2.0, 4.0, 5.5]), np.zeros((4, 3)), seen, None)
    scores = compare_cells(cells, timeline=timeline).scores
    assert scores["linear interpolation"] == pytest.approx(0.5 / 3 / np.nanstd(seen))


def test_the_report_shows_a_stretch_that_needs_no_network(fitted, tmp_path):
    rec, table, _ = fitted
    rec.report(tmp_path / "report.html", table)
    page = (tmp_path / "report.html").read_text()
    assert re.findall(r'(?:src|href)="(?!data:)|url\((?!#)|https?://(?!www.w3.org)', page) == []
    held = json.loads(re.search(r"d = (\{.*?\}), box = ", page)[1])
    assert [column["name"] for column in held["columns"]] == ["a", "b"]
    assert len(held["times"]) == 400
    a, gone = held["columns"][0], table["a"].isna().to_numpy()
    assert [value is None for value in a["given"]] == gone.tolist()
    assert all(low <= high for low, high in zip(a["low"], a["high"], strict=True))
    assert np.allclose(np.array(a["mean"])[~gone], table["a"][~gone], rtol=1e-4)


def test_draws_depend_on_the_row_not_on_the_order(fitted):
    rec, table, _ = fitted
    order = np.random.default_rng(1).permutation(len(table))
    plain = rec.sample(table, 5).values[:, order, 1:]
    assert np.array_equal(rec.sample(table.iloc[order], 5, row_ids=order).values[..., 1:], plain)
    assert np.array_equal(rec.sample(table, 3).values[:, order, 1:], plain[:3])


def test_a_gap_is_drawn_as_one(fitted):
    """Next hours of one draw differ less than two draws of one hour do, in the middle of the gap."""
    rec, table, _ = fitted
    draws = rec.sample(table, 200).values[:, :, 1].astype(float)
    middle = draws[:, 104:108]
    assert np.diff(middle - middle.mean(0), axis=1).std() < 0.8 * middle.std(0).mean() * 2**0.5


def test_coverage_of_missing_cells_is_nominal():
    table, clean = sensors(count=2000)
    draws = Recoverer(time="when", random_state=0, verbose=0).fit(table).sample(table, 100).values[..., 1:].astype(float)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    gone = table[["a", "b"]].isna().to_numpy()
    assert ((low <= clean) & (clean <= high))[gone].mean() == pytest.approx(0.9 * 99 / 101, abs=0.04)


def test_new_rows_need_no_fit_and_a_panel_keeps_series_apart(fitted):
    rec, _, _ = fitted
    new, _ = sensors(count=60, seed=5)
    new["when"] += pd.Timedelta(days=30)
    assert not rec.transform(new).isna().any().any()
    both = pd.concat([new.assign(site="n"), new.assign(site="s", a=new["a"] + 5)])
    panel = Recoverer(time="when", panel="site", random_state=0, verbose=0).fit(both)
    found = panel.transform(both)
    assert (found["site"] == both["site"]).all()
    alone = panel.transform(both.iloc[:60])
    assert np.allclose(found["b"].to_numpy()[:60], alone["b"].to_numpy())


def test_a_model_file_gives_equal_draws(fitted, tmp_path):
    rec, table, _ = fitted
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert np.array_equal(again.sample(table, 3).values[..., 1:], rec.sample(table, 3).values[..., 1:])


def test_noise_is_learned_per_sensor():
    table, clean = sensors(count=3000, noise=0.3)
    rec = Recoverer(time="when", noise="learn", random_state=0, verbose=0).fit(table)
    assert np.asarray(rec.noise_)[1:] == pytest.approx([0.3, 0.3], rel=0.1)
    given, found = (each[["a", "b"]].to_numpy() for each in (table, rec.transform(table)))
    seen = ~np.isnan(given)
    assert np.abs(found - clean)[seen].mean() < 0.75 * np.abs(given - clean)[seen].mean()


def test_windows_of_a_long_series_join_as_one(monkeypatch):
    lags = torch.tensor([[[0.9, 0.0], [0.1, 0.8]]])
    model = StateSpace(GaussianNoise(torch.tensor([0.1, 0.0])), lags, 0.4 * torch.eye(2), torch.zeros(1, 2))
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(3, 1, 700, 2, generator=generator).double()
    seen = torch.rand(1, 700, 2, generator=generator) < 0.5
    seen[:, 300:380] = False
    whole = model.smoothed(y, model.gains(seen))
    monkeypatch.setattr(series_module, "CORE", 64)
    assert torch.allclose(in_windows(model.smoothed, model, y * seen, seen), whole, atol=1e-5)


def test_held_out_cells_lie_in_blocks_as_gaps_do():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2000, 3))
    for start in range(50, 1900, 100):
        values[start : start + 20, :2] = np.nan
    table = pd.DataFrame(values, columns=list("abc")).assign(t=np.arange(2000.0))
    rec = Recoverer(time="t", verbose=0)
    data = rec.parameters().read(table)
    obs = Observations(data.obs.values[:, :3].float(), data.obs.observed[:, :3])
    split = hold_out_blocks(obs, data.timeline, 0, GaussianNoise(0.0))
    held = (obs.observed & ~split.seen.observed).numpy()
    assert not held[:, 2].any()
    assert (held[:, 0] & held[:, 1]).sum() > 0.7 * held[:, :2].any(1).sum()
    runs = np.diff(np.flatnonzero(np.diff(np.r_[0, held[:, 0].astype(int), 0])))[::2]
    assert np.median(runs) == 20


def test_ctrl_c_keeps_the_best_model_so_far():
    table, _ = sensors(count=200)

    def stop_at(step):
        def on_step(progress):
            assert 0 < progress.step <= progress.steps
            if progress.step == step:
                raise KeyboardInterrupt

        return on_step

    for step, fits in ((1, 1), (45, 2), (75, 3)):  # in the first trial, the second, the last fit
        rec = Recoverer(time="when", random_state=0, verbose=0)
        with pytest.warns(DataNotice, match="interrupted"):
            rec.fit(table, on_step=stop_at(step))
        assert rec.interrupted_
        assert len(rec.model_.histories) == fits
        assert not rec.transform(table).isna().any().any()


def test_a_fit_ends_by_its_time():
    table, _ = sensors(count=4000)
    seconds = []
    for most in (60, 0.1):
        started = time.process_time()
        rec = Recoverer(time="when", max_seconds=most, random_state=0, verbose=0).fit(table)
        seconds.append(time.process_time() - started)
    assert seconds[1] < 0.6 * seconds[0]
    assert any(history.ended is Ended.OUT_OF_TIME for history in rec.model_.histories)
    assert not rec.transform(table).isna().any().any()


def test_draws_of_rows_that_vary_more_than_those_of_the_fit_are_wider():
    """Single steps are too few to say so in short series: all series that are given do, together."""
    tables = []
    for number in range(40):
        new, _ = sensors(count=12, seed=number)
        near = new.assign(number=number, a=new["a"].where(np.arange(12) % 4 > 0))
        tables.append((near, near.assign(a=20 + 3 * (near["a"] - 20), b=50 + 3 * (near["b"] - 50))))
    panel = Recoverer(time="when", panel="number", random_state=0, verbose=0)
    near, far = (pd.concat(each, ignore_index=True) for each in zip(*tables, strict=True))
    panel.fit(near)
    gone = near["a"].isna().to_numpy()
    sd = [panel.sample(each, 50).values[..., 1].astype(float).std(0)[gone].mean() for each in (near, far)]
    assert sd[1] > 2 * sd[0]


def test_options_that_do_not_go_with_time_are_refused():
    table, _ = sensors(count=60)
    with pytest.raises(InvalidData, match="panel needs time"):
        Recoverer(panel="site").fit(table)
    with pytest.raises(InvalidData, match="named columns"):
        Recoverer(time="when").fit(np.zeros((5, 2)))
    with pytest.raises(InvalidData, match="default method"):
        Recoverer(time="when", method="miwae").fit(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "learn-by-value"}, "one noise level per column"),
        ({"detection_limits": {"level": ("<", 0.5)}}, "does not take detection limits"),
        ({"max_steps": 5}, "max_steps has no effect"),
        ({"n_members": 3}, "n_members has no effect"),
        ({"n_candidates": 50}, "n_candidates has no effect"),
    ],
)
def test_what_has_no_meaning_along_time_is_refused(options, message):
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=40, freq="h"), "level": np.arange(40.0)})
    with pytest.raises(InvalidData, match=message):
        Recoverer(time="when", verbose=0, **options).fit(table)


def test_checkpoints_of_series_are_refused(tmp_path):
    table, _ = sensors(count=60)
    with pytest.raises(InvalidData, match="no checkpoints"):
        Recoverer(time="when", verbose=0).fit(table, checkpoint=Checkpoint(tmp_path))


def test_censored_cells_along_time_are_refused():
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=40, freq="h"), "level": ["<0.2", "0.5"] * 20})
    with pytest.raises(InvalidData, match="censored values"):
        Recoverer(time="when", verbose=0).fit(table.assign(level=["<0.2", *[f"{0.3 + i / 100}" for i in range(39)]]))


def test_draws_outside_of_the_fit_are_narrowed_half_way(fitted):
    rec, table, _ = fitted
    narrow = replace(rec.model_, calibration=torch.full_like(rec.model_.calibration, 0.25))
    plain = replace(rec.model_, calibration=torch.ones_like(rec.model_.calibration))
    later = table.assign(when=table["when"] + pd.Timedelta(days=364))
    gone = table["a"].isna().to_numpy()
    for given, expected in ((table, 0.25), (later, 0.5)):
        one, other = (model.sample(given, 8).values[..., 1].astype(float).std(0)[gone] for model in (narrow, plain))
        assert np.median(one / other) == pytest.approx(expected, abs=1e-3)
