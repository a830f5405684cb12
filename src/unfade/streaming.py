"""Tables larger than memory: fit on a sample that one pass over the file takes, recover part by part into a folder.

Training looks at no more than steps x batch rows, so a uniform sample of as many rows serves it as well as the whole
table. What a sample could miss is added to it: a row for each category, for the least and the largest value of each
column, for the first number with a fraction.
"""

import copy
import hashlib
import json
import os
import re
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import csv, parquet

from unfade import files, tables
from unfade.errors import DataNotice, InvalidData, InvalidFile
from unfade.estimator import Recoverer
from unfade.methods import members_for, training_for
from unfade.randomness import step_keys

CATEGORIES = 10_000  # different texts of a column that are told apart; a column with more passes through
PARTIAL = ".partial"  # ending of the folder that is written to until all is there
_READ = 2**16  # rows that are read together
_LEAST_MEMORY = 2**28
_LEAST_ROWS = 20_000  # a sample has as many, however few steps there are: sizes and scales are found from it
_FIT_BYTES = 64  # that a fit takes for a feature of a row
_FIXED_BYTES = 2**27  # that reading and the networks take, whatever the number of rows
_NULLS = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A"]  # as `read_table` has them
_TYPES = (  # of CSV columns, in the order in which pyarrow tries them
    pa.null(), pa.int64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"),
    pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.float64(), pa.string(), pa.binary(),
)  # fmt: skip


def parse_memory(memory: str | int) -> int:
    """A number of bytes from text such as "2GB", "512MB" or "1.5 GiB" (units of 1,000; with an i, of 1,024).

    It bounds what data and results take; libraries themselves are not in it.

    >>> parse_memory("2GB"), parse_memory("512 MiB"), parse_memory(10**9)
    (2000000000, 536870912, 1000000000)
    """
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(?:([kKmMgGtT])([iI]?))?[bB]?\s*", str(memory))
    if found is None or isinstance(memory, bool):
        raise InvalidData(f"Expected an amount of memory such as '2GB' or '512MiB', got {memory!r}.")
    power = " kmgt".index((found[2] or " ").lower())
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    if size < _LEAST_MEMORY:
        raise InvalidData(
            f"Expected at least 256MiB of memory, got {memory!r}: reading and the networks alone take half. Give more."
        )
    return size


# Reading


@dataclass(frozen=True)
class Source:
    """A table on disk that is read some rows at a time: a Parquet or CSV file, or the Parquet files of a folder."""

    path: Path
    files: tuple[Path, ...]
    schema: pa.Schema

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Source":
        """Look at a file or folder. Types of CSV columns are those of the whole file, which takes a pass over it."""
        path = Path(path)
        if path.is_dir():
            found = tuple(sorted(each for each in path.glob("*.parquet") if each.name[0] not in "._"))
            if not found:
                raise InvalidFile(f"Expected Parquet files in the folder {path}, found none. Check the path.")
        elif path.is_file():
            found = (path,)
        else:
            raise InvalidFile(f"Expected a file or folder at {path}, found none. Check the path.")
        schema = _csv_schema(path) if _is_csv(path) else _parquet_schema(found)
        files._check_header(path, schema.names)
        tables.check_names(schema.names)
        return cls(path, found, schema)

    def tables(self, size: int, start: int = 0) -> Iterator[pa.Table]:
        """Tables of `size` rows, the last one shorter, from row `start` on."""
        held: list[pa.RecordBatch] = []
        missing = size
        for batch in _told(self.path, self._batches(min(size, _READ), start)):
            while batch.num_rows:
                held.append(batch.slice(0, missing))
                missing -= held[-1].num_rows
                batch = batch.slice(held[-1].num_rows)
                if not missing:
                    yield pa.Table.from_batches(held)
                    held, missing = [], size
        if held:
            yield pa.Table.from_batches(held)

    def _batches(self, size: int, start: int) -> Iterator[pa.RecordBatch]:
        if _is_csv(self.path):
            for batch in _open_csv(self.path, dict(zip(self.schema.names, self.schema.types, strict=True))):
                yield batch.slice(min(start, batch.num_rows))
                start -= min(start, batch.num_rows)
            return
        for path in self.files:
            with parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False) as file:
                groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
                first = 0
                while first < len(groups) and start >= groups[first]:
                    start -= groups[first]
                    first += 1
                for batch in file.iter_batches(size, row_groups=range(first, len(groups))):
                    yield batch.slice(min(start, batch.num_rows))
                    start -= min(start, batch.num_rows)

    def stamp(self) -> list[Any]:
        """What tells whether it is still the same: name, size and time of change of each file."""
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in self.files]


