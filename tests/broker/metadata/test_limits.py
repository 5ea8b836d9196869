"""Limits at their thresholds: entries up to a limit are kept, further ones rejected, and existing ones may change."""

import logging
from collections.abc import Callable

import pytest

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.metadata.limits import Limits, LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError
from tests.harness.stores import Clock

AT_START = 11
QUEUES_AT_START = sum((8, 16, 1, 1024, 18, 1, 1, 1, 1, 1, 1))


def refused(setting: str, request: Callable[[], object]) -> None:
    """Assert that the request is rejected with SYSTEM_BUSY (2) and the setting in the remark."""
    with pytest.raises(RequestError) as refusal:
        request()
    assert refusal.value.code == ResponseCode.SYSTEM_BUSY
    assert f"{setting}=" in refusal.value.remark


def topics(data: bytes | None = None, **limits: int) -> tuple[TopicTable, Limits]:
    them = Limits(LimitsConfig(**limits))
    table = TopicTable(TopicsConfig(cluster_name="Cluster", broker_name="broker"), Clock(), them)
    table.load(data)
    return table, them


def topic(name: str, queues: int, write: int | None = None) -> TopicConfig:
    return TopicConfig(name, queues, queues if write is None else write)


def test_limit_of_queues_per_topic() -> None:
    """The larger of both numbers counts; a rejected topic does not exist."""
    table, _ = topics(max_queues_per_topic=4)
    assert table.update(topic("T", 4))
    assert table.update(topic("T", 2, 4))
    for odd in (topic("U", 5), topic("U", 0, 5), topic("U", 2**31 - 1), topic("T", 2, 5)):
        refused("maxQueuesPerTopic", lambda odd=odd: table.update(odd))  # type: ignore[misc]
    assert table.find("U") is None
    assert table.find("T") == topic("T", 2, 4)


def test_limit_of_queues_of_all_topics() -> None:
    """They are counted through creation, change and deletion."""
    table, limits = topics(max_queues=QUEUES_AT_START + 6)
    table.update(topic("A", 4))
    table.update(topic("B", 2))
    assert limits.queues.used is not None
    assert limits.queues.used() == QUEUES_AT_START + 6
    refused("maxQueues", lambda: table.update(topic("A", 5)))
    refused("maxQueues", lambda: table.create_from_template("C", "TBW102", 1))
    refused("maxQueues", lambda: table.create_for_group("%RETRY%g"))
    table.update(topic("A", 3))
    table.create_for_group("%RETRY%g")
    table.delete("B")
    assert table.create_from_template("C", "TBW102", 2) is not None
    assert limits.queues.used() == QUEUES_AT_START + 6


def test_limit_of_topics() -> None:
    """Their number is limited however they are created; existing ones may change."""
    table, limits = topics(max_topics=AT_START + 1)
    table.update(topic("A", 1))
    refused("maxTopics", lambda: table.update(topic("B", 1)))
    refused("maxTopics", lambda: table.create_from_template("B", "TBW102", 1))
    assert table.update(topic("A", 2))
    assert limits.topics.refused == 2


def test_a_list_of_topics_is_rejected_as_a_whole() -> None:
    """No topic of the list is created if they exceed the limit together."""
    table, _ = topics(max_topics=AT_START + 2)
    refused("maxTopics", lambda: table.update_all([topic(name, 1) for name in "ABC"]))
    assert table.find("A") is None
    assert len(table.update_all([topic(name, 1) for name in "AB"])) == 2


def test_a_store_above_its_limits_works(caplog: pytest.LogCaptureFixture) -> None:
    """It opens with a warning; its topics may shrink and change, and nothing may grow."""
    before, _ = topics()
    before.update(topic("Wide", 100))
    table, limits = topics(before.encode(), max_topics=3, max_queues_per_topic=10, max_queues=20)
    with caplog.at_level(logging.WARNING):
        limits.warn_if_above()
    assert "setting=maxTopics most=3" in caplog.text
    assert "setting=maxQueues most=20" in caplog.text
    assert table.update(topic("Wide", 100, 50))
    refused("maxQueuesPerTopic", lambda: table.update(topic("Wide", 101)))
    refused("maxTopics", lambda: table.update(topic("New", 1)))
    assert table.update(topic("Wide", 9))


def test_restored_topics_are_not_rejected() -> None:
    """Acknowledged messages are served again, but a topic gets no more queues than the limit."""
    table, _ = topics(max_topics=1, max_queues=1, max_queues_per_topic=16)
    table.restore({"Orders": 3, "Broken": 2**31})
    assert table.find("Orders") == topic("Orders", 8)
    assert table.find("Broken") == topic("Broken", 16)


