"""The tree's own rules: a module imports only from modules above it, and the public names are documented."""

import ast
from pathlib import Path

import pytest

import unfade

SOURCE = Path(unfade.__file__).parent
ORDER = [
    "errors",
    "randomness",
    "threads",
    "observations",
    "scores",
    "interpolation",
    "networks",
    "conditionals",
    "spaces",
    "textformats",
    "tables",
    "support",
    "cells",
    "corruption",
    "recording",
    "door",
    "models",
    "linear",
    "simple",
    "architectures",
    "objectives",
    "storage",
    "processes",
    "checkpoints",
    "stepping",
    "training",
    "watching",
    "recipes",
    "methods",
    "drawing",
    "draws",
    "files",
    "csvtext",
    "pictures",
    "progress",
    "metadata",
    "packing",
    "estimator",
    "evaluation",
    "diagnostics",
    "verdicts",
    "downstream",
    "gallery",
    "report",
    "demo",
    "frames",
    "__init__",
    "options",
    "pipes",
    "commands",
    "cli",
    "__main__",
]


def imported(module: str) -> set[str]:
    """Modules of unfade that a module imports when it is loaded."""
    found = set()
    for node in ast.parse((SOURCE / f"{module}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unfade":
            inner = node.module.removeprefix("unfade").lstrip(".")
            found |= {inner} if inner else {alias.name for alias in node.names if (SOURCE / f"{alias.name}.py").exists()}
    return found


def test_every_module_has_its_place():
    assert {path.stem for path in SOURCE.glob("*.py")} == set(ORDER)


def test_only_the_command_line_imports_the_folders():
    """At any place of a module, not only when it is loaded."""
    for module in set(ORDER) - {"cli", "commands"}:
        tree = [n for n in ast.walk(ast.parse((SOURCE / f"{module}.py").read_text())) if isinstance(n, ast.ImportFrom)]
        for folder in ("unfade.paper", "unfade.app", "unfade.engines", "unfade.streaming"):
            assert not any((node.module or "").startswith(folder) for node in tree), module


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_from_above(module):
    assert imported(module) <= set(ORDER[: ORDER.index(module)])


def test_public_names_have_doc_strings():
    assert all(getattr(unfade, name).__doc__ for name in unfade.__all__)


def test_importing_stays_light():
    """Optional and heavy parts are imported where they are used."""
    import subprocess
    import sys

    code = "import sys, unfade; print([m for m in ('matplotlib', 'typer', 'rich', 'safetensors') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(out) == []
