"""Recovery on many machines: one function from Arrow to Arrow, and an adapter for each engine.

The draws of a row depend on its number in a column, so they do not depend on partition or worker.
"""

import os
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from unfade.errors import DataNotice, InvalidData, InvalidFile
from unfade.estimator import Recoverer
from unfade.inference.fitted_model import FittedModel
from unfade.inference.model_file import load_model
from unfade.pipeline import Block, Recovered, recover
from unfade.renamed import takes_old_names
from unfade.streaming.recover import as_tables, with_candidates


class BatchRecoverer:
    """A function that recovers Arrow tables, made by `recover_batch`; workers receive the bytes of a saved model.

    Parameters
    ----------
    model : bytes
        Contents of a model file.
    draws, seed, id_column, n_candidates : as in `recover_batch`
    """

    def __init__(self, model: bytes, draws: int, seed: int, id_column: str | None, n_candidates: int | str | None):
        self.model, self.draws, self.seed, self.id_column, self.n_candidates = model, draws, seed, id_column, n_candidates

    def __call__(self, batch: pa.Table | pa.RecordBatch) -> pa.Table:
        """Recover a batch: its posterior mean, or all draws with their number in a column `draw`.

        Parameters
        ----------
        batch : pyarrow Table or RecordBatch

        Returns
        -------
        pyarrow Table
        """
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        if self.draws and "draw" in table.column_names:
            raise InvalidData("Draws need the name draw for themselves, but the table has such a column. Rename it.")
        name = self.id_column if self.id_column is None else self._checked(table)
        if not len(table):
            return table.add_column(0, "draw", pa.array([], pa.int64())) if self.draws else table
        model, rows = with_candidates(_loaded(self.model), self.n_candidates), np.zeros(len(table), int)
        if name is not None:
            rows = table[name].to_numpy()
        aside = name is not None and all(column.name != name for column in model.columns or ())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataNotice)  # once for each batch would be too often
            data = table.drop_columns([name]) if aside else table
            parts: list[Recovered] = []
            recover(model, [Block(0, data, rows.tolist())], [parts.append], self.draws, self.seed, clean=not self.draws)
        found = as_tables(parts[0], data.schema)["draws.parquet" if self.draws else "clean.parquet"]
        if not aside:
            return found
        ids = pa.chunked_array(table[name].chunks * max(1, self.draws))
        return found.add_column(table.column_names.index(name) + bool(self.draws), table.schema.field(name), ids)

    def _checked(self, table: pa.Table) -> str:
        """Return the name of the column of row numbers, or raise InvalidData if a batch has none that can be used."""
        name = str(self.id_column)
        if name not in table.column_names:
            raise InvalidData(f"Expected a column {name!r} with row numbers, found {table.column_names[:10]}. Add it.")
        kind = table.schema.field(name).type
        if not pa.types.is_integer(kind) or table[name].null_count:
            raise InvalidData(f"Expected an integer for each row in column {name!r}, got {kind} or empty cells.")
        return name


@takes_old_names
def recover_batch(
    model: Recoverer | str | os.PathLike[str],
    draws: int = 0,
    seed: int = 0,
    id_column: str | None = None,
    n_candidates: int | str | None = None,
) -> BatchRecoverer:
    """Make a function from an Arrow table or record batch to a recovered Arrow table, for any engine.

    Parameters
    ----------
    model : Recoverer or path of a model file
    draws : int
        0: the posterior mean; else all draws one below another, their number in a first column `draw`.
    seed : int
    id_column : str or None
        Column with an integer per row, on which its draws depend; the fit need not have had it.
    n_candidates : int, "auto" or None
        Proposals per draw; None: those of the model.

    Returns
    -------
    BatchRecoverer
    """
    if not isinstance(draws, (int, np.integer)) or draws < 0:
        raise InvalidData(f"draws must be an integer of at least 0, got {draws!r}.")
    if draws and id_column is None:
        raise InvalidData("Draws need id_column, a column of row numbers: without it they would depend on partitions.")
    if isinstance(model, Recoverer):
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            content = (Path(folder) / "model").read_bytes()
    elif Path(model).is_file():
        content = Path(model).read_bytes()
    else:
        raise InvalidFile(f"Expected a model file at {model}, found none. Check the path, or save a model first.")
    if (time := _loaded(content).parameters.time) is not None:
        raise InvalidData(
            f"time={time!r} needs rows of a series together, and partitions may cut it. Use unfade.streaming, or fit, "
            "transform and sample on the table."
        )
    return BatchRecoverer(content, int(draws), int(seed), id_column, n_candidates)


@lru_cache(maxsize=4)
def _loaded(content: bytes) -> FittedModel:
    """Load a model from the bytes of its file; a worker does so once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(content)
        return load_model(path)