def _is_csv(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith((".csv", ".csv.gz"))


def _told(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """The same; what goes wrong while reading is told as an InvalidFile."""
    try:
        yield from batches
    except (OSError, ValueError, EOFError, pa.ArrowException) as error:
        raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid Parquet or CSV file.") from None


def _parquet_schema(paths: Sequence[Path]) -> pa.Schema:
    schema = None
    for path in paths:
        for found in _told(path, (parquet.read_schema(each) for each in (path,))):
            schema = schema or found.remove_metadata()
            if not schema.equals(found.remove_metadata()):
                raise InvalidFile(
                    f"{path} has other columns or types than {paths[0]}. Expected the same in all files of a folder."
                )
    return schema


def _open_csv(path: Path, types: dict[str, Any] | None = None) -> Any:
    convert = csv.ConvertOptions(null_values=_NULLS, strings_can_be_null=True, column_types=types)
    return csv.open_csv(path, read_options=csv.ReadOptions(block_size=2**22), convert_options=convert)


def _csv_schema(path: Path) -> pa.Schema:
    """Names and types of a CSV file as reading it whole gives them: the first type that all its cells have.

    pyarrow's streaming reader takes the types of the first block; where a later cell does not fit, the next type is tried.
    """
    if path.stat().st_size == 0:
        raise InvalidFile(f"{path} is empty. Expected a table with a header and at least one row.")
    schema: Any = None
    while True:
        try:
            reader = _open_csv(path, schema and dict(zip(schema.names, schema.types, strict=True)))
            if schema is None:
                schema = reader.schema
                tables.check_names(schema.names)
            for _ in reader:
                pass
            return schema
        except (OSError, pa.ArrowException) as error:
            unfit = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", str(error))
            if schema is None or unfit is None or schema.types[int(unfit[1])] == _TYPES[-1]:
                raise InvalidFile(f"Cannot read {path}: {error}. Expected a whole, valid .csv file.") from None
            column = int(unfit[1])
            wider = _TYPES[_TYPES.index(schema.types[column]) + 1]
            schema = schema.set(column, pa.field(schema.names[column], wider))


# Fitting


def fit_stream(rec: Recoverer, path: str | os.PathLike[str], memory: str | int = "2GB", seed: int = 0) -> Recoverer:
    """Fit on a Parquet or CSV file, or a folder of Parquet files, that need not fit into memory; one pass over it.

    Where the rows fit into `memory`, the result is that of `rec.fit` on the whole table. Else it is fitted on a uniform
    sample, chosen by `seed`: of as many rows as training can look at, or as memory holds. Kinds of columns,
    categories, the least and the largest values are those of the whole table. Texts of a column beyond 10,000 different
    ones are not told apart: it passes through, or, where `kinds` says that it is a category, those that are not
    in the sample tell the model nothing.
    """
    rec._check_parameters()
    source = Source.open(path)
    sample = _Sample(source.schema, parse_memory(memory), seed, rec)
    for table in source.tables(_READ):
        sample.add(table)
    if sample.rows == 0:
        raise InvalidFile(f"{path} has no rows. Expected at least one row of data.")
    table, whole = sample.table(), sample.whole
    given, found = rec.kinds, {} if whole else sample.kinds()
    try:
        rec.kinds = {**found, **(given or {})} or None
        return rec.fit(table)
    finally:
        rec.kinds = given


@dataclass
class _Range:
    """What a column of numbers, truth values or dates shows in one pass: the rows of its ends and its first fraction."""

    ends: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    needed: dict[Any, int] = field(default_factory=dict)
    last: float | None = None
    counting: bool = True  # whether it counts the rows so far

    def look(self, column: pa.ChunkedArray, start: int, name: str) -> None:
        values = _as_floats(column)
        for end, reduce in enumerate((np.fmin.reduce, np.fmax.reduce)):
            found = float(reduce(values))
            if np.isinf(found):
                raise InvalidData(
                    f"Input contains infinity: column {name!r}, row {start + int(np.argmax(values == found))}. "
                    "Expected finite numbers, with NaN for missing entries; replace inf by NaN or by a number."
                )
            if (found < self.ends[0]) if end == 0 else (found > self.ends[1]):
                self.ends[end] = found
                self.needed[end] = start + int(np.argmax(values == found))
        if "fraction" not in self.needed and pa.types.is_floating(column.type):
            fraction = values != np.round(values)
            fraction &= ~np.isnan(values)
            if fraction.any():
                self.needed["fraction"] = start + int(np.argmax(fraction))
        if self.counting:
            before = values[:1] - 1 if self.last is None else [self.last]
            self.counting = bool((np.diff(np.concatenate([before, values])) == 1).all())
            self.last = float(values[-1])

    def kind(self, rows: int) -> str | None:
        """The kind of the column, where the sample does not show it."""
        return "excluded" if self.counting and rows > 20 else None

    features = 1


@dataclass
class _Values:
    """The different values of a column of texts in one pass, each with its first row; and whether some are limits."""

    needed: dict[Any, int] = field(default_factory=dict)
    count: int = 0
    many: bool = False
    shown: dict[str, int] = field(default_factory=dict)  # the first limit such as <0.5, number, and other text

    def look(self, column: pa.ChunkedArray, start: int, name: str) -> None:
        self.count += len(column) - column.null_count
        if self.many and "other" in self.shown:
            return
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        encoded = column.combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        found, rows = np.unique(codes, return_index=True)
        values = encoded.dictionary.to_pylist()
        for code, row in zip(found.tolist(), rows.tolist(), strict=True):
            if code < 0 or values[code] in self.needed:
                continue
            self._show(values[code], start + row)
            if not self.many:
                self.needed[values[code]] = start + row
        if len(self.needed) > CATEGORIES:
            self.many, self.needed = True, {}
        for what, row in self.shown.items():
            self.needed[what, row] = row  # a pair: no text is one

    def _show(self, value: Any, row: int) -> None:
        if "other" in self.shown:
            return
        text = value if isinstance(value, str) else ""
        what = "limit" if tables._LIMIT.fullmatch(text) else "number" if tables._NUMBER.fullmatch(text) else "other"
        self.shown.setdefault(what, row)

    @property
    def features(self) -> int:
        """How many features of a model it is."""
        return 1 if self.many else max(1, len(self.needed) - len(self.shown))

    def kind(self, rows: int) -> str | None:
        """The kind of the column, where the sample does not show it."""
        if set(self.shown) == {"limit", "number"} or not self.count:
            return None
        return "excluded" if self.many or self.features > max(20, 0.3 * self.count) else "category"


class _Sample:
    """A uniform sample of rows taken in one pass, and the rows that a sample must not miss.

    Each row has a key, a hash of the seed and its number: the sample is the rows of the smallest keys, so it hangs on
    nothing else. Where all rows fit, it is all rows.
    """

    def __init__(self, schema: pa.Schema, memory: int, seed: int, rec: Recoverer):
        self.memory, self.seed, self.rec = memory, seed, rec
        self.rows = self.held_rows = self.bytes = 0
        self.highest: int | None = None  # key of a row that is kept, where not all are
        self.held: list[tuple[np.ndarray, np.ndarray, pa.Table]] = []  # numbers of rows, their keys, the rows
        self.looks = {each.name: look for each in schema if (look := _look(each.type, (rec.kinds or {}).get(each.name)))}

    @property
    def whole(self) -> bool:
        """Whether all rows fit."""
        return self.rows <= self._most()

    def _most(self) -> int:
        """How many rows memory holds."""
        features = sum(look.features for look in self.looks.values())
        return max(1000, int((self.memory - _FIXED_BYTES) / (_FIT_BYTES * features + 3 * self.bytes / max(1, self.rows))))

    def _enough(self) -> int:
        """How many rows to keep: those that training can look at, where not all fit."""
        if self.whole:
            return self.rows
        rec, features = self.rec, sum(look.features for look in self.looks.values())
        members = members_for(rec.method, features) if rec.members == "auto" else int(rec.members)
        training = rec.training or training_for(rec.method, members, self.rows)
        visits = int(rec.max_steps or training.steps) * training.batch_size * members
        return min(self._most(), max(_LEAST_ROWS, visits))

    def add(self, table: pa.Table) -> None:
        """The next rows."""
        for name, look in self.looks.items():
            look.look(table[name], self.rows, name)
        numbers = torch.arange(self.rows, self.rows + len(table))
        keys = step_keys(torch.tensor([self.seed]), numbers)[:, 0].numpy()
        self.held.append((numbers.numpy(), keys, table))
        self.rows, self.bytes = self.rows + len(table), self.bytes + table.nbytes
        if self.highest is not None:
            self.held[-1] = self._kept(self.held[-1])
        self.held_rows += len(self.held[-1][0])
        if self.held_rows > 1.5 * self._most():
            self._prune()

    def _prune(self) -> None:
        keys = np.concatenate([keys for _, keys, _ in self.held])
        most = self._enough()
        if most < len(keys):
            self.highest = int(np.partition(keys, most - 1)[most - 1])
            self.held = [self._kept(each) for each in self.held]
            parts = list(zip(*self.held, strict=True))
            self.held = [(np.concatenate(parts[0]), np.concatenate(parts[1]), pa.concat_tables(parts[2]).combine_chunks())]
        self.held_rows = sum(len(numbers) for numbers, _, _ in self.held)

    def _kept(self, held: tuple[np.ndarray, np.ndarray, pa.Table]) -> tuple[np.ndarray, np.ndarray, pa.Table]:
        numbers, keys, table = held
        needed = np.array([row for look in self.looks.values() for row in look.needed.values()], dtype=np.int64)
        keep = (keys <= self.highest) | np.isin(numbers, needed)
        return numbers[keep], keys[keep], table.filter(pa.array(keep))

    def table(self) -> pa.Table:
        """The sample, rows in their order."""
        self._prune()
        return pa.concat_tables([table for _, _, table in self.held])

    def kinds(self) -> dict[str, str]:
        """Kinds of columns that the sample alone would not show."""
        found = {name: look.kind(self.rows) for name, look in self.looks.items()}
        if many := [n for n, look in self.looks.items() if isinstance(look, _Values) and look.many and found[n]]:
            warnings.warn(
                f"More than {CATEGORIES:,} different texts are in {many[:10]}: passed through as they are. Give "
                "kinds={...: 'category'} to take those that the sample holds as categories.",
                DataNotice,
                stacklevel=4,
            )
        return {name: kind for name, kind in found.items() if kind is not None}


def _look(kind: pa.DataType, given: str | None) -> _Range | _Values | None:
    """How to look at a column of an Arrow type, for which the user gave a kind or none."""
    if given == "excluded":
        return None
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_dictionary)
    if given in ("ordered", "category") or any(is_it(kind) for is_it in texts):
        return _Values()
    ranged = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_date, types.is_timestamp)
    return _Range() if any(is_it(kind) for is_it in ranged) else None


