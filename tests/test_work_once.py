"""Nothing is read or encoded again: a CSV is parsed once, a table encoded once, with a report at most three times."""

import numpy as np
import pandas as pd
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from unfade.app.uploads import Folder, load
from unfade.cli.app import app
from unfade.data.encoder import FeatureEncoder

FAST = ["--max-steps", "5", "--n-members", "1", "--n-candidates", "5", "-q"]


@pytest.fixture
def counted(monkeypatch):
    """How often a CSV was parsed and a table encoded."""
    counts = {"parsed": 0, "encoded": 0}

    def counting(what, function):
        def called(*args, **kwargs):
            counts[what] += 1
            return function(*args, **kwargs)

        return called

    monkeypatch.setattr(csv, "read_csv", counting("parsed", csv.read_csv))
    monkeypatch.setattr(csv, "open_csv", counting("parsed", csv.open_csv))
    monkeypatch.setattr(FeatureEncoder, "enter", counting("encoded", FeatureEncoder.enter))
    return counts


@pytest.fixture
def table(tmp_path):
    """Numbers, codes that look like numbers, categories, some cells missing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80)})
    frame["code"] = [f"{i % 5:03d}" for i in range(80)]
    frame["group"] = rng.choice(["x", "y"], 80)
    frame = frame.astype(object).mask(rng.random(frame.shape) < 0.2)
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def recover(*options):
    done = CliRunner().invoke(app, ["recover", *map(str, options), *FAST])
    assert done.exit_code == 0, done.output


def test_recover_parses_once_and_encodes_once(table, tmp_path, counted):
    recover(table, "-o", tmp_path / "out.csv")
    assert counted == {"parsed": 1, "encoded": 1}


def test_draws_are_made_from_what_is_encoded(table, tmp_path, counted):
    recover(table, "-o", tmp_path / "out.csv", "--draws-to", tmp_path / "draws.csv", "--draws", "3")
    assert counted == {"parsed": 1, "encoded": 1}


def test_a_report_encodes_at_most_three_times(table, tmp_path, counted):
    """Once for the fit, once with cells held out where the fit held none out, once for the search for outliers."""
    recover(table, "-o", tmp_path / "out.csv", "--report", tmp_path / "report.html")
    assert counted["parsed"] == 1
    assert counted["encoded"] <= 3


def test_a_model_encodes_what_it_fills_once(table, tmp_path, counted):
    recover(table, "-o", tmp_path / "out.csv", "--save", tmp_path / "model.unfade")
    counted.update(parsed=0, encoded=0)
    recover(table, "-o", tmp_path / "other.csv", "--model", tmp_path / "model.unfade")
    assert counted == {"parsed": 1, "encoded": 1}


def test_the_page_parses_an_upload_once(table, counted):
    folder = Folder()
    load("t.csv", table.read_bytes(), folder.path)
    assert counted == {"parsed": 1, "encoded": 0}
