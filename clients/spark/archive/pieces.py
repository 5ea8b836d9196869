"""The records of a range of the log, in sorted pieces of at most 64 MiB of log and 262,144 records.

A piece is read into one buffer, sorted in memory and becomes one file. So the memory of a task depends neither on the
size of segments nor on the number of queues, and a file covers a short time. The rows of a piece are ordered by topic,
queue, queue offset, physical offset. Queue offsets of one queue ascend in the log, so a stable sort by queue suffices;
only records that are not in a queue (half messages, records of deleted topics) need the full comparison.

Which records count: those that a consumer could read (clients/arrow/store/selection.py), or all of them with
`everything`. The log is checked: lengths, position, and the checksum of the whole record if it has one, as it is read;
body checksums when the file is read back (files.py), or before with `skip_damaged`. Damage raises StoreUnreadable, or
is skipped and counted with `skip_damaged`.

Source: docs/reference/disk.md, "CommitLog record"; docs/use/spark/archive.md.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, body_slices, ends_of
from skylarkmq.clients.arrow.slices import numbers
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.log import Log, Window, large_buffer
from skylarkmq.clients.arrow.store.queues import StoredQueues
from skylarkmq.clients.arrow.store.record_checks import records_match, seals_match
from skylarkmq.clients.arrow.store.selection import RecordHeads, RowSelector, Selection
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import Record, parse

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 64 << 20
"""Bytes of the log in a piece; a longer record is a piece of its own."""
PIECE_ROWS: Final = 1 << 18
"""Records of a piece, which limits the memory for small ones."""
_RADIX_LIMIT: Final = 1 << 15  # NumPy's stable sort of 16-bit numbers is a radix sort
_MORE_COLUMNS: Final = ("queueOffset", "bodyCrc")
_ADVICE: Final = "`mqbroker store verify` shows the extent of the damage, --skip-damaged archives the rest"


class Piece(NamedTuple):
    """Bytes [begin, end) of the log. `starts`: the kept records in `view`, sorted; one value each in the others.

    `stated_crcs` are the checksums in the records, `body_crcs` those that the bodies must have: 0 for an empty body.
    """

    begin: int
    end: int
    view: memoryview
    starts: Ints
    sizes: Ints
    readable: NDArray[np.bool_]
    physical_offsets: Ints
    stated_crcs: NDArray[np.signedinteger]
    body_crcs: Ints

    @property
    def rows(self) -> int:
        """The number of kept records."""
        return len(self.starts)


class PieceReader:
    """Reads ranges of one log. The counts cover the last range: records that are not archived because no
    consumer could read them (`left_out`), or because they are damaged; store times of all records, 0 without one.
    """

    def __init__(
        self, source: Log, queues: StoredQueues, extent: Extent, *, everything: bool, skip_damaged: bool
    ) -> None:
        self._log = source
        self._queues = queues
        self._everything = everything
        self._skip_damaged = skip_damaged
        self._selector = RowSelector(Selection(), extent, queues)
        self._reset(0)

    def _reset(self, begin: int) -> None:
        self.end = begin
        self.left_out = self.damaged = 0
        self.first_stored_ms = self.last_stored_ms = 0

    def pieces(self, begin: int, end: int, limit_ms: int | None) -> Iterator[Piece]:
        """Yield the pieces of the records that begin in [begin, end), up to the first one stored at `limit_ms`.

        A piece is valid until the next one. `end` is then the position after its last record.
        """
        self._reset(begin)
        if self._log.find(begin) is None:
            raise StoreUnreadable(f"byte {begin} of the log was deleted by a running broker after the job was planned")
        buffer = large_buffer(max(min(PIECE_BYTES, end - begin), 1))
        at: int | None = begin
        while at is not None and at < end:
            for window in self._log.windows(at, end, buffer):
                for first in range(0, len(window.starts), PIECE_ROWS):
                    records, is_cut = self._older(window, window.starts[first : first + PIECE_ROWS], limit_ms)
                    if len(records.starts):
                        yield self._piece(window, window.base + int(window.starts[first]), records)
                    if is_cut:
                        return
            at = self.end
            if at >= end or self._log.is_closed_at(at):
                return
            at = self._after_damage(at, end)

    def _older(self, window: Window, starts: Ints, limit_ms: int | None) -> "tuple[_Records, bool]":
        """Return the whole records at `starts` before the first one stored at `limit_ms`, and whether there is one.

        `end` is then the end of these records.
        """
        records = self._whole_records(window, starts)
        self.end = window.base + int(ends_of(window.view, starts[-1:])[0])
        if limit_ms is None or not (is_late := records.heads.store_timestamps >= limit_ms).any():
            return records, False
        older = int(is_late.argmax())
        self.end = window.base + int(records.starts[older])
        return _Records.of(window, records.starts[:older]), True

    def _whole_records(self, window: Window, starts: Ints) -> "_Records":
        try:
            return _Records.of(window, starts)
        except ProtocolError:
            found = [parse(window.view, start, check_body=False) for start in starts.tolist()]
        is_record = np.array([isinstance(record, Record) for record in found])
        for start, record in zip(starts.tolist(), found, strict=True):
            if not isinstance(record, Record):
                self._report(f"no record at byte {window.base + start} of the log ({record})")
        return _Records.of(window, starts[is_record])

    def _after_damage(self, at: int, end: int) -> int | None:
        """Return where the next record of any queue begins; None if that is not before `end`."""
        self._report(f"no record at byte {at} of the log ({self._log.parse(at)})")
        known = (queue.first_record_at(at + 1) for queue in self._queues.all())
        following = min((offset for offset in known if offset is not None), default=end)
        return following if following < end else None

    def _piece(self, window: Window, begin: int, records: "_Records") -> Piece:
        view, starts, heads = window.view, records.starts, records.heads
        times = heads.store_timestamps
        self.first_stored_ms = self.first_stored_ms or int(times[0])
        self.last_stored_ms = max(self.last_stored_ms, int(times.max()))
        offsets = window.base + starts
        is_whole = self._whole(view, records, offsets)
        is_readable = self._selector.wanted(heads, offsets, has_units=False)
        if not self._everything:
            self._report_batches(offsets[self._selector.batches(heads)])
            self.left_out += int((is_whole & ~is_readable).sum())
            is_whole &= is_readable
        rows = np.flatnonzero(is_whole)
        rows = rows[_order(heads, rows)]
        starts = starts[rows]
        stated_crcs = heads.numbers("bodyCrc")[rows]
        has_body = body_slices(view, starts, heads.sys_flags[rows])[1] > 0
        return Piece(
            begin=begin,
            end=self.end,
            view=view,
            starts=starts,
            sizes=ends_of(view, starts) - starts,
            readable=is_readable[rows],
            physical_offsets=offsets[rows],
            stated_crcs=stated_crcs,
            body_crcs=np.where(has_body, stated_crcs, 0).astype(np.int64),
        )

    def _whole(self, view: memoryview, records: "_Records", offsets: Ints) -> NDArray[np.bool_]:
        """Return whether each record is at its own offset and matches its checksums.

        Without `skip_damaged` the checksums of bodies are only verified in the file that is read back.
        """
        stated = records.heads.physical_offsets
        is_in_place = stated == offsets
        for row in np.flatnonzero(~is_in_place).tolist():
            self._report(f"byte {offsets[row]} of the log has a record with physical offset {stated[row]}")
        starts = records.starts
        is_valid = records_match(RecordLayout(view, starts)) if self._skip_damaged else seals_match(view, starts)
        for offset in offsets[is_in_place & ~is_valid].tolist():
            self._report(f"the record at byte {offset} of the log does not match its checksum")
        is_whole: NDArray[np.bool_] = is_in_place & is_valid
        return is_whole

    def check(self, offset: int) -> None:
        """Raise StoreUnreadable if the record at this offset of the log is damaged."""
        if not isinstance(self._log.parse(offset), Record):
            self._report(f"the record at byte {offset} of the log does not match its checksum")

    def _report_batches(self, offsets: Ints) -> None:
        for offset in offsets.tolist():
            what = f"the record at byte {offset} of the log has many messages (queue.type=BatchCQ)"
            self._report(what, "--everything archives it as one row, --skip-damaged leaves it out")

    def _report(self, what: str, advice: str = _ADVICE) -> None:
        if not self._skip_damaged:
            raise StoreUnreadable(f"{what}; {advice}")
        self.damaged += 1
        log.warning("not archived: %s", what)

    def __repr__(self) -> str:
        return f"<PieceReader {self._log!r}>"


class _Records(NamedTuple):
    """The records at `starts` of a window."""

    starts: Ints
    heads: RecordHeads

    @classmethod
    def of(cls, window: Window, starts: Ints) -> Self:
        """Raises ProtocolError if one of them is not a whole record with a topic in UTF-8."""
        return cls(starts, RecordHeads(window.view, starts, _MORE_COLUMNS))


def _order(heads: RecordHeads, rows: Ints) -> Ints:
    """Return the order of these rows by topic, queue, queue offset, physical offset."""
    names = heads.topics
    ranks = np.argsort(np.argsort(np.array(names.dictionary.to_pylist(), object)))
    topic_ranks = ranks[numbers(names.indices)][rows].astype(np.int64)
    queue_ids = heads.queue_ids[rows].astype(np.int64)
    offsets = heads.numbers("queueOffset")[rows]
    width = int(queue_ids.max()) + 1 if len(rows) else 1
    if len(rows) and queue_ids.min() >= 0 and width * len(ranks) <= _RADIX_LIMIT:
        queues = (topic_ranks * width + queue_ids).astype(np.int16)
        order = np.argsort(queues, kind="stable")
        is_same = queues[order][1:] == queues[order][:-1]
        if (offsets[order][1:] >= offsets[order][:-1])[is_same].all():
            return order
    return np.lexsort((offsets, queue_ids, topic_ranks))
