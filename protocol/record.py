"""The commit log record: one layout for the store, pull responses, clients and offline readers.

Big-endian, no padding. With 8-byte hosts (IPv4), body length B, topic length T, properties length P:

     0  4  total size, these four bytes included      48  8   born host: address, then port as int32
     4  4  magic: V1 daa320a7, V2 daa320ab            56  8   store timestamp, ms
     8  4  body CRC (31 bits, of the stored bytes)    64  8   store host
    12  4  queue id                                   72  4   reconsume times
    16  4  flag (the application's)                   76  8   prepared transaction offset
    20  8  queue offset                               84  4   body length
    28  8  physical offset                            88  B   body, compressed if its flag in sysFlag is set
    36  4  sysFlag                                    ..  1   topic length (V1) / 2 (V2), then T bytes of topic
    40  8  born timestamp, ms                         ..  2   properties length, then P bytes of properties

so 91 + B + T + P bytes; one more for V2, twelve more for each IPv6 host (20 bytes instead of 8; sysFlag bits 4 and
5). V2 exists for topics longer than 127 bytes. If no record fits into the end of a log segment, the end contains a
blank: the number of bytes left, and the magic cbd43194.

`parse` reads one position and returns a `Record`, a `Blank`, `END` (nothing was written here) or `Damaged` with the
reason. It raises nothing, whatever the bytes are. Only the body has a checksum, so `parse` cannot detect all damage: a
caller that has position and queue offset compares them with those in the record.

Source: docs/reference/disk.md, "CommitLog record".
"""

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from isal.isal_zlib import crc32

from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message import MessageExt, PropertyName, decode_properties, property_value, tags_code
from skylarkmq.protocol.message_id import cached_host

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordReader: TypeAlias = Callable[[memoryview, int, bool, list[Any]], int]

M = TypeVar("M", bound=MessageExt)

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
CRC_MASK: Final = 0x7FFFFFFF
BLANK_SIZE: Final = 8
MAX_V1_TOPIC_BYTES: Final = 127
MAX_PROPERTIES_BYTES: Final = 32767
HOST_FLAGS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

# Positions of the fields that are read or patched separately.
BODY_CRC_AT: Final = 8
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36

SMALLEST_RECORD: Final = 91  # no body, topic nor properties, IPv4
LONGEST_HEAD: Final = 112  # everything before the body, IPv6

BLANK: Final = Struct(">ii")
_START: Final = Struct(">iiiiiqqiq")
_INT64: Final = Struct(">q")
_TAGS: Final = PropertyName.TAGS.encode()


class Layout(NamedTuple):
    """Structs for one combination of address families.

    `head` packs everything before the body: size, magic, body CRC, queue id, flag, queue offset, physical offset,
    sysFlag, born timestamp, born host (bytes), stamp (bytes: store timestamp and store host, which a batch shares),
    reconsume times, prepared transaction offset, body length. `shared` packs the part of it that is equal for messages
    that are sent together, from the sysFlag to the prepared transaction offset. `alike` packs the head with that part
    given as bytes. `fixed_size` is the record's size without body, topic, properties and the topic's length. `middle`
    reads from the born host to the body length.
    """

    head: Struct
    shared: Struct
    alike: Struct
    middle: Struct
    fixed_size: int
    host_flags: int


def _layout(born_host_size: int, store_host_size: int) -> Layout:
    head = Struct(f">iiiiiqqiq{born_host_size}s{8 + store_host_size}siqi")
    shared = Struct(f">iq{born_host_size}s{8 + store_host_size}siq")
    alike = Struct(f">iiiiiqq{shared.size}si")
    middle = Struct(f">{born_host_size}sq{store_host_size}siqi")
    flags = (SysFlag.BORN_HOST_V6 if born_host_size == 20 else 0) | (
        SysFlag.STORE_HOST_V6 if store_host_size == 20 else 0
    )
    return Layout(head, shared, alike, middle, head.size + 2, flags)


LAYOUTS: Final = {(born, store): _layout(born, store) for born in (8, 20) for store in (8, 20)}
LAYOUT_BY_FLAGS: Final = {layout.host_flags: layout for layout in LAYOUTS.values()}

