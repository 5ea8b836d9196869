"""The topic and the queue of a copy."""

import pytest

from skylarkmq.clients.spark.replay.targets import Targets, choose_queue
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def queues(**counts: int) -> list[MessageQueue]:
    return [MessageQueue("New", broker, queue) for broker, count in counts.items() for queue in range(count)]


def test_topics_are_kept_mapped_or_one() -> None:
    """Messages of retry and dead-letter topics name their topic themselves, unless they are mapped."""
    assert [Targets().topic_of(topic) for topic in ("A", "%DLQ%g", "%RETRY%g")] == ["A", None, None]
    mapping = Targets(topics={"A": "B", "%DLQ%g": "C"})
    assert [mapping.topic_of(topic) for topic in ("A", "X", "%DLQ%g")] == ["B", "X", "C"]
    assert Targets(to_topic="T").topic_of("%RETRY%g") == "T"


def test_a_message_names_its_topic_in_a_property() -> None:
    """Dead letters in RETRY_TOPIC or DLQ_ORIGIN_TOPIC; others in a property of choice."""
    both = "DLQ_ORIGIN_TOPIC\x01X\x02RETRY_TOPIC\x01Y\x02"
    assert [Targets().named_by(text) for text in (both, both[:20], "RETRY_TOPIC\x01\x02", "")] == ["Y", "X", None, None]
    chosen = Targets(topic_property="origin")
    assert [chosen.topic_of("A"), chosen.named_by("origin\x01Z\x02"), chosen.named_by(both)] == [None, "Z", None]


def test_the_queue_of_the_same_number_is_preferred() -> None:
    """On the broker of the same name, else on another broker."""
    assert choose_queue(MessageQueue("Old", "b", 2), queues(a=4, b=4)) == MessageQueue("New", "b", 2)
    assert choose_queue(MessageQueue("Old", "gone", 2), queues(a=4, b=2)) == MessageQueue("New", "a", 2)


def test_other_queues_are_shared_evenly_and_stably() -> None:
    """The choice depends on the name and the number only."""
    chosen = [choose_queue(MessageQueue("Old", "b", number), queues(a=2, b=2)) for number in range(8)]
    assert chosen == [choose_queue(MessageQueue("Old", "b", number), queues(a=2, b=2)) for number in range(8)]
    assert chosen[:2] == [MessageQueue("New", "b", 0), MessageQueue("New", "b", 1)]
    assert {chosen.count(queue) for queue in queues(a=2)} == {1, 2}


def test_a_delay_holds_copies_in_the_queue_of_the_level() -> None:
    """Level n is queue n - 1 of the broker's schedule topic."""
    queue = MessageQueue("New", "a", 3)
    assert Targets().held_in(queue) == queue
    assert Targets(delay_level=5).held_in(queue) == MessageQueue("SCHEDULE_TOPIC_XXXX", "a", 4)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"to_topic": "a b"}, "cannot be the name of a topic"),
        ({"to_topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the broker"),
        ({"to_topic": "A", "topics": {"B": "C"}}, "choose one"),
        ({"topics": {"A": ""}}, "cannot be the name of a topic"),
        ({"delay_level": 19}, "1 to 18"),
        ({"delay_level": -1}, "1 to 18"),
    ],
)
def test_impossible_targets_are_refused(wrong: dict[str, object], why: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=why):
        Targets(**wrong)  # type: ignore[arg-type]
