"""A classic slave: copies the log of its master, byte by byte, from an HA connection (`slave_connection.py`).

    no address ── (registration, haMasterAddress) ──> connect ──> report the own end ──> transfers, each appended at
        ▲                                                                                 the end, shown, reported
        └──────────── RETRY_S after any failure, which closes the connection and is logged once ◀──┘

The first report is where the master begins. RocketMQ sends a slave without a log only its newest file. So an empty copy
asks for the bounds of the master's log and begins at its first byte. If that is byte 0, which no report can ask for, it
fetches the first record by VIEW_MESSAGE_BY_ID (33), appends it, and reports the end of that record.

A master sends heartbeats, and nothing else, to a slave whose end is not in its log. RocketMQ's slaves wait forever then
(#3388). Here the bounds are compared before a connection, and again while a connection has brought no data. A copy that
ends before the master's log begins, or after it ends, cannot be continued: the log says what to do.

Under SYNC_FLUSH a report is what the copy has synced, so a message that a SYNC_MASTER acknowledges is on two disks.
RocketMQ's slaves report what they have written.

At most one transfer (4 MiB) and one read are in memory. Source: docs/reference/wire.md, "Classic replication".
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.ha.classic.frames import FrameError
from skylarkmq.broker.ha.classic.rate import ReceivingRate
from skylarkmq.broker.ha.classic.slave_connection import Replica, ShowError, SlaveConnection, show
from skylarkmq.broker.ha.status import LeaderStatus, ReplicationStatus, Role
from skylarkmq.broker.ha.tables.master_calls import UNKNOWN_MASTER, LogBounds, MasterCalls, MasterError
from skylarkmq.broker.remoting.outbound import split_address
from skylarkmq.broker.store.replica.errors import ReplicaError

RETRY_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 3.0
SILENT_CHECK_S: Final = 30.0
"""Time between two checks of a connection that has brought no data."""
TICK_S: Final = 0.5

log = logging.getLogger(__name__)


class SlaveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a classic slave. `reports_synced`: reports are synced bytes, not written ones (SYNC_FLUSH)."""

    heartbeat_s: float = 5.0  # haSendHeartbeatInterval
    housekeeping_s: float = 20.0  # haHousekeepingInterval: a connection without bytes is closed
    reports_synced: bool = False
    segment_bytes: int = 1 << 30  # mappedFileSizeCommitLog, which must equal the master's
    retry_s: float = RETRY_S


class CopyError(Exception):
    """The copy cannot be continued from this master; the text says what to do."""


