"""A classic master over real sockets: its store's log reaches slaves that report as RocketMQ's do."""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.ha.classic.frames import pack_report
from skylarkmq.broker.ha.classic.master import ClassicMaster
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.ha.port.server import HaServer
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.broker.ha.status import CopyState
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.classic_slaves import RawSlave
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened
from tests.harness.waiting import until

BODY = bytes(range(256)) * 4


class Served:
    """A master with its store, its port, and a clock that a test may advance."""

    def __init__(self, it: Opened, **settings: Any) -> None:
        defaults: dict[str, Any] = {"ha_listen_port": 1, "ha_allowed_networks": (ip_network("127.0.0.0/8"),)}
        config = ReplicationConfig(**defaults | settings)
        self.it = it
        self.refused = Refused()
        self.skipped_s = 0.0
        self.master = ClassicMaster(config, it.store, SEGMENT_BYTES, self.refused, self.now_s)
        self.server = HaServer(config, self.master, refused=self.refused)
        it.store.flush.on_growth(self.master.grown, None)
        if self.master.copies is not None:
            it.store.flush.replicate(self.master.copies)
        self.port = 0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped_s

    def put(self, count: int, body: bytes = BODY) -> None:
        """Append messages, by default of a bit more than a kilobyte."""
        self.it.put(*(message(body) for _ in range(count)))

    @property
    def end(self) -> int:
        return self.it.store.max_physical_offset

    def log(self, start: int = 0) -> bytes:
        """Return the files of the log from an offset to its end, as one."""
        files = sorted((self.it.root / "commitlog").iterdir())
        first = int(files[0].name)
        return b"".join(file.read_bytes() for file in files if file.name.isdecimal())[start - first : self.end - first]

    async def reported(self, end: int) -> None:
        await until(lambda: any(slave.acked == end for slave in self.master.slaves))


@asynccontextmanager
async def served(root: Path, *, sync: bool = False, **settings: Any) -> AsyncIterator[Served]:
    with opened(root, sync=sync, loop=asyncio.get_running_loop()) as it:
        one = Served(it, **settings)
        one.port = await one.server.start("127.0.0.1", 0)
        try:
            yield one
        finally:
            await one.server.stop()
            await until(lambda: not one.master.slaves)


async def test_a_slave_gets_the_log_byte_by_byte(tmp_path: Path) -> None:
    """A slave that has the beginning gets the rest, blanks at the ends of files included, and then what is new."""
    async with served(tmp_path) as it:
        it.put(150)
        async with await RawSlave.connect(it.port, log=it.log()[:1]) as slave:
            slave.report()
            await slave.copy(it.end)
            for _ in range(3):
                it.put(30)
                await slave.copy(it.end)
            await it.reported(it.end)
            assert it.end > 3 * SEGMENT_BYTES
            assert bytes(slave.log) == it.log()


async def test_transfers_are_small_and_end_at_the_ends_of_files(tmp_path: Path) -> None:
    """haTransferBatchSize is the largest one, and none continues in the next file."""
    async with served(tmp_path, ha_transfer_batch_size=10_000) as it:
        it.put(150)
        async with await RawSlave.connect(it.port) as slave:
            slave.report(1)
            at = 1
            while at < it.end:
                offset, data = await slave.transfer()
                assert offset == at
                assert 0 < len(data) <= 10_000
                assert (offset + len(data) - 1) // SEGMENT_BYTES == offset // SEGMENT_BYTES
                at += len(data)


async def test_a_first_report_of_0_gets_the_last_file(tmp_path: Path) -> None:
    """As in RocketMQ a slave without a log begins at the beginning of the master's last file."""
    async with served(tmp_path) as it:
        it.put(150)
        async with await RawSlave.connect(it.port) as slave:
            slave.report()
            await slave.copy(it.end)
            assert slave.start == it.end - it.end % SEGMENT_BYTES > 0
            assert bytes(slave.log) == it.log(slave.start)


