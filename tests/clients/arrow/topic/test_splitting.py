"""Queue ranges become tasks."""

from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.arrow.topic.splitting import Range, cut, ranges_of, tasks_of
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", f"b{n % 3}", n) for n in range(30)]

ranges = st.dictionaries(
    st.sampled_from(QUEUES), st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1
).map(lambda found: [Range(queue, begin, begin + length) for queue, (begin, length) in found.items()])


def covered(pieces: list[Range]) -> list[tuple[MessageQueue, int, int]]:
    """Return the ranges that the pieces cover together."""
    whole: list[tuple[MessageQueue, int, int]] = []
    for piece in sorted(pieces):
        if whole and whole[-1][0] == piece.queue and whole[-1][2] == piece.begin:
            whole[-1] = (piece.queue, whole[-1][1], piece.end)
        else:
            whole.append((piece.queue, piece.begin, piece.end))
    return whole


@given(ranges, st.none() | st.integers(500, 10**5), st.none() | st.integers(1, 100))
def test_split_ranges_cover_every_offset_once(found: list[Range], longest: int | None, fewest: int | None) -> None:
    """No piece is empty or longer than the limit."""
    pieces = cut(found, longest, fewest)
    assert covered(pieces) == covered(found)
    assert all(0 < len(piece) <= (longest or 10**9) for piece in pieces)


@given(ranges, st.none() | st.integers(1, 40))
def test_each_task_has_ranges_of_one_broker(found: list[Range], most: int | None) -> None:
    """There are at most `most` tasks, unless there are more brokers."""
    tasks = tasks_of(found, most)
    assert sorted(piece for task in tasks for piece in task) == sorted(found)
    assert all(len({piece.queue.broker_name for piece in task}) == 1 for task in tasks)
    if most is not None:
        assert len(tasks) <= max(most, len({piece.queue.broker_name for piece in found}))


def test_small_brokers_get_one_task() -> None:
    """Each broker has a task; the remaining tasks go to the brokers with most messages."""
    found = [Range(QUEUES[0], 0, 3), *(Range(MessageQueue("T", f"other-{n}", 0), 0, 1) for n in range(2))]
    found.append(Range(MessageQueue("T", QUEUES[0].broker_name, 9), 0, 1))
    assert [len(tasks_of(found, most)) for most in (1, 3, 4)] == [3, 3, 4]


def test_splitting_is_proportional() -> None:
    """The long queue is split, the short one is not."""
    long, short = Range(QUEUES[0], 0, 900), Range(QUEUES[1], 0, 100)
    pieces = cut([long, short], None, 10)
    assert [len(piece) for piece in pieces] == [100] * 10


def test_a_start_after_the_end_has_no_range() -> None:
    """A first batch that is planned again from a later start has such queues."""
    assert ranges_of({QUEUES[0]: 9, QUEUES[1]: 3}, {QUEUES[0]: 5, QUEUES[1]: 5}) == [Range(QUEUES[1], 3, 5)]
