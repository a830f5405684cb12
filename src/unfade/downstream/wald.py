"""Tests of several coefficients at once, on many completed data sets: D1 (Wald), D2 (statistics), D3 (likelihood ratios).

D1: Li, Raghunathan and Rubin (1991), with degrees of freedom by Reiter (2007) on small samples; D2: Li, Meng, Raghunathan
and Rubin (1991); D3: Meng and Rubin (1992).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unfade.downstream.pooling import Pooled, pool
from unfade.downstream.results import estimates_of
from unfade.errors import InvalidData


@dataclass(frozen=True)
class PooledTest:
    """F test combined over completed data sets.

    Parameters
    ----------
    statistic : float
    df1, df2 : float
        Degrees of freedom of its F distribution.
    riv : float
        Average relative increase in variance caused by missing values.
    """

    statistic: float
    df1: float
    df2: float
    riv: float

    @property
    def p_value(self) -> float:
        """P value."""
        from scipy.stats import f

        return float(f.sf(self.statistic, self.df1, self.df2))

    def __str__(self) -> str:
        return f"F({self.df1:g}, {self.df2:.1f}) = {self.statistic:.4g}, p = {self.p_value:.4g}, riv = {self.riv:.3f}"


def d1(results: Iterable[Any] | Pooled, terms: Sequence[Any] | None = None, df: float | None = None) -> PooledTest:
    """Test that several coefficients are 0, by a Wald test (D1).

    Parameters
    ----------
    results : iterable or Pooled
        As `pool` takes them, with covariances.
    terms : sequence of str or int, or None
        Coefficients, by name or number; None: all.
    df : float or None
        Degrees of freedom on complete data; None: those of the results.

    Returns
    -------
    PooledTest
    """
    pooled = results if isinstance(results, Pooled) else pool(results, df)
    if pooled.within is None or pooled.between is None:
        raise InvalidData(
            "D1 needs covariances of the estimates. Give results that have them, or use d2 on their statistics."
        )
    which = _places(terms, pooled)
    within, between = (part[np.ix_(which, which)] for part in (pooled.within, pooled.between))
    k, m, estimate = len(which), pooled.m, pooled.estimate[which]
    riv = (1 + 1 / m) * float(np.trace(np.linalg.solve(within.T, between.T))) / k
    statistic = float(estimate @ np.linalg.solve((1 + riv) * within, estimate)) / k
    t = k * (m - 1)
    complete = pooled.complete_df if df is None else float(df)
    return PooledTest(statistic, k, _freedom(t, k, riv) if np.isinf(complete) else _reiter(t, riv, complete), riv)


def d2(statistics: Iterable[float], df: float) -> PooledTest:
    """Combine chi-square statistics of one test on every completed data set (D2).

    Parameters
    ----------
    statistics : iterable of float
    df : float
        Degrees of freedom of each statistic.

    Returns
    -------
    PooledTest
    """
    d = np.array(list(statistics), dtype=float)
    if len(d) < 2 or not (np.isfinite(d).all() and (d >= 0).all()) or not df > 0:
        raise InvalidData(
            f"d2 takes at least 2 statistics of at least 0, and their degrees of freedom, got {d.tolist()[:5]}."
        )
    m = len(d)
    riv = (1 + 1 / m) * float(np.sqrt(d).var(ddof=1))
    statistic = (d.mean() / df - (m + 1) / (m - 1) * riv) / (1 + riv)
    with np.errstate(divide="ignore"):
        freedom = df ** (-3 / m) * (m - 1) * (1 + np.divide(1, riv)) ** 2
    return PooledTest(float(statistic), df, float(freedom), riv)


def d3(full: Iterable[Any], reduced: Iterable[Any]) -> PooledTest:
    """Combine likelihood-ratio tests of two nested models on every completed data set (D3).

    Parameters
    ----------
    full, reduced : iterable
        Results of statsmodels that were fitted by maximum likelihood, of the larger and of the smaller model.

    Returns
    -------
    PooledTest
    """
    fits = list(full), list(reduced)
    m = len(fits[0])
    if m < 2 or len(fits[1]) != m:
        raise InvalidData(f"d3 needs as many results of both models, at least 2, got {m} and {len(fits[1])}.")
    own, common, sizes = [], [], []
    for each in fits:
        if not all(hasattr(getattr(fit, "model", None), "loglike") for fit in each):
            raise InvalidData("d3 needs results of statsmodels with a log-likelihood, such as those of OLS and Logit.")
        found = [estimates_of(fit).values for fit in each]
        mean = np.mean(found, 0)
        variances = [_variance(fit) for fit in each]
        own.append(np.array([_log_likelihood(*parts) for parts in zip(each, found, variances, strict=True)]))
        common.append(np.array([_log_likelihood(fit, mean, float(np.mean(variances))) for fit in each]))
        sizes.append(len(mean))
    k = sizes[0] - sizes[1]
    if k < 1:
        raise InvalidData(
            f"d3 needs a full model with more coefficients than the reduced one, got {sizes[0]} and {sizes[1]}."
        )
    at_own, at_mean = (2 * float((parts[0] - parts[1]).mean()) for parts in (own, common))
    riv = (m + 1) / (k * (m - 1)) * (at_own - at_mean)
    return PooledTest(at_mean / (k * (1 + riv)), k, _freedom(k * (m - 1), k, riv), riv)


def _variance(fit: Any) -> float:
    """Return the residual variance of a linear model by maximum likelihood; NaN for models without one."""
    return float(fit.ssr / fit.nobs) if hasattr(fit, "ssr") else np.nan


def _log_likelihood(fit: Any, values: np.ndarray, variance: float) -> float:
    """Compute the log-likelihood at given coefficients, of linear models also at a given residual variance."""
    if np.isnan(variance):
        return float(fit.model.loglike(values))
    residuals = fit.model.wendog - fit.model.wexog @ values
    return float(-len(residuals) / 2 * np.log(2 * np.pi * variance) - residuals @ residuals / (2 * variance))


def _places(terms: Sequence[Any] | None, pooled: Pooled) -> list[int]:
    """Find coefficients by name or number."""
    names = list(pooled.names or ())
    found = []
    for term in range(len(pooled.estimate)) if terms is None else terms:
        place = names.index(term) if term in names else term
        if not isinstance(place, (int, np.integer)) or not 0 <= place < len(pooled.estimate):
            raise InvalidData(f"There is no coefficient {term!r}. Coefficients are {names or len(pooled.estimate)}.")
        found.append(int(place))
    if not found:
        raise InvalidData("Expected at least one coefficient to test, got none.")
    return found


def _freedom(t: float, k: int, riv: float) -> float:
    """Compute degrees of freedom of D1 and D3 for large samples."""
    if riv <= 0:
        return np.inf
    if t > 4:
        return 4 + (t - 4) * (1 + (1 - 2 / t) / riv) ** 2
    return t * (1 + 1 / k) * (1 + 1 / riv) ** 2 / 2


def _reiter(t: float, riv: float, complete: float) -> float:
    """Compute degrees of freedom of D1 by Reiter (2007), equation 10."""
    if t <= 4:
        raise InvalidData("D1 needs more completed data sets: (their number - 1) times the coefficients must exceed 4.")
    a = riv * t / (t - 2)
    v = (complete + 1) / (complete + 3) * complete
    c0, c1, c2 = 1 / (t - 4), v - 2 * (1 + a), v - 4 * (1 + a)
    z = 1 / c2 + c0 * (
        a**2 * c1 / ((1 + a) ** 2 * c2) + 8 * a**2 * c1 / ((1 + a) * c2**2) + 4 * a**2 / ((1 + a) * c2)
        + 4 * a**2 / (c2 * c1) + 16 * a**2 * c1 / c2**3 + 8 * a**2 / c2**2
    )  # fmt: skip
    return 4 + 1 / z
