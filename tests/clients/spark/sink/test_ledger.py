"""The ledger remembers the last batch of each query, whatever is lost around it."""

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
    """A ledger with a client of its own, as each process has one."""
    async with Client(namesrv) as client:
        ledger = Ledger(client, TOPIC, GROUP)
        await ledger.start()
        yield ledger
        await ledger.stop()


async def last(namesrv: str, query: str) -> int:
    """What a process that has just started reads."""
    async with opened(namesrv) as ledger:
        return await ledger.last_batch(query)


def test_the_highest_batch_counts_in_any_order() -> None:
    """Entries can be folded in any order, and twice."""
    entries: list[Entry] = [{"q": Committed(n, NOW_MS), "other": Committed(0, 0)} for n in (3, 9, 1, 9)]
    known: Entry = {}
    for entry in entries:
        fold(known, entry)
    assert known == {"q": Committed(9, NOW_MS), "other": Committed(0, 0)}


def test_a_strange_message_says_nothing() -> None:
    """What somebody else has sent to the topic is passed over."""
    assert decoded(b"hello") == decoded(b'{"q": 1}') == {}
    assert decoded(b'{"q": {"batch": 1, "at": 2}}') == {"q": Committed(1, 2)}


def test_queries_that_are_long_gone_are_left_out_of_summaries() -> None:
    """A summary does not grow for ever."""
    known = {"old": Committed(5, NOW_MS - FORGOTTEN_AFTER_MS), "new": Committed(1, NOW_MS)}
    assert summary(known, NOW_MS) == {"new": Committed(1, NOW_MS)}


async def test_what_is_committed_is_read_by_others(mq_broker: Any) -> None:
    """The topic is made when it is needed; each query has its own batches, and one that has none has none."""
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


async def test_a_reader_sees_what_is_committed_after_it_has_begun(mq_broker: Any) -> None:
    """A worker that keeps its ledger reads on from where it was."""
    async with opened(mq_broker.namesrv) as reader, opened(mq_broker.namesrv) as writer:
        for batch in range(5):
            await writer.commit("q", batch)
            assert await reader.last_batch("q") == batch


async def test_summaries_keep_reading_short_and_forget_nothing(mq_broker: Any) -> None:
    """After hundreds of batches a new reader begins near the end, and knows idle queries, too."""
    async with opened(mq_broker.namesrv) as ledger:
        await ledger.commit("idle", 7)
        for batch in range(3 * SUMMARY_AFTER):
            await ledger.commit("busy", batch)
    async with opened(mq_broker.namesrv) as reader:
        assert await reader.last_batch("idle") == 7
        assert await reader.last_batch("busy") == 3 * SUMMARY_AFTER - 1
        assert reader.statistics().unsummed <= SUMMARY_AFTER + 1


async def test_a_group_offset_that_is_lost_costs_only_time(mq_broker: Any) -> None:
    """Beginning at the first entry, or at an offset that the topic never had, the answer is the same."""
    async with opened(mq_broker.namesrv) as ledger:
        for batch in range(2 * SUMMARY_AFTER):
            await ledger.commit("q", batch)
    async with Admin(namesrv=mq_broker.namesrv) as admin:
        (queue,) = await admin.queues(TOPIC)
        for offset in (0, 10**9):
            await admin.set_offset(GROUP, queue, offset)
            assert await last(mq_broker.namesrv, "q") == 2 * SUMMARY_AFTER - 1


async def test_two_drivers_that_summarise_at_once_lose_nothing(mq_broker: Any) -> None:
    """Entries between a summary's reading and its place in the log lie behind the offset that it makes possible."""
    async with opened(mq_broker.namesrv) as first, opened(mq_broker.namesrv) as second:
        for batch in range(2 * SUMMARY_AFTER):
            await first.commit("a", batch)
            await second.commit("b", batch)
    assert [await last(mq_broker.namesrv, query) for query in "ab"] == [2 * SUMMARY_AFTER - 1] * 2


async def test_strange_messages_in_the_topic_change_nothing(mq_broker: Any) -> None:
    """Readers go on behind them."""
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
