"""Output of a command: text, one JSON object, or nothing; values as they are printed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import typer


class Output:
    """What a command tells the user: text, one JSON object, or nothing."""

    def __init__(self, quiet: bool, as_json: bool):
        self.quiet = quiet
        self.as_json = as_json
        self.result_piped = False  # whether the recovered data go to standard output
        self.named: dict[str, str] = {}  # files by their path, as the user calls them

    def shown(self, text: str) -> str:
        """The text with files called as the user calls them: standard input is a temporary file."""
        for path, name in self.named.items():
            text = text.replace(path, name)
        return text

    def say(self, text: str) -> None:
        """A line for people."""
        if not (self.quiet or self.as_json):
            typer.echo(self.shown(text), err=self.result_piped)

    def note(self, text: str) -> None:
        """A line worth knowing that is not the result: to standard error."""
        if not self.quiet:
            typer.echo(f"note: {self.shown(text)}", err=True)

    def result(self, **facts: Any) -> None:
        """The same facts for machines."""
        if self.as_json:
            typer.echo(json.dumps(facts))


def path_name(path: Path | None) -> str | None:
    """The path as text, where there is one."""
    return None if path is None else str(path)


def as_list(noise: Any) -> Any:
    """Noise levels as JSON holds them: one number or a list."""
    return noise.tolist() if isinstance(noise, np.ndarray) else noise


def noise_in_words(noise: Any, names: list[str]) -> str:
    """The noise level in words: one number, or the first columns' by name."""
    if noise is None:
        return "inferred for each row"
    if not isinstance(noise, np.ndarray):
        return f"{noise:.4g}"
    shown = [f"{name} {level:.4g}" for name, level in zip(names, noise.flat, strict=True)]
    return ", ".join(shown[:8] + ["..."] * (len(shown) > 8))
