"""The columns of a message, their Arrow types, and the selection of columns that a reader builds.

The Spark sources declare the same columns to Spark (clients/spark/base/schema.py). Spark compares the first batch of a
task field by field with the declared schema, so both come from one table. All fields are nullable. Null values occur
in these columns:

    key, keys, tags       the message has none
    body                  the body is compressed and cannot be decompressed
    brokerName            a store directory was read without the name of its broker
    born- and             the time is outside the years 1 to 9999, the range of Python and Spark
      storeTimestamp

Source: docs/reference/disk.md, "CommitLog record"; docs/reference/wire.md, "Properties", "Message ids".
"""

import difflib
from functools import lru_cache
from typing import Final

import msgspec
import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")

DEFAULT_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.string(),
    "body": pa.binary(),
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "storeTimestamp": _TIME,
    "bornTimestamp": _TIME,
    "tags": pa.string(),
    "keys": pa.string(),
    "msgId": pa.string(),
    "flag": pa.int32(),
    "reconsumeTimes": pa.int32(),
}
PROPERTIES: Final = "properties"
BODY: Final = "body"
_MAP: Final = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))

TYPES: Final[dict[str, pa.DataType]] = DEFAULT_TYPES | {
    PROPERTIES: _MAP,
    "physicalOffset": pa.int64(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "sysFlag": pa.int32(),
    "bodyCrc": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
}
"""All columns. `properties` is a string in columns that are not decoded."""

DEFAULT_COLUMNS: Final = tuple(DEFAULT_TYPES)

RECORD_COLUMNS: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp",
    "bornHost", "storeHost", "sysFlag", "flag", "bodyCrc", "reconsumeTimes", "preparedTransactionOffset",
    "tags", "keys", "msgId", "properties", "body",
)  # fmt: skip
"""All fields of a record; not decoded, they are enough to write the same record again."""


class Columns(msgspec.Struct, frozen=True):
    """The columns of a reader, in order. Raises ValueError for an unknown or repeated name, or none.

    `decode`: compressed bodies are decompressed, and `properties` is a map. Without it, both are as stored.
    """

    names: tuple[str, ...] = DEFAULT_COLUMNS
    decode: bool = True

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("columns must name at least one column")
        for name in self.names:
            if name not in TYPES:
                near = difflib.get_close_matches(name, TYPES, n=1, cutoff=0.5)
                raise ValueError(f"no column {name}: " + (f"did you mean {near[0]}?" if near else f"use {[*TYPES]}"))
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"columns are named twice: {self.names}")

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return _schema_of(self)


def message_columns(include_properties: bool) -> Columns:
    """Return the columns of the Spark sources, with or without `properties`."""
    return Columns((*DEFAULT_COLUMNS, PROPERTIES) if include_properties else DEFAULT_COLUMNS)


@lru_cache(maxsize=64)
def _schema_of(columns: Columns) -> pa.Schema:
    types = TYPES if columns.decode else TYPES | {PROPERTIES: pa.string()}
    return pa.schema([pa.field(name, types[name]) for name in columns.names])
