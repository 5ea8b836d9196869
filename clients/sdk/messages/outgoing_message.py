"""Messages prepared for sending: checked, compressed, with a message id and an encoded property string.

The requests that carry them: clients/sdk/producing/send_requests.py. Source: docs/reference/wire.md, "Send".
"""

import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_type, time_ms
from skylarkmq.clients.sdk.base.errors import ClientError, InvalidArgument, InvalidMessage, checking_argument
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.messages.compression import (
    DEFAULT_LEVELS,
    Compression,
    check_codec,
    compress,
    compression_flags,
)
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import (
    ENTRY_END,
    MAX_PROPERTIES_BYTES,
    NAME_END,
    BatchRecord,
    Message,
    PropertyName,
    check_topic_name,
    encode_batch,
    encode_properties,
)
from skylarkmq.protocol.message_id import UniqueIds

BATCH_RECORD_OVERHEAD: Final = 22  # bytes of a record besides body and properties
UNENCODABLE: Final = (TypeError, ValueError, AttributeError, OverflowError, struct.error)
"""The errors of encoding a message whose fields have wrong types or values."""
_LEVELS: Final[dict[Compression, tuple[int, int]]] = {"zlib": (0, 9), "lz4": (0, 16), "zstd": (1, 22)}
_NOT_IN_BATCHES: Final = frozenset({PropertyName.DELAY, PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS})
_SURELY_FIT: Final = MAX_PROPERTIES_BYTES // 4  # characters of KEYS and TAGS that fit in any encoding, with UNIQ_KEY


class Outgoing(msgspec.Struct, gc=False, frozen=True):
    """A message or batch, ready to be sent. `msg_id` is its UNIQ_KEY; for a batch it has the keys of all its
    messages."""

    topic: str
    body: bytes
    properties: str
    msg_id: str
    born_ms: int
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False


class Preparation:
    """Prepares the messages of one producer. InvalidArgument if the codec is unknown or its package is missing."""

    def __init__(self, ids: UniqueIds, settings: ProducerSettings, compression: Compression | None = "zlib") -> None:
        self._ids = ids
        self._max_bytes = settings.max_message_bytes
        self._compression = compression
        self._compress_from = settings.compress_above_bytes
        self._level = 0
        self._compression_flags = 0
        if compression is None:
            self._compress_from = sys.maxsize
        else:
            with checking_argument("compression"):
                check_codec(compression)
                level = settings.compression_level
                self._level = DEFAULT_LEVELS[compression] if level is None else level
                self._compression_flags = compression_flags(compression)
            least, most = _LEVELS[compression]
            if not least <= self._level <= most:
                raise InvalidArgument(f"compression_level of {compression} must be {least} to {most}, not {level}")

    def __repr__(self) -> str:
        return f"<Preparation {self._compression}>"

    def one(self, message: Message, now_ms: int) -> Outgoing:
        """Return one message, ready to be sent. InvalidMessage."""
        try:
            body = message.body
            if len(body) > self._max_bytes:
                raise self._too_large(len(body), message.topic)
            if message.properties:
                properties = message.all_properties()
                msg_id = properties.setdefault(PropertyName.UNIQ_KEY, self._ids.next(now_ms))
                text = _property_text(properties, message.topic)
            else:
                msg_id = self._ids.next(now_ms)
                text = _named_text(message, msg_id)
            sys_flag = 0
            if len(body) >= self._compress_from and self._compression is not None:
                compressed = compress(body, self._compression, self._level)
                if len(compressed) < len(body):
                    body, sys_flag = compressed, self._compression_flags
        except InvalidMessage:
            raise
        except UNENCODABLE as error:
            raise invalid_message(message, error) from error
        return Outgoing(message.topic, body, text, msg_id, now_ms, sys_flag, message.flag)

    def batches(self, messages: Sequence[Message], now_ms: int) -> list[Outgoing]:
        """Return messages of one topic as the fewest requests that the size limit allows, in order. InvalidMessage."""
        if not messages:
            raise InvalidMessage("a batch needs at least one message")
        topic = messages[0].topic
        batches: list[Outgoing] = []
        records: list[BatchRecord] = []
        msg_ids: list[str] = []
        size = 0

        def close() -> None:
            batches.append(Outgoing(topic, encode_batch(records), "", ",".join(msg_ids), now_ms, is_batch=True))
            records.clear()
            msg_ids.clear()

        for message in messages:
            record, msg_id = _record(message, topic, self._ids.next(now_ms))
            record_size = BATCH_RECORD_OVERHEAD + len(record.body) + len(record.properties)
            if record_size > self._max_bytes:
                raise self._too_large(record_size, topic)
            if records and size + record_size > self._max_bytes:
                close()
                size = 0
            records.append(record)
            msg_ids.append(msg_id)
            size += record_size
        close()
        return batches

    def _too_large(self, size: int, topic: str) -> InvalidMessage:
        return InvalidMessage(
            f"a body of {size} bytes exceeds the limit of {self._max_bytes}. Send smaller messages; if the broker's "
            "maxMessageSize allows more, raise max_message_bytes.",
            topic=topic,
        )


