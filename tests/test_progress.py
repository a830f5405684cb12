"""Without a terminal too, what is done and how long it will take is told now and then; not where silence was asked for."""

import re
import time

import pyarrow as pa
import pytest
from conftest import small_table
from test_cli import FAST, csv, run

from unfade import InvalidData, Recoverer
from unfade.cli import recovery
from unfade.io.tables import read_table, write_table
from unfade.streaming import recover_stream
from unfade.training import progress
from unfade.training.loop import Progress

__all__ = ["csv"]  # the fixture


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.02)


def test_lines_say_how_far_the_fit_is_and_how_long_it_may_take(often, capsys):
    with progress.progress_bar(True) as told:
        time.sleep(0.1)
        for step in (50, 100, 50):
            told(Progress(step, 5000, -1.5, 300.0))
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "recovering: getting ready; 0 s so far"
    assert lines[-1] == "recovering: stage 2, step 50 of at most 5,000, at most 5 min left in it; 0 s so far"


def test_lines_give_the_share_done(often, capsys):
    with progress.counting(True, "drawing", 400) as add:
        add(100)
        time.sleep(0.1)
    assert re.fullmatch(r"drawing: 25%, about 0 s left; 0 s so far", capsys.readouterr().err.splitlines()[0])
    for _ in progress.tracked(range(2), True):
        time.sleep(0.1)
    assert "writing: 50%, about 0 s left" in capsys.readouterr().err


def test_a_fit_tells_and_a_silent_one_does_not(often, capsys, tmp_path):
    table = pa.table(dict(zip("abcd", small_table(2000).T, strict=True)))
    for verbose, told in ((1, True), (0, False)):
        rec = Recoverer(max_steps=100, n_members=1, random_state=0, verbose=verbose).fit(table)
        rec.sample(table, 10)
        said = capsys.readouterr().err
        assert ("recovering: stage 1, step 50 of at most 100" in said) == told
        assert bool(re.search(r"drawing: \d+%, about", said)) == told
        write_table(table, tmp_path / "t.parquet")
        recover_stream(rec, tmp_path / "t.parquet", tmp_path / f"out{verbose}", n_candidates=0)
        said = capsys.readouterr().err
        assert ("writing parts: " in said) == told
        assert "filling" not in said


def test_quiet_is_silent_with_a_model_too(often, csv, tmp_path):
    model = tmp_path / "m"
    for options in (["--save", model], ["--model", model]):
        done = run("recover", csv, "-o", tmp_path / "o.csv", *options, "-q", *(FAST if "--save" in options else ()))
        assert (done.exit_code, done.output) == (0, "")


def test_a_large_table_is_pointed_to_the_folder_before_the_fit(csv, tmp_path, monkeypatch):
    def begun(*_, **__):
        raise InvalidData("The fit has begun.")

    monkeypatch.setattr(Recoverer, "fit", begun)
    for name, least in (("LARGE_ROWS", 60), ("LARGE_CELLS", 60 * 4 * 6)):
        with monkeypatch.context() as few:
            few.setattr(recovery, name, least)
            said = run("recover", csv, "-o", tmp_path / "o.csv", "--draws-to", tmp_path / "d.csv", "--draws", 5).output
            assert said.startswith(f"note: {csv} has 60 rows and 240 cells")
            assert said.endswith("within --memory.\nerror: The fit has begun.\n")
    assert "-o FOLDER" not in run("recover", csv, "-o", tmp_path / "o.csv").output


def test_the_innermost_work_tells(often, capsys):
    with progress.working(True, "recover"):
        time.sleep(0.1)
        outer = capsys.readouterr().err
        with progress.counting(True, "drawing") as add:
            add(7)
            time.sleep(0.1)
            inner = capsys.readouterr().err.splitlines()[1:]  # the first may be of the moment before
        time.sleep(0.1)
    assert outer.startswith("recover: at work; 0 s so far\n")
    assert set(inner) == {"drawing: 7 rows done; 0 s so far"}
    assert "recover: at work" in capsys.readouterr().err


def test_commands_tell_while_they_read_and_prepare(often, csv, tmp_path, monkeypatch):
    for module in ("tables", "images"):  # where `recover` and `diagnose` look it up
        monkeypatch.setattr(f"unfade.io.{module}.read_table", lambda *given: time.sleep(0.3) or read_table(*given))
    for quiet in ([], ["-q"]):
        for command in (["recover", csv, "-o", tmp_path / "o.csv"], ["diagnose", csv]):
            said = run(*command, *FAST, *quiet).stderr
            assert (f"{command[0]}: at work; " in said) == (not quiet)
