"""Which tasks read what was asked for.

    key                      the index leads to records; what it does not know of the log is read
    partitionBy=queue        a task for each queue: its units, and what of it lies behind `Extent.loose`
    topics                   pieces of the log, read through the units of those topics' queues in them
    anything else            pieces of the log

A piece begins with a record that a queue unit leads to: the log itself cannot be entered anywhere but where a segment
begins. Times are looked for by their order: store timestamps never decrease, in the log as in a queue, so what lies
before and behind is not read at all. (What is read is compared once more.)

Source: docs/formats.md, "ConsumeQueue", "Offset by time", "Recovery".
"""

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from skylarkmq.clients.spark.arrow.record_layout import Places
from skylarkmq.clients.spark.store.errors import StoreUnreadable
from skylarkmq.clients.spark.store.extent import Extent, extent_of
from skylarkmq.clients.spark.store.keys import find_key
from skylarkmq.clients.spark.store.log import WINDOW_BYTES, Log
from skylarkmq.clients.spark.store.queues import StoredQueue, StoredQueues
from skylarkmq.clients.spark.store.selection import Rows, Selection
from skylarkmq.clients.spark.store.store_options import QUEUE, StoreOptions
from skylarkmq.clients.spark.store.tasks import LogRange, Singles, Task, UnitRange, UnitRanges
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

_GUIDES: Final = 4  # queues that are asked where a piece may begin: the longest
_NOWHERE: Final = 1 << 62
_FOUND_AT_ONCE: Final = 10_000
_BATCHES: Final = "has queues of batches (queue.type=BatchCQ), which cannot be read from a store"


class Plan:
    """Looks at a store once; `tasks` are what is to be read of `extent`. StoreUnreadable tells what to do."""

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
        """In the order of the log, or by queue."""
        try:
            return list(self._tasks())
        finally:
            self._log.close()

    def _tasks(self) -> Iterator[Task]:
        begin, end = self._time_range()
        if self._selection.key is not None and self._options.use_index:
            yield from self._by_key(begin, end)
        elif self._options.partition_by == QUEUE:
            yield from self._by_queue(begin, end)
        elif self._selection.topics is not None and self._queues.exist:
            yield from self._by_topic(begin, end)
        else:
            yield from self._pieces(begin, end)

    # --- what cannot be read ----------------------------------------------------------------------

    def _refuse_batch_topics(self) -> None:
        topics = self._queues.batch_topics
        named = sorted(topics & (self._selection.topics or frozenset()))
        if named:
            advice = 'read it from its broker, with format("rocketmq")'
            raise StoreUnreadable(f"topic {named[0]} {_BATCHES}; {advice}")
        if topics and self._selection.topics is None:
            self._lose(f"topic {', '.join(sorted(topics))} {_BATCHES}", "name the topics to be read (subscribe)")

    def _refuse_missing_end(self) -> None:
        """A queue that leads behind the last segment; unless a broker runs, and has made one meanwhile."""
        last = max((queue.last_record for queue in self._queues.all()), default=-1)
        if last >= self._log.end and last >= Log.at(self._options.log_directories, force_gap=True).end:
            what = f"queues lead to byte {last} of the log, whose last segment ends at byte {self._log.end}"
            self._lose(what, "bring the segments back, or name the log's other directories (storePathCommitLog)")

    def _lose(self, what: str, advice: str) -> None:
        if self._options.fail_on_data_loss:
            raise StoreUnreadable(f"{self._root}: {what}; {advice}, or failOnDataLoss=false reads the rest")
        log.warning("left out path=%s: %s", self._root, what)

    # --- times ------------------------------------------------------------------------------------

    def _time_range(self) -> tuple[int, int]:
        """Bytes of the log between which everything was stored that was stored in time."""
        begin, end = self.extent.begin, self.extent.end
        if self._selection.begin_ms is not None:
            begin, _ = self._around(self._selection.begin_ms)
        if self._selection.end_ms is not None:
            _, end = self._around(self._selection.end_ms)
        return begin, max(begin, end)

    def _around(self, time_ms: int) -> tuple[int, int]:
        """The last record known that was stored before that time, and the first one not before it."""
        marks = [begin for begin, _ in self._cuts(self.extent.begin, self.extent.end)]
        later = bisect_left(marks, time_ms, key=self._time_at)
        low = marks[later - 1] if later else self.extent.begin
        high = marks[later] if later < len(marks) else self.extent.end
        for queue in self._guides()[:1]:
            begin = queue.at_or_behind(low)
            units = range(begin, queue.at_or_behind(min(high, self.extent.loose)))
            at = begin + bisect_left(units, time_ms, key=lambda unit: self._time_at(queue.place(unit)[0]))
            low = queue.place(at - 1)[0] if at > begin else low
            high = queue.place(at)[0] if at < begin + len(units) else high
        return low, high

    def _time_at(self, offset: int) -> int:
        found = self._log.parse(offset)
        return found.store_timestamp if isinstance(found, Record) else 0

    # --- pieces of the log ------------------------------------------------------------------------

    def _pieces(self, begin: int, end: int) -> Iterator[LogRange]:
        for piece_begin, piece_end in self._cuts(begin, end):
            yield LogRange(piece_begin, piece_end)

    def _cuts(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """[begin, end), which begins with a record, cut at ends of segments and near multiples of the piece size."""
        for segment in self._log.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low >= high:
                continue
            size = self._options.max_partition_bytes
            wished = range(low + size, high, size)
            bounds = sorted({low, *(at for wish in wished if (at := self._entry(wish)) < high)})
            yield from pairwise([*bounds, high])

    def _entry(self, wish: int) -> int:
        """The first place at or behind `wish` where a record is known to begin."""
        if wish >= self.extent.loose:
            return _NOWHERE
        if wish not in self._entries:
            found = (queue.record_at_or_behind(wish) for queue in self._guides())
            self._entries[wish] = min((at for at in found if at is not None), default=_NOWHERE)
        return self._entries[wish]

    def _guides(self) -> list[StoredQueue]:
        return sorted(self._queues.all(), key=lambda queue: queue.first - queue.end)[:_GUIDES]

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
        loose = self._loose_places(max(begin, self.extent.loose), end)
        for queue in self._wanted_queues():
            places = loose.pop((queue.topic, queue.queue_id), ())
            units = _units_in(queue, begin, min(end, self.extent.loose))
            if units is not None or places:
                yield UnitRanges((units,) if units is not None else (), tuple(places))
        for places in loose.values():
            yield UnitRanges((), tuple(places))

    def _loose_places(self, begin: int, end: int) -> dict[tuple[str, int], list[int]]:
        """Where the records of each queue begin that no unit has to lead to."""
        rows = Rows(self._selection, self.extent, self._queues)
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        buffer = bytearray(WINDOW_BYTES)
        for low, high in self._cuts(begin, end):
            for window in self._log.windows(low, high, buffer):
                places = Places(window.view, window.starts)
                offsets = window.base + window.starts
                for row in rows.wanted(places, offsets, has_units=False).nonzero()[0].tolist():
                    topic = bytes(window.view[int(places.topic_begins[row]) : int(places.topic_ends[row])]).decode()
                    found[topic, int(places.queue_ids[row])].append(int(offsets[row]))
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
    """The queue's units whose records begin in [begin, end) of the log."""
    low, high = queue.at_or_behind(begin), queue.at_or_behind(end)
    return UnitRange(queue.topic, queue.queue_id, low, high) if low < high else None
