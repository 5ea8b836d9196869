"""Topic traffic: counted per batch, dropped with the topic, and empty after a restart."""

from pathlib import Path

from skylarkmq.broker.store.queue.topic_traffic import NORMAL, TopicTraffic
from tests.harness.stores import Opened, message


def test_a_batch_counts_messages_and_bytes_of_all_queues_of_a_topic(tmp_path: Path) -> None:
    """The queues of a topic share its figures; other topics have their own."""
    opened = Opened(tmp_path)
    appends = [message(b"x" * size, "T", queue_id) for size, queue_id in ((10, 0), (10, 1), (2_000, 1))]
    other = message(b"y", "U", 0)
    for append in (*appends, other):
        opened.store.put(append)
    opened.store.commit()
    traffic = opened.store.traffic()
    assert traffic["T"].sizes.counts[:2] == [2, 1]
    assert traffic["T"].sizes.total == sum(append.size for append in appends)
    assert (traffic["U"].sizes.count, traffic["U"].sizes.total) == (1, other.size)
    opened.store.close()


def test_messages_into_topics(tmp_path: Path) -> None:
    """Messages that are not counted yet are included; topics without a queue have none; other topics are not read."""
    opened = Opened(tmp_path, queue_units_in_memory=100)
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0)):
        opened.store.put(message(b"x", topic, queue_id))
    opened.store.commit()
    assert opened.store.queues.messages_into(("T", "V")) == 2
    assert opened.store.queues.traffic["U"].sizes.count == 0
    assert opened.store.queues.messages_into("TU") == opened.store.queues.messages_into("TU") == 3
    opened.store.close()


async def test_figures_are_dropped_with_their_topic(tmp_path: Path) -> None:
    """A deleted topic has no figures, and begins at 0 when it is created again."""
    opened = Opened(tmp_path)
    opened.store.put(message(b"x", "T", 0))
    opened.store.commit()
    await opened.store.delete_topic("T")
    assert "T" not in opened.store.traffic()
    opened.store.put(message(b"x", "T", 0))
    opened.store.commit()
    assert opened.store.traffic()["T"].sizes.count == 1
    opened.store.close()


def test_recovered_messages_are_not_counted(tmp_path: Path) -> None:
    """After a restart every topic exists, with 0 messages."""
    opened = Opened(tmp_path)
    opened.store.put(message(b"x", "T", 0))
    opened.store.commit()
    opened.store.close()
    again = Opened(tmp_path)
    assert again.store.traffic()["T"].sizes.count == 0
    again.store.put(message(b"x", "T", 0))
    again.store.commit()
    assert again.store.traffic()["T"].sizes.count == 1
    again.store.close()


def test_messages_without_a_special_type_are_normal() -> None:
    """Messages of other types are counted once more, under their type."""
    traffic = TopicTraffic()
    assert traffic.by_message_type()[NORMAL].count == 0
    traffic.sizes.note_all([100, 200, 300])
    traffic.note_message_type("fifo", 200)
    kinds = traffic.by_message_type()
    assert {kind: (sizes.count, sizes.total) for kind, sizes in kinds.items()} == {NORMAL: (2, 400), "fifo": (1, 200)}
    traffic.note_message_type("fifo", 100)
    traffic.note_message_type("delay", 300)
    assert NORMAL not in traffic.by_message_type()
    assert "messages=3" in repr(traffic)
