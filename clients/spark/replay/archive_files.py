"""The files of an archive, in the order in which they are replayed, and their record batches.

An archive is a directory that `mqspark-archive` has written (clients/arrow/archive_schema.py), or a directory or a
single file of Parquet with its columns. A file has the rows of a part of one broker's log, sorted by topic, queue and
offset. So the files of a broker are read in the order of the log, and the rows of each queue ascend; the replay checks
that (job.py).

Of each file, row groups that cannot have selected rows are skipped by their statistics. A batch is part of one row
group (16 MiB of the log in an archive), and has at most BATCH_ROWS rows and about BATCH_BYTES.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA, MESSAGES_DIRECTORY, MESSAGES_SUFFIX
from skylarkmq.clients.spark.replay.errors import ArchiveUnreadable, ReplayFailed
from skylarkmq.clients.spark.replay.selection import READABLE, Selection

BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 16 << 20


class ArchiveFile(NamedTuple):
    """A file with its place in the order: broker, first physical offset. `rows`: the rows of `groups`."""

    broker: str
    first: int
    path: str
    rows: int
    groups: tuple[int, ...]


class ArchiveFiles:
    """The files below a path or URI. Raises ArchiveUnreadable."""

    def __init__(
        self, files: pa_fs.FileSystem, paths: Sequence[str], selection: Selection, columns: Sequence[str]
    ) -> None:
        self._system = files
        self._columns = list(columns)
        self._files = sorted(filter(None, (self._file(path, selection) for path in paths)))

    def __repr__(self) -> str:
        return f"<ArchiveFiles {len(self._files)} files>"

    @classmethod
    def below(cls, location: str, selection: Selection, columns: Sequence[str]) -> "ArchiveFiles":
        """Return the files of an archive directory, or of a directory or file of Parquet."""
        try:
            system, path = _place_of(location)
            paths = _parquet_below(system, path)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveUnreadable(f"{location} cannot be read: {error}") from error
        if not paths:
            raise ArchiveUnreadable(f"{location} has no Parquet files: is it an archive?")
        return cls(system, paths, selection, columns)

    @classmethod
    def of(cls, locations: Sequence[str], selection: Selection, columns: Sequence[str]) -> "ArchiveFiles":
        """Return these files, which are all on one file system."""
        places = [_place_of(location) for location in locations]
        system = places[0][0] if places else pa_fs.LocalFileSystem()
        return cls(system, [path for _, path in places], selection, columns)

    @property
    def rows(self) -> int:
        """The number of rows that will be read."""
        return sum(file.rows for file in self._files)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. All are readable in a file without that column. Raises ReplayFailed for a damaged file."""
        for file in self._files:
            with self._open(file.path) as parquet:
                try:
                    yield from self._batches_of(parquet, file.groups)
                except (OSError, pa.ArrowException) as error:
                    raise ReplayFailed(f"{file.path} is damaged: {error}") from error

    def _batches_of(self, parquet: pq.ParquetFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        columns = [name for name in self._columns if name in parquet.schema_arrow.names]
        for group in groups:
            metadata = parquet.metadata.row_group(group)
            count = BATCH_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
            for batch in parquet.iter_batches(max(1, min(BATCH_ROWS, count)), [group], columns):
                yield batch.cast(pa.schema([ARCHIVE_SCHEMA.field(name) for name in batch.schema.names]))

    def _file(self, path: str, selection: Selection) -> ArchiveFile | None:
        with self._open(path) as parquet:
            metadata = parquet.metadata
            missing = sorted({*self._columns, "physicalOffset"} - {READABLE} - set(parquet.schema_arrow.names))
            if missing:
                raise ArchiveUnreadable(
                    f"{path} has no column {missing[0]}: only archives of mqspark-archive can be replayed"
                )
            _check_types(path, parquet.schema_arrow, {*self._columns, "physicalOffset"})
            ranges = [_ranges(metadata.row_group(group)) for group in range(metadata.num_row_groups)]
        groups = tuple(group for group, bounds in enumerate(ranges) if _may_match(bounds, selection))
        if not groups:
            return None
        rows = sum(metadata.row_group(group).num_rows for group in groups)
        first = min(_least(bounds, "physicalOffset", 0) for bounds in ranges)
        return ArchiveFile(min(_least(bounds, "brokerName", "") for bounds in ranges), first, path, rows, groups)

    def _open(self, path: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._system.open_input_file(path), page_checksum_verification=True)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveUnreadable(f"{path} cannot be read: {error}") from error


_OTHER_LAYOUTS: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
"""Types of the same values in another layout, as other tools write them."""


def _check_types(path: str, schema: pa.Schema, names: Collection[str]) -> None:
    """Raise ArchiveUnreadable if a column has another type than in an archive."""
    for field in schema:
        if field.name in names:
            wanted = ARCHIVE_SCHEMA.field(field.name).type
            if _OTHER_LAYOUTS.get(field.type, field.type) != wanted:
                raise ArchiveUnreadable(
                    f"the column {field.name} of {path} has the type {field.type}, and {wanted} in an archive: only "
                    "archives of mqspark-archive can be replayed"
                )


def _place_of(location: str) -> tuple[pa_fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path on it."""
    if "://" in location:
        system, path = pa_fs.FileSystem.from_uri(location)
        return system, path
    return pa_fs.LocalFileSystem(), location


def _parquet_below(system: pa_fs.FileSystem, path: str) -> list[str]:
    if system.get_file_info(path).is_file:
        return [path]
    messages = f"{path.rstrip('/')}/{MESSAGES_DIRECTORY}"
    if system.get_file_info(messages).type is pa_fs.FileType.Directory:
        path = messages
    found = system.get_file_info(pa_fs.FileSelector(path, recursive=True))
    names = [info.path for info in found if info.is_file and info.path.endswith(MESSAGES_SUFFIX)]
    return [name for name in names if not name.rpartition("/")[2].startswith((".", "_"))]


Ranges = dict[str, tuple[Any, Any]]


def _ranges(group: Any) -> Ranges:
    """Return the least and the greatest value of each column that has statistics."""
    columns = [group.column(index) for index in range(group.num_columns)]
    return {
        column.path_in_schema: (column.statistics.min, column.statistics.max)
        for column in columns
        if column.path_in_schema in _WITH_RANGES and column.is_stats_set and column.statistics.has_min_max
    }


_WITH_RANGES: Final = frozenset({"topic", "brokerName", "physicalOffset", "storeTimestamp"})


def _least(ranges: Ranges, name: str, otherwise: Any) -> Any:
    return ranges[name][0] if name in ranges else otherwise


def _may_match(ranges: Ranges, selection: Selection) -> bool:
    """Return whether a row group may have selected rows."""
    if selection.topics is not None and "topic" in ranges:
        least, most = ranges["topic"]
        if not any(least <= topic <= most for topic in selection.topics):
            return False
    if "storeTimestamp" in ranges:
        least, most = (int(time.timestamp() * 1000) for time in ranges["storeTimestamp"])
        if selection.since_ms is not None and most < selection.since_ms - 1:
            return False
        if selection.until_ms is not None and least > selection.until_ms:
            return False
    return True
