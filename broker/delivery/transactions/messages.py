"""The messages of transactions, as they are stored in the log.

    half      in RMQ_SYS_TRANS_HALF_TOPIC, with REAL_TOPIC and REAL_QID; its transaction bits are 0, so it has a queue
              unit
    copy      the same message at a new offset, with the number of checks so far (TRANSACTION_CHECK_TIMES) and the
              offset of its half message: in TRAN_PREPARED_QUEUE_OFFSET, as in RocketMQ, if the copy was stored during
              the message's own immunity time or is a copy of such a copy, else in TRAN_PREPARED_HALF_OFFSET (ours)
    final     the message that consumers get after a commit: transaction bits 8, properties of the half message or copy
              byte for byte, without TRAN_PREPARED_HALF_OFFSET. Checks and discarded messages omit it too. They have
              TRAN_PREPARED_QUEUE_OFFSET only where RocketMQ delivers it: after the immunity time of a message
    op        in RMQ_SYS_TRANS_OP_HALF_TOPIC: the half message with that queue offset is decided. Ours contain one
              offset, in decimal; op messages of RocketMQ 5.3 contain several, each followed by a comma
    discard   in TRANS_CHECK_MAX_TIME_TOPIC: a half message that is no longer checked

All of them are validated when they are read, as if a client had just sent them, because other versions of the broker
let clients write to these topics through the timer topic.

Source: docs/reference/disk.md, "Half messages on disk".
"""

import re
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import redirect, redirect_encoded
from skylarkmq.broker.delivery.delay.restored_message import InvalidDestination, valid_destination
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import RequestCode, SysFlag, SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.decimals import INT32_MAX, INT64_MAX, decimal
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader
from skylarkmq.protocol.message import PropertyName, decode_properties, encode_properties, tags_code
from skylarkmq.protocol.message_id import encode_offset_id
from skylarkmq.protocol.record import Record, encode, parse

QUEUE_ID: Final = 0
"""The queue id of half messages and op messages."""
NO_HALF: Final = "not a half message, or no valid destination"
"""Why a record of the half topic is dropped."""
OP_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d\x02"
OP_TAGS_CODE: Final = tags_code("d")

_OFFSETS: Final = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19})*,?", re.ASCII)
_OP_TAG: Final = "d"
_SET_BY_BROKER: Final = (
    PropertyName.TRANSACTION_QUEUE_OFFSET,
    PropertyName.TRANSACTION_HALF_OFFSET,
    PropertyName.TRANSACTION_CHECK_TIMES,
)
_MOST_SECONDS: Final = INT64_MAX // 1_000
_TRANSACTION_ID: Final = PropertyName.TRANSACTION_ID.encode()
_NO_TRANSACTION: Final = ~int(SysFlag.TRANSACTION_MASK)


class HalfMessage(msgspec.Struct, frozen=True):
    """A half message, or a copy of one, as stored in the log. `properties` are those that clients may get."""

    record: Record
    properties: dict[str, str]
    topic: str  # the real topic
    queue_id: int
    root: int  # the queue offset of the half message that the producer sent
    delivered_properties: bytes  # `properties`, as bytes of the record

    @property
    def checks(self) -> int:
        """Return the number of checks so far."""
        return decimal(self.properties.get(PropertyName.TRANSACTION_CHECK_TIMES), 0, INT32_MAX - 1) or 0

    @property
    def unique_key(self) -> str | None:
        """Return the id of the transaction."""
        return self.properties.get(PropertyName.UNIQ_KEY)

    @property
    def group(self) -> str:
        """Return the group of its producers; "" if the property is missing."""
        return self.properties.get(PropertyName.PRODUCER_GROUP, "")

    def immunity_ms(self, default_ms: int) -> int:
        """Return the time after its birth in which it is not checked."""
        own_s = decimal(self.properties.get(PropertyName.TRANSACTION_IMMUNITY_S), -_MOST_SECONDS, _MOST_SECONDS)
        return default_ms if own_s is None or own_s == -1 else own_s * 1000

    @property
    def has_immunity(self) -> bool:
        """Return whether it sets this time itself."""
        return PropertyName.TRANSACTION_IMMUNITY_S in self.properties


def half_of(data: bytes | None) -> HalfMessage | None:
    """Return the half message in these bytes, from any topic, or None."""
    record = parse(memoryview(data)) if data is not None else None
    return half_in(record) if isinstance(record, Record) else None


def half_in(record: Record | None) -> HalfMessage | None:
    """Return the half message of a record; None if it is not one, or clients may not write to its topic.

    A copy is stored after its root: an offset of the half message that is later is ignored.
    """
    if record is None:
        return None
    delivered = record.properties
    properties = decode_properties(delivered.decode("utf-8", "replace"))
    try:
        topic, queue_id = valid_destination(
            properties.get(PropertyName.REAL_TOPIC), properties.get(PropertyName.REAL_QUEUE_ID)
        )
    except InvalidDestination:
        return None
    own = record.queue_offset
    kept_root = decimal(properties.get(PropertyName.TRANSACTION_QUEUE_OFFSET), 0, own)
    root = decimal(properties.get(PropertyName.TRANSACTION_HALF_OFFSET), 0, own) if kept_root is None else kept_root
    hidden = [PropertyName.TRANSACTION_HALF_OFFSET]
    if kept_root is None or PropertyName.TRANSACTION_IMMUNITY_S not in properties:
        hidden.append(PropertyName.TRANSACTION_QUEUE_OFFSET)
    for name in hidden:
        if properties.pop(name, None) is not None:
            delivered = _without(name, delivered)
    return HalfMessage(record, properties, topic, queue_id, own if root is None else root, delivered)


