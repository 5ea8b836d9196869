"""The settings of a pipeline: what `mqspark-pipeline` reads, and where it writes.

Files are as large as a batch allows: they are split at `file_bytes` (for Parquet the size during the shuffle;
compressed files are smaller) and `file_rows`. Without `shuffles`, each task of a Parquet pipeline writes its own files.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from skylarkmq.clients.spark.decoding.encodings import Decoding
from skylarkmq.clients.spark.pipeline.backfill import Backfill
from skylarkmq.clients.spark.tables.availability import Engine
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.layout import TimeUnit

ARROW_BATCH_BYTES: Final = 16 << 20


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a job. `source`: options of the source; `interval` None: write the existing messages, and end.

    `output` is a directory, or the name of an Iceberg table. `engine` None: the one that the session has. `unit`
    partitions new tables. Bad rows go to the side table, to the dead-letter topic, or nowhere. `backfill`: read this
    store instead of the topics of `source`.
    """

    source: Mapping[str, str]
    output: str
    checkpoint: str
    table_format: TableFormat = TableFormat.PARQUET
    engine: Engine | None = None
    unit: TimeUnit = TimeUnit.HOUR
    decoding: Decoding = Decoding()
    keep_body: bool = False
    has_side_table: bool = False
    dead_letter_topic: str | None = None
    interval: str | None = None
    backfill: Backfill | None = None
    file_bytes: int = 256 * 1024 * 1024
    file_rows: int = 5_000_000
    shuffles: bool = True

    def checkpoint_of(self, query: str) -> str:
        """Return the checkpoint of a query."""
        return f"{self.checkpoint}/{query}"


def settings(job: Job) -> dict[str, str]:
    """Return the settings that the session needs; all can be set in a session that runs."""
    return {
        "spark.sql.session.timeZone": "UTC",  # the columns hour and day are UTC
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),  # of bodies on the way to Python
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.streaming.stateless.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(job.file_bytes),
    }
