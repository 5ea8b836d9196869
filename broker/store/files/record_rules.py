"""The rules for records that may enter the log, and for records that belong to a queue. The only definition of both.

A message (from a client, from a service of the broker, or a copy of a stored one) becomes a record only if

    topic        is storable (protocol.message.is_storable_topic): at most 127 bytes, 255 for `%RETRY%`
    queue id     is 0 to 2^31 - 1
    properties   have at most 32,767 bytes; body and record are within the store's limits (CommitLog)
    other ints   fit their fields: `fits_fields`

Topic and queue id are checked once per queue, when the log creates its object: no record is put without a queue object.
Bits of sysFlag without a meaning for a client's message are cleared when the record is packed (`RECORD_FLAGS`).

Logs contain other records too: records of older versions and of other brokers, and heads torn by a power cut, because
only the body of a record has a checksum. So recovery, `store verify` and `store repair` apply the same rules
(`has_unit`, `may_have_queue`) and the same order of queue offsets (broker.store.recovery.queue_order).

Source: docs/reference/disk.md, "Checks before the log", "Dispatch".
"""

from typing import Final, Protocol

from skylarkmq.protocol.codes import RETRY_PREFIX, SysFlag
from skylarkmq.protocol.decimals import INT32_MAX
from skylarkmq.protocol.message import PropertyName, is_storable_topic, property_value
from skylarkmq.protocol.record import MAX_V1_TOPIC_BYTES, Record

MAX_RETRY_TOPIC_BYTES: Final = 255
RECORD_FLAGS: Final = int(
    SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.TRANSACTION_MASK | SysFlag.COMPRESSION_TYPE_MASK
)
"""The bits of a client's sysFlag that a record keeps. The store adds the bits of the hosts."""

INNER_BATCH: Final = 0x80
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)


class Fields(Protocol):
    """The numeric fields of a message that its record stores unchanged."""

    @property
    def queue_id(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...


def may_have_queue(topic: str, queue_id: int) -> bool:
    """Return whether a record of this topic and queue may have a queue: a directory can be made of both."""
    return 0 <= queue_id <= INT32_MAX and is_storable_topic(topic)


def may_be_put(topic: str, queue_id: int) -> bool:
    """Return whether a new record may carry this topic and queue id."""
    longest = MAX_RETRY_TOPIC_BYTES if topic.startswith(RETRY_PREFIX) else MAX_V1_TOPIC_BYTES
    return len(topic) <= longest and may_have_queue(topic, queue_id)


def fits_fields(message: Fields) -> bool:
    """Return whether every number fits its field of a record."""
    ints = message.queue_id, message.flag, message.sys_flag, message.reconsume_times
    longs = message.born_timestamp, message.prepared_transaction_offset
    return all(-(1 << 31) <= value < 1 << 31 for value in ints) and all(
        -(1 << 63) <= value < 1 << 63 for value in longs
    )


def has_unit(sys_flag: int) -> bool:
    """Return whether a record of this sysFlag gets a queue offset: non-transactional and committed ones do."""
    kind = sys_flag & _TRANSACTION
    return not kind or kind == _COMMIT


def is_inner_batch(record: Record) -> bool:
    """Return whether a record holds several messages (an inner batch of RocketMQ's batch queues)."""
    if not record.sys_flag & INNER_BATCH:
        return False
    return property_value(record.properties.decode("utf-8", "replace"), PropertyName.INNER_NUM) is not None
