"""Do pooled 95 % intervals cover? `python benchmarks/pooling.py [--repeats 200] [--peer]`.

A linear regression of y on 5 correlated predictors, 500 rows, 30 % of the predictors' cells missing at random given y:
20 completed tables from each method, one regression on each, pooled by Rubin's rules. What is printed is how often the
intervals hold the true coefficients (0.95 would be right), and how wide they are. --peer runs R's mice instead of unfade.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import peers
import torch
from scipy.stats import t as student

from unfade import Recoverer
from unfade.downstream import pool

ROWS, DRAWS = 500, 20
COEFFICIENTS = np.array([1.0, 0.5, -0.5, 0.25, 0.0, 1.0])  # the first is the intercept


def population(seed: int) -> np.ndarray:
    """Rows of (x1 ... x5, y), complete: correlations of 0.5, noise of sd 1 on y."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(np.zeros(5), 0.5 + 0.5 * np.eye(5), ROWS)
    y = COEFFICIENTS[0] + X @ COEFFICIENTS[1:] + rng.normal(size=ROWS)
    return np.column_stack([X, y])


def with_holes(table: np.ndarray, seed: int) -> np.ndarray:
    """30 % of the predictors' cells missing, more of them where y is large."""
    y = (table[:, -1] - table[:, -1].mean()) / table[:, -1].std()
    chance = 1 / (1 + np.exp(-(1.2 * y - 1.05)))  # 0.30 on average
    holes = np.random.default_rng(seed + 10_000).random((ROWS, 5)) < chance[:, None]
    return np.column_stack([np.where(holes, np.nan, table[:, :-1]), table[:, -1]])


def regression(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares: coefficients and their variances."""
    X = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(X.T @ X)
    estimate = inverse @ X.T @ table[:, -1]
    residual = table[:, -1] - X @ estimate
    return estimate, residual @ residual / (len(X) - X.shape[1]) * np.diag(inverse)


def unfade(tables: list[np.ndarray]) -> list[np.ndarray]:
    """The default method on each table, as many at once as there are processors."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"), initializer=_one_thread) as processes:
        return list(processes.map(_unfade, tables, range(len(tables))))


def _one_thread() -> None:
    torch.set_num_threads(1)


def _unfade(table: np.ndarray, seed: int) -> np.ndarray:
    return Recoverer(random_state=seed, verbose=0, device="cpu").fit(table).sample(table, DRAWS).values


def mice(tables: list[np.ndarray]) -> list[np.ndarray]:
    """R's mice by its default, predictive mean matching."""
    return [peers.run("mice pmm", table, DRAWS, seed)["draws"] for seed, table in enumerate(tables)]


def complete_cases(tables: list[np.ndarray]) -> list[np.ndarray]:
    """What leaving out rows with holes gives."""
    return [table[~np.isnan(table).any(1)][None] for table in tables]


def judged(drawn: list[np.ndarray]) -> str:
    """Share of 95 % intervals that hold the truth, by coefficient and on average; their mean width; mean error."""
    held, width, error = [], [], []
    for tables in drawn:
        fits = [regression(table) for table in tables]
        if len(fits) > 1:
            pooled = pool(fits, df=ROWS - 6)
            estimate, sd, df = pooled.estimate, pooled.std_error, pooled.df
        else:
            estimate, sd, df = fits[0][0], np.sqrt(fits[0][1]), np.full(6, tables.shape[1] - 6)
        half = student.ppf(0.975, df) * sd
        held.append(np.abs(estimate - COEFFICIENTS) <= half)
        width.append(2 * half)
        error.append(estimate - COEFFICIENTS)
    share = np.mean(held, 0)
    mean, se = share.mean(), np.sqrt(share.mean() * (1 - share.mean()) / len(drawn))
    return (
        f"covered {mean:.3f} (standard error at most {se:.3f}; by coefficient {np.round(share, 3).tolist()}), "
        f"width {np.mean(width):.3f}, bias {np.round(np.mean(error, 0), 3).tolist()}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--peer", action="store_true")
    chosen = parser.parse_args()
    complete = [population(seed) for seed in range(chosen.repeats)]
    tables = [with_holes(table, seed) for seed, table in enumerate(complete)]
    print(f"{np.mean([np.isnan(t[:, :5]).mean() for t in tables]):.3f} of the predictors' cells are missing")
    methods: dict[str, Callable[[list[np.ndarray]], list[np.ndarray]]] = {"complete cases": complete_cases}
    methods |= {"mice pmm": mice} if chosen.peer else {"unfade": unfade}
    print("nothing missing:", judged([table[None] for table in complete]))
    for name, method in methods.items():
        started = time.perf_counter()
        print(f"{name}: {judged(method(tables))}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
