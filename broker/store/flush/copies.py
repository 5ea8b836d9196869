"""Copies of the log on other machines: one more reason for a commit to wait before its messages are acknowledged.

A store has copies if its broker is a SYNC_MASTER, or leads the link of a group. The owner of the connections to the
replicas implements `Copies`, passes it to `LogFlush.replicate` before the first put, and calls `moved` after
each report that may have raised `copied`. `SyncQueue` decides.

    classic replication (`is_visible_first`)     acknowledged: own flush (SYNC_FLUSH) and copies     visible: own flush
    link                                         acknowledged and visible: `copied`, which includes the own flush

A commit waits up to `timeout_ms`. Then its messages get FLUSH_SLAVE_TIMEOUT in classic replication: they are stored and
visible. On a link they get SERVICE_NOT_AVAILABLE, and become visible once they are copied after all. Messages with
WAIT=false do not wait.

Source: docs/reference/disk.md, "Put results".
"""

from collections.abc import Callable
from typing import Protocol

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.log.append import PutStatus


class Copies(Protocol):
    """The progress of the replicas of one store. Only the event loop's thread uses it."""

    moved: Callable[[], None]
    """Set by the store: call it after `copied` has grown. It is cheap, however often it is called."""
    commit_s: Histogram
    """Seconds from the write of each commit until it was acknowledged after its copies; noted by the store."""

    @property
    def copied(self) -> int:
        """Every byte of the log below this offset is on as many copies as a send waits for."""

    @property
    def is_visible_first(self) -> bool:
        """Whether messages become visible by the own flush alone (classic replication). Constant."""

    @property
    def timeout_ms(self) -> int:
        """Time that a commit waits for copies (`slaveTimeout`)."""

    def may_seem_torn(self, end: int) -> None:
        """Called on a link for a commit that ends at `end`, and has properties with zero bytes: after a power cut a
        recovery takes such a record for a torn one, unless the disk says that it was synced."""

    def admits(self, end: int) -> PutStatus | None:
        """Return None if a commit that ends at offset `end` should wait for copies, otherwise the status of its
        messages: in classic replication SLAVE_NOT_AVAILABLE if no replica is connected and close enough."""


Growth = Callable[[int], None]
"""Called with an end of the log."""
