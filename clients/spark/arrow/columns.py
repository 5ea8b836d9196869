"""From CommitLog records to an Arrow record batch, column by column.

A pull's answer and a segment hold the same bytes: records one behind the other. `walk` finds where they begin, and
`record_batch` makes the columns of clients.spark.arrow.schema of those wanted. Where all of them are plain, the
compiled leaf does (plain_columns). Else numbers are read from the heads of all records at once (record_places);
bodies, topics and properties are copied once each, by Arrow (slices); tags, keys and unique ids are looked for in all
properties at once (property_columns). There is no Python object for a row, but for those whose body is compressed.

A batch never fails over what a sender wrote: properties that are not UTF-8 are replaced where they are not, a body that
cannot be inflated is null (and logged), and so is a time that Spark has no timestamp for. Bytes that are no record are
a ProtocolError. The batch holds nothing of the buffer, which may be used again.

Source: docs/formats.md, "CommitLog record", "Properties", "System flags", "Message ids".
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skylarkmq.clients.spark.arrow.compiled_columns import plain_columns
from skylarkmq.clients.spark.arrow.property_columns import PropertyColumns, readable
from skylarkmq.clients.spark.arrow.record_layout import Ints, Places, ends_of, queue_offsets, walk
from skylarkmq.clients.spark.arrow.schema import PROPERTIES
from skylarkmq.clients.spark.arrow.slices import slices, with_nulls
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, PayloadError, inflate
from skylarkmq.protocol.message import PropertyName
from skylarkmq.protocol.record import Buffer

__all__ = [
    "OversizedBatch",
    "Places",
    "batch_of",
    "ends_of",
    "in_parts",
    "queue_offsets",
    "record_batch",
    "record_batches",
    "walk",
]

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""Of the inflated bodies in one batch; Arrow's limit for a column is 2 GiB."""
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01, and behind the last ms of 9999: what Spark and Python both have
_LAST_MS: Final = 253_402_300_800_000
_EPOCH_MS: Final = 0
_ARROWS: Final = {SysFlag.COMPRESSION_LZ4: "lz4", SysFlag.COMPRESSION_ZSTD: "zstd"}  # codecs that need no other module
_STEP_BYTES: Final = 64 * 1024
_HEX: Final = np.array([f"{byte:02X}" for byte in range(256)], "S2").view(np.uint16)


class OversizedBatch(Exception):
    """The inflated bodies of several rows exceed MAX_BATCH_BYTES: make batches of fewer rows."""


def record_batch(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, schema: pa.Schema
) -> pa.RecordBatch:
    """The rows of the records that begin at `starts` (ascending), as `schema`
    (clients.spark.arrow.schema.arrow_schema) says.

    ProtocolError if no whole record begins at one of them. OversizedBatch. ValueError: the buffer has 2 GiB or more.
    """
    return _batch(buffer, starts, lambda: Places(buffer, starts), broker_name, schema)


