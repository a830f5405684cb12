"""Files that need not fit into memory: what is streamed equals what is done in memory, and is whole or not there."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

from unfade import DataNotice, InvalidData, InvalidFile, Recoverer, UnfadeError
from unfade.io import large_tables as sources
from unfade.io.guise import Guise
from unfade.io.large_tables import Source
from unfade.io.tables import read_table, write_table
from unfade.streaming import fit as sampling
from unfade.streaming import fit_stream, parse_memory, recover_stream
from unfade.streaming import recover as parts
from unfade.streaming.series import series_blocks

ROWS, DRAWS = 700, 3


def fingerprint(rec):
    return rec.model_.fingerprint()


def tiny(**settings) -> Recoverer:
    return Recoverer(max_steps=20, n_members=1, n_candidates=0, random_state=0, verbose=0, **settings)


def mixed(rows: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).cumsum(1)
    x[rng.random(x.shape) < 0.2] = np.nan
    start = np.datetime64("2020-01-01", "s")

    def some(values):
        return pa.array([None if hidden else v for v, hidden in zip(values, rng.random(rows) < 0.2, strict=True)])

    return pa.table({
        "id": np.arange(rows) + 5,
        "a": pa.array(x[:, 0], from_pandas=True),
        "b": pa.array(x[:, 1].astype(np.float32), from_pandas=True),
        "count": some(rng.poisson(3, rows).tolist()),
        "town": some(rng.choice(["Ulm", "Bonn", "Köln"], rows).tolist()),
        "ok": some((rng.random(rows) < 0.5).tolist()),
        "when": some((start + rng.integers(0, 10**8, rows)).tolist()),
        "note": [f"remark {i}" for i in range(rows)],
        "empty": pa.nulls(rows, pa.float64()),
    })  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("source") / "table.parquet"
    parquet.write_table(mixed(), path, row_group_size=150)
    return path


@pytest.fixture(scope="module")
def rec() -> Recoverer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNotice)
        return tiny().fit(mixed())


def expected(rec: Recoverer, table: pa.Table, folder: Path, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """The same in memory, as the command line writes it: the mean, and draws one below another."""
    below = []
    for number, one in enumerate(rec.sample(table, DRAWS, seed=seed)):
        keys = {"draw": np.full(len(table), number), "row": np.arange(len(table))}
        below.append(pa.table([*keys.values(), *one.columns], names=[*keys, *table.column_names]))
    write_table(rec.transform(table), folder / "mean.parquet")
    write_table(pa.concat_tables(below, promote_options="permissive"), folder / "long.parquet")
    return parquet.read_table(folder / "mean.parquet"), parquet.read_table(folder / "long.parquet")


def results(target: Path) -> tuple[pa.Table, pa.Table]:
    draws = parquet.read_table(target / "draws.parquet")
    return parquet.read_table(target / "clean.parquet"), draws.sort_by([("draw", "ascending"), ("row", "ascending")])


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("512MiB", 2**29),
        (" 1.5 g ", 1.5 * 10**9),
        (10**9, 10**9),
        ("300000000", 3 * 10**8),
        ("1TB", 10**12),
    ],
)
def test_amounts_of_memory(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["much", "2XB", "-1GB", "", True, "1MB", None])
def test_amounts_that_are_none_are_refused(text):
    with pytest.raises(InvalidData, match="memory"):
        parse_memory(text)


# Fitting


def test_a_fit_on_rows_that_fit_is_that_on_the_whole_table(source, rec):
    with pytest.warns(DataNotice, match="Nothing is observed"):
        found = fit_stream(tiny(), source)
    assert fingerprint(found) == fingerprint(rec)
    assert found.kinds is None


def test_a_saved_model_is_the_same_model(tmp_path, rec):
    rec.save(tmp_path / "model")
    loaded = Recoverer.load(tmp_path / "model")
    assert fingerprint(loaded) == fingerprint(rec)
    calibrated = replace(loaded.model_, calibration=torch.ones(loaded.encoder_.features))
    assert calibrated.fingerprint() != fingerprint(rec)


def test_a_folder_of_files_is_one_table(tmp_path, source, rec):
    for number in range(4):
        parquet.write_table(mixed().slice(number * 200, 200), tmp_path / f"{number}.parquet")
    with pytest.warns(DataNotice, match="Nothing is observed"):
        assert fingerprint(fit_stream(tiny(), tmp_path)) == fingerprint(rec)
    recover_stream(rec, tmp_path, tmp_path / "folder", draws=DRAWS)
    recover_stream(rec, source, tmp_path / "file", draws=DRAWS)
    for one, other in zip(results(tmp_path / "folder"), results(tmp_path / "file"), strict=True):
        assert one.equals(other)


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    parquet.write_table(pa.table({"a": [1.0]}), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    with pytest.raises(InvalidFile, match="other columns or types"):
        fit_stream(tiny(), tmp_path)


def many(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    town = rng.choice([f"town {i}" for i in range(400)], rows).astype(object)
    town[rows // 3] = "rare"
    x[rows // 2, 0] = 99.0  # the largest value, far from the others
    whole = rng.integers(0, 5, rows).astype(float)
    whole[rows // 4] = 2.5  # the only fraction
    key = town + np.arange(rows).astype(str)
    return pa.table({"id": np.arange(rows), "a": x[:, 0], "b": x[:, 1], "n": whole, "town": town, "key": key})


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(sampling.Sample, "_most", lambda self: 1000)
    monkeypatch.setattr(sampling, "READ", 900)


def test_a_sample_misses_no_category_nor_the_ends_of_a_column(tmp_path, little_memory):
    table = many(10_000)
    parquet.write_table(table, tmp_path / "t.parquet")
    rec = fit_stream(tiny(), tmp_path / "t.parquet")
    kinds = {column.name: column.kind for column in rec.columns_}
    assert kinds == {
        "id": "passthrough",
        "a": "continuous",
        "b": "continuous",
        "n": "continuous",
        "town": "category",
        "key": "passthrough",
    }
    assert len(next(column.categories for column in rec.columns_ if column.name == "town")) == 401
    assert rec.kinds is None
    assert rec.sample(table.slice(0, 50), 2).values.shape == (2, 50, 6)


def test_a_sample_is_uniform_and_hangs_on_the_seed_alone(tmp_path, monkeypatch):
    table = pa.table({"x": np.arange(50_000) / 50_000 + 0.00001})
    parquet.write_table(table, tmp_path / "t.parquet")
    monkeypatch.setattr(sampling.Sample, "_most", lambda self: 2000)

    def sample(seed, read):
        source = sources.Source.open(tmp_path / "t.parquet")
        found = sampling.Sample(source.schema, 10**9, seed, tiny().parameters())
        for part in source.tables(read):
            found.add(part)
        return found.table()["x"].to_numpy()

    one, same, other = sample(0, 700), sample(0, 5000), sample(1, 700)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert 2000 <= len(one) <= 2003
    assert np.all(np.diff(one) > 0)
    assert abs(np.sort(one) - (np.arange(len(one)) + 0.5) / len(one)).max() < 1.63 / np.sqrt(len(one))  # Kolmogorov, 1 %
    assert one[0] == table["x"][0].as_py()
    assert one[-1] == table["x"][-1].as_py()


def test_infinity_is_named_with_its_row(tmp_path):
    parquet.write_table(pa.table({"x": [1.0, 2.0, float("inf")]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidData, match="column 'x', row 2"):
        fit_stream(tiny(), tmp_path / "t.parquet")


def test_text_formats_and_marks_are_those_of_the_whole_file(tmp_path, little_memory, monkeypatch):
    monkeypatch.setattr(sampling, "CATEGORIES", 300)
    rng = np.random.default_rng(0)
    rows = 6000
    z = rng.normal(size=rows)
    money = [f"${v:.2f}" for v in 500 + 100 * z]
    money[1234] = "$1,250.5"  # the only one with a mark between thousands
    day = np.datetime64("2024-01-01") + (np.abs(z) * 3000).astype(int)
    dates = [f"{d.astype(object):%d/%m/%Y}" if d.astype(object).day < 13 else "" for d in day]
    dates[2345] = "31/12/2024"  # the only one that tells days from months
    plain = [f"{v:.3f}" for v in z]
    plain[3456] = "."  # the only sign that it is no text
    code = np.where(rng.random(rows) < 0.2, -99.0, z)
    code[4567] = -50.0  # the least value, codes aside
    frame = pa.table(
        {"money": money, "date": dates, "plain": plain, "code": code, "day": np.arange(rows).astype("datetime64[D]")}
    )
    parquet.write_table(frame, tmp_path / "t.parquet")
    rec = Recoverer(max_steps=5, n_candidates=0, n_members=1, missing={"code": [-99]}, random_state=0, verbose=0)
    rec = fit_stream(rec, tmp_path / "t.parquet")
    kinds = {column.name: column.kind for column in rec.columns_}
    assert kinds == {"money": "continuous", "date": "date", "plain": "continuous", "code": "continuous", "day": "date"}
    assert rec.columns_[0].text.thousands == ","
    assert rec.columns_[1].text.pattern == "%d/%m/%Y"
    recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out")
    out = parquet.read_table(tmp_path / "out" / "clean.parquet")
    assert out["money"].to_pylist() == money
    assert "" not in out["date"].to_pylist()
    assert min(out["code"].to_pylist()) == -50
    look = sampling._Range((-99,))
    look.look(frame["code"], 0, "code")
    assert look.needed[0] == 4567
    assert out["day"].equals(frame["day"])


def test_detection_limits_outside_the_sample_are_found(tmp_path, little_memory):
    rng = np.random.default_rng(0)
    lead = [f"{v:.1f}" for v in rng.normal(size=10_000) ** 2 + 1]
    lead[1234] = "<0.5"
    parquet.write_table(pa.table({"lead": lead, "x": rng.normal(size=10_000)}), tmp_path / "t.parquet")
    rec = fit_stream(tiny(), tmp_path / "t.parquet")
    assert [(column.kind, column.censored) for column in rec.columns_] == [("continuous", True), ("continuous", False)]


# Recovering


@pytest.mark.parametrize("size", [64, 512])
def test_streamed_results_are_those_in_memory_bit_for_bit(tmp_path, monkeypatch, source, rec, size):
    monkeypatch.setattr(parts, "_part_rows", lambda *_: size)
    target = recover_stream(rec, source, tmp_path / "out", draws=DRAWS, seed=7)
    mean, long = expected(rec, mixed(), tmp_path, seed=7)
    found = results(target)
    assert found[0].equals(mean)
    assert found[1].equals(long)
    assert len(list((target / "clean.parquet").iterdir())) == -(-ROWS // size)
    assert not (tmp_path / "out.partial").exists()


def test_several_workers_give_the_same(tmp_path, monkeypatch, source, rec):
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 64)
    recover_stream(rec, source, tmp_path / "one", draws=2)
    recover_stream(rec, source, tmp_path / "three", draws=2, workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_refinement_can_be_chosen(tmp_path, source, rec):
    recover_stream(rec, source, tmp_path / "out", draws=1, n_candidates=4, clean=False)
    found = parquet.read_table(tmp_path / "out" / "draws.parquet")["a"]
    assert found.equals(rec.sample(mixed(), 1, n_candidates=4, seed=0)[0]["a"])
    assert not (tmp_path / "out" / "clean.parquet").exists()
    assert rec.n_candidates == 0


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_csv_has_the_types_of_the_whole_file(tmp_path, monkeypatch, ending):
    rows = 3000
    rng = np.random.default_rng(0)
    table = pa.table({
        "late": ["" if i % 7 == 0 else str(i % 5) for i in range(rows - 1)] + ["1.5"],
        "text": [str(i % 3) for i in range(rows - 1)] + ["x"],
        "x": [f"{v:.3f}" for v in rng.normal(size=rows)],
        "void": ["NA"] * (rows - 1) + ["2020-01-01"],
    })  # fmt: skip
    write_table(table, tmp_path / f"t{ending}")
    opened = sources._open_csv
    monkeypatch.setattr(csv, "ReadOptions", lambda block_size, kind=csv.ReadOptions, **more: kind(block_size=1000, **more))
    assert opened(tmp_path / f"t{ending}", Guise()).schema.types[0] == pa.int64()  # what the streaming reader alone finds
    whole = read_table(tmp_path / f"t{ending}")
    assert sources.Source.open(tmp_path / f"t{ending}").schema.equals(whole.schema)
    with pytest.warns(DataNotice, match="Only one value"), pytest.warns(DataNotice, match="numbers or dates but for 'x'"):
        streamed = fit_stream(tiny(), tmp_path / f"t{ending}")
    with pytest.warns(DataNotice, match="Only one value"), pytest.warns(DataNotice, match="numbers or dates but for 'x'"):
        assert fingerprint(streamed) == fingerprint(tiny().fit(whole))
    recover_stream(streamed, tmp_path / f"t{ending}", tmp_path / "out", draws=DRAWS)
    found, wanted = results(tmp_path / "out"), expected(streamed, whole, tmp_path)
    assert found[0].equals(wanted[0])
    assert found[1].equals(wanted[1])


def test_whole_numbers_that_become_fractions_do_so_in_all_parts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = [int(v) for v in rng.integers(0, 10**6, 300)] + [None] * 5
    table = pa.table({"n": n, "x": rng.normal(size=305)})
    rec = tiny(kinds={"n": "continuous"}).fit(table)
    parquet.write_table(table, tmp_path / "t.parquet")
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 64)
    recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out", draws=DRAWS)
    wanted, found = expected(rec, table, tmp_path), results(tmp_path / "out")
    assert found[0].schema.field("n").type == pa.float64()
    assert found[0].equals(wanted[0])
    assert found[1].equals(wanted[1])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


KILLED = """
import sys, time
from unfade.streaming import recover as parts
slow, write = float(sys.argv[4]), parts._write
parts._part_rows = lambda *_: 64
def slowly(table, path):
    time.sleep(slow)
    write(table, path)
