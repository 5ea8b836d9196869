"""Names of tables as users write them.

parquet, delta    a directory, as any URI that Spark supports: lake, s3a://bucket/lake
iceberg           catalog.namespace.table; a namespace may have several parts
"""

import re
from typing import Final

import msgspec

from skylarkmq.clients.spark.tables.ddl import quoted

SIDE_TABLE: Final = "_bad"
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")


class IcebergName(msgspec.Struct, frozen=True):
    """A name of an Iceberg table."""

    catalog: str
    namespace: tuple[str, ...]
    table: str

    @property
    def sql(self) -> str:
        """Return the name in SQL."""
        return quoted(self.catalog, *self.namespace, self.table)

    @property
    def namespace_sql(self) -> str:
        """Return the namespace in SQL."""
        return quoted(self.catalog, *self.namespace)

    @property
    def in_catalog(self) -> tuple[str, ...]:
        """Return the name within the catalog."""
        return (*self.namespace, self.table)

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.in_catalog))


def iceberg_name(text: str) -> IcebergName:
    """Return the parts of a name. Raises ValueError."""
    parts = text.split(".")
    if len(parts) < 3 or not all(map(_PART.fullmatch, parts)):
        raise ValueError(
            f"an Iceberg table is named catalog.namespace.table, such as lake.orders.messages, not {text!r}; the "
            "catalog is set by --conf spark.sql.catalog.lake.type=... (docs/use/spark/tables.md)"
        )
    return IcebergName(parts[0], tuple(parts[1:-1]), parts[-1])


def side_table(output: str) -> str:
    """Return the name or path of the table for bad rows."""
    return output.rstrip("/") + SIDE_TABLE
