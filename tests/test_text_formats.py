"""Text that holds numbers, dates and times is read, filled and written back in its own form."""

import csv
import datetime
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from unfade import DataNotice, InvalidData, Recoverer
from unfade.cli.app import app
from unfade.data.containers import open_container
from unfade.data.text_formats import find_format

FORMS = {
    "money": ["$1,250.00", "$80.50", "$12,345,678.90"],
    "euro": ["€ 5", "€ 17", "€ 1 250"],
    "weight": ["70 kg", "71.5 kg", "68 kg"],
    "share": ["12%", "3%", "99%"],
    "spaced share": ["12.5 %", "3.0 %", "9.1 %"],
    "signed": ["-5 °C", "12 °C", "+3 °C"],
    "day first": ["31/12/2024", "01/02/2024", "15/06/2023"],
    "month first": ["12/31/2024", "02/01/2024", "06/15/2023"],
    "short days": ["31/12/2024", "1/2/2024", "15/6/2023"],
    "points": ["31.12.2024", "01.02.2024", "15.06.2023"],
    "written": ["5 Jan 2024", "17 Feb 2023", "1 Dec 2022"],
    "clock": ["13:30", "09:05", "23:59"],
    "seconds": ["13:30:10", "09:05:00", "23:59:59"],
    "halves of a day": ["1:30 PM", "11:05 AM", "12:00 AM"],
    "zoned": ["2024-12-31T13:30:00Z", "2024-01-02T09:05:00Z", "2023-06-15T00:00:10Z"],
    "milliseconds": ["2024-12-31T13:30:00.250Z", "2024-01-02T09:05:00.000Z", "2023-06-15T00:00:10.125Z"],
    "offset": ["2024-12-31 13:30:00+00:00", "2024-01-02 09:05:00+00:00", "2023-06-15 00:00:10+00:00"],
    "moment": ["31/12/2024 13:30", "01/02/2024 09:05", "15/06/2023 00:00"],
}


@pytest.mark.parametrize("name", FORMS)
def test_a_format_writes_what_it_read(name):
    found = find_format(FORMS[name])
    assert found is not None
    codes = [found.parse(cell) for cell in FORMS[name]]
    assert len(set(codes)) == 3
    assert [found.parse(found.write(code)) for code in codes] == codes


@pytest.mark.parametrize(
    "cells",
    [
        ["A1", "A2"],
        ["01234", "04321"],
        ["5 kg", "6 lb"],
        ["1st", "2nd"],
        ["31/12/2024", "12:30"],
        ["5-6", "7-8"],
        ["red"],
        ["1,5", "1.5"],
    ],
)
def test_text_that_does_not_agree_on_a_format_has_none(cells):
    assert find_format(cells) is None


