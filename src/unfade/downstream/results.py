"""Results of analyses, from whatever library: estimates, their covariance, names and degrees of freedom."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unfade.errors import InvalidData

_TERM, _ESTIMATE = ("term", "name", "variable", "parameter"), ("estimate", "coef", "params", "value")
_ERROR = ("std.error", "std_error", "se", "std err", "bse", "stderr")


@dataclass(frozen=True)
class Estimates:
    """Estimates of one analysis.

    values: (coefficients,); covariance: (coefficients, coefficients), or None if only variances are known; variances:
    (coefficients,); names: of the coefficients, or None; df: degrees of freedom of the residuals.
    """

    values: np.ndarray
    variances: np.ndarray
    covariance: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    df: float = np.inf

    def ordered(self, names: tuple[str, ...]) -> "Estimates":
        """Return the estimates in the order of `names`."""
        if self.names is None or self.names == names:
            return self
        if set(self.names) != set(names) or len(self.names) != len(names):
            raise InvalidData(f"Expected the coefficients {list(names)} in all results, got {list(self.names)}.")
        index = [self.names.index(name) for name in names]
        covariance = None if self.covariance is None else self.covariance[np.ix_(index, index)]
        return Estimates(self.values[index], self.variances[index], covariance, names, self.df)


def estimates_of(result: Any) -> Estimates:
    """Read the estimates of a result.

    Results are those of statsmodels, lifelines or linearmodels, pairs of estimates and variances (or a covariance matrix),
    tables with columns term, estimate and std.error, or lists of such triples.
    """
    if isinstance(result, tuple):
        return _of_pair(result)
    if isinstance(result, list):
        return _of_triples(result)
    if hasattr(result, "columns"):
        return _of_table(result)
    if hasattr(result, "variance_matrix_") and hasattr(result, "params_"):  # lifelines
        return _of_fit(result.params_, result.variance_matrix_, np.inf)
    if hasattr(result, "params") and hasattr(result, "std_errors"):  # linearmodels
        return _of_fit(result.params, result.cov, float(getattr(result, "df_resid", np.inf)))
    if hasattr(result, "params") and hasattr(result, "bse"):  # statsmodels
        return _of_statsmodels(result)
    raise InvalidData(
        f"Expected results of statsmodels, lifelines or linearmodels, tables of term, estimate and std.error, or pairs "
        f"(estimate, variance), got {type(result).__name__}. Give (coefficients, squares of their standard errors)."
    )


def _of_pair(result: tuple) -> Estimates:
    if len(result) != 2:
        raise InvalidData(f"Expected pairs of estimates and their variances, got {len(result)} parts.")
    values = np.atleast_1d(np.asarray(result[0], dtype=float))
    second = np.atleast_1d(np.asarray(result[1], dtype=float))
    if second.ndim == 2 and second.shape == (len(values), len(values)) and values.ndim == 1:
        return Estimates(values, np.diag(second).copy(), second, _names(result[0]))
    return Estimates(values, second, None, _names(result[0]))


def _of_triples(result: list) -> Estimates:
    if not all(isinstance(row, (tuple, list)) and len(row) == 3 and isinstance(row[0], str) for row in result):
        raise InvalidData("Expected a list of (term, estimate, standard error), got another list.")
    names, values, errors = zip(*result, strict=True)
    return Estimates(np.array(values, dtype=float), np.array(errors, dtype=float) ** 2, None, tuple(names))


def _of_table(result: Any) -> Estimates:
    """Read a table of coefficients, such as that of R's broom."""
    import narwhals as nw

    table = nw.from_native(result, eager_only=True)
    found = [next((name for name in table.columns if name.lower() in known), None) for known in (_TERM, _ESTIMATE, _ERROR)]
    if None in found:
        raise InvalidData(f"Expected a table with columns term, estimate and std.error, got {table.columns[:10]}.")
    term, estimate, error = (table[str(name)].to_numpy() for name in found)
    return Estimates(estimate.astype(float), error.astype(float) ** 2, None, tuple(map(str, term)))


def _of_fit(params: Any, covariance: Any, df: float) -> Estimates:
    matrix = np.asarray(covariance, dtype=float)
    return Estimates(np.asarray(params, dtype=float), np.diag(matrix).copy(), matrix, _names(params), df)


def _of_statsmodels(result: Any) -> Estimates:
    values, errors = np.asarray(result.params, dtype=float), np.asarray(result.bse, dtype=float)
    matrix = None
    if hasattr(result, "cov_params"):
        found = np.asarray(result.cov_params(), dtype=float)
        matrix = found if found.shape == (values.size, values.size) else None
    df = float(getattr(result, "df_resid", np.inf))
    return Estimates(values, errors**2, matrix, _names(result.params), df)


def _names(values: Any) -> tuple[str, ...] | None:
    index = getattr(values, "index", None)
    if index is None or callable(index):  # lists have a method of this name
        return None
    return tuple(" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in index)


def aligned(results: Sequence[Any]) -> list[Estimates]:
    """Read the estimates of several results, in one order of coefficients; refuse those that cannot be combined."""
    if len(results) < 2:
        raise InvalidData(f"Rubin's rules need at least 2 results, got {len(results)}. Draw more completed data sets.")
    found = [estimates_of(result) for result in results]
    names = found[0].names
    found = found if names is None else [each.ordered(names) for each in found]
    alike = len({part.shape for each in found for part in (each.values, each.variances)}) == 1
    if not alike or not all(np.isfinite(each.values).all() and (each.variances > 0).all() for each in found):
        raise InvalidData(
            "Expected finite estimates, each with a positive variance, of the same coefficients in all results."
        )
    return found
