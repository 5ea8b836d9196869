"""Selects the records of a log that become rows: those that a consumer could pull, limited by the query's options.

    no row                    because
    prepared, rolled back     consumers do not see a half message; once committed, it is in the log again
    batch topics              records with many messages each and queues of another layout are not supported; they are
                              reported when the store is planned, or where such a record is found
                              (`RowSelector.batches`)
    outside its queue         its topic was deleted (and perhaps recreated), so no unit refers to it. Records after
                              `Extent.loose` need no unit: a broker that starts would add them
    reserved topics           unless they are named in the options

Source: docs/reference/wire.md, "System flags", "System topics"; docs/reference/disk.md, "Half messages on disk",
"Deleted topics".
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.arrow.columns import stored_columns
from skylarkmq.clients.arrow.record_layout import STORE_TIMESTAMP_AT, V6_LONGER, Ints, RecordLayout, integers
from skylarkmq.clients.arrow.slices import numbers
from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.queues import StoredQueues
from skylarkmq.clients.arrow.topic.topic_names import is_selected
from skylarkmq.protocol.codes import SysFlag, is_reserved_topic
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.record import Buffer

INNER_BATCH: Final = 0xC0
_FAR: Final = 1 << 62
_TABLE_SIZE: Final = 1 << 16


class Selection(msgspec.Struct, frozen=True):
    """The query's selection; None: no limit. Times in ms: stored at `begin_ms` or later, before `end_ms`.

    `pattern`: a regular expression over topic names, if `topics` is None.
    """

    topics: frozenset[str] | None = None
    key: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    pattern: str | None = None

    @property
    def is_by_topic(self) -> bool:
        """Whether only some of the topics are selected."""
        return self.topics is not None or self.pattern is not None

    def has_topic(self, topic: str) -> bool:
        """Return whether messages of that topic are selected."""
        if self.topics is not None:
            return topic in self.topics
        return not is_reserved_topic(topic) if self.pattern is None else is_selected(topic, self.pattern)


class RecordHeads:
    """The fields of records that decide whether they become rows; one value per record in each array."""

    def __init__(self, buffer: Buffer, starts: Ints, more: Collection[str] = ()) -> None:
        """`more`: names of further columns, for `numbers`. Raises ProtocolError for a position without a record."""
        found = stored_columns(buffer, starts, (*_HEAD_COLUMNS, *more), encoded=("topic",))
        self._found = found
        self.topics: pa.DictionaryArray = found["topic"]
        self.sys_flags: NDArray[np.int32] = numbers(found["sysFlag"])
        self.queue_ids: NDArray[np.int32] = numbers(found["queueId"])
        self.physical_offsets: Ints = numbers(found["physicalOffset"])
        self._buffer = buffer
        self._starts = starts

    def numbers(self, name: str) -> Ints:
        """Return a column of numbers."""
        column: Ints = numbers(self._found[name])
        return column

    @property
    def store_timestamps(self) -> Ints:
        """Store timestamps, ms."""
        longer = np.where(self.sys_flags & SysFlag.BORN_HOST_V6, V6_LONGER, 0)
        return integers(self._buffer, 8)[self._starts + STORE_TIMESTAMP_AT + longer].astype(np.int64)

    def __repr__(self) -> str:
        return f"<RecordHeads records={len(self._starts)}>"


_HEAD_COLUMNS: Final = ("topic", "sysFlag", "queueId", "physicalOffset")


class _Bounds(NamedTuple):
    """The range of the log with the records of a queue, and the position from which on they need no unit."""

    begin: int
    end: int
    loose: int


_NOT_WANTED: Final = _Bounds(_FAR, _FAR, _FAR)


class RowSelector:
    """Selects many records at a time; caches the bounds of queues."""

    def __init__(self, selection: Selection, extent: Extent, queues: StoredQueues) -> None:
        self._selection = selection
        self._extent = extent
        self._queues = queues
        self._bounds: dict[tuple[str, int], _Bounds] = {}

    def wanted(self, heads: RecordHeads, offsets: Ints, has_units: bool) -> NDArray[np.bool_]:
        """Return whether each record, at its position in the log, becomes a row.

        `has_units`: the records were found through units of a selected queue.
        """
        transaction = heads.sys_flags & SysFlag.TRANSACTION_MASK
        is_wanted: NDArray[np.bool_] = (transaction == 0) | (transaction == SysFlag.TRANSACTION_COMMIT)
        is_wanted &= heads.sys_flags & INNER_BATCH != INNER_BATCH
        if self._selection.begin_ms is not None or self._selection.end_ms is not None:
            is_wanted &= self._in_time(heads)
        return is_wanted if has_units else is_wanted & self._in_queues(heads, offsets)

    def batches(self, heads: RecordHeads) -> NDArray[np.bool_]:
        """Return whether each record is selected and has many messages, in a topic not known as a batch topic."""
        is_batch: NDArray[np.bool_] = heads.sys_flags & INNER_BATCH == INNER_BATCH
        if is_batch.any():
            names = heads.topics.take(np.flatnonzero(is_batch)).to_pylist()
            known = self._queues.batch_topics
            is_batch[is_batch] = [self._selection.has_topic(name) and name not in known for name in names]
            is_batch &= self._in_time(heads)
        return is_batch

    def _in_time(self, heads: RecordHeads) -> NDArray[np.bool_]:
        times = heads.store_timestamps
        begin, end = self._selection.begin_ms, self._selection.end_ms
        is_in_time: NDArray[np.bool_] = (times >= (begin or 0)) & (times < (_FAR if end is None else end))
        return is_in_time

    def _in_queues(self, heads: RecordHeads, offsets: Ints) -> NDArray[np.bool_]:
        names = heads.topics.dictionary.to_pylist()
        ids = heads.queue_ids.astype(np.int64)
        pairs, distinct = _numbered(numbers(heads.topics.indices).astype(np.int64), ids)
        bounds = np.array([self._bounds_of(names[code], queue_id) for code, queue_id in distinct], np.int64)
        begins, ends, loose = bounds.reshape(-1, 3)[pairs].T
        is_in: NDArray[np.bool_] = ((offsets >= begins) & (offsets < ends)) | (offsets >= loose)
        return is_in

    def _bounds_of(self, topic: str, queue_id: int) -> _Bounds:
        key = topic, queue_id
        found = self._bounds.get(key)
        if found is None:
            found = self._bounds[key] = self._find_bounds(topic, queue_id)
        return found

    def _find_bounds(self, topic: str, queue_id: int) -> _Bounds:
        if not self._selection.has_topic(topic) or topic in self._queues.batch_topics:
            return _NOT_WANTED
        loose = max(self._extent.loose, self._extent.deleted.get(topic, 0))
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return _Bounds(_FAR, _FAR, loose)
        return _Bounds(queue.first_record, min(queue.records_end, loose), loose)


def _numbered(codes: Ints, ids: Ints) -> tuple[Ints, Iterable[tuple[int, int]]]:
    """Return a number for each pair, and the pairs by number."""
    if not len(ids):
        return ids, ()
    width = int(ids.max()) + 1
    if ids.min() >= 0 and width * (int(codes.max()) + 1) <= _TABLE_SIZE:
        pairs = codes * width + ids
        distinct = np.flatnonzero(np.bincount(pairs))
        numbers = np.zeros(int(distinct[-1]) + 1, np.int64)
        numbers[distinct] = np.arange(len(distinct))
        return numbers[pairs], [divmod(pair, width) for pair in distinct.tolist()]
    rows, numbers = np.unique(np.stack((codes, ids), axis=1), axis=0, return_inverse=True)
    return numbers.reshape(-1), [(code, queue_id) for code, queue_id in rows.tolist()]


def rows_with_key(window: bytearray, layout: RecordLayout, key: str) -> Ints:
    """Return the indexes of the records with that key: it is their unique key, or among their keys."""
    wanted = key.encode()
    candidates = set()
    at = window.find(wanted)
    while at >= 0:
        candidates.add(int(np.searchsorted(layout.starts, at, "right")) - 1)
        at = window.find(wanted, at + 1)
    view = memoryview(window)
    found = [
        row
        for row in sorted(candidates)
        if row >= 0 and wanted in index_keys(bytes(view[int(layout.property_begins[row]) : int(layout.ends[row])]))
    ]
    return np.array(found, np.int64)
