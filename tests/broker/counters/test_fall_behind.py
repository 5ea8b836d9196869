"""How far behind groups read: one figure per queue and group, as long as the topic exists."""

from skylarkmq.broker.counters.fall_behind import FallBehind


def test_figures_are_removed_with_their_topic() -> None:
    """The last figure counts."""
    figures = FallBehind()
    for group, topic, queue_id, size in (("g", "t", 0, 5), ("g", "t", 0, 3), ("h", "t", 0, 9), ("g", "u", 1, 4)):
        figures.note(group, topic, queue_id, size)
    assert (figures.of("g", "t", 0), figures.of("h", "t", 0), figures.of("g", "t", 1)) == (3, 9, None)
    assert (figures.statistics().queues, figures.statistics().worst_bytes) == (3, 9)
    figures.keep_existing({"u": 1}.get)
    assert (figures.of("g", "t", 0), figures.of("g", "u", 1)) == (None, 4)
    assert repr(figures) == "<FallBehind topics=1>"
    figures.keep_existing(lambda _topic: None)
    assert figures.statistics().worst_bytes == 0


def test_figures_are_removed_with_their_group() -> None:
    """In all topics, and only those of the group."""
    figures = FallBehind()
    for group, topic in (("g", "t"), ("h", "t"), ("g", "u")):
        figures.note(group, topic, 0, 5)
    figures.remove_group("g")
    assert (figures.of("g", "t", 0), figures.of("h", "t", 0), figures.of("g", "u", 0)) == (None, 5, None)
