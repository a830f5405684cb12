import numpy as np
import pyarrow as pa
import pytest

from unfade import InvalidData, InvalidFile
from unfade.io.tables import check_output, read_table, write_table


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_tables_go_there_and_back(tmp_path, ending):
    table = pa.table({"b": [1.5, None, 3.0], "a": [1.0, 2.0, None]})
    write_table(table, tmp_path / f"t{ending}")
    assert read_table(tmp_path / f"t{ending}").to_pydict() == table.to_pydict()


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_arrays_go_there_and_back(tmp_path, ending):
    array = np.array([[1.0, np.nan], [3.0, 4.0]])
    write_table(array, tmp_path / f"t{ending}")
    assert np.array_equal(read_table(tmp_path / f"t{ending}"), array, equal_nan=True)


def test_the_usual_words_for_missing_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,NA\n?,2\nnan,\n")
    assert read_table(tmp_path / "t.csv").to_pydict() == {"x": [1, None, None], "y": [None, 2, None]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ragged.csv", b"x,y\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"x,y\n", "no rows"),
        ("double.csv", b"x,x\n1,2\n", "'x' more than once"),
        ("bare.csv", b"1.5,2,\n3,4,5\n", "has no header"),
        ("bytes.csv", bytes(range(256)), "Give its encoding"),
        ("broken.parquet", b"PAR1 nonsense", "Cannot read"),
        ("broken.feather", b"nonsense", "Cannot read"),
        ("broken.npy", b"nonsense", "Cannot read"),
        ("table.xlsx", b"x", "Expected a valid .xlsx file"),
        ("table.sav", b"x", "Expected a valid .sav file"),
        ("table.dta", b"x", "Expected a valid .dta file"),
        ("table.sas7bdat", b"x", "Expected a valid .sas7bdat file"),
        ("table.csv.gz", b"x", "Expected a whole, valid .gz file"),
        ("table.ods", b"x", "expected a name that ends in"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InvalidFile, InvalidData), match=message) as caught:
        read_table(tmp_path / name)
    assert name in str(caught.value) or "more than once" in message


def test_endings_in_capitals(tmp_path):
    array = np.ones((2, 2))
    write_table(array, tmp_path / "T.NPY")
    assert np.array_equal(read_table(tmp_path / "T.NPY"), array)
    assert [path.name for path in tmp_path.iterdir()] == ["T.NPY"]


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "p.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidFile, match="Cannot read"):
        read_table(tmp_path / "p.npy")


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(InvalidFile, match="found none"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(InvalidFile, match="does not exist"):
        check_output(tmp_path / "no" / "folder.csv")
    with pytest.raises(InvalidFile, match="it is a folder"):
        (tmp_path / "folder.csv").mkdir()
        check_output(tmp_path / "folder.csv")


def test_checking_an_output_leaves_nothing_behind(tmp_path):
    (tmp_path / "there.csv").write_text("x\n1\n")
    check_output(tmp_path / "there.csv")
    check_output(tmp_path / "new.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "x\n1\n"
