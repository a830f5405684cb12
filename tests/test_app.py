import gc
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unfade import Recoverer
from unfade.app import jobs, row_view, serve, workspaces
from unfade.app.jobs import Job, Settings
from unfade.app.samples import SAMPLES
from unfade.app.timing import Pace, Schedule
from unfade.app.uploads import Folder, load
from unfade.app.workspaces import Workspace, Workspaces
from unfade.data.columns import KINDS
from unfade.errors import InvalidData, InvalidFile
from unfade.io.tables import read_table, write_table

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUICK = Settings(draws=3, seed=1, seconds=1.0)


def mixed_table(rows=120):
    """Four columns with holes, one of them text."""
    rng = np.random.default_rng(0)
    depth = rng.normal(10, 3, rows)
    columns = {
        "depth": depth.round(4),
        "heat": (2 * depth + rng.normal(size=rows)).round(4),
        "salt, g": rng.gamma(2.0, 5.0, rows).round(4),
        "town": np.where(depth > 10, "Oslo", "Bergen <b>").astype(object),
    }
    holes = {name: rng.random(rows) < 0.2 for name in columns}
    return pa.table({name: pa.array(values, mask=holes[name]) for name, values in columns.items()})


def content(table, tmp_path, name):
    write_table(table, tmp_path / name)
    return (tmp_path / name).read_bytes()


@pytest.fixture
def folder():
    return Folder()


@pytest.fixture
def loaded(tmp_path, folder):
    return load("towns.csv", content(mixed_table(), tmp_path, "in.csv"), folder.path)


@pytest.fixture
def report(monkeypatch):
    def write(rec, path, X, draws=None):
        Path(path).write_text(f"<!doctype html><p>{len(draws)} draws of {len(X)} rows</p>")

    monkeypatch.setattr(Recoverer, "report", write, raising=False)


def fast(monkeypatch, steps=20):
    """Fits of a fixed, small number of steps: equal from run to run."""
    monkeypatch.setattr(jobs, "Recoverer", lambda **settings: Recoverer(**{**settings, "max_steps": steps}))


def finished(job):
    job.wait(120)
    assert not job.running
    return job


def test_a_file_is_described(loaded):
    assert (loaded.name, loaded.ending, loaded.stem, loaded.rows) == ("towns.csv", ".csv", "towns", 120)
    assert [(c.name, c.kind) for c in loaded.columns] == [
        ("depth", "continuous"), ("heat", "continuous"), ("salt, g", "continuous"), ("town", "category"),
    ]  # fmt: skip
    assert loaded.missing == sum(c.missing for c in loaded.columns) == sum(c.null_count for c in mixed_table().columns)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("a.csv", b""),
        ("a.csv", b"x,y\n"),
        ("a.csv", b"1,2\n3,4\n"),
        ("a.csv", b"a,b\n1,2,3\n4\n"),
        ("a.csv", b"\xff\xfe\x00\x01" * 40),
        ("a.csv.gz", b"no gzip"),
        ("a.parquet", b"PAR1 and no more"),
        ("a.feather", b"text"),
        ("a.npy", b"\x93NUMPY"),
        ("a.npz", b"PK\x03\x04 broken"),
        ("a.xlsx", b"PK"),
        ("../../a.csv", b""),
    ],
)
def test_a_bad_file_is_one_sentence(name, bad, folder):
    with pytest.raises(InvalidFile) as caught:
        load(name, bad, folder.path)
    said = str(caught.value)
    assert "\n" not in said
    assert Path(name).name in said
    assert str(folder.path) not in said
    assert not list(folder.path.iterdir())


def test_every_kind_of_column_has_its_word():
    assert tuple(pytest.importorskip("unfade.app.elements").KINDS) == KINDS


def test_a_column_of_lists_is_told(tmp_path, folder):
    table = pa.table({"a": [1.5, None, 2.5], "b": [[1], [2], None]})
    (_, b) = load("a.parquet", content(table, tmp_path, "in.parquet"), folder.path).columns
    assert b.kind == "passthrough"
    assert "list objects" in b.problem


