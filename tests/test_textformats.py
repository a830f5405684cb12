"""Text that holds numbers, dates and times is read, filled and written back in its own form."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from unfade import DataNotice, Recoverer
from unfade.tables import open_container
from unfade.textformats import find_format

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
    [["A1", "A2"], ["01234", "04321"], ["5 kg", "6 lb"], ["1st", "2nd"], ["31/12/2024", "12:30"], ["5-6", "7-8"], ["red"]],
)
def test_text_that_does_not_agree_on_a_format_has_none(cells):
    assert find_format(cells) is None


def dirty(n=80, seed=0):
    """A table with every mark, unit, type and form; every seventh cell of each column is missing in its own way."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    day = datetime.date(2024, 1, 1)
    columns = {
        "blank": ([f"{v:.2f}" for v in z], " "),
        "point": ([f"{v:.1f}" for v in 5 * z], "."),
        "word": ([f"{v:.0f}" for v in 9 * z], "refused"),
        "money": ([f"${1000 * np.exp(v):,.2f}" for v in z], ""),
        "weight": ([f"{70 + 5 * v:.1f} kg" for v in z], None),
        "share": ([f"{50 + 9 * v:.0f}%" for v in z], "."),
        "euro day": ([f"{day + datetime.timedelta(days=int(50 + 9 * v)):%d/%m/%Y}" for v in z], ""),
        "clock": ([f"{int(12 + 3 * v) % 24:02d}:{int(30 + 9 * v) % 60:02d}" for v in z], None),
        "date object": ([day + datetime.timedelta(days=int(50 + 9 * v)) for v in z], None),
        "decimal": ([Decimal(f"{v:.3f}") for v in z], None),
        "time object": ([datetime.time(int(12 + 3 * v) % 24, 15) for v in z], None),
        "delta": ([datetime.timedelta(minutes=int(100 + 20 * v)) for v in z], None),
        "period": ([pd.Period(f"20{10 + i % 9}-01", freq="M") for i in range(n)], None),
    }
    holes = rng.random((n, len(columns))) < 0.15
    frame = pd.DataFrame({
        name: pd.Series([mark if gone else value for value, gone in zip(values, hole, strict=True)], dtype=object)
        for (name, (values, mark)), hole in zip(columns.items(), holes.T, strict=True)
    })  # fmt: skip
    frame["delta"] = pd.to_timedelta(frame["delta"])
    return frame, pd.DataFrame(holes, columns=frame.columns)


def test_every_mark_unit_and_type_goes_through_and_comes_back():
    frame, holes = dirty()
    with pytest.warns(DataNotice, match="Column 'period': it holds Period objects"):
        rec = Recoverer(max_steps=30, refine=5, missing={"word": ["refused"]}, random_state=0, verbose=0).fit(frame)
    filled = rec.transform(frame)
    for name in frame.columns:
        there, hole = frame[name][~holes[name]], holes[name]
        assert filled[name][~hole].tolist() == there.tolist(), name
        if name == "period":
            continue
        new = filled[name][hole].tolist()
        assert len(new) > 3
        assert {type(value) for value in new} == {type(value) for value in there}, name
        if isinstance(new[0], str):
            form = find_format(there.tolist())
            assert all(form.parse(value) is not None for value in new), name
            assert find_format([*there, *new]) == form, name
    assert [column.kind for column in rec.columns_] == [
        "number", "number", "whole", "number", "number", "whole", "date", "time", "date", "number", "time", "duration",
        "passthrough",
    ]  # fmt: skip


def test_a_model_file_keeps_formats_and_marks(tmp_path):
    frame, _ = dirty()
    frame = frame.drop(columns="period")
    rec = Recoverer(max_steps=10, refine=5, missing={"word": ["refused"]}, random_state=0, verbose=0).fit(frame)
    rec.save(tmp_path / "model.unfade")
    again = Recoverer.load(tmp_path / "model.unfade")
    assert again.columns_ == rec.columns_
    assert again.transform(frame).equals(rec.transform(frame))


def test_a_repeated_word_among_numbers_is_named_with_the_option():
    frame = pd.DataFrame({"age": [str(20 + i % 40) for i in range(100)], "x": np.arange(100) % 7 / 3})
    frame.loc[::20, "age"] = "not asked"
    with pytest.warns(DataNotice, match=r"but for 'not asked' \(5 cells\).*--missing 'not asked'"):
        Recoverer(max_steps=5, random_state=0, verbose=0).fit(frame)


def test_digits_that_were_given_as_text_stay_text():
    """Zip codes and the like: nothing in the column says that it was meant to be numbers."""
    _, container = open_container(pd.DataFrame({"zip": ["12345", "54321", None] * 10}))
    assert container.columns[0].kind == "category"
