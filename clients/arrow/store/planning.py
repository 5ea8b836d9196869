"""From a store and a selection to tasks.

    key                      records found through the index, and the parts of the log that the index does not cover
    partitionBy=queue        one task per queue: its units, and its records after `Extent.loose`
    topics                   pieces of the log, read through the queue units of these topics
    otherwise                pieces of the log

A piece begins at a record that a queue unit refers to: the log can be entered only there and at the start of a segment.
Store timestamps never decrease, neither in the log nor in a queue, so the parts before and after a time range are not
read at all. (The timestamps of all records that are read are compared again.)

Source: docs/reference/disk.md, "ConsumeQueue", "Offset by time", "Recovery".
"""

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import Extent, extent_of
from skylarkmq.clients.arrow.store.keys import find_key
from skylarkmq.clients.arrow.store.log import WINDOW_BYTES, Log
from skylarkmq.clients.arrow.store.options import QUEUE, StoreOptions
from skylarkmq.clients.arrow.store.queues import StoredQueue, StoredQueues
from skylarkmq.clients.arrow.store.selection import RecordHeads, RowSelector, Selection
from skylarkmq.clients.arrow.store.tasks import LogRange, Singles, Task, UnitRange, UnitRanges
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

_LONGEST_QUEUES: Final = 4  # number of queues, the longest ones, that are searched for the begin of a piece
_NOWHERE: Final = 1 << 62
_FOUND_AT_ONCE: Final = 10_000
_BATCHES: Final = "has batch queues (queue.type=BatchCQ), which cannot be read from a store"


