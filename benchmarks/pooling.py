"""Do pooled 95 % intervals cover? `python benchmarks/pooling.py --methods unfade "mice pmm"`, then `--report`.

A linear regression of y on 5 correlated predictors, 500 rows, 30 % of the predictors' cells missing at random given y:
20 completed tables from each method, one regression on each, pooled by Rubin's rules. Written are how often the
intervals hold the true coefficients (0.95 is nominal), how wide they are, and the mean error of each coefficient. R's mice
does all of its repeats, and the pooling, in one process.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from boards import parser_of, run_all, written
from methods import METHODS, complete
from report import markdown
from scipy.stats import t as student
from store import Cell, found, keep

from unfade.downstream import pool

ROWS, DRAWS = 500, 20
COEFFICIENTS = np.array([1.0, 0.5, -0.5, 0.25, 0.0, 1.0])  # the first is the intercept
WITHOUT = ("nothing missing", "complete rows")  # analyses without a method


def population(seed: int) -> np.ndarray:
    """Draw rows of (x1 ... x5, y), complete: correlations of 0.5, noise of sd 1 on y."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(np.zeros(5), 0.5 + 0.5 * np.eye(5), ROWS)
    y = COEFFICIENTS[0] + X @ COEFFICIENTS[1:] + rng.normal(size=ROWS)
    return np.column_stack([X, y])


def with_holes(table: np.ndarray, seed: int) -> np.ndarray:
    """Hide 30 % of the predictors' cells, more of them where y is large."""
    y = (table[:, -1] - table[:, -1].mean()) / table[:, -1].std()
    chance = 1 / (1 + np.exp(-(1.2 * y - 1.05)))  # 0.30 on average
    holes = np.random.default_rng(seed + 10_000).random((ROWS, 5)) < chance[:, None]
    return np.column_stack([np.where(holes, np.nan, table[:, :-1]), table[:, -1]])


def regression(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit the last column to the others by least squares: coefficients and their variances."""
    X = np.column_stack([np.ones(len(table)), table[:, :-1]])
    inverse = np.linalg.inv(X.T @ X)
    estimate = inverse @ X.T @ table[:, -1]
    residual = table[:, -1] - X @ estimate
    return estimate, residual @ residual / (len(X) - X.shape[1]) * np.diag(inverse)


def pooled(tables: np.ndarray) -> dict[str, list[float]]:
    """Pool the regressions of completed tables; of one table, take its own intervals."""
    fits, df = [regression(table) for table in tables], tables.shape[1] - tables.shape[2]
    if len(fits) > 1:
        together = pool(fits, df=df)
        estimate, (low, high) = together.estimate, together.interval()
    else:
        estimate, reach = fits[0][0], student.ppf(0.975, df) * np.sqrt(fits[0][1])
        low, high = estimate - reach, estimate + reach
    return {"estimate": estimate.tolist(), "low": low.tolist(), "high": high.tolist()}


def result(cell: Cell) -> dict[str, Any]:
    """Analyse one table with holes by a method."""
    table = population(cell.seed)
    if cell.method == "nothing missing":
        return pooled(table[None])
    given = with_holes(table, cell.seed)
    if cell.method == "complete rows":
        return pooled(given[~np.isnan(given).any(1)][None])
    made = complete(cell.method, given, cell.seed, draws=DRAWS, apart=False)
    return {**pooled(made.pop("draws")), **made}


def mice(cells: list[Cell]) -> None:
    """Run the repeats of one of R's methods that are not stored yet, in one process."""
    todo = {cell.seed: cell for cell in cells if not found(cell)}
    if not todo:
        return
    tables = [
        pd.DataFrame(with_holes(population(seed), seed), columns=[*"abcde", "y"]).assign(number=seed) for seed in todo
    ]
    script = str(Path(__file__).with_suffix(".R"))
    command = ["Rscript", script, cells[0].method, str(DRAWS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pd.concat(tables).to_csv(process.stdin, index=False, na_rep="NA")
        process.stdin.close()
        for line in process.stdout:
            made = json.loads(line)
            keep(todo[made.pop("number")], made)
    if process.returncode or not all(map(found, cells)):
        raise RuntimeError(
            f"{cells[0].method} failed: Rscript ended with exit code {process.returncode} before all repeats were done."
        )


def row(method: str, results: list[dict[str, Any]]) -> list[str]:
    """Write a method's coverage with its standard error, mean width, mean error of coefficients, and CPU seconds."""
    low, high, estimate = (np.array([r[name] for r in results]) for name in ("low", "high", "estimate"))
    share = ((low <= COEFFICIENTS) & (high >= COEFFICIENTS)).mean(1)
    bias = (estimate - COEFFICIENTS).mean(0)
    shown = [f"{share.mean():.1%} ± {share.std(ddof=1) / len(share) ** 0.5:.1%}", f"{(high - low).mean():.3f}"]
    shown += [f"{np.abs(bias).max():.3f}", ", ".join(f"{b:+.3f}" for b in bias)]
    return [method, str(len(results)), *shown, f"{np.mean([r.get('cpu_seconds', 0) for r in results]):.2f}"]


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = parser_of(__doc__, [*WITHOUT, *METHODS])
    parser.add_argument("--repeats", type=int, default=200)
    parser.set_defaults(methods=[*WITHOUT, "unfade", "mice pmm", "mice cart"])
    chosen = parser.parse_args(arguments)
    by_method = {
        m: [Cell("pooling", "simulated", "MAR", seed, m) for seed in range(chosen.repeats)] for m in chosen.methods
    }
    for method, cells in by_method.items():
        if chosen.report:
            break
        mice(cells) if method.startswith("mice ") else run_all(cells, chosen.jobs, result)
    header = ["analysis", "repeats", "coverage", "mean width", "largest bias", "bias of each coefficient", "CPU seconds"]
    run = {method: [r for cell in cells if "low" in (r := found(cell))] for method, cells in by_method.items()}
    written("pooling", markdown(header, [row(method, results) for method, results in run.items() if len(results) > 1]))


if __name__ == "__main__":
    main()
