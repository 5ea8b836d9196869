"""Tables: each message once, good ones in the table and bad ones in the side table, by every format of this session.

A batch runs again if its entry in the checkpoint's `commits` is missing, as after the death of the driver.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.spark.pipeline.command import pipeline
from skylarkmq.clients.spark.tables.availability import DELTA_JARS, SESSION_CATALOG
from skylarkmq.clients.spark.tables.data_files import DataFileWriter, target_of
from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.pyiceberg_table import append_files, in_files
from tests.spark.lakes import HAS_DELTA, LAKES, Lake, PyIcebergLake, RuntimeLake
from tests.spark.scene import Scene, scene

pytestmark = pytest.mark.spark

JSON = "id BIGINT NOT NULL"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(params=LAKES, ids=lambda lake: lake.__name__)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    made: Lake = request.param(spark, tmp_path)
    return made


def send(broker: Scene, topic: str, numbers: range) -> None:
    """Every fifth message is bad."""
    bodies = [json.dumps({"id": n, "late": f"l{n}"}).encode() if n % 5 else b"{%d" % n for n in numbers]
    broker.send_all(Message(topic, body, keys=f"k{n}") for n, body in zip(numbers, bodies, strict=True))


def run(broker: Scene, lake: Lake, topic: str, schema: str = JSON, code: int = 0) -> str:
    """Write the existing messages; return the output on stderr."""
    arguments = ["-n", broker.namesrv, "-t", topic, "-o", lake.output, "--checkpoint", str(lake.checkpoint)]
    arguments += ["--json-schema", schema, "--available-now", "--max-rows", "60", *lake.options]
    done = CliRunner().invoke(pipeline, arguments)
    assert done.exit_code == code, done.output
    return done.stderr


def forget_last_commit(lake: Lake) -> None:
    """Make the last batch run again."""
    commits = lake.checkpoint / lake.name / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


def expected(numbers: range, *, bad: bool) -> Counter[str]:
    return Counter(f"k{n}" for n in numbers if (n % 5 == 0) == bad)


def keys(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["keys"] for row in rows)


def test_a_batch_that_runs_again_is_written_once(lake: Lake, broker: Scene) -> None:
    """Also if the driver died between the table and the side table; both have each message once, by topic and hour."""
    topic = f"Once{type(lake).__name__}"
    broker.create(topic, 2)
    send(broker, topic, range(100))
    run(broker, lake, topic)
    forget_last_commit(lake)
    send(broker, topic, range(100, 130))
    run(broker, lake, topic)
    bad = lake.rows("_bad")
    assert keys(lake.rows()) == expected(range(130), bad=False)
    assert keys(bad) == expected(range(130), bad=True)
    assert {(row["topic"], bytes(row["body"])[:1]) for row in bad} == {(topic, b"{")}
    assert all("not a JSON object" in row["reason"] for row in bad)
    assert len({(row["brokerName"], row["queueId"], row["queueOffset"]) for row in bad}) == 26
    if isinstance(lake, PyIcebergLake):
        assert lake.partitions() == {"topic", "storeTimestamp_hour"}
    else:
        assert all(part.startswith(f"topic={topic}/hour=20") for part in lake.partitions())

    lake.drop_side_table()
    if lake.name != "parquet":
        forget_last_commit(lake)
    run(broker, lake, topic)
    assert keys(lake.rows()) == expected(range(130), bad=False)
    again = keys(lake.rows("_bad"))
    assert again <= expected(range(130), bad=True)
    assert again


def test_late_columns_are_added_and_other_types_refused(lake: Lake, broker: Scene) -> None:
    """Older rows have null in the new column; after a refusal nothing is written, and the error names the remedy."""
    topic = f"Late{type(lake).__name__}"
    broker.create(topic, 2)
    send(broker, topic, range(10))
    run(broker, lake, topic)
    send(broker, topic, range(10, 20))
    error = run(broker, lake, topic, "id STRING", 2)
    assert "column value.id is bigint in the table and string in the batch: declare it as bigint" in error
    assert keys(lake.rows()) == expected(range(10), bad=False)
    run(broker, lake, topic, f"{JSON}, late STRING")
    found = {row["value"]["id"]: row["value"].get("late") for row in lake.rows()}
    assert found == {n: f"l{n}" if n >= 10 else None for n in range(20) if n % 5}


def test_the_mark_of_the_last_batch_is_a_property_of_iceberg_tables(lake: Lake, broker: Scene) -> None:
    """It outlasts the snapshots: those are removed here, and the batch is not written again."""
    if not isinstance(lake, PyIcebergLake):
        return  # the marks of other formats are not in snapshots
    topic = f"Expired{type(lake).__name__}"
    broker.create(topic, 1)
    send(broker, topic, range(10))
    run(broker, lake, topic)
    marks = [value for name, value in lake.table().properties.items() if name.startswith("skylark.last-batch.")]
    assert marks == ["0"]
    if isinstance(lake, RuntimeLake):
        lake.spark.catalog.refreshTable(lake.output)
        lake.spark.sql(f"INSERT INTO {lake.output} SELECT * FROM {lake.output} LIMIT 1")
        name = lake.output.partition(".")
        later = "TIMESTAMP '2100-01-01 00:00:00'"
        lake.spark.sql(f"CALL {name[0]}.system.expire_snapshots(table => '{name[2]}', older_than => {later})")
    else:
        table = lake.table()
        rows = table.scan(limit=1).to_arrow().to_batches()
        append_files(table, in_files(DataFileWriter(target_of(table, 1 << 20)), rows), Mark("another query", 0))
        first, _ = table.snapshots()
        table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert len(lake.table().snapshots()) == 1
    forget_last_commit(lake)
    run(broker, lake, topic)
    assert len(lake.rows()) == 8 + 1


def test_a_format_without_its_jar_is_refused(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """With the coordinates for this version of Spark, or with the formats that it has."""
    if HAS_DELTA:
        return
    broker.create("Refused", 1)
    arguments = ["-n", broker.namesrv, "-t", "Refused", "-o", str(tmp_path / "lake"), "--to", "delta"]
    done = CliRunner().invoke(pipeline, arguments)
    spark.conf.unset(SESSION_CATALOG)  # the command takes the running session, which other tests use after this one
    jar = DELTA_JARS.get(".".join(pyspark.__version__.split(".")[:2]))
    advice = f"spark.jars.packages={jar}" if jar else f"no Delta Lake for Spark {spark.version}: write to Iceberg"
    assert (done.exit_code, advice in done.stderr) == (2, True), done.output
    assert not (tmp_path / "lake").exists()
