"""Bodies as columns in a real Spark: JSON, Avro with a registry header, Protobuf; and rows in a table's columns."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from skylarkmq.clients.spark.decoding.columns import REASON
from skylarkmq.clients.spark.decoding.decoding import decoded
from skylarkmq.clients.spark.decoding.encodings import AvroBodies, Decoding
from skylarkmq.clients.spark.decoding.protobuf_bodies import message_class
from skylarkmq.clients.spark.decoding.registry import Registry
from skylarkmq.clients.spark.tables.evolution import TableFormat, evolve, expressions, new_table
from tests.clients.spark.decoding.test_avro_bodies import NEW, OLD, OLD_DATUM, encoded, registered
from tests.clients.spark.decoding.test_protobuf_bodies import bodies_of
from tests.clients.spark.decoding.test_registry import Server, serving

pytestmark = pytest.mark.spark

COUNT = 500


def messages(spark: SparkSession, bodies: list[bytes | None]) -> DataFrame:
    """Messages with some of the source's columns."""
    rows = [("Orders", 0, offset, body, {"a": "b"}) for offset, body in enumerate(bodies)]
    kinds = "topic STRING, queueId INT, queueOffset BIGINT, body BINARY, properties MAP<STRING, STRING>"
    return spark.createDataFrame(rows, kinds).withColumn("storeTimestamp", f.timestamp_millis(f.lit(1_700_000_000_000)))


def values_and_reasons(frame: DataFrame) -> list[tuple[int, Any, Any]]:
    """Offset, value and reason of each row, from a plan with filters as the pipeline's."""
    good = frame.where(f"{REASON} IS NULL").select("queueOffset", "value.*").collect()
    bad = frame.where(f"{REASON} IS NOT NULL").select("queueOffset", "value", REASON).collect()
    assert [row.value for row in bad] == [None] * len(bad)
    rows = [(row.queueOffset, row.asDict(recursive=True), None) for row in good]
    return sorted([*rows, *((row.queueOffset, None, row[REASON]) for row in bad)], key=lambda row: row[0])


def test_bodies_become_columns_in_all_encodings(spark: SparkSession) -> None:
    """Every tenth body is bad and has a reason; the others have their values, in the rows of their messages."""
    order = message_class(bodies_of("shop.Line"))
    writer = encoded(NEW, {"id": 7, "item": "tea"})
    with serving(Server()) as server:
        server.responses = {
            "/schemas/ids/1": (200, {"schema": json.dumps(OLD)}),
            "/schemas/ids/2": (200, {"schema": json.dumps(NEW)}),
        }
        avro = AvroBodies(schema=(json.dumps(NEW),), registry=Registry(server.url))
        encodings: dict[str, tuple[Decoding, Any, Any]] = {
            "json": (
                Decoding(json="id BIGINT NOT NULL, lines ARRAY<STRUCT<n: INT>>"),
                lambda n: json.dumps({"id": n, "lines": [{"n": 1}]}).encode(),
                lambda n: {"id": n, "lines": [{"n": 1}]},
            ),
            "avro": (
                Decoding(avro=avro),
                lambda n: registered(1, OLD_DATUM) if n % 2 else registered(2, writer),
                lambda n: {"id": 1, "item": "none"} if n % 2 else {"id": 7, "item": "tea"},
            ),
            "protobuf": (
                Decoding(protobuf=bodies_of("shop.Line")),
                lambda n: order(item=f"größer {n}", n=n).SerializeToString(),
                lambda n: {"item": f"größer {n}", "n": n},
            ),
        }
        for decoding, body, value in encodings.values():
            frame = messages(spark, [body(n) if n % 10 else b"\xff" for n in range(COUNT)]).repartition(2)
            for n, found, reason in values_and_reasons(decoded(frame, decoding)):
                if n % 10:
                    assert (found, reason) == ({"queueOffset": n, **value(n)}, None)
                else:
                    assert reason is not None
                    assert reason.startswith("the body")


def test_a_body_is_one_json_object(spark: SparkSession) -> None:
    """Text after it is not ignored, such as a second object; braces in strings and numbers like NaN are accepted."""
    good = [
        '{"id": 1}',
        ' {"id": 2, "a": {"b": [{"c": 1}, {}]}} \n',
        '{"id": 3, "s": "} x"}',
        '{"id": 4, "s": "} x", "n": NaN}',
    ]
    bad = ['{"id": 1}\n{"id": 2}', '{"id": 1}{"id": 2}', '{"id": 1} x', '{"id": 1, "s": "} x"} 7', '[{"id": 1}]']
    found = values_and_reasons(
        decoded(messages(spark, [body.encode() for body in good + bad]), Decoding(json="id BIGINT"))
    )
    assert [value and value["id"] for _, value, _ in found] == [1, 2, 3, 4, *[None] * len(bad)]
    assert {reason for _, _, reason in found[len(good) : -1]} == {"the body has text after its JSON object"}


def test_rows_fit_a_table_that_has_evolved(spark: SparkSession) -> None:
    """The SQL expressions cast, reorder, and fill with null at every depth; null structs stay null."""
    table = spark.sql(
        "SELECT named_struct('id', 1, 'lines', array(named_struct('n', 1, 'gone', 'x')), 'counts', map('a', 1))"
        " AS value, 'x' AS missing"
    ).schema
    table = new_table(table)
    batch = spark.sql(
        "SELECT named_struct('lines', array(named_struct('price', 0.5D, 'n', 3L), NULL), 'ID', 2S,"
        " 'counts', map('b', 4S), 'it\\'s', date'2024-05-01') AS value UNION ALL SELECT NULL"
    )
    evolution = evolve(table, batch.schema, TableFormat.DELTA)
    assert [str(widened) for widened in evolution.widened] == ["value.lines.element.n int -> bigint"]
    frame = batch.selectExpr(*expressions(batch.schema, evolution.schema))
    assert evolve(frame.schema, evolution.schema, TableFormat.PARQUET).changes is False
    assert evolve(evolution.schema, frame.schema, TableFormat.PARQUET).changes is False
    full, empty = sorted(frame.collect(), key=lambda row: row.value is None)
    assert (empty.value, empty.missing, full.missing) == (None, None, None)
    value = full.value.asDict(recursive=True)
    assert value.pop("it's").isoformat() == "2024-05-01"
    assert value == {"id": 2, "lines": [{"n": 3, "gone": None, "price": 0.5}, None], "counts": {"b": 4}}