def test_folders_are_private_and_go_with_their_owner():
    folder = Folder()
    path = folder.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "x").write_text("secret")
    del folder
    gc.collect()
    assert not path.exists()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_results_are_those_of_the_estimator(ending, tmp_path, folder, report, monkeypatch):
    monkeypatch.setattr(jobs, "AT_ONCE", 50)  # rows come in three parts
    fast(monkeypatch)
    loaded = load(f"towns{ending}", content(mixed_table(), tmp_path, f"in{ending}"), folder.path)
    job = finished(Job(loaded, Settings(noise="learn-by-column", draws=3, seed=1), folder))
    result = job.result
    assert job.error is None
    assert result.left == 0
    rec = Recoverer(noise="learn-by-column", max_steps=20, random_state=1, verbose=0).fit(loaded.table)
    write_table(rec.transform(loaded.table), tmp_path / f"expected{ending}")
    assert result.clean.read_bytes() == (tmp_path / f"expected{ending}").read_bytes()
    draws = rec.sample(loaded.table, 3, seed=1)
    long = read_table(result.draws)
    assert long.column_names == ["draw", "row", *loaded.table.column_names]
    assert long.drop(["draw", "row"]).to_pylist() == [row for table in draws for row in table.to_pylist()]
    assert result.report.read_text() == "<!doctype html><p>3 draws of 120 rows</p>"
    assert not list(Path(result.clean).parent.glob("*.draft*"))


def test_a_csv_file_keeps_its_own_text(folder, report, monkeypatch):
    fast(monkeypatch)
    rows = [f"{i / 4:.2f},{9 + i % 8:02d}:30,{'TRUE' if i % 3 else 'FALSE'},{i % 5}.0" for i in range(40)]
    given = "\r\n".join(["a,at,on,n", *rows, ",10:30,TRUE,1.0", "2.50,,,2.0", "5.00,11:30,TRUE,"]) + "\r\n"
    result = finished(Job(load("a.csv", given.encode(), folder.path), QUICK, folder)).result
    lines = result.clean.read_bytes().decode().split("\r\n")
    assert lines[:41] == ["a,at,on,n", *rows]
    new = [line.split(",") for line in lines[41:44]]
    assert re.fullmatch(r"\d+\.\d\d", new[0][0])
    assert re.fullmatch(r"\d\d:\d\d", new[1][1])
    assert new[1][2] in ("TRUE", "FALSE")
    assert re.fullmatch(r"\d\.0", new[2][3])


def test_series_are_filled_along_time(folder, report):
    hours = np.arange(300)
    level, days = np.sin(hours / 4) + hours / 100, [f"2024-01-{1 + h // 24:02d} {h % 24:02d}:00" for h in hours]
    rows = [
        f"{day},{'' if 100 <= h < 110 else f'{x:.3f}'},{x**2:.3f}" for h, day, x in zip(hours, days, level, strict=True)
    ]
    loaded = load("a.csv", "\n".join(["when,level,other", *rows]).encode(), folder.path)
    job = finished(Job(loaded, Settings(draws=3, time="when"), folder))
    assert job.error is None
    clean = np.array(read_table(job.result.clean)["level"].to_pylist())
    assert np.abs(clean - level).max() < 0.6
    assert "<svg" in job.result.series


def test_a_row_and_its_draws(loaded, folder, report, monkeypatch):
    fast(monkeypatch)
    result = finished(Job(loaded, Settings(draws=4), folder)).result
    long = read_table(result.draws).to_pylist()
    row = next(i for i in range(120) if mixed_table()["town"][i].as_py() is None)
    view = row_view.row_view(loaded, result, row)
    assert view.draws == [{k: r[k] for k in loaded.table.column_names} for r in long if r["row"] == row]
    town = view.cells[3]
    assert (town.column, town.came, town.became) == ("town", "", "filled")
    assert town.clean in ("Oslo", "Bergen <b>")
    assert "%" in town.likely
    known = next(c for c in view.cells if c.came)
    assert (known.became, known.likely, known.clean) == ("unchanged", "", known.came)


def test_images(tmp_path, folder, report, monkeypatch):
    fast(monkeypatch)
    images = np.random.default_rng(0).random((30, 4, 4))
    images[::3, 1] = np.nan
    loaded = load("i.npy", content(images, tmp_path, "i.npy"), folder.path)
    assert (loaded.columns, loaded.event_shape, loaded.missing) == ((), (4, 4), 40)
    result = finished(Job(loaded, Settings(draws=2), folder)).result
    clean = read_table(result.clean)
    assert np.array_equal(clean[~np.isnan(images)], images[~np.isnan(images)])
    assert np.isfinite(clean).all()
    view = row_view.image_view(loaded, result, 0, 1)
    assert [name for name, _ in view] == ["given", "mean", "draw 1", "standard deviation"]
    assert view[0][1].shape == (160, 160, 3)


