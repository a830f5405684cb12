"""README's Python and the examples run as they stand, and the notebook's stored results are those it gives."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LONG = ("images.py",)
NOTEBOOKS = ("table", "regression", "noise")  # written by docs/make_gallery.py --notebook
SCRIPTS = [
    pytest.param(path.name, marks=[pytest.mark.slow] if path.name in LONG else []) for path in sorted(EXAMPLES.glob("*.py"))
]


def test_the_python_of_the_readme_runs():
    code = re.search(r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.DOTALL)[1]
    names: dict = {}
    exec(code, names)
    given, clean, draws = names["Y"], names["X"], names["draws"]
    seen = ~np.isnan(given)
    assert (clean[seen] == given[seen]).all()
    assert np.isfinite(clean).all()
    assert draws.values.shape == (50, *given.shape)
    assert (names["low"] <= names["high"]).all()


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(script):
    result = subprocess.run([sys.executable, EXAMPLES / script], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def texts(notebook):
    """All text that a notebook's cells have put out, without pictures."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.get("text") or output["data"].get("text/html") for output in outputs]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_pages_of_the_gallery(name):
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    page = EXAMPLES.parent / "docs" / "gallery" / f"{name}.py"
    written = re.sub(r"^(?:# ?|(?=\S))", "", page.read_text(), flags=re.MULTILINE)
    assert all(line in written for cell in stored.cells for line in cell.source.splitlines())
    assert sum(cell.cell_type == "code" for cell in stored.cells) == page.read_text().count("\n# %%\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_gives_what_it_shows(name, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    run = [sys.executable, str(EXAMPLES.parent / "docs" / "make_gallery.py"), "--notebook", name, tmp_path / "fresh.ipynb"]
    subprocess.run(run, check=True, timeout=600)
    stored, fresh = (nbformat.read(path, as_version=4) for path in (EXAMPLES / f"{name}.ipynb", tmp_path / "fresh.ipynb"))
    assert texts(stored) == texts(fresh)