def dirty(n=80, seed=0):
    """Columns with every mark, unit, type and form by name, and which of their cells are missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    day = datetime.date(2024, 1, 1)
    days = [day + datetime.timedelta(days=int(50 + 9 * v)) for v in z]
    clocks = [datetime.time(int(12 + 3 * v) % 24, int(30 + 9 * v) % 60) for v in z]
    columns = {
        "blank": ([f"{v:.2f}" for v in z], " "),
        "point": ([f"{v:.1f}" for v in 5 * z], "."),
        "dash": ([f"{v:.1f}" for v in 5 * z], "-"),
        "word": ([f"{v:.0f}" for v in 9 * z], "missing"),
        "text code": ([f"{20 + abs(v):.1f} kg" for v in z], "-99"),
        "code": ([float(round(50 + 9 * v)) for v in z], -99.0),
        "big code": ([int(50 + 9 * v) for v in z], 9999),
        "one or two": ([1 + int(v > 0) for v in z], None),
        "truth": ([bool(v > 0) for v in z], None),
        "money": ([f"${1000 * np.exp(v):,.2f}" for v in z], ""),
        "thousands": ([f"{90000 * np.exp(v):,.0f}" for v in z], ""),
        "weight": ([f"{70 + 5 * v:.1f} kg" for v in z], None),
        "share": ([f"{50 + 9 * v:.0f}%" for v in z], "."),
        "days": ([f"{each:%d/%m/%Y}" for each in days], ""),
        "clock": ([f"{each:%H:%M}" for each in clocks], None),
        "moment": ([f"{each:%Y-%m-%d} 13:30" for each in days], None),
        "date object": (days, None),
        "decimal": ([Decimal(f"{v:.3f}") for v in z], None),
        "time object": (clocks, None),
        "delta": ([datetime.timedelta(minutes=int(100 + 20 * v)) for v in z], None),
    }
    holes = {name: rng.random(n) < 0.15 for name in columns}
    cells = {
        name: [mark if gone else value for value, gone in zip(values, holes[name], strict=True)]
        for name, (values, mark) in columns.items()
    }
    return cells, holes


MARKS = {"": ["missing"], "dash": ["-"], "text code": ["-99"], "code": [-99], "big code": [9999]}
KINDS = {
    "blank": "continuous", "point": "continuous", "dash": "continuous", "word": "integer", "text code": "continuous",
    "code": "integer", "big code": "integer", "one or two": "integer",
    "truth": "boolean", "money": "continuous", "thousands": "integer",
    "weight": "continuous", "share": "integer", "days": "date", "clock": "time", "moment": "date", "date object": "date",
    "decimal": "continuous", "time object": "time", "delta": "duration", "period": "passthrough",
}  # fmt: skip


def as_frame(cells, library):
    """The cells in a frame, as a user of the library would have them."""
    if library == "polars":
        return pl.DataFrame(cells)
    if library == "pyarrow":
        return pa.table(cells)
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()})
    frame = frame.astype({"code": float, "big code": int, "one or two": float, "delta": "timedelta64[us]"})
    return frame.assign(period=pd.period_range("2020-01", periods=len(frame), freq="M"))


def listed(frame, name):
    """The cells of a column."""
    return frame[name].to_pylist() if isinstance(frame, pa.Table) else frame[name].to_list()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_every_mark_unit_and_type_goes_through_and_comes_back(library):
    cells, holes = dirty()
    frame = as_frame(cells, library)
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        rec = Recoverer(max_steps=20, n_candidates=5, n_members=1, missing=MARKS, random_state=0, verbose=0).fit(frame)
    period = ["Column 'period': it holds Period objects, which cannot be modelled: it is passed through unchanged."]
    assert [str(notice.message) for notice in notices] == (period if library == "pandas" else [])
    assert {column.name: column.kind for column in rec.columns_} == {
        name: kind for name, kind in KINDS.items() if name != "period" or library == "pandas"
    }
    filled = rec.transform(frame)
    if library == "pandas":
        assert filled.dtypes.equals(frame.dtypes)
        assert filled["period"].equals(frame["period"])
    else:
        assert filled.schema == frame.schema
    for name in cells:
        before, after = listed(frame, name), listed(filled, name)
        there = [value for value, gone in zip(before, holes[name], strict=True) if not gone]
        assert [value for value, gone in zip(after, holes[name], strict=True) if not gone] == there, name
        new = [value for value, gone in zip(after, holes[name], strict=True) if gone]
        assert len(new) > 3
        assert {type(value) for value in new} == {type(value) for value in there}, name
        check_form(name, new, there)


def check_form(name, new, there):
    """What was filled is written as the rest, and is a value that the column can hold."""
    if isinstance(new[0], str):
        form = find_format(there)
        assert all(form.parse(value) is not None for value in new), name
        assert find_format([*there, *new]) == form, name
    elif KINDS[name] == "integer":
        assert all(float(value).is_integer() for value in new), name
        assert min(there) <= min(new), name


def test_every_mark_and_form_goes_through_the_command_line(tmp_path):
    cells, holes = dirty()
    texts = {name: ["" if value is None else str(value) for value in values] for name, values in cells.items()}
    texts["date object"] = [text and f"{text}T00:00:00Z" for text in texts["date object"]]
    texts["truth"] = [text.upper() for text in texts["truth"]]
    del texts["delta"]  # 1:40:00 is a time of day to everyone who reads it
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([texts, *zip(*texts.values(), strict=True)])
    marks = ["--missing", "missing", "--missing", "-", "--missing", "text code=-99", "--missing", "code=-99"]
    arguments = ["recover", "in.csv", "-o", "out.csv", *marks, "--missing", "big code=9999", "--max-steps", "20"]
    arguments = [str(tmp_path / word) if word.endswith(".csv") else word for word in arguments]
    result = CliRunner().invoke(app, [*arguments, "--n-members", "1", "--n-candidates", "5"])
    assert result.exit_code == 0, result.output
    assert "note:" not in result.output
    missing = sum(int(holes[name].sum()) for name in texts)
    assert f"{missing} missing cells, {missing} filled" in result.output
    before, after = (raw_cells(tmp_path / name) for name in ("in.csv", "out.csv"))
    assert after[0] == before[0]
    for i, name in enumerate(texts):
        there = [row[i] for row, gone in zip(before[1:], holes[name], strict=True) if not gone]
        assert [row[i] for row, gone in zip(after[1:], holes[name], strict=True) if not gone] == there, name
        new = [row[i] for row, gone in zip(after[1:], holes[name], strict=True) if gone]
        assert len(new) > 3
        shapes = {re.sub(r"\d+", "0", cell) for cell in there}
        assert {re.sub(r"\d+", "0", cell) for cell in new} <= shapes, name


def raw_cells(path):
    """The cells of a CSV file as they stand, with their quotes."""
    return [re.findall(r',("[^"]*"|[^,]*)', f",{line}") for line in path.read_bytes().decode().split("\r\n")[:-1]]


def test_a_model_file_keeps_formats_and_marks(tmp_path):
    frame = as_frame(dirty()[0], "pandas").drop(columns="period")
    rec = Recoverer(max_steps=10, n_candidates=5, n_members=1, missing=MARKS, random_state=0, verbose=0).fit(frame)
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert again.columns_ == rec.columns_
    assert again.transform(frame).equals(rec.transform(frame))


def test_a_repeated_word_among_numbers_is_named_with_the_option():
    frame = pd.DataFrame({"age": [str(20 + i % 40) for i in range(100)], "x": np.arange(100) % 7 / 3})
    frame.loc[::20, "age"] = "not asked"
    with pytest.warns(DataNotice, match=r"but for 'not asked' \(5 cells\).*--missing 'not asked'"):
        Recoverer(max_steps=5, random_state=0, verbose=0).fit(frame)


def test_a_cell_that_breaks_a_format_is_named():
    frame = pd.DataFrame({"at": [f"13:{i % 60:02d}" for i in range(100)], "x": np.arange(100) % 7 / 3})
    frame.loc[50, "at"] = "13:4x"
    with pytest.warns(DataNotice, match=r"but for '13:4x' \(1 cell\).*--kind at=category"):
        Recoverer(max_steps=5, random_state=0, verbose=0).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Recoverer(kinds={"at": "passthrough"}, max_steps=5, random_state=0, verbose=0).fit(frame)


@pytest.fixture(scope="module")
def sizes():
    """A model of a table whose columns are typed."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 80), unit="D")
    frame = pd.DataFrame({"size": rng.normal(70, 5, 80).round(1), "day": days, "x": rng.normal(size=80)})
    return Recoverer(max_steps=10, n_members=1, n_candidates=5, random_state=0, verbose=0).fit(
        frame.mask(rng.random(frame.shape) < 0.1)
    )