async def test_several_slaves_copy_at_their_own_pace(tmp_path: Path) -> None:
    """A slave that does not read delays no other one, and costs no memory of the process."""
    async with served(tmp_path) as it:
        it.put(50)
        slave = await RawSlave.connect(it.port, log=it.log()[:1])
        async with slave, await RawSlave.connect_without_reading(it.port) as stuck:
            stuck.report(1)
            slave.report()
            for _ in range(10):
                it.put(60, bytes(16_000))
                await slave.copy(it.end)
            assert bytes(slave.log) == it.log()
            behind = next(one for one in it.master.slaves if one.address == stuck.address)
            assert behind.next_offset < it.end
            members = {member.address: member for member in it.master.status().members}
            assert members[stuck.address].lag_bytes == it.end - 1
            await it.reported(it.end)
            assert it.master.status().members[1].lag_bytes == 0


async def test_heartbeats_have_the_next_offset(tmp_path: Path) -> None:
    """A connection without other data gets one after haSendHeartbeatInterval, also an empty log's."""
    async with served(tmp_path, ha_send_heartbeat_interval=5_000) as it, await RawSlave.connect(it.port) as slave:
        slave.report()
        await until(lambda: it.master.slaves and it.master.slaves[0].acked == 0)
        it.server.step()
        it.skipped_s += 5.5
        it.server.step()
        assert await slave.transfer() == (0, b"")
        it.put(1)
        await slave.copy(it.end)
        it.skipped_s += 5.5
        slave.report()
        it.server.step()
        assert await slave.transfer() == (it.end, b"")


async def test_a_silent_slave_is_disconnected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a report for haHousekeepingInterval the connection is closed."""
    async with served(tmp_path, ha_housekeeping_interval=20_000) as it:
        async with await RawSlave.connect(it.port) as slave:
            slave.report()
            await until(lambda: it.master.slaves and it.master.slaves[0].acked == 0)
            it.skipped_s += 20.5
            it.server.step()
            await slave.closed()
        assert it.refused.counts == {"silent": 1}
        assert "no report for 20000 ms" in caplog.text


async def test_a_report_beyond_what_was_sent_is_no_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The connection is closed, and the report does not count."""
    async with served(tmp_path, broker_role=BrokerRole.SYNC_MASTER) as it:
        it.put(3)
        async with await RawSlave.connect(it.port) as slave:
            slave.report()
            await slave.copy(it.end)
            await it.reported(it.end)
            slave.report(it.end + 1)
            await slave.closed()
        await until(lambda: not it.master.slaves)
        assert it.master.copies is not None
        assert it.master.copies.copied == it.end
        assert it.refused.counts == {"report": 1}
        assert f"a report of {it.end + 1}" in caplog.text


async def test_a_slave_with_more_than_the_log_gets_no_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It gets heartbeats with its own offset, as in RocketMQ; here also when the log has become longer. A line in the
    log has the next step."""
    async with served(tmp_path, ha_send_heartbeat_interval=1, broker_role=BrokerRole.SYNC_MASTER) as it:
        it.put(3)
        beyond = it.end + 10
        for _ in range(2):
            async with await RawSlave.connect(it.port) as slave:
                slave.report(beyond)
                await until(lambda: it.master.slaves and it.master.slaves[0].acked == beyond)
                it.put(20)
                it.skipped_s += 1
                it.server.step()
                assert await slave.transfer() == (beyond, b"")
                status = it.master.status()
                assert [member.state for member in status.members] == [CopyState.BEHIND]
                assert status.in_sync == 1
            await until(lambda: not it.master.slaves)
        assert it.master.copies is not None
        assert it.master.copies.copied == 0
        assert it.refused.counts == {"diverged": 2}
        assert "has bytes that this log does not have" in caplog.text
        assert "empty its store directory" in caplog.text
        async with await RawSlave.connect(it.port, log=it.log()) as slave:  # of the same host, with another offset
            slave.report()
            it.put(1)
            await slave.copy(it.end)


async def test_a_slave_that_needs_deleted_bytes_gets_no_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It gets heartbeats with its own offset, as in RocketMQ, and a line in the log has the next step."""
    async with served(tmp_path, ha_send_heartbeat_interval=1) as it:
        it.put(150)
        it.it.store._log.files.remove_first().delete()
        async with await RawSlave.connect(it.port) as slave:
            slave.report(100)
            await until(lambda: it.master.slaves and it.master.slaves[0].acked == 100)
            it.skipped_s += 1
            it.server.step()
            assert await slave.transfer() == (100, b"")
        assert "retention has removed what the slave needs" in caplog.text
        it.it.must_be_consistent = False  # the queues begin before the log