parts._write = slowly
print("started", flush=True)
parts.recover_stream(sys.argv[1], sys.argv[2], sys.argv[3], draws=2, resume=True)
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_files(tmp_path, monkeypatch, source, rec):
    rec.save(tmp_path / "model")
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 64)
    recover_stream(rec, source, tmp_path / "whole", draws=2)
    rng, kept = np.random.default_rng(), []
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "model"), str(source), str(tmp_path / "out"), "0.05"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1 + rng.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if (tmp_path / "out").exists():  # it was faster
            break
        kept.append(len(list((tmp_path / "out.partial").glob("draws.parquet/part-*"))))
    assert kept == sorted(kept)
    recover_stream(tmp_path / "model", source, tmp_path / "out", draws=2, resume=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out", "whole"]


class Stopped(Exception):
    pass


def stopped_after(count: int, monkeypatch) -> list[str]:
    """Stop a run in the middle of a part; which parts were written is in the list."""
    write, written = parts._write, []

    def writing(table, path):
        if len(written) == count:
            path.with_name(f".{path.name}").write_bytes(b"half")
            raise Stopped
        write(table, path)
        written.append(path.name)

    monkeypatch.setattr(parts, "_write", writing)
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 64)
    return written


def test_complete_parts_are_kept_only_if_nothing_changed(tmp_path, monkeypatch, source, rec):
    written = stopped_after(5, monkeypatch)
    with pytest.raises(Stopped):
        recover_stream(rec, source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    del written[:]
    written += ["-"] * 6  # never stops again
    recover_stream(rec, source, tmp_path / "out", resume=True)
    assert written[6:] == [f"part-{i:06d}.parquet" for i in range(5, 11)]
    assert recover_stream(rec, source, tmp_path / "out", resume=True) == tmp_path / "out"  # done already
    with pytest.raises(InvalidFile, match="exists already"):
        recover_stream(rec, source, tmp_path / "out", seed=1, resume=True)


@pytest.mark.parametrize("change", ["seed", "source", "model"])
def test_parts_of_something_else_are_not_kept(tmp_path, monkeypatch, rec, change):
    parquet.write_table(mixed(), tmp_path / "t.parquet")
    with monkeypatch.context() as patched:
        stopped_after(4, patched)
        with pytest.raises(Stopped):
            recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out", draws=1)
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 64)
    if change == "source":
        parquet.write_table(mixed(seed=1), tmp_path / "t.parquet")
    if change == "model":
        with pytest.warns(DataNotice, match="Nothing is observed"):
            rec = tiny(noise=0.1).fit(mixed())
    seed = int(change == "seed")
    with pytest.warns(DataNotice, match="begins again"):
        recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out", draws=1, seed=seed, resume=True)
    recover_stream(rec, tmp_path / "t.parquet", tmp_path / "fresh", draws=1, seed=seed)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_two_runs_do_not_write_to_one_folder(tmp_path, source, rec):
    (tmp_path / "out.partial").mkdir()
    with parts._alone(tmp_path / "out.partial"), pytest.raises(InvalidFile, match="Another run"):
        recover_stream(rec, source, tmp_path / "out")


