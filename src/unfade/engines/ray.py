"""Ray Data: `recover(dataset, "model.unfade", draws=20, id_column="row")` gives a dataset of the recovered rows."""

import os
from typing import Any

from unfade.engines import recover_batch
from unfade.estimator import Recoverer


def recover(
    dataset: Any,
    model: Recoverer | str | os.PathLike[str],
    draws: int = 0,
    seed: int = 0,
    id_column: str | None = None,
    refine: int | str | None = None,
    **options: Any,
) -> Any:
    """Recover a `ray.data.Dataset`; options go to `map_batches`, such as `batch_size=10_000` or `num_cpus=2`."""
    return dataset.map_batches(recover_batch(model, draws, seed, id_column, refine), batch_format="pyarrow", **options)
