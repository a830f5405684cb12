"""Fit on a table larger than memory, by a sample that one pass over it takes.

Training sees at most steps x batch rows, so a uniform sample of as many rows serves it as well as the whole table. Rows
that a sample could miss are added: one for each category, for the least and the largest value of each column, for the
first number with a fraction.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unfade.data.columns import LIMIT, NUMBER, as_numbers, marks_of
from unfade.data.options import warn_text_with_missing
from unfade.data.text_formats import Witnesses, is_blank
from unfade.errors import InvalidData, InvalidFile, notice
from unfade.estimator import Recoverer
from unfade.io.large_tables import FIXED_BYTES, READ, Source, parse_memory
from unfade.io.tables import count_missing
from unfade.methods.parameters import Parameters
from unfade.methods.recipes import predicts
from unfade.methods.registry import training_for
from unfade.pipeline import nothing_to_recover, read_to_recover
from unfade.rng import step_keys
from unfade.training.checkpoints import Checkpoint

CATEGORIES = 10_000  # different texts of a column that are told apart; a column with more passes through
_STRETCH, _STEPS = 2048, 2**16  # rows of a series that are kept together, and all of them
_LEAST_ROWS = 20_000  # a sample has as many, however few steps there are: sizes and scales are found from it
_FIT_BYTES = 64  # that a fit takes for a feature of a row


def fit_stream(
    rec: Recoverer,
    path: str | os.PathLike[str],
    memory: str | int = "2GB",
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
) -> Recoverer:
    """Fit on a Parquet or CSV file, or a folder of Parquet files, that need not fit into memory, in one pass over it.

    If the rows fit into `memory`, the result equals that of `rec.fit` on the whole table. Otherwise it is fitted on a
    uniform sample: of as many rows as training can see, or as memory holds. Kinds of columns, categories, least and
    largest values are those of the whole table. A column with more than 10,000 different texts is passed through; if
    `kinds` makes it a category, the model does not use texts outside the sample.

    Parameters
    ----------
    rec : Recoverer
        It is fitted in place.
    path : path
    memory : str or int
        Bound on memory, as `parse_memory` takes it.
    seed : int
        Seed of the sample.
    checkpoint : Checkpoint or None
        As in `Recoverer.fit`.

    Returns
    -------
    Recoverer
    """
    return fit_sample(rec, take_sample(rec.parameters(), path, memory, seed), checkpoint)


def take_sample(parameters: Parameters, path: str | os.PathLike[str] | Source, memory: str | int, seed: int) -> "Sample":
    """Read a table once, and keep the rows that a fit needs."""
    source = Source.open(path)
    sample = Sample(source.schema, parse_memory(memory), seed, parameters)
    for table in source.tables(READ):
        sample.add(table)
    if sample.rows == 0:
        raise InvalidFile(f"{source.path} has no rows. Expected at least one row of data.")
    return sample


def fit_sample(rec: Recoverer, sample: "Sample", checkpoint: Checkpoint | None = None) -> Recoverer:
    """Fit on a sample as on the table it was taken from: kinds of columns are those of the whole table."""
    table, complete = sample.table(), sample.has_all_rows
    found = {} if complete else sample.kinds()
    warn_text_with_missing(sample.text_with_missing(found))
    given = rec.kinds
    try:
        rec.kinds = {**found, **(rec.parameters().kinds or {})} or None
        return rec.fit(table, checkpoint=checkpoint)
    finally:
        rec.kinds = given


@dataclass
class _Range:
    """Facts about a column of numbers, booleans or dates from one pass: rows of its extremes and of its first fraction."""

    marks: tuple[Any, ...] = ()
    ends: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    needed: dict[Any, int] = field(default_factory=dict)
    last: float | None = None
    counting: bool = True  # whether it counts the rows so far
    marked: bool = False  # whether a value stands for a missing one

    def look(self, column: pa.ChunkedArray, start: int, name: str) -> None:
        """Update the facts by some rows of the column."""
        values = _as_floats(column)
        self.counting &= not pa.types.is_temporal(column.type)
        if self.marks:
            marked = np.isin(values, as_numbers(self.marks))
            self.marked |= bool(marked.any())
            values = np.where(marked, np.nan, values)
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
        """Return the kind of the column if the sample does not show it."""
        return "passthrough" if self.counting and rows > 20 else None

    features = 1


@dataclass
class _Values:
    """Facts about a column of texts from one pass: its different values, each with its first row, and their format."""

    marks: tuple[Any, ...] = ()
    needed: dict[Any, int] = field(default_factory=dict)
    count: int = 0
    many: bool = False
    shown: dict[str, int] = field(default_factory=dict)  # the first limit such as <0.5, number, other text, and gap
    witnesses: Witnesses = field(default_factory=Witnesses)

    def look(self, column: pa.ChunkedArray, start: int, name: str) -> None:
        """Update the facts by some rows of the column."""
        self.count += len(column) - column.null_count
        if self.many and "other" in self.shown and self.witnesses.none:
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
            if self._show(values[code], start + row) and isinstance(values[code], str):
                self.witnesses.look({values[code]: start + row})
            if not self.many:
                self.needed[values[code]] = start + row
        if len(self.needed) > CATEGORIES:
            self.many, self.needed = True, {}
        for what, row in (*self.shown.items(), *self.witnesses.cells.items()):
            self.needed[what, row] = row  # a pair: no text is one

    def _show(self, value: Any, row: int) -> bool:
        """Record the first cell of each sort, and return whether this one is not blank."""
        text = value if isinstance(value, str) else ""
        if isinstance(value, str) and (is_blank(text) or text.strip() in map(str, self.marks)):
            self.shown.setdefault("gap", row)
            return False
        what = "limit" if LIMIT.fullmatch(text) else "number" if NUMBER.fullmatch(text) else "other"
        self.shown.setdefault(what, row)
        return True

    @property
    def features(self) -> int:
        """Number of features that the column becomes in the model."""
        return 1 if self.many or self._read() else max(1, sum(not isinstance(value, tuple) for value in self.needed))

    def kind(self, rows: int) -> str | None:
        """Return the kind of the column if the sample does not show it."""
        if set(self.shown) - {"gap"} == {"limit", "number"} or not self.count or self._read():
            return None
        return "passthrough" if self.many or self.features > max(20, 0.3 * self.count) else "category"

    def _read(self) -> bool:
        """Check whether the texts are read as numbers, dates or times."""
        found = self.witnesses.formats
        return bool(found) and not (found[0].plain and "gap" not in self.shown and not self.marks)


class Sample:
    """A uniform sample of rows taken in one pass, and the rows that a sample must not miss.

    Each row has a key, a hash of the seed and its number: the sample is the rows of the smallest keys, so it depends on
    nothing else. If all rows fit, it is all rows. Steps of series have one key per stretch, so these stay together.
    """

    def __init__(self, schema: pa.Schema, memory: int, seed: int, wanted: Parameters):
        self.memory, self.seed, self.wanted = memory, seed, wanted
        self.rows = self.held_rows = self.bytes = self.missing = 0
        self.highest: int | None = None  # key of a row that is kept, where not all are
        self.held: list[tuple[np.ndarray, np.ndarray, pa.Table]] = []  # numbers of rows, their keys, the rows
        looks = {each.name: _look(each.type, (wanted.kinds_given() or {}).get(each.name)) for each in schema}
        self.looks = {name: look(marks_of(wanted.missing, name)) for name, look in looks.items() if look is not None}

    @property
    def has_all_rows(self) -> bool:
        """Whether all rows fit."""
        return self.rows <= self._most()

    def _most(self) -> int:
        """Compute the number of rows that fit into memory, or that a fit to series takes at most."""
        features = sum(look.features for look in self.looks.values())
        each = _FIT_BYTES * features + 3 * self.bytes / max(1, self.rows)
        fit = max(1000, int((self.memory - FIXED_BYTES) / each))
        return fit if self.wanted.time is None else min(fit, _STEPS)

    def _enough(self) -> int:
        """Compute the number of rows to keep: those that training can see, if not all fit."""
        if self.has_all_rows:
            return self.rows
        if self.wanted.time is not None:
            return self._most()
        wanted, features = self.wanted, sum(look.features for look in self.looks.values())
        members = wanted.members_to_train(features)
        training = wanted.training or training_for(wanted.method, members, self.rows, predictive=self._predictive(features))
        visits = int(wanted.max_steps or training.steps) * training.batch_size * members
        return min(self._most(), max(_LEAST_ROWS, visits))

    def _predictive(self, features: int) -> bool:
        """Check whether the fit will use masked prediction, which takes more steps."""
        posterior = (self.wanted.settings or {}).get("posterior", "auto")
        method = self.wanted.method
        return method == "masked" or (method == "auto" and predicts(posterior, features))

    def add(self, table: pa.Table) -> None:
        """Add the next rows."""
        self.missing += count_missing(table)
        for name, look in self.looks.items():
            look.look(table[name], self.rows, name)
        numbers = torch.arange(self.rows, self.rows + len(table))
        together = 1 if self.wanted.time is None else _STRETCH
        keys = step_keys(torch.tensor([self.seed]), numbers // together)[:, 0].numpy()
        self.held.append((numbers.numpy(), keys, table))
        self.rows, self.bytes = self.rows + len(table), self.bytes + table.nbytes
        if self.highest is not None:
            self.held[-1] = self._kept(self.held[-1])
        self.held_rows += len(self.held[-1][0])
        if self.held_rows > 1.5 * self._most():
            self._prune()

    def _prune(self) -> None:
        """Drop rows with large keys until the sample has the wanted size."""
        keys = np.concatenate([keys for _, keys, _ in self.held])
        most = self._enough()
        if most < len(keys):
            self.highest = int(np.partition(keys, most - 1)[most - 1])
            self.held = [self._kept(each) for each in self.held]
            parts = list(zip(*self.held, strict=True))
            self.held = [(np.concatenate(parts[0]), np.concatenate(parts[1]), pa.concat_tables(parts[2]).combine_chunks())]
        self.held_rows = sum(len(numbers) for numbers, _, _ in self.held)

    def _kept(self, held: tuple[np.ndarray, np.ndarray, pa.Table]) -> tuple[np.ndarray, np.ndarray, pa.Table]:
        """Keep the rows with small keys and those that a sample must not miss."""
        numbers, keys, table = held
        needed = np.array([row for look in self.looks.values() for row in look.needed.values()], dtype=np.int64)
        keep = (keys <= self.highest) | np.isin(numbers, needed)
        return numbers[keep], keys[keep], table.filter(pa.array(keep))

    def table(self) -> pa.Table:
        """Return the sample, rows in their order."""
        self._prune()
        return pa.concat_tables([table for _, _, table in self.held])

    def nothing_to_recover(self) -> bool:
        """Check whether a fit would leave all rows of the table unchanged, not those of the sample alone."""
        if (
            not self.wanted.exact
            or self.missing
            or any(look.marked for look in self.looks.values() if isinstance(look, _Range))
        ):
            return False
        wanted = replace(self.wanted, kinds={**({} if self.has_all_rows else self.kinds()), **(self.wanted.kinds or {})})
        return nothing_to_recover(wanted, read_to_recover(wanted, self.table()))

    def text_with_missing(self, kinds: dict[str, str]) -> list[str]:
        """List text columns that would be passed through with missing cells although the user did not ask for it."""
        texts = {name: look for name, look in self.looks.items() if isinstance(look, _Values) and not look.many}
        return [
            name
            for name, look in texts.items()
            if kinds.get(name) == "passthrough" and look.count < self.rows and name not in (self.wanted.kinds or {})
        ]

    def kinds(self) -> dict[str, str]:
        """Find the kinds of columns that the sample alone would not show."""
        found = {name: look.kind(self.rows) for name, look in self.looks.items()}
        if many := [n for n, look in self.looks.items() if isinstance(look, _Values) and look.many and found[n]]:
            notice(
                f"More than {CATEGORIES:,} different texts are in {many[:10]}: passed through unchanged. Give "
                "kinds={...: 'category'} to use those of the sample as categories."
            )
        return {name: kind for name, kind in found.items() if kind is not None}


def _look(kind: pa.DataType, given: str | None) -> Callable[..., _Range | _Values] | None:
    """Choose the class that collects facts about a column, by its Arrow type and the kind the user gave, if any."""
    if given == "passthrough":
        return None
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_dictionary)
    if given in ("ordinal", "category") or any(is_it(kind) for is_it in texts):
        return _Values
    ranged = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_temporal)
    return _Range if any(is_it(kind) for is_it in ranged) else None


def _as_floats(column: pa.ChunkedArray) -> np.ndarray:
    """Convert numbers, booleans and dates to floats, nulls to NaN."""
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
