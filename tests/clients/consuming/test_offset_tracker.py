"""How far a queue is consumed."""

import random

from skylarkmq.clients.consuming.offset_tracker import Progress


def test_commit_stops_at_the_smallest_unfinished() -> None:
    """Finishing out of order moves the offset only over what is finished without a gap."""
    progress = Progress(10)
    for offset in (10, 11, 14):
        progress.received(offset, 100)
    progress.position = 20
    assert (progress.commit_offset(), progress.unfinished, progress.unfinished_bytes, progress.span) == (10, 3, 300, 10)
    progress.finish(11)
    assert progress.commit_offset() == 10
    progress.finish(10)
    assert progress.commit_offset() == 14
    progress.finish(14)
    assert (progress.commit_offset(), progress.unfinished, progress.unfinished_bytes, progress.span) == (20, 0, 0, 0)


def test_nothing_received_commits_the_position() -> None:
    """Filtered and empty stretches count as consumed."""
    assert Progress(7).commit_offset() == 7


def test_finishing_twice_counts_once() -> None:
    """A message that is finished late or again changes nothing."""
    progress = Progress(0)
    progress.received(0, 5)
    progress.finish(0)
    progress.finish(0)
    assert progress.unfinished_bytes == 0


def test_owner_hears_of_each_finish() -> None:
    """That is when a reader may have room again."""
    heard: list[None] = []
    progress = Progress(0, lambda: heard.append(None))
    progress.received(0, 1)
    progress.finish(0)
    assert len(heard) == 1


def test_agrees_with_a_plain_model() -> None:
    """Random finishing: the commit offset is the minimum of what is open."""
    chance = random.Random(3)
    progress, still_open = Progress(0), set[int]()
    for _ in range(2000):
        if still_open and chance.random() < 0.5:
            done = chance.choice(sorted(still_open))
            still_open.remove(done)
            progress.finish(done)
        else:
            offset = progress.position + chance.randrange(3)
            progress.received(offset, 1)
            progress.position = offset + 1
            still_open.add(offset)
        assert progress.commit_offset() == min(still_open, default=progress.position)
