"""The demonstrations, shortened: they run, score and draw."""

import numpy as np
import torch

from unfade import demo
from unfade.data.observations import as_observations


def test_digits_are_recovered_better_than_by_simple_fills(tmp_path, monkeypatch):
    quick = demo.Recoverer
    monkeypatch.setattr(demo, "Recoverer", lambda **kw: quick(**{**kw, "max_steps": 500}))
    shown = demo.digits(tmp_path, seed=0, verbose=0)
    ours, mean = shown.scores["unfade (50 draws)"], shown.scores["column mean"]
    assert ours["crps"] < 0.6 * mean["crps"]
    assert ours["rmse"] < mean["rmse"]
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    assert "Estimated noise level" in shown.text


def test_the_toy_is_scored_against_the_exact_posterior(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TOY_STEPS", 1000)
    shown = demo.toy(tmp_path, seed=0, verbose=0)
    assert shown.scores["unfade, n_candidates=500"] < 0.5 * min(shown.scores["MVAE"], shown.scores["TAE as printed"])
    assert (tmp_path / "toy.png").stat().st_size > 10_000


def test_exact_draws_of_the_ring_lie_where_they_should():
    ring = demo.Ring(generator=torch.Generator().manual_seed(0))
    draws = ring.exact(as_observations(np.array([[0.0, np.nan]])), 2000)
    assert abs((draws[:, 1] > 0).float().mean() - 0.5) < 0.05
    assert abs(draws.norm(dim=1).mean() - 1) < 0.03
