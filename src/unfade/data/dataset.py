"""Dataset: data read and encoded once: observations, columns, and the container for results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from unfade.data.columns import Column, Missing
from unfade.data.containers import Container, open_container, take
from unfade.data.encoder import FeatureEncoder
from unfade.data.observations import Observations, as_observations
from unfade.data.options import DetectionLimits, with_detection_limits


@dataclass(frozen=True)
class Dataset:
    """Observations (samples, *event), NaN read as missing, with their container."""

    obs: Observations
    container: Container
    _encoded: list[tuple[FeatureEncoder, Observations]] = field(default_factory=list, repr=False, compare=False)

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
        return bool(observed.all()) and not bool(self.obs.within().any())

    def __len__(self) -> int:
        return len(self.obs)

    def of(self, obs: Observations) -> "Dataset":
        """Return the dataset with other observations of its rows and columns."""
        return self if obs is self.obs else Dataset(obs, self.container)

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
        return Dataset(self.obs[index], container, [(encoder, entered[index]) for encoder, entered in self._encoded])

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
    return Dataset(with_detection_limits(X, as_observations(data, container.names), container, detection_limits), container)
