"""How far a queue is consumed."""

import random

from skylarkmq.clients.consuming.offset_tracker import OffsetTracker


def test_commit_stops_at_the_smallest_unfinished() -> None:
    """Finishing out of order moves the offset only over what is finished without a gap."""
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


def test_nothing_received_commits_the_position() -> None:
    """Filtered and empty stretches count as consumed."""
    assert OffsetTracker(7).commit_offset() == 7


def test_finishing_twice_counts_once() -> None:
    """A message that is finished late or again changes nothing."""
    tracker = OffsetTracker(0)
    tracker.received(0, 5)
    tracker.finish(0)
    tracker.finish(0)
    assert tracker.unfinished_bytes == 0


def test_owner_hears_of_each_finish() -> None:
    """That is when a reader may have room again."""
    heard: list[None] = []
    tracker = OffsetTracker(0, lambda: heard.append(None))
    tracker.received(0, 1)
    tracker.finish(0)
    assert len(heard) == 1


def test_agrees_with_a_plain_model() -> None:
    """Random finishing: the commit offset is the minimum of what is open."""
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
