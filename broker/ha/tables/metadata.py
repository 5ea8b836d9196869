"""The tables of a classic slave: copies of its master's, by requests to the master.

    topics 21 · groups 201 · consumer offsets 43 · delay offsets 45                     every TABLES_INTERVAL_S
    request modes 402° · counts of timers 61°                                           the same; ° RocketMQ 5 only
    progress of the timers 60°                                                          every TIMERS_INTERVAL_S

The end of the master's log is asked for (28) before and after the tables. The tables are applied once the copy of the
log has reached the later end. So no table is ahead of the log: an offset never counts a message as consumed, or as
delivered, that this copy lacks. RocketMQ applies each table at once. While the log is not copied, no table changes.

Topics and groups become equal to the master's, with its DataVersion. A topic that the master no longer has is deleted
here, with its queues if these have no message from after the earlier end.

Offsets do not go back. RocketMQ overwrites every offset with its master's, so a master that comes back after a crash
takes back what consumers committed to the slave meanwhile (#1094). Here the larger offset stays, with one exception: a
master that had a larger offset at the last request, on the same connection, has been told to reset it.

Source: docs/reference/wire.md, "Slaves".
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from skylarkmq.broker.ha.tables.master_calls import UNKNOWN_MASTER, MasterCalls, MasterError
from skylarkmq.broker.ha.tables.tables import MasterTables, SlaveTables
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.timers import TimerCheck

TABLES_INTERVAL_S: Final = 10.0
TIMERS_INTERVAL_S: Final = 3.0
LOG_POLL_S: Final = 0.05

log = logging.getLogger(__name__)


class MetadataSync:
    """Keeps the tables like the master's.

    `log_end` returns the end of the copied log. `seek_master` is called at intervals while no master is known.
    """

    def __init__(
        self,
        calls: MasterCalls,
        tables: SlaveTables,
        log_end: Callable[[], int],
        seek_master: Callable[[], None] = lambda: None,
    ) -> None:
        self._calls = calls
        self._tables = tables
        self._log_end = log_end
        self._seek_master = seek_master
        self._before: Mapping[str, Mapping[int, int]] = {}
        self._of: str | None = None  # the master that `_before` is from
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        self.applied = 0
        """How many snapshots were applied since the start."""

    def __repr__(self) -> str:
        return f"<MetadataSync of {self._calls.address} applied={self.applied}>"

    def start(self) -> None:
        """Begin to copy, as soon as there is a master."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Copy nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def master_changed(self) -> None:
        """Ask the new master at once."""
        self._moved.set()

    def connection_lost(self, address: str) -> None:
        """Forget the offsets that this master had: the next process there may have older ones."""
        if address == self._of:
            self._before = {}

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tables_due_s = loop.time()
        while True:
            self._moved.clear()
            if self._calls.address is not None:
                is_due = loop.time() >= tables_due_s
                is_done = await self._attempt(self._copy_all if is_due else self._copy_timers)
                if is_due and is_done:
                    tables_due_s = loop.time() + TABLES_INTERVAL_S
            else:
                self._note_failure(UNKNOWN_MASTER)
                self._seek_master()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), TIMERS_INTERVAL_S)
                tables_due_s = loop.time()

    async def _attempt(self, copy: Callable[[], Awaitable[None]]) -> bool:
        """Run one copy; a failure is logged unless it is the same as in the last attempt."""
        try:
            await copy()
        except (OSError, MasterError, ValueError) as error:  # ValueError: the address is not host:port
            self._note_failure(str(error))
            return False
        if self._problem:
            log.info("tables are copied again master=%s", self._calls.address)
        self._problem = ""
        return True

    def _note_failure(self, reason: str) -> None:
        if reason != self._problem:
            log.warning("tables are not copied master=%s reason=%s", self._calls.address, reason)
        self._problem = reason

    async def _copy_all(self) -> None:
        address = self._calls.address
        master = await self._take()
        if not await self._reached(master.log_end):
            return
        before = self._before if self._of == address else {}
        await self._tables.follow(master, before)
        self._before, self._of = master.offsets.offset_table, address
        self.applied += 1

    async def _take(self) -> MasterTables:
        calls = self._calls
        log_end_before = (await calls.log_bounds()).end
        return MasterTables(
            topics=await calls.body(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper),
            groups=await calls.body(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper),
            offsets=await calls.offsets(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets),
            delays=await calls.offsets(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets),
            request_modes=await calls.optional(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
            timer_counts=await calls.optional(RequestCode.GET_TIMER_METRICS),
            timers=await self._timers(),
            log_end_before=log_end_before,
            log_end=(await calls.log_bounds()).end,
        )

    async def _copy_timers(self) -> None:
        timers = await self._timers()
        if timers is not None and await self._reached((await self._calls.log_bounds()).end):
            self._tables.follow_timers(timers)

    async def _timers(self) -> TimerCheck | None:
        data = await self._calls.optional(RequestCode.GET_TIMER_CHECK_POINT)
        return None if data is None else TimerCheck.decode(data)

    async def _reached(self, log_end: int) -> bool:
        """Wait until the copy of the log has reached `log_end`; False if there is another master first."""
        while self._log_end() < log_end:
            if self._moved.is_set():
                return False
            await asyncio.sleep(LOG_POLL_S)
        return True
