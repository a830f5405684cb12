"""Results of SQL queries: a PostgreSQL server on loopback, started here where it is installed."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unfade import InvalidData, InvalidFile
from unfade.cli.app import app
from unfade.io.databases import read_query, without_password
from unfade.io.tables import read_table

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").is_dir() else []


def as_server(*command):
    """A command as a user that may run a server: not as root."""
    root = os.name == "posix" and os.getuid() == 0
    said = ["runuser", "-u", "postgres", "--", *map(str, command)] if root else [str(part) for part in command]
    return subprocess.run(said, check=True, capture_output=True, text=True, cwd="/", timeout=60)


@pytest.fixture(scope="module")
def address():
    """The address of a server of our own on loopback."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    if not BINARIES:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="unfade-postgresql-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        as_server(BINARIES[-1] / "initdb", "-D", folder / "data", "-U", "me", "-A", "trust")
        options = f"-p {port} -h 127.0.0.1 -k {folder}"
        as_server(BINARIES[-1] / "pg_ctl", "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start")
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"PostgreSQL does not start here: {error}")
    try:
        yield f"postgresql://me@127.0.0.1:{port}/postgres"
    finally:
        as_server(BINARIES[-1] / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


ROWS = """
    SELECT i AS id, i * 0.5 AS half, (i % 7)::numeric(8, 2) AS exact, CASE WHEN i % 3 > 0 THEN 'a' ELSE 'b' END AS word,
    CASE WHEN i % 4 > 0 THEN (i % 11)::float8 END AS hole, DATE '2024-01-01' + i AS day FROM generate_series(1, 60) AS i
"""


def test_a_result_is_a_table(address):
    table = read_query(address, ROWS)
    assert table.column_names == ["id", "half", "exact", "word", "hole", "day"]
    assert table["half"].to_pylist()[:2] == [0.5, 1.0]
    assert table["exact"].to_pylist()[:2] == [1.0, 2.0]
    assert table["hole"].null_count == 15
    assert str(table["day"][0]) == "2024-01-02"


def test_the_command_reads_from_a_database(address, tmp_path):
    out, fast = tmp_path / "out.parquet", ["--max-steps", "10", "--n-members", "1", "-q"]
    done = CliRunner().invoke(app, ["recover", address, "--query", ROWS, "-o", str(out), *fast])
    assert done.exit_code == 0, done.output
    assert read_table(out)["hole"].null_count == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [("SELECT * FROM nothing", "nothing"), ("SELECT 1 AS a WHERE false", "no rows"), ("SELEC 1", "syntax")],
)
def test_what_the_server_refuses_is_said(address, query, message):
    with pytest.raises(InvalidFile, match=message):
        read_query(address, query)


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path):
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    with pytest.raises(InvalidFile, match=r"me:\*\*\*@127.0.0.1") as caught:
        read_query("postgresql://me:secret@127.0.0.1:1/x", "SELECT 1")
    assert "secret" not in str(caught.value)
    assert without_password("postgresql://me@host/x") == "postgresql://me@host/x"
    for address in ("postgresql://u:p/w@h/x", "postgresql://u:p@ss@h/x", "postgresql://h/x?password=p&sslmode=off"):
        assert "p" not in without_password(address).removeprefix("postgresql").replace("password", "")
    done = CliRunner().invoke(
        app, ["recover", "postgresql://me:secret@127.0.0.1:1/x", "--query", "SELECT 1", "-o", "out.csv"]
    )
    assert done.exit_code == 3
    assert "secret" not in done.output


def test_a_query_belongs_to_a_database(tmp_path):
    with pytest.raises(InvalidData, match="Expected an SQL query"):
        read_query("postgresql://me@127.0.0.1:1/x", " ")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    done = CliRunner().invoke(
        app, ["recover", str(tmp_path / "t.csv"), "--query", "SELECT 1", "-o", str(tmp_path / "o.csv")]
    )
    assert done.exit_code == 3
    assert "--query reads from a database" in done.stderr
