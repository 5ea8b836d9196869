"""From the store of a broker to the broker itself: each message once, whatever is interrupted in between."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylarkmq.clients.spark.pipeline.backfill import Backfill
from skylarkmq.clients.spark.pipeline.command import pipeline, start_queries
from skylarkmq.clients.spark.pipeline.job import Job
from tests.harness.daemon import STORE
from tests.spark.scene import scene

pytestmark = pytest.mark.spark

SEGMENT = 64 * 1024
PATTERN = "Orders.*"


def run(*arguments: str) -> str:
    """Run the command to its end; return its output."""
    done = CliRunner().invoke(pipeline, [*arguments, "--pattern", PATTERN])
    assert done.exit_code == 0, done.output
    return done.stderr


def test_a_stream_continues_a_backfill(spark: SparkSession, tmp_path: Path) -> None:
    """Read the store of a killed broker, interrupted once; start it, send more, also to new queues and topics."""
    (tmp_path / "broker").mkdir()
    output, store, part = str(tmp_path / "lake"), str(tmp_path / "broker" / STORE), str(SEGMENT)
    with scene(tmp_path / "broker", brokerName="broker-a", mappedFileSizeCommitLog=SEGMENT) as broker:
        broker.create("Orders", 4)
        broker.create("Other", 1)
        sent = broker.send("Orders", 400, size=300)
        broker.send("Other", 50)
        broker.kill()
        job = Job(
            source={"subscribePattern": PATTERN},
            output=output,
            checkpoint=f"{output}.checkpoint",
            interval="0 seconds",
            backfill=Backfill("broker-a", store, {"maxBytesPerTrigger": part}),
        )
        (query,) = start_queries(spark.newSession(), job).queries
        while not query.recentProgress:
            query.awaitTermination(0.05)  # type: ignore[arg-type]
        query.stop()
        run("-o", output, "--backfill", f"broker-a={store}", "--store-option", f"maxBytesPerTrigger={part}")
        broker.restart()
        broker.create("Orders", 6)
        broker.create("Orders2", 2)
        sent += broker.send("Orders", 60) + broker.send("Orders2", 30)
        run("-o", output, "-n", broker.namesrv, "--available-now")
    rows = spark.read.parquet(output).collect()
    assert Counter(bytes(row.body) for row in rows) == Counter(sent)
    places = Counter((row.topic, row.brokerName, row.queueId, row.queueOffset) for row in rows)
    assert set(places.values()) == {1}
    assert {broker for _, broker, _, _ in places} == {"broker-a"}
