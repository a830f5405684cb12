"""The command `unfade`, also `python -m unfade`."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Load the commands and run the one that was asked for.

    An exception inside a library that is loading, which takes seconds, would show a traceback: until then Ctrl-C ends
    the process with one line and exit code 130. Afterwards it raises KeyboardInterrupt, which each command handles.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where whoever started us has it ignored
        signal.signal(signal.SIGINT, _leave)
    if len(sys.argv) > 1 and not {"--help", "--version"} & set(sys.argv):  # what these print needs no library
        from unfade import estimator  # noqa: F401 (the libraries)
    from unfade.cli import app

    signal.signal(signal.SIGINT, before)
    app.main()


def _leave(*_: Any) -> None:
    """End the process with one line and exit code 130."""
    os.write(2, b"interrupted: nothing was written under the names you gave\n")
    os._exit(130)


if __name__ == "__main__":
    main()