class ClassicSlave:
    """Keeps the copy of one store. `now_ms` returns Unix time."""

    def __init__(self, config: SlaveConfig, replica: Replica, calls: MasterCalls, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._replica = replica
        self._calls = calls
        self._now_ms = now_ms
        self._address: str | None = None
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: SlaveConnection | None = None
        self._blocked = ""  # why nothing is copied until a restart
        self._logged = ""  # the last problem in the log since data came
        self._refused: Counter[str] = Counter()
        self._synced = asyncio.Event()
        self._last_read_ms = self._last_write_ms = 0
        self._received = 0
        self._rate = ReceivingRate()

    def __repr__(self) -> str:
        return f"<ClassicSlave of {self._address} end={self._replica.end}>"

    def status(self) -> ReplicationStatus:
        """Return the current state, for operators."""
        connection = self._connection
        return ReplicationStatus(
            role=Role.FOLLOWER,
            end=self._replica.end,
            committed=self._replica.end,
            leader=LeaderStatus(
                address=self._address,
                is_connected=connection is not None,
                last_read_ms=self._last_read_ms,
                last_write_ms=self._last_write_ms,
                bytes_per_second=self._rate.per_second,
            ),
            refused=dict(self._refused),
            blocked=self._blocked,
        )

    # ------------------------------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Begin to copy, as soon as there is an address."""
        self._replica.on_synced(self._note_synced)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Close the connection and copy nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def copy_from(self, address: str | None) -> None:
        """Copy from this HA port (host:port) from now on. None: no master is known, and the last one is kept."""
        if address is not None and address != self._address:
            log.info("master's log address changed from=%s to=%s", self._address, address)
            self._address = address
            self._moved.set()

    @property
    def is_connected(self) -> bool:
        """Whether a connection to the HA port is open."""
        return self._connection is not None

    async def _run(self) -> None:
        while True:
            self._moved.clear()
            address = self._address
            if address is not None:
                try:
                    await self._copy(address)
                except CopyError as error:
                    self._note_problem("copy cannot be continued", error)
                except FrameError as error:
                    self._note_problem("invalid bytes", f"{error}; check that {address} is the HA port of the master")
                except ReplicaError as error:
                    self._note_problem("invalid transfer", error)
                except ShowError as error:
                    log.error("stopped copying the log reason=%s", error)
                    self._blocked = str(error)
                    return
                except (OSError, MasterError, ValueError) as error:  # ValueError: an address without a valid port
                    self._note_problem("no connection", error)
                finally:
                    self._connection = None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), self._config.retry_s)

    def _note_problem(self, kind: str, problem: object) -> None:
        """Log a problem, unless the last attempt had the same problem and no data has come since."""
        text = f"{kind}: {problem}"
        if kind != "no connection":
            self._refused[kind] += 1
        if text != self._logged:
            log.warning(
                "not copying the log master=%s reason=%s retry_s=%.0f", self._address, text, self._config.retry_s
            )
        self._logged = text

    # -------------------------------------------------------------------------------------------------- one connection

    async def _copy(self, address: str) -> None:
        """Copy until the connection ends. Raises the reason: OSError, MasterError, CopyError, FrameError,
        ReplicaError."""
        begin = await self._begin()
        await self._until_synced()
        host, port = split_address(address)
        connection = SlaveConnection(begin, self._replica, self._config.heartbeat_s, self._config.reports_synced)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: connection, host, port)
        except TimeoutError:
            raise TimeoutError(f"no connection to {address} within {CONNECT_TIMEOUT_S:g} s") from None
        self._connection = connection
        log.info("copying the log master=%s from=%d", address, begin)
        try:
            await self._supervise(connection)
        finally:
            connection.close(None)
            connection.closed.exception()  # retrieved, also if another failure came first
            if connection.received:
                self._logged = ""

    async def _supervise(self, connection: SlaveConnection) -> None:
        loop = asyncio.get_running_loop()
        next_check_s = loop.time() + SILENT_CHECK_S
        while not connection.closed.done() and not self._moved.is_set():
            await asyncio.wait([connection.closed], timeout=TICK_S)
            now_s = loop.time()
            connection.tick(now_s, self._config.housekeeping_s)
            self._take_figures(connection, now_s)
            if now_s >= next_check_s and not connection.received and self._calls.address is not None:
                next_check_s = now_s + SILENT_CHECK_S
                self._check(connection.begin, await self._calls.log_bounds())
        self._take_figures(connection, loop.time())
        if connection.closed.done():
            connection.closed.result()

    def _take_figures(self, connection: SlaveConnection, now_s: float) -> None:
        if connection.has_read:
            connection.has_read = False
            self._last_read_ms = self._now_ms()
        if connection.has_written:
            connection.has_written = False
            self._last_write_ms = self._now_ms()
        self._rate.step(now_s, connection.received)

    async def _begin(self) -> int:
        """Return the offset of the first report. An empty copy may get its first record here."""
        replica, calls = self._replica, self._calls
        await self._check_segments()
        if replica.end:
            if calls.address is not None:
                self._check(replica.end, await calls.log_bounds())
            return replica.end
        if calls.address is None:
            raise MasterError(UNKNOWN_MASTER)
        bounds = await calls.log_bounds()
        if bounds.begin or not bounds.end:
            return bounds.begin
        replica.append(0, await calls.record_at(0))
        show(replica)
        return replica.end

    async def _check_segments(self) -> None:
        """Raise CopyError if the master's segments have another size: its log has blanks where they end."""
        size = None if self._calls.address is None else await self._calls.segment_bytes()
        if size is not None and size != self._config.segment_bytes:
            raise CopyError(
                f"mappedFileSizeCommitLog is {self._config.segment_bytes}, and {size} on the master: set it to the "
                f"master's, and start this broker with an empty storePathRootDir"
            )

    def _check(self, begin: int, bounds: LogBounds) -> None:
        """Raise CopyError if a master whose log has these bounds does not send from `begin`."""
        if begin < bounds.begin:
            raise CopyError(
                f"the copy ends at {begin} and the master's log begins at {bounds.begin}: the log between them is "
                f"missing. Stop this broker, move its storePathRootDir away, and start it again to copy the whole log"
            )
        if begin > bounds.end:
            raise CopyError(
                f"the copy ends at {begin} and the master's log at {bounds.end}: the master has lost the rest, or "
                f"this is the copy of another master. If the master is right, stop this broker, move its "
                f"storePathRootDir away, and start it again. If this copy is right, start it as the master"
            )

    async def _until_synced(self) -> None:
        """Wait until the end is on disk, if reports are synced bytes: the first report is the end."""
        while self._config.reports_synced and self._replica.synced < self._replica.end:
            self._synced.clear()
            await self._synced.wait()

    def _note_synced(self, _synced: int) -> None:
        self._synced.set()
        if self._connection is not None:
            self._connection.report()
