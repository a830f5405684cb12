"""The paper's table 1 in parts on one GPU, the most telling first, several programs side by side; stops in time.

    PYTHONPATH=src python benchmarks/table1.py FOLDER --plan short --data-dir DATA --seconds 540

FOLDER/SCHEDULE/results.json holds every finished result, also of a run that was killed: the next run goes on with what it
does not hold. `--report` writes report.md and table1.png of what there is. What the programs work in is under --work.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from unfade.paper.reproduce import describe
from unfade.paper.settings import SCHEDULES
from unfade.paper.study import Results, Setting, Study, key
from unfade.paper.tables import fill_table1, report_table1
from unfade.paper.ways import ALL_WAYS
from unfade.storage import whole_or_nothing

REPEATS = 5
MNIST, FASHION, HAR = ("mnist",), ("fashion-mnist",), ("uci-har",)
ONE_MASK: dict[str, Any] = {"data": ((*MNIST, *FASHION), HAR), "masks": (0,)}
SHARES = (0.2, 0.5, 0.8)
DRAWN = ("MIWAE", "MIWAE, conditioned", "MIWAE, conditioned, resampled")
OURS = ("unfade", "unfade, resampled")


@dataclass(frozen=True)
class Job:
    """A part of the table that one program trains at once: ways that draw from one model, data of one shape, a floor."""

    ways: tuple[str, ...]
    data: tuple[str, ...]
    lim: float = 20.0
    masks: tuple[int, ...] = tuple(range(REPEATS))
    schedule: str = "equal"
    missing: tuple[float, ...] = SHARES

    def __str__(self) -> str:
        return f"{self.ways[0]}; {' '.join(self.data)}; lim {self.lim:g}; masks {self.masks}; {self.schedule}"

    @property
    def keys(self) -> list[str]:
        """Return the names of its results."""
        settings = [Setting(data, share, mask) for data in self.data for share in self.missing for mask in self.masks]
        return [key(setting, way, f"lim {self.lim:g}") for setting in settings for way in self.ways]


def jobs(
    way: str, lim: float, data: tuple[tuple[str, ...], ...] = (MNIST, FASHION, HAR), apart: bool = False, **how: Any
) -> list[Job]:
    """List the jobs of a way, one for each part of the data; apart: one for each share that is missing too."""
    ways = DRAWN if way == "MIWAE" else OURS if way == "unfade" else (way,)
    each = [(share,) for share in SHARES] if apart else [SHARES]
    return [Job(ways, part, lim, missing=shares, **how) for part in data for shares in each]


# Most telling first. The short one is of one mask; one job is MNIST on the paper's own schedule.
SHORT = [
    *jobs("MVAE, noise ignored, sigmoid", 20, **ONE_MASK),
    *jobs("MIWAE, noise ignored, sigmoid", 20, **ONE_MASK),
    *jobs("TAE, author's habits", 20, (MNIST,), masks=(0,)),
    *jobs("TAE, author's habits", 20, (MNIST,), masks=(0,), schedule="paper"),
    *jobs("MVAE, noise ignored, author's habits", 10, **ONE_MASK),
    *jobs("MIWAE, noise ignored, author's habits", 10, **ONE_MASK),
    *jobs("MVAE, noise ignored", 20, **ONE_MASK),
    *jobs("TAE, author's habits", 10, (MNIST,), masks=(0,)),
    *jobs("TAE, author's habits, free means", 20, (MNIST,), masks=(0,)),
    *jobs("TAE, Xavier's weights", 20, (MNIST,), masks=(0,)),
    *jobs("MIWAE, noise ignored", 20, **ONE_MASK),
]
FULL = [
    *jobs("TAE, author's habits", 20),
    *jobs("MVAE, noise ignored, sigmoid", 20),
    *jobs("TAE as printed", 20),
    *jobs("MVAE", 20),
    *jobs("MIWAE, noise ignored, sigmoid", 20),
    *jobs("TAE, author's habits", 10),
    *jobs("MIWAE", 20),
    *jobs("TAE as printed", 10),
    *jobs("MVAE", 10),
    *jobs("MVAE, noise ignored, author's habits", 10),
    *jobs("unfade", 20, apart=True),
    *jobs("MIWAE", 10),
    *jobs("TAE, noise inferred", 20),
    *jobs("TAE, author's habits, free means", 20, **ONE_MASK),
    *jobs("TAE, Xavier's weights", 20, **ONE_MASK),
    *jobs("MVAE, noise ignored", 20),
    *jobs("TAE, exact bound", 20, apart=True, masks=(0,)),
    *jobs("MIWAE, noise ignored, author's habits", 10),
    *jobs("MIWAE, noise ignored", 20),
    *jobs("unfade", 10, apart=True),
    *jobs("TAE, author's habits", 20, (MNIST,), schedule="paper"),
]
PLANS = {"short": SHORT, "full": FULL}


def work(folder: Path, job: Job, known: dict[str, Any], data_dir: Path, device: str) -> None:
    """Compute the results of a job that are not known, in a folder of its own."""
    study = Study(SCHEDULES[job.schedule], data_dir, torch.device(device), data=job.data, ways=job.ways, lims=(job.lim,))
    results = Results(folder, describe("table1", job.schedule, REPEATS, True))
    results.found = {name: result for name, result in known.items() if name in job.keys} | results.found
    fill_table1(replace(study, missing=job.missing, masks=job.masks), results, REPEATS, print)


def merge(folder: Path, where: Path) -> dict[str, dict[str, Any]]:
    """Add what jobs have found to the results of each schedule, and return them."""
    found: dict[str, dict[str, Any]] = {}
    for schedule in SCHEDULES:
        kept, parts = folder / schedule / "results.json", sorted((where / schedule).glob("*/results.json"))
        there = [json.loads(path.read_text()) for path in [kept, *parts] if path.exists()]
        found[schedule] = {name: result for one in there for name, result in one.items()}
        if found[schedule]:
            Results(folder / schedule, describe("table1", schedule, REPEATS, True))  # refuses results of other settings
            with whole_or_nothing(kept) as part:
                Path(part).write_text(json.dumps(found[schedule], indent=1))
    return found


def with_mps(environment: dict[str, str]) -> dict[str, str]:
    """Let programs share the GPU at once rather than in turns, by NVIDIA's MPS, if a small test says that it works."""
    if not shutil.which("nvidia-cuda-mps-control"):
        return environment
    pipe = tempfile.mkdtemp()
    shared = {**environment, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=shared, check=False)
    test = [sys.executable, "-c", "import torch; torch.ones(9, device='cuda').sum().item()"]
    try:
        works = subprocess.run(test, env=shared, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        works = False
    print(f"MPS {'is used' if works else 'does not work here'}", flush=True)
    return shared if works else environment


def without_mps(environment: dict[str, str]) -> None:
    """End MPS where it was begun."""
    if "CUDA_MPS_PIPE_DIRECTORY" in environment and "CUDA_MPS_PIPE_DIRECTORY" not in os.environ:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=environment, timeout=20, check=False)


