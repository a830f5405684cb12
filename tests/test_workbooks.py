"""Workbooks: a sheet as a table, and the workbook with the cells that changed."""

import datetime

import openpyxl
import pyarrow as pa
import pytest

from unfade import DataNotice, InvalidFile
from unfade.io.guise import Layout
from unfade.io.tables import read_table, write_table
from unfade.io.workbooks import Workbook


def book(path, sheets):
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path


def test_cells_have_their_types(tmp_path):
    day, moment = datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3, 4)
    path = book(tmp_path / "t.xlsx", {"one": [["i", "f", "b", "d", "m", "t", "x"], [1, 1.5, True, day, moment, "a", 1],
                                             [None, 2, None, None, None, "NA", "b"]]})  # fmt: skip
    table = read_table(path)
    assert [str(kind) for kind in table.schema.types] == [
        "int64",
        "double",
        "bool",
        "date32[day]",
        "timestamp[us]",
        "string",
        "string",
    ]
    assert table["t"].to_pylist() == ["a", None]
    assert table["x"].to_pylist() == ["1", "b"]
    write_table(table, tmp_path / "again.xlsx")
    assert read_table(tmp_path / "again.xlsx").equals(table)


def test_a_sheet_is_named_and_the_others_stay(tmp_path):
    path = book(tmp_path / "t.xlsx", {"first": [["a"], [1]], "second": [["x", "y"], [1, 2.5], [None, 3.5]]})
    layout = Layout(sheet="second")
    table = read_table(path, layout)
    assert table.to_pydict() == {"x": [1, None], "y": [2.5, 3.5]}
    with pytest.warns(DataNotice, match="'first' is read"):
        assert read_table(path).column_names == ["a"]
    with pytest.raises(InvalidFile, match="no sheet 'third'"):
        read_table(path, Layout(sheet="third"))
    Workbook(path, table, layout).write(table.set_column(0, "x", [[1, 7]]), tmp_path / "out.xlsx")
    assert read_table(tmp_path / "out.xlsx", layout)["x"].to_pylist() == [1, 7]
    assert openpyxl.load_workbook(tmp_path / "out.xlsx").sheetnames == ["first", "second"]


def test_formulas_styles_and_the_place_of_the_table_stay(tmp_path):
    made = openpyxl.Workbook()
    sheet = made.active
    for row, cells in enumerate([["a", "b", "c"], [1, "=B3*2", 1], [None, "=B4*2", 2]], 3):
        for column, cell in enumerate(cells, 2):
            sheet.cell(row, column, cell)
    sheet["B5"].number_format = "0.00"
    made.save(tmp_path / "t.xlsx")
    table = pa.table({"a": [1, None], "b": pa.nulls(2), "c": [1, 2]})
    assert read_table(tmp_path / "t.xlsx").equals(table)
    Workbook(tmp_path / "t.xlsx", table).write(table.set_column(0, "a", [[1, 5]]), tmp_path / "out.xlsx")
    found = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    assert (found["B5"].value, found["B5"].number_format, found["C4"].value) == (5, "0.00", "=B3*2")
    with pytest.warns(DataNotice, match="1 formula"):
        Workbook(tmp_path / "t.xlsx", table).write(table.set_column(1, "b", [[7, None]]), tmp_path / "out.xlsx")


def test_cells_with_errors_are_missing_and_named(tmp_path):
    path = book(tmp_path / "T.XLSX", {"one": [["a", "b"], [1, "#DIV/0!"], [2, 2.5], [3, "#N/A"]], "two": [["x"], [1]]})
    with pytest.warns(DataNotice, match=r"1 x #N/A in 'b', 1 x #DIV/0! in 'b'"):
        assert read_table(path, Layout(sheet="one"))["b"].to_pylist() == [None, 2.5, None]
    assert read_table(path, Layout(sheet="two")).column_names == ["x"]


def test_formulas_without_a_value_above_the_table_do_not_move_it(tmp_path):
    path = book(tmp_path / "t.xlsx", {"one": [["=TODAY()"], ["a", "b"], [1, None], [2, 4]]})
    table = read_table(path)
    Workbook(path, table).write(table.set_column(1, "b", [[3, 4]]), tmp_path / "out.xlsx")
    found = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    assert [[cell.value for cell in row] for row in found] == [["=TODAY()", None], ["a", "b"], [1, 3], [2, 4]]


def test_charts_that_would_be_lost_are_named(tmp_path):
    path = book(tmp_path / "t.xlsx", {"one": [["a"], [1], [2]]})
    made = openpyxl.load_workbook(path)
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(made.active, min_col=1, min_row=1, max_row=3), titles_from_data=True)
    made.active.add_chart(chart, "C1")
    made.save(path)
    table = read_table(path)
    with pytest.warns(DataNotice, match="has charts"):
        Workbook(path, table).write(table, tmp_path / "out.xlsx")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty"),
        ([["a", None, "b"], [1, 2, 3]], "has no name"),
        ([["a", "a"], [1, 2]], "more than once"),
        ([["a"]], "no rows"),
    ],
)
def test_sheets_that_are_no_tables_are_refused(tmp_path, rows, message):
    with pytest.raises((InvalidFile, ValueError), match=message):
        read_table(book(tmp_path / "t.xlsx", {"one": rows}))


def test_merged_cells_can_be_written(tmp_path):
    path, book = tmp_path / "a.xlsx", openpyxl.Workbook()
    for row in (("group", "x"), ("a", 1.5), (None, 2.5), (None, 2.0)):
        book.active.append(row)
    book.active.merge_cells("A2:A4")
    book.save(path)
    given = read_table(path)
    filled = pa.table({"group": ["a", "a", "a"], "x": [1.5, 2.5, 2.0]})
    Workbook(path, given).write(filled, tmp_path / "b.xlsx")
    assert read_table(tmp_path / "b.xlsx").to_pylist() == filled.to_pylist()
