"""energy-I-Score: equal to its definition in R, and exact before narrow before mean where the exact law is known."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from typer.testing import CliRunner

import unfade
from unfade import InvalidData, Recoverer
from unfade.cli.app import app
from unfade.diagnostics.imputation_score import chained_regression, column_draws, energy, sample_crps

GOLDEN = Path(__file__).parent / "golden"
STORED = float((GOLDEN / "iscore.txt").read_text())  # what tests/iscore.R makes of the imputations below
COVARIANCE = np.array([[1.5, 0.9, 0.6], [0.9, 1.2, 0.3], [0.6, 0.3, 1.0]])


def table(seed, rows=300, columns=(0, 1)):
    """Gaussian rows; holes in some columns, more where the last one is large."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(np.zeros(3), COVARIANCE, rows)
    for column in columns:
        X[rng.random(rows) < 0.3 / (1 + np.exp(-X[:, 2])) + 0.1, column] = np.nan
    return X


class Gaussian:
    """Draws from the conditional law; spread: of the draws, 1 if they are exact."""

    def __init__(self, spread, which=None):
        self.spread, self.calls, self.which = spread, 0, which

    def __call__(self, X, draws, seed):
        """Columns of the tables that follow the first: the one that is scored, most missing cells first, then the last."""
        index = [0, 1, 2] if self.calls == 0 else [self.which[self.calls - 1], 2]
        self.calls += 1
        K, rng = COVARIANCE[np.ix_(index, index)], np.random.default_rng(seed)
        for _ in range(draws):
            made = X.copy()
            for gone in np.unique(np.isnan(X), axis=0):
                a, b, rows = np.flatnonzero(gone), np.flatnonzero(~gone), (np.isnan(X) == gone).all(1)
                if len(a):
                    weights = np.linalg.solve(K[np.ix_(b, b)], K[np.ix_(b, a)]).T
                    left = K[np.ix_(a, a)] - weights @ K[np.ix_(b, a)]
                    error = rng.multivariate_normal(np.zeros(len(a)), left, rows.sum())
                    made[np.ix_(rows, a)] = X[np.ix_(rows, b)] @ weights.T + self.spread * error
            yield made


def scored(X, spread, seed, **how):
    which = np.argsort(-np.isnan(X).sum(0), kind="stable")[:2].tolist()
    return unfade.score(Gaussian(spread, which), X, 20, seed=seed, **how).score


def test_exact_comes_before_narrow_before_the_mean_in_fifty_of_fifty_seeds():
    ranked = []
    for seed in range(50):
        X = table(seed)
        exact, narrow, mean = (scored(X, spread, seed) for spread in (1.0, 0.5, 0.0))
        ranked.append(exact < narrow < mean)
    assert sum(ranked) == 50


def stored_imputations(folder):
    """A table, an imputation of it, and draws of its observed cells, as files; and the score that unfade gives them."""
    X, rng = table(0, 60), np.random.default_rng(1)
    full = np.where(np.isnan(X), rng.normal(size=X.shape), X)
    made = {j: rng.normal(size=(12, 60)) for j in (0, 1)}
    which = iter(np.argsort(-np.isnan(X).sum(0), kind="stable")[:2].tolist())
    rows = []

    def replay(data, draws, seed):
        if data.shape == X.shape:
            return [full]
        j = next(which)
        observed = np.flatnonzero(~np.isnan(X[:, j]))
        rows.extend((j + 1, i + 1, k + 1, made[j][k, i]) for k in range(12) for i in observed)
        filled = [data.copy() for _ in range(12)]
        for k, each in enumerate(filled):
            assert np.isnan(each[: len(observed), 0]).all()
            assert np.array_equal(each[len(observed) :, 0], full[np.isnan(X[:, j]), j])
            each[: len(observed), 0] = made[j][k, observed]
        return filled

    found = unfade.score(replay, X, 12, scaled=False)
    pd.DataFrame(X).to_csv(folder / "X.csv", index=False, float_format="%.17g")
    pd.DataFrame(full).to_csv(folder / "full.csv", index=False, float_format="%.17g")
    pd.DataFrame(rows, columns=["column", "row", "draw", "value"]).to_csv(
        folder / "draws.csv", index=False, float_format="%.17g"
    )
    return found


