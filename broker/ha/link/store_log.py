"""The log of a store, as the link uses it: bytes to send, and the effects of the core on a leader and on a follower."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import Event, StartSet, Synced, SyncFailed, Written
from skylarkmq.broker.ha.link.copies import LinkCopies
from skylarkmq.broker.ha.link.epoch_records import (
    EPOCH_TOPIC,
    QUEUE_ID,
    UNITS,
    EpochScan,
    encode_body,
    epoch_of,
    records,
    recovered_epochs,
)
from skylarkmq.broker.ha.link.links import Links
from skylarkmq.broker.ha.link.log_bytes import FileRange
from skylarkmq.broker.ha.link.runner import DamagedLogError, TermFailed
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.replica.errors import ReplicaError
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.protocol import compiled
from skylarkmq.protocol.record import BLANK, BLANK_SIZE

MAX_LAG_BYTES: Final = 64 << 20
"""A follower reads no more while so many bytes are written and not synced."""

_BEGIN_BYTES: Final = 8

TERM_ROOM_BYTES: Final = 64 << 10
"""Room in each segment for the epoch records of terms without messages: about 300."""

log = logging.getLogger(__name__)

_compiled: Final = compiled.load("columns")
Post = Callable[[Event], None]


class StoreBytes:
    """The written bytes of a store's log. `segment_bytes`: the size of its segments."""

    def __init__(self, store: MessageStore, segment_bytes: int) -> None:
        self._store = store
        self._segment_bytes = segment_bytes

    def __repr__(self) -> str:
        return f"<StoreBytes end={self.end}>"

    @property
    def end(self) -> int:
        """The end of the log in its files."""
        return self._store.readable_offset

    def segment_end(self, offset: int) -> int:
        """Return the end of the segment of this byte."""
        return offset - offset % self._segment_bytes + self._segment_bytes

    def view(self, offset: int, size: int) -> memoryview:
        """Return at most `size` bytes of one segment from `offset` on. Raises OSError."""
        region = self._store.log_region(offset, size)
        if region is None:
            raise OSError(f"the log has no byte {offset}")
        return region.view

    def file_range(self, offset: int, size: int) -> FileRange:
        """Return the same bytes as a part of a file. Raises OSError."""
        region = self._store.log_region(offset, size)
        if region is None:
            raise OSError(f"the log has no byte {offset}")
        return FileRange(os.dup(region.fd), region.position, region.size)

    def whole_records(self, part: FileRange) -> int:
        """Return the size of the whole records at the begin of a range, at least of one. Raises OSError."""
        data = os.pread(part.fd, part.size, part.position)
        at = _end_of_records(data)
        while at + BLANK_SIZE <= len(data):
            size, _ = BLANK.unpack_from(data, at)  # a blank has the size of the rest of its segment
            if size <= 0:
                raise OSError(f"no record at byte {part.position + at} of the segment")
            if at + size > len(data):
                return at or int(size)
            at += size
        return at

    def epochs(self, kept: EpochHistory) -> EpochHistory:
        """Return the epochs of the log after its recovery. `kept`: of the file. Raises OSError."""
        store = self._store
        queued: list[Epoch] = []
        at = store.min_offset(EPOCH_TOPIC, QUEUE_ID)
        while at is not None and (units := store.units(EPOCH_TOPIC, QUEUE_ID, at, UNITS)):
            for physical_offset, _, _ in units:
                record = store.reader.copied_record_at(physical_offset)
                if record is not None and (epoch := epoch_of(record)) is not None:
                    queued.append(epoch)
            at += len(units)
        tail = [epoch for record in records(self, store.dispatched_offset) if (epoch := epoch_of(record)) is not None]
        return recovered_epochs(kept, queued, tail, store.min_physical_offset)


