"""`unfade recover` killed at random moments, then told to go on: the files are those of a run that nobody disturbed."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

STEPS = ["--max-steps", "300", "--members", "2", "--draws", "3", "-q"]


def unfade(*arguments, **how):
    command = [sys.executable, "-m", "unfade", "recover", *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True, **how)


def finished(*arguments, **how):
    process = unfade(*arguments, **how)
    said = process.communicate(timeout=300)[1]
    return process.returncode, said


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(600, 6))
    frame = pd.DataFrame(np.where(rng.random(X.shape) < 0.2, np.nan, X), columns=list("abcdef"))
    frame.to_parquet(folder / "data.parquet")
    return folder / "data.parquet"


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a path, or the file itself."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path.parent)): each.read_bytes() for each in files}


def kill_and_go_on(data, folder, out, kills, seed, *options):
    """Kill as often at random moments, then let it end; how many kills came in time."""
    rng, hit = random.Random(seed), 0
    keep = ["--checkpoint", folder / "kept", "--checkpoint-every", "0", "--resume"]
    started = time.monotonic()
    code, said = finished(data, "-o", folder / "undisturbed" / out, *STEPS, *options)
    assert code == 0, said
    usual = time.monotonic() - started
    for _ in range(kills):
        process = unfade(data, "-o", folder / out, *STEPS, *options, *keep)
        time.sleep(rng.uniform(0.1, 1.0) * usual)
        hit += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    code, said = finished(data, "-o", folder / out, *STEPS, *options, *keep)
    assert code == 0, said
    return hit


def check(data, tmp_path, kills, seed, out, *options):
    (tmp_path / "undisturbed").mkdir()
    hit = kill_and_go_on(data, tmp_path, out, kills, seed, *options)
    assert contents(tmp_path / out) == contents(tmp_path / "undisturbed" / out)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in left if not name.startswith(".")] == sorted([out, "undisturbed"])
    return hit


def test_a_few_kills(data, tmp_path):
    check(data, tmp_path, 2, 0, "clean.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("out", ["clean.parquet", "folder"])
def test_many_kills(data, tmp_path, out):
    hit = 0
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        hit += check(data, folder, 1, number, out)
    print(f"{hit} of 20 kills came before the end, 20 of 20 runs ended with the undisturbed result")
    assert hit >= 12


def test_a_full_disk_leaves_nothing(data, tmp_path):
    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    code, said = finished(data, "-o", tmp_path / "clean.csv", *STEPS, "--save", tmp_path / "model", preexec_fn=small)
    assert code == 3
    assert "Cannot write" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_ctrl_c_in_training_keeps_checkpoints(data, tmp_path):
    long = ["--max-steps", "15000", "--members", "2", "-q", "--checkpoint", tmp_path / "kept", "--checkpoint-every", "0"]
    process = unfade(data, "-o", tmp_path / "clean.csv", *long)
    deadline = time.monotonic() + 120
    while not (tmp_path / "kept" / "run-00.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert (tmp_path / "clean.csv").exists()
    assert (tmp_path / "kept" / "run-00.checkpoint").exists()
