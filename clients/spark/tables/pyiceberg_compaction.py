"""Compaction of an Iceberg table by PyIceberg, in this process, without Spark.

    small files of each partition --rewrite--> large files --exchange--> one commit for about 1 GiB of small files

The commit deletes the small files from the table and adds the large ones, so no reader sees a row twice or not at all.
Rows are counted before the commit. Files that a pipeline adds meanwhile are not touched, and the commit is repeated on
top of theirs. Each commit has an id in its snapshot summary: a commit that took effect but was reported as failed is
found by it. New files are deleted only if no snapshot has that id.

Memory is bounded: a file is read in batches of about BATCH_BYTES, and written by DataFileWriter. Files with deletes,
and files that are not Parquet, are left to the engine that wrote them. If the process is killed before the commit, its
new files stay in the table's directory; no snapshot refers to them.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ValidationException
from pyiceberg.io.pyarrow import ArrowAccessor, ArrowProjectionVisitor, pyarrow_to_schema
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import prune_columns, visit_with_partner
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType

from skylarkmq.clients.spark.tables.data_files import DataFileWriter, target_of
from skylarkmq.clients.spark.tables.pyiceberg_table import in_files
from skylarkmq.clients.spark.tables.results import Compacted, MaintenanceError, OnProgress

SMALL: Final = 0.75  # of the target size
COMMITS: Final = 10  # attempts
COMMIT_BYTES: Final = 1 << 30  # of small files
BATCH_BYTES: Final = 8 << 20  # in memory
MAX_BATCH_ROWS: Final = 1 << 16
READ_BYTES: Final = 1 << 20
MAX_FORMAT_VERSION: Final = 2  # tables of version 3 have ids of rows, which PyIceberg does not keep
COMPACTION_ID: Final = "skylark.compaction-id"


def compact(table: Any, file_bytes: int, on_progress: OnProgress) -> Compacted:
    """Rewrite the small files of each partition as files of about `file_bytes`. Raises MaintenanceError."""
    if table.metadata.format_version > MAX_FORMAT_VERSION:
        raise MaintenanceError(
            f"PyIceberg cannot keep the row ids of tables of format version {table.metadata.format_version}: compact "
            "the table with Spark's runtime (--engine spark)"
        )
    groups = list(in_commits(small_files(table, file_bytes)))
    before = after = rewritten = 0
    for done, files in enumerate(groups):
        on_progress(done, len(groups))
        exchange = Exchange(table, files, rewrite(table, files, file_bytes))
        exchange.commit()
        before, after = before + len(files), after + len(exchange.new)
        rewritten += sum(file.file_size_in_bytes for file in files)
    on_progress(len(groups), len(groups))
    return Compacted(before, after, rewritten)


# Which files.


def small_files(table: Any, file_bytes: int) -> list[list[Any]]:
    """Return the small files by partition; a partition with one small file needs no compaction."""
    partitions: dict[Any, list[Any]] = defaultdict(list)
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < SMALL * file_bytes
        if is_small and not task.delete_files and task.file.file_format == FileFormat.PARQUET:
            partitions[task.file.spec_id, task.file.partition].append(task.file)
    return [files for files in partitions.values() if len(files) > 1]


def in_commits(partitions: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Yield the files of each commit: whole partitions, of about COMMIT_BYTES."""
    waiting: list[Any] = []
    size = 0
    for files in partitions:
        waiting += files
        size += sum(file.file_size_in_bytes for file in files)
        if size >= COMMIT_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


# Rows.


def rewrite(table: Any, files: list[Any], file_bytes: int) -> list[Any]:
    """Write the rows of these files to new files; return their DataFiles. Raises MaintenanceError."""
    reader = FileReader(table)
    writer = DataFileWriter(target_of(table, file_bytes))
    new = in_files(writer, (batch for file in files for batch in reader.batches(file)))
    rows, expected = (sum(file.record_count for file in some) for some in (new, files))
    if rows != expected:
        writer.abort()
        raise MaintenanceError(f"the files to compact have {expected} rows, but {rows} were read: nothing was changed")
    return new


