"""Where the messages of a replay come from: each source yields record batches with the columns of an archive.

    Archive         a directory of `mqspark-archive`, or Parquet files with its columns
    ArchiveTable    an Iceberg table of an archive, through PyIceberg
    Store           a store directory, whether its broker runs or not
    Topics          topics, read from their brokers up to the ends of the queues at the start of the run

The rows of each queue ascend by offset.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.arrow.schema import RECORD_COLUMNS
from skylarkmq.clients.arrow.store.scan import scan_store
from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.arrow.topic.scan import scan_topic
from skylarkmq.clients.spark.replay.archive_files import ArchiveFiles
from skylarkmq.clients.spark.replay.errors import ArchiveUnreadable
from skylarkmq.clients.spark.replay.runs import COLUMNS
from skylarkmq.clients.spark.replay.selection import READABLE, Selection

KEY: Final = "key"


class Archive(msgspec.Struct, frozen=True):
    """An archive directory, a directory of Parquet files, or one file: a path, or a URI that PyArrow supports."""

    location: str

    def identity(self) -> dict[str, Any]:
        """Return what identifies the source."""
        return {"archive": self.location}


class ArchiveTable(msgspec.Struct, frozen=True):
    """An Iceberg table `namespace.name` of a catalog that PyIceberg knows, with more properties for the catalog."""

    identifier: str
    catalog: str = "default"
    properties: dict[str, str] = {}

    def identity(self) -> dict[str, Any]:
        """Return what identifies the source."""
        return {"table": self.identifier, "catalog": self.catalog}


class Store(msgspec.Struct, frozen=True):
    """A store directory (storePathRootDir). The broker's name is part of marks, and selects the queues of its name.

    `use_index`: keys are found through the index, whose files must have RocketMQ's default size.
    """

    path: str
    broker_name: str = ""
    use_index: bool = True

    def identity(self) -> dict[str, Any]:
        """Return what identifies the source."""
        return {"store": self.path, "broker": self.broker_name}


class Topics(msgspec.Struct, frozen=True):
    """The topics of the selection, which must name them. `group` is the consumer group of the pulls."""

    cluster: ClusterOptions
    group: str = "mqspark-replay"

    def identity(self) -> dict[str, Any]:
        """Return what identifies the source."""
        return {"cluster": self.cluster.name_server}


Source = Archive | ArchiveTable | Store | Topics


class Rows(Protocol):
    """The rows of an opened source."""

    @property
    def rows(self) -> int | None:
        """The number of rows that will be read; None if it is unknown."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. A source that breaks raises OSError with the cause."""


class Scan(msgspec.Struct):
    """The rows of a store or of topics."""

    reader: pa.RecordBatchReader
    rows: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        with self.reader:
            yield from self.reader


def opened(source: Source, selection: Selection) -> Rows:
    """Open a source; rows that the selection excludes may be left out.

    Raises ArchiveUnreadable, StoreUnreadable, Unreachable, ClientError, OSError; ValueError if a selection of topics is
    required.
    """
    condition = selection.where is not None
    archived = tuple(ARCHIVE_SCHEMA.names) if condition else (*COLUMNS, READABLE)
    recorded = (*RECORD_COLUMNS, KEY) if condition else COLUMNS
    start, end = selection.since_ms, selection.until_ms
    match source:
        case Archive():
            return ArchiveFiles.below(source.location, selection, archived)
        case ArchiveTable():
            return _of_table(source, selection, archived)
        case Store():
            return Scan(
                scan_store(
                    source.path,
                    topics=selection.topics,
                    start=start,
                    end=end,
                    key=selection.key,
                    columns=recorded,
                    decode=False,
                    broker_name=source.broker_name,
                    use_index=source.use_index,
                    check_crc=True,
                )
            )
        case Topics():
            if not selection.topics:
                raise ValueError("the topics to read must be named")
            return Scan(
                scan_topic(
                    source.cluster.name_server,
                    selection.topics,
                    start="earliest" if start is None else start,
                    end="latest" if end is None else end,
                    columns=recorded,
                    decode=False,
                    group=source.group,
                    credentials=source.cluster.credentials,
                    tls=source.cluster.tls,
                )
            )


def _of_table(source: ArchiveTable, selection: Selection, columns: tuple[str, ...]) -> ArchiveFiles:
    try:
        catalogs, errors = import_module("pyiceberg.catalog"), import_module("pyiceberg.exceptions")
    except ImportError as error:
        raise ArchiveUnreadable(f"Iceberg needs PyIceberg ({error}): pip install 'skylarkmq[iceberg]'") from error
    try:
        table = catalogs.load_catalog(source.catalog, **source.properties).load_table(source.identifier)
        tasks = list(table.scan().plan_files())
    except (OSError, ValueError, errors.NoSuchTableError, errors.RESTError) as error:
        raise ArchiveUnreadable(
            f"the table {source.identifier} of the catalog {source.catalog} cannot be read: {error}"
        ) from error
    if any(task.delete_files for task in tasks):
        raise ArchiveUnreadable(f"the table {source.identifier} has row deletes: compact the table first")
    return ArchiveFiles.of([task.file.file_path for task in tasks], selection, columns)
