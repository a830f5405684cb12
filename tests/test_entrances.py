"""Every entrance gives the same values, notices and refusals, for five inputs: the contract of all that calls unfade.

Entrances: Python, `recover` into a file, `recover` into a folder (streamed), `diagnose`, the page, an engine.
"""

import re
import warnings
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from unfade import DataNotice, Recoverer, UnfadeError
from unfade.app import jobs
from unfade.app.jobs import Job, Settings
from unfade.app.uploads import Folder, load
from unfade.cli.app import app
from unfade.engines import recover_batch
from unfade.io.images import read_data
from unfade.io.tables import read_table, write_table
from unfade.pipeline import COMPLETE
from unfade.streaming import fit_stream, recover_stream

FAST = {"max_steps": 5, "n_members": 1, "n_candidates": 5}
OPTIONS = ["--max-steps", "5", "--n-members", "1"]


@dataclass
class Answer:
    """What an entrance says to an input: the clean data if it gives any, its notices, and why it refuses, if it does."""

    values: object = None
    notices: frozenset[str] = frozenset()
    refusal: str = ""


def quick():
    return Recoverer(**FAST, random_state=0, verbose=0)


def from_python(path, place):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", DataNotice)
        values = quick().fit_transform(read_data(path)[0])
    return Answer(values, frozenset(str(each.message) for each in heard))


def command(name, path, *options):
    done = CliRunner().invoke(app, [name, str(path), *OPTIONS, *map(str, options)])
    assert done.exit_code in (0, 3), done.output
    notes = [line.removeprefix("note: ") for line in done.stderr.splitlines() if line.startswith("note: ")]
    refusal = re.sub(r"^error: ", "", done.stderr, flags=re.MULTILINE) if done.exit_code else ""
    return done, Answer(None, frozenset(notes), refusal)


def from_recover(path, place, *options):
    _, answer = command("recover", path, "-o", place / f"out{path.suffix}", "--n-candidates", "5", *options)
    return Answer(None if answer.refusal else read_table(place / f"out{path.suffix}"), answer.notices, answer.refusal)


def from_recover_streamed(path, place, *options):
    _, answer = command("recover", path, "-o", place / "out", "--n-candidates", "5", *options)
    clean = None if answer.refusal else read_table(place / "out" / "clean.parquet" / "part-000000.parquet")
    return Answer(clean, answer.notices, answer.refusal)


def from_diagnose(path, place):
    return command("diagnose", path)[1]


def from_page(path, place, draws=2):
    with pytest.MonkeyPatch.context() as patch:
        made = jobs.Recoverer
        patch.setattr(jobs, "Recoverer", lambda **chosen: made(**{**chosen, **FAST}))
        patch.setattr(Recoverer, "report", lambda self, path, *_, **__: None)
        jobs.hear_notices()
        folder = Folder()
        job = Job(load(path.name, path.read_bytes(), folder.path), Settings(draws=draws), folder)
        job.wait(120)
        assert job.error is None, job.error
        return Answer(read_table(job.result.clean), frozenset(job.notices))


def from_engine(path, place, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNotice)  # notices are the fit's, which is Python's here
        recoverer = quick().fit(read_table(path))
        try:
            return Answer(recover_batch(recoverer, **options)(read_table(path)))
        except UnfadeError as error:
            return Answer(refusal=str(error))


OF_TABLES = {
    "Python": from_python,
    "recover": from_recover,
    "streamed": from_recover_streamed,
    "diagnose": from_diagnose,
    "page": from_page,
    "engine": from_engine,
}


def table(path, **columns):
    rng = np.random.default_rng(0)
    write_table(pa.table({"a": rng.normal(size=60), "b": rng.normal(size=60)} | columns), path)
    return path


def holed(seed=2):
    values = np.random.default_rng(seed).normal(size=60)
    return pa.array(values, mask=np.arange(60) % 5 == 0)


