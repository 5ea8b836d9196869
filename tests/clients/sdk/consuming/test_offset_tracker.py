"""The offsets of one queue."""

import random

from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker


def test_the_commit_offset_is_the_smallest_unacknowledged_one() -> None:
    """An acknowledgment out of order does not move it."""
    tracker = OffsetTracker(10)
    for offset in (10, 11, 14):
        tracker.received(offset, 100)
    tracker.position = 20
    assert (tracker.commit_offset(), tracker.unfinished, tracker.unfinished_bytes, tracker.span) == (10, 3, 300, 10)
    tracker.finish(11)
    assert tracker.commit_offset() == 10
    tracker.finish(10)
    assert tracker.commit_offset() == 14
    tracker.finish(14)
    assert (tracker.commit_offset(), tracker.unfinished, tracker.unfinished_bytes, tracker.span) == (20, 0, 0, 0)


def test_without_messages_the_position_is_committed() -> None:
    """Filtered messages and gaps count as consumed."""
    assert OffsetTracker(7).commit_offset() == 7


def test_a_second_acknowledgment_has_no_effect() -> None:
    """A late one neither."""
    tracker = OffsetTracker(0)
    tracker.received(0, 5)
    tracker.finish(0)
    tracker.finish(0)
    assert tracker.unfinished_bytes == 0


def test_each_acknowledgment_calls_the_owner() -> None:
    """The puller may have capacity again."""
    heard: list[None] = []
    tracker = OffsetTracker(0, lambda: heard.append(None))
    tracker.received(0, 1)
    tracker.finish(0)
    assert len(heard) == 1


def test_the_tracker_agrees_with_a_model() -> None:
    """With random acknowledgments: the commit offset is the minimum of the open offsets."""
    chance = random.Random(3)
    tracker, still_open = OffsetTracker(0), set[int]()
    for _ in range(2000):
        if still_open and chance.random() < 0.5:
            done = chance.choice(sorted(still_open))
            still_open.remove(done)
            tracker.finish(done)
        else:
            offset = tracker.position + chance.randrange(3)
            tracker.received(offset, 1)
            tracker.position = offset + 1
            still_open.add(offset)
        assert tracker.commit_offset() == min(still_open, default=tracker.position)
