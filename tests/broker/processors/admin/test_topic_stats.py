"""Statistics of queues and counters for operators: offsets, rates, windows, units."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.processors.admin.counters import system_puts
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import BrokerStatsData, ConsumeQueueUnits, StatsItem, TopicOffset, TopicStatsTable
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.stats import BrokerStatsHeader, ConsumeQueueHeader
from skylarkmq.protocol.headers.topic import TopicHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, consumer, heartbeat, pull


class Stats(BrokerParts):
    """Parts, and a method that lets ten seconds pass."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.steady_ms = 0
        self.windows.step(0)

    def ten_seconds_pass(self) -> None:
        self.steady_ms += 10_000
        self.windows.step(self.steady_ms)


@pytest.fixture
async def stats(tmp_path: Path) -> AsyncIterator[Stats]:
    it = Stats(tmp_path)
    yield it
    it.store.close()


def about(topic: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic))


def windows_of(name: str, key: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsHeader(name, key))


def units(index: int, count: int, group: str | None = None, queue_id: int = 0) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.QUERY_CONSUME_QUEUE, ConsumeQueueHeader(TOPIC, queue_id, index, count, group)
    )


async def test_topic_stats_cover_every_queue(stats: Stats) -> None:
    """All readable and writable queues, with their bounds and the time of the last message; and the put rate."""
    stats.topics.update(TopicConfig(TOPIC, 2, 3))
    stats.put(b"x", b"y")
    stats.clock.now_ms += 5
    stats.put(b"z", queue_id=1)
    stats.ten_seconds_pass()
    response = TopicStatsTable.decode((await stats.peer().call_and_wait(about(TOPIC))).body)
    assert response.offset_table == {
        MessageQueue(TOPIC, "b", 0): TopicOffset(0, 2, stats.clock.now_ms - 5),
        MessageQueue(TOPIC, "b", 1): TopicOffset(0, 1, stats.clock.now_ms),
        MessageQueue(TOPIC, "b", 2): TopicOffset(0, 0, 0),
    }
    assert response.topic_put_tps == 0.3


async def test_stats_of_an_unknown_topic_are_an_error(stats: Stats) -> None:
    """TOPIC_NOT_EXIST (17)."""
    response = stats.peer().call(about("none"))
    assert (response.code, response.remark) == (17, "topic[none] not exist")


async def test_counters_have_rocketmqs_names_and_keys(stats: Stats) -> None:
    """Stored messages by topic, delivered ones by topic and group, totals by cluster; sum, rate, average."""
    appends = stats.put(*[b"0123456789"] * 20)
    stats.peer().call(pull())
    stats.ten_seconds_pass()
    size = sum(append.size for append in appends)
    expected = {
        ("TOPIC_PUT_NUMS", TOPIC): StatsItem(20, 2.0, 1.0),
        ("TOPIC_PUT_SIZE", TOPIC): StatsItem(size, size / 10, size / 20),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"): StatsItem(20, 2.0, 20.0),
        ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"): StatsItem(size, size / 10, size),
        ("BROKER_PUT_NUMS", "C"): StatsItem(20, 2.0, 1.0),
    }
    for (name, key), item in expected.items():
        response = stats.peer().call(windows_of(name, key))
        data = BrokerStatsData.decode(response.body)
        assert (data.stats_minute, data.stats_hour, data.stats_day) == (item, StatsItem(), StatsItem()), name


async def test_traffic_of_system_topics_is_counted_separately(stats: Stats) -> None:
    """The broker has counters of all topics, and others of users' topics."""
    stats.topics.update(TopicConfig("SELF_TEST_TOPIC", 1, 1))
    stats.put(*[b"x"] * 20)
    stats.put(*[b"y"] * 10, topic="SELF_TEST_TOPIC")
    stats.peer().call(pull())
    stats.peer().call(pull(topic="SELF_TEST_TOPIC"))
    stats.ten_seconds_pass()
    for name, item in {
        "BROKER_PUT_NUMS": StatsItem(30, 3.0, 1.0),
        "BROKER_GET_NUMS": StatsItem(30, 3.0, 15.0),
        "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": StatsItem(20, 2.0, 1.0),
        "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": StatsItem(20, 2.0, 20.0),
    }.items():
        assert BrokerStatsData.decode(stats.peer().call(windows_of(name, "C")).body).stats_minute == item, name


@pytest.mark.parametrize(("name", "key"), [("TOPIC_PUT_NUMS", "none"), ("NO_SUCH_NUMS", TOPIC)])
async def test_an_unknown_counter_is_an_error(stats: Stats, name: str, key: str) -> None:
    """SYSTEM_ERROR (1), which readers take for: no messages yet."""
    response = stats.peer().call(windows_of(name, key))
    assert (response.code, response.remark) == (1, f"The stats <{name}> <{key}> not exist")


async def test_queue_units_have_the_match_of_a_group(stats: Stats) -> None:
    """Offset, size and tags code of each unit, whether the group would receive it, and its subscription."""
    appends = stats.put(b"x", tag="a") + stats.put(b"yy", tag="b") + stats.put(b"z", tag="a")
    peer = stats.peer()
    peer.send(heartbeat(consumer(subscribe(TOPIC, "a", 7))))
    peer.take()
    response = peer.call(units(0, 2, GROUP))
    body = ConsumeQueueUnits.decode(response.body)
    assert (response.code, response.remark) == (0, NO_RESPONSE_REMARK)
    assert (body.min_queue_index, body.max_queue_index, body.filter_data) == (0, 3, "null")
    assert body.subscription_data is not None
    assert (body.subscription_data.topic, body.subscription_data.sub_string) == (TOPIC, "a")
    listed = [(unit.physic_offset, unit.physic_size, unit.tags_code, unit.eval) for unit in body.queue_data or ()]
    assert listed == [(it.physical_offset, it.size, it.tags_code, it is appends[0]) for it in appends[:2]]


async def test_an_offline_group_matches_no_unit(stats: Stats) -> None:
    """The response says so."""
    stats.put(b"x")
    body = ConsumeQueueUnits.decode(stats.peer().call(units(0, 10, "nobody")).body)
    assert body.filter_data == f"nobody@{TOPIC} is not online!"
    assert [unit.eval for unit in body.queue_data or ()] == [False]
    alone = msgspec.json.decode(stats.peer().call(units(0, 10)).body)
    assert "filterData" not in alone


async def test_queries_of_missing_units(stats: Stats) -> None:
    """A queue without messages is SYSTEM_ERROR (1); an index beyond its end succeeds with a remark, without a body."""
    stats.put(b"x")
    missing = stats.peer().call(units(0, 1, queue_id=3))
    assert (missing.code, missing.remark) == (1, f"3@{TOPIC} is not exist!")
    beyond = stats.peer().call(units(5, 1))
    assert (beyond.code, beyond.remark, bytes(beyond.body)) == (0, f"Index 5 of 0@{TOPIC} is not exist!", b"")
    assert stats.peer().call(units(-1, 1)).code == 0


async def test_deferred_messages_count_for_system_topics(stats: Stats) -> None:
    """Delayed messages are stored in a system topic first."""
    stats.put(b"x", topic="SCHEDULE_TOPIC_XXXX")
    stats.put(b"y", b"z")
    assert system_puts(stats.store) == 1
