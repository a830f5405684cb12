"""Spark: `recover(frame, "model.unfade", draws=20, id_column="row")` gives a Spark frame of the recovered rows."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from unfade.engines import recover_batch
from unfade.estimator import Recoverer


def recover(
    frame: Any,
    model: Recoverer | str | os.PathLike[str],
    draws: int = 0,
    seed: int = 0,
    id_column: str | None = None,
    refine: int | str | None = None,
) -> Any:
    """Recover a `pyspark.sql.DataFrame` by `mapInArrow`: types stay, and draws have a first column `draw`."""
    function, schema = recover_batch(model, draws, seed, id_column, refine), frame.schema
    if draws:
        from pyspark.sql.types import LongType, StructField, StructType

        schema = StructType([StructField("draw", LongType(), False), *schema.fields])

    def recovered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from function(batch).to_batches()

    return frame.mapInArrow(recovered, schema)