def test_a_wrong_setting_is_a_sentence(loaded, folder):
    job = finished(Job(loaded, Settings(kinds={"town": "continuous"}), folder))
    assert job.result is None
    assert job.error.startswith("Column 'town' cannot be of kind 'continuous'")
    assert "too many" in finished(Job(loaded, Settings(draws=10**9), folder)).error


def test_settings_that_nobody_changed_are_the_defaults():
    from streamlit.testing.v1 import AppTest

    def script():
        import streamlit as st

        from unfade.app.settings_form import settings_step
        from unfade.app.uploads import load
        from unfade.app.workspaces import Workspace

        workspace = st.session_state.setdefault("workspace", Workspace())
        table = load("a.csv", b"x,y\n1,2\n3,\n4,5\n", workspace.folder.path)
        st.markdown(repr(settings_step(workspace, table, False)))

    page = AppTest.from_function(script, default_timeout=60).run()
    for _ in range(2):
        assert not page.exception
        assert "all else by default" in page.markdown[0].value
        assert page.markdown[-1].value == repr(Settings())
        page.run()


def test_rules_are_read_as_constraints():
    rules = (
        "total = rent + food\n bmi=wgt / (hgt / 100) ** 2\n\nlow <= `mid point` <= high\nage moved if moved == 1\nd = a - b"
    )
    assert Settings(rules=rules).constraints() == {
        "sums": {"total": ["rent", "food"]},
        "derived": {"bmi": "wgt / (hgt / 100) ** 2", "d": "a - b"},
        "order": ["low <= `mid point` <= high"],
        "applicable": {"age moved": "moved == 1"},
    }
    for bad in ("total", "a == b", "= a + b"):
        with pytest.raises(InvalidData, match="A rule is bmi = weight"):
            Settings(rules=bad).constraints()


def test_rules_and_time_hold_in_the_results(tmp_path, folder, report):
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.normal(size=150))
    columns = {"hour": np.arange(150), "low": level, "high": level + rng.uniform(0, 1, 150)}
    holes = {name: rng.random(150) < 0.2 * (name != "hour") for name in columns}
    table = pa.table({name: pa.array(values, mask=holes[name]) for name, values in columns.items()})
    loaded = load("series.csv", content(table, tmp_path, "series.csv"), folder.path)
    for settings in (Settings(draws=3, rules="low <= high", seconds=2.0), Settings(draws=3, time="hour", seconds=2.0)):
        result = finished(Job(loaded, settings, folder)).result
        clean, draws = read_table(result.clean).to_pandas(), read_table(result.draws).to_pandas()
        assert not clean.isna().any().any()
        assert len(draws) == 450
        assert settings.time or (draws["low"] <= draws["high"]).all()
    assert "['day'], which do not exist" in finished(Job(loaded, Settings(time="day"), folder)).error


def test_without_a_draws_file_the_rest_is_there(tmp_path, folder, report, monkeypatch):
    fast(monkeypatch)
    table = pa.table({"row": [1.5, 2.25, None, 4.5] * 8, "b": [None, 1.1, 2.2, 3.3] * 8})
    loaded = load("a.csv", content(table, tmp_path, "in.csv"), folder.path)
    job = finished(Job(loaded, Settings(draws=2), folder))
    assert job.result.draws is None
    assert job.result.clean.is_file()
    assert sum("names draw and row" in notice for notice in job.notices) == 1


def test_without_a_report_the_rest_is_there(loaded, folder, monkeypatch):
    fast(monkeypatch)
    monkeypatch.setattr(Recoverer, "report", lambda *given, **more: 1 / 0, raising=False)
    job = finished(Job(loaded, Settings(draws=2), folder))
    assert job.result.report is None
    assert job.result.draws.is_file()
    assert job.notices == ["There is no report: unexpected ZeroDivisionError, division by zero."]


