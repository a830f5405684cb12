"""One function from Arrow to Arrow, and engines that run it: results do not hang on partitions or workers."""

import importlib.util
import os

import numpy as np
import pyarrow as pa
import pytest

from unfade import InvalidData, InvalidFile, Recoverer
from unfade.engines import recover_batch

ROWS, DRAWS = 200, 3


def installed(engine: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(engine) is None
    return pytest.mark.skipif(absent, reason=f"{engine} is not installed: pip install 'unfade[{engine}]'")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3)).cumsum(1)
    x[rng.random(x.shape) < 0.3] = np.nan
    town = [
        None if hidden else str(t)
        for t, hidden in zip(rng.choice(["Ulm", "Bonn"], ROWS), rng.random(ROWS) < 0.2, strict=True)
    ]
    columns = {name: pa.array(x[:, i], from_pandas=True) for i, name in enumerate("abc")}
    return pa.table({"number": np.arange(ROWS) * 7 + 3, **columns, "town": town})


@pytest.fixture(scope="module")
def rec(table) -> Recoverer:
    return Recoverer(max_steps=20, n_members=1, n_candidates=0, random_state=0, verbose=0).fit(
        table.drop_columns(["number"])
    )


@pytest.fixture(scope="module")
def model(rec, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.unfade"
    rec.save(path)
    return path


@pytest.fixture(scope="module")
def wanted(table, rec) -> pa.Table:
    """All draws by one process, keyed by the row numbers."""
    draws = rec.sample(table.drop_columns(["number"]), DRAWS, seed=5, row_ids=table["number"].to_pylist())
    parts = []
    for i, one in enumerate(draws):
        named = one.add_column(0, "number", table["number"])
        parts.append(named.add_column(0, "draw", pa.array(np.full(ROWS, i))))
    return pa.concat_tables(parts)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("draw", "ascending"), ("number", "ascending")]).combine_chunks()


def test_any_partition_gives_the_same_rows(table, model, wanted):
    function = recover_batch(model, DRAWS, seed=5, id_column="number")
    parts = [function(table.slice(start, 60)) for start in (180, 0, 60, 120)]
    assert in_order(pa.concat_tables(parts)).equals(in_order(wanted))
    assert function(table).equals(wanted)
    assert function(table.to_batches()[0]).equals(wanted)


def test_means_keep_the_columns_and_need_no_numbers(table, rec, model):
    found = recover_batch(rec, id_column="number")(table)
    assert found.schema.equals(table.schema)
    assert found["number"].equals(table["number"])
    data = table.drop_columns(["number"])
    assert found.drop_columns(["number"]).equals(rec.transform(data))
    assert recover_batch(model)(data).equals(rec.transform(data))


def test_numbers_that_were_there_at_fit_stay_where_they_are(table):
    rec = Recoverer(max_steps=5, n_members=1, n_candidates=0, random_state=0, verbose=0).fit(table)
    assert recover_batch(rec, 1, id_column="number")(table).column_names == ["draw", *table.column_names]


def test_empty_partitions_are_no_problem(table, model):
    assert recover_batch(model, DRAWS, id_column="number")(table.slice(0, 0)).column_names == ["draw", *table.column_names]
    assert recover_batch(model)(table.drop_columns(["number"]).slice(0, 0)).num_rows == 0


def test_a_worker_reads_the_model_once(table, model, monkeypatch):
    from unfade import engines

    engines._loaded.cache_clear()
    for _ in range(3):
        recover_batch(model, 1, id_column="number")(table.slice(0, 5))
    assert engines._loaded.cache_info().misses == 1


def test_what_cannot_work_is_refused(table, model, tmp_path):
    with pytest.raises(InvalidData, match="id_column"):
        recover_batch(model, draws=2)
    with pytest.raises(InvalidData, match="draws must be"):
        recover_batch(model, draws=-1)
    with pytest.raises(InvalidFile, match="found none"):
        recover_batch(tmp_path / "nothing")
    with pytest.raises(InvalidData, match="a column 'id' with row numbers"):
        recover_batch(model, 1, id_column="id")(table)
    with pytest.raises(InvalidData, match="integer for each row"):
        recover_batch(model, 1, id_column="a")(table)
    with pytest.raises(InvalidData, match="the name draw"):
        recover_batch(model, 1, id_column="number")(table.rename_columns(["number", "draw", "b", "c", "town"]))


@installed("ray")
def test_ray_gives_what_one_process_gives(table, model, wanted, monkeypatch):
    for name, value in (("RAY_DISABLE_IMPORT_WARNING", "1"), ("RAY_USAGE_STATS_ENABLED", "0"), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(name, value)
    import ray

    from unfade.engines.ray import recover

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False, object_store_memory=10**8)
    try:
        dataset = ray.data.from_arrow([table.slice(start, 50) for start in range(0, ROWS, 50)])
        found = recover(dataset, recover_batch(model, DRAWS, 5, "number"), batch_size=32)
        parts = ray.get(found.to_arrow_refs())
    finally:
        ray.shutdown()
    assert in_order(pa.concat_tables(part for part in parts if part.num_rows)).equals(in_order(wanted))


@installed("dask")
@pytest.mark.parametrize("partitions", [1, 3])
def test_dask_gives_what_one_process_gives(table, model, wanted, partitions):
    import dask.dataframe as dd

    from unfade.engines.dask import recover

    pandas = pytest.importorskip("pandas")
    frame = dd.from_pandas(table.to_pandas(), npartitions=partitions)
    found = recover(frame, recover_batch(model, DRAWS, 5, "number"))
    assert list(found.columns) == wanted.column_names
    done = found.compute(scheduler="threads").sort_values(["draw", "number"], ignore_index=True)
    pandas.testing.assert_frame_equal(done, in_order(wanted).to_pandas(), check_exact=True, check_dtype=False)
    mean = recover(frame, recover_batch(model, id_column="number")).compute(scheduler="sync")
    assert mean.index.equals(table.to_pandas().index)
    assert not mean.isna().any().any()


class FrameOfBatches:
    """What `mapInArrow` of a Spark frame does, without Spark."""

    schema = "as it is"

    def __init__(self, batches):
        self.batches = batches

    def mapInArrow(self, function, schema):
        assert schema == self.schema
        return pa.Table.from_batches(list(function(iter(self.batches))))


def test_spark_is_given_a_function_of_batches(table, rec, model):
    from unfade.engines.spark import recover

    data = table.drop_columns(["number"])
    found = recover(FrameOfBatches(data.to_batches(max_chunksize=64)), recover_batch(model))
    assert found.combine_chunks().equals(rec.transform(data).combine_chunks())


@installed("pyspark")
@pytest.mark.skipif("JAVA_HOME" not in os.environ, reason="Spark needs Java: set JAVA_HOME")
def test_spark_gives_what_one_process_gives(table, model, wanted):
    from pyspark.sql import SparkSession

    from unfade.engines.spark import recover

    session = SparkSession.builder.master("local[2]").getOrCreate()
    try:
        frame = session.createDataFrame(table.to_pandas().astype(object).where(table.to_pandas().notna(), None))
        found = pa.Table.from_pandas(
            recover(frame, recover_batch(model, DRAWS, 5, "number")).toPandas(), preserve_index=False
        )
    finally:
        session.stop()
    assert in_order(found.select(wanted.column_names).cast(wanted.schema)).equals(in_order(wanted))
