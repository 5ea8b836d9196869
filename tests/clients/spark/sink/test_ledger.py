"""The ledger returns the last batch of each query, whatever entries or offsets are lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from skylarkmq import Admin, Client, Message, MessageQueue, Producer
from skylarkmq.clients.spark.sink.ledger import (
    FORGOTTEN_AFTER_MS,
    NOTHING,
    SUMMARY_AFTER,
    Committed,
    Entry,
    Ledger,
    decoded,
    fold,
    summary,
)
from skylarkmq.protocol.codes import RequestCode, SysFlag
from tests.attack.normal_clients import send_header
from tests.harness.raw import RawClient

TOPIC, GROUP = "ledger", "ledger-group"
NOW_MS = 1_700_000_000_000


@asynccontextmanager
async def opened(namesrv: str) -> AsyncIterator[Ledger]:
    """A ledger with its own client, as in a separate process."""
    async with Client(namesrv) as client:
        ledger = Ledger(client, TOPIC, GROUP)
        await ledger.start()
        yield ledger
        await ledger.stop()


async def last(namesrv: str, query: str) -> int:
    """Return the last batch that a new process reads."""
    async with opened(namesrv) as ledger:
        return await ledger.last_batch(query)


def test_the_highest_batch_counts_in_any_order() -> None:
    """Entries can be merged in any order, and twice."""
    entries: list[Entry] = [{"q": Committed(n, NOW_MS), "other": Committed(0, 0)} for n in (3, 9, 1, 9)]
    known: Entry = {}
    for entry in entries:
        fold(known, entry)
    assert known == {"q": Committed(9, NOW_MS), "other": Committed(0, 0)}


def test_an_invalid_message_is_ignored() -> None:
    """Foreign messages in the topic are ignored."""
    assert decoded(b"hello") == decoded(b'{"q": 1}') == {}
    assert decoded(b'{"q": {"batch": 1, "at": 2}}') == {"q": Committed(1, 2)}


def test_summaries_omit_queries_that_have_not_committed_for_long() -> None:
    """Summaries do not grow without bound."""
    known = {"old": Committed(5, NOW_MS - FORGOTTEN_AFTER_MS), "new": Committed(1, NOW_MS)}
    assert summary(known, NOW_MS) == {"new": Committed(1, NOW_MS)}


async def test_committed_batches_are_read_by_other_processes(mq_broker: Any) -> None:
    """The topic is created on demand; each query has its own batches, or none."""
    async with opened(mq_broker.namesrv) as ledger:
        assert await ledger.last_batch("a") == NOTHING
        await ledger.commit("a", 0)
        await ledger.commit("b", 41)
        assert await ledger.last_batch("a") == 0
        assert ledger.statistics().queries == 2
    assert [await last(mq_broker.namesrv, query) for query in "abc"] == [0, 41, NOTHING]
    async with Admin(namesrv=mq_broker.namesrv) as admin:
        (queue,) = await admin.queues(TOPIC)
        assert GROUP in await admin.groups()
        assert (await admin.client.routes.find(TOPIC)).publish_queues == (queue,)


async def test_a_reader_sees_commits_after_its_first_read(mq_broker: Any) -> None:
    """A worker that keeps its ledger continues from its last read."""
    async with opened(mq_broker.namesrv) as reader, opened(mq_broker.namesrv) as writer:
        for batch in range(5):
            await writer.commit("q", batch)
            assert await reader.last_batch("q") == batch


async def test_summaries_keep_reads_short_and_lose_nothing(mq_broker: Any) -> None:
    """After hundreds of batches, a new reader begins near the end and still finds idle queries."""
    async with opened(mq_broker.namesrv) as ledger:
        await ledger.commit("idle", 7)
        for batch in range(3 * SUMMARY_AFTER):
            await ledger.commit("busy", batch)
    async with opened(mq_broker.namesrv) as reader:
        assert await reader.last_batch("idle") == 7
        assert await reader.last_batch("busy") == 3 * SUMMARY_AFTER - 1
        assert reader.statistics().unsummed <= SUMMARY_AFTER + 1


async def test_a_lost_group_offset_does_not_change_the_result(mq_broker: Any) -> None:
    """The result is the same from the first entry, or from an offset that the topic never had."""
    async with opened(mq_broker.namesrv) as ledger:
        for batch in range(2 * SUMMARY_AFTER):
            await ledger.commit("q", batch)
    async with Admin(namesrv=mq_broker.namesrv) as admin:
        (queue,) = await admin.queues(TOPIC)
        for offset in (0, 10**9):
            await admin.set_offset(GROUP, queue, offset)
            assert await last(mq_broker.namesrv, "q") == 2 * SUMMARY_AFTER - 1


async def test_concurrent_summaries_of_two_drivers_lose_nothing(mq_broker: Any) -> None:
    """Entries between the read of a summary and its write lie after the committed offset."""
    async with opened(mq_broker.namesrv) as first, opened(mq_broker.namesrv) as second:
        for batch in range(2 * SUMMARY_AFTER):
            await first.commit("a", batch)
            await second.commit("b", batch)
    assert [await last(mq_broker.namesrv, query) for query in "ab"] == [2 * SUMMARY_AFTER - 1] * 2


async def test_invalid_messages_in_the_topic_do_not_stop_readers(mq_broker: Any) -> None:
    """Readers continue after them."""
    async with opened(mq_broker.namesrv) as ledger:
        await ledger.commit("q", 1)
        async with Producer("stranger", namesrv=mq_broker.namesrv) as producer:
            await producer.send(Message(TOPIC, b"\xff"), queue=MessageQueue(TOPIC, "broker-a", 0))
        host, _, port = mq_broker.address.rpartition(":")
        with closing(RawClient(host, int(port))) as client:
            header = send_header(TOPIC, f=int(SysFlag.COMPRESSED))
            assert client.call(RequestCode.SEND_MESSAGE_V2, header, b"no zlib").code == 0
        await ledger.commit("q", 2)
    assert await last(mq_broker.namesrv, "q") == 2
