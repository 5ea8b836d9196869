"""Progress of groups: lag, consumers of a topic, time spans, all offsets; also with cold data."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.stats import ConsumeStats, ConsumeTimeSpans, GroupList, OffsetWrapper, QueueTimeSpan
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.stats import BrokerConsumeStatsHeader, ConsumeStatsHeader, ConsumeTimeSpanHeader
from skylarkmq.protocol.headers.topic import TopicHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, consumer, heartbeat, pull


class Stats(BrokerParts):
    """Parts; topic `T` has two queues, the ordered topic `Other` one."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.topics.update(TopicConfig(TOPIC, 2, 2))
        self.topics.update(TopicConfig("Other", 1, 1, order=True))
        self.windows.step(0)

    def join(self, *topics: str) -> None:
        """Add a member of the group that subscribes to these topics."""
        peer = self.peer()
        peer.send(heartbeat(consumer(*[subscribe(topic, "*", 1) for topic in topics])))
        peer.take()

    async def stats(self, **fields: str) -> ConsumeStats:
        request = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(GROUP, **fields))
        return ConsumeStats.decode((await self.peer().call_and_wait(request)).body)

    async def topics_listed(self, **fields: str) -> set[str]:
        return {queue.topic for queue in (await self.stats(**fields)).offset_table}


@pytest.fixture
async def stats(tmp_path: Path) -> AsyncIterator[Stats]:
    it = Stats(tmp_path)
    yield it
    it.store.close()


def queue(queue_id: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "b", queue_id)


async def test_consume_stats_have_the_progress_in_each_queue(stats: Stats) -> None:
    """Max offset, committed and pulled offset, and store time of the last consumed message; and the rate."""
    stats.put(b"x", b"y")
    stats.clock.now_ms += 7
    stats.put(b"z")
    stats.offsets.commit(GROUP, TOPIC, 0, 2)
    stats.peer().call(pull())
    stats.windows.step(10_000)
    response = await stats.stats(topic=TOPIC)
    assert response.offset_table == {
        queue(0): OffsetWrapper(3, 2, 3, stats.clock.now_ms - 7),
        queue(1): OffsetWrapper(0, 0, 0, 0),
    }
    assert (response.consume_tps, response.diff, response.inflight_diff) == (0.3, 1, 1)


async def test_consume_stats_without_a_topic_cover_all_topics_with_offsets(stats: Stats) -> None:
    """Deleted topics are skipped; a group that never committed has an empty table."""
    assert await stats.topics_listed() == set()
    for topic in (TOPIC, "Other", "Gone"):
        stats.offsets.commit(GROUP, topic, 0, 0)
    assert await stats.topics_listed() == {TOPIC, "Other"}
    assert await stats.topics_listed(topic=" ") == {TOPIC, "Other"}


async def test_offsets_of_topics_without_a_subscription_are_ignored(stats: Stats) -> None:
    """Unless the request lists topics, as 5.x does."""
    stats.offsets.commit(GROUP, "Other", 0, 0)
    stats.join(TOPIC)
    assert await stats.topics_listed() == set()
    assert await stats.topics_listed(topic="Other") == set()
    assert await stats.topics_listed(topic=TOPIC) == {TOPIC}
    assert await stats.topics_listed(topic_list=f"Other;{TOPIC};Gone;") == {TOPIC, "Other"}


async def test_consume_stats_of_all_groups(stats: Stats) -> None:
    """GET_BROKER_CONSUME_STATS (317): by group, for ordered topics or for all, with totals over everything."""
    stats.put(b"x", b"y")
    stats.offsets.commit(GROUP, TOPIC, 0, 1)
    stats.offsets.commit(GROUP, "Other", 0, 0)
    stats.offsets.note_pull(GROUP, TOPIC, 0, 2)
    stats.groups.find_or_create(GROUP)

    async def call(is_order: str) -> dict[str, object]:
        request = RemotingCommand.request(
            RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=is_order)
        )
        response = await stats.peer().call_and_wait(request)
        body: dict[str, object] = javajson.loads(response.body, object_key=MessageQueue.of)
        return body

    body = await call("false")
    assert (body["brokerAddr"], body["totalDiff"], body["totalInflightDiff"]) == ("h:1", 1, 1)
    groups = {group: topics for entry in body["consumeStatsList"] for group, topics in entry.items()}  # type: ignore[attr-defined]
    assert [sorted({key.topic for key in each["offsetTable"]}) for each in groups[GROUP]] == [[TOPIC], ["Other"]]
    assert groups["TOOLS_CONSUMER"] == []
    [only] = [topics for entry in (await call("true"))["consumeStatsList"] for topics in entry.values() if topics]  # type: ignore[attr-defined]
    assert [list(each["offsetTable"]) for each in only] == [[queue(0, "Other")]]


async def test_the_consumers_of_a_topic(stats: Stats) -> None:
    """Groups with members that subscribe to it, and groups with offsets of it."""
    stats.offsets.commit("away", TOPIC, 0, 1)
    stats.offsets.commit("elsewhere", "Other", 0, 1)
    stats.join(TOPIC)
    response = stats.peer().call(RemotingCommand.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(TOPIC)))
    assert GroupList.decode(response.body).group_list == [GROUP, "away"]


async def test_time_spans_have_the_age_of_the_backlog(stats: Stats) -> None:
    """First, last and last consumed time of each queue, and the age of the next message; -1 if there is none."""
    came_ms = []
    for _ in range(3):
        came_ms.append(stats.clock.now_ms)
        stats.put(b"x")
        stats.clock.now_ms += 100
    stats.offsets.commit(GROUP, TOPIC, 0, 2)
    request = RemotingCommand.request(RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpanHeader(TOPIC, GROUP))
    spans = ConsumeTimeSpans.decode((await stats.peer().call_and_wait(request)).body).consume_time_span_set
    assert spans == [
        QueueTimeSpan(queue(0), came_ms[0], came_ms[2], came_ms[1], 100),
        QueueTimeSpan(queue(1), -1, -1, -1, stats.clock.now_ms + 1),
    ]
    unknown = RemotingCommand.request(RequestCode.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpanHeader("none", GROUP))
    assert stats.peer().call(unknown).code == 17


async def test_all_offsets_are_returned(stats: Stats) -> None:
    """GET_ALL_CONSUMER_OFFSET (43) returns the file's content and the topics of each group; SYSTEM_ERROR (1) if it is
    empty."""
    request = RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET)
    empty = stats.peer().call(request)
    assert (empty.code, empty.remark) == (1, "No consumer offset in this broker")
    stats.offsets.commit(GROUP, TOPIC, 0, 2)
    body = ConsumerOffsets.decode(stats.peer().call(request).body)
    assert (body.offset_table, body.group_topic_map) == ({f"{TOPIC}@{GROUP}": {0: 2}}, {GROUP: [TOPIC]})
    assert body.data_version is not None
