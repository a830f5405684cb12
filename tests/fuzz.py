"""Mutated files, read by workers with limits on time and memory: `python tests/fuzz.py --files 10000 [--commands 100]`.

Each must give an UnfadeError, or the values that the format's own library reads; model files with crafted fields must give
an UnfadeError, or a model that works. What is counted beside: crashes,
hangs, other exceptions, and files that appear outside the folder of the run.
"""

import argparse
import copy
import io
import json
import operator
import os
import random
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

KINDS = (
    ".csv", ".tsv", ".csv.xz", ".xlsx", ".sav", ".dta", ".parquet", ".npy", ".npz", ".feather", ".png", ".tif", ".unfade",
    ".crafted",
)  # fmt: skip
MODELS = ("good.unfade", "linear.unfade", "images.unfade")  # files that crafted ones are made from
ODD = (0, -1, 1, 7, 0.5, 1e308, -1e308, 10**6, 10**12, 10**20, float("nan"), float("inf"), None, True, "", "x", "a" * 300)
SECONDS, MEMORY = 20, 3 * 2**30


def originals(folder: Path) -> dict[str, bytes]:
    """A small good file of each kind."""
    from unfade import Recoverer, TrainingConfig
    from unfade.io.image_files import write_frame
    from unfade.io.tables import read_table, write_table

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"height": rng.normal(170, 10, 40), "count": rng.integers(0, 9, 40)})
    frame["where"] = rng.choice(["here", "there", "nowhere"], 40)
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 40), "D")
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    frame.to_csv(folder / "good.csv", index=False)
    table = read_table(folder / "good.csv")
    for ending in (".tsv", ".csv.xz", ".xlsx", ".sav", ".dta", ".parquet", ".feather"):
        write_table(table, folder / f"good{ending}")
    for ending in (".npy", ".npz"):
        write_table(rng.normal(size=(30, 4)), folder / f"good{ending}")
    for ending in (".png", ".tif"):
        write_frame(rng.integers(0, 60_000, (12, 16)).astype(np.uint16), folder / f"good{ending}")
    Recoverer(max_steps=10, n_members=1, random_state=0, verbose=0).fit(table).save(folder / "good.unfade")
    numbers = rng.normal(size=(150, 1)) + 0.1 * rng.normal(size=(150, 3))
    config = TrainingConfig(steps=150)
    Recoverer(noise=0.05, bounds={0: (-9, 9)}, training=config, n_members=2, random_state=0, verbose=0).fit(
        np.where(rng.random(numbers.shape) < 0.2, np.nan, numbers)
    ).save(folder / "linear.unfade")
    images = np.where(rng.random((4, 8, 8)) < 0.2, np.nan, rng.normal(size=(4, 8, 8)))
    Recoverer(network="conv", max_steps=2, random_state=0, verbose=0).fit(images).save(folder / "images.unfade")
    return {kind: (folder / f"good{kind}").read_bytes() for kind in KINDS[:-1]} | {
        name: (folder / name).read_bytes() for name in MODELS
    }


def crafted(content: bytes, seed: int) -> bytes:
    """A model file that is valid as safetensors and JSON, with one to three of its fields changed, taken away or added."""
    rng, size = random.Random(seed), int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    meta = json.loads(header["__metadata__"]["unfade"])
    for _ in range(rng.randint(1, 3)):
        fields = list(_fields(meta))
        place, key = rng.choice([(p, k) for p, k in fields if k not in ("steps", "value")] or fields)
        change = rng.randrange(8)
        if change == 0:
            del place[key]
        elif change == 1:
            place[key] = rng.choice([[], {}, [[]], {"date": "x"}, {"x": 1}, [1, 2], ["<", 0.5], {"a": [1, 0]}])
        elif change == 2:
            place[key] = copy.deepcopy(operator.getitem(*rng.choice(fields)))
        elif change == 3 and isinstance(place, list):
            place.insert(key, copy.deepcopy(place[key]))
        elif change == 3:
            place[rng.choice(["more", "image", "x", "n_candidates"])] = rng.choice(ODD)
        elif change == 4 and isinstance(place[key], (int, float)):
            place[key] *= rng.choice([-1, 2, 1000, 10**10])
        else:
            place[key] = rng.choice(ODD)
    text = json.dumps(meta)
    if rng.random() < 0.02:
        text = text[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}"
    header["__metadata__"]["unfade"] = text
    new = json.dumps(header).encode()
    new += b" " * (-len(new) % 8)
    return len(new).to_bytes(8, "little") + new + content[8 + size :]


