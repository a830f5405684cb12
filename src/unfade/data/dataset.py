"""Dataset: data read and encoded once: observations, columns, and the container for results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from unfade.data.columns import Column, Missing
from unfade.data.constraints import Constraints
from unfade.data.containers import Container, materialised, open_container, take
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations, as_observations
from unfade.data.options import DetectionLimits, with_detection_limits
from unfade.data.timeline import Timeline
from unfade.errors import InvalidData


@dataclass(frozen=True)
class Dataset:
    """Observations (samples, *event), NaN read as missing, with their container.

    deduced: cells that follow from observed ones by a constraint, and count as observed; closed: cells that must stay
    empty; both (samples, columns), None if there are none. timeline: when rows were, if they are steps of series.
    """

    obs: Observations
    container: Container
    _encoded: list[tuple[FeatureEncoder, Observations]] = field(default_factory=list, repr=False, compare=False)
    deduced: torch.Tensor | None = None
    closed: torch.Tensor | None = None
    timeline: Timeline | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a frame; empty for plain arrays."""
        return self.container.columns or ()

    @property
    def complete(self) -> bool:
        """Whether every cell holds a value, and one that is known exactly."""
        observed = self.obs.observed
        if (present := self.container.present()) is not None:
            unused = torch.tensor([column.kind == "passthrough" for column in self.columns])
            observed = torch.where(unused, torch.from_numpy(present), observed)
        if self.closed is not None:
            observed = observed | self.closed
        return bool(observed.all()) and not bool(self.obs.within().any()) and self.deduced is None

    @property
    def observed(self) -> torch.Tensor:
        """Cells that were given, (samples, *event)."""
        return self.obs.observed if self.deduced is None else self.obs.observed & ~self.deduced

    def __len__(self) -> int:
        return len(self.obs)

    def of(self, obs: Observations) -> "Dataset":
        """Return the dataset with other observations of its rows and columns."""
        return self if obs is self.obs else replace(self, obs=obs, _encoded=[])

    def constrained(self, constraints: Constraints, exact: bool) -> "Dataset":
        """Fill cells that follow from observed ones, and mark those that do not apply. exact: no cell carries noise."""
        if not constraints:
            return self
        obs = self.obs
        known = obs.observed & ~obs.within()
        values = torch.where(known, obs.values.double(), torch.nan).numpy()
        deduced = torch.from_numpy(constraints.deduce(values, exact)) & ~obs.observed
        closed = torch.from_numpy(constraints.closed(values)) & ~obs.observed
        filled = torch.from_numpy(values).to(obs.values.dtype)
        first, observed, *ends = obs.parts()
        parts = [torch.where(deduced, filled, first), observed | deduced, *(torch.where(deduced, filled, e) for e in ends)]
        return replace(self, obs=Observations(*parts), _encoded=[], deduced=deduced if deduced.any() else None).close(
            closed
        )

    def close(self, cells: torch.Tensor) -> "Dataset":
        """Return the dataset with more cells that must stay empty; those that hold a value are not."""
        cells = cells & ~self.obs.observed
        closed = cells if self.closed is None else self.closed | cells
        return replace(self, closed=closed) if bool(closed.any()) else self

    def fill_only(self, where: Any) -> "Dataset":
        """Return the dataset in which of the missing cells only those marked True are filled, (samples, columns)."""
        if where is None:
            return self
        shape, back = tuple(self.container.event_shape(self.obs)), self.container.back
        mask = _mask(where, self.container)
        if mask.shape != (len(self), *shape):
            raise InvalidData(f"where must be a mask of shape {(len(self), *shape)}, got {mask.shape}.")
        if back is not None:
            inside = np.ones(tuple(self.obs.values.shape), bool)
            inside[:, back[back >= 0]] = mask[:, back >= 0]
            mask = inside
        empty = torch.from_numpy(~mask)
        obs = self.obs if self.deduced is None else self.obs.only(~(self.deduced & empty))
        return self.of(obs).close(empty)

    def features(self, encoder: FeatureEncoder) -> Observations:
        """Encode the rows as features (samples, features) in model space, once per encoder."""
        if (kept := self._kept(encoder)) is not None:
            return kept
        self._encoded[:] = [(encoder, encoder.enter(self.obs))]
        return self._encoded[0][1]

    def some_features(self, encoder: FeatureEncoder, rows: slice) -> Observations:
        """Encode some rows as features, or take them from the features of all rows."""
        kept = self._kept(encoder)
        return encoder.enter(self.obs[rows]) if kept is None else kept[rows]

    def rows(self, which: np.ndarray) -> "Dataset":
        """Select rows by their numbers, with their features if these are encoded."""
        index, frame = torch.from_numpy(which), self.container.template
        container = replace(self.container, template=frame if frame is None else take(frame, which))
        encoded = [(encoder, entered[index]) for encoder, entered in self._encoded]
        deduced, closed = (mask if mask is None else mask[index] for mask in (self.deduced, self.closed))
        timeline = self.timeline and self.timeline.rows(which)
        return Dataset(self.obs[index], container, encoded, deduced, closed, timeline)

    def hide(self, hidden: np.ndarray) -> Observations:
        """Remove the cells `hidden`, (samples, columns) in the user's order of columns, from the observations."""
        back = self.container.back
        if back is None:
            return self.obs.only(~torch.from_numpy(hidden))
        seen = torch.ones(self.obs.values.shape, dtype=torch.bool)
        seen[:, torch.from_numpy(back[back >= 0])] = ~torch.from_numpy(hidden[:, back >= 0])
        return self.obs.only(seen)

    def table(self) -> np.ndarray:
        """Return the cells as numbers (samples, *event), NaN for missing ones, in the user's order of columns."""
        return self.container.reorder(np.where(self.obs.observed, self.obs.values, np.nan).astype(float))

    def given(self) -> Any:
        """Return the frame or tensor that was read, or an array with NaN for missing cells."""
        frame = self.container.template
        return self.table().astype(self.container.dtype, copy=False) if frame is None else frame

    def missing_in(self, table: Any) -> np.ndarray:
        """Find the cells of a table like this one that are missing, (samples, columns) in the user's order."""
        frame, _ = materialised(table)
        there = replace(self.container, template=frame).present()
        return np.isnan(np.asarray(table, dtype=float)) if there is None else ~there

    def _kept(self, encoder: FeatureEncoder) -> Observations | None:
        return next((entered for known, entered in self._encoded if known is encoder), None)


