"""A classic slave against a fake master: begin, transfers, reports, and everything that closes the connection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from skylarkmq.broker.ha.classic.frames import MAX_TRANSFER_BYTES, pack_header
from skylarkmq.broker.ha.classic.slave import ClassicSlave, SlaveConfig
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.broker.store.replica.errors import ReplicaError
from tests.broker.ha.classic.fake_master import BROKER_CONFIG, VIEW_MESSAGE, FakeMaster
from tests.harness.waiting import until

FIRST_RECORD = (100).to_bytes(4, "big") + bytes(96)
CONFIG = SlaveConfig(retry_s=0.01)


class Copy:
    """A replica in memory, whose writes fail while `fault` is set."""

    def __init__(self, begin: int = 0, data: bytes = b"") -> None:
        self.begin = begin
        self.data = bytearray(data)
        self.synced = begin + len(data)
        self.shown = 0
        self.fault: Exception | None = None
        self.show_fault: Exception | None = None
        self._on_synced: Callable[[int], None] = lambda end: None

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    def append(self, offset: int, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        if not self.data:
            self.begin = offset
        if offset != self.end:
            raise ReplicaError(f"{offset} is not the end {self.end}")
        self.data += data

    def show(self, limit: int) -> None:
        if self.show_fault is not None:
            raise self.show_fault
        self.shown = limit

    def sync(self) -> None:
        self.synced = self.end
        self._on_synced(self.synced)

    def on_synced(self, callback: Callable[[int], None]) -> None:
        self._on_synced = callback


@asynccontextmanager
async def copying(master: FakeMaster, copy: Copy, config: SlaveConfig = CONFIG) -> AsyncIterator[ClassicSlave]:
    outbound = Outbound(RemotingConfig())
    calls = MasterCalls(outbound)
    calls.address = master.address
    slave = ClassicSlave(config, copy, calls, lambda: 1_000)
    slave.copy_from(master.ha_address)
    slave.start()
    try:
        yield slave
    finally:
        await slave.stop()
        await outbound.stop()


def has_accepted(master: FakeMaster, before: int) -> bool:
    return master.accepted > before and bool(master.connections)


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_transfers_are_appended_shown_and_reported() -> None:
    """The first report is the own end; after each transfer the new end is reported."""
    copy = Copy(data=b"known")
    async with FakeMaster(end=5) as master, copying(master, copy) as slave:
        assert await master.report() == 5
        master.send(5, b" and")
        assert await master.report() == 9
        master.connections[-1].write(pack_header(9, 5) + b" mo")
        await asyncio.sleep(0)
        master.connections[-1].write(b"re" + pack_header(14, 0))
        await master.until_report(14)
        assert bytes(copy.data) == b"known and more"
        assert copy.shown == 14
        assert slave.is_connected


async def test_an_empty_copy_begins_at_the_first_byte_of_the_masters_log() -> None:
    """A report of 0 would get only the newest file; the minimum is reported instead."""
    copy = Copy()
    async with FakeMaster(begin=4_096, end=9_000) as master, copying(master, copy):
        assert await master.report() == 4_096
        master.send(4_096, b"first")
        await master.until_report(4_101)
        assert (copy.begin, bytes(copy.data)) == (4_096, b"first")


async def test_an_empty_copy_of_a_whole_log_fetches_its_first_record() -> None:
    """The record at byte 0 comes by VIEW_MESSAGE_BY_ID; then its end is reported."""
    copy = Copy()
    async with FakeMaster(end=9_000) as master:
        master.bodies[VIEW_MESSAGE] = FIRST_RECORD
        async with copying(master, copy):
            assert await master.report() == len(FIRST_RECORD)
            assert bytes(copy.data) == FIRST_RECORD


@pytest.mark.parametrize("begin", [0, -1])
async def test_an_empty_copy_of_an_empty_log_reports_zero(begin: int) -> None:
    """There is no record to fetch; the master begins at its last file, which is its first one. RocketMQ's log begins at
    -1 without a file."""
    copy = Copy()
    async with FakeMaster(begin) as master, copying(master, copy):
        assert await master.report() == 0
        master.send(0)
        master.send(0, b"first")
        await master.until_report(5)


async def test_a_first_message_that_is_no_record_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A response to 33 whose length does not match is not written to the log."""
    copy = Copy()
    async with FakeMaster(end=9_000) as master:
        master.bodies[VIEW_MESSAGE] = FIRST_RECORD[:-1]
        async with copying(master, copy):
            await until(lambda: problems(caplog))
        assert copy.end == 0
        assert "not a whole record" in problems(caplog)[0]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (pack_header(6, 3) + b"abc", "a transfer from 6, but this copy ends at 5"),
        (pack_header(4, 3) + b"abc", "a transfer from 4, but this copy ends at 5"),
        (pack_header(6, 0), "a transfer from 6, but this copy ends at 5"),
        (pack_header(1 << 40, 100), f"a transfer from {1 << 40}, but this copy ends at 5"),
        (pack_header(5, MAX_TRANSFER_BYTES + 1), "a transfer of"),
        (pack_header(5, -1), "a transfer of -1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not an offset of a log"),
        (b"\xff" * 12, "is not an offset of a log"),
    ],
    ids=["beyond", "before", "heartbeat", "far", "too long", "negative", "http", "ones"],
)
async def test_invalid_bytes_close_the_connection_with_one_line(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is appended; one line says what to do, however often the master repeats it; the slave tries again."""
    copy = Copy(data=b"known")
    async with FakeMaster(end=5) as master, copying(master, copy) as slave:
        for _ in range(3):
            connections = master.accepted
            assert await master.report() == 5
            master.connections[-1].write(sent)
            await until(partial(has_accepted, master, connections))
        assert bytes(copy.data) == b"known"
        [line] = [text for text in problems(caplog) if reason in text]
        assert f"check that {master.ha_address} is the HA port of the master" in line
        assert slave.status().refused["invalid bytes"] >= 2


@pytest.mark.parametrize(
    ("begin", "end", "advice"),
    [(6, 90, "to copy the whole log"), (0, 4, "If this copy is right, start it as the master")],
)
async def test_a_copy_outside_of_the_masters_log_is_not_continued(
    begin: int, end: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ's slaves wait for ever then (#3388); the line says what to do, and nothing is connected."""
    copy = Copy(data=b"known")
    async with FakeMaster(begin, end) as master, copying(master, copy):
        await until(lambda: problems(caplog))
        assert master.accepted == 0
        assert advice in problems(caplog)[0]


async def test_a_silent_master_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """After the housekeeping interval without a byte the slave connects again."""
    copy = Copy(data=b"known")
    config = SlaveConfig(housekeeping_s=0.0, retry_s=0.01)
    async with FakeMaster(end=5) as master, copying(master, copy, config):
        await until(lambda: master.accepted >= 2)
        assert any("has sent nothing" in line for line in problems(caplog))


async def test_a_lost_connection_is_opened_again_at_the_end() -> None:
    """The next first report is where the last transfer ended."""
    copy = Copy(data=b"known")
    async with FakeMaster(end=5) as master, copying(master, copy):
        await master.until_report(5)
        master.send(5, b"more")
        await master.until_report(9)
        master.end = 9
        master.connections[-1].close()
        assert await master.report() == 9


async def test_a_failed_write_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The end is unchanged, and the copy goes on once the disk takes writes."""
    copy = Copy(data=b"known")
    copy.fault = OSError(28, "No space left on device")
    async with FakeMaster(end=5) as master, copying(master, copy):
        assert await master.report() == 5
        master.send(5, b"more")
        await until(lambda: master.accepted >= 2 and master.connections)
        assert any("No space left" in line for line in problems(caplog))
        copy.fault = None
        master.send(5, b"more")
        await master.until_report(9)


async def test_reports_are_synced_bytes_under_sync_flush() -> None:
    """A report waits for the sync, and so does the first one."""
    copy = Copy(data=b"known")
    copy.synced = 3
    config = SlaveConfig(retry_s=0.01, reports_synced=True)
    async with FakeMaster(end=5) as master, copying(master, copy, config):
        await until(lambda: master.asked)
        copy.sync()
        assert await master.report() == 5
        master.send(5, b"more")
        await until(lambda: copy.end == 9)
        assert master.reports.empty()
        copy.sync()
        assert await master.report() == 9


async def test_another_address_moves_the_copy() -> None:
    """The connection to the old master is closed, and the new one gets the end."""
    copy = Copy(data=b"known")
    async with FakeMaster(end=5) as old, FakeMaster(end=5) as new, copying(old, copy) as slave:
        assert await old.report() == 5
        slave.copy_from(new.ha_address)
        assert await new.report() == 5
        await until(lambda: not old.connections)
        slave.copy_from(None)
        new.send(5, b"more")
        await new.until_report(9)


async def test_other_segments_than_the_masters_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The master's log has blanks where its segments end, so the copy needs segments of the same size."""
    copy = Copy()
    async with FakeMaster(end=9_000) as master:
        master.bodies[BROKER_CONFIG] = b"brokerName=b\nmappedFileSizeCommitLog=4096\nx=y\n"
        async with copying(master, copy):
            await until(lambda: problems(caplog))
        assert "mappedFileSizeCommitLog is 1073741824, and 4096 on the master" in problems(caplog)[0]
        assert (copy.end, master.accepted) == (0, 0)
        async with copying(master, copy, SlaveConfig(retry_s=0.01, segment_bytes=4_096)):
            await until(lambda: master.asked.count(VIEW_MESSAGE))


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (ReplicaError("the log is damaged at 7"), "move its storePathRootDir away"),
        (OSError(28, "No space left on device"), "repair the disk, then restart this broker"),
    ],
)
async def test_a_copy_that_cannot_be_dispatched_ends(
    fault: Exception, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a restart helps, so nothing more is appended; the line and /readyz say what to do."""
    copy = Copy(data=b"known")
    copy.show_fault = fault
    async with FakeMaster(end=5) as master, copying(master, copy) as slave:
        assert await master.report() == 5
        master.send(5, b"more")
        assert slave.status().blocked == ""
        await until(lambda: advice in slave.status().blocked)
        [line] = problems(caplog)
        assert advice in line
        await until(lambda: not master.connections)
        assert master.accepted == 1


async def test_an_empty_copy_waits_for_a_master(caplog: pytest.LogCaptureFixture) -> None:
    """haMasterAddress alone does not say where the log begins."""
    copy = Copy()
    async with FakeMaster(end=9_000) as master:
        outbound = Outbound(RemotingConfig())
        slave = ClassicSlave(CONFIG, copy, MasterCalls(outbound), lambda: 1_000)
        slave.copy_from(master.ha_address)
        slave.start()
        await until(lambda: problems(caplog))
        await slave.stop()
        assert "no live master of this brokerName is registered" in problems(caplog)[0]
        assert master.accepted == 0


async def test_an_address_without_a_valid_port_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A name server may have any text as an address. The copy continues with the next address, and stops cleanly."""
    copy = Copy(data=b"known")
    async with FakeMaster(end=5) as master, copying(master, copy) as slave:
        slave.copy_from("master:99999")
        await until(lambda: problems(caplog))
        assert "an address must be host:port, not 'master:99999'" in problems(caplog)[0]
        accepted = master.accepted
        slave.copy_from(master.ha_address)
        await until(lambda: has_accepted(master, accepted))
