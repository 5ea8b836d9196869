"""The rows of a task: bytes of the log into record batches, windows of a few MiB at a time.

    LogRange      records one behind the other; whether they count is asked of their queues (selection)
    UnitRanges    records that queue units lead to, in the order of the log
    Singles       records that may have the wanted key

What is damaged ends the task, or, with failOnDataLoss=false, is passed over and told: a single record where its length
is sound or a unit leads to the next, else everything up to the next record that a unit of any queue leads to.

Source: docs/formats.md, "CommitLog record", "ConsumeQueue".
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.spark.arrow.columns import batch_of, in_parts
from skylarkmq.clients.spark.arrow.record_layout import Ints, Places, ends_of
from skylarkmq.clients.spark.arrow.schema import arrow_schema
from skylarkmq.clients.spark.store.errors import StoreUnreadable
from skylarkmq.clients.spark.store.extent import Extent
from skylarkmq.clients.spark.store.log import WINDOW_BYTES, Log
from skylarkmq.clients.spark.store.queues import StoredQueues, Units
from skylarkmq.clients.spark.store.scattered import gather
from skylarkmq.clients.spark.store.selection import Rows, Selection, rows_with_key
from skylarkmq.clients.spark.store.soundness import are_sound
from skylarkmq.clients.spark.store.store_options import StoreOptions
from skylarkmq.clients.spark.store.tasks import LogRange, Singles, Task, UnitRanges
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import Record, parse

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 10_000
_ADVICE: Final = "failOnDataLoss=false passes over it, and `mqbroker store verify` tells how far the damage goes"


class StoreRows:
    """Reads tasks of one store. Errors are StoreUnreadable, with what to do."""

    def __init__(self, options: StoreOptions, selection: Selection, extent: Extent) -> None:
        self._options = options
        self._selection = selection
        self._extent = extent
        self._log = Log.at(options.log_directories, force_gap=options.force_gap)
        self._queues = StoredQueues(Path(options.path))
        self._rows = Rows(selection, extent, self._queues)
        self._schema = arrow_schema(options.include_properties)
        self._buffer = bytearray(WINDOW_BYTES)

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Its rows."""
        try:
            if isinstance(task, LogRange):
                yield from self._read_range(task.begin, task.end)
            elif isinstance(task, UnitRanges):
                yield from self._read_units(task)
            else:
                yield from self._read_singles(task)
        finally:
            self._log.close()

    def _read_range(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        at: int | None = begin
        if self._log.find(begin) is None:
            self._lose(f"byte {begin} of the log is gone since the query was planned: a broker deleted its segment")
        while at is not None and at < end:
            for window in self._log.windows(at, end, self._buffer):
                ends = ends_of(window.view, window.starts[-1:])
                at = window.base + int(ends[-1])
                offsets = window.base + window.starts
                yield from self._batches(window.view, window.starts, offsets, has_units=False)
            if at >= end or self._log.is_closed_at(at):
                return
            at = self._behind_damage(at, end)

    def _behind_damage(self, at: int, end: int) -> int | None:
        self._lose(f"no record at byte {at} of the log ({self._log.parse(at)})")
        known = (queue.record_at_or_behind(at + 1) for queue in self._queues.all())
        following = min((offset for offset in known if offset is not None), default=end)
        return following if following < end else None

    def _read_units(self, task: UnitRanges) -> Iterator[pa.RecordBatch]:
        for offsets, sizes in self._places_of(task):
            kept = (offsets >= self._extent.begin) & (offsets < self._extent.loose)
            yield from self._read_scattered(offsets[kept], sizes[kept], has_units=True, must_exist=True)
        yield from self._read_singles(Singles(task.places), must_exist=True)

    def _places_of(self, task: UnitRanges) -> Iterator[tuple[Ints, Ints]]:
        """Of one queue many units at a time; of several all at once, for the order of the log."""
        if len(task.ranges) == 1:
            for units in self._units_of(task):
                yield units.physical_offsets, units.sizes
            return
        found = list(self._units_of(task))
        offsets = np.concatenate([units.physical_offsets for units in found] or [np.empty(0, np.int64)])
        sizes = np.concatenate([units.sizes for units in found] or [np.empty(0, np.int64)])
        order = np.argsort(offsets, kind="stable")
        yield offsets[order], sizes[order]

    def _units_of(self, task: UnitRanges) -> Iterator[Units]:
        for piece in task.ranges:
            queue = self._queues.find(piece.topic, piece.queue_id)
            if queue is not None:
                yield from queue.units(piece.begin, piece.end)

    def _read_singles(self, task: Singles, must_exist: bool = False) -> Iterator[pa.RecordBatch]:
        """Records of which only is known where they begin: their sizes are read first."""
        offsets = np.array(task.offsets, np.int64)
        offsets = offsets[(offsets >= self._extent.begin) & (offsets < self._extent.end)]
        sizes = np.array([self._size_at(offset) for offset in offsets.tolist()], np.int64)
        is_record = sizes > 0
        yield from self._read_scattered(offsets[is_record], sizes[is_record], has_units=False, must_exist=must_exist)

    def _size_at(self, offset: int) -> int:
        found = self._log.parse(offset)
        return found.size if isinstance(found, Record) else 0

    def _read_scattered(
        self, offsets: Ints, sizes: Ints, *, has_units: bool, must_exist: bool
    ) -> Iterator[pa.RecordBatch]:
        for found in gather(self._log, offsets, sizes, self._buffer):
            for offset in found.missing.tolist() if must_exist else ():
                if self._log.find(offset) is not None or not self._options.force_gap:
                    self._lose(f"a queue unit leads to byte {offset} of the log, where no whole record is")
            yield from self._batches(found.view, found.starts, found.offsets, has_units=has_units)

    def _batches(self, view: memoryview, starts: Ints, offsets: Ints, *, has_units: bool) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(starts), BATCH_ROWS):
            count = min(BATCH_ROWS, len(starts) - first)
            for batch in in_parts(count, lambda rows: self._batch(view, starts[rows], offsets[rows], has_units), first):
                if batch.num_rows:
                    yield batch

    def _batch(self, view: memoryview, starts: Ints, offsets: Ints, has_units: bool) -> pa.RecordBatch:
        try:
            return self._make_batch(view, starts, offsets, has_units)
        except ProtocolError:
            found = [parse(view, start, check_body=False) for start in starts.tolist()]
            is_record = np.array([isinstance(record, Record) for record in found])
            for offset, record in zip(offsets.tolist(), found, strict=True):
                if not isinstance(record, Record):
                    self._lose(f"no record at byte {offset} of the log ({record})")
            return self._make_batch(view, starts[is_record], offsets[is_record], has_units)

    def _make_batch(self, view: memoryview, starts: Ints, offsets: Ints, has_units: bool) -> pa.RecordBatch:
        places = Places(view, starts)
        self._tell_batches(places, offsets)
        is_wanted = self._rows.wanted(places, offsets, has_units) & self._in_place(places, offsets)
        if self._options.check_crc:
            is_wanted &= self._sound(places, offsets)
        if not is_wanted.all():
            places = Places(view, starts[is_wanted])
        if self._selection.key is not None:
            window = view.obj
            assert isinstance(window, bytearray)
            places = Places(view, places.starts[rows_with_key(window, places, self._selection.key)])
        return batch_of(places, self._options.broker_name, self._schema)

    def _tell_batches(self, places: Places, offsets: Ints) -> None:
        """Records of many messages each are no rows, which nobody may find out by counting."""
        found = offsets[self._rows.batches(places)]
        if len(found):
            what = f"{len(found)} records of many messages each (queue.type=BatchCQ), the first at byte {found[0]}"
            self._lose(f"{what} of the log, are not read", "name other topics (subscribe), or failOnDataLoss=false")

    def _in_place(self, places: Places, offsets: Ints) -> NDArray[np.bool_]:
        """Whether each record stands where it says it stands."""
        is_in_place: NDArray[np.bool_] = places.physical_offsets == offsets
        for row in np.flatnonzero(~is_in_place).tolist():
            self._lose(f"byte {offsets[row]} of the log holds a record of byte {places.physical_offsets[row]}")
        return is_in_place

    def _sound(self, places: Places, offsets: Ints) -> NDArray[np.bool_]:
        is_sound = are_sound(places)
        for offset in offsets[~is_sound].tolist():
            self._lose(f"the record at byte {offset} of the log has another checksum than it says")
        return is_sound

    def _lose(self, what: str, advice: str = _ADVICE) -> None:
        if self._options.fail_on_data_loss:
            raise StoreUnreadable(f"{self._options.path}: {what}; {advice}")
        log.warning("passed over path=%s: %s", self._options.path, what)

    def __repr__(self) -> str:
        return f"<StoreRows {self._log!r}>"
