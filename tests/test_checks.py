"""What is said without the truth: the alarm on posteriors known exactly, and each verdict where it is due."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from unfade import Recoverer, TrainingConfig
from unfade.data.columns import Column
from unfade.diagnostics.checks import _against_simple, _convergence
from unfade.diagnostics.comparison import Comparison
from unfade.diagnostics.coverage import check_columns, collapsed, relative_width, relative_width_beneath_noise
from unfade.diagnostics.missingness import missing_links
from unfade.inference.held_out import HeldOut
from unfade.models.kinds import shares
from unfade.training.loop import Ended, History


def cells(share=1.0, shift=0.0, count=600, columns=3, seed=0, noise=0.0):
    """Standard normal cells and draws of them with a share of the right spread."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=count)
    values = centre + rng.normal(size=count) + noise * rng.normal(size=count)
    draws = centre + shift + share * rng.normal(size=(60, count)) + noise * rng.normal(size=(60, count))
    where = np.arange(count)
    seen = rng.normal(size=(count, columns)) * np.sqrt(2)
    seen[where, where % columns] = np.nan
    return HeldOut(where, where % columns, values, draws, seen, None)


@pytest.mark.parametrize(("share", "fires"), [(1.0, False), (0.85, False), (0.5, True), (0.25, True), (0.0, True)])
def test_the_alarm_fires_on_collapsed_draws_alone(share, fires):
    assert [collapsed(cells(share, seed=seed)) for seed in range(5)] == [fires] * 5


def test_a_lost_mode_is_a_collapse():
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, 1.0], 300) + 0.1 * rng.normal(size=300)
    whole = rng.choice([-1.0, 1.0], (60, 300)) + 0.1 * rng.normal(size=(60, 300))
    made = [HeldOut(np.arange(300), np.zeros(300, int), values, d, values[:, None], None) for d in (whole, abs(whole))]
    assert [collapsed(each) for each in made] == [False, True]


def test_noise_does_not_hide_a_collapse():
    """Of noise twice as large as what there is to know, draws of single guesses look wide enough."""
    guesses, right = cells(share=0.0, noise=2.0, count=3000), cells(share=1.0, noise=2.0, count=3000)
    assert relative_width(guesses) > 0.85
    assert collapsed(guesses, noise=2.0)
    assert not collapsed(right, noise=2.0)
    assert relative_width_beneath_noise(right, 2.0)[0] == pytest.approx(1, abs=0.2)


def test_relative_width_is_one_where_draws_are_right():
    assert relative_width(cells(count=5000)) == pytest.approx(1, abs=0.03)
    assert relative_width(cells(0.5, count=5000)) == pytest.approx(0.59, abs=0.03)


def test_places_are_uniform_and_coverage_is_due():
    made = cells(count=5000)
    assert np.histogram(made.places(), 10, (0, 1))[0] / 5000 == pytest.approx(0.1, abs=0.02)
    assert made.covered().mean() == pytest.approx(made.due(), abs=0.015)


def test_draws_that_were_widened_do_not_hide_a_collapse():
    """Widened draws look right; what they were before says that they are guesses."""
    guesses = cells(share=0.05)
    assert collapsed(replace(cells(), plain=guesses.draws).as_drawn())
    assert not collapsed(replace(cells(), plain=guesses.draws))


def test_columns_that_are_off_are_found():
    made = cells(count=900)
    made.draws[:, made.columns == 1] = made.draws[:, made.columns == 1].mean(0) * np.ones((60, 1))
    assert [check.finding for check in check_columns(made)] == ["within tolerance", "too narrow", "within tolerance"]


@pytest.mark.parametrize(("score", "how"), [(0.5, "50% better than"), (1.001, "as well as"), (1.1, "10% worse than")])
def test_predictions_are_compared_in_words(score, how):
    verdict = _against_simple(Comparison({"unfade": score, "column means": 1.0}, {"column means": 0.01}, 100))
    assert f"are predicted {how} by column means" in verdict.says


def test_missingness_that_follows_another_column_is_found():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(800, 3))
    table[table[:, 0] + rng.normal(size=800) > 0.8, 1] = np.nan
    table[rng.random(800) < 0.3, 2] = np.nan
    made = HeldOut(np.array([0]), np.array([0]), table[:1, 0], table[:1, :1], table, None)
    links = missing_links(made)
    assert [(link.column, link.other) for link in links] == [("column 1", "column 0")]
    assert links[0].shift > 0.5


def test_missingness_that_follows_a_category_is_found():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 2, 400), rng.normal(size=(400, 2))])
    table[table[:, 0] == 0, 2] = np.nan  # measured in men alone
    kinds = (Column("sex", "category", ("F", "M")), Column("x", "continuous"), Column("psa", "continuous"))
    (link,) = missing_links(HeldOut(np.array([0]), np.array([1]), table[:1, 1], table[:1, :1], table, kinds))
    assert (link.column, link.where) == ("psa", "'sex' is 'F'")
    assert link.shift > 1


