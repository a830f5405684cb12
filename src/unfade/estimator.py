"""Recoverer: corrupted data in, posterior draws of the clean data out. The main path in one file."""

import copy
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from unfade import observations, storage
from unfade.architectures import (
    PAPER,
    AnyArchitecture,
    Architecture,
    ConvArchitecture,
    architecture_for,
    conv_architecture,
    image_of,
    is_image,
    network_for,
)
from unfade.cells import HeldOut
from unfade.checkpoints import Checkpoint
from unfade.corruption import Corruption, GrowingNoise
from unfade.door import (
    Bounds,
    matched,
    model_space,
    say_how_few,
    say_what_is_left,
    say_what_is_odd,
    with_limits,
    without_extremes,
)
from unfade.drawing import draw_blocks, mean_blocks
from unfade.draws import Draws, middle
from unfade.errors import DataNotice, InvalidData, InvalidFile
from unfade.metadata import MOST_CANDIDATES
from unfade.methods import DEFAULT_TRAINING, METHODS, fit_ensembles, members_for, refine_for, training_for
from unfade.models import Ensemble
from unfade.observations import Observations, as_observations
from unfade.packing import packed, unpacked
from unfade.progress import counting, progress_bar
from unfade.recipes import Task, predicts
from unfade.recording import named_noise, recording
from unfade.spaces import ModelSpace
from unfade.support import SupportGap, describe_gaps, fill_gaps, fill_gaps_with_means, find_gaps
from unfade.tables import TEMPORAL, Column, Container, Missing, open_container
from unfade.threads import one_thread
from unfade.training import FEW_STEPS, OnStep, TrainingConfig
from unfade.watching import Split, widths

