"""Requests for data that is not in memory: they wait, others do not, and the response is the same as from memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import QueryConsumerOffsetHeader
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import QueueHeader, SearchOffsetHeader, ViewMessageHeader
from skylarkmq.protocol.record import Record, iterate
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, pull
from tests.harness.cold_files import ColdFiles
from tests.harness.peer import Peer
from tests.harness.waiting import until

COUNT = 8


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    """A broker over a store from before its start: none of its data counts as resident."""
    with broker_parts(tmp_path) as before:
        for number in range(COUNT):
            before.put(b"%03d" % number)
    with broker_parts(tmp_path) as it:
        it.store.reader.start(asyncio.get_running_loop())
        yield it


def freeze(cold: ColdFiles, parts: BrokerParts) -> None:
    root = parts.store._config.store_path_root_dir
    cold.freeze(*(path for path in root.glob("co*/**/*") if path.is_file()))


def bodies(response: RemotingCommand) -> list[bytes]:
    return [bytes(record.body) for record in iterate(memoryview(response.body)) if isinstance(record, Record)]


async def answer_to(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    peer.send(request)
    await until(lambda: peer.take() or peer.received)
    return peer.received.pop()


async def test_a_cold_pull_waits_and_others_do_not(parts: BrokerParts) -> None:
    """A pull that waits for the disk keeps its slot in the pool, another connection is served, and then it gets all
    messages."""
    parts.put(b"hot", queue_id=1)
    with ColdFiles() as cold:
        freeze(cold, parts)
        cold.gate.clear()
        slow, quick = parts.peer(1), parts.peer(2)
        slow.send(pull(max_msg_nums=COUNT))
        assert (slow.received, parts.pool.pending) == ([], 1)
        await until(lambda: parts.store.statistics().reader.cold.under_way == 1)
        root = parts.store._config.store_path_root_dir
        cold._frozen.discard(str(root / "consumequeue" / TOPIC / "1" / f"{0:020d}"))
        assert bodies(quick.call(pull(queue_id=1))) == [b"hot"]
        cold.gate.set()
        await until(slow.take)
        assert bodies(slow.received[0]) == [b"%03d" % number for number in range(COUNT)]
        assert [in_loop for _, in_loop in cold.waits] == [False, False]  # units, then records
    assert parts.pool.pending == 0
    assert parts.pulls.statistics().messages == COUNT + 1


async def test_a_verified_cold_range_waits(parts: BrokerParts) -> None:
    """A record that was verified before may have left memory."""
    peer = parts.peer()
    parts.put(b"new")
    parts.store.reader._log_reads._hot_tail_bytes = 0
    assert len(bodies(peer.call(pull()))) == COUNT + 1
    assert bodies(peer.call(pull(queue_offset=COUNT))) == [b"new"]
    with ColdFiles() as cold:
        freeze(cold, parts)
        peer.received.clear()
        assert bodies(await answer_to(peer, pull(queue_offset=COUNT))) == [b"new"]
        freeze(cold, parts)
        assert len(bodies(await answer_to(peer, pull()))) == COUNT + 1


async def test_a_cold_pull_commits_once(parts: BrokerParts) -> None:
    """The offset in a pull is committed once, when the pull is served."""
    with ColdFiles() as cold:
        freeze(cold, parts)
        flags = PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET
        await answer_to(parts.peer(), pull(sys_flag=flags, commit_offset=3))
    assert parts.offsets.committed(GROUP, TOPIC, 0) == 3
    assert parts.offsets.statistics().commits == 1


async def test_a_resumed_pull_may_be_cold(parts: BrokerParts) -> None:
    """A parked pull that finds cold data when it is resumed is served after the read."""
    parts.store.reader._log_reads._hot_tail_bytes = 0
    peer = parts.peer()
    peer.send(pull(queue_offset=COUNT, suspend_ms=1_000))
    assert parts.pool.pending == 1
    with ColdFiles() as cold:
        freeze(cold, parts)
        parts.put(b"woken")
        await until(peer.take)
        assert bodies(peer.received[0]) == [b"woken"]


async def test_a_cold_pull_of_a_closed_connection_ends(parts: BrokerParts) -> None:
    """It ends without a response and without an error."""
    peer = parts.peer()
    with ColdFiles() as cold:
        freeze(cold, parts)
        cold.gate.clear()
        peer.send(pull())
        peer.disconnect()
        cold.gate.set()
        await until(lambda: not parts.pool.pending)


async def test_a_failed_read_is_an_error_response(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that cannot be read at all gives an error."""
    with ColdFiles() as cold:
        freeze(cold, parts)
        log = parts.store._log.files.segments[0]
        monkeypatch.setattr(log, "fd", parts.store._parts._queue_files._descriptor(_queue_path(parts)))
        response = await answer_to(parts.peer(), pull())
        assert response.code == 1
        assert "bytes from 400 on are lost" in (response.remark or "")


def _queue_path(parts: BrokerParts) -> str:
    return str(parts.store._config.store_path_root_dir / "consumequeue" / TOPIC / "0" / f"{0:020d}")


@pytest.mark.parametrize(
    ("code", "header", "answered"),
    [
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader(TOPIC, 0, 1 << 60), {"offset": str(COUNT)}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader(TOPIC, 0), {"timestamp": "1700000000000"}),
        (RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(0), {}),
        (RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(GROUP, TOPIC, 0), {"offset": "0"}),
    ],
)
async def test_queries_wait_for_cold_data(
    parts: BrokerParts, code: RequestCode, header: Header, answered: dict[str, str]
) -> None:
    """Offset by time, earliest time, view by id, and a group's first offset."""
    with ColdFiles() as cold:
        freeze(cold, parts)
        response = await answer_to(parts.peer(), RemotingCommand.request(code, header))
        assert (response.code, response.ext_fields()) == (0, answered)
        assert all(not in_loop for _, in_loop in cold.waits)
        assert cold.waits


async def test_a_first_offset_on_disk_waits(parts: BrokerParts) -> None:
    """If the start of the log has moved, the first offset is read from the queue's file, cold or not."""
    with ColdFiles() as cold:
        freeze(cold, parts)
        parts.store.queues.by_key[TOPIC, 0]._corrected_for = -1
        response = await answer_to(
            parts.peer(), RemotingCommand.request(RequestCode.GET_MIN_OFFSET, QueueHeader(TOPIC, 0))
        )
        assert (response.code, response.ext_fields()) == (0, {"offset": "0"})
        assert cold.waits
