"""Messages as values: names, properties, hashes, and the struct that a stored record decodes to.

On the wire and on disk properties are one string: `name 0x01 value 0x02`, entry after entry, without any escaping. A
reader accepts the last entry with or without its 0x02, skips entries without a name or without a value, and takes the
last of duplicate entries. `decode_properties` and `property_value` follow exactly these rules. `property_value` does so
without a dict, because the send path needs only three names out of ten.

The hash of a tag is Java's: h = 31 * h + u over the UTF-16 units u, wrapped to a signed 32-bit number. Index keys and
the fingerprints of heartbeats use the same hash.

A batch body is a sequence of small records (`BatchRecord`), each with the properties of one message.

Sources: docs/reference/wire.md, "Properties", "Java hash", "Names", "Batch body".
"""

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import mul
from typing import Final, Protocol

import msgspec

from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, ResponseCode, is_internal_topic
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, inflate
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message_id import encode_host, encode_offset_id

# --- properties -----------------------------------------------------------------------------------

NAME_END: Final = "\x01"
ENTRY_END: Final = "\x02"
MAX_PROPERTIES_BYTES: Final = 32_767


class PropertyName:
    """Property names with a meaning in the protocol; user properties share the same map."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    UNIQ_KEY: Final = "UNIQ_KEY"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    CLUSTER: Final = "CLUSTER"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    TRANSACTION_PREPARED: Final = "TRAN_MSG"
    PRODUCER_GROUP: Final = "PGROUP"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    TRANSACTION_IMMUNITY_S: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_HALF_OFFSET: Final = "TRAN_PREPARED_HALF_OFFSET"  # ours, only in RMQ_SYS_TRANS_HALF_TOPIC
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    POP_CHECKPOINT: Final = "POP_CK"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    MESSAGE_TYPE: Final = "MSG_TYPE"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    INNER_NUM: Final = "INNER_NUM"
    CRC32: Final = "__CRC32#"


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """Return the property string, with 0x02 after every entry; None values are left out.

    Raises ValueError for an entry that would be read back differently: an empty name, 0x01 or 0x02 in a name, or 0x02
    in a value.
    """
    entries = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name or NAME_END in name or ENTRY_END in name or ENTRY_END in value:
            raise ValueError(f"no property can be written as {name!r}={value!r}: 0x01 and 0x02 separate entries")
        entries.append(f"{name}{NAME_END}{value}{ENTRY_END}")
    return "".join(entries)


def decode_properties(text: str) -> dict[str, str]:
    """Return the properties in a property string. Invalid entries are skipped; nothing is raised."""
    entries = [entry.partition(NAME_END) for entry in text.split(ENTRY_END)]
    return {name: value for name, _, value in entries if name and value}


def property_value(text: str, name: str) -> str | None:
    """Return the same as `decode_properties(text).get(name)`, without building the dict."""
    _, found, tail = text.rpartition(f"\x02{name}\x01")
    if not found:
        if not text.startswith(f"{name}\x01"):
            return None
        tail = text[len(name) + 1 :]
    # An empty value counts as absent; an earlier duplicate may have a value.
    return tail.partition(ENTRY_END)[0] or decode_properties(text).get(name)


# --- hashes ---------------------------------------------------------------------------------------

_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in range(512))


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: signed 32 bits, over UTF-16 units."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode()[::-1]
    else:
        raw = text.encode("utf-16-le", "surrogatepass")
        units = struct.unpack(f"<{len(raw) // 2}H", raw)[::-1]
    if len(units) <= len(_POWERS):
        unsigned: int = sum(map(mul, units, _POWERS)) & 0xFFFF_FFFF
    else:
        unsigned = reduce(lambda h, unit: (31 * h + unit) & 0xFFFF_FFFF, reversed(units), 0)
    return unsigned - ((unsigned & 0x8000_0000) << 1)


@lru_cache(maxsize=4096)
def tags_code(tags: str | None) -> int:
    """Return the tags code of a queue unit: the hash of the whole TAGS text, 0 without tags. Recent results are
    cached."""
    return java_hash(tags) if tags else 0


# --- names ----------------------------------------------------------------------------------------

MAX_TOPIC_LENGTH: Final = 127
MAX_GROUP_LENGTH: Final = 255
MAX_STORED_TOPIC_LENGTH: Final = 255
"""Limit for the topic of a record or of a queue's directory: a retry topic is longer than its group's name."""
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_PATTERN: Final = "^[%|a-zA-Z0-9_-]+$"


def check_topic_name(topic: str | None) -> None:
    """Raise RequestError(INVALID_PARAMETER) with RocketMQ's remark unless `topic` is a valid topic name."""
    _check_name("topic", topic, MAX_TOPIC_LENGTH)


def check_client_topic(topic: str | None) -> None:
    """Raise RequestError(INVALID_PARAMETER) unless clients may create a topic of this name: it must be a valid topic
    name; the name of a retry or dead-letter topic must contain a valid group name."""
    check_topic_name(topic)
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if topic is not None and topic.startswith(prefix):
            check_group_name(topic.removeprefix(prefix))


def check_group_name(group: str | None) -> None:
    """Raise RequestError(INVALID_PARAMETER) unless `group` is a valid group name: 1 to 255 of a topic name's
    characters."""
    _check_name("group", group, MAX_GROUP_LENGTH)


def is_storable_topic(topic: str) -> bool:
    """Return whether the topic may be stored in a record and be part of a path: 1 to 255 valid characters."""
    return len(topic) <= MAX_STORED_TOPIC_LENGTH and _NAME.fullmatch(topic) is not None


