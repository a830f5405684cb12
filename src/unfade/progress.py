"""A progress line with time left, in terminals and notebooks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from unfade.training import OnStep, Progress


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
    columns = [bars.TextColumn(label), bars.BarColumn(), bars.TextColumn("{task.description}")]
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1)

        def move(progress: Progress) -> None:
            bar.update(task, completed=progress.step, total=progress.steps, description=_words(progress))

        yield move


def tracked(parts: Sequence[int], show: bool, label: str = "writing") -> Iterable[int]:
    """The same numbers one by one, with a bar and the time left in terminals."""
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    return bars.track(parts, label, console=console, transient=True, disable=not (show and console.is_terminal))


def _notebook_line(label: str) -> OnStep:
    """One line of text in a notebook that is written over; it needs no widgets."""
    from IPython.display import display

    line = display({"text/plain": label}, raw=True, display_id=True)

    def move(progress: Progress) -> None:
        line.update({"text/plain": f"{label}: {_words(progress)}"}, raw=True)

    return move


def _words(progress: Progress) -> str:
    left = f"{progress.seconds_left:.0f} s" if progress.seconds_left < 90 else f"{progress.seconds_left / 60:.0f} min"
    return f"step {progress.step} of {progress.steps}, {left} left, value {progress.value:.4g}"
