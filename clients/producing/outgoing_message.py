"""A message on its way out: checked, compressed, with its id and its property string.

What request it becomes: send_requests.py. Source: docs/formats.md, "Send".
"""

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from skylarkmq.clients.errors import InvalidMessage
from skylarkmq.clients.settings import ProducerSettings
from skylarkmq.protocol.codes import SysFlag
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

BATCH_RECORD_OVERHEAD: Final = 22  # what a record has besides body and properties
_ALONE: Final = frozenset({PropertyName.DELAY, PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS})
_SURELY_FIT: Final = MAX_PROPERTIES_BYTES // 4  # characters of KEYS and TAGS, with UNIQ_KEY and whatever they are


class Outgoing(msgspec.Struct, gc=False, frozen=True):
    """What is sent; `msg_id` is the UNIQ_KEY, of a batch all of them joined by commas."""

    topic: str
    body: bytes
    properties: str
    msg_id: str
    born_ms: int
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False


def prepare(message: Message, ids: UniqueIds, now_ms: int, settings: ProducerSettings) -> Outgoing:
    """One message, ready to be sent. InvalidMessage."""
    body = message.body
    _check_size(len(body), message.topic, settings)
    if message.properties:
        properties = message.all_properties()
        msg_id = properties.setdefault(PropertyName.UNIQ_KEY, ids.next(now_ms))
        text = _property_text(properties, message.topic)
    else:
        msg_id = ids.next(now_ms)
        text = _named_text(message, msg_id)
    sys_flag = 0
    if len(body) >= settings.compress_above_bytes:
        compressed = zlib.compress(body, settings.compression_level)
        if len(compressed) < len(body):
            body, sys_flag = compressed, SysFlag.COMPRESSED
    return Outgoing(message.topic, body, text, msg_id, now_ms, sys_flag, message.flag)


def prepare_batches(
    messages: Sequence[Message], ids: UniqueIds, now_ms: int, settings: ProducerSettings
) -> list[Outgoing]:
    """Messages of one topic as few requests as the size limit allows, in their order. InvalidMessage."""
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
        record, msg_id = _record(message, topic, ids.next(now_ms))
        record_size = BATCH_RECORD_OVERHEAD + len(record.body) + len(record.properties)
        _check_size(record_size, topic, settings)
        if records and size + record_size > settings.max_message_bytes:
            close()
            size = 0
        records.append(record)
        msg_ids.append(msg_id)
        size += record_size
    close()
    return batches


def scheduled(
    message: Message, delay: timedelta | None, deliver_at: datetime | None, delay_level: int | None
) -> Message:
    """The message with one of the three as a property. ValueError if more than one is given, or one makes no sense."""
    if [delay, deliver_at, delay_level].count(None) != 2:
        raise ValueError("give one of delay, deliver_at and delay_level")
    if delay is not None:
        name, number = PropertyName.TIMER_DELAY_MS, int(delay.total_seconds() * 1000)
    elif deliver_at is not None:
        name, number = PropertyName.TIMER_DELIVER_MS, int(deliver_at.timestamp() * 1000)
    else:
        name, number = PropertyName.DELAY, delay_level or 0
    if number <= 0:
        raise ValueError(f"{name}={number} is not ahead: a message can only be delivered later than now")
    return msgspec.structs.replace(message, properties=message.properties | {name: str(number)})


def _record(message: Message, topic: str, new_id: str) -> tuple[BatchRecord, str]:
    if message.topic != topic:
        raise InvalidMessage(f"a batch has one topic: this one has {topic} and {message.topic}", topic=topic)
    properties = message.all_properties()
    if not _ALONE.isdisjoint(properties):
        raise InvalidMessage("messages with a time of delivery cannot be in a batch: send them alone", topic=topic)
    msg_id = properties.setdefault(PropertyName.UNIQ_KEY, new_id)
    return BatchRecord(message.flag, message.body, _property_text(properties, topic).encode()), msg_id


def check_topic(topic: str) -> None:
    """InvalidMessage unless `topic` can be the name of a topic."""
    try:
        check_topic_name(topic)
    except RequestError as error:
        raise InvalidMessage(f"topic {topic!r}: {error.remark}", code=error.code, topic=topic) from error


def _check_size(size: int, topic: str, settings: ProducerSettings) -> None:
    if size > settings.max_message_bytes:
        raise InvalidMessage(
            f"a body of {size} bytes exceeds the limit of {settings.max_message_bytes}. Send less at once; if the "
            "broker's maxMessageSize allows more, raise max_message_bytes.",
            topic=topic,
        )


def _named_text(message: Message, msg_id: str) -> str:
    """`_property_text` of a message without properties of its own."""
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
