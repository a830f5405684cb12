"""Separator, decimal mark, encoding and compression of text files: found, or given."""

import pytest

from unfade import DataNotice, InvalidData, InvalidFile, Recoverer
from unfade.io.csv_text import CsvText
from unfade.io.guise import Guise, Layout, guise_of, read_text
from unfade.io.large_tables import Source
from unfade.io.tables import read_table, write_table
from unfade.streaming import fit_stream, recover_stream

TEXTS = [
    ("a,b\n1,2\n", Guise()),
    ("a;b\n1;2\n", Guise(";")),
    ("a;b\n1,5;2\n", Guise(";", ",")),
    ("a\tb\n1\t2\n", Guise("\t")),
    ("a|b|c\n1|2|3\n", Guise("|")),
    ('a;b\n"x, y";1.5\n', Guise(";")),
    ("a,b\n1;2,3;4\n", Guise()),
    ("a;b\n1.234,5;2\n", Guise(";", ",")),
    ("a;b\n1,5;2.5\n", Guise(";")),
    ("alone\n1\n", Guise()),
]


@pytest.mark.parametrize(("text", "guise"), TEXTS)
def test_separator_and_decimal_mark_are_found(tmp_path, text, guise):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert read_text(path)[0] == guise_of(path) == guise


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".csv", ".tsv", ".txt"])
def test_compressed_files_are_read_written_and_streamed(tmp_path, kind, ending):
    write_table(read_of(tmp_path, "a,b\n1.5,x\n2.5,y\n"), path := tmp_path / f"t{kind}{ending}")
    table = read_table(path)
    assert table.to_pydict() == {"a": [1.5, 2.5], "b": ["x", "y"]}
    assert next(iter(Source.open(path).tables(10))).equals(table)
    CsvText(path, table).write(table, tmp_path / f"out{kind}{ending}")
    assert read_table(tmp_path / f"out{kind}{ending}").equals(table)


def read_of(folder, text, name="made.csv", layout=None, **how):
    (folder / name).write_text(text, **how)
    return read_table(folder / name, layout)


def test_what_is_given_is_taken(tmp_path):
    assert read_of(tmp_path, "a;b\n1,5;2,5\n", layout=Layout("semicolon", ",")).to_pydict() == {"a": [1.5], "b": [2.5]}
    assert read_of(tmp_path, "a b\n1 2\n", layout=Layout("space")).to_pydict() == {"a": [1], "b": [2]}
    polish = read_of(tmp_path, "a,b\nżółw,1\n", layout=Layout(encoding="cp1250"), encoding="cp1250")
    assert polish["a"].to_pylist() == ["żółw"]


def test_numbers_with_points_between_thousands_are_numbers_where_commas_are_decimal(tmp_path):
    table = read_of(tmp_path, "a;b;c\n1.234;0,5;1.234,5\n12.000;1,25;7\n999;2,5;10.000,25\n")
    assert table.to_pydict() == {"a": [1234, 12000, 999], "b": [0.5, 1.25, 2.5], "c": [1234.5, 7.0, 10000.25]}
    streamed = next(iter(Source.open(tmp_path / "made.csv").tables(10)))
    assert streamed.equals(table)
    CsvText(tmp_path / "made.csv", table).write(table.set_column(0, "a", [[1234, 54321, 999]]), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a;b;c\n1.234;0,5;1.234,5\n54.321;1,25;7\n999;2,5;10.000,25\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks_name_the_encoding(tmp_path, encoding):
    path, text = tmp_path / "t.csv", "a,b\nß,1.25\n,2.25\n"
    path.write_text(text, encoding=encoding)
    table = read_table(path)
    assert table.to_pydict() == {"a": ["ß", None], "b": [1.25, 2.25]}
    assert next(iter(Source.open(path).tables(10))).equals(table)
    CsvText(path, table).write(table.set_column(0, "a", [["ß", "ü"]]), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == text.replace("\n,2", "\nü,2").encode(encoding)


def test_a_file_that_is_not_utf_8_is_read_with_a_notice(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n5 €,1\n".encode("cp1252"))
    with pytest.warns(DataNotice, match="read as cp1252"):
        assert read_table(path)["a"].to_pylist() == ["5 €"]


def test_a_letter_that_an_encoding_cannot_hold_is_refused_and_nothing_is_written(tmp_path):
    table = read_of(tmp_path, "a,b\nß,1\n", layout=(layout := Layout(encoding="latin-1")), encoding="latin-1")
    with pytest.raises(InvalidFile, match="cannot hold '€'"):
        CsvText(tmp_path / "made.csv", table, layout).write(table.set_column(0, "a", [["€"]]), tmp_path / "out.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"made.csv"}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sep": "ab"}, "sep must be one character"), ({"decimal": ";"}, "decimal must be"),
        ({"encoding": "klingon"}, "'klingon' is not known"),
    ],
)  # fmt: skip
def test_impossible_layouts_are_refused(how, message):
    with pytest.raises(InvalidData, match=message):
        Layout(**how)


def test_layouts_are_for_their_kind_of_file(tmp_path):
    write_table(read_of(tmp_path, "a,b\n1,2\n"), tmp_path / "t.parquet")
    with pytest.raises(InvalidFile, match=r"--sep .* is for text files"):
        read_table(tmp_path / "t.parquet", Layout(";"))
    with pytest.raises(InvalidFile, match=r"--sheet .* is for workbooks"):
        read_table(tmp_path / "made.csv", Layout(sheet="x"))


def test_a_stream_of_a_file_with_decimal_commas_gives_what_memory_gives(tmp_path):
    lines = "".join(f"{i % 7},{i % 10};{'' if i % 3 == 0 else 'xy'[i % 2]};{i % 5}\n" for i in range(80))
    table = read_of(tmp_path, "a;b;c\n" + lines + ";x;3\n", name="t.csv")
    how = {"max_steps": 5, "n_members": 1, "n_candidates": 5, "random_state": 0, "verbose": 0}
    wanted = Recoverer(**how).fit(table).transform(table)
    rec = fit_stream(Recoverer(**how), tmp_path / "t.csv")
    recover_stream(rec, tmp_path / "t.csv", tmp_path / "out")
    assert read_table(tmp_path / "out" / "clean.parquet" / "part-000000.parquet").equals(wanted)


def test_commas_of_thousands_are_no_decimal_marks(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n12,345\t1\n98,765\t2\n")
    assert read_table(path)["a"].to_pylist() != [12.345, 98.765]
