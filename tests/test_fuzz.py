"""Mutated files are refused in a sentence, or read as the format's own library reads them."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")


def fuzzed(files, commands, first):
    command = [sys.executable, FUZZ, "--files", files, "--commands", commands, "--first", first]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_some_mutated_files():
    fuzzed(300, 2, 100_000)


@pytest.mark.slow
def test_many_mutated_files():
    fuzzed(10_000, 100, 0)