def record_batches(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """As `record_batch`, in several batches if compressed bodies need more memory than MAX_BATCH_BYTES."""
    return in_parts(len(starts), lambda rows: record_batch(buffer, starts[rows], broker_name, schema))


def in_parts(count: int, make: Callable[[slice], pa.RecordBatch], first: int = 0) -> Iterator[pa.RecordBatch]:
    """The batch that `make` makes of `count` rows from `first` on; of each half where it raises OversizedBatch."""
    try:
        batch = make(slice(first, first + count))
    except OversizedBatch:
        half = count // 2
        yield from in_parts(half, make, first)
        yield from in_parts(count - half, make, first + half)
    else:
        yield batch


def batch_of(places: Places, broker_name: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """The same of records that were looked at before."""
    return _batch(places.buffer, places.starts, lambda: places, broker_name, schema)


def _batch(
    buffer: Buffer, starts: Ints, places: Callable[[], Places], broker_name: str | None, schema: pa.Schema
) -> pa.RecordBatch:
    columns = plain_columns(buffer, starts)
    if columns is None:
        columns = _columns(places())
    columns["key"] = _first_of(columns["keys"])
    columns["brokerName"] = pa.repeat(pa.scalar(broker_name, pa.string()), len(starts))
    if columns["msgId"].null_count:
        columns["msgId"] = _with_offset_ids(columns["msgId"], places())
    if PROPERTIES in schema.names:
        columns[PROPERTIES] = _properties(places()).maps(schema.field(PROPERTIES).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _columns(places: Places) -> dict[str, pa.Array]:
    """What `plain_columns` would give, of any records."""
    data = pa.py_buffer(places.buffer)
    properties = _properties(places)
    return {
        "body": _bodies(data, places),
        "topic": topics(data, places),
        "queueId": pa.array(places.queue_ids),
        "queueOffset": pa.array(places.queue_offsets),
        "storeTimestamp": _timestamps(places.store_timestamps),
        "bornTimestamp": _timestamps(places.born_timestamps),
        "tags": properties.values(PropertyName.TAGS.encode()),
        "keys": properties.values(PropertyName.KEYS.encode()),
        "msgId": properties.values(PropertyName.UNIQ_KEY.encode()),
        "flag": pa.array(places.flags),
        "reconsumeTimes": pa.array(places.reconsume_times),
    }


def _properties(places: Places) -> PropertyColumns:
    strings = slices(pa.py_buffer(places.buffer), places.property_begins, places.ends, pa.binary())
    return PropertyColumns(strings)


def topics(data: pa.Buffer, places: Places) -> pa.Array:
    """The topics of records; ProtocolError where one is not UTF-8."""
    found = slices(data, places.topic_begins, places.topic_ends, pa.string())
    as_bytes = found.view(pa.binary())
    if readable(as_bytes) is not as_bytes:
        for row, topic in enumerate(as_bytes.to_pylist()):
            if topic.decode("utf-8", "replace").encode() != topic:
                places.refuse(row, "topic is not UTF-8")
    return found


def _first_of(keys: pa.Array) -> pa.Array:
    """What stands before the first space that follows something; null where there is nothing."""
    if not pc.any(pc.match_substring(keys, " ")).as_py():
        return keys
    firsts = pc.list_element(pc.split_pattern(pc.utf8_ltrim(keys, " "), " ", max_splits=1), 0)
    return pc.if_else(pc.equal(firsts, ""), pa.scalar(None, pa.string()), firsts)


def _timestamps(milliseconds: Ints) -> pa.Array:
    """µs as Spark wants them; null beyond its years."""
    is_known = (milliseconds >= _FIRST_MS) & (milliseconds < _LAST_MS)
    if is_known.all():
        return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))
    known = np.where(is_known, milliseconds, _EPOCH_MS)
    return with_nulls(pa.array(known * 1000).view(pa.timestamp("us", tz="UTC")), is_known)


def _with_offset_ids(unique: pa.Array, places: Places) -> pa.Array:
    """The senders' ids, and where there is none the offset id."""
    missing = np.flatnonzero(unique.is_null().to_numpy(zero_copy_only=False))
    return pc.replace_with_mask(unique, unique.is_null(), _offset_ids(places, missing))


def _offset_ids(places: Places, rows: Ints) -> pa.Array:
    """Store host and physical offset of these records, in upper-case hex."""
    longer = np.broadcast_to(places.store_v6, (len(places),))[rows]
    hosts = places.store_hosts[rows]
    raw = np.frombuffer(places.buffer, np.uint8)
    offsets = places.physical_offsets[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
    texts = np.empty(len(rows), object)
    for host_size in (8, 20):
        alike = np.flatnonzero(longer == host_size - 8)
        as_bytes = np.concatenate((raw[hosts[alike, None] + np.arange(host_size)], offsets[alike]), axis=1)
        width = 2 * as_bytes.shape[1]
        texts[alike] = _HEX[as_bytes].view(f"S{width}").reshape(-1).astype(f"U{width}")
    return pa.array(texts, pa.string())


# --- bodies ---------------------------------------------------------------------------------------


def _bodies(data: pa.Buffer, places: Places) -> pa.Array:
    """As their senders gave them."""
    stored = slices(data, places.body_begins, places.body_ends, pa.binary())
    compressed = np.flatnonzero(places.sys_flags & SysFlag.COMPRESSED)
    if not len(compressed):
        return stored
    inflated: list[bytes | None] = []
    total = 0
    for row in compressed.tolist():
        inflated.append(body := _inflated(stored[row].as_buffer(), row, places))
        total += len(body or b"")
        if total > MAX_BATCH_BYTES and len(places) > 1:
            raise OversizedBatch(f"the bodies of {len(places)} rows exceed {MAX_BATCH_BYTES} bytes when inflated")
    is_compressed = np.zeros(len(places), np.bool_)
    is_compressed[compressed] = True
    return pc.replace_with_mask(stored, pa.array(is_compressed), pa.array(inflated, pa.binary()))


def _inflated(body: pa.Buffer, row: int, places: Places) -> bytes | None:
    sys_flag = int(places.sys_flags[row])
    codec = _ARROWS.get(sys_flag & SysFlag.COMPRESSION_TYPE_MASK)
    try:
        return inflate(memoryview(body), sys_flag) if codec is None else _inflated_by_arrow(body, codec)
    except (PayloadError, OSError, pa.ArrowInvalid) as problem:
        place = int(places.queue_ids[row]), int(places.queue_offsets[row])
        log.warning("body left out, it cannot be inflated queue_id=%d queue_offset=%d error=%s", *place, problem)
        return None


def _inflated_by_arrow(body: pa.Buffer, codec: str) -> bytes:
    """Step by step: `read` makes room for all that it may return, and never gives that back if it fails."""
    payload = bytearray()
    step = memoryview(bytearray(_STEP_BYTES))
    with pa.input_stream(body, compression=codec) as stream:
        while count := stream.readinto(step):
            payload += step[:count]
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise PayloadError(f"the {codec} body is larger than {MAX_PAYLOAD_BYTES} bytes when inflated")
    return bytes(payload)
