"""Output of a command: text, one JSON object, or nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import typer


class Output:
    """Output of a command: text, one JSON object, or nothing."""

    def __init__(self, quiet: bool, as_json: bool):
        self.quiet = quiet
        self.as_json = as_json
        self.result_piped = False  # whether the recovered data go to standard output
        self.named: dict[str, str] = {}  # files by their path, as the user calls them

    def shown(self, text: str) -> str:
        """Replace temporary files in a text by the names that the user knows, such as standard input."""
        for path, name in self.named.items():
            text = text.replace(path, name)
        return text

    def say(self, text: str) -> None:
        """Print a line of text, unless the output is JSON or nothing."""
        if not (self.quiet or self.as_json):
            typer.echo(self.shown(text), err=self.result_piped)

    def note(self, text: str) -> None:
        """Print a note to standard error."""
        if not self.quiet:
            typer.echo(f"note: {self.shown(text)}", err=True)

    def result(self, **facts: Any) -> None:
        """Print the facts as one JSON object, if asked for."""
        if self.as_json:
            typer.echo(json.dumps(facts))


def path_name(path: Path | None) -> str | None:
    """Convert a path to text; None stays None."""
    return None if path is None else str(path)


def as_list(noise: Any) -> Any:
    """Convert noise levels to JSON: one number or a list."""
    return noise.tolist() if isinstance(noise, np.ndarray) else noise


def noise_in_words(noise: Any, names: list[str]) -> str:
    """Write the noise level: one number, or those of the first columns by name."""
    if noise is None:
        return "inferred for each row"
    if not isinstance(noise, np.ndarray):
        return f"{noise:.4g}"
    shown = [f"{name} {level:.4g}" for name, level in zip(names, noise.flat, strict=True)]
    return ", ".join(shown[:8] + ["..."] * (len(shown) > 8))