@pytest.mark.filterwarnings("always::unfade.errors.DataNotice")
def test_notices_stay_with_their_job(tmp_path, folder, report, monkeypatch):
    fast(monkeypatch)
    jobs = []
    for name in ("here", "there"):
        table = mixed_table().append_column(name, pa.array([None] * 120, pa.float64()))
        jobs.append(Job(load("a.csv", content(table, tmp_path, "in.csv"), folder.path), QUICK, folder))
    for name, job in zip(("here", "there"), jobs, strict=True):
        said = [notice for notice in finished(job).notices if "Time was up" not in notice]
        assert said == [f"Nothing is observed in column '{name}': it is left missing."]
        assert job.result.left == 120


def test_cancelled_at_once_and_when_forgotten(loaded, folder):
    job = Job(loaded, Settings(), folder)
    while job.status.words.startswith("Preparing") and job.running:
        time.sleep(0.01)
    assert "part " in str(job.status)
    job.cancel()
    assert finished(job).error == "Cancelled."
    assert job.result is None
    forgotten = Job(loaded, Settings(), folder)
    worker = next(t for t in threading.enumerate() if isinstance(t, jobs.Worker))
    del forgotten
    gc.collect()
    worker.join(30)
    assert worker.error == "Cancelled."
    assert not list(folder.path.iterdir())


def test_a_fit_ends_when_no_session_waits_and_the_rest_later(loaded):
    here, registry = {"one"}, Workspaces(wait=0.2, patience=1.5)
    workspace = registry.at("", "one", here.__contains__)
    workspace.take("1", "a.csv", b"")
    assert workspace.problem.startswith("a.csv is empty.")
    workspace.loaded = loaded
    workspace.start(Settings())
    job = workspace.job
    time.sleep(0.6)
    assert job.running
    assert registry.at(workspace.word, "two", here.__contains__) is workspace
    here.clear()
    assert finished(job).error == workspaces.LEFT
    assert not workspace.closed
    assert (workspace.job, workspace.loaded) == (job, loaded)
    here.add("two")  # back after a reload, under a new number
    time.sleep(2)
    assert registry.at(workspace.word, "two", here.__contains__) is workspace
    assert not workspace.closed
    here.clear()
    for _ in range(100):
        time.sleep(0.1)
        if workspace.closed:
            break
    assert workspace.closed
    assert (workspace.job, workspace.loaded) == (None, None)
    assert not workspace.folder.path.exists()
    assert registry.at(workspace.word, "two", here.__contains__) is not workspace


def test_a_workspace_is_found_by_its_own_word_alone():
    registry = Workspaces(patience=0.1)
    first, second = (registry.at(word, "one", lambda session: False) for word in ("", "of my choice"))
    assert first is not second
    assert len(second.word) >= 20
    assert registry.at(second.word, "two", lambda session: False) is second


def test_another_file_keeps_settings_but_not_kinds(loaded):
    workspace = Workspace()
    workspace.loaded, workspace.choices = loaded, {"seed": 3, "kinds": ["town"], "kind of town": "ordinal"}
    workspace.clear()
    assert (workspace.choices, workspace.loaded) == ({"seed": 3}, None)


def test_time_left_is_that_of_all_parts():
    now = [0.0]
    schedule = Schedule({"read": 2.0, "learn": 10.0, "write": 4.0}, clock=lambda: now[0])
    assert (schedule.left(), schedule.place) == (16.0, "1 of 3")
    now[0] = 2.0
    schedule.begin("learn")
    schedule.expect(20.0)
    assert schedule.left() == 24.0
    now[0] = 22.0  # learning should be over, and is not
    assert schedule.left() == 6.0
    shares = [schedule.share()]
    now[0] = 32.0
    schedule.begin("write")
    shares.append(schedule.share())
    now[0] = 36.0  # the last part should be over, and is not
    assert schedule.left() == 1.0
    now[0] = 132.0
    shares.append(schedule.share())
    assert shares == sorted(shares)
    assert shares[-1] < 1.0


def test_a_part_that_takes_longer_tells_of_the_later_ones():
    now = [0.0]
    schedule = Schedule({"fill": 1.0, "draw": 2.0, "report": 3.0}, clock=lambda: now[0])
    now[0] = 5.0
    schedule.begin("draw", speaks=True)
    assert schedule.left() == 15.0


