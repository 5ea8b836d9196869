"""Messages as Arrow record batches, without Spark: `scan_store` for a store directory, `scan_topic` for brokers.

    from skylarkmq.arrow import scan_store

    with scan_store("/data/store", topics="Orders", columns=["keys", "storeTimestamp"]) as reader:
        print(reader.read_all().group_by("keys").aggregate([("storeTimestamp", "max")]))

Both return a pyarrow.RecordBatchReader, which Polars, DuckDB and pandas read, too (docs/use/arrow.md).
`pip install 'skylarkmq[arrow]'` installs NumPy and PyArrow.
"""

from skylarkmq.clients.arrow.schema import DEFAULT_COLUMNS, RECORD_COLUMNS, TYPES
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.scan import scan_store
from skylarkmq.clients.arrow.topic.bounds import InvalidBounds, Unreachable
from skylarkmq.clients.arrow.topic.scan import scan_topic

__all__ = [
    "DEFAULT_COLUMNS",
    "RECORD_COLUMNS",
    "TYPES",
    "InvalidBounds",
    "StoreUnreadable",
    "Unreachable",
    "scan_store",
    "scan_topic",
]
