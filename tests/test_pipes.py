"""`-` is standard input and standard output, as for any Unix tool; Ctrl-C gives one line from the first moment on."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from test_cli import FAST, csv, run
from typer.testing import CliRunner

from unfade.cli import app as cli

__all__ = ["csv"]  # the fixture
FAST = [*map(str, FAST), "--n-members", "1"]


def piped(*arguments, given=b""):
    return CliRunner().invoke(cli.app, [str(each) for each in arguments], input=given)


def test_csv_comes_in_and_goes_out(csv, tmp_path):
    assert run("recover", csv, "-o", tmp_path / "out.csv", *FAST).exit_code == 0
    expected = (tmp_path / "out.csv").read_bytes()
    both = piped("recover", "-", "-o", "-", *FAST, given=csv.read_bytes())
    assert both.exit_code == 0, both.stderr
    assert both.stdout_bytes == expected
    assert both.stderr.startswith("standard input: ")
    assert "  recovered data: -\n" in both.stderr
    quiet = piped("recover", csv, "-o", "-", "-q", *FAST)
    assert (quiet.stdout_bytes, quiet.stderr) == (expected, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_a_folder_a_report_and_a_diagnosis_take_standard_input(csv, tmp_path):
    done = piped("recover", "-", "-o", tmp_path / "out", "--draws", "2", *FAST, given=csv.read_bytes())
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["clean.parquet", "draws.parquet", "plan.json"]
    done = piped("diagnose", "-", *FAST, given=csv.read_bytes())
    assert done.exit_code == 0, done.output


def test_a_pipe_with_a_name_is_read(csv, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(csv.read_bytes()))
    writer.start()
    done = run("recover", pipe, "-o", tmp_path / "out.csv", *FAST)
    writer.join()
    assert done.exit_code == 0, done.output
    assert f"{pipe}: " in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recover", "-", "-o", "-"], "standard input is empty"),
        (["recover", "-", "-o", "-", "--json"], "both write to standard output"),
        (["recover", "-", "-o", "-", "--draws-to", "-"], "--draws-to - is not a file"),
        (["diagnose", "-", "--report", "-"], "--report - is not a file"),
    ],
)
def test_what_cannot_be_piped_is_said(arguments, message):
    done = piped(*arguments)
    assert done.exit_code == 3
    assert message in done.stderr
    assert done.stdout == ""


def test_a_reader_that_has_enough_is_no_error(csv):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "unfade", "recover", str(csv), "-o", "-", "-q", *FAST]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


INTERRUPTED = """
import os, signal, sys

class Now:
    def find_spec(self, name, *_):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Now())
from unfade.__main__ import main
sys.argv[1:] = ["recover", "nowhere.csv", "-o", "nothing.csv"]
main()
"""


@pytest.mark.parametrize("module", ["torch", "sklearn.base", "unfade.io.images"])
def test_ctrl_c_while_libraries_load_is_one_line(module):
    code = f"MODULE = {module!r}\n{INTERRUPTED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "interrupted: nothing was written under the names you gave\n"


def test_ctrl_c_that_is_ignored_stays_so():
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom unfade.__main__ import main\n"
    code += "import sys; sys.argv[1:] = ['--version']\nimport atexit\n"
    code += "atexit.register(lambda: print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN))\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