def test_a_model_of_numbers_reads_text_and_writes_text(sizes):
    given = pd.DataFrame(
        {"size": ["70.5 kg", ".", "71.0 kg"], "day": ["31/12/2024", "", "01/02/2024"], "x": [1.0, 2.0, 3.0]}
    )
    filled = sizes.transform(given)
    assert filled.drop(1).equals(given.drop(1))
    assert re.fullmatch(r"\d+\.\d kg", filled["size"][1])
    assert re.fullmatch(r"\d\d/\d\d/\d{4}", filled["day"][1])
    with pytest.raises(InvalidData, match=r"got 'much'.*--missing much"):
        sizes.transform(given.replace("70.5 kg", "much"))


def test_values_finer_than_those_of_the_fit_come_back(sizes):
    given = pd.DataFrame({"size": [70.123], "day": pd.to_datetime(["2024-05-06 07:08:09"]), "x": [np.nan]})
    filled = sizes.transform(given)
    assert filled[["size", "day"]].equals(given[["size", "day"]])


def test_a_model_of_text_takes_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": [f"{v:.1f} kg" for v in rng.normal(70, 5, 80)], "x": rng.normal(size=80)})
    rec = Recoverer(max_steps=10, n_members=1, n_candidates=5, random_state=0, verbose=0).fit(frame)
    filled = rec.transform(pd.DataFrame({"size": [70.5, np.nan], "x": [1.0, 2.0]}))
    assert filled["size"].dtype == float
    assert filled["size"][0] == 70.5
    whole = rec.transform(pl.DataFrame({"size": [70, None], "x": [1.0, 2.0]}))
    assert whole["size"].dtype.is_numeric()
    assert whole["size"].null_count() == 0


def test_objects_keep_their_types_and_places():
    rng = np.random.default_rng(0)
    cells = {
        "decimal": [Decimal(0), *[Decimal(f"{v:.2f}") for v in rng.normal(size=58)], None],
        "delta": [*[datetime.timedelta(minutes=int(v)) for v in rng.integers(0, 500, 59)], None],
    }
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()})
    frame["sparse"] = pd.arrays.SparseArray([*rng.normal(size=59).round(1), np.nan])
    filled = Recoverer(max_steps=10, n_members=1, n_candidates=5, random_state=0, verbose=0).fit(frame).transform(frame)
    assert filled.dtypes.equals(frame.dtypes)
    assert filled["decimal"].iloc[-1].as_tuple().exponent == -2
    assert type(filled["delta"].iloc[-1]) is datetime.timedelta
    assert not np.isnan(filled["sparse"].iloc[-1])


def test_digits_that_were_given_as_text_stay_text():
    """Zip codes and the like: nothing in the column says that it was meant to be numbers."""
    _, container = open_container(pd.DataFrame({"zip": ["12345", "54321", None] * 10}))
    assert container.columns[0].kind == "category"
