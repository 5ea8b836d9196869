"""A directory of Parquet files keeps no offsets: a query without its checkpoint is refused.

Not one of the environments with jars: their sessions write no directories (tests/spark/lakes.py).
"""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake_runs import assert_once, run, send
from tests.spark.lakes import Lake
from tests.spark.scene import scene

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def test_a_directory_without_its_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's file sink skips the numbers of batches that it has: the first batches of a new query would be lost."""
    lake = Lake(spark, tmp_path)
    (tmp_path / "broker").mkdir()
    with scene(tmp_path / "broker") as broker:
        broker.create("Orders", 1)
        send(broker, "Orders", range(20))
        stream = ("-n", broker.namesrv, "--available-now")
        run(lake, *stream)
        shutil.rmtree(lake.checkpoint)
        send(broker, "Orders", range(20, 30))
        assert "has no batch: restore the checkpoint, or write to a new directory" in run(lake, *stream, code=2)
    assert_once(lake, range(20))
