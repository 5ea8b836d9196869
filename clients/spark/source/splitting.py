"""Which task reads what: ranges of queues, cut and put together.

    one queue, one task           as it comes
    maxRecordsPerPartition n      no range is longer than n
    minPartitions n               ranges are cut in proportion to their lengths until there are about n
    maxPartitions n               tasks read several ranges, of one broker each, of about the same length in all

A task has one connection, so its ranges are of one broker.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue


class Range(msgspec.Struct, frozen=True, order=True):
    """Offsets [begin, end) of a queue."""

    queue: MessageQueue
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def cut(self, parts: int) -> list["Range"]:
        """The same offsets in so many ranges of about the same length; fewer if there are fewer offsets."""
        parts = max(1, min(parts, len(self)))
        edges = [self.begin + len(self) * n // parts for n in range(parts + 1)]
        return [Range(self.queue, begin, end) for begin, end in pairwise(edges)]


def ranges_of(starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[Range]:
    """What lies between, in the queues' order. A queue whose start is not before its end has nothing."""
    return [Range(queue, starts[queue], ends[queue]) for queue in sorted(ends) if starts[queue] < ends[queue]]


def cut(ranges: Iterable[Range], longest: int | None, fewest: int | None) -> list[Range]:
    """No range longer than `longest`, and about `fewest` of them or more."""
    pieces = list(ranges)
    if longest is not None:
        pieces = [piece for whole in pieces for piece in whole.cut(-(-len(whole) // longest))]
    if fewest is not None and len(pieces) < fewest:
        total = sum(map(len, pieces))
        pieces = [piece for whole in pieces for piece in whole.cut(round(fewest * len(whole) / total))]
    return pieces


def tasks_of(ranges: Sequence[Range], most: int | None) -> list[tuple[Range, ...]]:
    """The ranges of each task: one, unless that made more than `most` tasks (and than there are brokers)."""
    if most is None or len(ranges) <= most:
        return [(piece,) for piece in ranges]
    by_broker: dict[str, list[Range]] = {}
    for piece in ranges:
        by_broker.setdefault(piece.queue.broker_name, []).append(piece)
    tasks: list[tuple[Range, ...]] = []
    total = sum(map(len, ranges))
    beyond_one_each = max(most - len(by_broker), 0)
    for pieces in by_broker.values():
        share = beyond_one_each * sum(map(len, pieces)) // total
        tasks += dealt(pieces, min(1 + share, len(pieces)))
    return tasks


def dealt(ranges: Sequence[Range], hands: int) -> list[tuple[Range, ...]]:
    """The ranges in so many heaps of about the same length: the longest first, each to the shortest heap."""
    heaps: list[list[Range]] = [[] for _ in range(hands)]
    lengths = [0] * hands
    for piece in sorted(ranges, key=len, reverse=True):
        shortest = lengths.index(min(lengths))
        heaps[shortest].append(piece)
        lengths[shortest] += len(piece)
    return [tuple(sorted(heap)) for heap in heaps]
