"""Data files of an Iceberg table, written by a Spark task or a compaction: Arrow batches in, DataFiles out.

    batch --split by partition--> buffers --row group--> Parquet files, each of one partition

Memory is bounded, whatever the sizes of rows and batches and the number of partitions:

    a buffer of ROW_GROUP_BYTES becomes a row group
    all buffers together      BUFFERED_BYTES; beyond that the largest becomes a row group
    open files                OPEN_FILES; beyond that the one that was not written to for the longest time is closed

A file ends at `file_bytes` (compressed). Its name is unique, so attempts of a task never write to the same file, and
files that are not committed are invisible. Columns have the field ids of the table's schema.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

ROW_GROUP_BYTES: Final = 32 << 20  # in memory, not compressed
BUFFERED_BYTES: Final = 96 << 20
OPEN_FILES: Final = 32
CODEC: Final = "write.parquet.compression-codec"
LEVEL: Final = "write.parquet.compression-level"

Partition = tuple[Any, ...]
"""The values of the fields of a partition spec, after their transforms."""


class Target(msgspec.Struct, frozen=True):
    """The table that files are written for: the parts of it that a task needs. `io` are properties of its FileIO."""

    schema: Schema
    spec: PartitionSpec
    location: str
    properties: Mapping[str, str]
    io: Mapping[str, str]
    file_bytes: int


def target_of(table: Any, file_bytes: int) -> Target:
    """Return the target for a table of PyIceberg; files have about `file_bytes` bytes at most."""
    properties, io = dict(table.properties), dict(table.io.properties)
    return Target(table.schema(), table.spec(), table.location(), properties, io, file_bytes)


class DataFileWriter:
    """Writes the rows of one task."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._io = load_file_io(dict(target.io), target.location)
        self._schema: pa.Schema = schema_to_pyarrow(target.schema)
        self._partitioning = Partitioning(target.schema, target.spec)
        self._locations = load_location_provider(target.location, dict(target.properties))
        self._files: dict[Partition, OpenFile] = {}  # the file that was written to last comes last
        self._done: list[Any] = []
        self._paths: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch; it has the columns of the table, in the table's order."""
        columns = [
            column.cast(field.type) if column.type != field.type else column
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        for partition, part in self._partitioning.split(pa.RecordBatch.from_arrays(columns, schema=self._schema)):
            file = self._files.pop(partition, None) or self._opened(partition)
            self._files[partition] = file
            file.add(part)
            if file.written_bytes >= self._target.file_bytes:
                self._close(partition)
        self._limit()

    def finish(self) -> list[Any]:
        """Close all files; return their DataFiles."""
        for partition in list(self._files):
            self._close(partition)
        return self._done

    def abort(self) -> None:
        """Delete all files."""
        with ExitStack() as steps:  # in reverse order, each even if others fail
            for path in self._paths:
                steps.callback(self._io.delete, path)
            for file in self._files.values():
                steps.callback(file.close)

    def _limit(self) -> None:
        while sum(file.buffered_bytes for file in self._files.values()) > BUFFERED_BYTES:
            max(self._files.values(), key=lambda file: file.buffered_bytes).flush()
        while len(self._files) > OPEN_FILES:
            self._close(next(iter(self._files)))

    def _opened(self, partition: Partition) -> "OpenFile":
        key = self._partitioning.key(partition)
        path = self._locations.new_data_location(f"{uuid.uuid4()}.parquet", key)
        output = self._io.new_output(path)
        self._paths.append(path)
        return OpenFile(output, self._schema, self._target.properties)

    def _close(self, partition: Partition) -> None:
        file = self._files.pop(partition)
        metadata = file.close()
        target = self._target
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=compute_statistics_plan(target.schema, dict(target.properties)),
            parquet_column_mapping=parquet_path_to_id_mapping(target.schema),
        )
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.output.location,
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            file_size_in_bytes=file.written_bytes,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        data_file.spec_id = target.spec.spec_id
        self._done.append(data_file)


