"""Ray Data: `recover(dataset, recover_batch("model.unfade", draws=20, id_column="row"))` gives the recovered rows."""

from typing import Any

from unfade.engines import BatchRecoverer


def recover(dataset: Any, function: BatchRecoverer, **options: Any) -> Any:
    """Recover a `ray.data.Dataset`.

    Parameters
    ----------
    dataset : ray.data.Dataset
    function : BatchRecoverer
    **options
        Options of `map_batches`, such as `batch_size=10_000` or `num_cpus=2`.

    Returns
    -------
    ray.data.Dataset
    """
    return dataset.map_batches(function, batch_format="pyarrow", **options)
