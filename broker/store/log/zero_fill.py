"""Zeros behind the end of a SYNC_FLUSH log, so that its syncs find blocks that were written before.

A segment is reserved, and as much of it as there was time for is written beforehand (allocate.py). Blocks that are only
reserved become written ones by an entry in the file system's journal, and a sync that has to wait for one takes twice
as long (tests/bench/bench_sync.py). So a batch that comes to the end of what is stored takes a stretch of zeros with
it, and one sync in six pays for all of them.

    records ... records | rest of the block | ... rest of the stretch |      only reserved
                        ^ the log's end                               ^ stored_end

While nobody appends, a thread goes on with zeros to the end of the segment, and gives way to the next batch: that waits
for the stretch under way at most (`IdleZeros`).

Up to the end of its last block a batch has zeros in any case, where blocks are written already: if the block's page is
no longer in memory, what is not overwritten would have to be read from the disk, and everybody would wait for that.

Nothing counts as written that is not a record: recovery finds zeros, as behind every end of a log.
Source: docs/formats.md, "Mapped files".
"""

import logging
from threading import Lock, Thread
from typing import Final

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.log.mapped_file import MappedFile

IDLE_MS: Final = 500
"""Without an append, after which nobody is expected soon."""

_BLOCK_BYTES: Final = 4_096
_STRETCH: Final = memoryview(bytes(256 << 10))
"""More hold the loop and one sync up for longer, less come too often."""
_UNLIMITED: Final = 1 << 62

log = logging.getLogger(__name__)


class ZerosAhead:
    """Of one log. Positions are bytes of the log."""

    def __init__(self, config: StoreConfig) -> None:
        self._is_padded = config.written_beforehand_bytes > 0
        self._has_stretches = config.is_sync_flush and not config.transient_store_pool_enable
        self.stored_end = _UNLIMITED  # from here on the segment is only reserved
        self._idle: IdleZeros | None = None
        self._seen_end = -1
        self._seen_ms = 0  # when the log first ended there

    def turn_to(self, segment: MappedFile, end: int) -> None:
        """The log, which ends there, goes on in this segment."""
        self.give_way()
        if self._has_stretches:
            self.stored_end = segment.start + segment.stored_end(end - segment.start)

    def padding(self, segment: MappedFile, end: int) -> int:
        """How many zeros are written with a batch that ends there, and is about to be written."""
        if self._idle is not None:
            self.give_way()
        return min((segment.start - end) % _BLOCK_BYTES, segment.end - end) if self._is_padded else 0

    def follow(self, segment: MappedFile, end: int) -> None:
        """A batch and its padding, up to there, are written. OSError: the zeros are not."""
        if end > self.stored_end:
            size = _to_next_stretch(end - segment.start, segment.size)
            segment.write(_STRETCH[:size], end - segment.start)
            self.stored_end = end + size

    def step(self, segment: MappedFile, end: int, now_ms: int) -> None:
        """The log ends there, in that segment: nobody may have appended for a while."""
        if end != self._seen_end:
            self._seen_end, self._seen_ms = end, now_ms
        elif self._idle is None and self.stored_end < segment.end and now_ms - self._seen_ms >= IDLE_MS:
            self._idle = IdleZeros(segment, self.stored_end - segment.start)

    def give_way(self) -> None:
        """Somebody appends, or the segment is left: no zeros are written but by us."""
        idle, self._idle = self._idle, None
        if idle is not None:
            self.stored_end = max(self.stored_end, idle.stop())

    def close(self) -> None:
        """No zeros are written any more."""
        idle = self._idle
        self.give_way()
        if idle is not None:
            idle.join()

    def __repr__(self) -> str:
        return f"<ZerosAhead stored_end={self.stored_end}>"


class IdleZeros:
    """A thread that fills a segment from byte `at` on, until it is told to stop, or cannot.

    It syncs by a descriptor of its own: the kernel tells each descriptor once of what it could not write, and what it
    has to tell of records is for the flusher.
    """

    def __init__(self, segment: MappedFile, at: int) -> None:
        self._segment = segment
        self._at = at
        self._is_stopped = False
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="skylark-zeros", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Write nothing more; returns up to which byte of the log there are zeros."""
        with self._lock:
            self._is_stopped = True
        return self._segment.start + self._at

    def join(self) -> None:
        """Wait for the thread, which was stopped."""
        self._thread.join()

    def _run(self) -> None:
        began = self._at
        try:
            file = self._segment.opened_again()
            try:
                while self._write_stretch(file):
                    file.sync()
            finally:
                file.close()
        except OSError as problem:
            log.warning("segment not filled path=%s at=%d error=%s", self._segment.path, self._at, problem)
        level = logging.INFO if self._at == self._segment.size else logging.DEBUG
        log.log(level, "segment filled while nobody sent path=%s from=%d to=%d", self._segment.path, began, self._at)

    def _write_stretch(self, file: MappedFile) -> bool:
        """Write as far as the next stretch begins; False: there is no more to write."""
        with self._lock:
            size = 0 if self._is_stopped else _to_next_stretch(self._at, file.size)
            if size:
                file.write(_STRETCH[:size], self._at)
                self._at += size
        return size > 0

    def __repr__(self) -> str:
        return f"<IdleZeros {self._segment.path} at={self._at}>"


def _to_next_stretch(at: int, size: int) -> int:
    """How many bytes there are up to where the next stretch of a segment of that size begins; 0 at its end."""
    return min(len(_STRETCH) - at % len(_STRETCH), size - at)
