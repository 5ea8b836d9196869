"""One message on its way into the log, and the result."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import Buffer

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue


class PutStatus(Enum):
    """Result of an append. docs/reference/disk.md, "Put results", lists which of them store the message."""

    PENDING = auto()  # in the open batch, or written and not yet flushed (SYNC_FLUSH) or copied (SYNC_MASTER)
    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()  # stored, visible later: the flush took longer than syncFlushTimeout
    FLUSH_SLAVE_TIMEOUT = auto()  # stored and visible: the copy took longer than slaveTimeout
    SLAVE_NOT_AVAILABLE = auto()  # stored and visible: no replica that could copy it is connected
    SERVICE_NOT_AVAILABLE = auto()  # the store is read-only, full or stopped, or the flush failed
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    SYSTEM_BUSY = auto()  # all buffers of the transient store pool wait for the disk
    UNKNOWN_ERROR = auto()  # the write failed


class PythonAppend(msgspec.Struct, gc=False):
    """A message as the processor passes it, completed by the log. `Dispatch` gets the same object.

    `body` may be a view into a receive buffer: the log does not use it after `commit` returns. `properties` are the
    final bytes. `tags_code` is the tag's hash; for the schedule topic the store replaces it with the delivery time.
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
    queue: "ConsumeQueue | None" = None  # queue of its unit; None for prepared and rollback records

    keys: list[bytes] | None = None  # its index keys (protocol.disk.index_keys), if the caller has computed them


def python_settle(appends: Sequence[PythonAppend], status: PutStatus) -> None:
    """Set this status on all appends that are PENDING."""
    pending = PutStatus.PENDING
    for append in appends:
        if append.status is pending:
            append.status = status


_compiled = compiled.load("record")
if TYPE_CHECKING or _compiled is None:
    Append = PythonAppend
    settle = python_settle
else:
    _compiled.set_initial_status(PutStatus.PENDING)
    Append = _compiled.Append
    settle = _compiled.settle