def _as_floats(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers, truth values and dates as floats, NaN where there is none."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


# Recovering


def recover_stream(
    rec: Recoverer | str | os.PathLike[str],
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    draws: int = 0,
    refine: int | str | None = None,
    seed: int = 0,
    memory: str | int = "2GB",
    *,
    clean: bool = True,
    resume: bool = False,
    workers: int = 1,
) -> Path:
    """Recover a Parquet or CSV file, or a folder of Parquet files, part by part into the folder `target`.

    target/clean.parquet holds the posterior mean, target/draws.parquet the draws as a long table (draw, row, then the
    data's columns); both are folders of Parquet parts, which are read as one file. clean: False leaves the mean
    out, which takes most of the time. refine: in place of the estimator's, for mean and draws. Numbers are those of
    `transform` and `sample(..., seed=seed)` on the whole table, bit for bit, whatever `memory` is.

    Parts gather in the folder `target` + ".partial", which takes its name when all is there. resume: go on with the
    parts that a stopped run has left, if source, model and settings are the same. workers: parts that are worked on at
    the same time, by a thread each; they share the memory.
    """
    rec = with_refine(rec if isinstance(rec, Recoverer) else Recoverer.load(rec), refine)
    if not isinstance(draws, (int, np.integer)) or draws < 0 or not (draws or clean):
        raise InvalidData(f"draws must be a whole number of at least 0 (1 without the mean), got {draws!r}.")
    opened, target = Source.open(source), Path(target)
    if draws and (taken := {"draw", "row"} & set(opened.schema.names)):
        raise InvalidData(f"Draws need the names draw and row, but {source} has columns {sorted(taken)}. Rename them.")
    if not isinstance(workers, (int, np.integer)) or workers < 1:
        raise InvalidData(f"workers must be a whole number of at least 1, got {workers!r}.")
    size = _part_rows(parse_memory(memory) // workers, rec, len(opened.schema), int(draws))
    plan = {
        "source": opened.stamp(), "model": fingerprint(rec), "draws": int(draws), "refine": rec._refine(),
        "seed": int(seed), "clean": bool(clean), "rows_a_part": size,
    }  # fmt: skip
    what = [name for name, wanted in (("clean.parquet", clean), ("draws.parquet", draws)) if wanted]
    if target.exists():
        if resume and _read_plan(target) == plan:
            return target
        raise InvalidFile(f"{target} is there already. Give another name, or remove it first.")

    def work(table: pa.Table, start: int, folder: Path) -> None:
        parts = recovered(rec, table, int(draws), int(seed), np.arange(start, start + len(table)), clean, "row")
        for name in what:
            _write(parts[name], folder / name / f"part-{start // size:06d}.parquet")

    with _partial_folder(target, plan, what, resume) as folder:
        done = _complete(folder, what) * size
        rest = ((table, done + number * size, folder) for number, table in enumerate(opened.tables(size, done)))
        _each(work, rest, int(workers))
        if not _complete(folder, what):
            raise InvalidFile(f"{source} has no rows. Expected at least one row of data.")
        for name in what:
            _settle(folder / name)
    return target


def _each(work: Callable[..., None], tasks: Iterable[tuple[Any, ...]], workers: int) -> None:
    """Do one task after another; with several workers, as many at the same time."""
    if workers == 1:
        for task in tasks:
            work(*task)
            del task  # its memory, before the next is read
        return
    threads, running = torch.get_num_threads(), deque[Future[None]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for task in tasks:
                running.append(pool.submit(work, *task))
                del task
                if len(running) == workers:
                    running.popleft().result()
            while running:
                running.popleft().result()
        finally:
            for future in running:
                future.cancel()
            torch.set_num_threads(threads)


def recovered(
    rec: Recoverer, table: pa.Table, draws: int, seed: int, rows: Any, clean: bool = True, row_name: str | None = None
) -> dict[str, pa.Table]:
    """A table recovered: "clean.parquet" the mean, "draws.parquet" draws one below another, each with its number.

    rows: the number of each row, on which its draws hang; row_name: of a column that holds it, if any.
    """
    parts = {}
    if clean:
        parts["clean.parquet"] = _like(rec.transform(table), table.schema)
    if draws:
        completed = rec.sample(table, draws, seed=seed, row_ids=rows)
        below = []
        for number in range(draws):
            one = _like(completed[number], table.schema)
            if row_name is not None:
                one = one.add_column(0, row_name, pa.array(rows))
            below.append(one.add_column(0, "draw", pa.array(np.full(len(table), number))))
        parts["draws.parquet"] = pa.concat_tables(below, promote_options="permissive")
    return parts


def _like(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in the types of a schema where its values allow it; cells that are still missing as nulls."""
    columns = []
    for column, kind in zip(table.columns, schema.types, strict=True):
        if pa.types.is_floating(column.type):
            column = _nulls(column)
        if column.type != kind:
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # such as 2.5 among whole numbers
                column = column.cast(kind)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with nulls for NaN."""
    values = column.to_numpy()
    nothing = np.isnan(values)
    return pa.chunked_array([pa.array(values, mask=nothing)]) if nothing.any() else column


def with_refine(rec: Recoverer, refine: int | str | None) -> Recoverer:
    """The same fitted model, whose draws are chosen from another number of candidates, if one is given."""
    rec = copy.copy(rec)
    rec.refine = rec._refine(refine)
    return rec


def _part_rows(memory: int, rec: Recoverer, columns: int, draws: int) -> int:
    """Rows a part, a power of two: what the data, the means and the draws of a row take must fit into memory."""
    each = columns * (64 + 24 * draws) + 24 * rec.space_.features
    fit = max(1, (memory - _FIXED_BYTES) // (2 * each))
    return min(2**17, 1 << int(fit).bit_length() - 1)


def fingerprint(rec: Recoverer) -> str:
    """A hash of all that the draws of a fitted model hang on, the same before saving and after loading."""
    found = hashlib.sha256()
    posterior = {} if rec.posterior_ is None else rec.posterior_.state_dict()
    device, limits = rec._device().type, json.dumps(rec.limits, sort_keys=True)
    widths = getattr(rec, "widths_", None)
    for value in (rec.method, limits, device, rec.seed_, rec.columns_, rec.space_, widths, dict(sorted(posterior.items()))):
        _hash(value, found)
    return found.hexdigest()


def _hash(value: Any, found: Any) -> None:
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    elif is_dataclass(value):
        _hash({each.name: getattr(value, each.name) for each in fields(value)}, found)
    elif isinstance(value, (dict, tuple)):
        for part in value.items() if isinstance(value, dict) else value:
            _hash(part, found)
    else:
        found.update(f"{value!r};".encode())


# Writing, whole or not at all


@contextmanager
def _partial_folder(target: Path, plan: dict[str, Any], what: Sequence[str], resume: bool) -> Iterator[Path]:
    """The folder that parts are written to; it takes the name `target` at the end."""
    folder = target.with_name(target.name + PARTIAL)
    if not target.parent.is_dir():
        raise InvalidFile(f"Cannot write {target}: the folder {target.parent} does not exist. Create it first.")
    try:
        folder.mkdir(exist_ok=True)
        with _alone(folder):
            if not (resume and _read_plan(folder) == plan):
                _clear(folder, resume)
            for name in what:
                (folder / name).mkdir(exist_ok=True)
            for draft in folder.glob("*/.*"):  # of a run that was stopped
                draft.unlink()
            draft = folder / ".plan.json"
            draft.write_text(json.dumps(plan))
            os.replace(draft, folder / "plan.json")
            yield folder
            os.rename(folder, target)
    except OSError as error:
        raise InvalidFile(
            f"Cannot write {target}: {error.strerror or error}. Nothing was left under that name; make room, or choose "
            f"a folder you may write to. What is complete is in {folder.name}: resume=True goes on with it."
        ) from None


def _clear(folder: Path, resume: bool) -> None:
    left = list(folder.iterdir())
    if left and resume:
        warnings.warn(
            f"{folder} was made from another source, model or settings: it is begun anew.", DataNotice, stacklevel=5
        )
    for each in left:
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else writes there meanwhile; a process that ends, however it does, lets go."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InvalidFile(f"Another run is writing to {folder}. Wait until it is done, or give another name.") from None
    try:
        yield
    finally:
        os.close(handle)


def _read_plan(folder: Path) -> Any:
    try:
        return json.loads((folder / "plan.json").read_text())
    except (OSError, ValueError):
        return None


def _complete(folder: Path, what: Sequence[str]) -> int:
    """How many parts are there, of all that are wanted."""
    number = 0
    while all((folder / name / f"part-{number:06d}.parquet").is_file() for name in what):
        number += 1
    return number


def _write(table: pa.Table, path: Path) -> None:
    """A part under its name once it is complete on the disk."""
    draft = path.with_name(f".{path.name}")
    few = [f.name for f in table.schema if f.name == "draw" or not (f.name == "row" or pa.types.is_floating(f.type))]
    with draft.open("wb") as file:
        parquet.write_table(table, file, use_dictionary=few)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _settle(folder: Path) -> None:
    """Give all parts one schema: a column whose values fitted its type in some parts only has the wider one in all."""
    paths = sorted(folder.iterdir())
    schemas = [parquet.read_schema(path) for path in paths]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    for path, found in zip(paths, schemas, strict=True):
        if not found.equals(schema):
            _write(parquet.read_table(path, partitioning=None).cast(schema), path)
