"""energy-I-Score: rank imputers on real holes, without the truth (Näf, Grzesiak and Scornet 2025, arXiv 2507.11297).

For each incomplete column j: the columns that are complete where j is observed, with one imputation of j in its other
rows, are the training rows; the imputer draws the observed cells of j again from them; their CRPS (energy score of
categories) is averaged over columns by weights p (1 - p), p the share of j that is missing. Lower is better.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unfade.data.columns import Column, Missing
from unfade.data.containers import Container, take
from unfade.data.dataset import Dataset, read
from unfade.errors import DataNotice, InvalidData
from unfade.inference.fitted_attributes import FittedAttributes

Imputer = Callable[[Any, int, int], Iterable[Any]]  # (data, draws, seed) -> completed data sets
_LEAST = 10  # missing cells of a column that is scored


@dataclass(frozen=True)
class ColumnScore:
    """Score of one column.

    Parameters
    ----------
    column : str or int
    score : float
        CRPS, in standard deviations of the column if scaled; energy score of a category.
    weight : float
        p (1 - p) of the share p of missing cells.
    rows : int
        Observed cells that were drawn again.
    columns_used : int
        Complete columns that they were drawn from.
    """

    column: Any
    score: float
    weight: float
    rows: int
    columns_used: int


@dataclass(frozen=True)
class ImputationScore:
    """energy-I-Score of an imputer on a table; lower is better.

    Parameters
    ----------
    score : float
        Mean of the columns by weight.
    columns : tuple of ColumnScore
    """

    score: float
    columns: tuple[ColumnScore, ...]

    def __str__(self) -> str:
        """Write a line for each column."""
        width = max(len(str(each.column)) for each in self.columns)
        lines = [
            f"  {each.column!s:<{width}}  {each.score:.4f}  weight {each.weight:.3f}, {each.rows} rows, "
            f"{each.columns_used} columns"
            for each in self.columns
        ]
        return "\n".join([f"energy-I-Score {self.score:.4f} (lower is better)", *lines])


def score(
    imputer: Any,
    frame: Any,
    n_draws: int = 50,
    *,
    seed: int = 0,
    scaled: bool = True,
    max_rows: int | None = None,
    max_columns: int | None = None,
    kinds: dict[str, str] | None = None,
    missing: Missing | None = None,
) -> ImputationScore:
    """Score an imputer on the real holes of a table by the energy-I-Score, without the truth.

    Parameters
    ----------
    imputer : Recoverer, scikit-learn imputer, or callable
        A callable takes (data, number of draws, seed) and returns completed data sets. A copy of an estimator is fitted
        to each of the tables that the score is made of; one with `random_state` and `sample_posterior` is fitted per draw.
    frame : array or frame, (samples, columns)
    n_draws : int
    seed : int
    scaled : bool
        Divide the CRPS of numbers by the standard deviation of the observed cells of their column. False: the definition
        to the letter, for columns of one unit.
    max_rows, max_columns : int or None
        Draw at most so many observed cells of a column again (a random subset), and score the columns with most missing
        cells alone, for speed.
    kinds, missing : as in `Recoverer`

    Returns
    -------
    ImputationScore
    """
    if not isinstance(n_draws, (int, np.integer)) or n_draws < 1:
        raise InvalidData(f"n_draws must be an integer of at least 1, got {n_draws!r}.")
    impute, data = as_imputer(imputer), _usable(read(frame, None, kinds, missing))
    holes = np.isnan(data.table())
    if holes.ndim != 2:
        raise InvalidData(f"The score is for tables, got samples of shape {holes.shape[1:]}.")
    counts = holes.sum(0)
    chosen = [int(j) for j in np.argsort(-counts, kind="stable") if counts[j] >= _LEAST and counts[j] < len(holes)]
    if not chosen:
        raise InvalidData(f"Expected a column with at least {_LEAST} missing cells and some observed ones, found none.")
    given = data.given()
    completed = next(iter(impute(given, 1, seed)))
    full = _codes(completed, data)
    found = []
    for j in chosen[:max_columns]:
        task = _task(holes, j, max_rows, np.random.default_rng([seed, j]))
        if task is not None:
            found.append(_column_score(impute, data, full, task, n_draws, seed, scaled))
    if not found:
        raise InvalidData("No column can be scored: none is complete where another is observed. Add complete columns.")
    weights = np.array([each.weight for each in found])
    return ImputationScore(float(weights @ [each.score for each in found] / weights.sum()), tuple(found))


@dataclass(frozen=True)
class Task:
    """What the score of a column is made of.

    j: the column; test: rows whose cells are drawn again; train: rows with imputed cells; others: complete columns;
    weight: p (1 - p).
    """

    j: int
    test: np.ndarray
    train: np.ndarray
    others: np.ndarray
    weight: float


def _task(missing: np.ndarray, j: int, max_rows: int | None, rng: np.random.Generator) -> Task | None:
    """Choose rows and columns; where no column is complete, the rows where the most complete one is observed."""
    observed = ~missing[:, j]
    others = np.array([k for k in range(missing.shape[1]) if k != j])
    complete = others[~missing[np.ix_(observed, others)].any(0)]
    if not len(complete) and len(others):
        best = others[(~missing[np.ix_(observed, others)]).sum(0).argmax()]
        observed = observed & ~missing[:, best]
        complete = others[~missing[np.ix_(observed, others)].any(0)] if observed.any() else complete
    if not len(complete):
        return None
    share = missing[:, j].mean()
    test, train = np.flatnonzero(observed), np.flatnonzero(~observed)
    if max_rows is not None and len(test) > max_rows:
        test = np.sort(rng.choice(test, max_rows, replace=False))
    return Task(j, test, train, complete, float(share * (1 - share)))


def artificial(data: Dataset, full: np.ndarray, task: Task) -> Any:
    """Make the table to impute: rows with their cell of the column taken away, then rows with it imputed.

    Parameters
    ----------
    data : Dataset
    full : ndarray, (samples, columns)
        Codes of one completed data set.
    task : Task

    Returns
    -------
    array or frame
        Its first column is the one that is scored.
    """
    rows, columns = np.concatenate([task.test, task.train]), np.concatenate([[task.j], task.others])
    hidden = np.zeros((len(rows), len(columns)), bool)
    hidden[: len(task.test), 0] = True
    values = full[np.ix_(rows, columns)]
    if data.container.columns is None:
        return np.where(hidden, np.nan, values)
    part = _select(data.container, columns, rows)
    filled = part.wrap(values)
    return replace(part, template=filled).hide(hidden)


def _column_score(
    impute: Imputer, data: Dataset, full: np.ndarray, task: Task, n_draws: int, seed: int, scaled: bool
) -> ColumnScore:
    """Draw the observed cells of a column again, and score the draws."""
    columns = data.container.columns
    column = None if columns is None else columns[task.j]
    tables = impute(artificial(data, full, task), n_draws, seed)
    number, values = len(task.test), data.table()[task.test, task.j]
    which = np.concatenate([[task.j], task.others])
    kept = None if columns is None else tuple(columns[k] for k in which)
    drawn = np.stack([_codes(table, data, kept)[:number, 0] for table in tables])
    if len(drawn) < n_draws or np.isnan(drawn).any():
        name = _named(column, task.j)
        raise InvalidData(f"The imputer left cells of {name!r} missing, or gave fewer draws than it was asked for.")
    if column is not None and column.discrete:
        found = float(np.mean([energy(each, value) for each, value in zip(drawn.T, values, strict=True)]))
    else:
        sd = values.std() if scaled and values.std() > 0 else 1.0
        found = float(sample_crps(drawn, values).mean() / sd)
    return ColumnScore(_named(column, task.j), found, task.weight, number, len(task.others))


def sample_crps(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Compute the CRPS of the empirical distribution of draws: mean |x - t| - mean |x - x'| / 2 over all pairs.

    Parameters
    ----------
    draws : ndarray, (draws, samples)
    truth : ndarray, (samples,)

    Returns
    -------
    ndarray, (samples,)
    """
    m = len(draws)
    rank = 2 * np.arange(m)[:, None] - m + 1
    return np.abs(draws - truth).mean(0) - (np.sort(draws, 0) * rank).sum(0) / m**2


