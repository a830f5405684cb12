"""Files of SPSS, Stata and SAS: labels, user-missing codes and dates, read and written back."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest

from unfade import InvalidFile
from unfade.io.statistical import LabelledFile
from unfade.io.tables import read_table, write_table


def labelled(path):
    frame = pd.DataFrame(
        {"sex": [1.0, 2.0, np.nan, 1.0], "income": [100.5, -99.0, -98.0, np.nan], "scale": [0.0, 10.0, 5.0, np.nan]}
    )
    labels = {"sex": {1.0: "male", 2.0: "female"}, "scale": {0.0: "never", 10.0: "always"}}
    pyreadstat.write_sav(
        frame, str(path), variable_value_labels=labels, missing_ranges={"income": [{"lo": -99, "hi": -90}]},
        column_labels=["Sex", "Income", "How often"], variable_measure={"sex": "nominal"},
    )  # fmt: skip
    return path


def test_labelled_values_are_their_labels_and_codes_are_missing(tmp_path):
    table = read_table(labelled(tmp_path / "t.sav"))
    assert table.to_pydict() == {
        "sex": ["male", "female", None, "male"], "income": [100.5, None, None, None], "scale": [0, 10, 5, None],
    }  # fmt: skip


def test_filled_cells_are_codes_and_all_else_stays(tmp_path):
    path = labelled(tmp_path / "t.sav")
    table = read_table(path)
    new = pa.table(
        {"sex": ["male", "female", "female", "male"], "income": [100.5, 7.25, None, 1.0], "scale": [0, 10, 5, 4]}
    )
    LabelledFile(path, table).write(new, tmp_path / "out.sav")
    frame, meta = pyreadstat.read_sav(str(tmp_path / "out.sav"), user_missing=True)
    _, before = pyreadstat.read_sav(str(path), user_missing=True)
    assert frame["sex"].tolist() == [1, 2, 2, 1]
    assert frame["income"].tolist() == [100.5, 7.25, -98, 1]
    assert frame["scale"].tolist() == [0, 10, 5, 4]
    for name in ("column_labels", "variable_value_labels", "missing_ranges", "variable_measure", "original_variable_types"):
        assert getattr(meta, name) == getattr(before, name), name


def test_statas_letters_are_missing_and_stay(tmp_path):
    frame = pd.DataFrame({"x": [1.5, "a", 2.5, None], "y": [1.0, 2.0, 3.0, 4.0]})
    pyreadstat.write_dta(frame, str(tmp_path / "t.dta"), missing_user_values={"x": ["a"]})
    table = read_table(tmp_path / "t.dta")
    assert table["x"].to_pylist() == [1.5, None, 2.5, None]
    LabelledFile(tmp_path / "t.dta", table).write(table.set_column(0, "x", [[1.5, None, 2.5, 9.5]]), tmp_path / "out.dta")
    found, _ = pyreadstat.read_dta(str(tmp_path / "out.dta"), user_missing=True)
    assert found["x"].tolist() == [1.5, "a", 2.5, 9.5]


@pytest.mark.parametrize("ending", [".sav", ".zsav", ".dta", ".xpt"])
def test_any_table_is_written_and_read(tmp_path, ending):
    table = pa.table({"a": [1.5, None, 3.5], "b": ["x", None, "y"], "n": [1, 2, None]})
    write_table(table, tmp_path / f"t{ending}")
    assert read_table(tmp_path / f"t{ending}").equals(table)


@pytest.mark.parametrize("ending", [".sav", ".dta"])
def test_dates_are_dates(tmp_path, ending):
    days = [datetime.date(2024, 1, 2), None, datetime.date(2023, 5, 6)]
    write_table(pa.table({"d": days, "x": [1.5, 2.5, 3.5]}), tmp_path / f"t{ending}")
    table = read_table(tmp_path / f"t{ending}")
    assert [day and str(day)[:10] for day in table["d"].to_pylist()] == ["2024-01-02", None, "2023-05-06"]


def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path):
    table = pa.table({"a name with spaces": [1.0, 2.0]})
    for name in ("t.dta", "t.sas7bdat"):
        with pytest.raises(InvalidFile):
            write_table(table, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
