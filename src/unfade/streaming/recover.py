"""Recovery of a table larger than memory, part by part, into a folder that takes its name when it is complete."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from unfade.errors import InvalidData, InvalidFile, notice
from unfade.estimator import Recoverer
from unfade.inference.fitted_model import FittedModel
from unfade.inference.model_file import load_model
from unfade.io.large_tables import FIXED_BYTES, Source, parse_memory
from unfade.pipeline import Block, Recovered, recover
from unfade.renamed import takes_old_names
from unfade.storage import check_free, followed
from unfade.streaming.series import series_blocks
from unfade.training.progress import counting

PARTIAL = ".partial"  # ending of the folder that is written to until all is there


@takes_old_names
def recover_stream(
    rec: Recoverer | str | os.PathLike[str],
    source: str | os.PathLike[str] | Source,
    target: str | os.PathLike[str],
    draws: int = 0,
    n_candidates: int | str | None = None,
    seed: int = 0,
    memory: str | int = "2GB",
    *,
    clean: bool = True,
    resume: bool = False,
    workers: int = 1,
) -> Path:
    """Recover a Parquet or CSV file, or a folder of Parquet files, part by part into the folder `target`.

    target/clean.parquet holds the posterior mean, target/draws.parquet the draws as a long table (draw, row, then the
    columns of the data); both are folders of Parquet parts, which are read as one file. Numbers equal those of
    `transform` and `sample(..., seed=seed)` on the whole table, bit for bit, whatever `memory` is; of series nearly so, as
    a part knows of some rows around it alone. Parts are written to the folder `target` + ".partial", which is renamed
    when all are written.

    Parameters
    ----------
    rec : Recoverer or path of a model file
    source, target : path
    draws : int
    n_candidates : int, "auto" or None
        Proposals per draw, for mean and draws; None: those of the model.
    seed : int
    memory : str or int
        Bound on the memory of data and results, as `parse_memory` takes it.
    clean : bool
        False: no posterior mean, which takes most of the time.
    resume : bool
        Continue with the parts of a stopped run, if source, model and settings have not changed.
    workers : int
        Parts that are recovered at the same time, by a thread each; they share the memory.

    Returns
    -------
    Path
        The folder `target`.
    """
    model = with_candidates(rec.model_ if isinstance(rec, Recoverer) else load_model(rec), n_candidates)
    show, model = model.parameters.verbose > 0, model.with_options(verbose=0)  # progress is shown for the whole file
    opened, target = Source.open(source), followed(target)
    _check_options(draws, clean, workers, opened.schema.names, opened.path)
    size = _part_rows(parse_memory(memory) // workers, model, len(opened.schema), int(draws))
    plan = {"source": opened.stamp(), "model": model.fingerprint(), "n_candidates": model.n_candidates}
    plan |= {"draws": int(draws), "seed": int(seed), "clean": bool(clean), "rows_a_part": size}
    what = [name for name, wanted in (("clean.parquet", clean), ("draws.parquet", draws)) if wanted]
    if target.exists() and resume and _read_plan(target) == plan:
        return target
    check_free(target)

    def write(found: Recovered) -> None:
        """Write the parts of a block, and count its rows."""
        parts, rows = as_tables(found, opened.schema, "row"), found.block.wanted
        for name in what:
            _write(parts[name], folder / name / f"part-{rows.start // size:06d}.parquet")
        add(len(rows))

    with _partial_folder(target, plan, what, resume) as folder, counting(show, "writing parts") as add:
        done = _complete(folder, what) * size
        blocks = _blocks(model, opened, size, done)
        recover(model, blocks, [write], int(draws), int(seed), clean, int(workers))
        if not _complete(folder, what):
            raise InvalidFile(f"{opened.path} has no rows. Expected at least one row of data.")
        for name in what:
            _settle(folder / name)
    return target


def _blocks(model: FittedModel, source: Source, size: int, start: int) -> Iterator[Block]:
    """Read the parts of a table, with their context if rows are steps of series."""
    if model.clock is not None:
        return series_blocks(model, source, size, start)
    return (Block(start + number * size, table) for number, table in enumerate(source.tables(size, start)))


def copy_stream(source: Source, target: Path, memory: str | int, seed: int = 0) -> None:
    """Write a table in which there is nothing to recover, part by part as `recover_stream` does."""
    size, target = _rows_within(parse_memory(memory), 64 * len(source.schema)), followed(target)
    plan = {"source": source.stamp(), "model": None, "draws": 0, "seed": int(seed), "rows_a_part": size}
    with _partial_folder(target, plan, ["clean.parquet"], False) as folder:
        for number, table in enumerate(source.tables(size)):
            _write(table, folder / "clean.parquet" / f"part-{number:06d}.parquet")


def _check_options(draws: Any, clean: bool, workers: Any, names: Sequence[str], source: Any) -> None:
    """Refuse impossible numbers of draws and workers, and column names that draws need for themselves."""
    if not isinstance(draws, (int, np.integer)) or draws < 0 or not (draws or clean):
        raise InvalidData(f"draws must be an integer of at least 0 (1 without the mean), got {draws!r}.")
    if draws and (taken := {"draw", "row"} & set(names)):
        raise InvalidData(f"Draws need the names draw and row, but {source} has columns {sorted(taken)}. Rename them.")
    if not isinstance(workers, (int, np.integer)) or workers < 1:
        raise InvalidData(f"workers must be an integer of at least 1, got {workers!r}.")


def is_finished(target: Path, **said: Any) -> bool:
    """Check whether an earlier run has written all of `target`, with these entries of its plan."""
    plan = _read_plan(target)
    return plan is not None and all(plan.get(name) == value for name, value in said.items())


def as_tables(found: Recovered, schema: pa.Schema, row_name: str | None = None) -> dict[str, pa.Table]:
    """Make the tables of a block: "clean.parquet", and "draws.parquet" with draws one below another, each numbered.

    row_name: name of a column with the number of each row, if there is to be one.
    """
    ids = np.asarray(found.block.ids)[found.block.inside]
    first, parts = found.block.inside.start or 0, {}
    if found.clean is not None:
        parts["clean.parquet"] = _like(found.clean.slice(first, len(ids)), schema)
    if found.draws is not None:
        below = []
        for number, draw in enumerate(found.draws):
            one = _like(draw.slice(first, len(ids)), schema)
            if row_name is not None:
                one = one.add_column(0, row_name, pa.array(ids))
            below.append(one.add_column(0, "draw", pa.array(np.full(len(ids), number))))
        parts["draws.parquet"] = pa.concat_tables(below, promote_options="permissive")
    return parts


def _like(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to the types of a schema if its values allow it; cells that are still missing become nulls."""
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
    """Replace NaN by null in a column of floats."""
    values = column.to_numpy()
    nothing = np.isnan(values)
    return pa.chunked_array([pa.array(values, mask=nothing)]) if nothing.any() else column


