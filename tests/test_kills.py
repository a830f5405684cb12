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

STEPS = ["--max-steps", "300", "--n-members", "2", "-q"]


def steps(target: Path) -> list[str]:
    """How to fit; a folder holds draws too."""
    return STEPS if target.suffix else [*STEPS, "--draws", "3"]


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


@pytest.fixture(scope="module", params=["clean.parquet", "folder"])
def undisturbed(request, data, tmp_path_factory):
    """The result that nobody disturbed, and the seconds it took."""
    target, started = tmp_path_factory.mktemp("undisturbed") / request.param, time.monotonic()
    code, said = finished(data, "-o", target, *steps(target))
    assert code == 0, said
    return target, time.monotonic() - started


def killed_and_resumed(data, undisturbed, folder, kills, seed):
    """Kill as often at random moments, then let it end with the same files; how many kills came in time."""
    (wanted, seconds), rng, hit = undisturbed, random.Random(seed), 0
    command = [
        data,
        "-o",
        folder / wanted.name,
        *steps(wanted),
        "--checkpoint",
        folder / "kept",
        "--checkpoint-every",
        "0",
        "--resume",
    ]
    for _ in range(kills):
        process = unfade(*command)
        time.sleep(rng.uniform(0.1, 1.0) * seconds)
        hit += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    code, said = finished(*command)
    assert code == 0, said
    assert contents(folder / wanted.name) == contents(wanted)
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == [wanted.name]
    return hit


def test_a_few_kills(data, undisturbed, tmp_path):
    killed_and_resumed(data, undisturbed, tmp_path, 2, 0)


@pytest.mark.slow
def test_many_kills(data, undisturbed, tmp_path):
    hit = 0
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        hit += killed_and_resumed(data, undisturbed, tmp_path / str(number), 1, number)
    print(f"{hit} of 20 kills came before the end; 20 of 20 runs ended with the undisturbed result")
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
    long = ["--max-steps", "15000", "--n-members", "2", "-q", "--checkpoint", tmp_path / "kept", "--checkpoint-every", "0"]
    process = unfade(data, "-o", tmp_path / "clean.csv", *long)
    deadline = time.monotonic() + 120
    while not (tmp_path / "kept" / "run-00.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert (tmp_path / "clean.csv").exists()
    assert (tmp_path / "kept" / "run-00.checkpoint").exists()