def invalid_message(message: object, error: Exception) -> InvalidMessage:
    """Return the error for a message whose fields cannot be encoded."""
    topic = message.topic if isinstance(message, Message) and isinstance(message.topic, str) else None
    name = "a message" if message is None or isinstance(message, Message) else f"a {type(message).__name__}"
    return InvalidMessage(
        f"{name} cannot be sent: {error}. A message has a text as topic, bytes as body, and texts as tags, keys and "
        "properties.",
        topic=topic,
    )


def scheduled(
    message: Message, delay: timedelta | None, deliver_at: datetime | None, delay_level: int | None
) -> Message:
    """Return the message with one of the three times as a property. InvalidArgument unless exactly one is given."""
    if [delay, deliver_at, delay_level].count(None) != 2:
        raise InvalidArgument("give one of delay, deliver_at and delay_level")
    if delay is not None:
        check_type("delay", delay, timedelta)
        name, number = PropertyName.TIMER_DELAY_MS, int(delay.total_seconds() * 1000)
    elif deliver_at is not None:
        name, number = PropertyName.TIMER_DELIVER_MS, time_ms("deliver_at", deliver_at)
    else:
        check_type("delay_level", delay_level, int)
        name, number = PropertyName.DELAY, delay_level or 0
    if number <= 0:
        raise InvalidArgument(f"{name}={number} is not in the future: choose a later time of delivery")
    with encoding(message):
        return msgspec.structs.replace(message, properties=message.properties | {name: str(number)})


@contextmanager
def encoding(message: object) -> Iterator[None]:
    """Raise InvalidMessage instead of the errors that wrong types in a message cause."""
    try:
        yield
    except ClientError:
        raise
    except UNENCODABLE as error:
        raise invalid_message(message, error) from error


def _record(message: Message, topic: str, new_id: str) -> tuple[BatchRecord, str]:
    if message.topic != topic:
        raise InvalidMessage(f"all messages of a batch need one topic, not {topic} and {message.topic}", topic=topic)
    properties = message.all_properties()
    if not _NOT_IN_BATCHES.isdisjoint(properties):
        raise InvalidMessage("a message with a time of delivery cannot be in a batch: send it alone", topic=topic)
    msg_id = properties.setdefault(PropertyName.UNIQ_KEY, new_id)
    return BatchRecord(message.flag, message.body, _property_text(properties, topic).encode()), msg_id


def check_topic(topic: str) -> None:
    """Raise InvalidMessage unless `topic` can be the name of a topic."""
    try:
        check_type("topic", topic, str)
        check_topic_name(topic)
    except RequestError as error:
        raise InvalidMessage(f"topic {topic!r}: {error.remark}", code=error.code, topic=topic) from error


def _named_text(message: Message, msg_id: str) -> str:
    """Return the `_property_text` of a message whose `properties` are empty."""
    keys, tags = message.keys, message.tags
    if not isinstance(keys, str):
        keys = " ".join(keys)
    if ENTRY_END in keys or ENTRY_END in tags or len(keys) + len(tags) > _SURELY_FIT:
        return _property_text(message.all_properties() | {PropertyName.UNIQ_KEY: msg_id}, message.topic)
    keys_entry = f"KEYS{NAME_END}{keys}{ENTRY_END}" if keys else ""
    tags_entry = f"TAGS{NAME_END}{tags}{ENTRY_END}" if tags else ""
    return f"{keys_entry}{tags_entry}UNIQ_KEY{NAME_END}{msg_id}{ENTRY_END}"


def _property_text(properties: dict[str, str], topic: str) -> str:
    try:
        text = encode_properties(properties)
    except ValueError as error:
        raise InvalidMessage(str(error), topic=topic) from error
    if len(text) * 3 > MAX_PROPERTIES_BYTES and len(text.encode()) > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(f"the properties exceed {MAX_PROPERTIES_BYTES} bytes", topic=topic)
    return text
