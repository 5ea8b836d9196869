"""Lag of groups, over a real store with a stopped clock."""

from pathlib import Path

from skylarkmq.broker.ops.collectors.groups import GroupCollector, earlier
from skylarkmq.broker.ops.steps import Value
from skylarkmq.broker.store.files.cold_reads import ColdRead, Range
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.topic import TopicConfig
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat

LAG = "rocketmq_consumer_lag_messages"
AGE = "rocketmq_consumer_lag_latency_milliseconds"
READY = "rocketmq_consumer_ready_messages"
QUEUEING = "rocketmq_consumer_queueing_latency_milliseconds"


def collector_of(parts: BrokerParts) -> GroupCollector:
    return GroupCollector(parts.topics, parts.sessions, parts.offsets, parts.store, parts.clock)


def values(collector: GroupCollector, name: str) -> dict[tuple[str, ...], object]:
    return {step.labels: step.value for step in collector() if isinstance(step, Value) and step.name == name}


def value(collector: GroupCollector, name: str) -> object:
    (found,) = values(collector, name).values()
    return found


async def test_a_queue_without_a_committed_offset_has_no_lag(tmp_path: Path) -> None:
    """Otherwise a group that never committed would lag by all messages ever sent."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a", b"b", queue_id=0)
        parts.put(b"c", b"d", b"e", queue_id=1)
        parts.peer().call(heartbeat(consumer()))
        collector = collector_of(parts)
        assert value(collector, LAG) == 0
        parts.offsets.commit(GROUP, TOPIC, 1, 1)
        assert value(collector, LAG) == 2
        assert values(collector, "rocketmq_consumer_offset") == {(TOPIC, GROUP): 1}


async def test_ages_are_those_of_the_oldest_message_over_all_queues(tmp_path: Path) -> None:
    """Of uncommitted messages, and of messages that are not pulled."""
    with broker_parts(tmp_path) as parts:
        for queue_id in (0, 1):
            parts.put(b"old", queue_id=queue_id)
            parts.clock.now_ms += 1_000
            parts.put(b"new", queue_id=queue_id)
            parts.clock.now_ms += 1_000
        parts.peer().call(heartbeat(consumer()))
        parts.offsets.commit(GROUP, TOPIC, 0, 1)
        parts.offsets.commit(GROUP, TOPIC, 1, 0)
        parts.offsets.note_pull(GROUP, TOPIC, 0, 2)
        parts.offsets.note_pull(GROUP, TOPIC, 1, 1)
        collector = collector_of(parts)
        assert (value(collector, LAG), value(collector, READY)) == (3, 1)
        assert value(collector, AGE) == 3_000
        assert value(collector, QUEUEING) == 1_000
        parts.clock.now_ms += 500
        assert value(collector, AGE) == 3_500


async def test_native_metrics_need_a_subscription(tmp_path: Path) -> None:
    """Without members a group keeps the exporter's metrics, as long as its topic exists."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a")
        parts.offsets.commit(GROUP, TOPIC, 0, 0)
        parts.offsets.commit(GROUP, "never-was", 0, 0)
        collector = collector_of(parts)
        assert values(collector, LAG) == {}
        assert values(collector, "rocketmq_group_diff") == {(GROUP, TOPIC, "0", "1"): 1}
        peer = parts.peer()
        peer.call(heartbeat(consumer()))
        assert values(collector, LAG) == {(GROUP, TOPIC, "false", "false"): 1}
        assert values(collector, "rocketmq_group_diff") == {(GROUP, TOPIC, "1", "1"): 1}
        peer.disconnect()
        assert values(collector, LAG) == {}


async def test_a_broadcasting_group_has_no_age(tmp_path: Path) -> None:
    """Its members keep their own offsets; the label has the model's ordinal."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a")
        parts.peer().call(heartbeat(consumer(model=MessageModel.BROADCASTING)))
        parts.offsets.commit(GROUP, TOPIC, 0, 0)
        collector = collector_of(parts)
        assert values(collector, "rocketmq_group_get_latency_by_storetime") == {}
        assert values(collector, "rocketmq_group_diff") == {(GROUP, TOPIC, "1", "0"): 1}


async def test_retry_topics_have_a_metric_of_their_own(tmp_path: Path) -> None:
    """It counts all messages that were not committed."""
    with broker_parts(tmp_path) as parts:
        parts.topics.update(TopicConfig(f"%RETRY%{GROUP}", 1, 1))
        parts.put(b"a", b"b", topic=f"%RETRY%{GROUP}")
        parts.peer().call(heartbeat(consumer()))
        parts.offsets.commit(GROUP, f"%RETRY%{GROUP}", 0, 1)
        collector = collector_of(parts)
        assert values(collector, "rocketmq_group_retrydiff") == {(GROUP, f"%RETRY%{GROUP}", "1", "1"): 1}
        assert [labels[1] for labels in values(collector, LAG)] == [TOPIC]
        assert values(collector, "rocketmq_group_diff") == {}


async def test_the_time_of_an_unchanged_offset_is_cached(tmp_path: Path) -> None:
    """The store time of a message never changes, so a scrape reads only for offsets that have moved."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a", b"b")
        parts.peer().call(heartbeat(consumer()))
        parts.offsets.commit(GROUP, TOPIC, 0, 0)
        collector = collector_of(parts)
        assert value(collector, AGE) == 0
        assert "times=1" in repr(collector)
        cold = ColdRead(Range("/queue", 0, 20))

        def read(*_place: object) -> int:
            raise cold

        parts.store.store_time_at = read  # type: ignore[method-assign, assignment] # no more reads
        assert cold not in list(collector())
        parts.offsets.commit(GROUP, TOPIC, 0, 1)
        assert list(collector()).count(cold) == 3  # attempts; then the age is left out
        assert "times=0" in repr(collector)


def test_the_earlier_of_two_times() -> None:
    """Either may be unknown."""
    assert (earlier(None, None), earlier(5, None), earlier(None, 7), earlier(5, 7)) == (None, 5, 7, 5)
