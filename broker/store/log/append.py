"""One message on its way into the log, and how that ended."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue


class PutStatus(Enum):
    """What became of an append. docs/formats.md, "Put results", says which of them are stored."""

    PENDING = auto()  # in the open batch, or (SYNC_FLUSH) written and not yet flushed
    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()  # stored and visible later: the flush took longer than syncFlushTimeout
    SERVICE_NOT_AVAILABLE = auto()  # read-only, full, stopped, or the flush failed
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    SYSTEM_BUSY = auto()  # every buffer of the transient store pool waits for the disk
    UNKNOWN_ERROR = auto()  # the write failed


class PlainAppend(msgspec.Struct, gc=False):
    """What the processor knows, then what the log decided; the same object is what reput dispatches.

    `body` may be a view into a receive buffer: the log is done with it when `commit` returns. `properties` are the
    final bytes. `tags_code` is the tag's hash; for the schedule topic the store replaces it by the deliver time.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes
    tags_code: int
    flag: int
    sys_flag: int
    born_timestamp: int  # ms
    born_host: bytes  # 8 or 20 bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_flush: bool = True

    status: PutStatus = PutStatus.PENDING
    physical_offset: int = -1
    queue_offset: int = -1
    size: int = 0  # bytes of the whole record
    store_timestamp: int = 0  # ms
    queue: "ConsumeQueue | None" = None  # where its unit goes; None for prepared and rollback records

    keys: list[bytes] | None = None  # what it is found by (protocol.disk.index_keys), where its maker knows that


def plain_settle(appends: Sequence[PlainAppend], status: PutStatus) -> None:
    """Give that status to those that are PENDING."""
    pending = PutStatus.PENDING
    for append in appends:
        if append.status is pending:
            append.status = status


_leaf = compiled.load("record")
if TYPE_CHECKING or _leaf is None:
    Append = PlainAppend
    settle = plain_settle
else:
    _leaf.begin_with(PutStatus.PENDING)
    Append = _leaf.Append
    settle = _leaf.settle
