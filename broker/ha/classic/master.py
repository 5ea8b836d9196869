"""A classic master: the slaves that are connected to it, and what they have reported.

ASYNC_MASTER sends its log to slaves and does not wait for them. SYNC_MASTER also has `copies`, which the store asks
before it acknowledges a message. The bytes that are sent are those that are written, not those that are synced: after a
power cut, a slave may have more than its master (docs/reference/wire.md, "Classic replication").

The log's growth wakes the transfers once per event-loop iteration, after the responses of the iteration are written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.ha.classic.connected_slave import ConnectedSlave, SlaveState
from skylarkmq.broker.ha.classic.copies import SlaveCopies
from skylarkmq.broker.ha.classic.transfer import Log
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.ha.status import CopyState, MemberStatus, ReplicationStatus, Role
from skylarkmq.broker.remoting.sendfile import FileSends

POLL_S: Final = 0.005
REMEMBERED: Final = 64
"""Slaves whose logs have diverged, and that are still refused when this log has become longer."""


log = logging.getLogger(__name__)


class ClassicMaster:
    """The master's side of classic replication. `segment_bytes`: size of a log file. `refused` is shared with the
    port."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: Log,
        segment_bytes: int,
        refused: Refused,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.config = config
        self.log = log
        self.segment_bytes = segment_bytes
        self.refused = refused
        self.files = FileSends()
        self.slaves: list[ConnectedSlave] = []
        self.copies: SlaveCopies | None = None
        if config.broker_role is BrokerRole.SYNC_MASTER:
            self.copies = SlaveCopies(config, lambda: [slave.acked for slave in self._copying()])
        self._now_s = now_s or asyncio.get_running_loop().time
        self._diverged: deque[tuple[str, int]] = deque(maxlen=REMEMBERED)
        self._is_wake_due = False

    def __repr__(self) -> str:
        return f"<ClassicMaster slaves={len(self.slaves)} copies={self.copies!r}>"

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self.slaves)

    def accept(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve the slave of a connection, whose first bytes have been read."""
        slave = ConnectedSlave(self, transport, self._now_s)
        self.slaves.append(slave)
        transport.set_protocol(slave)
        slave.data_received(first)

    def grown(self, _end: int) -> None:
        """Send the new bytes of the log to the slaves, after this event-loop iteration."""
        if self.slaves and not self._is_wake_due:
            self._is_wake_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def step(self) -> None:
        """Run what is due: heartbeats, and the end of silent connections."""
        for slave in tuple(self.slaves):
            slave.step()

    async def caught_up(self, limit_s: float) -> None:
        """Wait until every slave that gets data has reported the end of the log, for at most `limit_s`."""
        deadline_s = self._now_s() + limit_s
        while any(slave.acked < self.log.readable_offset for slave in self._copying()):
            if self._now_s() >= deadline_s:
                log.warning("stopping before all slaves have the end of the log status=%s", self)
                return
            await asyncio.sleep(POLL_S)

    def close(self) -> None:
        """Close all connections."""
        for slave in tuple(self.slaves):
            slave.close()
        self.files.close()

    def _wake(self) -> None:
        self._is_wake_due = False
        for slave in tuple(self.slaves):
            slave.wake()

    def _copying(self) -> list[ConnectedSlave]:
        return [slave for slave in self.slaves if slave.state is SlaveState.COPYING]

    # ------------------------------------------------------------------------------------------------- calls of a slave

    def is_diverged(self, host: str, offset: int) -> bool:
        """Return whether this slave's log has, or had before, more bytes than this one. Such a slave gets no data, so
        it reports the same offset ever since."""
        if offset > self.log.readable_offset and (host, offset) not in self._diverged:
            self._diverged.append((host, offset))
        return (host, offset) in self._diverged

    def reported(self) -> None:
        """Handle a report that counts."""
        if self.copies is not None:
            self.copies.reported()

    def lost(self, slave: ConnectedSlave) -> None:
        """Forget a connection."""
        if slave in self.slaves:
            self.slaves.remove(slave)

    # ----------------------------------------------------------------------------------------------------------- status

    def status(self) -> ReplicationStatus:
        """Return the state for operators. The master counts as a copy of its own log."""
        end, copies = self.log.readable_offset, self.copies
        members = tuple(self._member(slave, end) for slave in self.slaves if slave.state is not SlaveState.NEW)
        return ReplicationStatus(
            role=Role.LEADER,
            end=end,
            committed=end if copies is None else copies.copied,
            min_in_sync=1 if copies is None else 1 + copies.needed,
            in_sync=1 + sum(member.state is CopyState.IN_SYNC for member in members),
            members=members,
            refused=dict(self.refused.counts),
            commit_s=None if copies is None else copies.commit_s,
        )

    def _member(self, slave: ConnectedSlave, end: int) -> MemberStatus:
        lag_bytes = end - slave.acked
        is_close = slave.state is SlaveState.COPYING and lag_bytes < self.config.ha_max_gap_not_in_sync
        since_s = slave.behind_since_s
        return MemberStatus(
            name=slave.host,
            address=slave.address,
            state=CopyState.IN_SYNC if is_close else CopyState.BEHIND,
            acked=slave.acked,
            lag_bytes=lag_bytes,
            lag_ms=0 if since_s is None else int((self._now_s() - since_s) * 1000),
            sent=slave.next_offset,
            bytes_per_second=slave.bytes_per_second,
        )
