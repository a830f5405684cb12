"""Every entrance gives the same values, notices and refusals: Python, `recover`, `diagnose`, the page, engines, folders."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from unfade import DataNotice, Recoverer
from unfade.app import jobs
from unfade.app.jobs import Job, Settings
from unfade.app.uploads import Folder, load
from unfade.cli.app import app
from unfade.engines import recover_batch
from unfade.io.images import read_data
from unfade.io.tables import read_table
from unfade.streaming import fit_stream, recover_stream

FAST = {"max_steps": 5, "n_members": 1, "n_candidates": 5}
OPTIONS = ["--max-steps", "5", "--n-members", "1", "--n-candidates", "5"]


def recovered_by_command(path, out, *options):
    done = CliRunner().invoke(app, ["recover", str(path), "-o", str(out), *OPTIONS, *options])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture
def page(monkeypatch):
    """What the page makes of a file, with the settings of the others."""
    made = jobs.Recoverer
    monkeypatch.setattr(jobs, "Recoverer", lambda **chosen: made(**{**chosen, **FAST}))
    monkeypatch.setattr(Recoverer, "report", lambda self, path, *_, **__: None)
    jobs.hear_notices()

    def run(path, draws=2):
        folder = Folder()
        job = Job(load(path.name, path.read_bytes(), folder.path), Settings(draws=draws), folder)
        job.wait(120)
        assert job.error is None, job.error
        job.kept = folder
        return job

    return run


def table(path, **columns):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)} | columns)
    frame.to_csv(path, index=False)
    return path


def test_zeros_of_a_stack_of_whole_numbers_are_missing_everywhere(tmp_path, page):
    rng = np.random.default_rng(0)
    stack = rng.integers(1, 200, size=(12, 8, 9)).astype(np.uint8)
    for number, image in enumerate(stack):
        image[number % 6 : number % 6 + 2, 3:5] = 0
    path = tmp_path / "stack.npy"
    np.save(path, stack)
    array, rule = read_data(path)
    assert np.isnan(array).sum() == (stack == 0).sum()
    said = recovered_by_command(path, tmp_path / "out.npy")
    assert str(rule) in said.output
    by_command = np.load(tmp_path / "out.npy")
    assert np.array_equal(by_command[stack > 0], stack[stack > 0])
    assert (by_command > 0).all()
    judged = CliRunner().invoke(app, ["diagnose", str(path), *OPTIONS[:4]])
    assert str(rule) in judged.output
    assert page(path).notices[0].startswith("Missing pixels: all of value 0") or str(rule) in page(path).notices[0]


def test_a_complete_table_comes_back_as_it_is_everywhere(tmp_path, page):
    path = table(tmp_path / "t.csv")
    given = read_table(path)
    recovered_by_command(path, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()
    assert Recoverer(**FAST, random_state=0, verbose=0).fit_transform(given).equals(given)
    assert read_table(page(path).result.clean).equals(given)
    recovered_by_command(path, tmp_path / "out")
    assert read_table(tmp_path / "out" / "clean.parquet" / "part-000000.parquet").equals(given)


def test_text_with_holes_passes_through_with_the_same_notice_everywhere(tmp_path, page):
    note = [None if i % 7 == 0 else f"remark {i}" for i in range(60)]
    path = table(tmp_path / "t.csv", note=note)
    with pytest.warns(DataNotice, match="passthrough") as heard:
        Recoverer(**FAST, random_state=0, verbose=0).fit(read_table(path))
    (text,) = {str(each.message) for each in heard if "passthrough" in str(each.message)}
    assert text in recovered_by_command(path, tmp_path / "out.csv").stderr
    assert text in recovered_by_command(path, tmp_path / "out").stderr
    assert text in CliRunner().invoke(app, ["diagnose", str(path), *OPTIONS[:4]]).stderr
    assert any(text in notice for notice in page(path).notices)


def test_a_sample_keeps_the_notice_of_text_with_holes(tmp_path, monkeypatch):
    from unfade.streaming import fit as sampling

    note = [None if i % 7 == 0 else f"remark {i}" for i in range(3000)]
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=3000), "b": rng.normal(size=3000), "note": note}).to_csv(
        tmp_path / "t.csv", index=False
    )
    monkeypatch.setattr(sampling._Sample, "_most", lambda self: 1000)
    with pytest.warns(DataNotice, match="column 'note'"):
        fit_stream(Recoverer(**FAST, random_state=0, verbose=0), tmp_path / "t.csv")


def test_a_column_called_draw_is_refused_wherever_draws_need_the_name(tmp_path, page):
    rng = np.random.default_rng(1)
    draw = rng.normal(size=60)
    draw[:9] = np.nan
    path = table(tmp_path / "t.csv", draw=draw)
    for target in (["-o", tmp_path / "o.csv", "--draws-to", tmp_path / "d.csv"], ["-o", tmp_path / "out", "--draws", "2"]):
        done = CliRunner().invoke(app, ["recover", str(path), *map(str, target), *OPTIONS])
        assert done.exit_code == 3
        assert "draw" in done.output
        assert "Rename" in done.output
    assert any("names draw and row" in notice for notice in page(path).notices)
    rec = Recoverer(**FAST, random_state=0, verbose=0).fit(read_table(path))
    with pytest.raises(Exception, match="Rename"):
        recover_batch(rec, 2, id_column="a")(read_table(path))


def test_a_model_from_a_file_gives_the_same_everywhere(tmp_path):
    rng = np.random.default_rng(2)
    c = rng.normal(size=60)
    c[::5] = np.nan
    path, saved = table(tmp_path / "t.csv", c=c), tmp_path / "m.unfade"
    given = read_table(path)
    Recoverer(**FAST, random_state=0, verbose=0).fit(given).save(saved)
    rec = Recoverer.load(saved)
    wanted, draws = rec.transform(given), rec.sample(given, 2, seed=0)
    recovered_by_command(
        path, tmp_path / "o.parquet", "--model", saved, "--draws-to", tmp_path / "d.parquet", "--draws", "2"
    )
    assert read_table(tmp_path / "o.parquet").equals(wanted)
    long = read_table(tmp_path / "d.parquet")
    assert long.drop_columns(["draw", "row"]).equals(pa.concat_tables([draws[0], draws[1]]))
    recover_stream(saved, path, tmp_path / "out", draws=2, seed=0)
    assert read_table(tmp_path / "out" / "clean.parquet" / "part-000000.parquet").equals(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert recover_batch(saved)(given).equals(wanted)
