"""From CommitLog records to an Arrow record batch, column by column.

A pull response and a segment hold the same bytes: consecutive records. `walk` finds where the records begin, and
`record_batch` builds the columns of clients.arrow.schema. If all records have the common layout, the compiled
module builds them (compiled_columns). Otherwise numbers are read from the headers of all records at once
(record_layout); Arrow copies bodies, topics and properties once each (slices); tags, keys and unique ids are extracted
from all properties at once (property_columns). No Python object is created per row, except for rows with compressed
bodies.

A batch does not fail because of content that a producer wrote: invalid UTF-8 in properties is replaced, a body that
cannot be decompressed is null (and logged), and a time outside Spark's range is null. Bytes that are not a record raise
ProtocolError. The batch keeps no reference to the buffer, so the buffer can be reused.

Source: docs/formats.md, "CommitLog record", "Properties", "System flags", "Message ids".
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skylarkmq.clients.arrow.compiled_columns import common_columns
from skylarkmq.clients.arrow.property_columns import PropertyColumns, with_valid_utf8
from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, ends_of, queue_offsets, walk
from skylarkmq.clients.arrow.schema import PROPERTIES
from skylarkmq.clients.arrow.slices import take_slices, with_nulls
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, PayloadError, inflate
from skylarkmq.protocol.message import PropertyName
from skylarkmq.protocol.record import Buffer

__all__ = [
    "OversizedBatch",
    "RecordLayout",
    "batch_of_layout",
    "ends_of",
    "queue_offsets",
    "record_batch",
    "record_batches",
    "split_batches",
    "walk",
]

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of the decompressed bodies of one batch; Arrow's limit for a column is 2 GiB."""
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01, and after the last ms of 9999: the range of Spark and Python
_LAST_MS: Final = 253_402_300_800_000
_EPOCH_MS: Final = 0
_ARROWS: Final = {SysFlag.COMPRESSION_LZ4: "lz4", SysFlag.COMPRESSION_ZSTD: "zstd"}  # codecs that need no other module
_STEP_BYTES: Final = 64 * 1024
_HEX: Final = np.array([f"{byte:02X}" for byte in range(256)], "S2").view(np.uint16)


class OversizedBatch(Exception):
    """The decompressed bodies of several rows exceed MAX_BATCH_BYTES: build batches of fewer rows."""