COMMON_HEAD: Final = Struct(">iiiiiqqiq8sq8siqi").unpack_from  # all before the body, with IPv4 hosts
COMMON_HEAD_SIZE: Final = LAYOUTS[8, 8].head.size

# Two big-endian bytes for every valid properties length; a lookup costs a quarter of packing.
LENGTH_PREFIX: Final = [length.to_bytes(2, "big") for length in range(MAX_PROPERTIES_BYTES + 1)]


class Record(msgspec.Struct, gc=False):
    """A record at `position` of `source`. Body and properties are sliced only on access."""

    source: memoryview
    position: int
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_at: int
    body_size: int
    topic: str
    properties_at: int

    @property
    def body(self) -> memoryview:
        """The body as it is stored (perhaps compressed): a view, valid as long as `source` is."""
        return self.source[self.body_at : self.body_at + self.body_size]

    @property
    def properties(self) -> bytes:
        """The properties as they are stored, without their length."""
        return bytes(self.source[self.properties_at : self.position + self.size])

    @property
    def tags_code(self) -> int:
        """The tags code of the record's unit, from its tags."""
        properties = self.properties
        if _TAGS not in properties:
            return 0
        return tags_code(property_value(properties.decode("utf-8", "replace"), PropertyName.TAGS))

    @property
    def keys(self) -> list[bytes] | None:
        """The record's index keys; None: not determined yet. A subclass in broker.store may have them."""
        return None


class Blank(msgspec.Struct, frozen=True):
    """The unused rest of a segment: `size` bytes from here to its end, these 8 included."""

    size: int


class End(msgspec.Struct, frozen=True):
    """Nothing was written here: zeros, or too few bytes for a record or blank."""


class Damaged(msgspec.Struct, frozen=True):
    """Bytes that are not a valid record. `size` > 0: the claimed length, if only the fields end elsewhere."""

    reason: str
    size: int = 0


class UnreadableTopic(Damaged, frozen=True):
    """A whole record whose topic is not UTF-8; readers skip it. The topic of `record` contains its bytes escaped."""

    record: Record | None = None

    def __repr__(self) -> str:
        return f"UnreadableTopic({self.reason!r})"


END: Final = End()
Parsed: TypeAlias = Record | Blank | End | Damaged


def body_crc(body: Buffer) -> int:
    """Return the CRC-32 without its top bit; 0 for an empty body."""
    return crc32(body) & CRC_MASK


def topic_field(topic: bytes) -> tuple[int, bytes]:
    """Return `(magic, length and topic bytes)`: V1 up to 127 bytes, V2 beyond.

    Source: docs/reference/disk.md, "V1 and V2".
    """
    if len(topic) <= MAX_V1_TOPIC_BYTES:
        return MAGIC_V1, len(topic).to_bytes(1, "big") + topic
    return MAGIC_V2, len(topic).to_bytes(2, "big") + topic


