import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import small_table
from pyarrow import parquet
from typer.testing import CliRunner

from unfade.cli import app as cli
from unfade.io.large_tables import Source
from unfade.io.tables import read_table, write_table
from unfade.pipeline import COMPLETE

FAST = ["--max-steps", "5", "--seed", "1"]


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def csv(tmp_path):
    table = small_table(60)
    rows = ["depth,heat,wind,salt", *(",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in table)]
    (tmp_path / "in.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "in.csv"


def test_recover_fills_the_table_and_keeps_its_form(csv, tmp_path):
    result = run("recover", csv, "-o", tmp_path / "out.csv", *FAST)
    assert result.exit_code == 0, result.output
    before, after = read_table(csv), read_table(tmp_path / "out.csv")
    assert after.column_names == before.column_names
    assert sum(column.null_count for column in after.columns) == 0
    for old, new in zip(before.columns, after.columns, strict=True):
        old, new = np.asarray(old, float), np.asarray(new, float)
        assert np.array_equal(old[~np.isnan(old)], new[~np.isnan(old)])


def test_recover_writes_draws_and_a_model_that_needs_no_refit(csv, tmp_path):
    first = run(
        "recover",
        csv,
        "-o",
        tmp_path / "a.csv",
        "--noise",
        "learn",
        "--draws",
        3,
        "--draws-to",
        tmp_path / "d.parquet",
        "--save",
        tmp_path / "m.unfade",
        *FAST,
    )
    assert first.exit_code == 0, first.output
    draws = read_table(tmp_path / "d.parquet")
    assert draws.column_names == ["draw", "row", "depth", "heat", "wind", "salt"]
    assert len(draws) == 3 * 60
    second = run("recover", csv, "--model", tmp_path / "m.unfade", "-o", tmp_path / "b.csv")
    assert second.exit_code == 0, second.output
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".npy", ".npz"])
def test_other_formats(csv, tmp_path, ending):
    write_table(read_table(csv), tmp_path / f"in{ending}")
    assert run("recover", tmp_path / f"in{ending}", "-o", tmp_path / f"out{ending}", *FAST).exit_code == 0
    assert len(read_table(tmp_path / f"out{ending}")) == 60


def test_json_quiet_and_version(csv, tmp_path):
    facts = json.loads(run("recover", csv, "-o", tmp_path / "o.csv", "--json", *FAST).stdout)
    assert facts["rows"] == 60
    assert facts["left_missing"] == 0
    assert facts["missing"] > 0
    assert run("recover", csv, "-o", tmp_path / "o.csv", "--quiet", *FAST).output == ""
    assert run("--version").output.startswith("unfade ")


def bad(tmp_path, csv, what):
    (tmp_path / "inf.csv").write_text("x,y\n1,inf\n2,3\n")
    (tmp_path / "void.csv").write_text("x,y\n,\n,\n")
    (tmp_path / "draw.csv").write_text("draw,y\n1,2\n2,\n")
    (tmp_path / "wide.csv").write_text("depth,heat\n1,2\n3,\n")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3\n")
    (tmp_path / "foreign.unfade").write_text("nonsense")
    np.save(tmp_path / "one.npy", np.array(1.0))
    np.save(tmp_path / "images.npy", np.ones((4, 2, 2)))
    run("recover", csv, "-o", tmp_path / "first.csv", "--save", tmp_path / "m.unfade", *FAST)
    out = ["-o", tmp_path / "out.csv"]
    return {
        "missing file": ([tmp_path / "nowhere.csv", *out], "found none"),
        "inf": ([tmp_path / "inf.csv", *out], "column 'y'"),
        "nothing observed": ([tmp_path / "void.csv", *out], "Nothing is observed"),
        "ragged": ([tmp_path / "ragged.csv", *out], "ragged.csv"),
        "foreign model": ([csv, *out, "--model", tmp_path / "foreign.unfade"], "not a model"),
        "other columns": ([tmp_path / "wide.csv", *out, "--model", tmp_path / "m.unfade"], "fitted on are missing"),
        "negative noise": ([csv, *out, "--noise", "-1"], "at least 0"),
        "wrong noise": ([csv, *out, "--noise", "loud"], "--noise takes"),
        "no draws": ([csv, *out, "--draws", "0", "--draws-to", tmp_path / "d.csv"], "at least 1"),
        "taken name": ([tmp_path / "draw.csv", *out, "--draws-to", tmp_path / "d.csv"], "Rename"),
        "one number": ([tmp_path / "one.npy", *out], "samples by features"),
        "images to csv": ([tmp_path / "images.npy", *out], "not to 'out.csv'"),
        "same file": ([csv, *out, "--draws-to", tmp_path / "out.csv"], "different files"),
        "no folder": ([csv, "-o", tmp_path / "no" / "out.csv"], "does not exist"),
        "wrong ending": ([csv, "-o", tmp_path / "out.ods"], "ends in"),
        "wrong method": ([csv, *out, "--method", "magic"], "method must be"),
    }[what]


@pytest.mark.parametrize(
    "what",
    ["missing file", "inf", "nothing observed", "ragged", "foreign model", "other columns", "negative noise",
     "wrong noise", "no draws", "one number", "images to csv", "same file", "taken name", "no folder", "wrong ending",
     "wrong method"],
)  # fmt: skip
def test_bad_input_gets_a_sentence_an_exit_code_and_no_output(tmp_path, csv, what):
    arguments, message = bad(tmp_path, csv, what)
    before = sorted(tmp_path.iterdir())
    result = run("recover", *arguments, *FAST)
    assert result.exit_code == 3, result.output
    assert message in result.output.replace("\n", " ")
    assert "Traceback" not in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_debug_shows_the_error_itself(tmp_path):
    result = run("recover", tmp_path / "nowhere.csv", "-o", tmp_path / "o.csv", "--debug")
    assert type(result.exception).__name__ == "InvalidFile"


def test_wrong_usage_exits_with_2(csv):
    assert run("recover", csv).exit_code == 2


def test_columns_that_cannot_be_filled_are_said(tmp_path):
    (tmp_path / "in.csv").write_text("x,y,never\n" + "".join(f"{i},{i * 2},\n" for i in range(20)))
    result = run("recover", tmp_path / "in.csv", "-o", tmp_path / "out.csv", *FAST)
    assert result.exit_code == 0
    assert "'never'" in result.output
    assert read_table(tmp_path / "out.csv")["never"].null_count == 20


def test_interrupting_leaves_nothing(csv, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("unfade.inference.fitted_model.FittedModel.transform", interrupt)
    result = run("recover", csv, "-o", tmp_path / "out.csv", *FAST)
    assert result.exit_code == 130
    assert not (tmp_path / "out.csv").exists()


def test_interrupting_the_training_keeps_what_was_reached(csv, tmp_path, monkeypatch):
    from unfade.training.step import Stepper

    calls = []
    step = Stepper.step

    def interrupt(stepper):
        calls.append(1)
        if len(calls) == 120:
            raise KeyboardInterrupt
        step(stepper)

    monkeypatch.setattr(Stepper, "step", interrupt)
    result = run("recover", csv, "-o", tmp_path / "out.csv", "--max-steps", 500)
    assert result.exit_code == 130
    assert "interrupted" in result.output
    assert len(read_table(tmp_path / "out.csv")) == 60


def test_columns_in_another_order_keep_their_own_values(csv, tmp_path):
    first = run(
        "recover", csv, "-o", tmp_path / "a.csv", "--save", tmp_path / "m", "--draws-to", tmp_path / "da.csv", *FAST
    )
    assert first.exit_code == 0, first.output
    names = ["salt", "depth", "wind", "heat"]
    write_table(read_table(csv).select(names), tmp_path / "moved.csv")
    out = ["-o", tmp_path / "b.csv", "--draws-to", tmp_path / "db.csv", "--seed", 1]
    moved = run("recover", tmp_path / "moved.csv", "--model", tmp_path / "m", *out)
    assert moved.exit_code == 0, moved.output
    for before, after in (("a.csv", "b.csv"), ("da.csv", "db.csv")):
        before, after = read_table(tmp_path / before), read_table(tmp_path / after)
        assert after.column_names[-4:] == names
        assert before.select(after.column_names).equals(after)


def test_the_input_is_never_overwritten(csv):
    before = csv.read_bytes()
    assert run("recover", csv, "-o", csv, *FAST).exit_code == 3
    assert run("recover", csv, "-o", csv.parent / "." / "x" / ".." / csv.name, *FAST).exit_code == 3
    assert csv.read_bytes() == before


def test_raw_images_are_never_overwritten(tmp_path):
    stack = tmp_path / "depth.npy"
    np.save(stack, np.random.default_rng(0).random((4, 6, 6)))
    before = stack.read_bytes()
    for names in (
        ["-o", stack],
        ["-o", tmp_path / "c.npy", "--std-to", stack],
        ["-o", stack.parent / "x" / ".." / stack.name],
    ):
        assert run("recover", stack, *names, *FAST).exit_code == 3
        assert stack.read_bytes() == before


def test_what_cannot_be_written_is_said_before_the_fit(csv, tmp_path, monkeypatch):
    monkeypatch.setattr("unfade.Recoverer.fit", lambda *_, **__: pytest.fail("it was fitted"))
    (tmp_path / "t.csv").write_text("a,b\n1.5,x\n2.5,y\n,x\n")
    said = run("recover", tmp_path / "t.csv", "-o", tmp_path / "t.npy", *FAST)
    assert said.exit_code == 3
    assert "can hold numbers only" in said.output
    said = run("recover", csv, "-o", tmp_path / "no" / "such", *FAST)
    assert said.exit_code == 3
    assert "does not exist" in said.output


def test_a_folder_leaves_models_of_the_user_alone(csv, tmp_path):
    model = tmp_path / "out.model"
    assert run("recover", csv, "-o", tmp_path / "out", "--save", model, *FAST).exit_code == 0
    before = model.read_bytes()
    assert run("recover", csv, "-o", tmp_path / "out", *FAST).exit_code == 3  # it is there
    again = run("recover", csv, "-o", tmp_path / "new", "--model", model)
    assert again.exit_code == 0, again.output
    assert model.read_bytes() == before
    assert not list(tmp_path.glob(".*fitted"))


def test_a_model_takes_a_table_with_one_more_column(csv, tmp_path):
    model = tmp_path / "m.unfade"
    assert run("recover", csv, "-o", tmp_path / "a.csv", "--noise", "learn", "--save", model, *FAST).exit_code == 0
    table = read_table(csv)
    write_table(table.add_column(0, "more", pa.array([1.0] * len(table))), tmp_path / "more.csv")
    said = run("recover", tmp_path / "more.csv", "-o", tmp_path / "b.csv", "--model", model)
    assert said.exit_code == 0, said.output


def test_a_report_takes_a_table_with_one_more_column(csv, tmp_path):
    model, page = tmp_path / "m.unfade", tmp_path / "r.html"
    assert run("recover", csv, "-o", tmp_path / "a.csv", "--noise", "learn", "--save", model, *FAST).exit_code == 0
    table = read_table(csv)
    write_table(table.add_column(0, "more", pa.array([1.0] * len(table))), tmp_path / "more.csv")
    said = run("recover", tmp_path / "more.csv", "-o", tmp_path / "b.csv", "--model", model, "--report", page)
    assert said.exit_code == 0, said.output
    assert page.exists()


def test_codes_are_no_numbers(tmp_path):
    rows = [f"0{1000 + i % 5},{10**19 + i},{i / 7 if i % 6 else ''}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["zip,id,x", *rows]) + "\n")
    assert run("recover", tmp_path / "t.csv", "-o", tmp_path / "o.csv", *FAST).exit_code == 0
    found = [line.split(",")[:2] for line in (tmp_path / "o.csv").read_text().splitlines()[1:]]
    assert [[cell.strip('"') for cell in line] for line in found] == [line.split(",")[:2] for line in rows]
    assert Source.open(tmp_path / "t.csv").schema == read_table(tmp_path / "t.csv").schema


def test_text_that_is_not_utf8_is_read_as_western_european_with_a_note(tmp_path):
    raw = "town,größe\n" + "".join(f"{'Zürich' if i % 2 else 'Köln'},{(i % 5 and i / 8) or ''}\n" for i in range(40))
    (tmp_path / "t.csv").write_bytes(raw.encode("latin-1"))
    said = run("recover", tmp_path / "t.csv", "-o", tmp_path / "o.csv", *FAST)
    assert said.exit_code == 0
    assert "note: " in said.stderr
    assert "is not encoded as UTF-8: it is read as cp1252" in said.stderr
    assert (tmp_path / "o.csv").read_bytes().startswith(raw.encode("latin-1")[:11])
    said = run("recover", tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--encoding", "utf-8", *FAST)
    assert said.exit_code == 3
    assert "is not encoded as UTF-8" in said.output


def test_names_that_are_numbers_from_0_are_a_header(tmp_path):
    np.save(tmp_path / "a.npy", small_table(40))
    assert run("recover", tmp_path / "a.npy", "-o", tmp_path / "a.csv", *FAST).exit_code == 0
    assert run("recover", tmp_path / "a.csv", "-o", tmp_path / "b.csv", *FAST).exit_code == 0


def test_resuming_what_is_complete_fits_nothing(csv, tmp_path, monkeypatch):
    (tmp_path / ".out-other.fitted").write_text("left by a run that was stopped")
    assert run("recover", csv, "-o", tmp_path / "out", *FAST).exit_code == 0
    assert not list(tmp_path.glob(".*fitted"))
    monkeypatch.setattr("unfade.Recoverer.fit", lambda *_, **__: pytest.fail("it was fitted"))
    again = run("recover", csv, "-o", tmp_path / "out", "--resume", *FAST)
    assert again.exit_code == 0
    assert "nothing to resume" in again.output
    assert run("recover", csv, "-o", tmp_path / "out", "--resume", "--seed", "9").exit_code == 3


def test_an_output_that_exists_is_replaced(csv, tmp_path):
    (tmp_path / "out.csv").write_text("old")
    assert run("recover", csv, "-o", tmp_path / "out.csv", *FAST).exit_code == 0
    assert (tmp_path / "out.csv").read_text().startswith("depth,heat,wind,salt\n")


def test_a_mixed_table_with_options_comes_back_as_it_was(tmp_path):
    lines = [f"{i},{'ab'[i % 2]},{i % 3},{'<1' if i % 5 == 0 else 1 + i / 7},{2000 + i % 9}-03-01" for i in range(40)]
    lines[3], lines[4] = "3,,0,2.5,", ",a,,1.5,2001-03-01"
    (tmp_path / "t.csv").write_text("n,side,grade,lead,day\n" + "\n".join(lines) + "\n")
    options = ["--kind", "grade=ordered", "--bounds", "n=0:39", "--draws-to", tmp_path / "d.csv", "--draws", "2"]
    done = run("recover", tmp_path / "t.csv", "-o", tmp_path / "o.csv.gz", *options, *FAST)
    assert done.exit_code == 0, done.output
    table, draws = read_table(tmp_path / "o.csv.gz"), read_table(tmp_path / "d.csv")
    assert table.column_names == ["n", "side", "grade", "lead", "day"]
    assert sum(column.null_count for column in table.columns) == 0
    assert table["side"][3].as_py() in ("a", "b")
    assert len(draws) == 80
    assert max(value for value in draws["n"].to_pylist()) <= 39


def test_bounds_may_be_those_of_all_numbers(csv, tmp_path):
    done = run("recover", csv, "-o", tmp_path / "o.csv", "--bounds", "-0.5:0.5", "--noise", "0.1", *FAST)
    assert done.exit_code == 0, done.output
    table = read_table(tmp_path / "o.csv")
    assert max(abs(value) for column in table.columns for value in column.to_pylist()) <= 0.5


@pytest.mark.parametrize(
    "options",
    [
        ["--kind", "depth"],
        ["--bounds", "depth=1"],
        ["--bounds", "1"],
        ["--bounds", "=0:1"],
        ["--bounds", "0:1", "--bounds", "depth=0:1"],
        ["--detection-limit", "depth"],
        ["--detection-limit", "depth<low"],
        ["--kind", "depth=deep"],
    ],
)
def test_wrong_column_options_say_what_they_take(csv, tmp_path, options):
    result = run("recover", csv, "-o", tmp_path / "o.csv", *options, *FAST)
    assert result.exit_code == 3
    assert "got" in result.output


def test_a_folder_is_written_part_by_part(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    table = pa.table({f"x{i}": pa.array(values[:, i], from_pandas=True) for i in range(3)})
    write_table(table, tmp_path / "t.parquet")
    options = ["--max-steps", "20", "--n-members", "1", "--n-candidates", "0", "--draws", "2", "--seed", "3", "-q"]
    done = run("recover", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "out"), *options)
    assert done.exit_code == 0, done.output
    apart = run(
        "recover", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "c.parquet"),
        "--draws-to", str(tmp_path / "d.parquet"), *options,
    )  # fmt: skip
    assert apart.exit_code == 0, apart.output
    for folder, file in (("clean.parquet", "c.parquet"), ("draws.parquet", "d.parquet")):
        assert parquet.read_table(tmp_path / "out" / folder).equals(parquet.read_table(tmp_path / file))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.parquet", "d.parquet", "out", "t.parquet"]
    again = run("recover", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "out"), *options)
    assert again.exit_code == 3
    assert "exists already" in again.output


@pytest.mark.filterwarnings("ignore:Time was up")  # on a busy machine
def test_a_diagnosis_is_printed(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(150, 1)) + 0.5 * rng.normal(size=(150, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    np.save(tmp_path / "t.npy", values)
    options = ["--max-seconds", "2", "--report", str(tmp_path / "r.html"), "--json"]
    done = run("diagnose", str(tmp_path / "t.npy"), *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["level"] in ("green", "amber", "red")
    assert "<h1>" in (tmp_path / "r.html").read_text()
    wrong = run("diagnose", str(tmp_path / "t.npy"), "--report", str(tmp_path / "r.pdf"))
    assert wrong.exit_code == 3
    assert ".html" in wrong.output


def test_a_table_with_nothing_to_recover_comes_back_at_once(tmp_path):
    (tmp_path / "in.csv").write_text("a,b\n" + "".join(f"{i % 7}.5,{i % 3}\n" for i in range(50)))
    result = run("recover", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert COMPLETE in result.output
    assert read_table(tmp_path / "out.csv").equals(read_table(tmp_path / "in.csv"))
    for options in (["--noise", "0.1"], ["--detection-limit", "a<2"], ["--save", tmp_path / "model"]):
        result = run("recover", tmp_path / "in.csv", "-o", tmp_path / "other.csv", *FAST, *options)
        assert result.exit_code == 0, result.output
        assert COMPLETE not in result.output


@pytest.fixture
def marked(tmp_path):
    """A table whose missing cells are marked by words and codes."""
    words = {0: "--", 9: "none", 7: "-99"}
    lamps = ["", "on", "off", "on"]
    rows = [f"{words.get(i % 12, 20 + i * 7 % 30)},{i % 3}.0,{lamps[i % 4]}" for i in range(60)]
    (tmp_path / "marked.csv").write_text("\n".join(["age,dose,lamp", *rows]) + "\n")
    return tmp_path / "marked.csv"


def test_marks_of_missing_values_are_named_and_then_filled(marked, tmp_path):
    whole = tmp_path / "whole.csv"
    whole.write_text(marked.read_text().replace(",\n", ",on\n").replace("none", "20").replace("-99", "30"))
    before = run("recover", whole, "-o", tmp_path / "out.csv", *FAST)
    assert COMPLETE in before.output
    assert before.output.count("holds numbers or dates but for '--' (5 cells)") == 1
    assert "(--missing --); else correct it" in before.output
    assert (tmp_path / "out.csv").read_bytes() == whole.read_bytes()
    options = ["--missing", "--", "--missing", "age=none", "--missing=-99"]
    after = run("recover", marked, "-o", tmp_path / "out.csv", *options, *FAST)
    assert "30 missing cells, 30 filled" in after.output
    assert "note:" not in after.output
    given, filled = marked.read_text().splitlines(), (tmp_path / "out.csv").read_text().splitlines()
    assert all(line.split(",")[0].isdigit() for line in filled[1:])
    cells = ("\n".join(lines).replace("\n", ",").split(",") for lines in (given, filled))
    assert sum(old != new for old, new in zip(*cells, strict=True)) == 30
    parts = run("recover", marked, "-o", tmp_path / "parts", *options, *FAST)
    assert parts.exit_code == 0, parts.output
    streamed = parquet.read_table(tmp_path / "parts" / "clean.parquet")["age"].to_pylist()
    assert streamed == [line.split(",")[0] for line in filled[1:]]
    assert "note:" not in run("diagnose", marked, *options, *FAST).output


def test_marks_are_named_where_nothing_seems_to_be_missing(tmp_path):
    (tmp_path / "in.csv").write_text(
        "dose,code\n" + "".join(f"{i % 3 if i % 9 else 'none'},{i if i % 7 else -99}\n" for i in range(63))
    )
    result = run("recover", tmp_path / "in.csv", "-o", tmp_path / "out.csv", *FAST)
    assert COMPLETE in result.output
    assert "--missing none" in result.output
    assert "--missing code=-99" in result.output
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "in.csv").read_bytes()


def test_what_is_filled_is_chosen(marked, tmp_path):
    options = ["--missing=--", "--missing=none", "--missing=-99", *FAST]
    written = set()
    for fill in ("mean", "median", "draw"):
        assert run("recover", marked, "-o", tmp_path / "out.csv", "--fill", fill, *options).exit_code == 0
        filled = (tmp_path / "out.csv").read_text()
        written.add(filled)
        assert {line.split(",")[1] for line in filled.splitlines()[1:]} == {"0.0", "1.0", "2.0"}
    assert len(written) == 3
    refused = run("recover", marked, "-o", tmp_path / "out.csv", "--fill", "mode", *options)
    assert refused.exit_code == 3
    assert "fill must be one of mean, median, draw, got 'mode'" in refused.output


def test_a_model_that_is_fitted_fills_as_it_is_asked_to(csv, tmp_path):
    run("recover", csv, "-o", tmp_path / "mean.csv", "--save", tmp_path / "m.unfade", *FAST)
    result = run("recover", csv, "--model", tmp_path / "m.unfade", "-o", tmp_path / "draw.csv", "--fill", "draw")
    assert "no effect" not in result.output
    assert (tmp_path / "draw.csv").read_bytes() != (tmp_path / "mean.csv").read_bytes()


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(csv, tmp_path):
    done = run("recover", csv, "-o", tmp_path / "out.csv", "--dry-run", "--max-steps", "30")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "out.csv").exists()
    for said in ("data: ", "noise: none", "method: auto", "training: 30 steps", "time: training takes at most about"):
        assert said in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sep", "ab"], "sep must be one character"),
        (["--decimal", ";"], "decimal must be"),
        (["--encoding", "klingon"], "'klingon' is not known"),
        (["--sheet", "one"], "--sheet (sheet=) is for workbooks"),
        (["--applicable", "y"], "--applicable takes"),
        (["--applicable", "y=__import__('os')"], "functions in an expression"),
        (["--derived", "y=nothing + 1"], "no column"),
        (["--sum", "y=x"], "at least two"),
        (["--order", "x < y"], "order takes"),
        (["--noise", "x=5 percent"], "--noise takes"),
        (["--noise", "x=-5%"], "--noise takes"),
        (["--where", "nowhere.csv"], "none"),
        (["--draws-format", "mice"], "--draws-format is the form of --draws-to"),
        (["--draws-to", "d.csv", "--draws-format", "sas"], "got 'sas'"),
        (["--query", "SELECT 1"], "--query reads from a database"),
        (["--missing", "nothing=-99"], "do not exist"),
    ],
)
def test_bad_options_of_files_and_constraints_leave_nothing_behind(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{x:.3f},{'' if i % 5 == 0 else f'{x + 1:.3f}'}" for i, x in enumerate(rng.normal(size=40))]
    Path("t.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    done = CliRunner().invoke(
        cli.app, ["recover", "t.csv", "-o", "out.csv", "--max-steps", "5", "--n-members", "1", *options]
    )
    assert done.exit_code == 3, done.output
    assert message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}


def test_draws_for_r_are_two_tables(tmp_path):
    table = "x,y\n" + "".join(f"{i / 7},{'' if i % 5 == 0 else i}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(table)
    command = ["recover", str(tmp_path / "t.csv"), "-o", str(tmp_path / "o.csv"), "--max-steps", "5", "--n-members", "1"]
    command += ["--draws-to", str(tmp_path / "long.csv"), "--draws-format", "mice", "--draws", "2"]
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    long, where = read_table(tmp_path / "long.csv"), read_table(tmp_path / "long.where.csv")
    assert long.column_names == [".imp", ".id", "x", "y"]
    assert long.num_rows == 120
    assert where["y"].to_pylist() == [i % 5 == 0 for i in range(40)]