class OpenFile:
    """A Parquet file that is being written, and the rows of its next row group. `output` is PyIceberg's OutputFile."""

    def __init__(self, output: Any, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        codec = properties.get(CODEC, "zstd")
        level = properties.get(LEVEL)
        self.output = output
        self.sink = output.create()
        self._writer = pq.ParquetWriter(
            self.sink,
            schema,
            compression="none" if codec == "uncompressed" else codec,
            compression_level=None if level is None else int(level),
            store_decimal_as_integer=True,
        )
        self._buffer: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self.written_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; write a row group once there are enough."""
        self._buffer.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if self._buffer:
            rows = pa.Table.from_batches(self._buffer)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._buffer, self.buffered_bytes = [], 0
            self.written_bytes = self.sink.tell()

    def close(self) -> Any:
        """Finish the file; return the metadata of its footer."""
        self.flush()
        self._writer.close()
        self.written_bytes = self.sink.tell()
        self.sink.close()
        return self._writer.writer.metadata


class Partitioning:
    """The partition spec of a table, applied to batches by PyIceberg's own transforms."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._schema = schema
        self._spec = spec
        self._keys = [KeyColumn(schema, field) for field in spec.fields]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Yield the rows of each partition; the order of rows is kept."""
        keys = [key.of(batch) for key in self._keys]
        partitions = unique_rows(keys)
        if len(partitions) == 1:
            yield partitions[0], batch
            return
        for partition in partitions:
            yield partition, batch.filter(equal_to(keys, partition))

    def key(self, partition: Partition) -> Any:
        """Return PyIceberg's key of a partition; None if the table is not partitioned."""
        if not self._spec.fields:
            return None
        pairs = zip(self._spec.fields, partition, strict=True)
        values = [PartitionFieldValue(field=field, value=value) for field, value in pairs]
        return PartitionKey(field_values=values, partition_spec=self._spec, schema=self._schema)


class KeyColumn:
    """A field of a partition spec: the values of its source column after its transform."""

    def __init__(self, schema: Schema, field: Any) -> None:
        name = schema.find_column_name(field.source_id)
        if name is None:
            raise ValueError(f"the partition field {field.name} has no source column")
        self._path = name.split(".")
        self._transform = field.transform.transform(schema.find_field(field.source_id).field_type)
        self._preserves_order = field.transform.preserves_order

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of each row. The transform runs twice if it has one result, else once for each value."""
        column = physical(column_at(batch, self._path))
        if self._preserves_order and not column.null_count and has_order(column.type):
            ends = pc.min_max(column).as_py()
            first = self._transform(ends["min"])
            if first == self._transform(ends["max"]):
                return pa.repeat(first, len(column))
        encoded = column.dictionary_encode()
        return pa.array(map(self._transform, encoded.dictionary.to_pylist())).take(encoded.indices)


def column_at(batch: pa.RecordBatch, path: list[str]) -> pa.Array:
    """Return a column, or a field of a struct column."""
    column = batch.column(path[0])
    return pc.struct_field(column, path[1:]) if path[1:] else column


def physical(column: pa.Array) -> pa.Array:
    """Return times and dates as the integers with which Iceberg's transforms calculate."""
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def has_order(kind: pa.DataType) -> bool:
    """Return whether Arrow finds the minimum of a type in Iceberg's order."""
    return bool(pa.types.is_integer(kind) or pa.types.is_large_string(kind))


def unique_rows(keys: list[pa.Array]) -> list[Partition]:
    """Return the different rows of these columns; without columns there is one, which is empty."""
    if not keys:
        return [()]
    names = [str(number) for number in range(len(keys))]
    rows = pa.table(keys, names=names).group_by(names, use_threads=False).aggregate([])
    return list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))


def equal_to(keys: Iterable[pa.Array], partition: Partition) -> pa.Array:
    """Return which rows of the columns equal a row; null equals null."""
    masks = [
        pc.is_null(key) if value is None else pc.fill_null(pc.equal(key, pa.scalar(value, key.type)), False)
        for key, value in zip(keys, partition, strict=True)
    ]
    return reduce(pc.and_, masks)
