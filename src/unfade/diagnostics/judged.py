"""Judged: the methods of an estimator that judge its results without the truth."""

import os
from typing import Any

from sklearn.utils.validation import check_is_fitted

from unfade.diagnostics import checks, comparison, predictions, report
from unfade.inference.draws import Draws
from unfade.inference.fitted_model import FittedModel
from unfade.methods.parameters import Parameters


class Judged:
    """Methods that judge a fitted estimator."""

    @property
    def model_(self) -> FittedModel:
        """Fitted model."""
        raise NotImplementedError

    @property
    def seed_(self) -> int:
        """Seed of the fit."""
        raise NotImplementedError

    def parameters(self) -> Parameters:
        """Check the parameters.

        Returns
        -------
        Parameters
        """
        raise NotImplementedError

    def diagnose(self, X: Any) -> checks.Diagnosis:
        """Judge without the truth how far to trust a recovery; print the result.

        Parameters
        ----------
        X : the data of the fit

        Returns
        -------
        Diagnosis
        """
        check_is_fitted(self)
        return checks.diagnose(self.model_, X)

    def report(self, path: str | os.PathLike[str], X: Any, draws: Draws | None = None) -> checks.Diagnosis:
        """Write the diagnosis with pictures as one HTML file that needs no network, and return it.

        Parameters
        ----------
        path : path
        X : the data of the fit
        draws : Draws of X, or None

        Returns
        -------
        Diagnosis
        """
        check_is_fitted(self)
        return report.write_report(self.model_, X, path, draws)

    def compare(self, X: Any, n_draws: int = 50) -> comparison.Comparison:
        """Fit again with some observed cells hidden, and compare their prediction with simple methods; print the result.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        n_draws : int

        Returns
        -------
        Comparison
        """
        seed = self.seed_ if hasattr(self, "_fitted") else 0
        return comparison.compare(self.parameters(), X, n_draws=n_draws, seed=seed)

    def outliers(self, X: Any, most: int = 20) -> list[predictions.Outlier]:
        """List the observed cells that the rest of their row predicts worst, the most distant first.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        most : int

        Returns
        -------
        list of Outlier
        """
        check_is_fitted(self)
        return predictions.outliers(self.model_, X, most, seed=self.seed_)

    def noise_report(self, X: Any) -> list[predictions.ColumnNoise]:
        """Estimate the noise level of each column of numbers, with an interval, and whether the data identify it.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)

        Returns
        -------
        list of ColumnNoise
        """
        check_is_fitted(self)
        return predictions.noise_report(self.model_, X, seed=self.seed_)