class Plan:
    """Examines a store once; `tasks` returns what to read of `extent`. StoreUnreadable contains the remedy."""

    def __init__(self, options: StoreOptions, selection: Selection) -> None:
        root = Path(options.path)
        self._options = options
        self._selection = selection
        self._root = root
        self._log = Log.at(options.log_directories, force_gap=options.force_gap)
        self._queues = StoredQueues(root)
        self._entries: dict[int, int] = {}
        self._refuse_batch_topics()
        self.extent: Extent = extent_of(root, self._log, self._queues)
        self._refuse_missing_end()

    def tasks(self) -> list[Task]:
        """Return the tasks, in the order of the log or by queue."""
        try:
            return list(self._tasks())
        finally:
            self._log.close()

    def tasks_between(self, begin: int, end: int) -> list[Task]:
        """Return the tasks for the records that begin in [begin, end) of the log; a record begins at `begin`."""
        low, high = self._time_range()
        try:
            return list(self._tasks_of(max(begin, low), min(end, high)))
        finally:
            self._log.close()

    def part_end(self, begin: int, size: int) -> int:
        """Return where a part of about `size` bytes ends that begins at `begin`: a record begins there, or none does.

        The end is at a queue unit's record, at the end of a segment, or at the end of the log.
        """
        wish = begin + size
        if wish >= self.extent.end:
            return self.extent.end
        following = min((segment.start for segment in self._log.segments if segment.start >= wish), default=_NOWHERE)
        return min(self._entry(wish), following, self.extent.end)

    def queue_ends(self, position: int) -> dict[tuple[str, int], int]:
        """Return the next offset of each selected queue after the records before `position` that have units.

        Queues that begin after it are omitted.
        """
        limit = min(position, self.extent.loose)
        ends = {(queue.topic, queue.queue_id): queue.first_unit_at(limit) for queue in self._wanted_queues()}
        return {queue: end for queue, end in ends.items() if end}

    def _tasks(self) -> Iterator[Task]:
        return self._tasks_of(*self._time_range())

    def _tasks_of(self, begin: int, end: int) -> Iterator[Task]:
        if self._selection.key is not None and self._options.use_index:
            yield from self._by_key(begin, end)
        elif self._options.partition_by == QUEUE:
            yield from self._by_queue(begin, end)
        elif self._selection.is_by_topic and self._queues.exist:
            yield from self._by_topic(begin, end)
        else:
            yield from self._pieces(begin, end)

    # --- what cannot be read ----------------------------------------------------------------------

    def _refuse_batch_topics(self) -> None:
        topics = self._queues.batch_topics
        named = sorted(filter(self._selection.has_topic, topics)) if self._selection.is_by_topic else []
        if named:
            advice = 'read it from its broker, with format("rocketmq")'
            raise StoreUnreadable(f"topic {named[0]} {_BATCHES}; {advice}")
        if topics and not self._selection.is_by_topic:
            self._report(f"topic {', '.join(sorted(topics))} {_BATCHES}", "name the topics to be read (subscribe)")

    def _refuse_missing_end(self) -> None:
        """Report queue units beyond the last segment, unless a running broker has created one in the meantime."""
        last = max((queue.last_record for queue in self._queues.all()), default=-1)
        if last >= self._log.end and last >= Log.at(self._options.log_directories, force_gap=True).end:
            what = f"queue units refer to byte {last} of the log, whose last segment ends at byte {self._log.end}"
            self._report(what, "restore the segments, or add the log's other directories (storePathCommitLog)")

    def _report(self, what: str, advice: str) -> None:
        if self._options.fail_on_data_loss:
            raise StoreUnreadable(f"{self._root}: {what}; {advice}, or set failOnDataLoss=false to read the rest")
        log.warning("skipped path=%s: %s", self._root, what)

    # --- times ------------------------------------------------------------------------------------

    def _time_range(self) -> tuple[int, int]:
        """Return the range of the log that contains all messages stored in the selected time."""
        begin, end = self.extent.begin, self.extent.end
        if self._selection.begin_ms is not None:
            begin, _ = self._around(self._selection.begin_ms)
        if self._selection.end_ms is not None:
            _, end = self._around(self._selection.end_ms)
        return begin, max(begin, end)

    def _around(self, time_ms: int) -> tuple[int, int]:
        """Return the last known record stored before that time, and the first one stored at it or later."""
        marks = [begin for begin, _ in self._cuts(self.extent.begin, self.extent.end)]
        later = bisect_left(marks, time_ms, key=self._time_at)
        low = marks[later - 1] if later else self.extent.begin
        high = marks[later] if later < len(marks) else self.extent.end
        for queue in self._longest_queues()[:1]:
            begin = queue.first_unit_at(low)
            units = range(begin, queue.first_unit_at(min(high, self.extent.loose)))
            at = begin + bisect_left(units, time_ms, key=lambda unit: self._time_at(queue.record_position(unit)[0]))
            low = queue.record_position(at - 1)[0] if at > begin else low
            high = queue.record_position(at)[0] if at < begin + len(units) else high
        return low, high

    def _time_at(self, offset: int) -> int:
        found = self._log.parse(offset)
        return found.store_timestamp if isinstance(found, Record) else 0

    # --- pieces of the log ------------------------------------------------------------------------

    def _pieces(self, begin: int, end: int) -> Iterator[LogRange]:
        for piece_begin, piece_end in self._cuts(begin, end):
            yield LogRange(piece_begin, piece_end)

    def _cuts(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Split [begin, end), which begins at a record, at segment ends and near multiples of the piece size."""
        for segment in self._log.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low >= high:
                continue
            size = self._options.max_partition_bytes
            wished = range(low + size, high, size)
            bounds = sorted({low, *(at for wish in wished if (at := self._entry(wish)) < high)})
            yield from pairwise([*bounds, high])

    def _entry(self, wish: int) -> int:
        """Return the first position at or after `wish` where a record is known to begin."""
        if wish >= self.extent.loose:
            return _NOWHERE
        if wish not in self._entries:
            found = (queue.first_record_at(wish) for queue in self._longest_queues())
            self._entries[wish] = min((at for at in found if at is not None), default=_NOWHERE)
        return self._entries[wish]

    def _longest_queues(self) -> list[StoredQueue]:
        return sorted(self._queues.all(), key=lambda queue: queue.first - queue.end)[:_LONGEST_QUEUES]

    # --- by topic and by queue --------------------------------------------------------------------

    def _wanted_queues(self) -> list[StoredQueue]:
        return [queue for queue in self._queues.all() if self._selection.has_topic(queue.topic)]

    def _by_topic(self, begin: int, end: int) -> Iterator[Task]:
        queues = self._wanted_queues()
        loose = max(begin, min(self.extent.loose, end))
        for low, high in self._cuts(begin, loose):
            ranges = tuple(piece for queue in queues if (piece := _units_in(queue, low, high)) is not None)
            if ranges:
                yield UnitRanges(ranges)
        yield from self._pieces(loose, end)

    def _by_queue(self, begin: int, end: int) -> Iterator[Task]:
        loose = self._loose_positions(max(begin, self.extent.loose), end)
        for queue in self._wanted_queues():
            positions = loose.pop((queue.topic, queue.queue_id), ())
            units = _units_in(queue, begin, min(end, self.extent.loose))
            if units is not None or positions:
                yield UnitRanges((units,) if units is not None else (), tuple(positions))
        for positions in loose.values():
            yield UnitRanges((), tuple(positions))

    def _loose_positions(self, begin: int, end: int) -> dict[tuple[str, int], list[int]]:
        """Return the positions of the records of each queue that need no unit."""
        rows = RowSelector(self._selection, self.extent, self._queues)
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        buffer = bytearray(WINDOW_BYTES)
        for low, high in self._cuts(begin, end):
            for window in self._log.windows(low, high, buffer):
                heads = RecordHeads(window.view, window.starts)
                offsets = window.base + window.starts
                for row in rows.wanted(heads, offsets, has_units=False).nonzero()[0].tolist():
                    found[heads.topics[row].as_py(), int(heads.queue_ids[row])].append(int(offsets[row]))
        return found

    # --- by key -----------------------------------------------------------------------------------

    def _by_key(self, begin: int, end: int) -> Iterator[Task]:
        assert self._selection.key is not None
        topics = self._selection.topics or {topic for topic, _ in self._queues.names()}
        wanted = sorted(filter(self._selection.has_topic, topics))
        found = find_key(self._root, self._options.index_layout, wanted, self._selection.key, self.extent)
        offsets = [offset for offset in found.offsets if begin <= offset < end]
        for first in range(0, len(offsets), _FOUND_AT_ONCE):
            yield Singles(tuple(offsets[first : first + _FOUND_AT_ONCE]))
        for low, high in found.unknown:
            yield from self._pieces(max(low, begin), min(high, end))


def _units_in(queue: StoredQueue, begin: int, end: int) -> UnitRange | None:
    """Return the range of the queue's units whose records begin in [begin, end) of the log."""
    low, high = queue.first_unit_at(begin), queue.first_unit_at(end)
    return UnitRange(queue.topic, queue.queue_id, low, high) if low < high else None
