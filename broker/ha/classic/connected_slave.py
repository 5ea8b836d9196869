"""One connected slave of a classic master: its reports in, the log out.

The first report decides where the transfer begins. 0 means the beginning of the last file, as in RocketMQ; any other
offset has to be in the log:

    requested           state       sent
    in the log          copying     the log from there on
    below its minimum   lacking     only heartbeats: retention has removed what the slave needs
    above its end       diverged    only heartbeats: the slave has bytes that this log does not have

RocketMQ sends heartbeats in the last two cases, too (#3388), but begins to send data once its log has reached the
offset: the slave then has other bytes before it than its master. Here such a slave never gets data.

A report that exceeds what was sent to the slave closes the connection, and no report above it counts: 8 arbitrary bytes
are never a copy. A slave that has reported nothing for `haHousekeepingInterval` is disconnected.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, cast

from skylarkmq.broker.ha.classic.frames import FrameError, ReportReader
from skylarkmq.broker.ha.classic.rate import TransferRate
from skylarkmq.broker.ha.classic.transfer import Log, LogTransfer
from skylarkmq.broker.ha.config import ReplicationConfig
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.remoting.sendfile import FileSends, duplicate_socket

START_AGAIN: Final = "stop the slave, empty its store directory, start it again: it then copies from the last file on"

log = logging.getLogger(__name__)


class SlaveState(Enum):
    """What a slave gets."""

    NEW = "new"  # it has not reported yet
    COPYING = "copying"
    LACKING = "lacking"
    DIVERGED = "diverged"


class Owner(Protocol):
    """The master of the slaves."""

    log: Log
    files: FileSends
    config: ReplicationConfig
    refused: Refused
    segment_bytes: int

    def is_diverged(self, host: str, offset: int) -> bool:
        """Return whether this slave's log has, or had before, more bytes than the master's log."""

    def reported(self) -> None:
        """Handle a report that counts."""

    def lost(self, slave: "ConnectedSlave") -> None:
        """Handle the end of a connection."""


class ConnectedSlave(asyncio.Protocol):
    """The connection of one slave, from its first bytes on."""

    def __init__(self, owner: Owner, transport: asyncio.Transport, now_s: Callable[[], float]) -> None:
        self._owner = owner
        self._transport = transport
        self._now_s = now_s
        self._reader = ReportReader()
        self.host, port = cast("tuple[str, int]", transport.get_extra_info("peername", ("?", 0))[:2])
        self.address = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self.state = SlaveState.NEW
        self.acked = -1  # the last report; -1: none yet
        self.behind_since_s: float | None = None  # since when the slave has lacked bytes of the log
        self._heard_s = now_s()
        config = owner.config
        self._rate = TransferRate(
            now_s, config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        )
        sock = duplicate_socket(transport)
        self._transfer: LogTransfer | None = None
        if sock is None:
            transport.abort()
        else:
            self._transfer = LogTransfer(
                sock, owner.log, owner.files, config.ha_transfer_batch_size, self._rate, self._failed
            )

    def __repr__(self) -> str:
        return f"<ConnectedSlave {self.address} {self.state.value} acked={self.acked} next={self.next_offset}>"

    @property
    def next_offset(self) -> int:
        """The offset of the next byte that is sent; -1 before the first report."""
        return -1 if self._transfer is None else self._transfer.next_offset

    @property
    def bytes_per_second(self) -> int:
        """The rate of the transfer."""
        return self._rate.bytes_per_second

    def wake(self) -> None:
        """Send what the log has got."""
        if self._transfer is not None:
            if self.behind_since_s is None and self.acked < self._owner.log.readable_offset:
                self.behind_since_s = self._now_s()
            self._transfer.wake()

    def step(self) -> None:
        """Send a heartbeat if one is due; close the connection of a silent slave."""
        config, now_s, transfer = self._owner.config, self._now_s(), self._transfer
        if now_s - self._heard_s > config.ha_housekeeping_interval / 1000:
            self._close("silent", f"no report for {config.ha_housekeeping_interval} ms")
        elif transfer is not None and now_s - transfer.last_write_s > config.ha_send_heartbeat_interval / 1000:
            transfer.heartbeat()

    def close(self) -> None:
        """Close the connection."""
        self._transport.abort()
        self._end_transfer()

    # ---------------------------------------------------------------------------------------------------------- reports

    def data_received(self, data: bytes) -> None:
        """Handle reports."""
        try:
            end = self._reader.feed(data)
        except FrameError as error:
            self._close("frame", f"not a slave of RocketMQ's classic replication: {error}")
            return
        if end is None or self._transfer is None or self._transport.is_closing():
            return
        self._heard_s = self._now_s()
        if self.state is SlaveState.NEW:
            self._begin(self._transfer, end)
        elif self.state is SlaveState.COPYING:
            self._report(end)

    def _begin(self, transfer: LogTransfer, requested: int) -> None:
        first, end = self._owner.log.min_physical_offset, self._owner.log.readable_offset
        start = requested or max(first, end - end % self._owner.segment_bytes)
        if start < first:
            self.state, reason = SlaveState.LACKING, "retention has removed what the slave needs"
        elif self._owner.is_diverged(self.host, start):
            self.state, reason = SlaveState.DIVERGED, "the slave has bytes that this log does not have"
        else:
            self.state, reason = SlaveState.COPYING, ""
        if reason:
            line = f"gets=no data requested={requested} log=[{first}, {end}) reason={reason} do={START_AGAIN}"
            self._owner.refused.note(self.state.value, self.host, line)
        else:
            log.info("slave connected peer=%s requested=%d from=%d end=%d", self.address, requested, start, end)
        self._count(requested)
        transfer.begin(start, has_data=not reason)

    def _report(self, end: int) -> None:
        if end > self.next_offset:
            self._close("report", f"a report of {end}, but only bytes below {self.next_offset} were sent")
        else:
            self._count(end)

    def _count(self, end: int) -> None:
        self.acked = end
        if end >= self._owner.log.readable_offset:
            self.behind_since_s = None
        elif self.behind_since_s is None:
            self.behind_since_s = self._now_s()
        if self.state is SlaveState.COPYING:
            self._owner.reported()

    # -------------------------------------------------------------------------------------------------------------- end

    def eof_received(self) -> bool:
        """Close the connection: the slave is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._end_transfer()
        if self.state is not SlaveState.NEW:
            log.info("slave disconnected peer=%s acked=%d reason=%s", self.address, self.acked, exc or "closed")
        self._owner.lost(self)

    def _failed(self, problem: Exception) -> None:
        log.warning("transfer to slave failed peer=%s next=%d reason=%s", self.address, self.next_offset, problem)
        self.close()

    def _close(self, kind: str, reason: str) -> None:
        self._owner.refused.note(kind, self.host, f"reason={reason}")
        self.close()

    def _end_transfer(self) -> None:
        if self._transfer is not None:
            self._transfer.close()
            self._transfer = None
