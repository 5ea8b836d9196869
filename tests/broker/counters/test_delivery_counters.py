"""Delivery counters: incremented by each pull that finds messages, removed with topic and group."""

from pathlib import Path

from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from tests.harness.broker_parts import GROUP, TOPIC, broker_parts, pull


async def test_a_pull_counts_its_messages_and_bytes(tmp_path: Path) -> None:
    """Totals are by topic and group; a pull that finds nothing creates no row."""
    with broker_parts(tmp_path) as parts:
        appends = parts.put(b"a", b"bb")
        peer = parts.peer()
        peer.call(pull())
        peer.call(pull(max_msg_nums=1))
        peer.call(pull(consumer_group="other", queue_id=1))
        table = parts.pulls.deliveries.table()
        row = table[TOPIC][GROUP]
        assert (row.messages, row.bytes) == (3, 2 * appends[0].size + appends[1].size)
        assert list(table[TOPIC]) == [GROUP]
        assert parts.pulls.deliveries.statistics().rows == 1


async def test_counters_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    """A topic that is created again begins at 0."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a")
        parts.peer().call(pull())
        parts.topics.delete(TOPIC)
        assert parts.pulls.deliveries.table() == {}
        assert "topics=0" in repr(parts.pulls.deliveries)


def test_counters_of_a_deleted_group_are_removed() -> None:
    """A topic without groups has no row either."""
    deliveries = DeliveryCounters()
    for topic, group in (("t", "g"), ("t", "h"), ("u", "g")):
        deliveries.note(topic, group, 1, 9)
    deliveries.remove_group("g")
    deliveries.remove_group("nobody")
    assert {topic: list(groups) for topic, groups in deliveries.table().items()} == {"t": ["h"]}
