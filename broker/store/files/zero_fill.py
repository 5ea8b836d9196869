"""Zero fill after the end of a SYNC_FLUSH log, so that its syncs find blocks that were written before.

The allocator reserves a segment and writes zeros into as much of it as time allows (allocation.py). The first write to
a reserved block needs an entry in the file system's journal, and a sync that waits for one takes twice as long
(tests/bench/bench_sync.py). So a batch that reaches the end of the written blocks also writes a stretch of zeros. One
sync in six pays for all of them.

    records ... records | rest of the block | ... rest of the stretch |      only reserved
                        ^ the log's end                               ^ stored_end

While no producer appends, a thread continues with zeros to the end of the segment. It stops for the next batch, which
waits for at most one stretch (`IdleZeroFill`).

A batch is padded with zeros to the end of its last block even where blocks were written before. If the block's page is
no longer in memory, the kernel would have to read the rest of the block from the disk, and the event loop would wait.

Zeros do not count as log: recovery finds zeros there, as after the end of every log.
Source: docs/reference/disk.md, "Mapped files".
"""

import logging
from threading import Lock, Thread
from typing import Final

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile

IDLE_MS: Final = 500
"""After this time without an append the idle fill starts."""

_BLOCK_BYTES: Final = 4_096
STRETCH_BYTES: Final = 256 << 10
"""Larger stretches delay the loop and one sync for longer; smaller ones come too often."""
_STRETCH: Final = memoryview(bytes(STRETCH_BYTES))
_UNLIMITED: Final = 1 << 62

log = logging.getLogger(__name__)


class ZeroFill:
    """The zero fill of one log. Positions are byte offsets of the log."""

    def __init__(self, config: StoreConfig) -> None:
        self._is_padded = config.zero_fill_bytes > 0
        self._has_stretches = config.is_sync_flush and not config.transient_store_pool_enable
        self.stored_end = _UNLIMITED  # from this offset on the segment is only reserved
        self._idle: IdleZeroFill | None = None
        self._seen_end = -1
        self._seen_ms = 0  # when the log's end was first seen at `_seen_end`

    def switch_to(self, segment: MappedFile, end: int) -> None:
        """Continue in `segment`; the log ends at `end`."""
        self.stop_idle_fill()
        if self._has_stretches:
            self.stored_end = segment.start + segment.stored_end(end - segment.start)

    def padding(self, segment: MappedFile, end: int) -> int:
        """Return how many zeros to write with a batch that ends at `end`. Called right before that write."""
        if self._idle is not None:
            self.stop_idle_fill()
        return min((segment.start - end) % _BLOCK_BYTES, segment.end - end) if self._is_padded else 0

    def extend(self, segment: MappedFile, end: int) -> None:
        """Write the next stretch if the batch and its padding, which end at `end`, have passed the written blocks.

        Raises OSError if the zeros could not be written.
        """
        if end > self.stored_end:
            size = _to_next_stretch(end - segment.start, segment.size)
            segment.write(_STRETCH[:size], end - segment.start)
            self.stored_end = end + size

    def reached(self, end: int) -> None:
        """Note that the log ends at `end`, where no stretch follows."""
        self.stored_end = max(self.stored_end, end)

    def step(self, segment: MappedFile, end: int, now_ms: int) -> None:
        """Start the idle fill if the log has not grown for a while. The log ends at `end`, in `segment`."""
        if end != self._seen_end:
            self._seen_end, self._seen_ms = end, now_ms
        elif self._idle is None and self.stored_end < segment.end and now_ms - self._seen_ms >= IDLE_MS:
            self._idle = IdleZeroFill(segment, self.stored_end - segment.start)

    def stop_idle_fill(self) -> None:
        """Stop the idle thread, before an append or a switch to another segment."""
        idle, self._idle = self._idle, None
        if idle is not None:
            self.stored_end = max(self.stored_end, idle.stop())

    def close(self) -> None:
        """Stop writing zeros and wait for the thread."""
        idle = self._idle
        self.stop_idle_fill()
        if idle is not None:
            idle.join()

    def __repr__(self) -> str:
        return f"<ZeroFill stored_end={self.stored_end}>"


class IdleZeroFill:
    """A thread that zero-fills a segment from byte `at` on, until it is stopped or fails.

    It syncs through a descriptor of its own. The kernel reports a write error once to each descriptor, and errors of
    record writes must reach the flusher.
    """

    def __init__(self, segment: MappedFile, at: int) -> None:
        self._segment = segment
        self._at = at
        self._is_stopped = False
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="skylark-zeros", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop writing. Return the offset of the log up to which zeros are written."""
        with self._lock:
            self._is_stopped = True
        return self._segment.start + self._at

    def join(self) -> None:
        """Wait for the thread after `stop`."""
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
        log.log(level, "idle segment zero-filled path=%s from=%d to=%d", self._segment.path, began, self._at)

    def _write_stretch(self, file: MappedFile) -> bool:
        """Write zeros up to the start of the next stretch. False: stopped, or at the end of the segment."""
        with self._lock:
            size = 0 if self._is_stopped else _to_next_stretch(self._at, file.size)
            if size:
                file.write(_STRETCH[:size], self._at)
                self._at += size
        return size > 0

    def __repr__(self) -> str:
        return f"<IdleZeroFill {self._segment.path} at={self._at}>"


def _to_next_stretch(at: int, size: int) -> int:
    """Return how many bytes lie between `at` and the next stretch of a segment of `size` bytes; 0 at its end."""
    return min(len(_STRETCH) - at % len(_STRETCH), size - at)
