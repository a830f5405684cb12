"""FittedModel: the result of a fit, which turns rows into draws of their clean values."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfade import storage
from unfade.corruption.growing_noise import GrowingNoise
from unfade.data import observations
from unfade.data.columns import Column
from unfade.data.constraints import Constraints
from unfade.data.dataset import Dataset, read
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations
from unfade.data.options import matched
from unfade.data.support_gaps import SupportGap, fill_gaps, fill_gaps_with_means
from unfade.data.timeline import Clock
from unfade.errors import InvalidData
from unfade.inference.draws import Draws, middle
from unfade.inference.held_out import HeldOut
from unfade.inference.sampling import draw_blocks, mean_blocks
from unfade.methods.parameters import Parameters
from unfade.methods.registry import DEFAULT_TRAINING
from unfade.models.architectures import AnyArchitecture, of_images
from unfade.models.latent_variable import Ensemble
from unfade.models.series import series_blocks
from unfade.training.loop import History
from unfade.training.progress import counting
from unfade.training.threads import one_thread

Blocks = Callable[..., Iterator[tuple[slice | Tensor, Tensor]]]


@dataclass(frozen=True)
class FittedModel:
    """A posterior, and everything needed to give its draws in the user's units.

    Parameters
    ----------
    parameters : Parameters
        What the user asked for; `fill`, `n_candidates`, `detection_limits`, `device` and `verbose` also affect draws.
    encoder : FeatureEncoder
        Entries of the data as features of the posterior.
    columns : tuple of Column or None
        Columns of the frame that was fitted on; None for arrays.
    posterior : Ensemble or None
        None if no entry varies.
    architecture : Architecture, ConvArchitecture or FlowArchitecture
    seed : int
        Seed of the fit.
    calibration : Tensor, (features,), or None
        Calibration scale of each feature (split conformal); None: draws are not scaled.
    support_gaps : tuple of SupportGap
        Missing cells outside the support of the observed ones.
    histories : tuple of History
        One per stage of training.
    held_out : HeldOut or None
        Observed cells that training held out, with draws; None if it held out none.
    feature_names : tuple of str
        Names of the columns that scikit-learn has seen.
    clock : Clock or None
        Step and seasons of the series whose steps the rows are; None: rows are exchangeable.
    """

    parameters: Parameters
    encoder: FeatureEncoder
    columns: tuple[Column, ...] | None
    posterior: Ensemble | None
    architecture: AnyArchitecture
    seed: int
    calibration: Tensor | None = None
    support_gaps: tuple[SupportGap, ...] = ()
    histories: tuple[History, ...] = ()
    held_out: HeldOut | None = None
    feature_names: tuple[str, ...] = ()
    clock: Clock | None = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended training."""
        return any(history.interrupted for history in self.histories)

    @property
    def image(self) -> bool:
        """Whether samples have two axes or more."""
        return len(self.encoder.event_shape) > 1

    @cached_property
    def noise(self) -> Any:
        """Noise level in the units of the data: one number if all columns share it, else one per column."""
        if self.posterior is None:
            given = self.parameters.noise
            return 0.0 if given is None else given if not isinstance(given, (str, dict)) else None
        found = self.posterior.noise
        if found is None:
            return None
        numbers, levels = self.encoder.numbers, torch.zeros(len(self.encoder.modelled)).double()
        levels[numbers] = found.cpu().expand(self.encoder.features)[: len(numbers)] * self.encoder.scale
        some = levels[numbers] if len(numbers) else levels[:1]
        if torch.allclose(some, some[0], rtol=1e-5, atol=0):
            return float(some[0])
        return levels.reshape(self.encoder.event_shape).numpy()

    @cached_property
    def noise_law(self) -> tuple[float, float] | None:
        """a and b of sd = a + b x^2, if noise grows with the value; else None."""
        corruptions = [] if self.posterior is None else [member.corruption for member in self.posterior.each]
        found = [(c.std.mean(), c.growth.mean()) for c in corruptions if isinstance(c, GrowingNoise)]
        if not found:
            return None
        level, growth = (float(torch.stack(part).mean()) for part in zip(*found, strict=True))
        scale = float(self.encoder.scale[0])
        return level * scale, growth / scale

    @cached_property
    def constraints(self) -> Constraints:
        """Constraints between the columns, which every draw meets."""
        return Constraints.bind(self.columns, self.encoder.event_shape, **self.parameters.constraints())

    @property
    def n_candidates(self) -> int:
        """Number of proposals per draw (sampling-importance-resampling)."""
        return self._candidates(None)

    def with_options(self, **options: Any) -> "FittedModel":
        """Return the model with other values of `fill`, `n_candidates`, `detection_limits`, `device` or `verbose`.

        Parameters
        ----------
        **options
            Their new values.

        Returns
        -------
        FittedModel
        """
        parameters = replace(self.parameters, **options)
        return self if parameters == self.parameters else replace(self, parameters=parameters)

    def read(self, X: Any, where: Any = None) -> Dataset:
        """Read data for the model: columns are matched by name, and categories are those of the fit.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        where : mask or None, (samples, *event)
            Missing cells that may be filled; the others stay empty. None: all.

        Returns
        -------
        Dataset
        """
        if isinstance(X, Dataset):
            return X.fill_only(where)
        marks = self.parameters.missing if self.columns is None else None  # of frames, their columns have them
        data = read(X, self.columns, missing=marks, detection_limits=self.parameters.detection_limits)
        if self.columns is not None and data.container.names is not None:
            data = Dataset(*matched(data.obs, data.container, self.columns))
        elif tuple(data.obs.event_shape) != self.encoder.event_shape:
            there = tuple(data.obs.event_shape)
            raise InvalidData(f"Expected samples of shape {self.encoder.event_shape} as at fit, got {there}.")
        data = data if self.clock is None else self.parameters.timed(data, self.clock)
        return data.constrained(self.constraints, self.parameters.exact).fill_only(where)

    def transform(self, X: Any, row_ids: Sequence[int] | None = None, where: Any = None) -> Any:
        """Fill and clean data as `fill` says: by the posterior mean, the median or one draw.

        Parameters
        ----------
        X : array, tensor or frame, (samples, *event)
        row_ids : sequence of int or None
            Numbers of the rows, on which a draw that fills cells depends.
        where : mask or None, (samples, *event)
            Missing cells that may be filled; the others stay empty. None: all.

        Returns
        -------
        array, tensor or frame, (samples, *event)
        """
        fill = self.parameters.fill
        if fill == "draw":
            return self.sample(X, 1, row_ids=row_ids, where=where)[0]
        data = self.read(X, where)
        means = np.empty((len(data), *data.container.event_shape(data.obs)))
        rows = torch.zeros(len(data), dtype=torch.long)  # one set of random numbers for all rows: subsets agree
        # Where features are not straight scales of entries, means are those of draws.
        blocks: Blocks = partial(
            mean_blocks if self.encoder.straight and fill == "mean" else draw_blocks,
            seed=self.seed, n_candidates=self.n_candidates,
            draws=16 if of_images(self.architecture) else 100,
        )  # fmt: skip
        if data.timeline is not None:
            draws = 0 if self.encoder.straight and fill == "mean" else 64
            blocks = partial(series_blocks, draws=draws, seed=self.seed, timeline=data.timeline, widths=self.calibration)
            rows = torch.arange(len(data))
        with self._counted("filling", len(data), blocks) as counted:
            self._fill(means[None], data, rows, counted, self.seed, central=True)
        return data.container.wrap(means)

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

        Parameters
        ----------
        X, n_draws, n_candidates, seed, row_ids, out, where : as in `Recoverer.sample`

        Returns
        -------
        Draws
        """
        data = self.read(X, where)
        if not isinstance(n_draws, (int, np.integer)) or n_draws < 1:
            raise InvalidData(f"n_draws must be an integer of at least 1, got {n_draws!r}.")
        rows = torch.as_tensor(np.array(range(len(data)) if row_ids is None else row_ids))
        if rows.shape != (len(data),) or rows.is_floating_point():
            raise InvalidData(f"row_ids must hold one integer per row ({len(data)}), got {row_ids!r}.")
        if seed is not None and not (isinstance(seed, (int, np.integer)) and 0 <= seed < 2**63):
            raise InvalidData(f"seed must be an integer of at least 0, got {seed!r}.")
        container, obs = data.container, data.obs
        seed, shape = self.seed if seed is None else int(seed), (n_draws, len(obs), *container.event_shape(obs))
        draws = np.empty(shape, container.dtype) if out is None else out
        if draws.shape != shape or not np.issubdtype(draws.dtype, np.floating):
            raise InvalidData(f"out must hold floating-point numbers of shape {shape}, got {draws.dtype} {draws.shape}.")
        drawn: Blocks = partial(
            draw_blocks, draws=n_draws, seed=seed, n_candidates=self._candidates(n_candidates), widths=self.calibration
        )
        if data.timeline is not None:
            drawn = partial(series_blocks, draws=n_draws, seed=seed, timeline=data.timeline, widths=self.calibration)
        with self._counted("drawing", len(obs), drawn) as counted:
            self._fill(draws, data, rows, counted, seed)
        seen = container.reorder(data.observed.numpy().astype(float)) == 1
        return Draws(draws, container, seen, data.table() if data.deduced is None else np.where(seen, data.table(), np.nan))

    @property
    def exact(self) -> Tensor:
        """Which numbers are observed without noise, (numbers,)."""
        if self.posterior is None:
            return torch.ones(0, dtype=torch.bool)
        return self.posterior.exact.cpu().expand(self.encoder.features)[: len(self.encoder.numbers)]

    def fingerprint(self) -> str:
        """Hash everything that draws depend on; the hash is equal before saving and after loading.

        Returns
        -------
        str
        """
        state = {} if self.posterior is None else dict(sorted(self.posterior.state_dict().items()))
        chosen, detection_limits = self.parameters, json.dumps(self.parameters.detection_limits, sort_keys=True)
        gaps = [(gap.column, gap.other, gap.sign, gap.edge, gap.donors) for gap in self.support_gaps]
        device = chosen.torch_device().type
        return storage.digest(
            chosen.method,
            detection_limits,
            device,
            self.seed,
            self.columns,
            self.encoder,
            self.calibration,
            tuple(gaps),
            state,
        )

    def _candidates(self, n_candidates: int | str | None) -> int:
        """Decide the number of proposals per draw."""
        predictive = self.posterior is not None and self.posterior.each[0].own_prior
        return self.parameters.candidates_to_use(self.architecture, predictive, n_candidates)

    def _fill(self, out: np.ndarray, data: Dataset, rows: Tensor, blocks: Blocks, seed: int, central: bool = False) -> None:
        """Write known and drawn values into `out` (draws, samples, *event), some rows at a time.

        blocks: draw_blocks or mean_blocks, given (posterior, observations, keys of rows). central: the mean or median
        of the draws of a block instead of the draws.
        """
        height, exact, container = max(1, observations.AT_ONCE // data.obs.event_shape.numel()), self.exact, data.container
        height = height if data.timeline is None else len(data)  # a step depends on all others
        for start in range(0, len(data), height):
            part, target = data.obs[start : start + height], out[:, start : start + height]
            entered = data.some_features(self.encoder, slice(start, start + height))
            settle = self._settler(data, slice(start, start + height), exact)
            target[:] = container.reorder(settle(self.encoder.leave(entered.values, part, exact)[None].numpy()))
            todo = _to_model(entered, part, exact) if data.timeline is None else torch.arange(len(part))
            keys = rows[start : start + height][todo]
            for where, values in blocks(self.posterior, entered[todo], keys):
                drawn, given = (values if values.ndim == 3 else values[None]).cpu(), part[todo[where]]
                at = todo[where].numpy()
                if central:
                    clean = self.encoder.leave(drawn, given, exact)
                    if values.ndim == 3:
                        fill_gaps(self.support_gaps, clean, given.observed, keys[where], seed)
                    else:
                        fill_gaps_with_means(self.support_gaps, clean[0], given.observed)
                    target[0, at] = container.reorder(settle(self._middle(clean, given.observed)[None], at)[0])
                    continue
                for first in range(0, len(drawn), 16):  # a few draws at a time: in double precision they take much more
                    clean = self.encoder.leave(drawn[first : first + 16], given, exact)
                    fill_gaps(self.support_gaps, clean, given.observed, keys[where], seed, first)
                    target[first : first + 16, at] = container.reorder(settle(clean.numpy(), at))

    def _settler(self, data: Dataset, rows: slice, exact: Tensor) -> Callable[..., np.ndarray]:
        """Make a function that lets values (draws, rows, columns) of some rows meet the constraints, in place."""
        if not self.constraints and data.closed is None:
            return lambda values, at=None: values
        fixed = self.encoder.untouched(data.obs[rows], exact).numpy()
        if self.constraints:
            fixed = fixed & self.constraints.exact(self.encoder.kept(exact).numpy())
        closed = np.zeros_like(fixed) if data.closed is None else data.closed[rows].numpy()

        def settle(values: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
            self.constraints.settle(values, fixed[at])
            values[:, closed[at]] = np.nan
            return values

        return settle

    def _middle(self, draws: Tensor, observed: Tensor) -> np.ndarray:
        """Compute the mean or median of draws; in frames missing cells get a value that their column can hold."""
        centre = torch.from_numpy(middle(draws.numpy(), self.columns, self.parameters.fill == "median"))
        if self.columns is not None:
            centre = torch.where(observed, centre, self.encoder.possible(centre))
        return centre.numpy()

    @contextmanager
    def _counted(self, label: str, rows: int, blocks: Blocks) -> Iterator[Blocks]:
        """Restrict small models to one thread inside, and give `blocks` with progress."""
        images = of_images(self.architecture)
        entries = None if images else DEFAULT_TRAINING.batch_size * self.encoder.features
        with one_thread(entries), counting(self.parameters.verbose > 0, label, rows) as add:

            def counted(*given: Any) -> Iterator[tuple[slice | Tensor, Tensor]]:
                """Give the blocks, and count their rows."""
                for where, values in blocks(*given):
                    yield where, values
                    add(where.stop - where.start if isinstance(where, slice) else len(where))

            yield counted


def _to_model(entered: Observations, part: Observations, exact: Tensor) -> Tensor:
    """Find the rows that need the model: all of their cells are not known."""
    open_ = ~(entered.observed[:, : len(exact)] & exact) | part.within().flatten(1).any(1)[:, None]
    return (open_.any(1) | ~entered.observed[:, len(exact) :].all(1)).nonzero().flatten()
