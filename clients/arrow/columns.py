"""From CommitLog records to an Arrow record batch, column by column.

A pull response and a segment hold the same bytes: consecutive records. `walk` finds where the records begin, and
`record_batch` builds the columns of clients/arrow/schema.py that are wanted, and no others. If all records have the
common layout, the compiled module extracts their parts (compiled_columns). Otherwise numbers are read from the headers
of all records at once (record_layout); Arrow copies bodies, topics and properties once each (slices); tags, keys and
unique ids are extracted from all properties at once (property_columns). No Python object is created per row, except for
rows with compressed bodies.

A batch does not fail because of content that a producer wrote: invalid UTF-8 in properties is replaced, a body that
cannot be decompressed is null (and logged), and a time outside the years 1 to 9999 is null. Bytes that are not a record
raise ProtocolError. The batch keeps no reference to the buffer, so the buffer can be reused.

Source: docs/reference/disk.md, "CommitLog record"; docs/reference/wire.md, "Properties", "System flags", "Message ids".
"""

import logging
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skylarkmq.clients.arrow.compiled_columns import common_columns
from skylarkmq.clients.arrow.property_columns import PropertyColumns, with_valid_utf8
from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, ends_of, queue_offsets, walk
from skylarkmq.clients.arrow.schema import PROPERTIES, TYPES, Columns
from skylarkmq.clients.arrow.slices import (
    array_of,
    booleans,
    content,
    repeated,
    strings,
    take_slices,
    truths,
    with_nulls,
)
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, PayloadError, inflate
from skylarkmq.protocol.message import PropertyName
from skylarkmq.protocol.message_id import cached_host
from skylarkmq.protocol.record import Buffer

__all__ = [
    "OversizedBatch",
    "RecordLayout",
    "ends_of",
    "queue_offsets",
    "record_batch",
    "record_batches",
    "split_batches",
    "stored_columns",
    "walk",
]

log = logging.getLogger(__name__)

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of the decompressed bodies of one batch; Arrow's limit for a column is 2 GiB."""
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01, and after the last ms of 9999: the range of Spark and Python
_LAST_MS: Final = 253_402_300_800_000
_EPOCH_MS: Final = 0
_ARROWS: Final = {SysFlag.COMPRESSION_LZ4: "lz4", SysFlag.COMPRESSION_ZSTD: "zstd"}  # codecs that need no other module
_SPACE: Final = ord(" ")
_STEP_BYTES: Final = 64 * 1024
_HEX: Final = np.array([f"{byte:02X}" for byte in range(256)], "S2").view(np.uint16)
_DERIVED: Final = {"key": "keys", "brokerName": None}  # the other columns have a stored column of the same name


class OversizedBatch(Exception):
    """The decompressed bodies of several rows exceed MAX_BATCH_BYTES: build batches of fewer rows."""


def record_batch(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, columns: Columns
) -> pa.RecordBatch:
    """Return the records that begin at `starts` (ascending) as one batch.

    Raises ProtocolError if a position is not the begin of a whole record (as far as the columns need the record),
    OversizedBatch, and ValueError for a buffer of 2 GiB or more.
    """
    stored = {stored for name in columns.names if (stored := _DERIVED.get(name, name)) is not None}
    made = stored_columns(buffer, starts, stored, decode=columns.decode)
    derive(made, buffer, starts, decode=columns.decode)
    for name in {"bornHost", "storeHost"} & made.keys():
        made[name] = made[name].dictionary_decode()
    if "brokerName" in columns.names:
        made["brokerName"] = repeated(broker_name, len(starts))
    return pa.RecordBatch.from_arrays([made[name] for name in columns.names], schema=columns.schema)


