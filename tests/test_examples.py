"""The examples run as they stand, and the notebook's stored results are those it gives."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_scripts_run(script):
    result = subprocess.run([sys.executable, EXAMPLES / script], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_notebook_gives_what_it_shows():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    stored = nbformat.read(EXAMPLES / "table.ipynb", as_version=4)
    fresh = nbclient.NotebookClient(nbformat.read(EXAMPLES / "table.ipynb", as_version=4), timeout=600).execute()
    assert stored.cells[-1].outputs[0]["text"] == fresh.cells[-1].outputs[0]["text"]