def with_candidates(model: FittedModel, n_candidates: int | str | None) -> FittedModel:
    """Return the model with another number of proposals per draw, if one is given."""
    return model if n_candidates is None else model.with_options(n_candidates=n_candidates)


def _part_rows(memory: int, model: FittedModel, columns: int, draws: int) -> int:
    """Compute the rows per part, a power of two, so that data, means and draws of a part fit into memory."""
    return _rows_within(memory, columns * (64 + 24 * draws) + 24 * model.encoder.features)


def _rows_within(memory: int, each: int) -> int:
    """Compute how many rows of so many bytes each fit into memory, a power of two."""
    fit = max(1, (memory - FIXED_BYTES) // (2 * each))
    return min(2**17, 1 << int(fit).bit_length() - 1)


@contextmanager
def _partial_folder(target: Path, plan: dict[str, Any], what: Sequence[str], resume: bool) -> Iterator[Path]:
    """Make the folder that parts are written to, and rename it to `target` at the end."""
    folder = target.with_name(target.name + PARTIAL)
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
            f"Cannot write {target}: {error.strerror or error}. Nothing was written under that name; make room, or choose "
            f"a folder you may write to. Complete parts are in {folder.name}: resume=True continues with them."
        ) from None


def _clear(folder: Path, resume: bool) -> None:
    """Empty a folder; warn if the user asked to resume from it."""
    left = list(folder.iterdir())
    if left and resume:
        notice(f"{folder} was made from another source, model or settings: recovery begins again.")
    for each in left:
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs until the block or the process ends."""
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
    """Read the plan of an earlier run; None if there is none."""
    try:
        return json.loads((folder / "plan.json").read_text())
    except (OSError, ValueError):
        return None


def _complete(folder: Path, what: Sequence[str]) -> int:
    """Count the parts that are complete."""
    number = 0
    while all((folder / name / f"part-{number:06d}.parquet").is_file() for name in what):
        number += 1
    return number


def _write(table: pa.Table, path: Path) -> None:
    """Write a part, and give it its name once it is complete on disk."""
    draft = path.with_name(f".{path.name}")
    few = [f.name for f in table.schema if f.name == "draw" or not (f.name == "row" or pa.types.is_floating(f.type))]
    with draft.open("wb") as file:
        parquet.write_table(table, file, use_dictionary=few)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _settle(folder: Path) -> None:
    """Give all parts one schema: the widest type of each column."""
    paths = sorted(folder.iterdir())
    schemas = [parquet.read_schema(path) for path in paths]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    for path, found in zip(paths, schemas, strict=True):
        if not found.equals(schema):
            _write(parquet.read_table(path, partitioning=None).cast(schema), path)