def _fields(value):
    """Where every field of JSON is: (what holds it, its key)."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _fields(value[key])


def changed(content: dict[str, bytes], seed: int) -> tuple[str, bytes]:
    """The kind of file of a seed, and what is in it."""
    kind = KINDS[seed % len(KINDS)]
    if kind == ".crafted":
        return kind, crafted(content[MODELS[seed // len(KINDS) % len(MODELS)]], seed)
    return kind, mutated(content[kind], seed)


def mutated(content: bytes, seed: int) -> bytes:
    """One to four changes: bytes, whole numbers, slices, digits of text, or the end cut off."""
    rng, data = random.Random(seed), bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 64])
        where = rng.choice([at, min(at, 200), max(0, len(data) - 1 - at % 300)])  # headers and footers are at the ends
        change = rng.randrange(7)
        if change == 0:
            data[where : where + length] = rng.randbytes(length)
        elif change == 1:
            data[where : where + 8] = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]).to_bytes(8, "little")
        elif change == 2:
            del data[where : where + length]
        elif change == 3:
            data[where:where] = data[at : at + length]
        elif change == 4:
            del data[where:]
        elif change == 5 and (numbers := list(re.finditer(rb"\d+", bytes(data[:4000])))):
            found = rng.choice(numbers)
            data[found.start() : found.end()] = str(rng.choice([0, -1, 7, 10**6, 10**12, 10**20])).encode()
        else:
            data[where:where] = rng.choice([b"\x00", b"\xff\xfe", b'"', b",", b"\n", b"..", b"/", b"nan", b"1e999", b"{}"])
        if not data:
            break
    return bytes(data)


def judged(path: Path) -> str:
    """What reading the file gives: "refused", "same", or what is wrong."""
    from unfade import Recoverer
    from unfade.errors import UnfadeError
    from unfade.io.image_files import read_frame
    from unfade.io.tables import read_table

    read = {".unfade": Recoverer.load, ".crafted": used, ".png": read_frame, ".tif": read_frame}.get(
        path.suffix, read_table
    )
    warnings.simplefilter("ignore")  # notices of encodings
    try:
        found = read(path)
    except UnfadeError:
        return "refused"
    except BaseException as error:  # whatever it is, it is what we look for
        return f"{type(error).__name__}: {error}"[:200]
    return "same" if path.suffix == ".crafted" or _same(found, path) else "other values"


def used(path: Path) -> None:
    """Load a model and do with it what can be done: where it is not refused, all of that works."""
    import pyarrow as pa

    from unfade import Recoverer

    rec, rng = Recoverer.load(path), np.random.default_rng(0)
    if rec.columns_ is None:
        data = rng.normal(size=(3, *rec.encoder_.event_shape))
        data[rng.random(data.shape) < 0.3] = np.nan
    else:
        data = pa.table({column.name: pa.nulls(2) for column in rec.columns_})
    repr(rec.set_params(verbose=0)), rec.transform(data), rec.sample(data, 2), rec.noise_, rec.noise_law_
    [str(history) for history in rec.histories_]
    rec.save(path)


def _same(found, path: Path) -> bool:
    """Whether the format's own library reads the same."""
    if path.suffix == ".unfade":
        from safetensors.torch import load_file

        own = load_file(path)
        state = found.posterior_.state_dict() if found.posterior_ is not None else {}
        return all(np.array_equal(own[f"posterior.{name}"].numpy(), value.numpy(), True) for name, value in state.items())
    if path.suffix in (".png", ".tif"):
        from PIL import Image

        with Image.open(path) as image:
            own = np.asarray(image.convert("RGB") if image.mode == "P" else image)
        return np.array_equal(own, found)
    if path.suffix in (".npy", ".npz"):
        own = np.load(path, allow_pickle=False)
        own = own if path.suffix == ".npy" else own[own.files[0]]
        return np.array_equal(own, found, equal_nan=own.dtype.kind == "f")
    if path.suffix == ".xlsx":
        own = pd.read_excel(path, header=None, dtype=object)
        cells = [None if cell != cell else cell for cell in own.to_numpy().ravel()]
        return sum(cell is not None for cell in cells) >= sum(len(c) - c.null_count for c in found.columns)
    if path.suffix in (".sav", ".dta"):
        import pyreadstat

        own, _ = (pyreadstat.read_sav if path.suffix == ".sav" else pyreadstat.read_dta)(str(path))
        same = [own.shape == found.shape]
        for (_, column), cells in zip(own.items(), found.columns, strict=True):
            if column.dtype.kind in "fiu" and all(isinstance(cell, (int, float)) for cell in cells.drop_null().to_pylist()):
                same.append(np.array_equal(column.to_numpy(float), cells.to_numpy().astype(float), equal_nan=True))
        return all(same)
    if path.suffix in (".csv", ".tsv", ".xz"):
        from pyarrow import csv

        from unfade.io.guise import read_text
        from unfade.io.tables import NULLS, codes_in

        guise, text = read_text(path)

        def read(**types):
            options = csv.ConvertOptions(
                null_values=NULLS, strings_can_be_null=True, column_types=types, decimal_point=guise.decimal
            )
            lines = csv.ParseOptions(delimiter=guise.sep)
            return csv.read_csv(io.BytesIO(text), convert_options=options, parse_options=lines)

        own = read()
        if len(set(own.column_names)) == len(own.column_names):  # codes of many digits are text, as is documented
            codes = codes_in(read(**dict.fromkeys(own.column_names, "string")))
            own = read(**{name: "string" for name in codes if own.schema.field(name).type in ("int64", "double")})
        return _as_bytes(own) == _as_bytes(found)
    from pyarrow import feather, parquet

    own = (parquet if path.suffix == ".parquet" else feather).read_table(path)
    return _as_bytes(own) == _as_bytes(found)