def test_the_score_is_the_one_that_r_computes_from_the_definition(tmp_path):
    assert stored_imputations(tmp_path).score == pytest.approx(STORED, rel=1e-9)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="Rscript is not installed")
def test_r_gives_the_stored_score_today(tmp_path):
    found = stored_imputations(tmp_path)
    files = [tmp_path / name for name in ("X.csv", "full.csv", "draws.csv")]
    run = subprocess.run(
        ["Rscript", Path(__file__).with_name("iscore.R"), *files], capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == pytest.approx(found.score, rel=1e-9)


def test_weights_are_p_times_one_minus_p_and_only_complete_columns_are_used(tmp_path):
    X = table(0, 60)
    found = stored_imputations(tmp_path)
    for each in found.columns:
        p = np.isnan(X[:, each.column]).mean()
        assert each.weight == pytest.approx(p * (1 - p))
        assert each.columns_used == 1  # the other incomplete one is not used
    assert "energy-I-Score" in str(found)


def test_crps_and_energy_score_are_means_over_all_pairs():
    x = np.array([0.0, 1.0, 3.0])
    assert sample_crps(x[:, None], np.array([1.0]))[0] == pytest.approx(1.0 - np.abs(x[:, None] - x).mean() / 2)
    assert energy(np.array([0, 0, 1, 2]), 0.0) == pytest.approx(0.5 - (1 - (4 + 1 + 1) / 16) / 2)


def mixed():
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": rng.normal(size=120), "id": [f"name {i}" for i in range(120)]})
    made["b"], made["c"] = made["a"] + 0.3 * rng.normal(size=120), np.where(made["a"] > 0, "up", "down")
    made.loc[rng.random(120) < 0.3, "b"] = np.nan
    made.loc[rng.random(120) < 0.3, "c"] = None
    return made


@pytest.mark.parametrize(
    "imputer",
    [Recoverer(max_steps=100, n_members=1, verbose=0), chained_regression, column_draws],
    ids=["unfade", "iterative", "columns"],
)
def test_imputers_of_frames_are_scored_with_categories(imputer):
    found = unfade.score(imputer, mixed(), 8)
    assert {each.column for each in found.columns} == {"b", "c"}
    assert 0 < found.score < 0.7


def test_imputers_of_scikit_learn_are_fitted_per_draw():
    X = table(1)
    regression = unfade.score(IterativeImputer(sample_posterior=True), X, 10)
    constant = unfade.score(SimpleImputer(), X, 10)
    assert regression.score < constant.score


@pytest.mark.parametrize(
    ("imputer", "data", "how", "message"),
    [
        (3, table(0), {}, "Expected a Recoverer"),
        (column_draws, np.ones((30, 2)), {}, "at least 10 missing"),
        (column_draws, np.where(np.eye(2)[np.arange(40) % 2] > 0, np.nan, 1.0 * np.arange(40)[:, None]), {}, "No column"),
        (column_draws, table(0), {"n_draws": 0}, "n_draws"),
        (lambda X, n, s: [X] * n, table(0), {}, "left cells"),
        (column_draws, np.ones((9, 4, 4)), {}, "for tables"),
    ],
)
def test_what_cannot_be_scored_is_said(imputer, data, how, message):
    with pytest.raises(InvalidData, match=message):
        unfade.score(imputer, data, **how)


def test_the_command_ranks_imputers(tmp_path):
    mixed().to_csv(tmp_path / "t.csv", index=False)
    command = ["score", str(tmp_path / "t.csv"), "--draws", "5", "--max-steps", "50", "--imputer", "columns"]
    done = CliRunner().invoke(app, [*command, "--imputer", "iterative"])
    assert done.exit_code == 0, done.output
    assert done.stdout.index("iterative") < done.stdout.index("columns")
    wrong = CliRunner().invoke(app, [*command, "--imputer", "magic"])
    assert wrong.exit_code == 3
    assert "'magic'" in wrong.stderr
