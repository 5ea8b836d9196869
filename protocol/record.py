"""The CommitLog record: the one layout that the store, pull responses, clients and offline readers share.

Big-endian, no padding. With 8-byte hosts (IPv4), body length B, topic length T, properties length P:

     0  4  total size, these four bytes included      48  8   born host: address, then port as int32
     4  4  magic: V1 daa320a7, V2 daa320ab            56  8   store timestamp, ms
     8  4  body CRC (31 bits, of the stored bytes)    64  8   store host
    12  4  queue id                                   72  4   reconsume times
    16  4  flag (the application's)                   76  8   prepared transaction offset
    20  8  queue offset                               84  4   body length
    28  8  physical offset                            88  B   body, compressed if sysFlag says so
    36  4  sysFlag                                    ..  1   topic length (V1) / 2 (V2), then T bytes of topic
    40  8  born timestamp, ms                         ..  2   properties length, then P bytes of properties

so 91 + B + T + P bytes; one more for V2, twelve more for each IPv6 host (20 bytes instead of 8, told by sysFlag
bits 4 and 5). V2 exists for topics longer than 127 bytes. The end of a log segment that no record fits into holds a
blank: the number of bytes left, and its own magic cbd43194.

`parse` looks at one position and answers with one of four things: a `Record`, a `Blank`, `END` (nothing was written
here) or `Damaged` with its reason. It never raises over what it reads. Not everything can be checked: only the body
has a checksum, so a caller who knows position and queue offset compares them with the record's own.

Source: docs/formats.md, "CommitLog record".
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import msgspec
from isal.isal_zlib import crc32

from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message import MessageExt, decode_properties
from skylarkmq.protocol.message_id import known_host

Buffer: TypeAlias = bytes | bytearray | memoryview
PlainReader: TypeAlias = Callable[[memoryview, int, bool, list[MessageExt]], int]

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
CRC_MASK: Final = 0x7FFFFFFF
BLANK_SIZE: Final = 8
MAX_V1_TOPIC_BYTES: Final = 127
MAX_PROPERTIES_BYTES: Final = 32767
HOST_FLAGS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

# Where a field lies that is read or patched on its own.
BODY_CRC_AT: Final = 8
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36

SMALLEST_RECORD: Final = 91  # no body, topic nor properties, IPv4
LONGEST_HEAD: Final = 112  # everything before the body, IPv6

BLANK: Final = Struct(">ii")
_START: Final = Struct(">iiiiiqqiq")
_INT64: Final = Struct(">q")


class Layout(NamedTuple):
    """What depends on the two address families.

    `head` packs everything before the body: size, magic, body CRC, queue id, flag, queue offset, physical offset,
    sysFlag, born timestamp, born host (bytes), stamp (bytes: store timestamp and store host, which a batch shares),
    reconsume times, prepared transaction offset, body length. `shared` packs what messages sent together have in
    common of that, from the sysFlag to the prepared transaction offset, and `alike` the head with it as bytes.
    `fixed_size` counts all but body, topic, properties and the topic's length; `middle` reads from the born host to the
    body length.
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

_PLAIN: Final = Struct(">iiiiiqqiq8sq8siqi").unpack_from  # all before the body, with IPv4 hosts
_PLAIN_SIZE: Final = LAYOUTS[8, 8].head.size

# Two big-endian bytes for every legal properties length; a lookup costs a quarter of packing.
LENGTH_PREFIX: Final = [length.to_bytes(2, "big") for length in range(MAX_PROPERTIES_BYTES + 1)]


class Record(msgspec.Struct, gc=False):
    """A record found at `position` of `source`; body and properties are cut out only when asked for."""

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
        """The body as stored (perhaps compressed): a view, valid as long as `source` is."""
        return self.source[self.body_at : self.body_at + self.body_size]

    @property
    def properties(self) -> bytes:
        """The properties as stored, without their length."""
        return bytes(self.source[self.properties_at : self.position + self.size])

    @property
    def keys(self) -> list[bytes] | None:
        """What the record is found by: nobody has looked yet (an append of broker.store may know it)."""
        return None


class Blank(msgspec.Struct, frozen=True):
    """The rest of a segment: `size` bytes from here to its end, these 8 included."""

    size: int


class End(msgspec.Struct, frozen=True):
    """Nothing was ever written here: zeros, or too few bytes for anything."""


class Damaged(msgspec.Struct, frozen=True):
    """Something that is no record. `size` > 0: the length it claims, when its fields end elsewhere."""

    reason: str
    size: int = 0