def make_half(append: Append, properties: dict[str, str]) -> None:
    """Turn a message that is about to be put into a half message.

    Its sender must not set its root or its number of checks: that could end a transaction of another producer.
    """
    for name in _SET_BY_BROKER:
        properties.pop(name, None)
    unique_key = properties.get(PropertyName.UNIQ_KEY)
    if unique_key is not None:
        properties[PropertyName.TRANSACTION_ID] = unique_key
    append.sys_flag &= _NO_TRANSACTION
    redirect(append, properties, SystemTopic.TRANSACTION_HALF, QUEUE_ID)


def make_half_encoded(append: Append, unique_key: bytes) -> None:
    """Do the same without decoding the properties."""
    append.properties += b"%b\x01%b\x02" % (_TRANSACTION_ID, unique_key)
    append.sys_flag &= _NO_TRANSACTION
    redirect_encoded(append, SystemTopic.TRANSACTION_HALF, QUEUE_ID)


def final_of(half: HalfMessage) -> Append:
    """Return the final message of a committed half message."""
    record = half.record
    return Append(
        half.topic,
        half.queue_id,
        record.body,
        half.delivered_properties,
        tags_code(half.properties.get(PropertyName.TAGS)),
        record.flag,
        record.sys_flag & _NO_TRANSACTION | SysFlag.TRANSACTION_COMMIT,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.physical_offset,
    )


def copy_of(half: HalfMessage, root: int | None, checks: int, *, is_immune: bool = False) -> Append:
    """Return a copy of a half message with this number of checks; `root` None: a transaction of its own.

    `is_immune`: the copy is stored during the immunity time that the message sets itself.
    """
    properties = dict(half.properties)
    properties[PropertyName.TRANSACTION_CHECK_TIMES] = str(checks)
    if root is None:
        properties.pop(PropertyName.TRANSACTION_QUEUE_OFFSET, None)
    elif is_immune:
        properties[PropertyName.TRANSACTION_QUEUE_OFFSET] = str(root)
    elif PropertyName.TRANSACTION_QUEUE_OFFSET not in properties:
        properties[PropertyName.TRANSACTION_HALF_OFFSET] = str(root)
    encoded = encode_properties(properties).encode("utf-8", "replace")
    return _again(half, SystemTopic.TRANSACTION_HALF, encoded)


def discard_of(half: HalfMessage) -> Append:
    """Return the message for a half message that is no longer checked."""
    return _again(half, SystemTopic.TRANSACTION_CHECK_MAX, half.delivered_properties)


def _again(half: HalfMessage, topic: str, properties: bytes) -> Append:
    record = half.record
    return Append(
        topic,
        QUEUE_ID,
        record.body,
        properties,
        tags_code(half.properties.get(PropertyName.TAGS)),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        0,
        False,
    )


def op_of(offset: int, now_ms: int, store_host: bytes) -> Append:
    """Return the op message that marks the half message at this queue offset as decided."""
    return Append(
        SystemTopic.TRANSACTION_OP,
        QUEUE_ID,
        b"%d" % offset,
        OP_PROPERTIES,
        OP_TAGS_CODE,
        0,
        0,
        now_ms,
        store_host,
    )


def decided_by(op: Record) -> list[int] | None:
    """Return the queue offsets in an op message; None if it is invalid.

    Op messages from brokers have the tag "d" and were never sent to another topic; their body contains offsets in
    decimal, separated or followed by commas.
    """
    properties = decode_properties(op.properties.decode("utf-8", "replace"))
    if properties.get(PropertyName.TAGS) != _OP_TAG or PropertyName.REAL_TOPIC in properties:
        return None
    body = bytes(op.body).decode("ascii", "replace")
    if _OFFSETS.fullmatch(body) is None:
        return None
    offsets = [decimal(text) for text in body.split(",") if text]
    return None if None in offsets else [offset for offset in offsets if offset is not None]


def check_request_of(half: HalfMessage, copy: Append, store_host: bytes, broker_name: str) -> RemotingCommand:
    """Return CHECK_TRANSACTION_STATE (39) for this half message, which the log contains as `copy`."""
    header = CheckTransactionHeader(
        tran_state_table_offset=copy.queue_offset,
        commit_log_offset=copy.physical_offset,
        msg_id=half.unique_key,
        transaction_id=half.unique_key,
        offset_msg_id=encode_offset_id(store_host, copy.physical_offset),
        topic=SystemTopic.TRANSACTION_HALF,
        bname=broker_name,
    )
    body = encode(
        topic=half.topic,
        body=copy.body,
        properties=_without(PropertyName.TRANSACTION_HALF_OFFSET, copy.properties),
        queue_id=half.queue_id,
        queue_offset=copy.queue_offset,
        physical_offset=copy.physical_offset,
        born_timestamp=copy.born_timestamp,
        born_host=copy.born_host,
        store_timestamp=copy.store_timestamp,
        store_host=store_host,
        flag=copy.flag,
        sys_flag=copy.sys_flag,
        reconsume_times=copy.reconsume_times,
    )
    return RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True)


def _without(name: str, properties: bytes) -> bytes:
    """Return a property string without one property; its other bytes stay as they are."""
    begin = name.encode() + b"\x01"
    return b"\x02".join(entry for entry in properties.split(b"\x02") if not entry.startswith(begin))
