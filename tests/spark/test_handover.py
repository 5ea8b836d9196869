"""A table hands a backfill over to the stream by its own offsets: the checkpoint is lost, again and again.

By every format of this session; tests/spark/lakes.py. Messages are numbered, and every fifth one does not parse.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.daemon import STORE
from tests.spark.lake_runs import assert_once, keys, run, send
from tests.spark.lakes import LAKES, Lake
from tests.spark.scene import scene

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SEGMENT = 64 * 1024
TABLES = [lake for lake in LAKES if lake is not Lake]


@pytest.fixture(params=TABLES, ids=lambda lake: lake.__name__)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    made: Lake = request.param(spark, tmp_path)
    (tmp_path / "broker").mkdir()
    return made


def test_a_table_hands_over_without_its_checkpoint(lake: Lake, tmp_path: Path) -> None:
    """After the backfill, whose store is then gone; and in a batch whose bad rows are not written."""
    with scene(tmp_path / "broker", brokerName="broker-a", mappedFileSizeCommitLog=SEGMENT) as broker:
        broker.create("Orders", 3)
        send(broker, "Orders", range(301))
        broker.kill()
        shutil.copytree(broker.directory / STORE, tmp_path / "backup")
        backfill = ("--backfill", f"broker-a={tmp_path / 'backup'}", "--store-option", f"maxBytesPerTrigger={SEGMENT}")
        assert "no checkpoint" not in run(lake, *backfill)

        shutil.rmtree(lake.checkpoint)
        shutil.rmtree(tmp_path / "backup")
        broker.restart()
        send(broker, "Orders", range(301, 337))
        broker.create("Orders2", 1)
        send(broker, "Orders2", range(337, 344))
        stream = ("-n", broker.namesrv, "--available-now", "--max-rows", "30")
        assert "continuing at the offsets in the table" in run(lake, *stream)
        assert_once(lake, range(344))

        shutil.rmtree(lake.checkpoint)
        lake.drop_side_table()
        run(lake, *stream)
    assert keys(lake) == Counter(f"k{n}" for n in range(344) if n % 5)
    assert set(keys(lake, "_bad").values()) == {1}


def test_an_older_checkpoint_is_refused(lake: Lake, tmp_path: Path) -> None:
    """Its next batch would have the number of one in the table, and other rows; without it, the query continues."""
    with scene(tmp_path / "broker") as broker:
        broker.create("Orders", 1)
        stream = ("-n", broker.namesrv, "--available-now")
        send(broker, "Orders", range(5))
        run(lake, *stream)
        shutil.copytree(lake.checkpoint, tmp_path / "old")
        send(broker, "Orders", range(5, 9))
        run(lake, *stream)
        send(broker, "Orders", range(9, 12))
        shutil.rmtree(lake.checkpoint)
        shutil.copytree(tmp_path / "old", lake.checkpoint)
        *_, error = run(lake, *stream, code=1).splitlines()
        assert "is older than the table, which contains another batch 1 of it: delete the checkpoint" in error
        shutil.rmtree(lake.checkpoint)
        run(lake, *stream)
    assert_once(lake, range(12))