def record_batch(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the records that begin at `starts` (ascending) as one batch.

    `schema` comes from clients.arrow.schema.arrow_schema. Raises ProtocolError if a position is not the begin of
    a whole record, OversizedBatch, and ValueError for a buffer of 2 GiB or more.
    """
    return _batch(buffer, starts, lambda: RecordLayout(buffer, starts), broker_name, schema)


def record_batches(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """As `record_batch`, in several batches if compressed bodies need more memory than MAX_BATCH_BYTES."""
    return split_batches(len(starts), lambda rows: record_batch(buffer, starts[rows], broker_name, schema))


def split_batches(count: int, make: Callable[[slice], pa.RecordBatch], first: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the batch of `count` rows from `first` on; where `make` raises OversizedBatch, the batches of each half."""
    try:
        batch = make(slice(first, first + count))
    except OversizedBatch:
        half = count // 2
        yield from split_batches(half, make, first)
        yield from split_batches(count - half, make, first + half)
    else:
        yield batch


def batch_of_layout(layout: RecordLayout, broker_name: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of records whose layout is known already."""
    return _batch(layout.buffer, layout.starts, lambda: layout, broker_name, schema)


def _batch(
    buffer: Buffer, starts: Ints, layout: Callable[[], RecordLayout], broker_name: str | None, schema: pa.Schema
) -> pa.RecordBatch:
    columns = common_columns(buffer, starts)
    if columns is None:
        columns = _columns(layout())
    columns["key"] = _first_of(columns["keys"])
    columns["brokerName"] = pa.repeat(pa.scalar(broker_name, pa.string()), len(starts))
    if columns["msgId"].null_count:
        columns["msgId"] = _with_offset_ids(columns["msgId"], layout())
    if PROPERTIES in schema.names:
        columns[PROPERTIES] = _properties(layout()).maps(schema.field(PROPERTIES).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _columns(layout: RecordLayout) -> dict[str, pa.Array]:
    """Return what `common_columns` would return, for records of any layout."""
    data = pa.py_buffer(layout.buffer)
    properties = _properties(layout)
    return {
        "body": _bodies(data, layout),
        "topic": topics(data, layout),
        "queueId": pa.array(layout.queue_ids),
        "queueOffset": pa.array(layout.queue_offsets),
        "storeTimestamp": _timestamps(layout.store_timestamps),
        "bornTimestamp": _timestamps(layout.born_timestamps),
        "tags": properties.values(PropertyName.TAGS.encode()),
        "keys": properties.values(PropertyName.KEYS.encode()),
        "msgId": properties.values(PropertyName.UNIQ_KEY.encode()),
        "flag": pa.array(layout.flags),
        "reconsumeTimes": pa.array(layout.reconsume_times),
    }


def _properties(layout: RecordLayout) -> PropertyColumns:
    strings = take_slices(pa.py_buffer(layout.buffer), layout.property_begins, layout.ends, pa.binary())
    return PropertyColumns(strings)


def topics(data: pa.Buffer, layout: RecordLayout) -> pa.Array:
    """Return the topics of the records. Raises ProtocolError for a topic that is not UTF-8."""
    found = take_slices(data, layout.topic_begins, layout.topic_ends, pa.string())
    as_bytes = found.view(pa.binary())
    if with_valid_utf8(as_bytes) is not as_bytes:
        for row, topic in enumerate(as_bytes.to_pylist()):
            if topic.decode("utf-8", "replace").encode() != topic:
                layout.fail(row, "topic is not UTF-8")
    return found


def _first_of(keys: pa.Array) -> pa.Array:
    """Return the first word of each string; null for strings without one."""
    if not pc.any(pc.match_substring(keys, " ")).as_py():
        return keys
    firsts = pc.list_element(pc.split_pattern(pc.utf8_ltrim(keys, " "), " ", max_splits=1), 0)
    return pc.if_else(pc.equal(firsts, ""), pa.scalar(None, pa.string()), firsts)


def _timestamps(milliseconds: Ints) -> pa.Array:
    """Return timestamps in µs, Spark's unit; null outside Spark's years."""
    is_known = (milliseconds >= _FIRST_MS) & (milliseconds < _LAST_MS)
    if is_known.all():
        return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))
    known = np.where(is_known, milliseconds, _EPOCH_MS)
    return with_nulls(pa.array(known * 1000).view(pa.timestamp("us", tz="UTC")), is_known)


def _with_offset_ids(unique: pa.Array, layout: RecordLayout) -> pa.Array:
    """Return the producers' unique ids; the offset id for messages without one."""
    missing = np.flatnonzero(unique.is_null().to_numpy(zero_copy_only=False))
    return pc.replace_with_mask(unique, unique.is_null(), _offset_ids(layout, missing))


def _offset_ids(layout: RecordLayout, rows: Ints) -> pa.Array:
    """Return store host and physical offset of these records, in upper-case hex."""
    longer = np.broadcast_to(layout.store_v6, (len(layout),))[rows]
    hosts = layout.store_hosts[rows]
    raw = np.frombuffer(layout.buffer, np.uint8)
    offsets = layout.physical_offsets[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
    texts = np.empty(len(rows), object)
    for host_size in (8, 20):
        alike = np.flatnonzero(longer == host_size - 8)
        as_bytes = np.concatenate((raw[hosts[alike, None] + np.arange(host_size)], offsets[alike]), axis=1)
        width = 2 * as_bytes.shape[1]
        texts[alike] = _HEX[as_bytes].view(f"S{width}").reshape(-1).astype(f"U{width}")
    return pa.array(texts, pa.string())


# --- bodies ---------------------------------------------------------------------------------------


def _bodies(data: pa.Buffer, layout: RecordLayout) -> pa.Array:
    """Return the bodies as the producers sent them, decompressed."""
    stored = take_slices(data, layout.body_begins, layout.body_ends, pa.binary())
    compressed = np.flatnonzero(layout.sys_flags & SysFlag.COMPRESSED)
    if not len(compressed):
        return stored
    decompressed: list[bytes | None] = []
    total = 0
    for row in compressed.tolist():
        decompressed.append(body := _decompressed(stored[row].as_buffer(), row, layout))
        total += len(body or b"")
        if total > MAX_BATCH_BYTES and len(layout) > 1:
            raise OversizedBatch(f"the bodies of {len(layout)} rows exceed {MAX_BATCH_BYTES} bytes after decompression")
    is_compressed = np.zeros(len(layout), np.bool_)
    is_compressed[compressed] = True
    return pc.replace_with_mask(stored, pa.array(is_compressed), pa.array(decompressed, pa.binary()))


def _decompressed(body: pa.Buffer, row: int, layout: RecordLayout) -> bytes | None:
    sys_flag = int(layout.sys_flags[row])
    codec = _ARROWS.get(sys_flag & SysFlag.COMPRESSION_TYPE_MASK)
    try:
        return inflate(memoryview(body), sys_flag) if codec is None else _decompressed_by_arrow(body, codec)
    except (PayloadError, OSError, pa.ArrowInvalid) as problem:
        position = int(layout.queue_ids[row]), int(layout.queue_offsets[row])
        log.warning("body is null, it cannot be decompressed queue_id=%d queue_offset=%d error=%s", *position, problem)
        return None


def _decompressed_by_arrow(body: pa.Buffer, codec: str) -> bytes:
    """Decompress in record_starts: `read` allocates all that it may return, and does not free it if it fails."""
    payload = bytearray()
    step = memoryview(bytearray(_STEP_BYTES))
    with pa.input_stream(body, compression=codec) as stream:
        while count := stream.readinto(step):
            payload += step[:count]
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise PayloadError(f"the {codec} body is larger than {MAX_PAYLOAD_BYTES} bytes after decompression")
    return bytes(payload)