@pytest.mark.parametrize(
    ("history", "level"),
    [
        (History([100] * 30, {"value": list(np.linspace(0, 1, 30))}, ended=Ended.ALL_STEPS), "amber"),
        (History([1500] * 30, {"value": list(1 - np.exp(-np.arange(30.0)))}, ended=Ended.ALL_STEPS), "green"),
        (History([20], {"value": [1.0]}, ended=Ended.ALL_STEPS), "amber"),
        (History([100] * 30, {"value": [1.0] * 30}, ended=Ended.OUT_OF_TIME), "amber"),
    ],
)
def test_training_that_was_too_short_is_said(history, level):
    assert _convergence([history]).level == level


def test_what_ended_training_is_said():
    found = _convergence([History([900] * 30, {"value": list(range(30))}, ended=Ended.EARLY)])
    assert found.level == "green"
    assert "early stopping" in found.says
    stopped = _convergence([History([900] * 30, {"value": list(range(30))}, ended=Ended.STOPPED, planned=5000)])
    assert stopped.level == "amber"  # whoever stops a fit is not told that it converged
    assert "stopped after 900 of 5000 steps" in stopped.says


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    z = rng.normal(size=300)
    frame = pd.DataFrame(
        {"a": z + 0.3 * rng.normal(size=300), "b": -z + 0.3 * rng.normal(size=300), "c": rng.normal(size=300)}
    )
    frame["side"] = np.select([z > 0.5, z < -0.5], ["left", "right"], "middle")
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    return Recoverer(training=TrainingConfig(steps=300, batch_size=64), random_state=0, verbose=0).fit(frame), frame


def test_a_diagnosis_speaks_of_everything(fitted):
    rec, frame = fitted
    found = rec.diagnose(frame)
    kinds = shares(rec.posterior_)
    stack = {"models"} if len(kinds) > 1 else set()
    assert {verdict.what for verdict in found.verdicts} == stack | {
        "90 % intervals", "width of draws", "coverage per column", "simple methods", "training",
        "missingness", "held-out cells", "latent variables",
    }  # fmt: skip
    for kind, share in kinds.items():
        assert not stack or f"{round(16 * share)}" in str(found)
        assert kind in str(rec)
    assert found.level in ("green", "amber")
    assert [v.level for v in found.verdicts] == sorted(
        (v.level for v in found.verdicts), key=("red", "amber", "green").index
    )
    assert len(found.columns) == 3
    assert str(found).splitlines() == [found.summary, *map(str, found.verdicts)]


def test_a_model_from_a_file_is_diagnosed_by_fitting_once_more(fitted, tmp_path):
    rec, frame = fitted
    rec.save(tmp_path / "m.unfade")
    loaded = Recoverer.load(tmp_path / "m.unfade")
    assert loaded.held_out_ is None
    assert 0.1 * frame.notna().sum().sum() == pytest.approx(len(loaded.diagnose(frame).cells), rel=0.3)


def test_a_column_whose_cells_were_all_hidden_says_nothing():
    table = np.random.default_rng(0).normal(size=(50, 2))
    table[:, 1] = np.nan
    held = HeldOut(np.array([0, 1]), np.array([0, 1]), np.zeros(2), np.zeros((20, 2)), table, None)
    assert held.judged().columns.tolist() == [0]


def test_held_out_cells_are_the_users_own(fitted):
    rec, frame = fitted
    held, numbers = rec.held_out_, frame[["a", "b", "c"]].to_numpy()
    where = held.columns < 3
    assert np.allclose(numbers[held.rows[where], held.columns[where]], held.values[where], rtol=1e-6)
    assert np.isnan(held.seen[held.rows, held.columns]).all()
    assert set(np.unique(held.draws[:, held.columns == 3])) <= {0.0, 1.0, 2.0}


def test_recalibration_widens_draws_and_nothing_else(fitted):
    rec, frame = fitted
    kept = rec.calibration_scale_
    draws = []
    for calibration in (None, torch.full_like(kept, 1.5)):
        draws.append(replace(rec.model_, calibration=calibration).sample(frame, 400).values)
    a, plain, wide = frame["a"].isna().to_numpy(), *draws
    assert wide[:, a, 0].std(0) / plain[:, a, 0].std(0) == pytest.approx(1.5, rel=0.01)
    assert np.abs(wide[:, a, 0].mean(0) - plain[:, a, 0].mean(0)).max() < 0.4 * plain[:, a, 0].std(0).max()
    assert np.array_equal(wide[:, ~a, 0], plain[:, ~a, 0])
    assert kept[3:].eq(1).all()  # the category


def test_no_draw_leaves_its_detection_limit():
    rng = np.random.default_rng(0)
    lead = np.exp(rng.normal(size=200))
    frame = pd.DataFrame({"lead": lead, "other": np.log(lead) + 0.3 * rng.normal(size=200)})
    rec = Recoverer(detection_limits={"lead": ("<", 0.6)}, max_steps=50, random_state=0, verbose=0).fit(frame)
    below, model = lead <= 0.6, replace(rec.model_, calibration=torch.full((2,), 2.0))
    assert (model.sample(frame, 50).values[:, below, 0] <= 0.6 + 1e-6).all()