@pytest.fixture
def stack(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(1, 200, size=(12, 8, 9)).astype(np.uint8)
    for number, image in enumerate(images):
        image[number % 6 : number % 6 + 2, 3:5] = 0
    np.save(tmp_path / "stack.npy", images)
    return tmp_path / "stack.npy"


@pytest.mark.parametrize("entrance", ["Python", "recover", "diagnose", "page"])
def test_zeros_of_a_stack_of_whole_numbers_are_missing(stack, tmp_path, entrance):
    """A stack is no table: it is not streamed part by part, and goes through no engine of tables."""
    array, rule = read_data(stack)
    raw = np.load(stack)
    assert np.array_equal(np.isnan(array), raw == 0)
    if entrance == "diagnose":
        done, answer = command("diagnose", stack)
        assert answer.refusal == ""
        assert str(rule) in done.output
        return
    wanted = rule.left(from_python(stack, tmp_path).values, raw, True)
    answer = OF_TABLES[entrance](stack, tmp_path)
    values = answer.values if answer.values.dtype == np.uint8 else rule.left(answer.values, raw, True)
    assert np.array_equal(values, wanted)
    assert np.array_equal(values[raw > 0], raw[raw > 0])
    assert (values > 0).all()
    if entrance == "recover":
        assert str(rule) in command("recover", stack, "-o", tmp_path / "again.npy")[0].output
    if entrance == "page":
        assert any(str(rule) in notice for notice in answer.notices)


@pytest.mark.parametrize("entrance", OF_TABLES)
@pytest.mark.parametrize("more", [{}, {"id": [f"row {i}" for i in range(60)]}], ids=["numbers", "and text"])
def test_a_complete_table_comes_back_as_it_is(tmp_path, entrance, more):
    """At once and with one sentence; Python and an engine, which are asked to fit, give the values alone."""
    path = table(tmp_path / "t.parquet", **more)
    answer = OF_TABLES[entrance](path, tmp_path)
    assert answer.refusal == ""
    assert entrance == "diagnose" or answer.values.equals(read_table(path))
    assert (COMPLETE in answer.notices) == (entrance not in ("Python", "engine"))


@pytest.mark.parametrize("entrance", ["recover", "streamed", "page"])
def test_nothing_is_trained_for_a_complete_table(tmp_path, entrance, monkeypatch):
    def trains(*_, **__):
        raise AssertionError("There was nothing to train for.")

    monkeypatch.setattr(Recoverer, "fit", trains)
    path = table(tmp_path / "t.parquet")
    assert OF_TABLES[entrance](path, tmp_path).values.equals(read_table(path))


@pytest.mark.parametrize("name", ["recover", "streamed"])
def test_a_complete_csv_comes_back_to_the_byte_or_the_value(tmp_path, name):
    path = table(tmp_path / "t.csv")
    answer = OF_TABLES[name](path, tmp_path)
    assert answer.values.equals(read_table(path))
    assert name == "streamed" or (tmp_path / "out.csv").read_bytes() == path.read_bytes()


def test_a_row_of_a_complete_table_is_shown_on_the_page_without_draws(tmp_path):
    path, folder = table(tmp_path / "t.parquet"), Folder()
    loaded = load(path.name, path.read_bytes(), folder.path)
    job = Job(loaded, Settings(draws=2), folder)
    job.wait(120)
    assert (job.result.recoverer, job.result.draws, job.result.report) == (None, None, None)
    assert (job.result.missing, job.result.left) == (0, 0)


def test_a_complete_stream_has_no_mark_of_missing_values(tmp_path):
    """Of a table that is complete but for a code that stands for missing values, the cells are filled."""
    path = table(tmp_path / "t.parquet", c=[-99.0 if i % 6 == 0 else i / 7 for i in range(60)])
    for entrance in (from_recover, from_recover_streamed):
        answer = entrance(path, tmp_path, "--missing", "c=-99")
        assert COMPLETE not in answer.notices
        assert -99.0 not in answer.values["c"].to_pylist()


@pytest.mark.parametrize("entrance", OF_TABLES)
def test_text_with_holes_passes_through_with_the_same_notice(tmp_path, entrance):
    note = [None if i % 7 == 0 else f"remark {i}" for i in range(60)]
    path = table(tmp_path / "t.parquet", note=note, c=holed())
    wanted = from_python(path, tmp_path)
    assert any("column 'note'" in notice for notice in wanted.notices)
    answer = OF_TABLES[entrance](path, tmp_path)
    assert entrance == "diagnose" or answer.values.equals(wanted.values)
    assert entrance == "engine" or answer.notices == wanted.notices


def test_a_sample_keeps_the_notice_of_text_with_holes(tmp_path, monkeypatch):
    from unfade.streaming import fit as sampling

    rng = np.random.default_rng(0)
    note = [None if i % 7 == 0 else f"remark {i}" for i in range(3000)]
    write_table(pa.table({"a": rng.normal(size=3000), "b": rng.normal(size=3000), "note": note}), tmp_path / "t.parquet")
    monkeypatch.setattr(sampling.Sample, "_most", lambda self: 1000)
    with pytest.warns(DataNotice, match="column 'note'"):
        fit_stream(quick(), tmp_path / "t.parquet")


@pytest.mark.parametrize("entrance", OF_TABLES)
def test_a_column_called_draw_is_a_column_like_others_where_no_draws_are_made(tmp_path, entrance):
    path = table(tmp_path / "t.parquet", draw=holed())
    wanted = from_python(path, tmp_path)
    answer = OF_TABLES[entrance](path, tmp_path)
    assert answer.refusal == ""
    assert entrance == "diagnose" or answer.values.equals(wanted.values)


def test_a_column_called_draw_is_refused_wherever_draws_need_the_name(tmp_path):
    """In Python draws are an axis and need no name; `diagnose` writes none; the page gives all but the file of draws."""
    path = table(tmp_path / "t.parquet", draw=holed())
    refusals = [
        from_recover(path, tmp_path, "--draws-to", tmp_path / "d.parquet").refusal,
        from_recover_streamed(path, tmp_path, "--draws", "2").refusal,
        from_engine(path, tmp_path, draws=2, id_column="a").refusal,
    ]
    refusals += [notice for notice in from_page(path, tmp_path).notices if "draws file" in notice]
    assert len(refusals) == 4
    for refusal in refusals:
        assert "draw" in refusal
        assert "Rename" in refusal
    assert quick().fit(read_table(path)).sample(read_table(path), 2).columns == ("a", "b", "draw")


def test_a_model_from_a_file_gives_the_same_everywhere(tmp_path):
    """The page fits anew and takes no model from a file."""
    path, saved = table(tmp_path / "t.parquet", c=holed()), tmp_path / "m.unfade"
    given = read_table(path)
    fitted = quick().fit(given)
    fitted.save(saved)
    wanted, draws = fitted.transform(given), fitted.sample(given, 2, seed=0)
    loaded = Recoverer.load(saved)
    assert loaded.transform(given).equals(wanted)
    draws_at, parts = tmp_path / "d.parquet", tmp_path / "out"
    answer = from_recover(path, tmp_path, "--model", saved, "--draws-to", draws_at, "--draws", "2")
    assert answer.values.equals(wanted)
    assert read_table(draws_at).drop_columns(["draw", "row"]).equals(pa.concat_tables([draws[0], draws[1]]))
    assert from_recover_streamed(path, tmp_path, "--model", saved, "--draws", "2").values.equals(wanted)
    assert read_table(parts / "draws.parquet" / "part-000000.parquet").equals(read_table(draws_at))
    assert recover_stream(saved, path, tmp_path / "again").name == "again"
    assert read_table(tmp_path / "again" / "clean.parquet" / "part-000000.parquet").equals(wanted)
    assert recover_batch(saved)(given).equals(wanted)
    judged, answer = command("diagnose", path, "--model", saved)
    assert answer.refusal == ""
    assert str(loaded.diagnose(given)).splitlines()[0] in judged.output
