"""unfade: recover the clean data behind incomplete, noisy observations, as a distribution."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unfade.corruption.noise import GaussianNoise
    from unfade.data.observations import Observations, as_observations
    from unfade.diagnostics.imputation_score import score
    from unfade.downstream import fit_pooled, pool
    from unfade.errors import DataNotice, InvalidData, InvalidFile, TrainingFailed, UnfadeError
    from unfade.estimator import Recoverer
    from unfade.inference.draws import Draws
    from unfade.models.architectures import Architecture, ConvArchitecture, FlowArchitecture
    from unfade.training.loop import TrainingConfig

try:
    __version__ = version("unfade")
except PackageNotFoundError:  # run from source
    __version__ = "0+source"

__all__ = [
    "Architecture",
    "ConvArchitecture",
    "DataNotice",
    "Draws",
    "FlowArchitecture",
    "GaussianNoise",
    "InvalidData",
    "InvalidFile",
    "Observations",
    "Recoverer",
    "TrainingConfig",
    "TrainingFailed",
    "UnfadeError",
    "as_observations",
    "fit_pooled",
    "pool",
    "score",
]
_MODULES = {  # loaded when one of their names is asked for: torch takes seconds
    "models.architectures": ("Architecture", "ConvArchitecture", "FlowArchitecture"),
    "corruption.noise": ("GaussianNoise",),
    "inference.draws": ("Draws",),
    "diagnostics.imputation_score": ("score",),
    "downstream": ("fit_pooled", "pool"),
    "errors": ("DataNotice", "InvalidData", "InvalidFile", "TrainingFailed", "UnfadeError"),
    "estimator": ("Recoverer",),
    "data.observations": ("Observations", "as_observations"),
    "training.loop": ("TrainingConfig",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: torch takes seconds to load."""
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"unfade.{module}"), name)
            return found
    raise AttributeError(f"module 'unfade' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__all__})
