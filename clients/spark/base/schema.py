"""The columns of the sources as Spark declares them, derived from their Arrow types."""

from typing import Final

import pyarrow as pa

from skylarkmq.clients.arrow.schema import TYPES, Columns

_SPARK_TYPES: Final[dict[pa.DataType, str]] = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    TYPES["properties"]: "MAP<STRING, STRING>",
}


def ddl(columns: Columns) -> str:
    """Return the schema as DDL text, which needs no Spark session."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in columns.schema)