def read(
    X: Any,
    columns: Sequence[Column] | None = None,
    kinds: dict[str, str] | None = None,
    missing: Missing | None = None,
    detection_limits: DetectionLimits | None = None,
) -> Dataset:
    """Read data of any kind.

    Parameters
    ----------
    X : array, tensor, frame or Dataset, (samples, *event)
        A Dataset is returned unchanged.
    columns : sequence of Column or None
        Columns of an earlier frame, whose kinds and categories are kept; None: they are inferred.
    kinds, missing, detection_limits : as in `Recoverer`

    Returns
    -------
    Dataset
    """
    if isinstance(X, Dataset):
        return X
    data, container = open_container(X, columns, kinds, missing)
    frame = X if container.columns is None else container.template
    return Dataset(
        with_detection_limits(frame, as_observations(data, container.names), container, detection_limits), container
    )


def _mask(where: Any, container: Container) -> np.ndarray:
    """Convert a mask of cells, an array or a frame with the columns of the data, to booleans."""
    frame, _ = materialised(where)
    if container.template is not None and container.columns is not None and not isinstance(frame, np.ndarray):
        import narwhals as nw

        if nw.dependencies.is_into_dataframe(frame):
            named = nw.from_native(frame, eager_only=True)
            names = list(container.names or ())
            if set(named.columns) != set(names):
                raise InvalidData(f"where must have the columns of the data, {names[:10]}, got {named.columns[:10]}.")
            frame = np.stack([named[name].to_numpy() for name in names], 1)
    found = np.asarray(frame)
    if found.dtype == object or found.dtype.kind in "US":
        found = np.isin(np.char.lower(found.astype(str)), ["1", "true", "yes", "1.0"])
    if found.dtype != bool and not np.isin(found, [0, 1]).all():
        raise InvalidData("where must hold True (may be filled) and False (stays empty), got other values.")
    return found.astype(bool)
