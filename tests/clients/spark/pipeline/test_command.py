"""The pipeline's command before the start of Spark: arguments become a job; mistakes become one line with advice."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.blocking import Producer
from skylarkmq.clients.spark.pipeline.avro_bodies import Decoder, spark_type
from skylarkmq.clients.spark.pipeline.command import decoding_of, pipeline
from skylarkmq.clients.spark.pipeline.progress import lag, line
from tests.harness.ports import free_ports

UNUSED_ADDRESS = f"127.0.0.1:{free_ports(1)[0]}"


def error_of(*arguments: str) -> str:
    """Return the output of a command that does not start."""
    done = CliRunner().invoke(pipeline, list(arguments))
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((), "no name server responds"),
        (("--json-schema", "id INT"), "set --dead-letter-topic TOPIC or --drop-bad-rows"),
        (("--dead-letter-topic", "D"), "set --json-schema or --avro-schema"),
        (("--json-schema", "id INT", "--dead-letter-topic", "a b"), "--dead-letter-topic must be the name of a topic"),
        (("--json-schema", "id INT", "--avro-schema", "x"), "are both set"),
        (("--avro-schema", "nowhere.avsc"), "cannot read nowhere.avsc"),
        (("--option", "minPartitions"), "must be KEY=VALUE"),
        (("--option", "minPartition=3"), "did you mean minPartitions?"),
        (("--file-bytes", "much"), "a size such as 256m"),
        (("--pattern", "x"), "subscribe"),
    ],
)
def test_a_mistake_is_one_line_with_advice(arguments: tuple[str, ...], advice: str) -> None:
    """The pipeline does not start, and the exit code is 2."""
    assert advice in error_of("-n", UNUSED_ADDRESS, "-t", "Orders", "-o", "lake", *arguments)


def test_a_missing_topic_is_reported(mq_broker: Any) -> None:
    """The error suggests the nearest topic."""
    with Producer("shop", namesrv=mq_broker.namesrv) as producer:
        producer.send(Message("Orders", b"x"))
    output = error_of("-n", mq_broker.namesrv, "-t", "Order", "-o", "lake")
    assert "topic Order does not exist: did you mean Orders?" in output


def test_a_schema_can_be_a_file(tmp_path: Path) -> None:
    """@FILE for Spark DDL; an Avro schema is always a file."""
    path = tmp_path / "schema"
    path.write_text("id BIGINT")
    assert decoding_of(f"@{path}", None).json == "id BIGINT"
    assert decoding_of(None, str(path)).avro == "id BIGINT"
    assert not decoding_of(None, None).is_on


def test_progress_is_a_line_with_the_lag_of_each_topic() -> None:
    """Offsets are JSON texts; a queue that the batch does not contain counts as lagging by its whole length."""
    end = json.dumps({"@from": {}, "A": {"b": {"0": 5}}})
    latest = json.dumps({"A": {"b": {"0": 9, "1": 3}}, "B": {"b": {"0": 0}}})
    progress = {
        "name": "parquet",
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 20.4,
        "durationMs": {"triggerExecution": 490},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }
    assert lag(progress) == {"A": 7, "B": 0}
    assert line(progress) == "parquet batch=3 rows=10 rows_per_s=20 seconds=0.5 lag A=7 B=0"
    assert line({"name": "x", "batchId": 0, "sources": [{}]}) == "x batch=0 rows=0 rows_per_s=0 seconds=0.0"


# --- Avro -----------------------------------------------------------------------------------------

SCHEMA = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "number", "type": ["null", "int"]},
        {"name": "ratio", "type": "double"},
        {"name": "raw", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "line", "fields": [{"name": "n", "type": "float"}]},
            },
        },
    ],
}
DATUM = {
    "flag": True,
    "number": None,
    "ratio": 0.5,
    "raw": b"1234",
    "kind": "B",
    "day": date(2024, 5, 1),
    "at": datetime(2024, 5, 1, 13, tzinfo=UTC),
    "local": datetime(2024, 5, 1, 13),  # noqa: DTZ001 - it has no zone
    "price": Decimal("12.34"),
    "counts": {"a": 1},
    "lines": [{"n": 1.5}, {"n": 2.0}],
}


def encoded(schema: Any, datum: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
    return stream.getvalue()


def decode(schema: Any, bodies: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    kind = to_arrow_type(spark_type(schema), timezone="UTC")
    decoder = Decoder(json.dumps(schema), kind, ("value", "reason"))
    rows = decoder.decode(pa.array(bodies, pa.binary())).to_pylist()
    return [row["value"] for row in rows], [row["reason"] for row in rows]


def test_every_type_of_avro_has_a_column() -> None:
    """Values are decoded as they were encoded."""
    (value,), (reason,) = decode(SCHEMA, [encoded(SCHEMA, DATUM)])
    assert reason is None
    assert value == DATUM | {"counts": [("a", 1)]}


def test_an_invalid_datum_has_a_reason_and_no_value() -> None:
    """Truncated, with trailing bytes, invalid, null: the other bodies of the batch are decoded."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]}
    good = encoded(schema, {"s": "hello"})
    values, reasons = decode(schema, [good, good[:-1], good + b"x", b"", b"\x02\xff", b"\x7f", None])
    assert values == [{"s": "hello"}] + [None] * 6
    assert [reason is None for reason in reasons] == [True] + [False] * 6
    assert "1 bytes remain" in (reasons[2] or "")


def test_a_value_without_an_arrow_counterpart_has_a_reason() -> None:
    """A decimal with more digits than the schema allows does not fail its batch."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}}],
    }
    wide = b"\x08\x7f\xff\xff\xff"
    values, reasons = decode(schema, [encoded(schema, {"d": Decimal(7)}), wide])
    assert values == [{"d": Decimal(7)}, None]
    assert "no counterpart" in (reasons[1] or "")


@pytest.mark.parametrize(
    "schema",
    [
        ["int", "string"],
        {"type": "int", "logicalType": "time-millis"},
        {"type": "record", "name": "r", "fields": [{"name": "self", "type": ["null", "r"]}]},
    ],
)
def test_schemas_without_a_counterpart_are_rejected(schema: Any) -> None:
    """The pipeline rejects them when it starts, not at the first message."""
    with pytest.raises(ValueError, match=r"no counterpart|not an Avro type"):
        spark_type(schema)
