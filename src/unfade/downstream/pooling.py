"""Rubin's rules: one analysis of many completed data sets, combined."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unfade.downstream.results import aligned
from unfade.errors import InvalidData
from unfade.inference.draws import Draws


@dataclass(frozen=True)
class Pooled:
    """One analysis of many completed data sets, combined by Rubin's rules; each array has a number per coefficient.

    Parameters
    ----------
    estimate, std_error : ndarray, (coefficients,)
    df : ndarray, (coefficients,)
        Degrees of freedom by Barnard and Rubin (1999).
    riv : ndarray, (coefficients,)
        Relative increase in variance caused by missing values.
    lambda_ : ndarray, (coefficients,)
        Share of the variance caused by missing values.
    fmi : ndarray, (coefficients,)
        Fraction of missing information.
    names : tuple of str or None
        Names of the coefficients.
    m : int
        Number of results that were combined.
    within, between : ndarray or None, (coefficients, coefficients)
        Mean covariance of the results, and covariance of the estimates between them; None if covariances are not known.
    complete_df : float
        Degrees of freedom on complete data.
    """

    estimate: np.ndarray
    std_error: np.ndarray
    df: np.ndarray
    riv: np.ndarray
    lambda_: np.ndarray
    fmi: np.ndarray
    names: tuple[str, ...] | None = None
    m: int = 0
    within: np.ndarray | None = None
    between: np.ndarray | None = None
    complete_df: float = np.inf

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the estimates, (coefficients, coefficients)."""
        if self.within is None or self.between is None:
            raise InvalidData("These results have variances only. Give covariances: pairs (estimates, covariance matrix).")
        return self.within + (1 + 1 / self.m) * self.between

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Compute the confidence interval of each coefficient.

        Parameters
        ----------
        level : float
            Confidence level, between 0 and 1.

        Returns
        -------
        low, high : ndarray, (coefficients,)
        """
        from scipy.stats import t

        if not 0 < level < 1:
            raise InvalidData(f"An interval's level lies between 0 and 1, got {level!r}. Use 0.95 for 95 %.")
        reach = t.ppf((1 + level) / 2, self.df) * self.std_error
        return self.estimate - reach, self.estimate + reach

    @property
    def p_value(self) -> np.ndarray:
        """P value of each coefficient, for the hypothesis that it is 0, (coefficients,)."""
        from scipy.stats import t

        return 2 * t.sf(np.abs(self.estimate / self.std_error), self.df)

    def __str__(self) -> str:
        """Write a table with a row for each coefficient."""
        low, high = self.interval()
        names = self.names or tuple(map(str, range(len(self.estimate))))
        numbers = {
            "estimate": self.estimate, "std error": self.std_error, "t": self.estimate / self.std_error, "df": self.df,
            "p value": self.p_value, "2.5 %": low, "97.5 %": high, "fmi": self.fmi,
        }  # fmt: skip
        columns = [["", *names], *([title, *map(_shown(title), values)] for title, values in numbers.items())]
        widths = [max(map(len, cells)) for cells in columns]
        aligned = [
            [f"{cell:{'>' if place else '<'}{width}}" for cell in cells]
            for place, (cells, width) in enumerate(zip(columns, widths, strict=True))
        ]
        return "\n".join(map("  ".join, zip(*aligned, strict=True)))


def _shown(title: str) -> Callable[[float], str]:
    """Choose the number format of a column of the table of pooled results."""
    if title == "p value":
        return lambda p: f"{p:.3f}" if p >= 0.001 else "<0.001"
    if title == "df":
        return lambda df: f"{df:.1f}" if df < 1e5 else f"{df:.0e}"
    places = {"t": ".2f", "fmi": ".3f"}.get(title, ".4g")
    return lambda number: f"{number:{places}}"


def pool(results: Iterable[Any], df: float | None = None) -> Pooled:
    """Combine the results of one analysis of many completed data sets by Rubin's rules.

    Parameters
    ----------
    results : iterable
        Fitted results of statsmodels, lifelines or linearmodels; tables with columns term, estimate and std.error, or
        lists of such triples; or pairs of estimates and their variances (numbers, or arrays with one per coefficient) or
        their covariance matrix.
    df : float or None
        Degrees of freedom of the analysis on complete data; None: those of the results, if they have any, else infinite.

    Returns
    -------
    Pooled

    Examples
    --------
    >>> pooled = pool([(1.0, 0.1), (1.2, 0.1), (0.8, 0.1)])
    >>> float(pooled.estimate[0].round(3)), float(pooled.std_error[0].round(3)), float(pooled.fmi[0].round(2))
    (1.0, 0.392, 0.41)
    """
    found = aligned(list(results))
    m, names = len(found), found[0].names
    complete = min(each.df for each in found) if df is None else float(df)
    Q, U = np.stack([each.values for each in found]), np.stack([each.variances for each in found])
    estimate, within, between = Q.mean(0), U.mean(0), (1 + 1 / m) * Q.var(0, ddof=1)
    total = within + between
    riv, lambda_ = between / within, between / total
    freedom = barnard_rubin(m, lambda_, complete)
    fmi = (riv + 2 / (freedom + 3)) / (riv + 1)
    matrices = [each.covariance for each in found]
    known = Q.ndim == 2 and all(matrix is not None for matrix in matrices)
    return Pooled(
        estimate, np.sqrt(total), freedom, riv, lambda_, fmi, names, m,
        np.mean([matrix for matrix in matrices if matrix is not None], 0) if known else None,
        np.atleast_2d(np.cov(Q.T, ddof=1)) if known else None, complete,
    )  # fmt: skip


def fit_pooled(draws: Draws | Iterable[Any], analyse: Callable[[Any], Any], df: float | None = None) -> Pooled:
    """Repeat an analysis on every completed data set, and combine the results by Rubin's rules.

    Parameters
    ----------
    draws : Draws or iterable of tables
    analyse : callable
        From a completed data set to a result that `pool` takes: ``lambda table: smf.ols("y ~ a", table).fit()``.
    df : float or None
        As in `pool`.

    Returns
    -------
    Pooled
    """
    return pool((analyse(table) for table in draws), df)


def pool_predictions(results: Iterable[Any], rows: Any, observations: bool = False) -> Pooled:
    """Combine the predictions of models fitted on every completed data set, with the models' own error.

    Parameters
    ----------
    results : iterable
        Fitted results of statsmodels with `get_prediction`, such as those of OLS and GLM.
    rows : frame or array
        Values of the predictors.
    observations : bool
        Predict new observations: with the residual variance, as a prediction interval. False: their mean.

    Returns
    -------
    Pooled
        With one estimate per row.
    """
    fits = list(results)
    pairs = []
    for fit in fits:
        if not hasattr(fit, "get_prediction"):
            raise InvalidData(f"Expected results of statsmodels with get_prediction, got {type(fit).__name__}.")
        found = fit.get_prediction(rows)
        error = getattr(found, "se_obs", None) if observations else getattr(found, "se_mean", None)
        if error is None:
            raise InvalidData(f"{type(fit).__name__} gives no standard error of new observations. Use observations=False.")
        pairs.append((np.asarray(found.predicted_mean), np.asarray(error) ** 2))
    return pool(pairs, min((float(getattr(fit, "df_resid", np.inf)) for fit in fits), default=np.inf))


def barnard_rubin(m: int, lambda_: np.ndarray, complete: float) -> np.ndarray:
    """Compute degrees of freedom by Barnard and Rubin (1999), from those on complete data.

    Parameters
    ----------
    m : int
        Number of completed data sets.
    lambda_ : ndarray
        Share of the variance caused by missing values.
    complete : float

    Returns
    -------
    ndarray
    """
    with np.errstate(divide="ignore"):
        old = (m - 1) / np.asarray(lambda_, dtype=float) ** 2
    if np.isinf(complete):
        return old
    observed = (complete + 1) / (complete + 3) * complete * (1 - lambda_)
    return 1 / (1 / old + 1 / observed)


def tipping_points(
    draws: Draws,
    column: str,
    analyse: Callable[[Any], Any],
    shifts: Sequence[float] = (-1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0),
) -> list[tuple[float, Pooled]]:
    """Repeat an analysis with the missing cells of a column shifted, to see what values missing not at random could change.

    Parameters
    ----------
    draws : Draws
    column : str
    analyse : callable
        From a completed data set to a result that `pool` takes.
    shifts : sequence of float
        In standard deviations of the column.

    Returns
    -------
    list of (shift, Pooled)
    """
    return [(shift, pool(analyse(table) for table in draws.shifted({column: shift}))) for shift in shifts]