def test_a_fit_of_several_runs_leaves_time_for_each():
    now = [0.0]
    pace = Pace(noisy=True, clock=lambda: now[0])

    def told(second, step, steps):
        now[0] = second
        return pace.left(jobs.Progress(step, steps, 0.0, 1.0))

    told(1.0, 50, 500)
    assert told(10.0, 500, 500) > 50.0  # the noise level is found, the rest is to come
    told(11.0, 50, 5000)
    assert told(21.0, 550, 5000) == pytest.approx(89 + 0.2 * 99)
    assert told(110.0, 5000, 5000) > 10.0
    assert Pace(False, 5.0, lambda: 2.0).left(jobs.Progress(50, 5000, 0.0, 900.0)) == 3.0


def test_the_time_left_never_claims_nothing_while_it_works(loaded, folder):
    worker = jobs.Worker(loaded, Settings(seconds=0.001), folder)
    time.sleep(0.01)
    for step in (50, 100, 20, 100):  # two parts of a fit, each to its end
        worker.on_step(jobs.Progress(step, 100, 0.0, 0.0))
    assert re.fullmatch(r"Training · part 2 of 6 · about [1-9]\d* s left", str(worker.now()))
    assert worker.now().share < 1.0


def test_a_limit_is_for_all_of_the_work(loaded, folder):
    parts = jobs.expected_seconds(loaded, Settings())
    later = sum(parts[part] for part in (jobs.FILLING, jobs.DRAWING, jobs.FILES, jobs.REPORT))
    given = {}

    def recoverer(**settings):
        given.update(settings)
        raise InvalidData("No fit here.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "Recoverer", recoverer)
        finished(Job(loaded, Settings(seconds=60.0), folder))
        assert given["max_seconds"] == pytest.approx(60.0 - later)
        finished(Job(loaded, Settings(seconds=1.0), folder))
        assert given["max_seconds"] == 0.5


def test_values_that_stand_for_missing(tmp_path, folder, report, monkeypatch):
    fast(monkeypatch)
    given = pa.table(
        {"a": ["1.5", "gone", "2.5", "4.5"] * 20, "b": [1.0, 2.0, -99.0, None] * 20, "c": [1.0, 2.0, 3.0, 4.0] * 20}
    )
    loaded = load("a.parquet", content(given, tmp_path, "in.parquet"), folder.path)
    marked = loaded.marked(("gone", "-99"))
    assert [(c.kind, c.missing) for c in marked.columns] == [("continuous", 20), ("integer", 40), ("integer", 0)]
    assert (marked.missing, loaded.missing) == (60, 20)
    result = finished(Job(marked, Settings(missing=("gone", "-99"), draws=2), folder)).result
    assert (result.missing, result.left) == (60, 0)
    assert "gone" not in read_table(result.clean)["a"].to_pylist()


def test_cells_filled_with_one_draw_do_not_depend_on_parts(tmp_path, folder, report, monkeypatch):
    fast(monkeypatch)
    monkeypatch.setattr(jobs, "AT_ONCE", 50)
    loaded = load("towns.parquet", content(mixed_table(), tmp_path, "in.parquet"), folder.path)
    result = finished(Job(loaded, Settings(fill="draw", draws=2), folder)).result
    clean = read_table(result.clean)
    assert clean.equals(result.recoverer.transform(loaded.table))
    row = next(i for i in range(60, 120) if mixed_table()["heat"][i].as_py() is None)
    cell = row_view.row_view(loaded, result, row).cells[1]
    assert cell.clean == row_view.words(clean["heat"][row].as_py())


@pytest.mark.parametrize("name", ["scan.PNG", "scans.zip"])
def test_an_image_file_is_told_where_to_go(name, folder):
    with pytest.raises(InvalidFile, match=r"\.npy, \.npz.*unfade recover FOLDER"):
        load(name, b"\x89PNG", folder.path)


@pytest.mark.parametrize("port", [0, 70000])
def test_a_port_that_is_none(port):
    pytest.importorskip("streamlit", reason="streamlit is not installed")
    with pytest.raises(InvalidData, match="65535"):
        serve(port)


def test_what_a_preview_shows(loaded, folder, report, monkeypatch):
    fast(monkeypatch)
    result = finished(Job(loaded, Settings(draws=4), folder)).result
    shown, table = result.preview, mixed_table().to_pylist()
    touched = [i for i, row in enumerate(table) if None in row.values()]
    assert shown.rows.tolist() == touched[:50]
    assert shown.before == [list(table[i].values()) for i in shown.rows]
    clean = read_table(result.clean).to_pylist()
    for number, after, changed in zip(shown.rows, shown.after, shown.changed, strict=True):
        assert after == pytest.approx(list(clean[number].values()), abs=1e-4) if None not in after else True
        assert [change == "filled" for change in changed] == [cell is None for cell in table[number].values()]
    assert shown.given.shape == (120, 4)
    assert shown.drawn.shape == (4, 120, 4)
    assert result.diagnosis.verdicts


def test_draws_for_mice(loaded, folder, report, monkeypatch):
    fast(monkeypatch)
    given = mixed_table().to_pylist()
    for noise in (None, 0.5):
        result = finished(Job(loaded, Settings(noise=noise, draws=3), folder)).result
        long = read_table(result.mice)
        assert long.column_names == [".imp", ".id", *loaded.table.column_names]
        assert long[".imp"].to_pylist() == [i for i in range(4) for _ in range(120)]
        assert long[".id"].to_pylist() == list(range(1, 121)) * 4
        first = long.slice(0, 120).drop([".imp", ".id"]).to_pylist()
        draws = read_table(result.draws).drop(["draw", "row"]).to_pylist()
        assert long.slice(120).drop([".imp", ".id"]).to_pylist() == draws
        if noise is None:
            assert first == given
        for i, row in enumerate(first):  # what is there is what all draws have
            assert all(cell is None or draws[120 + i][name] == cell for name, cell in row.items())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_samples_can_be_read(sample, folder):
    found = load(sample.name, sample.make(), folder.path)
    assert found.missing > 0
    assert not [column.problem for column in found.columns if column.problem]


def test_parts_of_the_work_are_listed():
    now = [0.0]
    schedule = Schedule({"read": 2.0, "learn": 10.0, "write": 4.0}, clock=lambda: now[0])
    now[0] = 3.0
    schedule.begin("learn")
    schedule.expect(8.0)
    assert [(part.name, part.state, part.seconds) for part in schedule.parts()] == [
        ("read", "done", 3.0), ("learn", "now", 8.0), ("write", "later", 4.0),
    ]  # fmt: skip


# The page in a browser. ---------------------------------------------------------------------------------------------

SERVER = "from unfade.app import serve; serve(open_browser=False)"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("streamlit", reason="streamlit is not installed")
    pytest.importorskip("playwright", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    home = tmp_path_factory.mktemp("app")
    environment = {**os.environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"}
    with (home / "log").open("w") as log:
        server = subprocess.Popen([sys.executable, "-u", "-c", SERVER], stdout=log, stderr=log, env=environment, cwd=home)
    try:
        for _ in range(600):
            found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", (home / "log").read_text())
            if found or server.poll() is not None:
                break
            time.sleep(0.1)
        assert found, (home / "log").read_text()
        yield found[0]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    assert not list(home.glob("unfade-*"))  # folders of sessions
    assert "Traceback" not in (home / "log").read_text()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(address, browser):
    """A page that must neither complain nor ask anybody but the server."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30_000)
    wrong = []
    page.on(
        "console", lambda said: wrong.append(said.text) if said.type == "error" and "favicon" not in said.text else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if not ours(request.url) else None)
    yield page
    page.close()
    assert wrong == []


def ours(url):
    return re.match(r"(http|ws)://127\.0\.0\.1:|data:|blob:|about:", url) is not None


def settings(page):
    """Unfold the settings."""
    unfolded = page.locator("details", has_text="Change settings")
    unfolded.wait_for()
    if unfolded.get_attribute("open") is None:
        page.locator("summary", has_text="Change settings").click()


def give(page, address, name, data):
    page.goto(address)
    page.locator("input[type=file]").set_input_files({"name": name, "mimeType": "text/csv", "buffer": data})


def test_without_the_key_nothing_is_served(page, address):
    for url in (address.split("?")[0], address[:-1]):
        page.goto(url)
        page.get_by_text("This page needs its key").wait_for()
        assert page.locator("input[type=file]").count() == 0


def test_a_bad_file_on_the_page(page, address):
    give(page, address, "broken.parquet", b"PAR1 and no more")
    page.get_by_text("Cannot read broken.parquet").wait_for()
    assert "Traceback" not in page.content()
    assert page.get_by_role("button", name="Fill and clean").count() == 0


def test_the_page_fills_a_table(page, address, tmp_path):
    give(page, address, "towns.csv", content(mixed_table(), tmp_path, "in.csv"))
    page.get_by_text("Missing cells per column").wait_for()
    assert "Bergen <b>" not in page.locator(".unfade-bars").inner_html()
    settings(page)
    page.get_by_role("spinbutton", name="Time limit in seconds").fill("3")
    page.get_by_role("spinbutton", name="Number of draws").fill("5")
    page.get_by_role("spinbutton", name="Number of draws").press("Enter")
    page.get_by_role("button", name="Fill and clean").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_role("button", name="Clean data").wait_for(timeout=300_000)
    with page.expect_download() as download:
        page.get_by_role("button", name="Clean data").click()
    assert download.value.suggested_filename == "towns-clean.csv"
    download.value.save_as(tmp_path / "clean.csv")
    before, after = read_table(tmp_path / "in.csv"), read_table(tmp_path / "clean.csv")
    assert after.column_names == before.column_names
    assert sum(column.null_count for column in after.columns) == 0
    for old, new in zip(before.columns, after.columns, strict=True):
        assert all(o is None or o == n for o, n in zip(old.to_pylist(), new.to_pylist(), strict=True))
    with page.expect_download() as download:
        page.get_by_role("button", name="5 draws").click()
    download.value.save_as(tmp_path / "draws.parquet")
    assert len(read_table(tmp_path / "draws.parquet")) == 5 * 120
    with page.expect_download() as download:
        page.get_by_role("button", name="Draws for R's mice").click()
    download.value.save_as(tmp_path / "mice.csv")
    assert len(read_table(tmp_path / "mice.csv")) == 6 * 120
    with page.expect_download() as download:
        page.get_by_role("button", name="Report").click()
    assert download.value.suggested_filename == "towns-report.html"
    pictures(page, tmp_path, "table")
    assert page.locator(".unfade-table mark.filled").count() > 10
    page.get_by_role("radio", name="Before").click()
    page.locator(".unfade-table mark.gone").first.wait_for()
    page.get_by_role("tab", name="Column by column").click()
    page.locator("img[alt^='Distribution of observed values']").wait_for()
    page.get_by_role("tab", name="Along the rows").click()
    page.locator("img[alt*='along rows 0 to 119']").wait_for()
    page.locator("summary", has_text="The report").click()
    inside = page.frame_locator("iframe[title=Report]").frame_locator("iframe")
    inside.get_by_role("heading", name="How far to trust these results").wait_for()
    pictures(page, tmp_path, "report")
    page.get_by_role("tab", name="One row").click()
    page.get_by_text("Its 5 draws").wait_for()
    pictures(page, tmp_path, "row")


def test_the_page_fills_series_and_zooms(page, address, tmp_path):
    hours = np.arange(400)
    level = np.sin(hours / 4) + hours / 100
    days = [f"2024-01-{1 + h // 24:02d}T{h % 24:02d}:00:00Z" for h in hours]
    cells = ["" if 100 <= h < 130 else f"{x:.3f}" for h, x in zip(hours, level, strict=True)]
    rows = [f"{day},{cell},{x**2:.3f}" for day, cell, x in zip(days, cells, level, strict=True)]
    give(page, address, "tank.csv", "\n".join(["when,level,other", *rows]).encode())
    page.get_by_text("Missing cells per column").wait_for()
    settings(page)
    page.set_viewport_size({"width": 1280, "height": 1500})  # a list of options closes where the page moves
    page.wait_for_timeout(1000)
    page.locator("[data-testid=stSelectbox]", has_text="Rows follow each other in time").locator("input").click()
    page.locator("[role=option]", has_text="when").click()
    page.get_by_text("Columns that identify each of several series").wait_for()
    page.get_by_role("button", name="Fill and clean").click()
    page.get_by_role("button", name="Clean data").wait_for(timeout=300_000)
    inside = page.frame_locator("iframe[title=Series]").frame_locator("iframe")
    ends = inside.locator("svg").first.locator("text[text-anchor=end]").last
    ends.wait_for()
    whole = ends.inner_html()
    pictures(page, tmp_path, "series")
    inside.get_by_role("button", name="Zoom in").click()
    assert ends.inner_html() < whole
    inside.get_by_role("button", name="All").click()
    assert ends.inner_html() == whole


def pictures(page, folder, name):
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(700)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"{name}_{width}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_fit_can_be_cancelled_on_the_page(page, address, tmp_path):
    give(page, address, "towns.csv", content(mixed_table(), tmp_path, "in.csv"))
    settings(page)
    page.get_by_role("spinbutton", name="Time limit in seconds").fill("60")
    page.get_by_role("spinbutton", name="Time limit in seconds").press("Enter")
    page.get_by_role("button", name="Fill and clean").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    assert page.get_by_role("button", name="Fill and clean").is_enabled()


def test_a_reload_brings_back_data_settings_progress_and_results(page, address, tmp_path):
    give(page, address, "towns.csv", content(mixed_table(), tmp_path, "in.csv"))
    page.get_by_text("Missing cells per column").wait_for()
    settings(page)
    for name, value in (("Seed", "7"), ("Number of draws", "3"), ("Time limit in seconds", "8")):
        page.get_by_role("spinbutton", name=name).fill(value)
        page.get_by_role("spinbutton", name=name).press("Enter")
    page.get_by_role("button", name="Fill and clean").click()
    page.get_by_role("button", name="Cancel").wait_for()
    page.reload()
    page.get_by_role("button", name="Cancel").wait_for()
    page.get_by_text("towns.csv").wait_for()
    assert "s left" in page.locator("[data-testid=stProgress]").inner_text()
    page.get_by_role("button", name="Clean data").wait_for(timeout=120_000)
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("button", name="Clean data").click()
    assert download.value.suggested_filename == "towns-clean.csv"
    settings(page)
    assert page.get_by_role("spinbutton", name="Seed").input_value() == "7"
    warning = page.get_by_text("Settings have changed since these results were made")
    assert warning.all_inner_texts() == []
    page.get_by_role("spinbutton", name="Seed").fill("8")
    page.get_by_role("spinbutton", name="Seed").press("Enter")
    page.get_by_text("seed was 7, now 8").wait_for()
    page.reload()
    warning.wait_for()
    page.get_by_text("seed: 7").wait_for()
    page.get_by_role("button", name="Load another file").click()
    page.locator("input[type=file]").wait_for(state="attached")
    assert page.get_by_text("Missing cells per column").count() == 0


def test_a_picture_is_told_where_to_go_on_the_page(page, address):
    give(page, address, "scan.png", b"\x89PNG")
    page.get_by_text("unfade recover FOLDER").wait_for()


def test_words_for_missing_are_counted_on_the_page(page, address):
    give(page, address, "a.csv", b"a,b\n1.5,2.5\n-99,3.5\n2.5,4.5\n")
    page.get_by_text("missing cells", exact=True).wait_for()
    assert "0 (0 %)" in page.locator(".unfade-facts").inner_text()
    settings(page)
    page.get_by_role("textbox", name="Values that stand for missing").fill("-99")
    page.get_by_role("textbox", name="Values that stand for missing").press("Enter")
    page.get_by_text("1 (17 %)").wait_for()


def test_a_column_that_words_for_missing_mend_is_no_longer_left_out(page, address):
    rows = "".join(f"{70 + i / 10},{i}\n" for i in range(40))
    give(page, address, "a.csv", f"kilos,b\n{rows}refused,1\nrefused,2\n".encode())
    page.get_by_text("Type of kilos").wait_for()
    settings(page)
    page.get_by_role("textbox", name="Values that stand for missing").fill("refused")
    page.get_by_role("textbox", name="Values that stand for missing").press("Enter")
    page.get_by_text("2 (2 %)").wait_for()
    page.get_by_text("Type of kilos").wait_for(state="detached")


def test_sessions_do_not_see_each_other(page, address, browser, tmp_path):
    give(page, address, "towns.csv", content(mixed_table(), tmp_path, "in.csv"))
    page.get_by_text("Missing cells per column").wait_for()
    other = browser.new_page()
    other.goto(address)
    other.locator("input[type=file]").wait_for(state="attached")
    assert "Missing cells per column" not in other.content()
    other.close()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_can_be_tried(sample, page, address):
    page.goto(address)
    page.get_by_role("button", name=f"{sample.title}: {sample.says}").click()
    page.get_by_role("button", name="Fill and clean").wait_for()
    page.get_by_text(sample.name).wait_for()
    settings(page)
    for name, value in sample.choices.items():
        if name == "noise":
            assert page.get_by_role("radio", name="They carry noise: estimate its level per column").is_checked()
        elif name == "time":
            assert page.get_by_role("combobox", name="Column with the time").input_value() == value
        else:
            assert page.get_by_role("spinbutton", name="Time limit in seconds").input_value() == str(value)
