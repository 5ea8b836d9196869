"""From queue ranges to tasks: ranges are split and grouped.

    default                       one range per task
    maxRecordsPerPartition n      no range is longer than n
    minPartitions n               ranges are split in proportion to their lengths until there are about n
    maxPartitions n               tasks read several ranges of one broker, with about the same total length

A task has one connection, so all of its ranges belong to one broker.
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
        """Split the range into `parts` ranges of about the same length; fewer if there are fewer offsets."""
        parts = max(1, min(parts, len(self)))
        edges = [self.begin + len(self) * n // parts for n in range(parts + 1)]
        return [Range(self.queue, begin, end) for begin, end in pairwise(edges)]


def ranges_of(starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[Range]:
    """Return the range of each queue from its start to its end, ordered by queue. A queue whose start is not before its
    end has no range."""
    return [Range(queue, starts[queue], ends[queue]) for queue in sorted(ends) if starts[queue] < ends[queue]]


def cut(ranges: Iterable[Range], longest: int | None, fewest: int | None) -> list[Range]:
    """Split ranges so that none is longer than `longest`, and that there are at least about `fewest`."""
    pieces = list(ranges)
    if longest is not None:
        pieces = [piece for whole in pieces for piece in whole.cut(-(-len(whole) // longest))]
    if fewest is not None and len(pieces) < fewest:
        total = sum(map(len, pieces))
        pieces = [piece for whole in pieces for piece in whole.cut(round(fewest * len(whole) / total))]
    return pieces


def tasks_of(ranges: Sequence[Range], most: int | None) -> list[tuple[Range, ...]]:
    """Return the ranges of each task: one range, unless that exceeds `most` tasks.

    Each broker has at least one task.
    """
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
        tasks += grouped(pieces, min(1 + share, len(pieces)))
    return tasks


def grouped(ranges: Sequence[Range], groups: int) -> list[tuple[Range, ...]]:
    """Group the ranges into `groups` of about the same length: longest range first, each into the shortest group."""
    grouped_ranges: list[list[Range]] = [[] for _ in range(groups)]
    lengths = [0] * groups
    for piece in sorted(ranges, key=len, reverse=True):
        shortest = lengths.index(min(lengths))
        grouped_ranges[shortest].append(piece)
        lengths[shortest] += len(piece)
    return [tuple(sorted(group)) for group in grouped_ranges]
