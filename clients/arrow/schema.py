"""The columns of a message: the schema that both sources declare to Spark and build their record batches with.

Spark compares the first batch of a task field by field (names, order, types, nullability) with the declared schema, so
both come from one table. All fields are nullable for Spark. Null values occur in these columns:

    key, keys, tags       the message has none
    body                  the body is compressed and cannot be decompressed
    brokerName            a store directory was read without the option brokerName
    born- and             the time is outside the range of Spark's timestamps
      storeTimestamp

Source: docs/formats.md, "CommitLog record", "Properties", "Message ids".
"""

from typing import Final

import pyarrow as pa

_TEXT: Final = ("STRING", pa.string())
_INT: Final = ("INT", pa.int32())
_LONG: Final = ("BIGINT", pa.int64())
_TIME: Final = ("TIMESTAMP", pa.timestamp("us", tz="UTC"))

COLUMNS: Final[dict[str, tuple[str, pa.DataType]]] = {
    "key": _TEXT,
    "body": ("BINARY", pa.binary()),
    "topic": _TEXT,
    "brokerName": _TEXT,
    "queueId": _INT,
    "queueOffset": _LONG,
    "storeTimestamp": _TIME,
    "bornTimestamp": _TIME,
    "tags": _TEXT,
    "keys": _TEXT,
    "msgId": _TEXT,
    "flag": _INT,
    "reconsumeTimes": _INT,
}
PROPERTIES: Final = "properties"
_MAP: Final = (
    "MAP<STRING, STRING>",
    pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())),
)


def ddl(include_properties: bool) -> str:
    """Return the schema as DDL text, which needs no Spark session."""
    return ", ".join(f"{name} {spark_type}" for name, (spark_type, _) in _columns(include_properties).items())


def arrow_schema(include_properties: bool) -> pa.Schema:
    """Return the Arrow schema that Spark expects of the batches."""
    return pa.schema([pa.field(name, arrow_type) for name, (_, arrow_type) in _columns(include_properties).items()])


def _columns(include_properties: bool) -> dict[str, tuple[str, pa.DataType]]:
    return COLUMNS | {PROPERTIES: _MAP} if include_properties else COLUMNS