class FileReader:
    """Reads data files of a table, as rows of the table's current schema."""

    def __init__(self, table: Any) -> None:
        self._io = table.io
        self._schema = table.schema()
        self._specs = table.specs()
        self._names = table.name_mapping()
        self._version = table.metadata.format_version
        columns = {number: self._schema.find_type(number) for number in self._schema.field_ids}
        self._ids = {number for number, kind in columns.items() if not isinstance(kind, MapType | ListType)}

    def batches(self, file: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a Parquet file; columns that it lacks are null, or the constant of its partition."""
        with self._io.new_input(file.file_path).open() as source:
            parquet = pq.ParquetFile(source, buffer_size=READ_BYTES)
            found = pyarrow_to_schema(parquet.schema_arrow, self._names, True, self._version)
            present = prune_columns(found, self._ids, select_full_types=False)
            constants = self._constants(file, found.field_ids)
            visitor = ArrowProjectionVisitor(
                present,
                downcast_ns_timestamp_to_us=True,
                projected_missing_fields=constants,
                allow_timestamp_tz_mismatch=True,
            )
            columns = [column.name for column in present.columns]
            for batch in parquet.iter_batches(rows_in_batch(parquet.metadata), columns=columns):
                projected = visit_with_partner(self._schema, batch, visitor, ArrowAccessor(present))
                yield pa.RecordBatch.from_struct_array(projected)

    def _constants(self, file: Any, present: set[int]) -> dict[int, Any]:
        fields = zip(self._specs[file.spec_id].fields, file.partition, strict=True)
        return {
            field.source_id: value
            for field, value in fields
            if isinstance(field.transform, IdentityTransform) and field.source_id not in present and value is not None
        }


def rows_in_batch(metadata: Any) -> int:
    """Return how many rows of a Parquet file have about BATCH_BYTES, by the row group with the largest rows."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    row_bytes = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)))


# The commit.


class Exchange:
    """A commit that replaces files of a table. `new` have the rows of `old`."""

    def __init__(self, table: Any, old: list[Any], new: list[Any]) -> None:
        self.new = new
        self._table = table
        self._old = old
        self._spec = table.spec().spec_id
        self._summary = {COMPACTION_ID: str(uuid.uuid4())}

    def commit(self) -> None:
        """Replace the files; repeated if another writer commits first. Raises MaintenanceError."""
        for _ in range(COMMITS):
            self._table.refresh()
            if self._is_committed():
                return
            if not self._can_commit():
                break
            try:
                self._attempt()
                return
            except (CommitFailedException, ValidationException):
                continue
            except CommitStateUnknownException as error:
                self._table.refresh()
                if self._is_committed():
                    return
                raise MaintenanceError(
                    "the catalog did not report whether it made the commit; no row is lost or doubled. Run the "
                    f"command again ({error})"
                ) from error
        self._table.refresh()
        if self._is_committed():
            return
        for file in self.new:
            self._table.io.delete(file.file_path)
        raise MaintenanceError(
            "other writers changed the table each time before the commit: nothing was changed. Run the command again"
        )

    def _is_committed(self) -> bool:
        summaries = (snapshot.summary for snapshot in self._table.snapshots() if snapshot.summary is not None)
        return any(self._summary.items() <= summary.additional_properties.items() for summary in summaries)

    def _can_commit(self) -> bool:
        if self._table.spec().spec_id != self._spec:  # PyIceberg adds files with the current spec
            return False
        current = {task.file.file_path for task in self._table.scan().plan_files() if not task.delete_files}
        return all(file.file_path in current for file in self._old)

    def _attempt(self) -> None:
        summary = self._summary
        with (
            self._table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=summary).overwrite() as overwrite,
        ):
            for file in self._old:
                overwrite.delete_data_file(file)
            for file in self.new:
                overwrite.append_data_file(file)
