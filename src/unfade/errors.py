"""Exceptions and warnings of unfade; every message names what was expected, what came, and what to do."""

import sys
import warnings


class UnfadeError(Exception):
    """Base class of all errors that unfade raises on purpose."""


class InvalidData(UnfadeError, ValueError):
    """Raised for data, or settings that describe them, that cannot be used as given."""


class InvalidType(InvalidData, TypeError):
    """Raised for data that hold objects other than numbers, or come in a form that is not supported."""


class InvalidFile(UnfadeError, ValueError):
    """Raised for a file that is missing, damaged, of another format, or cannot be written."""


class TrainingFailed(UnfadeError, RuntimeError):
    """Raised when the objective stays non-finite after several restarts at lower learning rates."""


class DataNotice(UserWarning):
    """Warning that something about the data was handled in a way worth knowing."""


def notice(text: str, category: type[Warning] = DataNotice) -> None:
    """Warn at the line of the user that led here: the first outside of this package and of scikit-learn's wrappers."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("unfade", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