def test_limit_of_groups() -> None:
    """However they are created; system groups exist from the start."""
    limits = Limits()
    groups = SubscriptionGroups(GroupsConfig(auto_create_subscription_group=True), Clock(), limits)
    assert limits.groups.used is not None
    limits.groups.most = limits.groups.used() + 1
    assert groups.find_or_create("G1") is not None
    refused("maxSubscriptionGroups", lambda: groups.find_or_create("G2"))
    refused("maxSubscriptionGroups", lambda: groups.update(SubscriptionGroupConfig(group_name="G2")))
    assert groups.update(SubscriptionGroupConfig(group_name="G1", retry_max_times=3))
    assert groups.delete("G1")
    assert groups.find_or_create("G2") is not None


def test_limit_of_groups_in_one_request() -> None:
    """A list of groups that would exceed the limit creates none of them."""
    limits = Limits()
    groups = SubscriptionGroups(GroupsConfig(), Clock(), limits)
    assert limits.groups.used is not None
    limits.groups.most = limits.groups.used() + 2
    two = [SubscriptionGroupConfig("G1"), SubscriptionGroupConfig("G2")]
    refused("maxSubscriptionGroups", lambda: groups.update_all([*two, SubscriptionGroupConfig("G3")]))
    assert groups.find("G1") is None
    assert groups.update_all(two) == two
    assert groups.update_all([*two, SubscriptionGroupConfig("G1", retry_max_times=1)]) == [
        SubscriptionGroupConfig("G1", retry_max_times=1)
    ]


def test_limit_of_queues_of_a_retry_topic() -> None:
    """It is that of every topic, when a group is stored and when its retry topic is created."""
    table, limits = topics(max_queues_per_topic=4)
    groups = SubscriptionGroups(GroupsConfig(), Clock(), limits)
    assert groups.update(SubscriptionGroupConfig("G", retry_queue_nums=4))
    assert table.create_for_group("%RETRY%G", 4).write_queue_nums == 4
    for odd in (5, 2**31 - 1):
        refused("maxQueuesPerTopic", lambda odd=odd: groups.update(SubscriptionGroupConfig("G", retry_queue_nums=odd)))  # type: ignore[misc]
        refused("maxQueuesPerTopic", lambda odd=odd: groups.update(SubscriptionGroupConfig("H", retry_queue_nums=odd)))  # type: ignore[misc]
        refused("maxQueuesPerTopic", lambda odd=odd: table.create_for_group("%RETRY%H", odd))  # type: ignore[misc]
    assert (groups.find("G"), groups.find("H")) == (SubscriptionGroupConfig("G", retry_queue_nums=4), None)
    assert table.find("%RETRY%H") is None
    limits.configure(LimitsConfig(max_queues_per_topic=2))
    assert groups.update(SubscriptionGroupConfig("G", retry_queue_nums=4, retry_max_times=1))
    assert groups.update(SubscriptionGroupConfig("G", retry_queue_nums=3))
    refused("maxQueuesPerTopic", lambda: groups.update(SubscriptionGroupConfig("G", retry_queue_nums=4)))


def test_limit_of_committed_offsets() -> None:
    """The first offset of a group in a queue may be rejected; existing ones change, and free space when removed."""
    limits = Limits(LimitsConfig(max_consumer_offsets=2))
    offsets = ConsumerOffsetTable(OffsetsConfig(), Clock(), limits)
    assert offsets.commit("G", "T", 0, 5)
    assert offsets.commit("G", "T", 1, 5)
    assert not offsets.commit("G", "T", 2, 5)
    assert offsets.committed("G", "T", 2) is None
    assert offsets.refusal("G", "T", 2).code == ResponseCode.SYSTEM_BUSY
    assert offsets.commit("G", "T", 1, 6)
    offsets.remove_group("G")
    assert offsets.commit("H", "T", 0, 1)
    assert limits.offsets.used is not None
    assert limits.offsets.used() == 1
    again = ConsumerOffsetTable(OffsetsConfig(), Clock(), limits)
    again.load(offsets.encode())
    assert limits.offsets.used() == 1


def test_limit_of_locks_per_group() -> None:
    """A request that would exceed the limit changes nothing; renewals and other groups are not affected."""
    locks = QueueLocks(60_000, limits=Limits(LimitsConfig(max_locks_per_group=2)))
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(3)]
    refused("maxLocksPerGroup", lambda: locks.lock("G", "one", queues, 0))
    assert locks.lock("G", "one", queues[:2], 0) == queues[:2]
    refused("maxLocksPerGroup", lambda: locks.lock("G", "one", queues[2:], 1))
    assert locks.lock("G", "one", queues[:2], 1) == queues[:2]
    assert locks.lock("H", "two", queues[:2], 1) == queues[:2]
    locks.unlock("G", "one", queues[:1])
    assert locks.lock("G", "one", queues[2:], 2) == queues[2:]


def test_values_change_while_the_broker_runs() -> None:
    """The next request uses the new value; counts of rejections stay."""
    table, limits = topics(max_queues_per_topic=4)
    refused("maxQueuesPerTopic", lambda: table.update(topic("T", 5)))
    limits.configure(LimitsConfig(max_queues_per_topic=5))
    assert table.update(topic("T", 5))
    assert (limits.queues_per_topic.most, limits.queues_per_topic.refused) == (5, 1)
