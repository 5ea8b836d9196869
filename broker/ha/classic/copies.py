"""Slaves as copies: what a SYNC_MASTER waits for.

A send waits until `inSyncReplicas` - 1 slaves, but at least one, have reported its end. With one slave this is the rule
of RocketMQ 4.9: any slave's report counts, and what was reported once stays copied if the slave disconnects. With more
it is the rule of 5.3. A report is what the slave has written, not what it has synced.

A send does not wait if fewer slaves are connected and less than `haSlaveFallbehindMax` behind: SLAVE_NOT_AVAILABLE.
"""

from collections.abc import Callable, Iterable
from typing import Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ha.config import ReplicationConfig
from skylarkmq.broker.ha.status import COMMIT_BOUNDS_S
from skylarkmq.broker.store.log.append import PutStatus


class SlaveCopies:
    """The `Copies` of a SYNC_MASTER. `acked`: the last reports of the connected slaves.

    Set by `MessageStore.replicate`: `moved`. It is of the flush of the log, which reads `copied`.
    """

    is_visible_first: Final = True  # a message is readable once this broker's own flush allows it

    def __init__(self, config: ReplicationConfig, acked: Callable[[], Iterable[int]]) -> None:
        self._acked = acked
        self._fall_behind_max = config.ha_slave_fallbehind_max
        self.needed = max(1, config.in_sync_replicas - 1)
        self.timeout_ms = config.slave_timeout
        self.copied = 0
        self.commit_s = Histogram(COMMIT_BOUNDS_S)
        self.moved: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<SlaveCopies copied={self.copied} needed={self.needed}>"

    def admits(self, end: int) -> PutStatus | None:
        """Return None if enough slaves are close enough, else SLAVE_NOT_AVAILABLE."""
        close = sum(end - acked < self._fall_behind_max for acked in self._acked())
        return None if close >= self.needed else PutStatus.SLAVE_NOT_AVAILABLE

    def may_seem_torn(self, end: int) -> None:
        """Do nothing: a classic slave that differs is found by an operator."""

    def reported(self) -> None:
        """Take the reports of the slaves into account: one has changed."""
        ends = sorted(self._acked(), reverse=True)
        if len(ends) >= self.needed and ends[self.needed - 1] > self.copied:
            self.copied = ends[self.needed - 1]
            self.moved()
