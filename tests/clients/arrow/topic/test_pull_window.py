"""Pulls in flight, and the reordering of their responses."""

import random
from itertools import pairwise

import pytest

from skylarkmq.clients.arrow.topic.pull_window import DELETED, Kind, PullWindow, Slot, verdict
from skylarkmq.clients.arrow.topic.splitting import Range
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode as R

QUEUES = [MessageQueue("T", "b", n) for n in range(3)]


def slot(at: int = 10, end: int = 42, range_end: int = 100) -> Slot:
    return Slot(Range(QUEUES[0], 0, range_end), at, end, [])


@pytest.mark.parametrize("step", [32, 100, 1000])
def test_pieces_are_returned_in_order_and_once(step: int) -> None:
    """Responses out of order, short or empty, and lost connections: offsets are returned in order, once."""
    for seed in range(60):
        chance = random.Random(seed)
        ranges = [Range(queue, begin := chance.randrange(100), begin + chance.randrange(1, 400)) for queue in QUEUES]
        window = PullWindow(ranges, step)
        seen: dict[MessageQueue, list[tuple[int, int]]] = {queue: [] for queue in QUEUES}
        in_flight: list[int] = []
        number = 0
        while not window.is_finished:
            while window.in_flight < 8 and (asked := window.next_slot()) is not None:
                number += 1
                window.mark_sent(number, asked)
                in_flight.append(number)
            if chance.random() < 0.05:
                window.lose_connection()
                in_flight.clear()
                continue
            answered = window.take_slot(in_flight.pop(chance.randrange(len(in_flight))))
            assert answered is not None
            if chance.random() < 0.1:
                window.retry(answered)
            else:
                window.advance(answered, answered.at + chance.randrange(1, 33), (answered.at, number))
            for piece in window.take():
                seen[piece.range.queue].append((piece.begin, piece.upto))
        for whole in ranges:
            edges = seen[whole.queue]
            assert edges[0][0] == whole.begin
            assert edges[-1][1] == whole.end
            assert all(before[1] == after[0] for before, after in pairwise(edges))
        assert not list(window.waiting_pieces())


def test_an_unexpected_response_is_ignored() -> None:
    """A response may arrive for a request of a closed connection."""
    window = PullWindow([Range(QUEUES[0], 0, 10)], 32)
    asked = window.next_slot()
    assert asked is not None
    window.mark_sent(1, asked)
    window.lose_connection()
    assert window.take_slot(1) is None
    assert not window.is_finished
    assert window.next_slot() is asked


def test_a_window_without_ranges_is_finished() -> None:
    """There is no slot to request."""
    window = PullWindow([], 32)
    assert window.is_finished
    assert window.take() == []


@pytest.mark.parametrize(
    ("code", "following", "is_filtered", "kind", "upto"),
    [
        (R.SUCCESS, 20, False, Kind.TAKEN, 20),
        (R.SUCCESS, 10, False, Kind.BUSY, 10),
        (R.PULL_RETRY_IMMEDIATELY, 30, True, Kind.PASSED, 30),
        (R.PULL_RETRY_IMMEDIATELY, 30, False, Kind.LOST, 30),
        (R.PULL_NOT_FOUND, 30, False, Kind.LOST, 30),
        (R.PULL_NOT_FOUND, 10, False, Kind.ENDED, 100),
        (R.PULL_OFFSET_MOVED, 30, True, Kind.LOST, 30),
        (R.PULL_OFFSET_MOVED, 3, True, Kind.ENDED, 100),
        (R.TOPIC_NOT_EXIST, 10, False, Kind.GONE, 100),
        (R.INVALID_PARAMETER, 10, False, Kind.GONE, 100),
        (R.SYSTEM_BUSY, 10, False, Kind.BUSY, 10),
        (R.SUBSCRIPTION_GROUP_NOT_EXIST, 10, False, Kind.REFUSED, 10),
        (R.NO_PERMISSION, 10, False, Kind.REFUSED, 10),
    ],
)
def test_responses_are_interpreted(code: R, following: int, is_filtered: bool, kind: Kind, upto: int) -> None:
    """Each response code has its effect on a slot [10, 42) in a range that ends at 100."""
    found = verdict(code, following, slot(), is_filtered)
    assert (found.kind, found.upto) == (kind, upto)
    assert (found.why == DELETED) == (kind is Kind.LOST)