FILLS = ("mean", "median", "draw")


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
        Kinds of columns of a frame by name, where they are not as found: "number", "whole", "boolean", "date", "time",
        "duration", "ordered", "category", or "passthrough" (comes back as it is, unused).
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
    limits : dict or None
        Detection limits of columns: with ``{"lead": ("<", 0.5)}`` all that is known of values up to 0.5 is that
        they lie below it. In frames, cells such as ``<0.5`` say it themselves.
    scaling : {"auto", "variance", "interval", "joint-variance", "joint-interval"} or None
        How entries are brought to model space: by column, or jointly where all share a unit (images). "auto": by
        variance, jointly for convolutional networks.
    network : {"auto", "full", "conv", "conv-large"}
        Fully connected networks, or for images (samples, height, width[, channels]) convolutional ones: those of the
        paper, or stronger ones. "auto": the strong ones for images of 12 x 12 pixels or more with method "tae" (unless
        `settings` or `refine` are given), and of more than 64 x 64 with any; else fully connected.
    members : "auto" or int
        Posteriors that are trained side by side and whose draws are taken in turn. "auto": with method "tae" four
        for tables of up to 64 columns (a category counts once for each of its values), else one. Where there are several,
        method "tae" also tries a linear model, and takes it in their place if it predicts held-out cells as well, unless
        `architecture` or `settings` are given.
    recalibrate : bool
        Whether draws are made wider (or narrower) about their mean, by as much as the cells that training held out ask
        for: networks tend to be too sure. Observed cells, categories and columns of a handful of values are left as
        they are, and so is all where training holds nothing out (`max_steps`, method "tae-paper").
    refine : "auto" or int
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
    posterior_ : Ensemble
    space_ : ModelSpace
    histories_ : list of History, one a stage
    widths_ : Tensor or None
        By how much draws of each feature were made wider, (features,).
    support_gaps_ : list of SupportGap
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

    def __init__(
        self,
        method: str = "tae",
        *,
        noise: Any = None,
        kinds: dict[str, str] | None = None,
        missing: Missing | None = None,
        fill: str = "mean",
        bounds: Bounds | None = None,
        limits: dict[Any, tuple[str, float]] | None = None,
        scaling: str | None = "auto",
        network: str = "auto",
        members: int | str = "auto",
        recalibrate: bool = True,
        refine: int | str = "auto",
        max_steps: int | None = None,
        max_seconds: float | None = None,
        architecture: AnyArchitecture | None = None,
        training: TrainingConfig | None = None,
        settings: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 1,
    ):
        self.method = method
        self.noise = noise
        self.kinds = kinds
        self.missing = missing
        self.fill = fill
        self.bounds = bounds
        self.limits = limits
        self.scaling = scaling
        self.network = network
        self.members = members
        self.recalibrate = recalibrate
        self.refine = refine
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
        """Train on corrupted data alone. X: (samples, *event), NaN = missing; y is ignored.

        on_step: is told of the progress in place of the progress bar; True ends a stage, an exception the fit.
        checkpoint: where to keep what training has reached, and to go on from if it was stopped. then_draw: within
        `max_seconds` leave time for `transform` and for so many draws of X.
        """
        started = time.monotonic()
        self._check_parameters()
        obs, container = self._door(X, reset=True)
        obs = without_extremes(obs, container.columns or ())
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        mixed = METHODS[self.method].mixed and (self.settings or {}).get("posterior") != "bound"
        conv, growing = self._convolutional(obs), isinstance(self.noise, str) and self.noise == "learn-by-value"
        scaling = self.scaling
        if scaling == "auto":
            scaling = "joint-variance" if conv or growing else "variance"
        names, kinds = container.names or range(obs.event_shape[0]), [column.kind for column in container.columns or ()]
        noise = named_noise(self.noise, names, "joint" in str(scaling), kinds)
        if growing and scaling != "joint-variance":
            raise InvalidData(f"noise='learn-by-value' needs scaling='joint-variance' (one unit for all), got {scaling!r}.")
        images = conv is not None
        space = model_space(obs, container.columns or (), scaling, noise, self.bounds, mixed, images)
        say_what_is_odd(obs, space, container.columns or (), noisy=self.noise is not None)
        say_what_is_left(container, self.kinds)
        gaps = find_gaps(obs, container.columns or ())
        _warn_of_gaps(gaps, container.columns or ())
        if images or is_image(obs.event_shape):
            say_how_few(len(obs))
        members = self._members(space.features)
        corruption, settings = self._corruption(noise, space, container.columns or ())
        searched = corruption.searched.clone() if corruption.learned else torch.zeros(1, dtype=torch.bool)
        architecture = conv or self._fully_connected(len(obs), space)
        predictive, pixels = self._predicts(architecture, space), space.features if images else None
        config = self.training or training_for(self.method, members, len(obs), pixels, predictive)
        task = Task(
            space.enter(obs).to(self._device()),
            corruption,
            architecture,
            replace(config, steps=int(self.max_steps or config.steps)),
            seed,
            refine=self._refine(None, architecture, predictive),
            fixed_steps=self.max_steps is not None,
            linear=self.method == "tae" and not (self.settings or self.architecture or space.limited or growing),
            ends=space.ends,
            image=image_of(obs.event_shape) if images or is_image(obs.event_shape) else None,
            places=space.numbers.to(self._device()),
        )
        if self.max_seconds:
            rest = self.max_seconds - (0.0 if then_draw is None else self._seconds_to_draw(task, members, then_draw))
            task.deadline = started + 0.9 * rest  # a tenth is left for what follows training
        if checkpoint is not None:
            said = {**self.get_params(deep=False), "random_state": seed, "verbose": 0, "device": self._device().type}
            checkpoint.begin(storage.digest(storage.FORMAT, tuple(task.obs.parts()), said, task.training, members))
            task.checkpoint = checkpoint
        entries = None if images else config.batch_size * members * space.features
        with one_thread(entries), progress_bar(self.verbose > 0 and on_step is None) as bar:
            task.on_step = on_step or bar
            posterior = fit_ensembles(self.method, [task], settings, members)[0] if space.features else None
        if self.verbose > 1:
            for stage, history in enumerate(task.histories, 1):
                print(f"stage {stage}: {history}", file=sys.stderr)
        _say_how_it_ended(task)
        _warn_of_untold_noise(searched & task.corruption.exact.cpu(), space, container.columns or ())
        self.seed_, self.space_, self.posterior_, self.columns_ = seed, space, posterior, container.columns
        self.architecture_, self.histories_, self.interrupted_ = task.architecture, task.histories, task.interrupted
        self.noise_, self.noise_law_ = self._noise_in_units(), self._noise_law()
        self.widths_, self.held_out_, self.support_gaps_ = None, None, gaps
        if task.split is not None and task.predicted is not None and posterior is not None:
            noise, held = copy.deepcopy(posterior.each[0].corruption).cpu(), task.split.held
            measured = space.measured(obs[task.split.rows.cpu()]).to(held.observed.device)
            split = replace(task.split, held=held.only(measured))
            if self.recalibrate:
                self.widths_ = widths(split, task.predicted, noise, space.fine)
            self.held_out_ = self._held_out(split, task.predicted, noise, obs, container)
        return self

    def transform(self, X: Any) -> Any:
        """The clean data as `fill` says, by default the posterior mean, in the kind of container that X is."""
        if self.fill == "draw":
            return self.sample(X, 1)[0]
        obs, container = self._door(X, reset=False)
        means = np.empty((len(obs), *container.event_shape(obs)))
        rows = torch.zeros(len(obs), dtype=torch.long)  # one set of random numbers for all rows: subsets agree
        # Where features are not straight scales of entries, means are those of draws.
        blocks = partial(
            mean_blocks if self.space_.straight and self.fill == "mean" else draw_blocks,
            seed=self.seed_, refine=self._refine(), draws=16 if isinstance(self.architecture_, ConvArchitecture) else 100,
        )  # fmt: skip
        with self._drawing("filling", len(obs), blocks) as blocks:
            self._fill(means[None], obs, container, rows, blocks, self.seed_, central=True)
        return container.wrap(means)

    def sample(
        self,
        X: Any,
        n_draws: int = 50,
        *,
        refine: int | str | None = None,
        seed: int | None = None,
        row_ids: Sequence[int] | None = None,
        out: np.ndarray | None = None,
    ) -> Draws:
        """Draws of the clean data.

        The draws of a row hang on `seed` (by default the fit's) and on its position, or on its number in
        `row_ids`; not on the batch it comes in, nor on how many draws are asked for. `refine` overrides
        the estimator's. `out`: an array or memory map of shape (n_draws, *X.shape) to write the draws into.
        """
        obs, container = self._door(X, reset=False)
        if not isinstance(n_draws, (int, np.integer)) or n_draws < 1:
            raise InvalidData(f"n_draws must be a whole number of at least 1, got {n_draws!r}.")
        rows = torch.as_tensor(np.array(range(len(obs)) if row_ids is None else row_ids))
        if rows.shape != (len(obs),) or rows.is_floating_point():
            raise InvalidData(f"row_ids must hold one whole number a row ({len(obs)}), got {row_ids!r}.")
        if seed is not None and not (isinstance(seed, (int, np.integer)) and 0 <= seed < 2**63):
            raise InvalidData(f"seed must be a whole number of at least 0, got {seed!r}.")
        seed, shape = self.seed_ if seed is None else int(seed), (n_draws, len(obs), *container.event_shape(obs))
        draws = np.empty(shape, container.dtype) if out is None else out
        if draws.shape != shape or not np.issubdtype(draws.dtype, np.floating):
            raise InvalidData(f"out must hold floating-point numbers of shape {shape}, got {draws.dtype} {draws.shape}.")
        drawn = partial(draw_blocks, draws=n_draws, seed=seed, refine=self._refine(refine), widths=self.widths_)
        with self._drawing("drawing", len(obs), drawn) as drawn:
            self._fill(draws, obs, container, rows, drawn, seed)
        return Draws(draws, container, container.reorder(obs.observed.numpy().astype(float)) == 1)

    def diagnose(self, X: Any) -> Any:
        """How far to trust what comes back, without the truth: verdicts in words. X: the data of the fit. Print it."""
        from unfade.verdicts import diagnose

        obs, _ = self._door(X, reset=False)
        few = max(1, min(1000, observations.AT_ONCE // obs.event_shape.numel()))
        return diagnose(self, X, self.space_.enter(obs[:few]).to(self._device()))

    def report(self, path: str | os.PathLike[str], X: Any, draws: Draws | None = None) -> None:
        """Write a page that says how far to trust what comes back: one HTML file that needs no network."""
        from unfade.report import write_report

        check_is_fitted(self)
        write_report(self, X, path, draws)

    def compare(self, X: Any, n_draws: int = 50) -> Any:
        """The same settings beside simple methods, on observed cells that none has seen; fits once more. Print it."""
        from unfade.diagnostics import compare

        return compare(self, X, n_draws=n_draws, seed=getattr(self, "seed_", 0))

    def surprises(self, X: Any, most: int = 20) -> Any:
        """Observed cells that are hard to believe given the rest of their rows, most surprising first."""
        from unfade.diagnostics import surprises

        check_is_fitted(self)
        return surprises(self, X, most, seed=self.seed_)

    def noise_report(self, X: Any) -> Any:
        """For each column of numbers: noise level, an interval, and whether the data can tell it. Print each."""
        from unfade.diagnostics import noise_report

        check_is_fitted(self)
        return noise_report(self, X, seed=self.seed_)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as one file (safetensors and JSON), whole or not at all."""
        check_is_fitted(self)
        storage.save(path, *packed(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Recoverer":
        """Read a model that `save` wrote. Executes nothing; draws equal those before saving, bit for bit."""
        tensors, meta = storage.load(path)
        try:
            return unpacked(cls, tensors, meta)
        except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            raise InvalidFile(f"{path} is damaged: its parts do not fit together ({error}). Save it again.") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "noise_")

    def _seconds_to_draw(self, task: Task, members: int, draws: int) -> float:
        """About how long `transform` and so many draws of the data will take: by a block of networks that know nothing."""
        most, seconds = 0.6 * float(self.max_seconds or 0.0), 0.0
        fresh, rows = Ensemble([task.posterior() for _ in range(members)]).eval(), torch.arange(len(task.obs))
        for _ in range(2):  # the first time is longer than any later one
            started = time.monotonic()
            where, _ = next(iter(draw_blocks(fresh, task.obs, rows, 16, 0, task.refine)))
            seconds = (time.monotonic() - started) * len(rows) / where.stop * (2 + draws / 16)
        if seconds > most:
            warnings.warn(
                f"To draw will take about {seconds:.0f} s, more than max_seconds={self.max_seconds:g} leaves for it. Give "
                "more time, or ask for fewer draws or for refine=0.",
                DataNotice,
                stacklevel=3,
            )
        return min(seconds, most)

    def _check_parameters(self) -> None:
        if self.method not in METHODS:
            raise InvalidData(f"method must be one of {sorted(METHODS)}, got {self.method!r}.")
        for name in ("max_steps", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float, np.number)) and value > 0):
                raise InvalidData(f"{name} must be a positive number, or None to leave it open, got {value!r}.")
        if self.fill not in FILLS:
            raise InvalidData(f"fill must be one of {', '.join(FILLS)}, got {self.fill!r}.")
        if not isinstance(self.settings, (dict, type(None))):
            raise InvalidData(f"settings must be a dictionary of settings by name, or None, got {self.settings!r}.")
        self._members(1)
        self._refine(None, PAPER, predictive=False)
        self._device()

    def _members(self, features: int) -> int:
        if self.members == "auto":
            return members_for(self.method, features)
        if not isinstance(self.members, (int, np.integer)) or not 1 <= self.members <= 16:  # draws are made 16 at a time
            raise InvalidData(f"members must be 'auto' or a whole number from 1 to 16, got {self.members!r}.")
        return int(self.members)

    def _convolutional(self, obs: Observations) -> ConvArchitecture | None:
        """The convolutional networks to use, where they are to be used."""
        if isinstance(self.architecture, ConvArchitecture):
            if self.architecture.image != (given := image_of(obs.event_shape)):
                raise InvalidData(f"The architecture is for images of {self.architecture.image}, the data are of {given}.")
            return self.architecture
        exact = self.noise is None or not (isinstance(self.noise, str) or np.any(self.noise))
        predictive = self.method == "tae" and not self.settings and self.refine in ("auto", 0)
        network = network_for(self.network, obs.event_shape, predictive)
        if self.architecture is not None or network == "full":
            return None
        paper = self.method == "tae-paper"
        network = "conv" if paper and self.network == "auto" else network
        return conv_architecture(network, obs.event_shape, paper or (self.method == "tae" and exact))

    def _fully_connected(self, samples: int, space: ModelSpace) -> AnyArchitecture:
        """The user's networks, the method's own, or some that suit the data."""
        bounded = space.ends is not None
        chosen = self.architecture or METHODS[self.method].architecture
        chosen = chosen or architecture_for(samples, int(space.modelled.sum()), bounded)
        if isinstance(chosen, Architecture) and chosen.bounded and not bounded:
            raise InvalidData(
                "A bounded architecture needs bounds with both ends, near the data, of at least one column of numbers that "
                f"hardly ever repeat. Say them, such as bounds=(0, 1), or leave `bounded` out; got {self.bounds!r}."
            )
        return chosen

    def _refine(
        self, refine: int | str | None = None, architecture: AnyArchitecture | None = None, predictive: bool | None = None
    ) -> int:
        refine, architecture = self.refine if refine is None else refine, architecture or self.architecture_
        if refine == "auto":
            if predictive is None:  # as the fit was
                predictive = self.posterior_ is not None and self.posterior_.each[0].own_prior
            return refine_for(self.method, architecture, predictive)
        if not isinstance(refine, (int, np.integer)) or not 0 <= refine <= MOST_CANDIDATES:
            raise InvalidData(f"refine must be 'auto' or a whole number from 0 to {MOST_CANDIDATES}, got {refine!r}.")
        if refine and (self.method == "tae-paper" or architecture.decoder_sees):
            raise InvalidData("refine needs p(z), which method 'tae-paper' and decoders that see y have not. Use refine=0.")
        return int(refine)

    def _predicts(self, architecture: AnyArchitecture, space: ModelSpace) -> bool:
        """Whether the posterior is to be trained by what it predicts."""
        posterior = (self.settings or {}).get("posterior", "auto")
        return self.method == "tae" and not architecture.decoder_sees and predicts(posterior, len(space.numbers))

    def _door(self, X: Any, reset: bool) -> tuple[Observations, Container]:
        """The data, checked once, and the container to give results back in."""
        if not reset:
            check_is_fitted(self)
        given = (None, self.kinds, self.missing) if reset else (self.columns_,)
        data, container = open_container(X, *given)
        obs = with_limits(X, as_observations(data, container.names), container, self.limits)
        if not reset and self.columns_ is not None and container.names is not None:
            return matched(obs, container, self.columns_)
        try:  # scikit-learn's own record and check of the number and names of columns
            seen = obs.values.numpy() if container.names is None else container.template
            validate_data(self, seen, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise InvalidData(f"{str(error).strip()} Give the columns that the model was fitted on.") from None
        if reset and not obs.observed.any():
            raise InvalidData("Nothing is observed in the whole table: every entry is missing. Give at least one number.")
        if not reset and tuple(obs.event_shape) != self.space_.event_shape:
            raise InvalidData(
                f"Expected samples of shape {self.space_.event_shape} as at fit, got {tuple(obs.event_shape)}."
            )
        return obs, container

    def _corruption(self, given: Any, space: ModelSpace, columns: Sequence[Column]) -> tuple[Corruption, dict[str, Any]]:
        """The noise in model space, and the method's settings with what follows from it."""
        settings = dict(self.settings or {})
        sure = torch.tensor([column.kind in TEMPORAL for column in columns]) if columns else None
        if isinstance(given, str) and given == "infer":
            if self.method != "tae-paper":
                raise InvalidData(f"noise='infer' belongs to method 'tae-paper', got {self.method!r}. Use noise='learn'.")
            return recording(1.0, space, sure), {**settings, "infer_noise": True}  # the level comes from q(beta|z,y)
        return recording(given, space, sure), settings

    def _fill(
        self,
        out: np.ndarray,
        obs: Observations,
        container: Container,
        rows: Tensor,
        blocks: Any,
        seed: int,
        central: bool = False,
    ) -> None:
        """Write into `out` (draws, samples, *event), some rows at a time: what is known, and what the model says.

        blocks: draw_blocks or mean_blocks, given (posterior, observations, keys of rows). central: what the draws of
        a block have in common instead of the draws.
        """
        height = max(1, observations.AT_ONCE // obs.event_shape.numel())
        exact = self._exact()
        for start in range(0, len(obs), height):
            part, target = obs[start : start + height], out[:, start : start + height]
            entered = self.space_.enter(part)
            target[:] = container.reorder(self.space_.leave(entered.values, part, exact).numpy())
            open_ = ~(entered.observed[:, : len(exact)] & exact) | part.within().flatten(1).any(1)[:, None]
            todo = (
                (open_.any(1) | ~entered.observed[:, len(exact) :].all(1)).nonzero().flatten()
            )  # rows that need the model
            keys = rows[start : start + height][todo]
            for where, values in blocks(self.posterior_, entered[todo], keys):
                drawn, given = (values if values.ndim == 3 else values[None]).cpu(), part[todo[where]]
                if central:
                    clean = self.space_.leave(drawn, given, exact)
                    if values.ndim == 3:
                        fill_gaps(self.support_gaps_, clean, given.observed, keys[where], seed)
                    else:
                        fill_gaps_with_means(self.support_gaps_, clean[0], given.observed)
                    said = clean.numpy()
                    centre = torch.from_numpy(middle(said, self.columns_, self.fill == "median"))
                    if self.columns_ is not None:
                        centre = torch.where(given.observed, centre, self.space_.possible(centre))
                    target[0, todo[where].numpy()] = container.reorder(centre.numpy())
                    continue
                for first in range(0, len(drawn), 16):  # a few draws at a time: in double precision they take much more
                    clean = self.space_.leave(drawn[first : first + 16], given, exact)
                    fill_gaps(self.support_gaps_, clean, given.observed, keys[where], seed, first)
                    target[first : first + 16, todo[where].numpy()] = container.reorder(clean.numpy())

    @contextmanager
    def _drawing(self, label: str, rows: int, blocks: Any) -> Iterator[Any]:
        """Inside, small models draw by one thread; gives `blocks`, whose rows are counted for the lines of progress."""
        images = isinstance(self.architecture_, ConvArchitecture)
        entries = None if images else DEFAULT_TRAINING.batch_size * self.space_.features
        with one_thread(entries), counting(self.verbose > 0, label, rows) as add:

            def counted(*given: Any) -> Iterator[tuple[slice, Tensor]]:
                for where, values in blocks(*given):
                    yield where, values
                    add(where.stop - where.start)

            yield counted

    def _held_out(
        self, split: Split, clean: Tensor, noise: Corruption, obs: Observations, container: Container
    ) -> HeldOut | None:
        """The cells that training held out, in the user's units, with draws of what would be observed there.

        Where draws are recalibrated, those of half of the rows are by the widths that the other half asks for.
        """
        rows, wider = split.rows.cpu(), clean.clone()
        hidden = self.space_.entries(split.held.observed.cpu()) & obs.observed[rows]
        given = obs[rows].only(~hidden)

        def cells(x: Tensor) -> np.ndarray:
            exact, each = self._exact(), split.observed(x, noise)
            drawn = [self.space_.leave(y[None], given, exact, noisy=True)[0][hidden] for y in each]
            return torch.stack(drawn).double().numpy()

        for half in () if self.widths_ is None else (rows % 2 == 0, rows % 2 == 1):
            factors, mean = widths(split, clean, noise, self.space_.fine, ~half), clean[:, half].mean(0)
            wider[:, half] = mean + factors * (clean[:, half] - mean)
        where, columns = hidden.flatten(1).nonzero().T.numpy()
        places = rows.numpy()[where]
        if isinstance(self.architecture_, ConvArchitecture):  # images are large: only those with pixels held out are kept
            obs, places = obs[rows], where
        seen = np.where(obs.observed, obs.values, np.nan).reshape(len(obs), -1).astype(float)
        values = seen[places, columns]
        seen[places, columns] = np.nan
        plain = None if self.widths_ is None else cells(clean)
        held = HeldOut(places, columns, values, cells(wider), seen, container.columns, plain)
        return held if is_image(obs.event_shape) else held.judged()  # of pixels those beside them say something

    def _exact(self) -> Tensor:
        """Which modelled entries are observed without noise, (features,)."""
        if self.posterior_ is None:
            return torch.ones(0, dtype=torch.bool)
        return self.posterior_.exact.cpu().expand(self.space_.features)[: len(self.space_.numbers)]

    def _noise_in_units(self) -> Any:
        if self.posterior_ is None:
            return 0.0 if self.noise is None else self.noise if not isinstance(self.noise, str) else None
        noise = self.posterior_.noise
        if noise is None:
            return None
        levels = torch.zeros(len(self.space_.modelled)).double()
        numbers = self.space_.numbers
        levels[numbers] = noise.cpu().expand(self.space_.features)[: len(numbers)] * self.space_.scale
        found = levels[numbers] if len(numbers) else levels[:1]
        if torch.allclose(found, found[0], rtol=1e-5, atol=0):
            return float(found[0])
        return levels.reshape(self.space_.event_shape).numpy()

    def _noise_law(self) -> tuple[float, float] | None:
        corruptions = [] if self.posterior_ is None else [member.corruption for member in self.posterior_.each]
        found = [(c.std.mean(), c.growth.mean()) for c in corruptions if isinstance(c, GrowingNoise)]
        if not found:
            return None
        level, growth = (float(torch.stack(part).mean()) for part in zip(*found, strict=True))
        scale = float(self.space_.scale[0])
        return level * scale, growth / scale

    def _device(self) -> torch.device:
        gpu = torch.cuda.is_available()
        if self.device == "auto":
            return torch.device("cuda" if gpu else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InvalidData(f"device must be 'auto', 'cpu', 'cuda' or the like, got {self.device!r}.") from None
        if device.type == "cuda" and not gpu:
            raise InvalidData(f"device {self.device!r} was asked for, but there is no GPU here. Use 'auto' or 'cpu'.")
        return device


def _warn_of_gaps(gaps: Sequence[SupportGap], columns: Sequence[Column]) -> None:
    """A notice, to the caller's caller, of missing cells about which the data say nothing."""
    if gaps:
        listed = describe_gaps(gaps, columns)
        warnings.warn(
            f"{'; '.join(listed[:5])}{' and others' if len(listed) > 5 else ''}: these cells are filled from the rows "
            "nearest to that edge, which the data can neither support nor refute. Leave out what does not apply there.",
            DataNotice,
            stacklevel=3,
        )


def _warn_of_untold_noise(untold: Tensor, space: ModelSpace, columns: Sequence[Column]) -> None:
    """A notice, to the caller's caller, of columns whose noise was to be learned and cannot be told."""
    entries = space.numbers[untold.expand(space.features)[: len(space.numbers)]].tolist()
    if entries:
        names = [columns[i].name if columns else i for i in entries]
        warnings.warn(
            f"The noise of {', '.join(map(repr, names[:10]))} cannot be told from the column's own spread, as others "
            "explain less than half of it: observed cells are left as they are. If you know the level, give "
            f"noise={{{names[0]!r}: 0.1, ...}} (--noise '{names[0]}=0.1,...').",
            DataNotice,
            stacklevel=3,
        )


def _say_how_it_ended(task: Task) -> None:
    """A notice, to the caller's caller, where training was cut short."""
    taken = sum(history.steps[-1] for history in task.histories if history.steps)
    late = any(history.ended.startswith("out of time") for history in task.histories)
    if task.interrupted:
        warnings.warn("Training was interrupted: what it had reached is kept.", DataNotice, stacklevel=3)
    elif task.simple:
        said = (
            f"Networks predict held-out cells worse than {task.simple}, which is given in their place: expect wide "
            f"intervals. They took {taken} steps{'; give max_seconds more' if late else ''}."
        )
        warnings.warn(said, DataNotice, stacklevel=3)
    elif late and taken < FEW_STEPS:
        said = f"Time was up after {taken} steps: after fewer than {FEW_STEPS} draws mean little. Give max_seconds more."
        warnings.warn(said, DataNotice, stacklevel=3)
