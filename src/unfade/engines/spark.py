"""Spark: `recover(frame, recover_batch("model.unfade", draws=20, id_column="row"))` gives a frame of the recovered rows."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from unfade.engines import BatchRecoverer


def recover(frame: Any, function: BatchRecoverer) -> Any:
    """Recover a `pyspark.sql.DataFrame` by `mapInArrow`; columns keep their types, and draws have a first column `draw`.

    Parameters
    ----------
    frame : pyspark DataFrame
    function : BatchRecoverer

    Returns
    -------
    pyspark DataFrame
    """
    schema = frame.schema
    if function.draws:
        from pyspark.sql.types import LongType, StructField, StructType

        schema = StructType([StructField("draw", LongType(), False), *schema.fields])

    def recovered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from function(batch).to_batches()

    return frame.mapInArrow(recovered, schema)
