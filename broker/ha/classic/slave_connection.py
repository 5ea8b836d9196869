"""A classic slave's connection to the HA port of its master: transfers in (`frames.py`), reports out.

Each transfer has to begin where the copy ends. It is appended and shown, and the new end is reported: what the copy has
synced, or what it has written. A report that says the same is repeated at the heartbeat interval.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from skylarkmq.broker.ha.classic.frames import FrameError, TransferReader, pack_report
from skylarkmq.broker.store.replica.errors import ReplicaError

MAX_UNSENT_BYTES: Final = 4_096
"""Reports are left out while the master has not taken this many bytes of earlier ones."""


class Replica(Protocol):
    """The log of a store that follows. `end` and `synced` are offsets in bytes."""

    @property
    def end(self) -> int:
        """The byte after the last one that is written."""

    @property
    def synced(self) -> int:
        """The byte after the last one that is on disk."""

    def append(self, offset: int, data: bytes) -> None:
        """Write bytes at the end. Raises ReplicaError, OSError; `end` is unchanged then."""

    def show(self, limit: int) -> None:
        """Make whole records below `limit` visible. Raises ReplicaError, OSError; only a restart helps then."""

    def on_synced(self, callback: Callable[[int], None]) -> None:
        """Call back with `synced` whenever it has moved."""


class ShowError(Exception):
    """The copied log cannot be dispatched to queues; the text says what to do."""


def show(replica: Replica) -> None:
    """Make all whole records visible. Raises ShowError."""
    try:
        replica.show(replica.end)
    except ReplicaError as problem:
        raise ShowError(
            f"{problem}: stop this broker, move its storePathRootDir away, and start it again to copy the whole log"
        ) from problem
    except OSError as problem:
        raise ShowError(
            f"the queues cannot be written, {problem}: repair the disk, then restart this broker"
        ) from problem


class SlaveConnection(asyncio.Protocol):
    """One connection. `closed` ends with the reason; `begin` is the first report."""

    def __init__(self, begin: int, replica: Replica, heartbeat_s: float, reports_synced: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._heartbeat_s = heartbeat_s
        self._reports_synced = reports_synced
        self._reader = TransferReader()
        self._transport: asyncio.Transport | None = None
        self._read_s = self._written_s = self._loop.time()
        self._reported = -1
        self.begin = begin
        self.received = 0
        self.has_read = self.has_written = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write(self.begin)

    def data_received(self, data: bytes) -> None:
        self._read_s = self._loop.time()
        self.has_read = True
        try:
            self._take(data)
        except (FrameError, ReplicaError, ShowError, OSError) as problem:
            self.close(problem)

    def _take(self, data: bytes) -> None:
        replica = self._replica
        end = replica.end
        for transfer in self._reader.feed(data):
            self._check(transfer.offset)
            if transfer.data:
                replica.append(transfer.offset, transfer.data)
                self.received += len(transfer.data)
        if (expected := self._reader.expected_offset) is not None:
            self._check(expected)
        if replica.end != end:
            show(replica)
            self.report()

    def _check(self, offset: int) -> None:
        """Raise FrameError if the master does not continue where this copy ends."""
        end = self._replica.end or self.begin
        if offset != end:
            raise FrameError(f"a transfer from {offset}, but this copy ends at {end}")

    def report(self) -> None:
        """Report how far this copy is, if that has changed."""
        end = self._replica.synced if self._reports_synced else self._replica.end
        if end > self._reported:
            self._write(end)

    def tick(self, now_s: float, silence_s: float) -> None:
        """Close the connection if the master has sent nothing for `silence_s`; repeat the report at its interval."""
        if now_s - self._read_s >= silence_s:
            self.close(TimeoutError(f"the master has sent nothing for {silence_s:g} s"))
        elif now_s - self._written_s >= self._heartbeat_s:
            self._write(max(self._reported, 0))

    def _write(self, end: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            return
        self._reported = end
        self._written_s = self._loop.time()
        self.has_written = True
        transport.write(pack_report(end))

    def close(self, reason: Exception | None) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def connection_lost(self, reason: Exception | None) -> None:
        self._end(reason or ConnectionError("the master has closed the connection"))

    def _end(self, reason: Exception | None) -> None:
        if self.closed.done():
            return
        if reason is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(reason)
