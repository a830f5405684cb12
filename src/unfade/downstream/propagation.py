"""Models that are fitted on draws: their predictions as distributions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from unfade.errors import InvalidData
from unfade.estimator import Recoverer
from unfade.inference.draws import Draws


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
