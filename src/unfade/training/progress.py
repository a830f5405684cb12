"""Progress with the time left: a bar in terminals, a line in notebooks, elsewhere a line every half minute."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from unfade.training.loop import OnStep, Progress

EVERY = 30.0  # seconds between two lines
_TICKING: list[threading.Event] = []  # what tells of itself in lines now, the innermost last


@contextmanager
def progress_bar(show: bool, label: str = "recovering") -> Iterator[OnStep | None]:
    """A callback for `train` that moves a bar; None where nothing is to be shown."""
    if not show:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        yield _notebook_line(label)
        return
    if not console.is_terminal:
        with _lines(label) as on_step:
            yield on_step
        return
    columns = [bars.TextColumn(label), bars.BarColumn(), bars.TextColumn("{task.description}")]
    with bars.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1)

        def move(progress: Progress) -> None:
            bar.update(task, completed=progress.step, total=progress.steps, description=_words(progress))

        yield move


def tracked(parts: Sequence[int], show: bool, label: str = "writing") -> Iterable[int]:
    """The same numbers one by one, with the time left: a bar in terminals, lines elsewhere."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if show and not console.is_terminal:
        return _counted(parts, label)
    return bars.track(parts, label, console=console, transient=True, disable=not show)


def _counted(parts: Sequence[int], label: str) -> Iterator[int]:
    with counting(True, label, len(parts)) as add:
        for part in parts:
            yield part
            add(1)


@contextmanager
def working(show: bool, label: str) -> Iterator[None]:
    """Inside, lines where there is no terminal, also of what has no count of its own, such as reading a large file."""
    with _ticking(show and not sys.stderr.isatty(), label, lambda: "at work"):
        yield


@contextmanager
def counting(show: bool, label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A function to report how many more are done, and lines of it; total: how many there are at most, if that is known."""
    done, started = 0, time.monotonic()

    def add(more: int) -> None:
        nonlocal done
        done += more

    def words() -> str:
        if not total:
            return f"{done:,} rows done"
        passed = time.monotonic() - started
        left = f", about {in_words(passed * (total - done) / done)} left" if done else ""
        return f"{done / total:.0%}{left}"

    with _ticking(show, label, words):
        yield add


@contextmanager
def _lines(label: str) -> Iterator[OnStep]:
    """A callback for `train` whose news are printed in lines."""
    latest: list[Progress] = []
    since, stage = time.monotonic(), 0

    def move(progress: Progress) -> None:
        nonlocal since, stage
        stage += not latest or progress.step <= latest[-1].step
        latest[:], since = [progress], time.monotonic()

    def words() -> str:
        if not latest:
            return "getting ready"
        now, left = latest[-1], max(0.0, latest[-1].seconds_left - (time.monotonic() - since))
        return f"stage {stage}, step {now.step:,} of at most {now.steps:,}, at most {in_words(left)} left in it"

    with _ticking(True, label, words):
        yield move


@contextmanager
def _ticking(show: bool, label: str, words: Callable[[], str]) -> Iterator[None]:
    """Inside, a line to standard error every EVERY seconds, whatever the time is spent on."""
    if not show:
        yield
        return
    started, over = time.monotonic(), threading.Event()
    _TICKING.append(over)

    def tick() -> None:
        while not over.wait(EVERY):
            if _TICKING[-1:] != [over]:  # what is done inside says more
                continue
            print(f"{label}: {words()}; {in_words(time.monotonic() - started)} so far", file=sys.stderr, flush=True)

    ticker = threading.Thread(target=tick, name="unfade-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        _TICKING.remove(over)
        over.set()
        ticker.join()


def _notebook_line(label: str) -> OnStep:
    """One line of text in a notebook that is written over; it needs no widgets."""
    from IPython.display import display

    line = display({"text/plain": label}, raw=True, display_id=True)

    def move(progress: Progress) -> None:
        line.update({"text/plain": f"{label}: {_words(progress)}"}, raw=True)

    return move


def _words(progress: Progress) -> str:
    return f"step {progress.step} of {progress.steps}, {in_words(progress.seconds_left)} left, value {progress.value:.4g}"


def in_words(seconds: float) -> str:
    """Seconds, or minutes, rounded."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
