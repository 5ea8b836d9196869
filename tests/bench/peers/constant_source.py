"""A Spark source without work: one Arrow batch of messages, created once in each worker, repeatedly."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from skylarkmq.clients.arrow.columns import record_batch, walk
from skylarkmq.clients.arrow.schema import message_columns
from skylarkmq.clients.spark.base.schema import ddl
from skylarkmq.protocol.record import encode
from tests.bench.filled_store import BORN_HOST, TOPIC

BATCH_ROWS: Final = 8_000
TASKS: Final = 8
PROPERTIES: Final = b"KEYS\x01k%d\x02UNIQ_KEY\x017F000001%024X\x02TAGS\x01TagA\x02CLUSTER\x01Default\x02"


@cache
def batch_of_layout(include_properties: bool) -> pa.RecordBatch:
    """Return messages of 1 KiB like those of filled_store."""
    body = os.urandom(1024)
    records = b"".join(
        encode(
            topic=TOPIC,
            body=body,
            properties=PROPERTIES % (row, row),
            queue_id=row % 8,
            queue_offset=row // 8,
            physical_offset=0,
            born_timestamp=1_700_000_000_000,
            born_host=BORN_HOST,
            store_timestamp=1_700_000_000_000,
            store_host=BORN_HOST,
        )
        for row in range(BATCH_ROWS)
    )
    return record_batch(records, walk(records), "b", message_columns(include_properties))


class ConstantSource(DataSource):
    """`rows` rows in eight tasks; `includeProperties` as in our source."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "constant"

    def schema(self) -> str:
        """Return the columns of our source."""
        return ddl(message_columns(self._has_properties()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of as many rows as the option sets."""
        return ConstantReader(int(self.options["rows"]), self._has_properties())

    def _has_properties(self) -> bool:
        return self.options.get("includeProperties") == "true"


class ConstantReader(DataSourceReader):
    """Returns the same batch until there are enough rows."""

    def __init__(self, rows: int, include_properties: bool) -> None:
        self._rows = rows
        self._include_properties = include_properties

    def partitions(self) -> list[InputPartition]:
        """Return equal shares."""
        return [InputPartition(self._rows // TASKS)] * TASKS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share."""
        batch = batch_of_layout(self._include_properties)
        left = partition.value
        while left > 0:
            yield batch if left >= len(batch) else batch.slice(0, left)
            left -= len(batch)
