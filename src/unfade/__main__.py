"""The command `unfade`, also `python -m unfade`: Ctrl-C gives one line and exit code 130 from the first moment on."""

import os
import signal
from typing import Any


def main() -> None:
    """Load the commands and run the one that is asked for.

    While libraries load, which takes seconds, an exception could be raised in the midst of any of them: Ctrl-C ends the
    process there and then. Afterwards it is an exception, which each command takes as it needs.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where whoever started us has it ignored
        signal.signal(signal.SIGINT, _leave)
    from unfade import estimator  # noqa: F401 (the libraries)
    from unfade.cli import app

    signal.signal(signal.SIGINT, before)
    app.main()


def _leave(*_: Any) -> None:
    os.write(2, b"interrupted: nothing was written under the names you gave\n")
    os._exit(130)


if __name__ == "__main__":
    main()
