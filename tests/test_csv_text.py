"""A CSV file comes back in its own text: only cells that were filled are others."""

import datetime
import gzip

import pyarrow as pa
import pytest

from unfade.errors import InvalidFile
from unfade.io.csv_text import CsvText
from unfade.io.large_tables import Source
from unfade.io.tables import read_table

PLAIN = (
    b'\xef\xbb\xbfn,whole,on,day,at,word\r\n35.0,+1,TRUE,2024-12-31,2024-01-01T10:30Z,"a, b"\r\n\r\n'
    b'1.250,,FALSE,,,"two\r\nlines"\r\n,007x,,2024-01-02,2024-01-01T11:00Z,5" pipe\r\n2.5,03x,TRUE,2024-02-02,,""\r\n'
)


def filled(table):
    """The table with its missing cells filled."""
    utc = datetime.UTC
    new = {
        "n": 7.12345,
        "whole": "9x",
        "on": True,
        "day": datetime.date(2023, 5, 6),
        "at": datetime.datetime(2024, 3, 4, 5, 6, tzinfo=utc),
        "word": 'q"r',
    }
    return pa.table({name: table[name].fill_null(value) for name, value in new.items()})


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_only_what_changed_is_written_anew(tmp_path, ending):
    path, out = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    path.write_bytes(gzip.compress(PLAIN) if ending == ".csv.gz" else PLAIN)
    table = read_table(path)
    CsvText(path, table).write(table, out)
    raw = out.read_bytes()
    assert (gzip.decompress(raw) if ending == ".csv.gz" else raw) == PLAIN
    CsvText(path, table).write(filled(table), out)
    raw = out.read_bytes()
    assert (gzip.decompress(raw) if ending == ".csv.gz" else raw) == (
        b'\xef\xbb\xbfn,whole,on,day,at,word\r\n35.0,+1,TRUE,2024-12-31,2024-01-01T10:30Z,"a, b"\r\n\r\n'
        b'1.250,9x,FALSE,2023-05-06,2024-03-04T05:06Z,"two\r\nlines"\r\n'
        b'7.123,007x,TRUE,2024-01-02,2024-01-01T11:00Z,5" pipe\r\n'
        b'2.5,03x,TRUE,2024-02-02,2024-03-04T05:06Z,"q""r"\r\n'
    )


@pytest.mark.parametrize(
    ("cells", "new", "written"),
    [
        (["35.0", "36.0", ""], 37.0, "37.0"),
        (["0.5", "0.125", ""], 1 / 3, "0.333"),
        (["1e-5", "2.5", ""], 0.1 + 0.2, "0.30000000000000004"),
        (["0.1", "0.2", ""], -0.01, "0.0"),
        (["True", "False", ""], False, "False"),
        (["true", "false", ""], True, "true"),
        (["13:30", "14:00", ""], datetime.time(9, 5), "09:05"),
        (["2024-01-01 13:30:00", "2024-01-01 13:30:01", ""], datetime.datetime(2024, 1, 1), "2024-01-01 00:00:00"),
        (
            ["2024-07-01T10:00:00+02:00", "2024-07-02T10:00:00+02:00", ""],
            datetime.datetime(2024, 7, 1, 22, tzinfo=datetime.UTC),
            "2024-07-02T00:00:00+02:00",
        ),
        (['"1"', '"2"', '""'], 3, '"3"'),
    ],
)
def test_new_cells_are_written_as_others_of_their_column(tmp_path, cells, new, written):
    path = tmp_path / "in.csv"
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    table = read_table(path)
    CsvText(path, table).write(pa.table({"x": table["x"].fill_null(new), "y": table["y"]}), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "x,y\n" + "".join(f"{cell or written},1\n" for cell in cells).replace(
        '""', written
    )


def test_a_new_cell_that_repeats_a_number_is_written_as_that_number(tmp_path):
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_bytes(b"age\n22.0\n0.42\nNA\nNA\nNA\n")
    table = read_table(path)
    CsvText(path, table).write(pa.table({"age": [22.0, 0.42, 22.0, 30.5, 30.0]}), out)
    assert out.read_bytes() == b"age\n22.0\n0.42\n22.0\n30.50\n30.00\n"


def test_draws_are_in_the_text_of_the_file(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(PLAIN)
    table = read_table(path)
    CsvText(path, table).write_draws([table, filled(table)], tmp_path / "draws.csv")
    written = (tmp_path / "draws.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfdraw,row,n,whole,on,day,at,word\r\n0,0,35.0,+1,TRUE,")
    assert b'\r\n1,2,7.123,007x,TRUE,2024-01-02,2024-01-01T11:00Z,5" pipe\r\n' in written
    assert len(read_table(tmp_path / "draws.csv")) == 8


def test_a_quote_that_is_not_closed_is_refused(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('a,b\n1,x\n2,"y\n3,z\n')
    with pytest.raises(InvalidFile, match="quote that is not closed: '2,\"y"):
        CsvText(path, read_table(path))


def test_quoted_line_ends_may_lie_anywhere_in_a_file(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\n" + '1,"two\nlines"\n' * 200_000)
    table = read_table(path)
    assert len(table) == 200_000
    assert sum(len(part) for part in Source.open(path).tables(2**16)) == 200_000