def _as_bytes(table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def work(folder: Path) -> None:
    """Judge the files that are named on standard input, one line each, under limits."""
    import torch

    import unfade.estimator
    import unfade.io.tables  # noqa: F401 (before memory is limited)

    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(judged(folder / line.strip())), flush=True)


class Worker:
    """A process that reads files, started again after each crash or hang."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._start()

    def judge(self, name: str) -> str:
        """What came of a file."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self._line(SECONDS)
        if answer is not None:
            return json.loads(answer)
        what = "hang" if self.process.poll() is None else f"crash, {self.process.wait()}"
        self.stop()
        self._start()
        return what

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def _start(self) -> None:
        command = [sys.executable, __file__, "--work", str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder)
        assert self._line(120) == "ready\n"

    def _line(self, seconds: float) -> str | None:
        ready = select.select([self.process.stdout], [], [], seconds)[0]
        return (self.process.stdout.readline() or None) if ready and self.process.stdout else None


def through_commands(folder: Path, content: dict[str, bytes], count: int, first: int) -> list[str]:
    """The same by `unfade recover`: exit code 0 or 3, no trace, nothing but the output beside the input."""
    wrong = []
    for seed in range(first, first + count):
        kind, bad = changed(content, seed)
        place = Path(tempfile.mkdtemp(dir=folder))
        image = kind in (".png", ".tif")
        name = f"images/file{kind}" if image else f"file{kind}"
        (place / "images").mkdir()
        (place / name).write_bytes(bad)
        (place / "good.csv").write_bytes(content[".csv"])
        data = ["good.csv", "--model", name] if kind in KINDS[-2:] else ["images" if image else name]
        target = "out" if image else "out.npy" if kind[:3] == ".np" else "out.csv"
        command = [sys.executable, "-m", "unfade", "recover", *data, "-o", target]
        command += ["-q"] if kind in KINDS[-2:] else ["-q", "--max-steps", "5", "--n-members", "1"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
        left = {path.name for path in place.iterdir()} - {name, "good.csv", "images", target}
        if done.returncode not in (0, 3, 4) or "Traceback" in done.stderr or left:
            wrong.append(f"command, seed {seed} ({kind}): exit {done.returncode}, left {left}: {done.stderr[-300:]}")
    return wrong


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        return work(chosen.work)
    started, counts, wrong = time.monotonic(), dict.fromkeys(("refused", "same"), 0), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = originals(folder)
        (folder / "read").mkdir()
        worker = Worker(folder / "read")
        for seed in range(chosen.first, chosen.first + chosen.files):
            kind, bad = changed(content, seed)
            path = folder / "read" / f"file{kind}"
            path.write_bytes(bad)
            answer = worker.judge(path.name)
            if answer in counts:
                counts[answer] += 1
            else:
                wrong.append(f"seed {seed} ({kind}): {answer}")
                print(wrong[-1], flush=True)
            path.unlink()
            if left := os.listdir(folder / "read"):
                wrong.append(f"seed {seed} ({kind}): left {left}")
        worker.stop()
        commands = through_commands(folder, content, chosen.commands, chosen.first)
    print(*commands, sep="\n", end="\n" if commands else "")
    print(
        f"{chosen.files} files: {counts['refused']} refused in a sentence, {counts['same']} read as by the format's "
        f"own library, {len(wrong)} wrong; {chosen.commands} commands, {len(commands)} wrong; "
        f"{time.monotonic() - started:.0f} s"
    )
    sys.exit(bool(wrong or commands))


if __name__ == "__main__":
    main()