class UnreadableTopic(Damaged, frozen=True):
    """A whole record whose topic is not UTF-8: readers step over it. `record` has the topic with its bytes escaped."""

    record: Record | None = None

    def __repr__(self) -> str:
        return f"UnreadableTopic({self.reason!r})"


END: Final = End()
Parsed: TypeAlias = Record | Blank | End | Damaged


def body_crc(body: Buffer) -> int:
    """CRC-32 without its top bit; of nothing: 0."""
    return crc32(body) & CRC_MASK


def topic_field(topic: bytes) -> tuple[int, bytes]:
    """`(magic, length and topic bytes)` of a topic: V1 up to 127 bytes, V2 beyond. docs/formats.md, "V1 and V2"."""
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
    """One whole record. Hosts are 8 or 20 bytes; their sysFlag bits are set here, whatever was passed."""
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
    """What stands at `at` (docs/formats.md, "Checking one record"). `check_body` False leaves the CRC out."""
    room = len(source) - at
    if room >= SMALLEST_RECORD:
        record = _parse_plain(source, at, room, check_body)
        if record is not None:
            return record
    if room < BLANK_SIZE:
        return END
    size, magic = BLANK.unpack_from(source, at)
    if magic == MAGIC_BLANK:
        return Blank(size)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return END if size == 0 and magic == 0 else Damaged(f"magic {magic & 0xFFFFFFFF:08x}")
    if size > room:
        return Damaged(f"size {size} with {room} bytes left")
    return _parse_fields(source, at, size, check_body)


def _parse_plain(source: memoryview, at: int, room: int, check_body: bool) -> Record | None:
    """A sound V1 record with IPv4 hosts, which nearly all are, in one step; None: to be looked at more closely."""
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared, body_size,
    ) = _PLAIN(source, at)  # fmt: skip
    end = at + size
    body_at = at + _PLAIN_SIZE
    topic_at = body_at + body_size + 1
    if magic != MAGIC_V1 or sys_flag & HOST_FLAGS or size > room or body_size < 0 or topic_at > end - 2:
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
    """The records of `buffer` one after the other; a blank or damage is the last thing given, if there is one."""
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
    """The record as a client sees it; body and properties are copied, so that it outlives its buffer."""
    return MessageExt(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=bytes(record.body),
        properties=decode_properties(record.properties.decode("utf-8", "replace")),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=known_host(record.born_host),
        store_timestamp=record.store_timestamp,
        store_host=known_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body_crc=record.body_crc,
        size=record.size,
    )


def decode(buffer: Buffer, *, check_body: bool = True) -> list[MessageExt]:
    """Every message of a pull response's body; ProtocolError when it is anything but whole records."""
    source = memoryview(buffer)
    messages: list[MessageExt] = []
    at, end = 0, len(source)
    while (at := read_plain(source, at, check_body, messages)) < end:
        found = parse(source, at, check_body=check_body)
        if not isinstance(found, Record):
            what = "nothing there" if found is END else found
            raise ProtocolError(f"no record at byte {at} of {end}: {what}")
        messages.append(to_message(found))
        at += found.size
    return messages


def plain_messages(source: memoryview, at: int, check_body: bool, messages: list[MessageExt]) -> int:
    """Add the plain messages that stand from `at` on to `messages`; where the first other one is, or the end."""
    while (message := _plain_message(source, at, check_body)) is not None:
        messages.append(message)
        at += message.size
    return at


def _plain_message(source: memoryview, at: int, check_body: bool) -> MessageExt | None:
    """What `parse` and `to_message` make of a V1 record with IPv4 hosts, in one step; None: ask them."""
    room = len(source) - at
    if room < SMALLEST_RECORD:
        return None
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared, body_size,
    ) = _PLAIN(source, at)  # fmt: skip
    end = at + size
    body_at = at + _PLAIN_SIZE
    topic_at = body_at + body_size + 1
    if magic != MAGIC_V1 or sys_flag & HOST_FLAGS or body_size < 0 or size > room or topic_at > end - 2:
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
    return MessageExt(
        topic, queue_id, queue_offset, physical_offset, body, properties, flag, sys_flag,
        born_timestamp, known_host(born_host), store_timestamp, known_host(store_host),
        reconsume_times, prepared, crc, size,
    )  # fmt: skip


_leaf: Final = compiled.load("messages")
read_plain: Final[PlainReader] = plain_messages if _leaf is None else _leaf.Messages(MessageExt, known_host).read
