"""A progress line with time left, in terminals and notebooks."""

from collections.abc import Iterator
from contextlib import contextmanager

from unfade.training import OnStep, Progress


@contextmanager
def progress_bar(show: bool, label: str = "recovering") -> Iterator[OnStep | None]:
    """A callback for `train` that moves a bar; None where nothing is to be shown."""
    if not show:
        yield None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = [
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn(
            "step {task.completed:.0f} of {task.total:.0f}, {task.fields[left]} left, value {task.fields[value]}"
        ),
    ]
    console = Console(stderr=True)
    with rich_progress.Progress(*columns, console=console, transient=True, disable=not _interactive(console)) as bar:
        task = bar.add_task(label, total=1, left="?", value="?")

        def move(progress: Progress) -> None:
            left = (
                f"{progress.seconds_left:.0f} s" if progress.seconds_left < 90 else f"{progress.seconds_left / 60:.0f} min"
            )
            bar.update(task, completed=progress.step, total=progress.steps, left=left, value=f"{progress.value:.4g}")

        yield move


def _interactive(console: "object") -> bool:
    return bool(getattr(console, "is_terminal", False) or getattr(console, "is_jupyter", False))