def dispatch(plan: list[Job], chosen: argparse.Namespace, until: float) -> None:
    """Run jobs in their order, some at once; in the end, stop those that are not done."""
    running: dict[subprocess.Popen[bytes], Job] = {}
    environment = {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "3", **os.environ}
    if chosen.device == "cuda" and not chosen.in_turns:
        environment = with_mps(environment)
    options = ["--data-dir", str(chosen.data_dir), "--device", chosen.device, "--work", str(chosen.work)]
    while (left := until - time.monotonic()) > 0 and (running or (plan and left > chosen.least)):
        while plan and len(running) < chosen.at_once and left > chosen.least:
            job = plan.pop(0)
            print(f"{left:4.0f} s left: {job}", flush=True)
            command = [sys.executable, __file__, str(chosen.folder), "--job", json.dumps(asdict(job)), *options]
            running[subprocess.Popen(command, env=environment)] = job
        for program in [program for program in running if program.poll() is not None]:
            print(f"{left:4.0f} s left: done ({program.returncode}) {running.pop(program)}", flush=True)
            merge(chosen.folder, chosen.work)
        time.sleep(0.5)
    for program in running:
        program.terminate()
    for program in running:
        program.wait()
    without_mps(environment)


def options() -> argparse.ArgumentParser:
    """Declare the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plan", choices=list(PLANS), default="short")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="of the clock, for all")
    parser.add_argument("--least", type=float, default=60, help="seconds that must be left for a job to be begun")
    parser.add_argument("--at-once", type=int, default=5, help="programs that share the device")
    parser.add_argument("--in-turns", action="store_true", help="without NVIDIA's MPS, which is used where it works")
    parser.add_argument("--schedule", default="", choices=["", *SCHEDULES], help="in place of those of the plan, to try it")
    parser.add_argument("--work", type=Path, default=Path("build/table1-work"))
    parser.add_argument("--report", action="store_true", help="write the tables of what there is, and run nothing")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    chosen = options().parse_args(arguments)
    until = time.monotonic() + chosen.seconds
    if chosen.job:
        job = Job(**{name: tuple(part) if isinstance(part, list) else part for name, part in chosen.job.items()})
        name = "".join(c if c.isalnum() else "-" for c in f"{job} {job.missing}")
        kept = chosen.folder / job.schedule / "results.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        return work(chosen.work / job.schedule / name, job, known, chosen.data_dir, chosen.device)
    found = merge(chosen.folder, chosen.work)
    if chosen.report:
        for schedule in (schedule for schedule, there in found.items() if there):
            results = Results(chosen.folder / schedule, describe("table1", schedule, REPEATS, True))
            ways = [way for way in ALL_WAYS if any(f"; {way}; " in name for name in results.found)]
            study = Study(SCHEDULES[schedule], chosen.data_dir, torch.device("cpu"), ways=ways)
            (results.folder / "report.md").write_text(report_table1(study, results, REPEATS) + "\n")
        return None
    plan = [replace(job, schedule=chosen.schedule or job.schedule) for job in PLANS[chosen.plan]]
    dispatch([job for job in plan if not set(job.keys) <= set(found[job.schedule])], chosen, until)
    merge(chosen.folder, chosen.work)
    return None


if __name__ == "__main__":
    main()