def derive(made: dict[str, pa.Array], buffer: Buffer, starts: Ints, *, decode: bool) -> None:
    """Replace stored columns of these records, which may have any order, by the columns of a batch; add `key`.

    Hosts become dictionary arrays.
    """
    if "keys" in made:
        made["key"] = _first_of(made["keys"])
    if "msgId" in made and made["msgId"].null_count:
        made["msgId"] = _with_offset_ids(made["msgId"], buffer, starts)
    if PROPERTIES in made:
        made[PROPERTIES] = _properties(made[PROPERTIES], decode=decode)
    for name in {"bornHost", "storeHost"} & made.keys():
        made[name] = _host_texts(made[name])


def record_batches(
    buffer: Buffer, starts: NDArray[np.int64], broker_name: str | None, columns: Columns
) -> Iterator[pa.RecordBatch]:
    """As `record_batch`, in several batches if compressed bodies need more memory than MAX_BATCH_BYTES."""
    return split_batches(len(starts), lambda rows: record_batch(buffer, starts[rows], broker_name, columns))


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


def stored_columns(
    buffer: Buffer, starts: Ints, names: Collection[str], *, decode: bool = True, encoded: Collection[str] = ()
) -> dict[str, pa.Array]:
    """Return stored columns (clients/arrow/compiled_columns.py) of these records by name.

    With `decode`, bodies are decompressed. The columns of `encoded` are dictionary arrays. Raises ProtocolError,
    OversizedBatch.
    """
    columns = common_columns(buffer, starts, names, decode=decode, encoded=encoded)
    if columns is None:
        columns = numpy_columns(RecordLayout(buffer, starts), names, decode=decode, encoded=encoded)
    return columns


def numpy_columns(
    layout: RecordLayout, names: Collection[str], *, decode: bool = True, encoded: Collection[str] = ()
) -> dict[str, pa.Array]:
    """Return what `common_columns` would return, for records of any layout."""
    parts = _Parts(layout, decode)
    columns = {name: _NUMPY[name](parts) for name in names}
    return columns | {name: columns[name].dictionary_encode() for name in encoded}


class _Parts:
    """Parts of records that several columns share."""

    def __init__(self, layout: RecordLayout, decode: bool) -> None:
        self.layout = layout
        self.decode = decode
        self.data = pa.py_buffer(layout.buffer)

    @cached_property
    def property_strings(self) -> pa.Array:
        return with_valid_utf8(take_slices(self.data, self.layout.property_begins, self.layout.ends, pa.binary()))

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(self.property_strings)


_NUMPY: Final[dict[str, Callable[[_Parts], pa.Array]]] = {
    "body": lambda parts: _bodies(parts.data, parts.layout, decode=parts.decode),
    "topic": lambda parts: topics(parts.data, parts.layout),
    "queueId": lambda parts: array_of(parts.layout.queue_ids),
    "queueOffset": lambda parts: array_of(parts.layout.queue_offsets),
    "physicalOffset": lambda parts: array_of(parts.layout.physical_offsets),
    "preparedTransactionOffset": lambda parts: array_of(parts.layout.prepared_transaction_offsets),
    "storeTimestamp": lambda parts: _timestamps(parts.layout.store_timestamps),
    "bornTimestamp": lambda parts: _timestamps(parts.layout.born_timestamps),
    "tags": lambda parts: parts.properties.values(PropertyName.TAGS.encode()),
    "keys": lambda parts: parts.properties.values(PropertyName.KEYS.encode()),
    "msgId": lambda parts: parts.properties.values(PropertyName.UNIQ_KEY.encode()),
    "properties": lambda parts: parts.property_strings,
    "flag": lambda parts: array_of(parts.layout.flags),
    "sysFlag": lambda parts: array_of(parts.layout.sys_flags),
    "bodyCrc": lambda parts: array_of(parts.layout.body_crcs),
    "reconsumeTimes": lambda parts: array_of(parts.layout.reconsume_times),
    "bornHost": lambda parts: _hosts(parts.data, parts.layout.born_hosts, parts.layout.born_v6),
    "storeHost": lambda parts: _hosts(parts.data, parts.layout.store_hosts, parts.layout.store_v6),
}


