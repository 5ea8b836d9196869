"""A table hands a backfill over to the stream by its own offsets: the checkpoint is lost, again and again.

By every format of this session; tests/spark/lakes.py. Messages are numbered, and every fifth one does not parse.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.spark.pipeline.command import pipeline
from tests.harness.daemon import STORE
from tests.spark.lakes import LAKES, Lake
from tests.spark.scene import Scene, is_slow_start_text, scene

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SEGMENT = 64 * 1024
TABLES = [lake for lake in LAKES if lake is not Lake]


def run(lake: Lake, *arguments: str, code: int = 0) -> str:
    """Run the command to its end; return its output on stderr."""
    given = ["-o", lake.output, "--checkpoint", str(lake.checkpoint), "--json-schema", "id BIGINT NOT NULL"]
    given += ["--pattern", "Orders.*", *lake.options, *arguments]
    done = CliRunner().invoke(pipeline, given)
    while done.exit_code == 1 and is_slow_start_text(done.output):
        done = CliRunner().invoke(pipeline, given)
    assert done.exit_code == code, done.output
    return done.stderr


def send(broker: Scene, topic: str, numbers: range) -> None:
    bodies = [b'{"id": %d, "text": "%s"}' % (n, b"t" * 300) if n % 5 else b"bad %d" % n for n in numbers]
    broker.send_all(Message(topic, body, keys=f"k{n}") for n, body in zip(numbers, bodies, strict=True))


def keys(lake: Lake, suffix: str = "") -> Counter[str]:
    return Counter(row["keys"] for row in lake.rows(suffix))


def assert_once(lake: Lake, numbers: range) -> None:
    assert keys(lake) == Counter(f"k{n}" for n in numbers if n % 5)
    assert keys(lake, "_bad") == Counter(f"k{n}" for n in numbers if n % 5 == 0)


@pytest.mark.parametrize("kind", TABLES, ids=lambda lake: lake.__name__)
def test_a_table_hands_over_without_its_checkpoint(spark: SparkSession, tmp_path: Path, kind: type[Lake]) -> None:
    """After the backfill, whose store is then gone; after each run of the stream; and within a batch."""
    (tmp_path / "broker").mkdir()
    lake = kind(spark, tmp_path)
    with scene(tmp_path / "broker", brokerName="broker-a", mappedFileSizeCommitLog=SEGMENT) as broker:
        broker.create("Orders", 3)
        send(broker, "Orders", range(401))
        broker.kill()
        shutil.copytree(broker.directory / STORE, tmp_path / "backup")
        backfill = ("--backfill", f"broker-a={tmp_path / 'backup'}", "--store-option", f"maxBytesPerTrigger={SEGMENT}")
        assert "no checkpoint" not in run(lake, *backfill)
        assert_once(lake, range(401))

        shutil.rmtree(lake.checkpoint)
        assert "continuing at the offsets in the table" in run(lake, *backfill)
        assert_once(lake, range(401))

        shutil.rmtree(lake.checkpoint)
        shutil.rmtree(tmp_path / "backup")
        broker.restart()
        send(broker, "Orders", range(401, 437))
        broker.create("Orders2", 1)
        send(broker, "Orders2", range(437, 444))
        stream = ("-n", broker.namesrv, "--available-now", "--max-rows", "30")
        assert "continuing at the offsets in the table" in run(lake, *stream)
        assert_once(lake, range(444))

        for more in (range(444, 444), range(444, 452)):
            shutil.rmtree(lake.checkpoint)
            send(broker, "Orders", more)
            run(lake, *stream)
            assert_once(lake, range(more.stop))

        shutil.rmtree(lake.checkpoint)
        lake.drop_side_table()
        run(lake, *stream)
        assert keys(lake) == Counter(f"k{n}" for n in range(452) if n % 5)
        assert set(keys(lake, "_bad").values()) == {1}

        shutil.copytree(lake.checkpoint, tmp_path / "old")
        send(broker, "Orders", range(452, 460))
        run(lake, *stream)
        send(broker, "Orders", range(460, 470))
        shutil.rmtree(lake.checkpoint)
        shutil.copytree(tmp_path / "old", lake.checkpoint)
        error = run(lake, *stream, code=1)
        assert "is older than the table, which contains another batch" in error
        assert error.count("\n") < 10
        shutil.rmtree(lake.checkpoint)
        run(lake, *stream)
    assert keys(lake) == Counter(f"k{n}" for n in range(470) if n % 5)
    assert set(keys(lake, "_bad").values()) == {1}


@pytest.mark.skipif(Lake not in LAKES, reason="the session has jars: another environment runs this test")
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