# What goes wrong


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_parquet_file_is_refused(tmp_path, source, rec, share):
    whole = source.read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: int(share * len(whole))])
    for use in (lambda path: fit_stream(tiny(), path), lambda path: recover_stream(rec, path, tmp_path / "out")):
        with pytest.raises(InvalidFile, match="Cannot read"):
            use(tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_damaged_page_leaves_nothing_under_the_name(tmp_path, source, rec):
    damaged = bytearray(source.read_bytes())
    damaged[200:2000] = bytes(1800)
    (tmp_path / "t.parquet").write_bytes(damaged)
    with pytest.raises(UnfadeError, match="Cannot read"):
        recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_truncated_csv_is_refused(tmp_path):
    write_table(pa.table({"a": np.random.default_rng(0).normal(size=1000), "b": np.ones(1000)}), tmp_path / "w.csv.gz")
    (tmp_path / "t.csv.gz").write_bytes((tmp_path / "w.csv.gz").read_bytes()[:-2000])
    with pytest.raises(InvalidFile, match="Cannot read"):
        fit_stream(tiny(), tmp_path / "t.csv.gz")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InvalidFile, match="Expected 2 columns, got 1"):
        fit_stream(tiny(), tmp_path / "t.csv")


@pytest.mark.parametrize("what", ["absent.parquet", "empty.csv", "header.csv", "none.parquet", "."])
def test_sources_that_hold_nothing_are_refused(tmp_path, what):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("a,b\n")
    if what == "none.parquet":
        parquet.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / what)
    with pytest.raises(InvalidFile, match=r"Expected"):
        fit_stream(tiny(), tmp_path / what)