def energy(draws: np.ndarray, truth: float) -> float:
    """Compute the energy score of draws of a category, of which any two are at distance 1.

    Parameters
    ----------
    draws : ndarray, (draws,)
    truth : float

    Returns
    -------
    float
    """
    shares = np.unique(draws, return_counts=True)[1] / len(draws)
    return float((draws != truth).mean() - (1 - (shares**2).sum()) / 2)


def as_imputer(imputer: Any) -> Imputer:
    """Make a function (data, draws, seed) -> completed data sets from an imputer.

    Parameters
    ----------
    imputer : Recoverer, scikit-learn imputer, or callable

    Returns
    -------
    callable
    """
    if isinstance(imputer, FittedAttributes):
        return _by_recoverer(imputer)
    if hasattr(imputer, "fit_transform"):
        return _by_transformer(imputer)
    if callable(imputer):
        return imputer
    raise InvalidData(f"Expected a Recoverer, a scikit-learn imputer or a function, got {type(imputer).__name__}.")


def chained_regression(frame: Any, draws: int, seed: int) -> list[Any]:
    """Draw by scikit-learn's IterativeImputer with posterior samples, on codes; those of categories are rounded.

    Parameters
    ----------
    frame : array or frame, (samples, columns)
    draws, seed : int

    Returns
    -------
    list of completed data sets
    """
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    data, made = read(frame), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        for number in range(draws):
            codes = IterativeImputer(sample_posterior=True, random_state=seed + number).fit_transform(data.table())
            for i, column in enumerate(data.columns):
                if column.discrete:
                    codes[:, i] = np.clip(np.round(codes[:, i]), 0, max(1, len(column.categories) - 1))
            made.append(data.container.wrap(codes))
    return made


