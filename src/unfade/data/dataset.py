"""Dataset: data read once: observations, columns, and the container for results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unfade.data.columns import Column, Missing
from unfade.data.containers import Container, open_container
from unfade.data.observations import Observations, as_observations
from unfade.data.options import DetectionLimits, with_detection_limits


@dataclass(frozen=True)
class Dataset:
    """Observations (samples, *event), NaN read as missing, with their container."""

    obs: Observations
    container: Container

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a frame; empty for plain arrays."""
        return self.container.columns or ()

    def __len__(self) -> int:
        return len(self.obs)


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
    X : array, tensor or frame, (samples, *event)
    columns : sequence of Column or None
        Columns of an earlier frame, whose kinds and categories are kept; None: they are inferred.
    kinds, missing, detection_limits : as in `Recoverer`

    Returns
    -------
    Dataset
    """
    data, container = open_container(X, columns, kinds, missing)
    return Dataset(with_detection_limits(X, as_observations(data, container.names), container, detection_limits), container)
