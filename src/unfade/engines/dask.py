"""Dask: `recover(frame, recover_batch("model.unfade", draws=20, id_column="row"))` gives a frame of the recovered rows."""

from typing import Any

import numpy as np

from unfade.engines import BatchRecoverer


def recover(frame: Any, function: BatchRecoverer) -> Any:
    """Recover a `dask.dataframe` partition by partition; its index is kept, and repeated for each draw.

    Parameters
    ----------
    frame : dask DataFrame
    function : BatchRecoverer

    Returns
    -------
    dask DataFrame
    """
    return frame.map_partitions(_recover, function, meta=_recover(frame._meta.iloc[:0], function))


def _recover(part: Any, function: BatchRecoverer) -> Any:
    """Recover one partition, a pandas frame; columns keep their dtypes."""
    import pyarrow as pa

    found = function(pa.Table.from_pandas(part, preserve_index=False)).to_pandas()
    found = found.astype({name: kind for name, kind in part.dtypes.items() if not _wider(found[name].dtype, kind)})
    found.index = part.index.take(np.tile(np.arange(len(part)), max(1, function.draws)))
    return found


def _wider(found: Any, kind: Any) -> bool:
    """Check whether a column of integers now holds fractions."""
    return bool(getattr(found, "kind", "") == "f" and getattr(kind, "kind", "") in "iu")
