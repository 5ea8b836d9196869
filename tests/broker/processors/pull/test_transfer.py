"""Pulls over real sockets: the same responses by sendfile and by copies, and the choice between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.sendfile import SENDFILE_FROM_BYTES, TransferStatistics
from skylarkmq.broker.store.read import log_reads
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.record import Record, iterate
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts
from tests.harness.cold_files import ColdFiles
from tests.harness.raw_peer import RawPeer, Received
from tests.harness.waiting import until

BODIES = [bytes([number]) * 1000 for number in range(64)]
SIZES = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 6_000}


class Served:
    """A store behind a listening socket, and one consumer."""

    def __init__(self, parts: BrokerParts, server: RemotingServer, peer: RawPeer) -> None:
        self.parts = parts
        self._transfer = server.selector.pending_writes
        self._peer = peer

    def figures(self) -> TransferStatistics:
        return self._transfer.statistics()

    async def pull(self, offset: int, *, queue_id: int = 0, wanted: int = 32) -> Received:
        """Pull some messages, which must exist."""
        ext = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": wanted,
            "sysFlag": PullSysFlag.SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
            "subscription": "*",
        }  # fmt: skip
        response = await self._peer.call(RequestCode.PULL_MESSAGE, ext)
        assert (response.code, response.remark) == (0, "FOUND")
        return response

    async def catch_up(self, queue_id: int = 0) -> list[bytes]:
        """Return every body of a queue."""
        bodies: list[bytes] = []
        while len(bodies) < len(BODIES):
            response = await self.pull(len(bodies), queue_id=queue_id)
            bodies += [bytes(it.body) for it in iterate(memoryview(response.body)) if isinstance(it, Record)]
            assert int(response.ext["nextBeginOffset"]) == len(bodies)
        return bodies


@asynccontextmanager
async def served(root: Path, **settings: object) -> AsyncIterator[Served]:
    copies = bool(settings.pop("transfer_by_copying", False))
    with broker_parts(root, **SIZES, **settings) as parts:
        server = RemotingServer(RemotingConfig(transfer_by_copying=copies))
        server.dispatcher.register([RequestCode.PULL_MESSAGE], parts.pulls.pull, parts.pool)
        port = await server.start("127.0.0.1", 0)
        try:
            async with await RawPeer.connect(port) as peer:
                yield Served(parts, server, peer)
        finally:
            await server.stop(lambda: 0, grace_s=1.0)


@pytest.fixture
def small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all data count as far behind the end of the log."""
    monkeypatch.setattr(log_reads.LogReads, "hot_from", property(lambda _: 1 << 62))


async def test_a_backlog_is_sent_by_sendfile(tmp_path: Path, small_tail: None) -> None:
    """Ranges appended since the start need no verification, however old: nothing of them is copied."""
    async with served(tmp_path) as it:
        it.parts.put(*BODIES)
        await it.catch_up()
        before = it.figures()
        assert await it.catch_up() == BODIES
        after = it.figures()
        assert after.sent_bytes - before.sent_bytes == it.parts.store.max_physical_offset
        assert after.copied_bytes - before.copied_bytes < 1_000  # heads
        assert after.cold_sent_bytes == 0


async def test_after_a_restart_the_first_read_verifies_and_the_second_sends(tmp_path: Path) -> None:
    """A range from before the start is read and its CRC compared; then it may be sent without being read."""
    with broker_parts(tmp_path, **SIZES) as parts:
        parts.put(*BODIES)
    async with served(tmp_path) as it:
        it.parts.store.reader._verified.tail = 1 << 62  # as in a log longer than a start scans
        size = it.parts.store.max_physical_offset
        assert await it.catch_up() == BODIES
        first = it.figures()
        assert (first.sent_bytes, first.cold_sent_bytes) == (0, 0)
        assert first.copied_bytes > size
        assert it.parts.store.statistics().reader.checks.checked == len(BODIES)
        assert await it.catch_up() == BODIES
        second = it.figures()
        assert second.sent_bytes == size
        assert it.parts.store.statistics().reader.checks.checked == len(BODIES)


async def test_a_damaged_record_is_never_sent(tmp_path: Path) -> None:
    """The rest of the run is delivered, the second time as well."""
    with broker_parts(tmp_path, **SIZES) as parts:
        parts.put(*BODIES)
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.index(BODIES[5]) + 500)
        file.write(b"\xff")
    async with served(tmp_path) as it:
        it.parts.store.reader._verified.tail = 1 << 62
        for _ in range(2):
            response = await it.pull(0)
            bodies = [bytes(record.body) for record in iterate(memoryview(response.body)) if isinstance(record, Record)]
            assert bodies[:31] == BODIES[:5] + BODIES[6:32]
        assert it.figures().sent_bytes == 0


async def test_cold_runs_are_sent_by_a_thread(tmp_path: Path, small_tail: None) -> None:
    """Data that is not in memory is sent as a whole, without blocking the loop, and without a read before."""
    async with served(tmp_path) as it:
        it.parts.put(*BODIES)
        with ColdFiles() as cold:
            cold.freeze(tmp_path / "commitlog" / f"{0:020d}")
            response = await it.pull(0)
            assert response.body == it.parts.store._log.files.segments[0].view[: len(response.body)]
            await until(lambda: it.figures().cold_sent_bytes == len(response.body))
            assert cold.waits == []


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize("is_behind", [False, True])
async def test_sendfile_and_copies_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, queues: int, is_behind: bool
) -> None:
    """transferMsgByHeap changes no byte, whether the records of a queue are contiguous or not, recent or old."""
    if is_behind:
        monkeypatch.setattr(log_reads.LogReads, "hot_from", property(lambda _: 1 << 62))
    async with served(tmp_path, transfer_by_copying=copies) as it:
        for body in BODIES:
            for queue_id in range(queues):
                it.parts.put(body, queue_id=queue_id)
        for queue_id in range(queues):
            assert await it.catch_up(queue_id) == BODIES
        assert bool(it.figures().sent_calls) == (queues == 1 and not copies)


def test_the_minimum_length_of_a_region_is_the_same() -> None:
    """The store returns as a region what remoting sends as one."""
    assert log_reads.LONG_RUN_BYTES == SENDFILE_FROM_BYTES
