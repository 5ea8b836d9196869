"""Trace records of RocketMQ: the history of a message, as text for `mqadmin queryMsgTraceById` and the dashboard.

Fields are separated by 0x01, records end with 0x02. A record is found by the KEYS of the message that contains it: the
id and the keys of the traced message. Source: docs/reference/wire.md, "Message traces".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.messages.message_types import message_type
from skylarkmq.protocol.message import Message, MessageExt, PropertyName

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
NO_KEYS: Final = "null"  # as Java writes it; RocketMQ cannot decode a record that ends with an empty field
MAX_BODY_CHARS: Final = 128_000
MAX_KEYS_CHARS: Final = 8_000

MESSAGE_TYPES: Final = {"normal": 0, "transaction": 1, "delay": 3, "fifo": 4}

# The outcome of a handler call, in SubAfter.
SUCCEEDED, TIMED_OUT, RAISED, RETURNED_NOTHING, LATER = range(5)


class Record(NamedTuple):
    """The keys of a record, and its text."""

    keys: tuple[str, ...]
    text: str


class Place(NamedTuple):
    """The group that makes the traces, without its namespace, and the broker's region."""

    group: str
    region: str


def sent(
    message: Message, place: Place, ids: tuple[str, str], *, store: str, begun_ms: int, cost_ms: int, succeeded: bool
) -> Record:
    """Return a `Pub` record: a message was sent. `ids`: message id and offset id; `store`: the broker's `ip:port`."""
    msg_id, offset_msg_id = ids
    properties = message.all_properties()
    keys = properties.get(PropertyName.KEYS, "")
    kind = MESSAGE_TYPES[message_type(properties)]
    fields = ("Pub", begun_ms, place.region, place.group, message.topic, msg_id, message.tags, keys, store)
    return _record((*fields, len(message.body), cost_ms, kind, offset_msg_id, _flag(succeeded)), msg_id, keys)


def begun(message: MessageExt, place: Place, request_id: str, begun_ms: int) -> Record:
    """Return a `SubBefore` record: a handler was called."""
    keys = message.properties.get(PropertyName.KEYS, "")
    fields = ("SubBefore", begun_ms, place.region, place.group, request_id, message.msg_id)
    return _record((*fields, message.reconsume_times, keys or NO_KEYS), message.msg_id, keys)


def finished(message: MessageExt, place: Place, request_id: str, *, at_ms: int, cost_ms: int, outcome: int) -> Record:
    """Return a `SubAfter` record: the handler call has ended."""
    keys = message.properties.get(PropertyName.KEYS, "")
    fields = ("SubAfter", request_id, message.msg_id, cost_ms, _flag(outcome == SUCCEEDED), keys, outcome)
    return _record((*fields, at_ms, place.group), message.msg_id, keys)


def ended(
    message: Message | MessageExt,
    place: Place,
    ids: tuple[str, str],
    *,
    store: str,
    at_ms: int,
    state: str,
    by_checker: bool,
) -> Record:
    """Return an `EndTransaction` record. `ids`: message id and transaction id."""
    msg_id, transaction_id = ids
    properties = message.properties if isinstance(message, MessageExt) else message.all_properties()
    keys, tags = properties.get(PropertyName.KEYS, ""), properties.get(PropertyName.TAGS, "")
    fields = ("EndTransaction", at_ms, place.region, place.group, message.topic, msg_id, tags, keys, store)
    kind = MESSAGE_TYPES["transaction"]
    return _record((*fields, kind, transaction_id, state, _flag(by_checker)), msg_id, keys)


def messages(topic: str, records: Iterable[Record]) -> Iterator[Message]:
    """Yield the records in as few messages as the limits of body and keys allow."""
    keys: dict[str, None] = {}
    texts: list[str] = []
    size = keys_size = 0
    for record in records:
        more = sum(len(key) + 1 for key in record.keys if key not in keys)
        if texts and (size + len(record.text) > MAX_BODY_CHARS or keys_size + more > MAX_KEYS_CHARS):
            yield _message(topic, keys, texts)
            keys, texts, size, keys_size = {}, [], 0, 0
            more = sum(len(key) + 1 for key in record.keys)
        keys.update(dict.fromkeys(record.keys))
        texts.append(record.text)
        size += len(record.text)
        keys_size += more
    if texts:
        yield _message(topic, keys, texts)


def _message(topic: str, keys: Iterable[str], texts: Sequence[str]) -> Message:
    return Message(topic, "".join(texts).encode(), keys=list(keys))


def _record(fields: Iterable[object], msg_id: str, keys: str) -> Record:
    return Record((msg_id, *keys.split()), FIELD_END.join(map(str, fields)) + RECORD_END)


def _flag(value: object) -> str:
    return "true" if value else "false"