def is_client_topic(topic: str) -> bool:
    """Return whether a client's message may be stored in this topic: it is storable and not one of the broker's own."""
    return len(topic) <= MAX_STORED_TOPIC_LENGTH and _is_client_topic(topic)


@lru_cache(maxsize=4096)
def _is_client_topic(topic: str) -> bool:
    return is_storable_topic(topic) and not is_internal_topic(topic)


def is_group_name(name: str) -> bool:
    """Return whether `name` is a valid group name, by the rules of `check_group_name`."""
    return len(name) <= MAX_GROUP_LENGTH and _NAME.fullmatch(name) is not None


def _check_name(kind: str, name: str | None, max_length: int) -> None:
    if name is None or not name.strip():
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"The specified {kind} is blank.")
    if _NAME.fullmatch(name) is None:
        remark = f"The specified {kind} contains illegal characters, allowing only {_NAME_PATTERN}"
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
    if len(name) > max_length:
        raise RequestError(ResponseCode.INVALID_PARAMETER, f"The specified {kind} is longer than {kind} max length.")


# --- messages -------------------------------------------------------------------------------------


class Message(msgspec.Struct):
    """A message to be sent. `keys` is a sequence, or one text of keys separated by spaces; the index splits it
    there."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ""
    properties: dict[str, str] = {}
    flag: int = 0

    def all_properties(self) -> dict[str, str]:
        """Return a new dict: `properties` plus KEYS and TAGS."""
        keys = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        named = {PropertyName.KEYS: keys, PropertyName.TAGS: self.tags}
        return self.properties | {name: value for name, value in named.items() if value}


class MessageExt(msgspec.Struct):
    """A stored message, as `protocol.record` decodes it. Times in ms; hosts as (ip, port); `body` as it is stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    size: int

    @property
    def tags(self) -> str:
        """The tag, by which consumers filter; empty without a tag."""
        return self.properties.get(PropertyName.TAGS, "")

    @property
    def keys(self) -> list[str]:
        """Keys under which the index finds the message."""
        return self.properties.get(PropertyName.KEYS, "").split()

    @property
    def uniq_key(self) -> str:
        """The unique id that the producer set; empty if it set none."""
        return self.properties.get(PropertyName.UNIQ_KEY, "")

    @property
    def offset_msg_id(self) -> str:
        """The message ID made of the broker's address and the position in its log."""
        return encode_offset_id(encode_host(*self.store_host), self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The message ID for applications: the unique id that the producer set, else the offset id."""
        return self.uniq_key or self.offset_msg_id

    def payload(self, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
        """Return the body as the producer passed it. Raises PayloadError if it is damaged or exceeds `max_bytes`."""
        return inflate(self.body, self.sys_flag, max_bytes)


# --- batches --------------------------------------------------------------------------------------

_BATCH_HEAD: Final = struct.Struct(">iiiii")  # total size, magic 0, body crc 0, flag, body length
_BATCH_LENGTHS: Final = struct.Struct(">12xii")  # flag and body length of the head
_PROPERTIES_LENGTH: Final = struct.Struct(">h")


class BatchRecord(msgspec.Struct, gc=False):
    """One message of a batch body. A decoded record contains views into the batch, and is valid as long as its
    buffer."""

    flag: int
    body: bytes | memoryview
    properties: bytes | memoryview


class BatchPart(Protocol):
    """What a batch contains of a message."""

    @property
    def flag(self) -> int: ...
    @property
    def body(self) -> bytes | memoryview: ...
    @property
    def properties(self) -> bytes | memoryview: ...


def encode_batch(records: Iterable[BatchPart]) -> bytes:
    """Return the body of a SEND_BATCH_MESSAGE. Raises struct.error if a record's properties exceed 32,767 bytes."""
    pack_head, pack_length = _BATCH_HEAD.pack, _PROPERTIES_LENGTH.pack
    fixed = _BATCH_HEAD.size + _PROPERTIES_LENGTH.size
    parts: list[bytes | memoryview] = []
    for record in records:
        body, properties = record.body, record.properties
        body_size, properties_size = len(body), len(properties)
        head = pack_head(fixed + body_size + properties_size, 0, 0, record.flag, body_size)
        parts += (head, body, pack_length(properties_size), properties)
    return b"".join(parts)


def decode_batch(body: bytes | bytearray | memoryview) -> list[BatchRecord]:
    """Return the messages of a batch body, as views into it. Raises RequestError(SYSTEM_ERROR) if it is damaged.

    The total size of each record is ignored: the lengths inside decide, as in RocketMQ.
    """
    return [BatchRecord(*parts) for parts in batch_records(body)]


def batch_records(body: bytes | bytearray | memoryview) -> list[tuple[int, memoryview, bytes]]:
    """Return flag, body (a view) and properties (a copy) of each message. Raises the same error as `decode_batch`."""
    view = memoryview(body)
    copy = bytes(body)  # slicing short properties from bytes costs half as much as from a view
    unpack_lengths, unpack_properties_length = _BATCH_LENGTHS.unpack_from, _PROPERTIES_LENGTH.unpack_from
    records = []
    at, size = 0, len(copy)
    try:
        while at < size:
            flag, body_length = unpack_lengths(copy, at)
            at += 20
            body_end = at + body_length
            (properties_length,) = unpack_properties_length(copy, body_end)
            end = body_end + 2 + properties_length
            if body_length < 0 or properties_length < 0 or end > size:
                raise struct.error("a length points outside the batch")
            records.append((flag, view[at:body_end], copy[body_end + 2 : end]))
            at = end
    except struct.error as damage:
        remark = f"the batch body of {size} bytes is damaged near byte {at}: {damage}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from damage
    return records