def test_a_folder_that_may_not_be_written_is_told(tmp_path, source, rec):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if os.geteuid() == 0:  # who may do anything, but not here
        locked = Path("/sys")
    with pytest.raises(InvalidFile, match=r"Cannot write .*Nothing was written"):
        recover_stream(rec, source, locked / "out")
    assert not (locked / "out").exists()
    with pytest.raises(InvalidFile, match="does not exist"):
        recover_stream(rec, source, tmp_path / "nowhere" / "out")


def test_a_full_disk_is_told_and_the_run_can_go_on(tmp_path, monkeypatch, source, rec):
    monkeypatch.setattr(parts, "_part_rows", lambda *_: 512)
    recover_stream(rec, source, tmp_path / "whole", draws=1)
    largest = max(path.stat().st_size for path in (tmp_path / "whole").rglob("*.parquet"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1000, before[1]))  # files can grow no further
    try:
        with pytest.raises(InvalidFile, match="resume=True continues"):
            recover_stream(rec, source, tmp_path / "out", draws=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()
    recover_stream(rec, source, tmp_path / "out", draws=1, resume=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_names_that_draws_need_are_refused(tmp_path, rec):
    parquet.write_table(mixed().rename_columns(["row", *mixed().column_names[1:]]), tmp_path / "t.parquet")
    with pytest.raises(InvalidData, match="names draw and row"):
        recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out", draws=1)


def test_settings_are_checked(tmp_path, source, rec):
    for wrong in ({"draws": -1}, {"draws": 1.5}, {"clean": False}, {"workers": 0}, {"memory": "few"}, {"n_candidates": -1}):
        with pytest.raises(InvalidData):
            recover_stream(rec, source, tmp_path / "out", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_says_what_was_done(tmp_path, source, rec):
    plan = json.loads((recover_stream(rec, source, tmp_path / "out", seed=3) / "plan.json").read_text())
    assert (plan["seed"], plan["draws"], plan["model"]) == (3, 0, fingerprint(rec))


def steps_of_series(count=30_000, series=("n",)):
    """Two sensors with gaps along time, a series below another."""
    tables = []
    for number, name in enumerate(series):
        rng = np.random.default_rng(number)
        slow = np.zeros((count, 2))
        shocks = rng.normal(size=slow.shape)
        for t in range(1, count):
            slow[t] = 0.97 * slow[t - 1] + 0.2 * shocks[t]
        values = slow + 0.5 * slow[:, ::-1] + np.sin(np.arange(count) * 2 * np.pi / 24)[:, None]
        for start in rng.integers(0, count, count // 50):
            values[start : start + 12, rng.integers(0, 2)] = np.nan
        when = pd.date_range("2020-01-01", periods=count, freq="h")
        tables.append(pd.DataFrame({"site": name, "when": when, "a": values[:, 0], "b": values[:, 1]}))
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def along_time():
    return Recoverer(time="when", panel="site", random_state=0, verbose=0).fit(steps_of_series(1500))


@pytest.mark.parametrize("sites", [("n",), ("n", "s", "w")])
def test_series_in_parts_are_as_in_memory(tmp_path, monkeypatch, sites, along_time):
    table = steps_of_series(9_000 // len(sites), sites)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    rec = along_time
    monkeypatch.setattr("unfade.streaming.recover._part_rows", lambda *_: 2048)
    target = recover_stream(rec, tmp_path / "t.parquet", tmp_path / "out", draws=20, seed=0)
    assert len(list((target / "clean.parquet").iterdir())) == 5
    clean = pd.read_parquet(target / "clean.parquet")
    mean, draws = rec.transform(table), rec.sample(table, 20, seed=0).values[..., 2:].astype(float)
    assert (clean["when"] == mean["when"]).all()
    assert np.allclose(clean[["a", "b"]], mean[["a", "b"]], atol=1e-6)
    long = pd.read_parquet(target / "draws.parquet").sort_values(["draw", "row"])
    streamed = long[["a", "b"]].to_numpy().reshape(20, len(table), 2)
    gone = table[["a", "b"]].isna().to_numpy()
    far = np.abs(streamed - draws)[:, gone] / draws.std(0)[gone]
    assert np.median(far) < 0.02
    assert np.quantile(far, 0.999) < 0.3


@pytest.mark.parametrize("size", [512, 2048])
def test_series_go_on_as_in_an_undisturbed_run(tmp_path, size, along_time):
    table = steps_of_series(3000, ("n", "s"))
    table.to_parquet(tmp_path / "t.parquet", index=False)
    opened = Source.open(tmp_path / "t.parquet")
    whole = [block for block in series_blocks(along_time.model_, opened, size) if block.wanted.start >= 2 * size]
    later = list(series_blocks(along_time.model_, opened, size, 2 * size))
    assert len(whole) == len(later) > 0
    for one, other in zip(whole, later, strict=True):
        assert (one.start, one.wanted, len(one.given)) == (other.start, other.wanted, len(other.given))
        assert np.array_equal(one.given.timeline.origins, other.given.timeline.origins)
    assert set(later[0].given.timeline.origins) <= {0, 3000}
    table.iloc[[*range(1000), *range(3000, 6000), *range(1000, 3000)]].to_parquet(tmp_path / "u.parquet", index=False)
    with pytest.raises(InvalidData, match="Sort it"):
        list(series_blocks(along_time.model_, Source.open(tmp_path / "u.parquet"), size, 2 * size))


def test_a_fit_on_a_part_keeps_stretches_of_series(tmp_path, monkeypatch):
    table = steps_of_series(24_000)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    monkeypatch.setattr(sampling, "_STEPS", 4096)
    rec = Recoverer(time="when", panel="site", max_seconds=2, random_state=0, verbose=0)
    sample = sampling.take_sample(rec.parameters(), tmp_path / "t.parquet", "1GB", 0)
    part = sample.table().to_pandas()
    hours = part["when"].diff().dt.total_seconds().iloc[1:] / 3600
    assert 4096 <= len(part) < 7000
    assert (hours == 1).mean() > 0.99
    rec = sampling.fit_sample(rec, sample)
    assert rec.model_.clock.step == 3600e6
    assert not rec.transform(table.iloc[-3000:]).isna().any().any()


def test_series_out_of_order_are_not_read_in_parts(tmp_path, along_time):
    table = steps_of_series(3000)
    table.iloc[::-1].to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(InvalidData, match="Sort it by site, when"):
        recover_stream(along_time, tmp_path / "t.parquet", tmp_path / "out")


def test_new_rows_after_the_last_ones_need_no_fit(along_time):
    """With some of the rows before them, appended rows are filled as in the whole table."""
    table = steps_of_series(4000)
    whole, appended = along_time.transform(table).iloc[3900:], along_time.transform(table.iloc[3400:]).iloc[500:]
    assert np.allclose(whole[["a", "b"]], appended[["a", "b"]], atol=1e-6)