class LeaderLog:
    """The log of a node that leads. `copies` None: sends wait for the own flush only (ASYNC_MASTER)."""

    def __init__(
        self, store: MessageStore, node: str, host: bytes, copies: LinkCopies | None, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._node = node
        self._host = host
        self._copies = copies
        self._now_ms = now_ms
        self._term_end: int | None = None
        self.begun: Final = asyncio.Event()
        """Set once an epoch record is written."""
        self.is_shown = False
        """Whether the log is visible up to the epoch record: messages may be taken from then on."""
        self._starts = StartWatch(store)
        store.leader_block.keep_room(TERM_ROOM_BYTES)

    def __repr__(self) -> str:
        return f"<LeaderLog {self._store!r}>"

    def attach(self, post: Post, links: Links) -> None:
        """Pass the growth of the log on from now on."""

        def written(end: int) -> None:
            links.written()
            post(Written(end))

        def synced(end: int) -> None:
            post(Synced(end))

        def flushed(end: int) -> None:
            if self._copies is None:
                synced(end)
            else:
                self._copies.flushed(end, synced, lambda: post(SyncFailed()))

        self._store.flush.on_growth(written, flushed)
        self._store.flush.on_failed = lambda _: post(SyncFailed())

    def step(self, post: Post) -> None:
        """Pass on what is due."""
        self._starts.step(post)

    def write(self, offset: int, payload: bytes | memoryview) -> Written:
        """Refuse: a leader receives no bytes."""
        raise OSError(f"{len(payload)} bytes for a leader's log at {offset}")

    def copy(self, offset: int, payload: bytes | memoryview) -> None:
        """Do nothing: a leader receives no bytes."""

    def set_end(self, end: int) -> None:
        """Refuse: a leader's log is never truncated."""
        raise OSError(f"a truncation of a leader's log to {end}")

    def begin_term(self, epoch: int, in_sync: tuple[str, ...]) -> Written:
        """Append the epoch record. Raises TermFailed."""
        body = encode_body(epoch, self._node, in_sync)
        append = Append(EPOCH_TOPIC, QUEUE_ID, body, b"", 0, 0, 0, self._now_ms(), self._host)
        if self._copies is None:
            self._show_recovered()  # nothing delays the record until it is committed
        with self._store.leader_block.lifted():
            self._store.put(append)
            self._store.write()
        if append.status not in (PutStatus.PENDING, PutStatus.PUT_OK):
            reasons = self._store.flags.reasons() or append.status.name
            raise TermFailed(f"the epoch record cannot be written: {reasons}")
        self._term_end = append.physical_offset + append.size
        self.begun.set()
        return Written(self._term_end, (Epoch(epoch, append.physical_offset),))

    def show(self, end: int) -> bool:
        """Make the log visible up to `end`, and acknowledge what waits for it. Raises OSError."""
        if not self.is_shown and self._term_end is not None and end >= self._term_end:
            self._show_recovered()
            self.is_shown = True
        if self._copies is not None:
            self._copies.move(end)
        return True

    def _show_recovered(self) -> None:
        """Make the recovered end of the log visible, before any message of this process. Raises OSError."""
        try:
            self._store.hidden_tail.show_recovered()
        except ReplicaError as error:
            raise DamagedLogError(str(error)) from None


class FollowerLog:
    """The log of a node that follows."""

    def __init__(self, replica: ReplicaLog, source: StoreBytes, store: MessageStore) -> None:
        self._replica = replica
        self._scan = EpochScan(source, replica.end)
        self._starts = StartWatch(store)
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<FollowerLog {self._replica!r}>"

    def attach(self, post: Post, links: Links) -> None:
        """Pass the progress of the flusher on from now on."""

        def synced(end: int) -> None:
            post(Synced(end))
            self._limit_lag(links)

        self._replica.on_synced(synced)
        self._replica.on_failed(lambda _: post(SyncFailed()))
        self._links = links

    def step(self, post: Post) -> None:
        """Pass on what is due."""
        self._starts.step(post)

    def write(self, offset: int, payload: bytes | memoryview) -> Written:
        """Append received bytes. Raises OSError."""
        replica = self._replica
        try:
            replica.append(offset, payload)
        except ReplicaError as error:
            raise DamagedLogError(str(error)) from None
        self._limit_lag(self._links)
        return Written(replica.end, self._scan.appended(payload, replica.shown))

    def copy(self, offset: int, payload: bytes | memoryview) -> int | None:
        """Append received bytes, and sync the log before this returns. Return its end, or None if nothing was done.

        Raises OSError.
        """
        replica = self._replica
        if self._scan.may_find(payload) or not replica.append_synced(offset, payload):
            return None
        self._scan.passed(payload, replica.shown)
        return replica.end

    def set_end(self, end: int) -> None:
        """Truncate the log, on the disk; an empty log begins there instead. Raises OSError."""
        replica = self._replica
        try:
            if replica.end > replica.min_offset:
                replica.truncate(end)
        except ReplicaError as error:
            raise DamagedLogError(str(error)) from None
        self._scan.truncated(end)

    def begin_term(self, epoch: int, in_sync: tuple[str, ...]) -> Written:
        """Refuse: only an operator lets a follower lead, with a restart."""
        raise OSError(f"epoch {epoch} on a follower, with {in_sync}")

    def show(self, end: int) -> bool:
        """Make the next whole records visible, up to `end`. Return whether all are. Raises OSError."""
        try:
            return self._replica.show_slice(end)
        except ReplicaError as error:
            raise DamagedLogError(str(error)) from None

    def _limit_lag(self, links: Links) -> None:
        """Read no more from the leader while the disk is far behind."""
        is_far = self._replica.end - self._replica.synced > MAX_LAG_BYTES
        if is_far != self._is_paused:
            self._is_paused = is_far
            if is_far:
                links.pause_reading()
            else:
                links.resume_reading()


class StartWatch:
    """Notes when retention has moved the start of the log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._start = store.min_physical_offset

    def step(self, post: Post) -> None:
        """Post StartSet if the start has moved."""
        start = self._store.min_physical_offset
        if start > self._start:
            self._start = start
            post(StartSet(start))


def _end_of_records(data: bytes) -> int:
    """Return the end of the records at the begin of these bytes; 0 without compiled modules. Thousands of small records
    take compiled code microseconds, and the event loop waits for the interpreter no longer."""
    begins = b"" if _compiled is None else _compiled.steps(data, 0, len(data))
    if not begins:
        return 0
    last = int.from_bytes(begins[-_BEGIN_BYTES:], sys.byteorder)
    return last + int(BLANK.unpack_from(data, last)[0])
