"""The boards under benchmarks/: what is stored, scored and written."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from unfade.diagnostics.evaluation import evaluate

FOLDER = Path(__file__).parents[1] / "benchmarks"
BOARDS = sorted(
    file.stem for file in FOLDER.glob("*.py") if "\ndef main(arguments: list[str] | None = None)" in file.read_text()
)


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Import modules of benchmarks/, whose store is a folder of the test; forget them after it."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    monkeypatch.setattr(importlib.import_module("store"), "RESULTS", tmp_path)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def test_a_result_is_run_once_and_a_failure_is_a_result(load, tmp_path):
    store = load("store")
    cell, runs = store.Cell("board", "table", "MCAR", 0, "a method"), []
    for _ in range(2):
        result = store.once(cell, lambda: runs.append(1) or {"score": 0.5})
    assert len(runs) == 1
    assert result["score"] == 0.5
    assert {"table", "seed", "method", "command", "versions", "cpu_seconds", "memory"} <= set(result)
    broken = store.once(cell._replace(method="broken"), lambda: 1 / 0)
    assert "ZeroDivisionError" in broken["failed"]
    assert store.found(cell._replace(seed=1)) == {}
    assert sorted(file.name for file in tmp_path.rglob("*.*")) == ["a method.json", "broken.json"]


def test_scores_are_those_of_the_package_but_for_ties(load):
    scores = load("scores")
    rng = np.random.default_rng(0)
    truth, draws = rng.normal(size=(200, 3)), rng.normal(size=(20, 200, 3))
    truth[:, 1:], draws[..., 1:] = 1.0, 1.0  # nothing but ties
    observed = rng.random(truth.shape) < 0.5
    found = scores.score(truth, observed, draws, np.array([1.0, 2.0, 1.0]))
    for cells in ("missing", "observed"):
        same = evaluate(draws, truth, observed, cells=cells, unit=np.array([1.0, 2.0, 1.0]))
        assert found[f"{cells}: CRPS"] == pytest.approx(same.crps)
        assert found[f"{cells}: energy score"] == pytest.approx(same.energy_score)
        assert found[f"{cells}: RMSE"] == pytest.approx(same.rmse)
        assert same.coverage > found["nominal coverage"] + 0.05  # each tie counts as inside
        assert abs(found[f"{cells}: coverage"] - found["nominal coverage"]) < 0.05
    assert scores.column_units(truth * [1.0, 3.0, 0.0], observed) == pytest.approx(
        [truth[observed[:, 0], 0].std(), 0.0, 0.0]
    )


def test_categories_are_scored_by_the_share_of_draws(load):
    frame = pd.DataFrame({"c": np.array(["a", "b", "a"], dtype=object)})
    given = pd.DataFrame({"c": np.array([None, "b", "a"], dtype=object)})
    draws = pd.concat([pd.DataFrame({"c": [c, "b", "a"]}) for c in "aab"])
    found = load("scores").score_categories(frame, given, draws)
    chance = 2.5 / 4  # two of three draws, a half added to each of two categories
    assert found["missing: log score"] == pytest.approx(-np.log(chance))
    assert found["missing: Brier score"] == pytest.approx(2 * (1 - chance) ** 2)


def test_a_failed_method_is_last_and_one_that_was_not_run_has_no_rank(load):
    report = load("report")
    cases = [[{"s": 2.0}, {"s": 1.0}, {"failed": "it did"}, {}], [{"s": 1.0}, {"s": 2.0}, {"failed": ""}, {}]]
    assert report.mean_ranks(cases, "s")[:3].tolist() == [1.5, 1.5, 3.0]
    assert np.isnan(report.mean_ranks(cases, "s")[3])
    assert report.mean_line("s", cases)[1:] == ["1.5", "1.5", "", ""]
    assert report.mean_line("s", [[{"s": 1.0}], [{"s": 100.0}], [{}]], geometric=True) == ["geometric mean s", "10 (of 2)"]
    seeds = [{"missing: CRPS": 0.2, "missing: coverage": 0.8}, {"missing: CRPS": 0.3, "missing: coverage": 0.9}, {}]
    assert report.entry(seeds, "missing: CRPS", "missing: coverage") == "0.250 ± 0.050 (0.85), 2 of 3 seeds"
    assert report.entry([{"failed": "TooSlow: mice was stopped"}], "s") == "stopped"
    assert report.entry([{"failed": "ValueError"}, {"s": 1.0}], "s") == "failed"


def test_a_setting_is_written_from_the_store(load):
    store, report = load("store"), load("report")
    for seed, crps in ((0, 0.2), (1, 0.4)):
        store.keep(store.Cell("b", "t", "MCAR", seed, "m"), {"missing: CRPS": crps, "cpu_seconds": 4.0, "memory": 9.0})
    text = report.setting_table("b", ["t"], "MCAR", 2, ["m", "n"], ["missing: CRPS"], [])
    assert "| t | 0.300 ± 0.100 |  |" in text
    assert "| mean rank, missing: CRPS | 1.0 |  |" in text
    assert "| geometric mean cpu_seconds | 4 |  |" in text


@pytest.mark.parametrize("setting", ["MCAR", "MAR", "noise"])
def test_cells_are_hidden_and_noise_is_added(load, setting):
    X = np.random.default_rng(0).normal(size=(2000, 6)) * [1, 2, 3, 4, 5, 6]
    Y, noise = load("datasets").corrupted(X, setting, 0)
    missing = np.isnan(Y)
    assert abs(missing.mean() - 0.3) < 0.02
    assert missing[:, :3].any() == (setting != "MAR")
    if setting == "noise":
        assert noise == pytest.approx(0.3 * X.std(0))
        assert np.nanstd(Y - X, 0) == pytest.approx(noise, rel=0.1)
    else:
        assert noise is None
        assert np.array_equal(Y[~missing], X[~missing])


def test_column_draws_are_observed_values_of_the_column(load):
    Y = np.array([[1.0, np.nan], [np.nan, 5.0], [3.0, 5.0]])
    made = load("methods").complete("column draws", Y, 0, draws=50)["draws"]
    assert made.shape == (50, 3, 2)
    assert set(made[:, 1, 0]) == {1.0, 3.0}
    assert set(made[:, 0, 1]) == {5.0}
    assert (made[:, 2] == Y[2]).all()


def test_results_are_stored_compactly(load, tmp_path):
    store = load("store")
    store.keep(
        store.Cell("b", "t", "MCAR", 0, "m"),
        {"missing: CRPS": 0.123456789, "cpu_seconds": 4.0, "stages": ["long"], "low": [1 / 3]},
    )
    store.keep(store.Cell("b", "t", "MCAR", 1, "m"), {"failed": "it did"})
    store.main(["b", "-o", str(tmp_path / "b.json")])
    kept = json.loads((tmp_path / "b.json").read_text())
    assert kept == {
        "t/MCAR/0/m": {"missing: CRPS": 0.12346, "cpu_seconds": 4.0, "low": [0.33333]},
        "t/MCAR/1/m": {"failed": "it did"},
    }


@pytest.mark.parametrize("board", BOARDS)
def test_boards_say_what_they_measure(load, board, capsys):
    with pytest.raises(SystemExit) as ended:
        load(board).main(["--help"])
    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_the_metrics_of_forest_diffusion_by_hand(load):
    board = load("forest_diffusion")
    truth = np.array([[0.0, 0.0, 0.0], [10.0, 4.0, 1.0], [5.0, 2.0, 2.0]])
    missing = np.array([[True, True, False], [False, True, False], [False, False, False]])
    draws = np.stack([truth, truth])
    draws[0, 0, :2], draws[1, 0, :2] = (10.0, 0.0), (0.0, 2.0)  # a whole range off; half of one
    draws[0, 1, 1], draws[1, 1, 1] = 3.0, 4.0
    found = board.score(truth, missing, draws, classes=True)
    assert found["MinMAE"] == pytest.approx((0.5 + 0.0) / 3)  # each row's best draw
    assert found["AvgMAE"] == pytest.approx((1.25 + 0.5) / 2 / 3)
    assert found["W"] == pytest.approx((1.25 / 3 + 0.5 / 3) / 2)
    other = board.scaled(truth[:1] * 0 + [0, 0, 1], truth, classes=True)
    assert np.abs(other - board.scaled(truth[:1], truth, classes=True)).sum() == 1  # another class is one range off


def test_the_protocol_of_forest_diffusion(load):
    board = load("forest_diffusion")
    truth, missing = board.corrupted("iris", None, 1)
    assert truth.shape == missing.shape == (120, 5)
    assert not missing[:, -1].any()
    assert np.unique(truth[:, -1], return_counts=True)[1].tolist() == [40, 40, 40]
    torch.manual_seed(1)
    assert (missing[:, :-1] == (torch.rand(120, 4, dtype=torch.float64) < 0.2).numpy()).all()
    made = board.result(None, load("store").Cell("forest_diffusion", "iris", "MCAR 20%", 1, "column draws"))
    assert 0.05 < made["MinMAE"] < made["AvgMAE"] < 0.4
    with pytest.raises(FileNotFoundError, match=r"concrete\.csv\.gz"):
        board.load("concrete", None)


def test_the_protocol_of_diffputer(load, tmp_path, capsys):
    board = load("diffputer")
    table = np.random.default_rng(0).normal(size=(3000, 11)) * 7 + 3
    truth, hidden = board.corrupted(table, 0)
    assert truth.shape == hidden.shape == (2100, 10)
    shares = hidden.mean(0)
    assert ((shares == 0) | (np.abs(shares - 0.3 / 0.7) < 0.04)).all()
    assert (shares == 0).sum() in (2, 3)  # three of eleven columns, of which the target may be one
    observed = np.where(hidden, np.nan, truth)
    assert np.nanmean(observed, 0) == pytest.approx(np.zeros(10), abs=1e-12)
    assert np.nanstd(observed, 0) == pytest.approx(np.ones(10))
    made = board.result(table, load("store").Cell("diffputer", "bean", "MAR 30%", 0, "column draws"))
    assert 0.7 < made["MAE"] < 1.0 < made["RMSE"] < 1.2
    board.main(["--data-dir", str(tmp_path), "--tables", "bean", "--methods", "column draws"])
    assert "bean is left out" in capsys.readouterr().err


def test_pooled_intervals_are_those_of_the_regressions(load):
    board = load("pooling")
    table = board.population(0)
    sure = board.pooled(table[None])
    X = np.column_stack([np.ones(len(table)), table[:, :-1]])
    assert sure["estimate"] == pytest.approx(np.linalg.lstsq(X, table[:, -1])[0])
    same = board.pooled(np.stack([table] * 5))  # nothing between the tables: nothing is added
    assert np.subtract(same["high"], same["low"]) == pytest.approx(np.subtract(sure["high"], sure["low"]), rel=0.01)
    holes = np.isnan(board.with_holes(table, 0))
    assert not holes[:, -1].any()
    assert abs(holes[:, :-1].mean() - 0.3) < 0.03
    inside, outside = ({**sure, "low": board.COEFFICIENTS - w, "high": board.COEFFICIENTS + 1.0} for w in (1.0, -0.5))
    assert board.row("m", [inside, inside])[2].startswith("100.0%")
    assert board.row("m", [outside, outside])[2].startswith("0.0%")


def test_ways_to_draw_from_one_model_are_trained_once(load):
    report = load("images_report")
    assert report.trained("MIWAE") == report.trained("MIWAE, conditioned, resampled") != report.trained("MIWAE, stopped")
    assert report.trained("unfade") == report.trained("unfade, resampled") != report.trained(report.BOUND)


def test_the_papers_posteriors_fill_in_tables(load):
    methods = load("methods")
    Y = np.random.default_rng(0).normal(size=(60, 3))
    Y[::4, 1] = np.nan
    for name in methods.PAPERS:
        made = methods._ours(Y, 0, 3, None, {**methods.PAPERS[name], "max_steps": 2})
        assert np.shape(made["draws"]) == (3, *Y.shape)
        assert np.isfinite(made["draws"]).all()
