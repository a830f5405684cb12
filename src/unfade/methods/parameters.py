"""Parameters: what the user asks for, checked once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unfade.data.containers import Missing
from unfade.data.options import Bounds, Limits
from unfade.errors import InvalidData
from unfade.methods.registry import METHODS, members_for, refine_for
from unfade.models.architectures import PAPER, AnyArchitecture
from unfade.training.loop import TrainingConfig

FILLS = ("mean", "median", "draw")
MOST_CANDIDATES = 10_000  # that a draw is chosen from


@dataclass(frozen=True)
class Parameters:
    """The parameters of `Recoverer`, where each is described."""

    method: str = "tae"
    noise: Any = None
    kinds: dict[str, str] | None = None
    missing: Missing | None = None
    fill: str = "mean"
    bounds: Bounds | None = None
    limits: Limits | None = None
    scaling: str | None = "auto"
    network: str = "auto"
    members: int | str = "auto"
    recalibrate: bool = True
    refine: int | str = "auto"
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
        self.n_members(1)
        self.n_candidates(PAPER, predictive=False)
        self.torch_device()

    def n_members(self, features: int) -> int:
        """How many ensemble members to train for data of so many features."""
        if self.members == "auto":
            return members_for(self.method, features)
        if not isinstance(self.members, (int, np.integer)) or not 1 <= self.members <= 16:  # draws are made 16 at a time
            raise InvalidData(f"members must be 'auto' or a whole number from 1 to 16, got {self.members!r}.")
        return int(self.members)

    def n_candidates(self, architecture: AnyArchitecture, predictive: bool, refine: int | str | None = None) -> int:
        """How many proposals a draw is resampled from; refine: in place of the parameter."""
        refine = self.refine if refine is None else refine
        if refine == "auto":
            return refine_for(self.method, architecture, predictive)
        if not isinstance(refine, (int, np.integer)) or not 0 <= refine <= MOST_CANDIDATES:
            raise InvalidData(f"refine must be 'auto' or a whole number from 0 to {MOST_CANDIDATES}, got {refine!r}.")
        if refine and (self.method == "tae-paper" or architecture.decoder_sees):
            raise InvalidData("refine needs p(z), which method 'tae-paper' and decoders that see y have not. Use refine=0.")
        return int(refine)

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
