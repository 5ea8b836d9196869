"""Messages to rows: rows for Parquet, and dead letters.

    messages --decode--> + value, reason
        reason is null       good: topic and hour (partition columns), the message's columns, value
        reason is not null   dead letters: the original body and properties, the origin and the reason

Decoding depends on the message alone, so the two queries agree about every message, however often they run. Without a
schema nothing is decoded, and all messages are good.

A JSON body must be UTF-8, one object, and fit the schema; a field declared NOT NULL must be present. Avro bodies are
decoded by clients/spark/pipeline/avro_bodies.py.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from skylarkmq.clients.settings import ProducerSettings

HOUR: Final = "yyyy-MM-dd-HH"
VALUE: Final = "value"
REASON: Final = "deadLetterReason"
MAX_PROPERTY_CHARACTERS: Final = 8_192  # characters; with the added ones they must fit into 32,767 bytes
MAX_BODY_BYTES: Final = ProducerSettings().max_message_bytes  # the producer's limit, before compression

DEAD_LETTER_REASON: Final = "DEAD_LETTER_REASON"
ORIGIN_TOPIC: Final = "DEAD_LETTER_TOPIC"
ORIGIN_QUEUE: Final = "DEAD_LETTER_QUEUE"
ORIGIN_OFFSET: Final = "DEAD_LETTER_OFFSET"
ORIGIN_MSG_ID: Final = "DEAD_LETTER_MSG_ID"
ORIGIN_STORED: Final = "DEAD_LETTER_STORED"
CUT: Final = "DEAD_LETTER_PROPERTIES_CUT"
BODY_CUT: Final = "DEAD_LETTER_BODY_CUT"
ORIGINS: Final = (ORIGIN_TOPIC, ORIGIN_QUEUE, ORIGIN_OFFSET, ORIGIN_MSG_ID, ORIGIN_STORED)
ADDED: Final = (DEAD_LETTER_REASON, *ORIGINS, CUT, BODY_CUT)

_CORRUPT: Final = "__corrupt__"


class Decoding(msgspec.Struct, frozen=True):
    """How bodies are decoded: `json` is Spark DDL, `avro` an Avro schema; with neither, bodies are not decoded."""

    json: str | None = None
    avro: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether bodies are decoded at all."""
        return bool(self.json or self.avro)


def good(messages: DataFrame, decoding: Decoding, *, keep_body: bool) -> DataFrame:
    """Return the rows for Parquet, partitioned by topic and store hour (UTC): few large files, not many small ones."""
    rows = messages
    if decoding.is_on:
        rows = decoded(messages, decoding).where(f.col(REASON).isNull()).drop(REASON)
        rows = rows if keep_body else rows.drop("body")
    rows = rows.withColumn("hour", f.date_format("storeTimestamp", HOUR))
    return rows.hint("rebalance", f.col("topic"), f.col("hour"))


def dead_letters(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Return the messages that do not parse, as columns of the sink; `messages` has the column properties.

    A body that exceeds the maximum message size after decompression is truncated, and its full length recorded: one
    such message must not stop the query, and the origin refers to the full message.
    """
    bad = decoded(messages, decoding).where(f.col(REASON).isNotNull())
    return bad.select(
        f.coalesce(f.substring("body", 1, MAX_BODY_BYTES), f.lit(b"")).alias("body"),
        "tags",
        "keys",
        f.map_concat(_original_properties(), _origin()).alias("properties"),
    )


def _fit() -> Column:
    """Whether the properties leave enough space for ours; lengths are in characters of at most three bytes."""
    names, values = f.map_keys("properties"), f.map_values("properties")
    return f.length(f.array_join(names, "")) + f.length(f.array_join(values, "")) <= MAX_PROPERTY_CHARACTERS


def _original_properties() -> Column:
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*ADDED))
    return f.when(_fit(), kept).otherwise(f.create_map().cast("map<string,string>"))


def _origin() -> Column:
    added = {
        DEAD_LETTER_REASON: f.substring(REASON, 1, 1000),
        ORIGIN_TOPIC: f.col("topic"),
        ORIGIN_QUEUE: f.concat_ws(":", "brokerName", "queueId"),
        ORIGIN_OFFSET: f.col("queueOffset").cast("string"),
        ORIGIN_MSG_ID: f.col("msgId"),
        ORIGIN_STORED: f.unix_millis("storeTimestamp").cast("string"),
        CUT: f.when(~_fit(), "true"),
        BODY_CUT: f.when(f.octet_length("body") > MAX_BODY_BYTES, f.octet_length("body").cast("string")),
    }
    return f.create_map(*(part for name, value in added.items() for part in (f.lit(name), value)))


# --- decoding -------------------------------------------------------------------------------------


def decoded(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Add the columns value and deadLetterReason, of which one is null. Raises ValueError for an invalid schema."""
    if decoding.json is not None:
        schema = StructType.fromDDL(decoding.json)
        if not isinstance(schema, StructType):
            raise ValueError(f"bodies are objects with fields, such as 'id BIGINT', not {schema.simpleString()}")
        return _of_json(messages, schema)
    avro = import_module("skylarkmq.clients.spark.pipeline.avro_bodies")
    rows: DataFrame = avro.decoded(messages, decoding.avro, VALUE, REASON)
    return rows


def _of_json(messages: DataFrame, schema: StructType) -> DataFrame:
    text = f.col("body").cast("string")
    parsed = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    modes = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    rows = messages.withColumn(VALUE, f.from_json(f.when(f.is_valid_utf8(text), text), parsed, modes))
    rows = rows.withColumn(REASON, _reason(text, [field.name for field in schema.fields if not field.nullable]))
    value = f.struct(*(f.col(VALUE).getField(field.name).alias(field.name) for field in schema.fields))
    return rows.withColumn(VALUE, f.when(f.col(REASON).isNull(), value))


def _reason(text: Column, required: Sequence[str]) -> Column:
    value = f.col(VALUE)
    reason = (
        f.when(f.col("body").isNull(), "the body cannot be decompressed")
        .when(~f.is_valid_utf8(text), "the body is not UTF-8")
        .when(value.isNull() | value.getField(_CORRUPT).isNotNull(), "the body is not a JSON object of the schema")
    )
    for name in required:
        reason = reason.when(value.getField(name).isNull(), f"the field {name} is missing")
    return reason
