"""Recoverer: the scikit-learn estimator. Parameters and data in; a plan, a fitted model, and its draws out."""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from unfade.data.columns import Column, Missing
from unfade.data.dataset import Dataset, read
from unfade.data.encoder import FeatureEncoder
from unfade.data.options import Bounds
from unfade.data.support_gaps import SupportGap
from unfade.diagnostics import checks, predictions, report
from unfade.errors import InvalidData
from unfade.inference.draws import Draws
from unfade.inference.fit import fit, plan_for, read_to_fit
from unfade.inference.fitted_model import FittedModel
from unfade.inference.held_out import HeldOut
from unfade.inference.model_file import load_model, save_model
from unfade.methods.parameters import Parameters
from unfade.methods.plan import Plan
from unfade.models.architectures import AnyArchitecture
from unfade.models.latent_variable import Ensemble
from unfade.renamed import ATTRIBUTES, PARAMETERS, present_values, renamed, takes_old_names
from unfade.training.checkpoints import Checkpoint
from unfade.training.loop import History, OnStep, TrainingConfig


class Recoverer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Recover clean data from incomplete, noisy observations, as a distribution.

    Parameters
    ----------
    method : {"tae", "tae-paper", "mvae", "miwae"}
        How the posterior is trained.
    noise : None, float, array of one number a column, dict, "learn", "learn-shared", "learn-by-value" or "infer"
        Standard deviation of the noise of the observed cells, in the units of the data. None: they are exact and come back
        as they went in. ``{"temp": 0.5, "hum": "learn"}``: by column, the others exact. "learn": one level per column; a
        column of which others explain less than half is taken as exact, as its noise cannot be told from its own spread.
        With a joint scaling "learn" is one level for all entries. "learn-shared": one level relative to each column's
        scale. Categories, booleans, and dates unless it is one number a column, carry none. "learn-by-value":
        sd = a + b x^2 for data of one unit, as of depth sensors. "infer" (`tae-paper` only): one level per sample,
        q(beta|z,y,alpha).
    kinds : dict or None
        Kinds of columns of a frame by name, where they are not as found: "continuous", "integer", "boolean",
        "date", "time", "duration", "ordinal", "category", or "passthrough" (comes back as it is, unused).
    missing : list or dict or None
        Values of a frame that stand for missing ones, in all columns or by column: ``[-99, "refused"]``,
        ``{"age": [-99]}`` (the name "": all columns). Null and NaN always do; blank cells and a single point
        do in text that holds numbers.
    fill : {"mean", "median", "draw"}
        What `transform` gives for a missing cell: the posterior mean, the median, or one draw. In frames it is
        rounded to a value that the column can hold (whole numbers, its own steps, the resolution of its dates); of
        categories and booleans it is the most frequent draw.
    bounds : dict, pair or None
        Least and largest value of columns, by name (or number, for arrays): ``{"age": (0, 120)}``; or one pair for all
        numbers (no dates and categories), as of images: ``(0, 1)``. Never broken by a draw. Where both ends are known and
        not far from the data, fully connected networks that are chosen here keep within them too.
    detection_limits : dict or None
        Detection detection_limits of columns: with ``{"lead": ("<", 0.5)}`` all that is known of values up to 0.5 is that
        they lie below it. In frames, cells such as ``<0.5`` say it themselves.
    scaling : {"auto", "variance", "interval", "joint-variance", "joint-interval"} or None
        How entries are brought to model space: by column, or jointly where all share a unit (images). "auto": by
        variance, jointly for convolutional networks.
    network : {"auto", "full", "conv", "conv-large"}
        Fully connected networks, or for images (samples, height, width[, channels]) convolutional ones: those of the
        paper, or stronger ones. "auto": the strong ones for images of 12 x 12 pixels or more with method "tae" (unless
        `settings` or `n_candidates` are given), and of more than 64 x 64 with any; else fully connected.
    n_members : "auto" or int
        Posteriors that are trained side by side and whose draws are taken in turn. "auto": with method "tae" four
        for tables of up to 64 columns (a category counts once for each of its values), else one. Where there are several,
        method "tae" also tries a linear model, and takes it in their place if it predicts held-out cells as well, unless
        `architecture` or `settings` are given.
    calibrate : bool
        Whether draws are made wider (or narrower) about their mean, by as much as the cells that training held out ask
        for: networks tend to be too sure. Observed cells, categories and columns of a handful of values are left as
        they are, and so is all where training holds nothing out (`max_steps`, method "tae-paper").
    n_candidates : "auto" or int
        Candidates of z that a draw is chosen from by its weight; 0 for plain draws. "auto": 200 for methods "tae" and
        "miwae", none for "tae" with more than 64 numbers a sample, for the other methods and for convolutional networks.
    max_steps : int or None
        Steps to train for. None: chosen by held-out observed cells, up to `training.steps` and, where these ask for more,
        three sevenths as many on all cells; just `training.steps` for method "tae-paper".
    max_seconds : float or None
        Time budget of a fit.
    architecture : Architecture, ConvArchitecture or None
        Sizes of the networks, in place of `network`; None: chosen from the data (the paper's for `tae-paper`).
    training : TrainingConfig or None
        Batch size, learning rate and the like; None: the defaults of `unfade.TrainingConfig`, changed to suit the data
        (method "tae" has up to twice the steps with more than 64 numbers a sample).
    settings : dict or None
        Settings of the method itself, such as ``{"weights": 20}`` or ``{"lam": 2, "C": 10}``.
    device : str
        "auto" takes a GPU where there is one.
    random_state : int, RandomState or None
        The same number gives the same fit and the same draws.
    verbose : int
        0: silent; 1: progress, as a bar in terminals and notebooks, elsewhere as a line every half minute; 2: then also
        what each stage took, and how its step was run (eager, compiled, captured) and why.

    Attributes
    ----------
    noise_ : float, ndarray or None
        Noise level in the units of the data: one number where all columns share it, else one a column;
        None where it was inferred for each sample. Where it grows with the value, the level at the mean of the data.
    noise_law_ : (float, float) or None
        a and b of sd = a + b x^2, where noise is "learn-by-value".
    model_ : FittedModel
        What the fit found; the other attributes are read from it.
    plan_ : Plan
        What was decided before training. Print it.
    posterior_ : Ensemble
    encoder_ : FeatureEncoder
    histories_ : tuple of History, one per stage
    calibration_scale_ : Tensor or None
        Calibration scale of each feature, (features,).
    support_gaps_ : tuple of SupportGap
        Missing cells outside the support of the observed ones, which no held-out cell can judge.
    held_out_ : HeldOut or None
        Observed cells that training held out, and draws of what would be observed there; None where it held out none.

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
    >>> bool(np.isfinite(rec.transform(Y)).all())
    True
    """

    @takes_old_names
    def __init__(
        self,
        method: str = "tae", *,
        noise: Any = None, kinds: dict[str, str] | None = None, missing: Missing | None = None, fill: str = "mean",
        bounds: Bounds | None = None, detection_limits: dict[Any, tuple[str, float]] | None = None,
        scaling: str | None = "auto", network: str = "auto", n_members: int | str = "auto", calibrate: bool = True,
        n_candidates: int | str = "auto", max_steps: int | None = None, max_seconds: float | None = None,
        architecture: AnyArchitecture | None = None, training: TrainingConfig | None = None,
        settings: dict[str, Any] | None = None, device: str = "auto", random_state: Any = None, verbose: int = 1,
    ):  # fmt: skip
        self.method = method
        self.noise = noise
        self.kinds = kinds
        self.missing = missing
        self.fill = fill
        self.bounds = bounds
        self.detection_limits = detection_limits
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
        X : array, tensor or frame of shape (samples, *event), NaN = missing
        y : ignored
        on_step : called with the progress in place of the progress bar; True ends a stage, an exception the fit
        checkpoint : where to keep what training has reached, and to go on from if it was stopped
        then_draw : within `max_seconds` leave time for `transform` and for so many draws of X
        """
        parameters = self.parameters()
        data = read_to_fit(parameters, X)
        self._record(data, reset=True)
        model = fit(parameters, data, on_step, checkpoint, then_draw)
        self._fitted = replace(model, feature_names=tuple(map(str, getattr(self, "feature_names_in_", ()))))
        return self

    def plan(self, X: Any) -> Plan:
        """Decide what `fit` would train, and train nothing. Print it."""
        parameters = self.parameters()
        return plan_for(parameters, read_to_fit(parameters, X))

    def transform(self, X: Any) -> Any:
        """Give the clean data as `fill` says, by default the posterior mean, in the kind of container that X is."""
        data = self._read(X)
        return self.model_.transform(data)

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
    ) -> Draws:
        """Draw clean data.

        The draws of a row depend on `seed` (by default the fit's) and on its position, or on its number in
        `row_ids`; not on the batch it comes in, nor on how many draws are asked for.

        Parameters
        ----------
        X : data of the kind of the fit's
        n_draws : how many completed data sets
        n_candidates : in place of the estimator's
        seed, row_ids : on which random numbers depend
        out : an array or memory map of shape (n_draws, *X.shape) to write the draws into
        """
        data = self._read(X)
        return self.model_.sample(data, n_draws, n_candidates=n_candidates, seed=seed, row_ids=row_ids, out=out)

    def diagnose(self, X: Any) -> checks.Diagnosis:
        """Judge how far to trust what comes back, without the truth. X: the data of the fit. Print it."""
        check_is_fitted(self)
        return checks.diagnose(self.model_, X)

    def report(self, path: str | os.PathLike[str], X: Any, draws: Draws | None = None) -> None:
        """Write a page that says how far to trust what comes back: one HTML file that needs no network."""
        check_is_fitted(self)
        report.write_report(self.model_, X, path, draws)

    def compare(self, X: Any, n_draws: int = 50) -> predictions.Comparison:
        """Compare with simple methods on observed cells that none has seen; fits once more. Print it."""
        seed = self._fitted.seed if hasattr(self, "_fitted") else 0
        return predictions.compare(self.parameters(), X, n_draws=n_draws, seed=seed)

    def outliers(self, X: Any, most: int = 20) -> list[predictions.Outlier]:
        """List observed cells that are hard to believe given the rest of their rows, most surprising first."""
        check_is_fitted(self)
        return predictions.outliers(self.model_, X, most, seed=self.seed_)

    def noise_report(self, X: Any) -> list[predictions.ColumnNoise]:
        """Give for each column of numbers its noise level, an interval, and whether the data can tell it. Print each."""
        check_is_fitted(self)
        return predictions.noise_report(self.model_, X, seed=self.seed_)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as one file (safetensors and JSON), whole or not at all."""
        check_is_fitted(self)
        save_model(self.model_, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recoverer":
        """Read a model that `save` wrote. Executes nothing; draws equal those before saving, bit for bit."""
        return cls.of(load_model(path))

    @classmethod
    def of(cls, model: FittedModel) -> "Recoverer":
        """Give the estimator of a fitted model."""
        rec = cls(**{field.name: getattr(model.parameters, field.name) for field in fields(Parameters)})
        rec._fitted, rec.n_features_in_ = model, model.encoder.event_shape[0]
        if model.feature_names:
            rec.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
        return rec

    def parameters(self) -> Parameters:
        """Give the parameters, checked."""
        parameters = Parameters(**present_values(self.get_params(deep=False)))
        parameters.check()
        return parameters

    @property
    def model_(self) -> FittedModel:
        """What the fit found, with the parameters that bear on draws as they are now."""
        options = {name: getattr(self, name) for name in ("fill", "n_candidates", "detection_limits", "device", "verbose")}
        return self._fitted.with_options(**options)

    def _read(self, X: Any) -> Dataset:
        """Read data as those of the fit were, with scikit-learn's own check of arrays."""
        check_is_fitted(self)
        model = self.model_
        if model.columns is None or not hasattr(X, "columns"):
            self._record(read(X, model.columns, detection_limits=self.detection_limits), reset=False)
        return model.read(X)

    def _record(self, data: Dataset, reset: bool) -> None:
        """Keep, or check, the number and names of columns as scikit-learn does."""
        try:
            seen = data.obs.values.numpy() if data.container.names is None else data.container.template
            validate_data(self, seen, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise InvalidData(f"{str(error).strip()} Give the columns that the model was fitted on.") from None

    def set_params(self, **params: Any) -> "Recoverer":
        """Set parameters, as scikit-learn does."""
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

    @property
    def noise_(self) -> Any:
        """See the class."""
        return self.model_.noise

    @property
    def noise_law_(self) -> tuple[float, float] | None:
        """See the class."""
        return self.model_.noise_law

    @property
    def seed_(self) -> int:
        """See the class."""
        return self.model_.seed

    @property
    def columns_(self) -> tuple[Column, ...] | None:
        """See the class."""
        return self.model_.columns

    @property
    def encoder_(self) -> FeatureEncoder:
        """See the class."""
        return self.model_.encoder

    @property
    def posterior_(self) -> Ensemble | None:
        """See the class."""
        return self.model_.posterior

    @property
    def architecture_(self) -> AnyArchitecture:
        """See the class."""
        return self.model_.architecture

    @property
    def histories_(self) -> tuple[History, ...]:
        """See the class."""
        return self.model_.histories

    @property
    def interrupted_(self) -> bool:
        """See the class."""
        return self.model_.interrupted

    @property
    def calibration_scale_(self) -> Tensor | None:
        """See the class."""
        return self.model_.calibration

    @property
    def held_out_(self) -> HeldOut | None:
        """See the class."""
        return self.model_.held_out

    @property
    def support_gaps_(self) -> tuple[SupportGap, ...]:
        """See the class."""
        return self.model_.support_gaps