def column_draws(frame: Any, draws: int, seed: int) -> list[Any]:
    """Draw observed values of the same column at random: the least that an imputer must beat.

    Parameters
    ----------
    frame : array or frame, (samples, columns)
    draws, seed : int

    Returns
    -------
    list of completed data sets
    """
    data, rng = read(frame), np.random.default_rng(seed)
    codes, made = data.table(), []
    for _ in range(draws):
        full = codes.copy()
        for column in full.T:
            empty = np.isnan(column)
            column[empty] = rng.choice(column[~empty], empty.sum())
        made.append(data.container.wrap(full))
    return made


IMPUTERS: dict[str, Imputer] = {"iterative": chained_regression, "columns": column_draws}  # to compare with


def _by_recoverer(estimator: Any) -> Imputer:
    """Make a function from a Recoverer."""

    def impute(data: Any, draws: int, seed: int) -> Iterable[Any]:
        """Fit a copy, and draw."""
        from sklearn.base import clone

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataNotice)
            return clone(estimator).set_params(random_state=seed).fit(data).sample(data, draws)

    return impute


def _by_transformer(transformer: Any) -> Imputer:
    """Make a function from an imputer of scikit-learn."""

    def impute(data: Any, draws: int, seed: int) -> Iterable[Any]:
        """Fit a copy per draw if draws differ, else once."""
        from sklearn.base import clone

        several = draws if "sample_posterior" in transformer.get_params() else 1
        made = []
        for number in range(several):
            one = clone(transformer)
            if "random_state" in one.get_params():
                one.set_params(random_state=seed + number)
            table = one.fit_transform(data)
            made.append(_as_given(table, data))
        return made * (draws // several)

    return impute


def _as_given(table: Any, data: Any) -> Any:
    """Put an array of results back into the frame it was made from."""
    if hasattr(data, "iloc") and not hasattr(table, "iloc"):
        return type(data)(table, columns=data.columns, index=data.index)
    return table


def _usable(data: Dataset) -> Dataset:
    """Leave out passthrough columns, and values that stand for missing ones."""
    columns = data.container.columns
    if columns is None:
        return data
    kept = np.array([i for i, column in enumerate(columns) if column.kind != "passthrough"])
    if not len(kept):
        raise InvalidData("Every column is passed on unchanged, so there is nothing to score.")
    part = _select(data.container, kept, np.arange(len(data)))
    there, known = part.present(), tuple(replace(columns[int(i)], missing=()) for i in kept)
    return read(part.template if there is None or there.all() else part.hide(~there), known)


def _select(container: Container, columns: np.ndarray, rows: np.ndarray) -> Container:
    """Select columns and rows of a frame."""
    import narwhals as nw

    assert container.columns is not None
    chosen: tuple[Column, ...] = tuple(container.columns[int(k)] for k in columns)
    frame = nw.from_native(take(container.template, rows), eager_only=True)
    native = frame.select([column.name for column in chosen]).to_native()
    if hasattr(native, "reset_index"):
        native = native.reset_index(drop=True)
    return replace(container, columns=chosen, template=native, home=None)


def _codes(table: Any, data: Dataset, columns: Sequence[Column] | None = None) -> np.ndarray:
    """Read a completed data set with the columns of the data, as codes."""
    return read(table, columns or data.container.columns).table()


def _named(column: Column | None, number: int) -> Any:
    return number if column is None else column.name