async def test_bytes_that_are_no_report_close_the_connection(tmp_path: Path) -> None:
    """Negative offsets and offsets of no log are no reports, also later in the connection."""
    async with served(tmp_path) as it:
        for data in (b"\x3f" + b"\xff" * 7, b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 8 + b"\x80" + b"\0" * 7):
            async with await RawSlave.connect(it.port) as slave:
                slave.send(data)
                if data[0] in b"G\0":
                    await slave.closed()
        assert it.refused.counts["frame"] == 2


async def test_the_rate_of_a_transfer_can_be_limited(tmp_path: Path) -> None:
    """With haFlowControlEnable at most maxHaTransferByteInSecond bytes are sent in a second, headers included."""
    limits: dict[str, Any] = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 20_000}
    async with served(tmp_path, **limits) as it, await RawSlave.connect(it.port) as slave:
        slave.report()
        await until(it.master._copying)
        it.skipped_s += 0.95
        it.put(40)
        at = 0
        while at < 20_000 - 12:
            offset, data = await slave.transfer()
            at = offset + len(data)
        assert at <= 20_000
        assert (await slave.transfer()).offset == at


async def test_a_deleted_file_ends_its_transfers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The connection is closed once retention no longer waits for it, and the file is released."""
    async with served(tmp_path) as it:
        it.put(280, bytes(16_000))
        async with await RawSlave.connect_without_reading(it.port) as stuck:
            stuck.report(1)
            await until(lambda: any(segment.holders for segment in it.it.store._log.files.segments))
            held = next(segment for segment in it.it.store._log.files.segments if segment.holders)
            held.revoke()
            await until(lambda: not it.master.slaves)
            assert not held.holders
        assert "was deleted" in caplog.text


async def test_cold_bytes_are_sent_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are not in memory do not stop the event loop; the slave gets the same log."""
    async with served(tmp_path) as it:
        it.put(150)
        reads = it.it.store.reader._log_reads
        monkeypatch.setattr(reads, "_hot_tail_bytes", 0)
        monkeypatch.setattr(reads._residency, "is_resident", lambda *_: False)
        async with await RawSlave.connect(it.port, log=it.log()[:1]) as slave:
            slave.report()
            await slave.copy(it.end)
            assert bytes(slave.log) == it.log()
            await until(lambda: it.master.files.cold_sent_bytes == it.end - 1)


