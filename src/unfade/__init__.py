"""unfade: the clean data behind incomplete, noisy observations, as a distribution."""

from importlib.metadata import PackageNotFoundError, version

from unfade.architectures import Architecture, ConvArchitecture
from unfade.corruption import GaussianNoise
from unfade.draws import Draws
from unfade.errors import DataNotice, InvalidData, InvalidFile, TrainingFailed, UnfadeError
from unfade.estimator import Recoverer
from unfade.observations import Observations, as_observations
from unfade.training import TrainingConfig

try:
    __version__ = version("unfade")
except PackageNotFoundError:  # run from source
    __version__ = "0+source"

__all__ = [
    "Architecture",
    "ConvArchitecture",
    "DataNotice",
    "Draws",
    "GaussianNoise",
    "InvalidData",
    "InvalidFile",
    "Observations",
    "Recoverer",
    "TrainingConfig",
    "TrainingFailed",
    "UnfadeError",
    "as_observations",
]