def encode(
    *,
    topic: str,
    body: Buffer,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return one whole record. Hosts are 8 or 20 bytes; their bits in `sys_flag` are set according to their sizes."""
    layout = LAYOUTS[len(born_host), len(store_host)]
    magic, topic_bytes = topic_field(topic.encode())
    size = layout.fixed_size + len(body) + len(topic_bytes) + len(properties)
    head = layout.head.pack(
        size,
        magic,
        body_crc(body),
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag & ~HOST_FLAGS | layout.host_flags,
        born_timestamp,
        born_host,
        _INT64.pack(store_timestamp) + store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    return b"".join((head, body, topic_bytes, LENGTH_PREFIX[len(properties)], properties))


def parse(source: memoryview, at: int = 0, *, check_body: bool = True) -> Parsed:
    """Parse the bytes at `at` (docs/reference/disk.md, "Checking one record"). With `check_body` False the CRC is not
    checked."""
    remaining = len(source) - at
    if remaining >= SMALLEST_RECORD:
        record = _parse_common_layout(source, at, remaining, check_body)
        if record is not None:
            return record
    if remaining < BLANK_SIZE:
        return END
    size, magic = BLANK.unpack_from(source, at)
    if magic == MAGIC_BLANK:
        return Blank(size)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return END if size == 0 and magic == 0 else Damaged(f"magic {magic & 0xFFFFFFFF:08x}")
    if size > remaining:
        return Damaged(f"size {size} with {remaining} bytes left")
    return _parse_fields(source, at, size, check_body)


def _parse_common_layout(source: memoryview, at: int, remaining: int, check_body: bool) -> Record | None:
    """Return a valid V1 record with IPv4 hosts, by far the most common; None: `_parse_fields` has to parse it."""
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared, body_size,
    ) = COMMON_HEAD(source, at)  # fmt: skip
    end = at + size
    body_at = at + COMMON_HEAD_SIZE
    topic_at = body_at + body_size + 1
    if magic != MAGIC_V1 or sys_flag & HOST_FLAGS or size > remaining or body_size < 0 or topic_at > end - 2:
        return None
    topic_end = topic_at + source[topic_at - 1]
    properties_at = topic_end + 2
    properties_size = end - properties_at
    if topic_end - topic_at > MAX_V1_TOPIC_BYTES or not 0 <= properties_size <= MAX_PROPERTIES_BYTES:
        return None
    if source[topic_end] << 8 | source[topic_end + 1] != properties_size:
        return None
    if check_body and body_size and crc32(source[body_at : topic_at - 1]) & CRC_MASK != crc:
        return None
    try:
        topic = str(source[topic_at:topic_end], "utf-8")
    except UnicodeDecodeError:
        return None
    return Record(
        source, at, size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
        born_host, store_timestamp, store_host, reconsume_times, prepared, body_at, body_size, topic, properties_at,
    )  # fmt: skip


def _parse_fields(source: memoryview, at: int, size: int, check_body: bool) -> Parsed:
    if size < _START.size:
        return Damaged(f"size {size} is less than a record's head")
    _, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp = _START.unpack_from(
        source, at
    )
    layout = LAYOUT_BY_FLAGS[sys_flag & HOST_FLAGS]
    topic_length_size = 1 if magic == MAGIC_V1 else 2
    if size < layout.fixed_size + topic_length_size:
        return Damaged(f"size {size} is less than a record's head")
    born_host, store_timestamp, store_host, reconsume_times, prepared, body_size = layout.middle.unpack_from(
        source, at + _START.size
    )
    end = at + size
    body_at = at + layout.head.size
    topic_at = body_at + body_size + topic_length_size
    if body_size < 0 or topic_at > end:
        return Damaged(f"body length {body_size} in a record of {size} bytes")
    topic_end = topic_at + int.from_bytes(source[topic_at - topic_length_size : topic_at], "big", signed=True)
    if not topic_at <= topic_end <= end - 2:
        return Damaged(f"topic length {topic_end - topic_at} in a record of {size} bytes")
    properties_at = topic_end + 2
    properties_size = int.from_bytes(source[topic_end:properties_at], "big", signed=True)
    if properties_size < 0 or properties_at + properties_size != end:
        return Damaged(f"fields end at {properties_at + properties_size - at}, size is {size}", size)
    if check_body and body_size and crc32(source[body_at : body_at + body_size]) & CRC_MASK != crc:
        return Damaged("body CRC")
    topic = str(source[topic_at:topic_end], "utf-8", "backslashreplace")
    record = Record(
        source, at, size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp,
        born_host, store_timestamp, store_host, reconsume_times, prepared, body_at, body_size, topic, properties_at,
    )  # fmt: skip
    if "\\" in topic and not _is_utf8(source[topic_at:topic_end]):
        return UnreadableTopic("topic is not UTF-8", record=record)
    return record


def _is_utf8(data: memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def iterate(buffer: Buffer, at: int = 0, *, check_body: bool = True) -> Iterator[Record | Blank | Damaged]:
    """Yield the records of `buffer` in order. A blank or damage ends the iteration; it is yielded too."""
    source = memoryview(buffer)
    while True:
        parsed = parse(source, at, check_body=check_body)
        if isinstance(parsed, End):
            return
        yield parsed
        if not isinstance(parsed, Record):
            return
        at += parsed.size


def to_message(record: Record) -> MessageExt:
    """Return the record as a message. Body and properties are copied, so the message outlives the buffer."""
    return _message_of(record, MessageExt)


def _message_of(record: Record, kind: type[M]) -> M:
    return kind(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=bytes(record.body),
        properties=decode_properties(record.properties.decode("utf-8", "replace")),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=cached_host(record.born_host),
        store_timestamp=record.store_timestamp,
        store_host=cached_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body_crc=record.body_crc,
        size=record.size,
    )


def decode(buffer: Buffer, *, check_body: bool = True) -> list[MessageExt]:
    """Return every message of a pull response's body. Raises ProtocolError unless the body consists of whole
    records."""
    return _decode(buffer, check_body, read_common_layout, MessageExt)


def decoder_of(kind: type[M]) -> Callable[[Buffer], list[M]]:
    """Return a function that decodes as `decode` does, but makes instances of `kind`: a subclass of MessageExt whose
    further fields have defaults."""
    read = _reader_of(kind)
    return lambda buffer: _decode(buffer, True, read, kind)


def _decode(buffer: Buffer, check_body: bool, read: RecordReader, kind: type[M]) -> list[M]:
    source = memoryview(buffer)
    messages: list[M] = []
    at, end = 0, len(source)
    while (at := read(source, at, check_body, messages)) < end:
        found = parse(source, at, check_body=check_body)
        if not isinstance(found, Record):
            what = "nothing there" if found is END else found
            raise ProtocolError(f"no record at byte {at} of {end}: {what}")
        messages.append(_message_of(found, kind))
        at += found.size
    return messages


def python_read_common_layout(
    source: memoryview, at: int, check_body: bool, messages: list[Any], kind: type[MessageExt] = MessageExt
) -> int:
    """Append the V1 messages with IPv4 hosts from `at` on to `messages`; return the position of the first other record,
    or the end."""
    while (message := _common_layout_message(source, at, check_body, kind)) is not None:
        messages.append(message)
        at += message.size
    return at


def _common_layout_message(source: memoryview, at: int, check_body: bool, kind: type[MessageExt]) -> MessageExt | None:
    """Return the same as `parse` and `to_message` for a V1 record with IPv4 hosts; None: the caller has to use
    these."""
    remaining = len(source) - at
    if remaining < SMALLEST_RECORD:
        return None
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared, body_size,
    ) = COMMON_HEAD(source, at)  # fmt: skip
    end = at + size
    body_at = at + COMMON_HEAD_SIZE
    topic_at = body_at + body_size + 1
    if magic != MAGIC_V1 or sys_flag & HOST_FLAGS or body_size < 0 or size > remaining or topic_at > end - 2:
        return None
    topic_end = topic_at + source[topic_at - 1]
    properties_at = topic_end + 2
    properties_size = end - properties_at
    if topic_end - topic_at > MAX_V1_TOPIC_BYTES or not 0 <= properties_size <= MAX_PROPERTIES_BYTES:
        return None
    if source[topic_end] << 8 | source[topic_end + 1] != properties_size:
        return None
    body = bytes(source[body_at : topic_at - 1])
    if check_body and body and crc32(body) & CRC_MASK != crc:
        return None
    try:
        topic = str(source[topic_at:topic_end], "utf-8")
    except UnicodeDecodeError:
        return None
    properties = decode_properties(str(source[properties_at:end], "utf-8", "replace"))
    return kind(
        topic, queue_id, queue_offset, physical_offset, body, properties, flag, sys_flag,
        born_timestamp, cached_host(born_host), store_timestamp, cached_host(store_host),
        reconsume_times, prepared, crc, size,
    )  # fmt: skip


_compiled: Final = compiled.load("messages")


def _reader_of(kind: type[MessageExt]) -> RecordReader:
    if _compiled is None:
        return partial(python_read_common_layout, kind=kind)
    reader: RecordReader = _compiled.Messages(kind, cached_host).read
    return reader


read_common_layout: RecordReader = _reader_of(MessageExt)