async def test_a_file_that_lost_bytes_ends_the_transfer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent in place of lost bytes."""
    async with served(tmp_path) as it:
        it.put(150)
        it.it.must_be_consistent = False
        first = it.it.store._log.files.segments[0]
        os.truncate(first.path, 1000)
        async with await RawSlave.connect(it.port) as slave:
            slave.report(2000)
            await slave.closed()
        assert "transfer to slave failed" in caplog.text


# ---------------------------------------------------------------------------------------------------------- SYNC_MASTER


async def test_a_send_waits_for_one_slave(tmp_path: Path) -> None:
    """A message is readable at once, and acknowledged when one of two slaves has reported its end."""
    master = served(tmp_path, broker_role=BrokerRole.SYNC_MASTER)
    async with master as it, await RawSlave.connect(it.port) as slave, await RawSlave.connect(it.port) as second:
        slave.report()
        second.report()
        await until(lambda: len(it.master._copying()) == 2)
        appends = it.it.put(message(BODY))
        assert it.it.bodies() == [BODY]
        assert appends[0].status is PutStatus.PENDING
        await second.copy(it.end)
        await until(lambda: appends[0].status is PutStatus.PUT_OK)
        status = it.master.status()
        assert (status.committed, status.min_in_sync, status.in_sync) == (it.end, 2, 3)


async def test_a_send_waits_for_as_many_slaves_as_in_sync_replicas_says(tmp_path: Path) -> None:
    """With inSyncReplicas 3, two slaves besides this broker."""
    master = served(tmp_path, broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=3)
    async with master as it, await RawSlave.connect(it.port) as slave, await RawSlave.connect(it.port) as second:
        slave.report()
        second.report()
        await until(lambda: len(it.master._copying()) == 2)
        appends = it.it.put(message(BODY))
        await slave.copy(it.end)
        await it.reported(it.end)
        assert appends[0].status is PutStatus.PENDING
        await second.copy(it.end)
        await until(lambda: appends[0].status is PutStatus.PUT_OK)


async def test_without_a_close_slave_a_send_does_not_wait(tmp_path: Path) -> None:
    """No slave, too few slaves, or one that lacks haSlaveFallbehindMax: the message is stored, the status is
    SLAVE_NOT_AVAILABLE."""
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "ha_slave_fallbehind_max": 2_000}
    async with served(tmp_path, **settings) as it:
        assert it.it.put(message(BODY))[0].status is PutStatus.SLAVE_NOT_AVAILABLE
        async with await RawSlave.connect(it.port) as slave:
            slave.report()
            await until(it.master._copying)
            first = it.it.put(message(BODY[:100]))
            assert first[0].status is PutStatus.PENDING
            second = it.it.put(message(BODY))
            await slave.copy(it.end)
            await until(lambda: first[0].status is PutStatus.PUT_OK)
            assert second[0].status is PutStatus.SLAVE_NOT_AVAILABLE
        assert len(it.it.bodies()) == 3


async def test_a_send_waits_for_slave_timeout(tmp_path: Path) -> None:
    """Then its status is FLUSH_SLAVE_TIMEOUT, and the message is readable."""
    master = served(tmp_path, broker_role=BrokerRole.SYNC_MASTER, slave_timeout=3_000)
    async with master as it, await RawSlave.connect(it.port) as slave:
        slave.report()
        await until(it.master._copying)
        appends = it.it.put(message(BODY))
        it.it.clock.now_ms += 3_001
        it.it.store.step(it.it.clock.now_ms)
        assert appends[0].status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert it.it.bodies() == [BODY]


async def test_what_was_copied_stays_copied(tmp_path: Path) -> None:
    """A slave that disconnects, or reports less than before, takes nothing back."""
    async with served(tmp_path, broker_role=BrokerRole.SYNC_MASTER) as it:
        it.put(2)
        async with await RawSlave.connect(it.port) as slave:
            slave.report()
            await slave.copy(it.end)
            await it.reported(it.end)
            slave.send(pack_report(1))
            await it.reported(1)
        await until(lambda: not it.master.slaves)
        assert it.master.status().committed == it.end


def test_the_master_waits_for_at_least_one_slave(caplog: pytest.LogCaptureFixture) -> None:
    """inSyncReplicas 1 does as 4.9: SYNC_MASTER waits for one slave."""
    caplog.set_level(logging.INFO)
    from_settings = {
        count: ClassicMaster(
            ReplicationConfig(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=count),
            log=None,  # type: ignore[arg-type] # not used
            segment_bytes=1,
            refused=Refused(),
            now_s=lambda: 0.0,
        ).copies
        for count in (1, 2, 3)
    }
    assert [copies.needed for copies in from_settings.values() if copies is not None] == [1, 1, 2]


@pytest.mark.parametrize("seed", range(3))
async def test_random_bytes_are_no_copy_and_disturb_no_slave(tmp_path: Path, seed: int) -> None:
    """Peers that send random bytes, in pieces of any size, are closed or get data that they do not confirm; a slave
    beside them copies everything."""
    chance = random.Random(seed)
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 3, "ha_max_connections": 80}
    async with served(tmp_path, **settings) as it:
        it.put(20)
        slave = await RawSlave.connect(it.port, log=it.log()[:1])
        async with AsyncExitStack() as peers:
            await peers.enter_async_context(slave)
            slave.report()
            for _ in range(60):
                peer = await peers.enter_async_context(await RawSlave.connect(it.port))
                first = chance.choice((b"", bytes(chance.randrange(8)), b"\xf3SKYLHA", b"\x16\x03\x01"))
                peer.send(first + chance.randbytes(chance.choice((1, 7, 8, 64, 5_000))))
                it.put(1)
                await slave.copy(it.end)
                if chance.random() < 0.7:
                    await peer.close()
            assert bytes(slave.log) == it.log()
            await it.reported(it.end)
            assert it.master.copies is not None
            assert it.master.copies.copied < it.end  # two slaves are needed, and there is one
            status = it.master.status()
            assert [member.address for member in status.members if member.acked == it.end] == [slave.address]
