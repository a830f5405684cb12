"""Recoverer: the scikit-learn estimator over plan and fitted model."""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from unfade.data.columns import Missing
from unfade.data.constraints import Applicable, Derived, Order, Sums
from unfade.data.dataset import Dataset, read
from unfade.data.options import Bounds
from unfade.diagnostics.judged import Judged
from unfade.errors import InvalidData
from unfade.inference.draws import Draws
from unfade.inference.fit import fit, plan_for, read_to_fit
from unfade.inference.fitted_attributes import FittedAttributes
from unfade.inference.fitted_model import FittedModel
from unfade.inference.model_file import load_model, save_model
from unfade.methods.parameters import Parameters
from unfade.methods.plan import Plan
from unfade.models.architectures import AnyArchitecture
from unfade.renamed import ATTRIBUTES, PARAMETERS, present_values, renamed, takes_old_names
from unfade.training.checkpoints import Checkpoint
from unfade.training.loop import OnStep, TrainingConfig


class Recoverer(FittedAttributes, Judged, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Recover clean data from incomplete, noisy observations, as a distribution.

    Parameters
    ----------
    method : {"auto", "masked", "flow", "tae", "tae-paper", "mvae", "miwae"}
        How the posterior is trained. "auto": a stack of models for tables of up to 64 columns, "flow" for images of up to
        4,096 numbers on a GPU, "masked" (masked prediction) for other wide data. "tae": posterior and prior apart.
    noise : None, float, array of one number per column, dict, "learn", "learn-shared", "learn-by-value" or "infer"
        Standard deviation of the noise of observed cells, in the units of the data. None: they are exact and are returned
        unchanged. ``{"temp": 0.5, "hum": "learn"}``: per column, the others exact. "learn": one level per column; a column
        of which the others explain less than 97 % is taken as exact, as its noise cannot be identified. With a joint
        scaling "learn" is one level for all entries. "learn-shared": one level relative to each column's scale.
        Categories, booleans, and dates unless there is one number per column, have no noise, nor are levels learned of
        integers with at most ten values. "learn-by-value": sd = a + b
        x^2, for data of one unit, as of depth sensors. "infer" (`tae-paper` only): one level per sample, q(beta|z,y,alpha).
    corruption : Step, callable, list of them or None
        In place of `noise`, for method "flow": steps of `corruption.simulated`, or a function (clean, rng) -> observed.
    kinds : dict or None
        Kinds of columns of a frame by name, where they are inferred wrongly: "continuous", "integer", "boolean", "date",
        "time", "duration", "ordinal", "category", or "passthrough" (returned unchanged and not used).
    missing : list or dict or None
        Values that stand for missing ones, in all columns or per column: ``[-99, "refused"]``, ``{"age": [-99]}``. Null
        and NaN are always missing; blank cells and a single point in text that holds numbers.
    fill : {"mean", "median", "draw"}
        How `transform` fills a missing cell. In frames mean and median are rounded to a value that the column can hold;
        in categories and booleans they are the most frequent draw.
    bounds : dict, pair or None
        Least and largest value of columns, by name (or number, for arrays): ``{"age": (0, 120)}``; or one pair for all
        numbers (not dates or categories), as of images: ``(0, 1)``. No draw lies outside. If both ends are known and not
        far from the data, fully connected networks that are chosen here keep within them too.
    detection_limits : dict or None
        Detection limits of columns: with ``{"lead": ("<", 0.5)}`` values up to 0.5 are left-censored, known only to lie
        below it. In frames, cells such as ``<0.5`` are censored without it.
    applicable : dict or None
        Conditions under which a column has a value, ``{"age_moved": "moved == 1"}`` (skip logic): where false, in the data
        or in a draw, its cell stays empty. Columns of arrays are called x0, x1, ...
    derived : dict or None
        Columns that are computed from others, exactly in every draw: ``{"bmi": "wgt / (hgt / 100) ** 2"}``.
    sums : dict or None
        Totals and their parts: ``{"total": ["a", "b", "c"]}``.
    order : list or None
        Columns of which none is larger than the next: ``["low <= mid <= high"]``.
    time : str or None
        Column of times, dates or numbers: rows are steps of series, in any order, and draws are coherent along time. The
        step between rows is found. None: rows are exchangeable.
    panel : str, tuple of str or None
        Columns that identify series: ``("patient",)``.
    scaling : {"auto", "variance", "interval", "joint-variance", "joint-interval"} or None
        Map of entries to model space: per column, or jointly if all share a unit (images). "auto": by variance, jointly
        for convolutional networks.
    network : {"auto", "full", "conv", "conv-large"}
        Fully connected networks, or for images (samples, height, width[, channels]) convolutional ones of two sizes.
        "auto": the larger ones for images from 12 x 12 pixels with method "auto" or "masked" (unless `settings` or
        `n_candidates` are given), and above 64 x 64 with any method; else fully connected.
    n_members : "auto" or int
        Networks that are trained together. "auto": one, but four for tables of up to 64 columns (each value of a category
        counts) with method "auto" and `max_steps`, `architecture` or `settings`. Without these, it also fits a linear model
        and trees to such tables, and held-out cells decide the share of the draws that each kind gives.
    calibrate : bool
        Whether draws are scaled about their mean to nominal coverage of held-out cells (split conformal): networks tend to
        give narrow intervals. Observed cells, categories and columns of few values are not scaled, nor is anything if
        training holds nothing out (`max_steps`, method "tae-paper").
    n_candidates : "auto" or int
        Proposals of z per draw (sampling-importance-resampling); 0: plain draws. "auto": 200 for methods "auto", "tae" and
        "miwae", 0 for "auto" with more than 64 numbers per sample, for the other methods and for convolutional networks.
    max_steps : int or None
        Training steps. None: chosen by early stopping, up to `training.steps` and, if held-out cells need more, three
        sevenths as many on all cells; all of `training.steps` for method "tae-paper".
    max_seconds : float or None; the time budget of a fit.
    architecture : Architecture, ConvArchitecture, FlowArchitecture or None
        Sizes of the networks, in place of `network`; None: chosen from the data (the paper's for `tae-paper`).
    training : TrainingConfig or None
        Batch size, learning rate and similar; None: the defaults of `unfade.TrainingConfig`, adapted to the data.
    settings : dict or None
        Settings of the method, such as ``{"weights": 20}`` or ``{"lam": 2, "C": 10}``.
    device : str; "auto" uses a GPU if there is one.
    random_state : int, RandomState or None
        Equal integers give equal fits and equal draws.
    verbose : int
        0: silent; 1: progress, as a bar or a line every half minute; 2: also how each stage was run, and its time.

    Examples
    --------
    >>> import numpy as np
    >>> from unfade import Recoverer
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.normal(size=(200, 1)) * [1.0, 2.0, 3.0]
    >>> Y[rng.random(Y.shape) < 0.3] = np.nan
    >>> rec = Recoverer(max_steps=300, random_state=0, verbose=0).fit(Y)
    >>> rec.sample(Y, n_draws=5)
    Draws(5 completed data sets of 200 x 3)
    """

    @takes_old_names
    def __init__(
        self,
        method: str = "auto", *,
        noise: Any = None, corruption: Any = None, kinds: dict[str, str] | None = None, missing: Missing | None = None,
        fill: str = "mean",
        bounds: Bounds | None = None, detection_limits: dict[Any, tuple[str, float]] | None = None,
        applicable: Applicable | None = None, derived: Derived | None = None, sums: Sums | None = None,
        order: Order | None = None, time: str | None = None, panel: str | tuple[str, ...] | None = None,
        scaling: str | None = "auto", network: str = "auto", n_members: int | str = "auto", calibrate: bool = True,
        n_candidates: int | str = "auto", max_steps: int | None = None, max_seconds: float | None = None,
        architecture: AnyArchitecture | None = None, training: TrainingConfig | None = None,
        settings: dict[str, Any] | None = None, device: str = "auto", random_state: Any = None, verbose: int = 1,
    ):  # fmt: skip
        self.method = method
        self.noise = noise
        self.corruption = corruption
        self.kinds = kinds
        self.missing = missing
        self.fill = fill
        self.bounds = bounds
        self.detection_limits = detection_limits
        self.applicable = applicable
        self.derived = derived
        self.sums = sums
        self.order = order
        self.time = time
        self.panel = panel
        self.scaling = scaling
        self.network = network
        self.n_members = n_members
        self.calibrate = calibrate
        self.n_candidates = n_candidates
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.architecture = architecture
        self.training = training
        self.settings = settings
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        on_step: OnStep | None = None,
        checkpoint: Checkpoint | None = None,
        then_draw: int | None = None,
    ) -> "Recoverer":
        """Train on corrupted data alone.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event); NaN is missing
        y : ignored
        on_step : callable or None
            Called with the progress, in place of the bar; returning True ends a stage, raising an exception the fit.
        checkpoint : Checkpoint or None
            Where to save the state of training, and to resume from if it was stopped.
        then_draw : int or None
            Leave time within `max_seconds` for `transform` and for this many draws of X.

        Returns
        -------
        Recoverer
        """
        parameters = self.parameters()
        data = read_to_fit(parameters, X)
        self._record(data, reset=True)
        model = fit(parameters, data, on_step, checkpoint, then_draw)
        self._fitted = replace(model, feature_names=tuple(map(str, getattr(self, "feature_names_in_", ()))))
        return self

    def plan(self, X: Any) -> Plan:
        """Decide what `fit` would train, without training; print the result.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        Plan
        """
        parameters = self.parameters()
        return plan_for(parameters, read_to_fit(parameters, X))

    def transform(self, X: Any, *, where: Any = None) -> Any:
        """Fill and clean data as `fill` says, by default by the posterior mean.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        where : mask or None, (samples, *event)
            Missing cells that may be filled; the others stay empty. None: all.

        Returns
        -------
        array, tensor or frame, (samples, *event)
        """
        return self.model_.transform(self._read(X), where=where)

    @takes_old_names
    def sample(
        self,
        X: Any,
        n_draws: int = 50,
        *,
        n_candidates: int | str | None = None,
        seed: int | None = None,
        row_ids: Sequence[int] | None = None,
        out: np.ndarray | None = None,
        where: Any = None,
    ) -> Draws:
        """Draw clean data.

        The draws of a row depend on `seed` and on its position, or on its number in `row_ids`; not on the batch, nor on
        how many draws are made.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        n_draws : int
        n_candidates : int, "auto" or None
            Proposals per draw; None: those of the estimator.
        seed : int, or None for that of the fit
        row_ids : sequence of int or None, (samples,)
        out : ndarray, (n_draws, *X.shape), or None
            An array or memory map to write the draws into.
        where : mask or None, (samples, *event)
            Missing cells that may be filled; the others stay empty. None: all.

        Returns
        -------
        Draws
        """
        data = self._read(X)
        return self.model_.sample(
            data, n_draws, n_candidates=n_candidates, seed=seed, row_ids=row_ids, out=out, where=where
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as one file (safetensors and JSON), whole or not at all.

        Parameters
        ----------
        path : path
        """
        check_is_fitted(self)
        save_model(self.model_, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], corruption: Any = None) -> "Recoverer":
        """Read a model that `save` wrote; draws equal those before saving, bit for bit. Nothing in the file is executed.

        Parameters
        ----------
        path : path
        corruption : callable or None
            The function of the corruption, which files do not hold.

        Returns
        -------
        Recoverer
        """
        return cls.of(load_model(path, corruption))

    @classmethod
    def of(cls, model: FittedModel) -> "Recoverer":
        """Make an estimator from a fitted model.

        Parameters
        ----------
        model : FittedModel

        Returns
        -------
        Recoverer
        """
        rec = cls(**{field.name: getattr(model.parameters, field.name) for field in fields(Parameters)})
        rec._fitted, rec.n_features_in_ = model, model.encoder.event_shape[0]
        if model.feature_names:
            rec.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
        return rec

    def parameters(self) -> Parameters:
        """Check the parameters.

        Returns
        -------
        Parameters
        """
        parameters = Parameters(**present_values(self.get_params(deep=False)))
        parameters.check()
        return parameters

    @property
    def model_(self) -> FittedModel:
        """Fitted model, with the current values of the parameters that affect draws."""
        options = {name: getattr(self, name) for name in ("fill", "n_candidates", "detection_limits", "device", "verbose")}
        return self._fitted.with_options(**options)

    def _read(self, X: Any) -> Dataset:
        """Read data like those of the fit, with scikit-learn's own check of arrays."""
        check_is_fitted(self)
        model = self.model_
        if model.columns is None or not (hasattr(type(X), "columns") or hasattr(X, "columns")):
            self._record(read(X, model.columns, detection_limits=self.detection_limits), reset=False)
        return model.read(X)

    def _record(self, data: Dataset, reset: bool) -> None:
        """Record, or check, the number and names of columns as scikit-learn does."""
        try:
            seen = data.obs.values.numpy() if data.container.names is None else data.container.template
            validate_data(self, seen, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise InvalidData(f"{str(error).strip()} Give the columns that the model was fitted on.") from None

    def set_params(self, **params: Any) -> "Recoverer":
        """Set parameters, as scikit-learn does; former names work with a FutureWarning."""
        return super().set_params(**{renamed(PARAMETERS, name, "parameter"): value for name, value in params.items()})

    def __getattr__(self, name: str) -> Any:
        if name not in ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self, renamed(ATTRIBUTES, name, "attribute"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")
