"""README's Python and the examples run as they stand, and the notebook's stored results are those it gives."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LONG = ("images.py",)
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


@pytest.mark.slow
def test_the_notebook_gives_what_it_shows():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    stored = nbformat.read(EXAMPLES / "table.ipynb", as_version=4)
    fresh = nbclient.NotebookClient(nbformat.read(EXAMPLES / "table.ipynb", as_version=4), timeout=600).execute()
    assert stored.cells[-1].outputs[0]["text"] == fresh.cells[-1].outputs[0]["text"]