def _properties(strings: pa.Array, *, decode: bool) -> pa.Array:
    """Return the properties as maps, or as the strings of the records."""
    return PropertyColumns(strings).maps(TYPES[PROPERTIES]) if decode else strings.view(pa.string())


def _hosts(data: pa.Buffer, begins: Ints, longer: Ints | int) -> pa.Array:
    """Return the hosts, 8 bytes each; IPv6 hosts are longer."""
    return take_slices(data, begins, begins + 8 + longer, pa.binary())


def _host_texts(hosts: pa.Array) -> pa.Array:
    """Return `address:port` of each host as a dictionary array, with brackets around IPv6 addresses."""
    encoded = hosts.dictionary_encode()  # itself if it is one
    texts = [address_text(cached_host(host)) for host in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, strings(texts))


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
    trimmed = pc.utf8_ltrim(keys, " ")
    raw, bounds = content(trimmed)
    begins, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)  # a null has no bytes
    spaces = np.append(np.flatnonzero(raw == _SPACE), len(raw))
    ends = np.minimum(spaces[np.searchsorted(spaces, begins)], ends)
    return take_slices(trimmed.buffers()[2] or pa.py_buffer(b""), begins, ends, pa.string(), ends > begins)


def _timestamps(milliseconds: Ints) -> pa.Array:
    """Return timestamps in µs, Spark's unit; null outside the years 1 to 9999."""
    is_known = (milliseconds >= _FIRST_MS) & (milliseconds < _LAST_MS)
    if is_known.all():
        return array_of(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))
    known = np.where(is_known, milliseconds, _EPOCH_MS)
    return with_nulls(array_of(known * 1000).view(pa.timestamp("us", tz="UTC")), is_known)


def _with_offset_ids(unique: pa.Array, buffer: Buffer, starts: Ints) -> pa.Array:
    """Return the producers' unique ids; the offset id for messages without one."""
    is_missing = truths(unique.is_null())
    missing = starts[is_missing]
    order = np.argsort(missing)
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    found = _offset_ids(RecordLayout(buffer, missing[order])).take(array_of(rows))
    return pc.replace_with_mask(unique, booleans(is_missing), found)


def _offset_ids(layout: RecordLayout) -> pa.Array:
    """Return store host and physical offset of each record, in upper-case hex."""
    longer = np.broadcast_to(layout.store_v6, (len(layout),))
    raw = np.frombuffer(layout.buffer, np.uint8)
    offsets = layout.physical_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    texts = np.empty(len(layout), object)
    for host_size in (8, 20):
        alike = np.flatnonzero(longer == host_size - 8)
        hosts = raw[layout.store_hosts[alike, None] + np.arange(host_size)]
        as_bytes = np.concatenate((hosts, offsets[alike]), axis=1)
        width = 2 * as_bytes.shape[1]
        texts[alike] = _HEX[as_bytes].view(f"S{width}").reshape(-1).astype(f"U{width}")
    return strings(texts.tolist())


# --- bodies ---------------------------------------------------------------------------------------


def _bodies(data: pa.Buffer, layout: RecordLayout, *, decode: bool) -> pa.Array:
    """Return the bodies as the producers sent them, decompressed, or as they are stored."""
    stored = take_slices(data, layout.body_begins, layout.body_ends, pa.binary())
    compressed = np.flatnonzero(layout.sys_flags & SysFlag.COMPRESSED)
    if not decode or not len(compressed):
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
    return pc.replace_with_mask(stored, booleans(is_compressed), pa.array(decompressed, pa.binary()))


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
    """Decompress in steps: `read` allocates all that it may return, and does not free it if it fails."""
    payload = bytearray()
    step = memoryview(bytearray(_STEP_BYTES))
    with pa.input_stream(body, compression=codec) as stream:
        while count := stream.readinto(step):
            payload += step[:count]
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise PayloadError(f"the {codec} body is larger than {MAX_PAYLOAD_BYTES} bytes after decompression")
    return bytes(payload)
