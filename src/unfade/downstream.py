"""Analyses of draws: Rubin's rules, models fitted on every draw, sensitivity to values missing not at random."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from unfade.errors import InvalidData
from unfade.estimator import Recoverer
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
    """

    estimate: np.ndarray
    std_error: np.ndarray
    df: np.ndarray
    riv: np.ndarray
    lambda_: np.ndarray
    fmi: np.ndarray
    names: tuple[str, ...] | None = None

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
        Fitted results of statsmodels, or pairs of estimates and their variances (numbers or arrays, one per coefficient).
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
    fits = list(results)
    if len(fits) < 2:
        raise InvalidData(f"Rubin's rules need at least 2 results, got {len(fits)}. Draw more completed data sets.")
    names = getattr(getattr(fits[0], "params", None), "index", None)
    pairs = [[np.atleast_1d(np.asarray(part, dtype=float)) for part in _estimate(fit, names)] for fit in fits]
    alike = len({part.shape for pair in pairs for part in pair}) == 1
    Q, U = (np.stack(parts) for parts in zip(*pairs, strict=True)) if alike else (np.empty(0), np.empty(0))
    if not (alike and np.isfinite(Q).all() and (U > 0).all()):
        raise InvalidData(
            "Expected finite estimates, each with a positive variance, of the same coefficients in all results."
        )
    if df is None:
        df = min((float(getattr(fit, "df_resid", np.inf)) for fit in fits), default=np.inf)
    m = len(Q)
    estimate, within, between = Q.mean(0), U.mean(0), (1 + 1 / m) * Q.var(0, ddof=1)
    total = within + between
    riv, lambda_ = between / within, between / total
    freedom = _barnard_rubin(m, np.maximum(lambda_, 1e-4), df)
    fmi = (riv + 2 / (freedom + 3)) / (riv + 1)
    return Pooled(estimate, np.sqrt(total), freedom, riv, lambda_, fmi, None if names is None else tuple(map(str, names)))


def _estimate(fit: Any, names: Any) -> tuple[Any, Any]:
    """Return the coefficients of a fit and their variances, in the order of `names` if they have names."""
    if isinstance(fit, tuple):
        if len(fit) != 2:
            raise InvalidData(f"Expected pairs of estimates and their variances, got {len(fit)} parts.")
        return fit
    if not hasattr(fit, "params") or not hasattr(fit, "bse"):
        raise InvalidData(
            f"Expected results of statsmodels or pairs (estimate, variance), got {type(fit).__name__}. "
            "Give (coefficients, squares of their standard errors)."
        )
    if names is None or not hasattr(fit.params, "index"):
        return np.asarray(fit.params), np.asarray(fit.bse) ** 2
    if set(fit.params.index) != set(names) or len(fit.params) != len(names):
        raise InvalidData(f"Expected the coefficients {list(names)} in all results, got {list(fit.params.index)}.")
    return fit.params.loc[names], fit.bse.loc[names] ** 2


def _barnard_rubin(m: int, lambda_: np.ndarray, complete: float) -> np.ndarray:
    """Compute degrees of freedom by Barnard and Rubin (1999), from those on complete data."""
    old = (m - 1) / lambda_**2
    if np.isinf(complete):
        return old
    observed = (complete + 1) / (complete + 3) * complete * (1 - lambda_)
    return old * observed / (old + observed)


@dataclass(frozen=True)
class Predictions:
    """Predictions of models that were fitted on draws.

    Parameters
    ----------
    values : ndarray, (draws, samples)
    classes : ndarray or None, (classes,)
        Classes of a classifier; None for numbers.
    """

    values: np.ndarray
    classes: np.ndarray | None = None

    def mean(self) -> np.ndarray:
        """Compute the mean over draws.

        Returns
        -------
        ndarray, (samples,)
        """
        return self.values.mean(0)

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Compute the central interval of each sample over draws; it leaves out the error of the fitted models themselves.

        Parameters
        ----------
        level : float
            Share of the draws inside.

        Returns
        -------
        low, high : ndarray, (samples,)
        """
        low, high = np.quantile(self.values, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high

    def votes(self) -> np.ndarray:
        """Compute the share of draws for which each class is predicted.

        Returns
        -------
        ndarray, (samples, classes)
        """
        if self.classes is None:
            raise InvalidData("Votes are for classifiers; these predictions are numbers. Use mean or interval.")
        return np.stack([(self.values == each).mean(0) for each in self.classes], -1)

    def likeliest(self) -> np.ndarray:
        """Return the class with the most votes.

        Returns
        -------
        ndarray, (samples,)
        """
        return np.asarray(self.classes)[self.votes().argmax(-1)]


def propagate(draws: Draws, estimator: Any, y: Any, at: Draws | None = None) -> Predictions:
    """Fit an estimator on every completed data set, and predict for every draw of other rows.

    For an honest score, `cross_propagate` predicts rows that nothing was fitted on.

    Parameters
    ----------
    draws : Draws
        Draws of the rows that `y` belongs to.
    estimator : scikit-learn estimator
        A copy is fitted on each draw.
    y : array, (samples,)
    at : Draws or None
        As many draws of the rows to predict for; None: `draws`.

    Returns
    -------
    Predictions
    """
    where = draws if at is None else at
    if len(where) != len(draws):
        raise InvalidData(f"Expected as many draws to predict for as to fit on ({len(draws)}), got {len(where)}.")
    fitted = [clone(estimator).fit(X, y) for X in draws]
    values = np.stack([model.predict(X) for model, X in zip(fitted, where, strict=True)])
    return Predictions(values, getattr(fitted[0], "classes_", None))


def cross_propagate(recoverer: Recoverer, estimator: Any, X: Any, y: Any, cv: Any = 5, n_draws: int = 20) -> Predictions:
    """Predict every row by cross-validation: recoverer and estimator are fitted on the other folds alone.

    Parameters
    ----------
    recoverer : Recoverer
    estimator : scikit-learn estimator
    X : array, tensor or frame, (samples, *event)
    y : array, (samples,)
    cv : int or scikit-learn splitter
        Folds that predict every row once.
    n_draws : int

    Returns
    -------
    Predictions
    """
    from sklearn.base import is_classifier
    from sklearn.model_selection import check_cv
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import _num_samples

    y = np.asarray(y)
    if _num_samples(X) != len(y):
        raise InvalidData(f"Expected an outcome for each of {_num_samples(X)} rows, got {len(y)}.")
    tagged = hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator)
    splitter = check_cv(cv, y, classifier=tagged or hasattr(estimator, "predict_proba"))
    folds = list(splitter.split(np.zeros(len(y)), y))
    if sorted(row for _, test in folds for row in test) != list(range(len(y))):
        raise InvalidData(
            "Expected folds that predict every row once, as those of KFold do, got some that leave rows out or repeat them."
        )
    values: np.ndarray | None = None
    for train, test in folds:
        inside, outside = _safe_indexing(X, train), _safe_indexing(X, test)
        fitted = clone(recoverer).fit(inside)
        found = propagate(fitted.sample(inside, n_draws), estimator, y[train], fitted.sample(outside, n_draws))
        if values is None:
            values = np.empty((n_draws, len(y)), dtype=found.values.dtype)
        values[:, test] = found.values
    if values is None:
        raise InvalidData("Cross-validation needs at least one fold.")
    return Predictions(values, np.unique(y) if found.classes is not None else None)


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
