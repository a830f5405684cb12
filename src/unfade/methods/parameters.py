"""Parameters: what the user asks for, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch

from unfade.corruption.simulated import steps_of
from unfade.data.columns import Missing
from unfade.data.constraints import Applicable, Constraints, Derived, Order, Sums, parse_constraints
from unfade.data.dataset import Dataset, read
from unfade.data.options import Bounds, DetectionLimits
from unfade.data.timeline import Clock, read_timeline
from unfade.errors import InvalidData
from unfade.methods.flow import ENTRIES
from unfade.methods.registry import METHODS, candidates_for, members_for
from unfade.models.architectures import PAPER, AnyArchitecture, is_image
from unfade.training.loop import TrainingConfig

FILLS = ("mean", "median", "draw")
MOST_CANDIDATES = 10_000  # that a draw is chosen from


@dataclass(frozen=True)
class Parameters:
    """The parameters of `Recoverer`, where each is described."""

    method: str = "auto"
    noise: Any = None
    corruption: Any = None
    kinds: dict[str, str] | None = None
    missing: Missing | None = None
    fill: str = "mean"
    bounds: Bounds | None = None
    detection_limits: DetectionLimits | None = None
    applicable: Applicable | None = None
    derived: Derived | None = None
    sums: Sums | None = None
    order: Order | None = None
    time: str | None = None
    panel: tuple[str, ...] | None = None
    scaling: str | None = "auto"
    network: str = "auto"
    n_members: int | str = "auto"
    calibrate: bool = True
    n_candidates: int | str = "auto"
    max_steps: int | None = None
    max_seconds: float | None = None
    architecture: AnyArchitecture | None = None
    training: TrainingConfig | None = None
    settings: dict[str, Any] | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 1

    def check(self) -> None:
        """Refuse what no data could make right, in a sentence."""
        if self.corruption is not None:
            steps_of(self.corruption)
            if self.method != "flow" or self.noise is not None:
                raise InvalidData(
                    "corruption= needs method='flow', and noise among its steps, such as corruption=[Blurred(1.5), "
                    f"Gaussian(0.1)]; got method={self.method!r}, noise={self.noise!r}."
                )
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
        if self.panel is not None and self.time is None:
            raise InvalidData(f"panel needs time, the column of times; got panel={self.panel!r} without it.")
        if self.time is not None:
            self._check_series()
        parse_constraints(*self.constraints().values())
        self.members_to_train(1)
        self.candidates_to_use(PAPER, predictive=False)
        self.torch_device()

    def _check_series(self) -> None:
        """Refuse what has no meaning for series, in a sentence."""
        if self.method != "auto":
            raise InvalidData(f"time is for the default method, got method={self.method!r}. Leave method out.")
        if isinstance(self.noise, str) and self.noise == "learn-by-value":
            raise InvalidData("time= learns one noise level per column: give noise='learn' in place of 'learn-by-value'.")
        if self.detection_limits:
            raise InvalidData("time= does not take detection limits. Leave one of the two out.")
        unused = ("max_steps", "architecture", "training", "settings")
        if given := [name for name in unused if getattr(self, name) is not None]:
            raise InvalidData(f"With time= {given[0]} has no effect, as no networks are trained. Leave it out.")
        if given := [name for name in ("network", "n_members", "n_candidates") if getattr(self, name) not in ("auto", 0)]:
            raise InvalidData(f"With time= {given[0]} has no effect, as no networks are trained. Leave it out.")

    @property
    def exact(self) -> bool:
        """Whether observed cells are clean."""
        return self.noise is None and self.corruption is None

    def constraints(self) -> dict[str, Any]:
        """The constraints between columns, by name."""
        return {name: getattr(self, name) for name in ("applicable", "derived", "sums", "order")}

    def read(self, X: Any) -> Dataset:
        """Read data to fit on, or to see what there is to recover; what follows from constraints is not missing."""
        if isinstance(X, Dataset):
            return X
        data = self.timed(read(X, None, self.kinds_given(), self.missing, self.detection_limits))
        return data.constrained(self.bound(data), self.exact)

    def series_columns(self) -> tuple[str, ...]:
        """Name the columns of the panel."""
        return (self.panel,) if isinstance(self.panel, str) else tuple(self.panel or ())

    def kinds_given(self) -> dict[str, str] | None:
        """Give the kinds of columns, those of time and panel included: no model sees them."""
        if self.time is None:
            return self.kinds
        return {**(self.kinds or {}), **dict.fromkeys((self.time, *self.series_columns()), "passthrough")}

    def timed(self, data: Dataset, clock: Clock | None = None) -> Dataset:
        """Give the dataset with the timeline of its rows, if they are steps of series."""
        if self.time is None:
            return data
        return replace(data, timeline=read_timeline(data.container, self.time, self.series_columns(), clock))

    def bound(self, data: Dataset) -> Constraints:
        """The constraints, bound to the columns of data."""
        return Constraints.bind(data.container.columns, data.obs.event_shape, **self.constraints())

    def members_to_train(self, features: int, stacked: bool = False) -> int:
        """How many ensemble members to train for data of so many features; stacked: together with models of other kinds."""
        if self.n_members == "auto":
            return members_for(self.method, features, stacked)
        if (
            not isinstance(self.n_members, (int, np.integer)) or not 1 <= self.n_members <= 16
        ):  # draws are made 16 at a time
            raise InvalidData(f"n_members must be 'auto' or an integer from 1 to 16, got {self.n_members!r}.")
        return int(self.n_members)

    def candidates_to_use(
        self, architecture: AnyArchitecture, predictive: bool, n_candidates: int | str | None = None
    ) -> int:
        """How many proposals a draw is resampled from; n_candidates: in place of the parameter."""
        n_candidates = self.n_candidates if n_candidates is None else n_candidates
        if n_candidates == "auto":
            return candidates_for(self.method, architecture, predictive)
        if not isinstance(n_candidates, (int, np.integer)) or not 0 <= n_candidates <= MOST_CANDIDATES:
            raise InvalidData(
                f"n_candidates must be 'auto' or an integer from 0 to {MOST_CANDIDATES}, got {n_candidates!r}."
            )
        if n_candidates and (self.method == "tae-paper" or architecture.decoder_sees):
            raise InvalidData(
                "n_candidates needs p(z), which method 'tae-paper' and decoders that see y have not. Use n_candidates=0."
            )
        return int(n_candidates)

    def for_images(self, event_shape: Sequence[int]) -> "Parameters":
        """The same for these data: on a GPU, a flow for images, where the method is left open."""
        left_open = self.method == "auto" and self.network == "auto" and self.n_candidates in ("auto", 0)
        chosen = self.architecture is not None or self.training is not None or bool(self.settings)
        if not left_open or chosen or not is_image(event_shape) or prod(event_shape) > ENTRIES:
            return self
        return replace(self, method="flow") if self.torch_device().type == "cuda" else self

    def torch_device(self) -> torch.device:
        """Where to compute."""
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
