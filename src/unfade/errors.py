"""What unfade raises: every message says what was expected, what came and what to do."""


class UnfadeError(Exception):
    """Base of all errors that unfade raises on purpose."""


class InvalidData(UnfadeError, ValueError):
    """The data, or a setting that describes them, cannot be used as given."""


class InvalidType(InvalidData, TypeError):
    """The data hold objects that are not numbers at all, or come in a form that is not supported."""


class InvalidFile(UnfadeError, ValueError):
    """A file is missing, damaged, foreign, or cannot be written."""


class TrainingFailed(UnfadeError, RuntimeError):
    """Training could not go on: the objective stayed non-finite after several restarts at lower rates."""


class DataNotice(UserWarning):
    """Something about the data was handled in a way worth knowing."""
