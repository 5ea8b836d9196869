"""The log of a follower: bytes of another log are written at its end, as they come.

Nothing is parsed here, and a piece of bytes may end inside a record. Each segment that the bytes touch gets one pwrite,
with the zeros up to the end of the block. A large piece, of catch-up, gets two, because a copy of it would cost more.
No stretch of zeros follows it (ZeroFill): the next piece comes at once, and would write those blocks again.
A write that fails or is short is undone, as in CommitLog, and the end does not move.

The rest of a segment after its last record is a blank: 8 bytes, and zeros up to the segment's end. The zeros may be
skipped (`skip_to`).

Source: docs/reference/disk.md, "Followers".
"""

import logging

from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.files.zero_fill import STRETCH_BYTES
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, Buffer

log = logging.getLogger(__name__)


class FollowerLog(CommitLog):
    """The writer of a follower's log. Its `end` is always `written`: no message opens a batch."""

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte."""
        return self.written == self.files.min_offset

    def append_bytes(self, data: Buffer) -> None:
        """Write bytes at the end. Raises OSError; then nothing is appended."""
        rest, at = memoryview(data), self.written
        try:
            while rest:
                segment = self._segment_for(at)
                piece = rest[: segment.end - at]
                rest = rest[len(piece) :]
                self._write_piece(segment, piece, at)
                at += len(piece)
        except OSError as problem:
            log.error("append failed offset=%d bytes=%d error=%s", self.written, len(data), problem)
            self._note_failed_write(problem)
            self._records.at = self.written
            self._clear_failed(self.written, self.written + len(data))
            raise
        self._written_bytes += len(data)
        self._end_at(at)

    def _segment_for(self, at: int) -> MappedFile:
        segment = self._segment
        if segment is None or at >= segment.end:
            segment = self.files.segment_at(at - at % self._size)
            self._records.at = at
            self._switch_to(segment)
        return segment

    def _write_piece(self, segment: MappedFile, piece: memoryview, at: int) -> None:
        end = at + len(piece)
        padding = self._zeros.padding(segment, end)
        if len(piece) < STRETCH_BYTES:
            segment.write(b"".join((piece, bytes(padding))) if padding else piece, at - segment.start)
            self._zeros.extend(segment, end + padding)
        else:
            segment.write(piece, at - segment.start)
            segment.write(bytes(padding), end - segment.start)
            self._zeros.reached(end + padding)

    def _end_at(self, end: int) -> None:
        self.written = self._records.at = end
        if end >= self._prepare_at:
            self._prepare_at = self._segment_end
            self.files.prepare(self._segment_end)

    def skip_to(self, start: int) -> bool:
        """Move the end over the zeros after a blank, to the start of the next segment. False: there is no blank."""
        segment = self._segment
        if segment is None or start != segment.end or self.written - BLANK_SIZE < segment.start:
            return False
        at = self.written - BLANK_SIZE
        if BLANK.unpack_from(segment.view, at - segment.start) != (segment.end - at, MAGIC_BLANK):
            return False
        self._end_at(start)
        return True

    def truncate(self, end: int) -> None:
        """End the log at byte `end`: remove later segments, clear later bytes, sync. Raises OSError.

        The last segment goes first, and the bytes are cleared after that, so a power cut at any time leaves a log that
        ends between `end` and the old end.
        """
        self._zeros.close()
        self.files.remove_from(end)
        segment = self.files.find(end)
        if segment is not None:
            segment.zero(end - segment.start, min(self.written, segment.end) - segment.start)
        self.files.sync_from(end)
        log.info("log truncated end=%d before=%d", end, self.written)
        self.written = self._records.at = end
        self.attach()

    def begin_at(self, start: int) -> None:
        """Begin an empty log at the start of a segment. Raises OSError."""
        self.files.remove_all()
        self.written = self._records.at = start
        self.attach()
