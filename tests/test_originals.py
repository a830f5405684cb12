"""One table in fourteen guises: the same draws, bit for bit, and results in the guise of each."""

import gzip

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import feather, parquet

from unfade import Recoverer
from unfade.io.guise import Layout, read_text
from unfade.io.originals import original_of, write_draws, write_result
from unfade.io.tables import read_table

ROWS = 60


def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "height": rng.normal(170, 10, ROWS).round(1),
            "count": rng.integers(0, 9, ROWS),
            "größe": rng.choice(["klein", "groß"], ROWS),
        }
    )
    return made.mask(rng.random(made.shape) < 0.2)


def text(sep=",", decimal="."):
    shown = frame()
    shown["count"] = shown["count"].astype("Int64")
    return shown.to_csv(index=False, sep=sep, decimal=decimal)


def sav(path):
    """With labels of the texts, and with -99 as a user-missing code of the counts."""
    made = frame()
    made["größe"] = made["größe"].map({"klein": 1.0, "groß": 2.0})
    made["count"] = made["count"].astype(float).fillna(-99)
    options = {"variable_value_labels": {"größe": {1.0: "klein", 2.0: "groß"}}, "missing_ranges": {"count": [-99]}}
    pyreadstat.write_sav(made, str(path), column_labels=["Body height", "Visits", "Size"], **options)


def dta(path):
    made = frame()
    made["größe"], made["count"] = made["größe"].fillna(""), made["count"].astype(float)
    pyreadstat.write_dta(made, str(path), column_labels=["Body height", "Visits", "Size"])


FILES = {
    "comma.csv": lambda p: p.write_text(text()),
    "semicolon.csv": lambda p: p.write_text(text(";", ",")),
    "tab.tsv": lambda p: p.write_text(text("\t")),
    "pipe.txt": lambda p: p.write_text(text("|")),
    "bom.csv": lambda p: p.write_bytes(b"\xef\xbb\xbf" + text().encode()),
    "latin-1.csv": lambda p: p.write_text(text(";", ","), encoding="latin-1"),
    "packed.csv.gz": lambda p: p.write_bytes(gzip.compress(text().encode(), mtime=0)),
    "sheet.xlsx": lambda p: frame().to_excel(p, index=False, sheet_name="Daten"),
    "labels.sav": sav,
    "stata.dta": dta,
    "table.parquet": lambda p: parquet.write_table(pa.Table.from_pandas(frame()), p),
    "table.feather": lambda p: feather.write_feather(pa.Table.from_pandas(frame()), str(p)),
}
IN_MEMORY = {"DuckDB relation": lambda: duckdb.from_df(frame()), "pandas": frame}


def fitted(data):
    return Recoverer(max_steps=20, n_members=1, n_candidates=5, random_state=0, verbose=0).fit(data)


@pytest.fixture(scope="module")
def expected():
    rec, data = fitted(frame()), frame()
    return rec.sample(data, 3).values, rec.transform(data)


def read(path):
    return read_table(path, Layout(encoding="latin-1") if path.name.startswith("latin") else None)


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_any_guise_gives_the_same_draws_and_comes_back_in_its_own(tmp_path, name, expected):
    path, out = tmp_path / name, tmp_path / f"out-{name}"
    FILES[name](path)
    table = read(path)
    rec = fitted(table)
    assert np.array_equal(rec.sample(table, 3).values, expected[0])
    clean, original = (
        rec.transform(table),
        original_of(path, table, Layout(encoding="latin-1") if "latin" in name else None),
    )
    write_result(clean, out, original)
    again = read_table(out, Layout(encoding="latin-1") if "latin" in name else None)
    assert sum(column.null_count for column in again.columns) == 0
    kept = [np.asarray(again[column])[frame()[column].notna()] for column in again.column_names]
    assert all((kept[i] == frame().iloc[:, i].dropna().to_numpy()).all() for i in range(3))
    if name.startswith(("comma", "semi", "tab.", "pipe", "bom", "latin", "packed")):
        layout = Layout(encoding="latin-1") if "latin" in name else None
        assert read_text(out, layout)[0] == read_text(path, layout)[0]
        write_result(table, out, original)
        assert out.read_bytes() == path.read_bytes()
    if name == "labels.sav":
        held, meta = pyreadstat.read_sav(str(out), user_missing=True)
        _, before = pyreadstat.read_sav(str(path), user_missing=True)
        assert meta.column_labels == before.column_labels == ["Body height", "Visits", "Size"]
        assert meta.variable_value_labels == before.variable_value_labels
        assert meta.missing_ranges == before.missing_ranges
        assert set(held["größe"]) == {1.0, 2.0}
    if name == "sheet.xlsx":
        import openpyxl

        assert openpyxl.load_workbook(out).sheetnames == ["Daten"]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_table_in_memory_comes_back_in_its_own_kind(name, expected):
    data = IN_MEMORY[name]()
    rec = fitted(data)
    assert np.array_equal(rec.sample(data, 3).values, expected[0])
    assert type(rec.transform(data)) is type(data)
    assert type(rec.sample(data, 2)[0]) is type(data)
    if name == "DuckDB relation":
        assert rec.transform(data).fetchall() == [tuple(row) for row in expected[1].itertuples(index=False)]


def test_a_user_missing_code_stays_in_cells_that_are_not_filled(tmp_path):
    sav(tmp_path / "in.sav")
    table = read_table(tmp_path / "in.sav")
    write_result(table, tmp_path / "out.sav", original_of(tmp_path / "in.sav", table))
    before, after = (pyreadstat.read_sav(str(tmp_path / name), user_missing=True)[0] for name in ("in.sav", "out.sav"))
    assert (before["count"] == -99).any()
    pd.testing.assert_frame_equal(before, after)


def test_draws_of_other_kinds_of_files_are_long_tables(tmp_path):
    frame().to_excel(tmp_path / "in.xlsx", index=False)
    table = read_table(tmp_path / "in.xlsx")
    rec = fitted(table)
    write_draws(rec.sample(table, 2), tmp_path / "draws.xlsx", original_of(tmp_path / "in.xlsx", table), table.column_names)
    assert read_table(tmp_path / "draws.xlsx").shape == (2 * ROWS, 5)
