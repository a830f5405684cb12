"""Two processes that train one model: the same model in both, as good as one process's."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from unfade import Recoverer
from unfade.metrics import crps

TOGETHER = """
import sys
from pathlib import Path
import numpy as np
import torch
from unfade import Recoverer
from unfade.training import distributed as processes
from unfade.training.checkpoints import Checkpoint
torch.set_num_threads(1)
table = np.load(sys.argv[1])
with processes.group():
    assert processes.count() == 2
    keep = Checkpoint(sys.argv[2] + "/kept", every=0)
    rec = Recoverer(random_state=0, verbose=0, n_members=2, max_steps=600).fit(table, checkpoint=keep)
    np.save(f"{sys.argv[2]}/draws-{processes.rank()}.npy", rec.sample(table, 50).values)
    print(rec.histories_[0].step)
threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
assert not any("gloo" in name for name in threads), threads  # one left at the end aborts the process now and then
"""


def torchrun(*arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, arguments)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 2 * np.pi, 400)
    X = np.stack([np.cos(t), np.sin(t), np.cos(2 * t), np.sin(2 * t)], 1) + 0.1 * rng.normal(size=(400, 4))
    return X, np.where(rng.random(X.shape) < 0.3, np.nan, X)


def score(draws, X, table):
    missing = np.isnan(table)
    return float(crps(torch.from_numpy(draws), torch.from_numpy(X)).numpy()[missing].mean())


def test_two_processes_are_as_good_as_one(data, tmp_path):
    X, table = data
    np.save(tmp_path / "table.npy", table)
    (tmp_path / "fit.py").write_text(TOGETHER)
    done = torchrun(tmp_path / "fit.py", tmp_path / "table.npy", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("one of 2 processes") == 2
    draws = [np.load(tmp_path / f"draws-{rank}.npy") for rank in range(2)]
    assert np.array_equal(*draws)
    alone = Recoverer(random_state=0, verbose=0, n_members=2, max_steps=600).fit(table).sample(table, 50).values
    assert not np.array_equal(alone, draws[0])
    assert score(draws[0], X, table) < 1.1 * score(alone, X, table)


def test_the_command_line_writes_once(data, tmp_path):
    pd.DataFrame(data[1], columns=list("abcd")).to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "clean.csv"
    done = torchrun("-m", "unfade", "recover", tmp_path / "table.csv", "-o", out, "--max-steps", "40", "--n-members", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("missing cells") == 1
    assert not pd.read_csv(out).isna().any(axis=None)
