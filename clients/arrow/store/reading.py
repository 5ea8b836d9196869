"""The rows of a task: bytes of the log to record batches, in windows of a few MiB.

    LogRange      consecutive records; their queues decide whether they count (selection)
    UnitRanges    records that queue units refer to, in the order of the log
    Singles       records that may have the selected key

Damage ends the task, or, with failOnDataLoss=false, is skipped and logged: a single record if its length is valid or a
unit refers to the next record, else everything up to the next record that a unit of any queue refers to.

Source: docs/reference/disk.md, "CommitLog record", "ConsumeQueue".
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.arrow.columns import record_batch, split_batches
from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, ends_of
from skylarkmq.clients.arrow.row_filter import RowFilter
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.log import WINDOW_BYTES, Log
from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.queues import StoredQueues, Units
from skylarkmq.clients.arrow.store.record_checks import records_match
from skylarkmq.clients.arrow.store.scattered import read_scattered
from skylarkmq.clients.arrow.store.selection import RecordHeads, RowSelector, Selection, rows_with_key
from skylarkmq.clients.arrow.store.tasks import LogRange, Singles, Task, UnitRanges
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import Record, parse

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 10_000
_ADVICE: Final = "set failOnDataLoss=false to skip it; `mqbroker store verify` shows the extent of the damage"


class StoreRows:
    """Reads the tasks of one store. Errors are StoreUnreadable, with the remedy."""

    def __init__(
        self, options: StoreOptions, selection: Selection, extent: Extent, row_filter: RowFilter | None = None
    ) -> None:
        self._options = options
        self._selection = selection
        self._extent = extent
        self._log = Log.at(options.log_directories, force_gap=options.force_gap)
        self._queues = StoredQueues(Path(options.path))
        self._selector = RowSelector(selection, extent, self._queues)
        self._filter = row_filter
        self._buffer = bytearray(WINDOW_BYTES)

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
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
            self._report(f"byte {begin} of the log was deleted by a running broker after the query was planned")
        while at is not None and at < end:
            for window in self._log.windows(at, end, self._buffer):
                ends = ends_of(window.view, window.starts[-1:])
                at = window.base + int(ends[-1])
                offsets = window.base + window.starts
                yield from self._batches(window.view, window.starts, offsets, has_units=False)
            if at >= end or self._log.is_closed_at(at):
                return
            at = self._after_damage(at, end)

    def _after_damage(self, at: int, end: int) -> int | None:
        self._report(f"no record at byte {at} of the log ({self._log.parse(at)})")
        known = (queue.first_record_at(at + 1) for queue in self._queues.all())
        following = min((offset for offset in known if offset is not None), default=end)
        return following if following < end else None

    def _read_units(self, task: UnitRanges) -> Iterator[pa.RecordBatch]:
        for offsets, sizes in self._positions_of(task):
            kept = (offsets >= self._extent.begin) & (offsets < self._extent.loose)
            yield from self._read_scattered(offsets[kept], sizes[kept], has_units=True, must_exist=True)
        yield from self._read_singles(Singles(task.positions), must_exist=True)

    def _positions_of(self, task: UnitRanges) -> Iterator[tuple[Ints, Ints]]:
        """Yield positions and sizes: of one queue many units at a time, of several queues all at once, to sort them."""
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
        """Read records of which only the positions are known: their sizes are read first."""
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
        for found in read_scattered(self._log, offsets, sizes, self._buffer):
            for offset in found.missing.tolist() if must_exist else ():
                if self._log.find(offset) is not None or not self._options.force_gap:
                    self._report(f"a queue unit refers to byte {offset} of the log, which has no whole record")
            yield from self._batches(found.view, found.starts, found.offsets, has_units=has_units)

    def _batches(self, view: memoryview, starts: Ints, offsets: Ints, *, has_units: bool) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(starts), BATCH_ROWS):
            count = min(BATCH_ROWS, len(starts) - first)
            for batch in split_batches(
                count, lambda rows: self._batch(view, starts[rows], offsets[rows], has_units), first
            ):
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
                    self._report(f"no record at byte {offset} of the log ({record})")
            return self._make_batch(view, starts[is_record], offsets[is_record], has_units)

    def _make_batch(self, view: memoryview, starts: Ints, offsets: Ints, has_units: bool) -> pa.RecordBatch:
        heads = RecordHeads(view, starts)
        self._report_batch_records(heads, offsets)
        is_wanted = self._selector.wanted(heads, offsets, has_units) & self._at_own_offset(heads, offsets)
        if self._options.check_crc:
            is_wanted &= self._with_valid_checksum(RecordLayout(view, starts), offsets)
        if not is_wanted.all():
            starts = starts[is_wanted]
        if self._selection.key is not None:
            window = view.obj
            assert isinstance(window, bytearray)
            starts = starts[rows_with_key(window, RecordLayout(view, starts), self._selection.key)]
        if self._filter is not None:
            starts = self._filter.matching(view, starts, self._options.broker_name)
        return record_batch(view, starts, self._options.broker_name, self._options.columns)

    def _report_batch_records(self, heads: RecordHeads, offsets: Ints) -> None:
        """Report records with many messages each, which are not read: the loss must not be silent."""
        found = offsets[self._selector.batches(heads)]
        if len(found):
            what = f"{len(found)} records with many messages each (queue.type=BatchCQ), the first at byte {found[0]}"
            self._report(f"{what} of the log, are not read", "select other topics (subscribe), or failOnDataLoss=false")

    def _at_own_offset(self, heads: RecordHeads, offsets: Ints) -> NDArray[np.bool_]:
        """Return whether each record's physical offset equals its position."""
        is_in_place: NDArray[np.bool_] = heads.physical_offsets == offsets
        for row in np.flatnonzero(~is_in_place).tolist():
            stated = heads.physical_offsets[row]
            self._report(f"byte {offsets[row]} of the log has a record with physical offset {stated}")
        return is_in_place

    def _with_valid_checksum(self, layout: RecordLayout, offsets: Ints) -> NDArray[np.bool_]:
        is_valid = records_match(layout)
        for offset in offsets[~is_valid].tolist():
            self._report(f"the record at byte {offset} of the log does not match its checksum")
        return is_valid

    def _report(self, what: str, advice: str = _ADVICE) -> None:
        if self._options.fail_on_data_loss:
            raise StoreUnreadable(f"{self._options.path}: {what}; {advice}")
        log.warning("skipped path=%s: %s", self._options.path, what)

    def __repr__(self) -> str:
        return f"<StoreRows {self._log!r}>"
