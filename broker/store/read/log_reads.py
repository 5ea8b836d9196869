"""Access to bytes of the log: the hot tail through the mapping, everything else by reads that do not wait.

The bytes written last are in memory, so a view of the mapping is free. Older bytes may be cold, and reading a cold page
through the mapping would stop the loop. So the kernel reports which pages are resident (`residency.py`). Resident bytes
that were appended or checked since the start are sent through the mapping or from the file. A long verified run that is
not resident is also sent as a region, marked with `is_hot=False`, and the sender handles it. All other bytes are copied
by `ColdReads`, which raises ColdRead instead of waiting. Records that lie close together are copied by one call.

Source: docs/architecture.md, "Hot and cold data".
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.mapped_file import Holder, MappedFile
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.read.residency import Residency, ResidencyStatistics
from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges
from skylarkmq.protocol.record import LONGEST_HEAD, SMALLEST_RECORD
from skylarkmq.protocol.record_fields import claimed_size
from skylarkmq.protocol.unit_runs import Records

HOT_TAIL_BYTES: Final = 64 << 20
"""Bytes at the end of the log that count as in memory, unless they are from before the start."""

LONG_RUN_BYTES: Final = 32 << 10
"""Shorter runs cost less by copying than by a call of their own: docs/benchmarks/broker.md, "Zero-copy pulls"."""

_WORTH_COPYING_BYTES: Final = 16 << 10  # copying such a gap between two records costs less than another system call
_NEAR_BYTES: Final = 2 << 20  # from the first to the last record of one get
_LARGE: Final = 1 << 20

Chosen = tuple[int, int]
"""A record that a get has selected: physical offset, size."""


class Region(msgspec.Struct, frozen=True, gc=False):
    """Consecutive whole records: `size` bytes of `file` from its byte `position` on."""

    file: MappedFile
    position: int
    size: int
    is_hot: bool = True  # whether it is in memory

    @property
    def view(self) -> memoryview:
        """The bytes, through the mapping. Valid within the event-loop iteration, or while the region is held."""
        return self.file.view[self.position : self.position + self.size]

    def parts_after(self, head: bytes) -> Sequence[bytes | memoryview]:
        """Return `head` and the records' bytes, as buffers to gather."""
        return (head, self.view)

    @property
    def fd(self) -> int:
        """The file's descriptor, open as long as the region is held."""
        return self.file.fd

    def hold(self, holder: Holder) -> None:
        """Keep the file's bytes until `release`."""
        self.file.hold(holder)

    def release(self, holder: Holder) -> None:
        """Remove one hold."""
        self.file.release(holder)


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Copied consecutive whole records: `size` bytes in a buffer of their own.

    Has the interface of a region, without a file: it needs no hold.
    """

    view: memoryview
    position: int = 0
    fd: int = -1
    is_hot: bool = True

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.view)

    def parts_after(self, head: bytes) -> Sequence[bytes | memoryview]:
        """Return `head` and the records' bytes, as buffers to gather."""
        return (head, self.view)

    def hold(self, _holder: Holder) -> None:
        """Do nothing: there is no file."""

    def release(self, _holder: Holder) -> None:
        """Do nothing: there is no file."""


Piece = Region | Copy | Records


class LogReads:
    """Access to the bytes of one log."""

    def __init__(
        self, commit_log: CommitLog, reads: ColdReads, verified: VerifiedRanges, hot_tail_bytes: int = HOT_TAIL_BYTES
    ) -> None:
        self._log = commit_log
        self._files = commit_log.files
        self._reads = reads
        self._verified = verified
        self._hot_tail_bytes = hot_tail_bytes
        self._residency = Residency()

    @property
    def hot_from(self) -> int:
        """The log offset from which everything is in memory."""
        return max(self._log.written - self._hot_tail_bytes, self._verified.tail)

    def bytes_at(self, offset: int, size: int) -> memoryview | None:
        """Return [offset, offset + size) if that range lies in one segment and is written, else None.

        Raises ColdRead if it is not in memory.
        """
        segment = self._files.find(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self._log.written):
            return None
        at = offset - segment.start
        if offset >= self.hot_from:
            segment.check(at, at + size)
            return segment.view[at : at + size]
        return memoryview(self._reads.read(segment.fd, segment.path, at, size))

    def region(self, offset: int, end: int) -> Region | None:
        """Return the bytes from `offset` to `end`, or to the end of the segment; None if the segment does not exist.

        Raises LostBytesError if the file is too short.
        """
        segment = self._files.find(offset)
        if segment is None or offset >= end:
            return None
        position, size = offset - segment.start, min(end, segment.end) - offset
        segment.check_length(position + size)
        is_hot = offset >= self.hot_from or self._residency.is_resident(segment, position, size)
        return Region(segment, position, size, is_hot)

    def hot_window(self, offset: int) -> tuple[int, int, memoryview]:
        """Return the hot part of the segment that contains `offset`: begin and end in the log, and its bytes."""
        segment = self._files.find(offset)
        if segment is None:
            return 0, 0, memoryview(b"")
        begin, end = max(segment.start, self.hot_from), min(segment.end, self._log.written)
        if begin < end:
            segment.check(begin - segment.start, end - segment.start)
        return begin, end, segment.view[begin - segment.start : max(begin, end) - segment.start]

    def may_contain_record(self, offset: int, size: int) -> bool:
        """Return whether a record of `size` bytes fits there. From 1 MiB on, its head must state the same size."""
        segment = self._files.find(offset)
        if segment is None or not SMALLEST_RECORD <= size <= segment.end - offset:
            return False
        if size < _LARGE:
            return True
        head = self.bytes_at(offset, LONGEST_HEAD)
        return head is not None and claimed_size(head) == size

    def regions(self, records: Sequence[Chosen]) -> list[Region]:
        """Return the regions of existing records. Adjacent records become one region."""
        regions: list[Region] = []
        file: MappedFile | None = None
        file_start = file_end = begin = end = 0
        for physical_offset, size in records:
            if physical_offset == end < file_end:
                end += size
                continue
            if file is not None:
                regions.append(Region(file, begin - file_start, end - begin))
            if not file_start <= physical_offset < file_end:
                file = self._files.find(physical_offset)
                file_start, file_end = (file.start, file.end) if file is not None else (0, 0)
            begin, end = physical_offset, physical_offset + size
        if file is not None:
            regions.append(Region(file, begin - file_start, end - begin))
        return regions

    def pieces(self, records: Sequence[Chosen]) -> Sequence[Piece]:
        """Return the records' bytes in order, as the module docstring describes. ColdRead: bytes to copy are cold."""
        regions = self.regions(records)
        if records[0][0] >= self.hot_from or self._is_near(regions):
            for region in regions:
                region.file.check(region.position, region.position + region.size)
            return regions
        pieces: list[Piece] = []
        short: list[Region] = []
        for region in regions:
            if region.size < LONG_RUN_BYTES or not self._is_verified(region):
                short.append(region)
                continue
            pieces += self.copies(short)
            short.clear()
            region.file.check_length(region.position + region.size)
            is_hot = self._residency.is_resident(region.file, region.position, region.size)
            pieces.append(region if is_hot else msgspec.structs.replace(region, is_hot=False))
        pieces += self.copies(short)
        return pieces

    def _is_near(self, regions: Sequence[Region]) -> bool:
        """Return whether the records lie close together, verified and in memory, so that they need no check."""
        first, last = regions[0], regions[-1]
        file, position, end = first.file, first.position, last.position + last.size
        is_verified = self._verified.covers(file.start + position, file.start + end)
        is_near = file is last.file and 0 < end - position <= _NEAR_BYTES
        return is_near and is_verified and self.is_in_memory(file, position, end)

    def is_in_memory(self, file: MappedFile, position: int, end: int) -> bool:
        """Return whether [position, end) of a file is in memory."""
        return self._residency.is_resident(file, position, end - position)

    def _is_verified(self, region: Region) -> bool:
        begin = region.file.start + region.position
        return self._verified.covers(begin, begin + region.size)

    def copies(self, regions: Sequence[Region]) -> list[Copy]:
        """Return a copy of each region. Raises ColdRead if one of them is not in memory."""
        copies: list[Copy] = []
        at = 0
        while at < len(regions):
            first = regions[at]
            begin, end = first.position, first.position + first.size
            following = at + 1
            while following < len(regions) and regions[following].file is first.file:
                region = regions[following]
                if not 0 <= region.position - end <= _WORTH_COPYING_BYTES:
                    break
                end = region.position + region.size
                following += 1
            data = memoryview(self._reads.read(first.file.fd, first.file.path, begin, end - begin))
            copies += [Copy(data[it.position - begin : it.position - begin + it.size]) for it in regions[at:following]]
            at = following
        return copies

    def statistics(self) -> ResidencyStatistics:
        """Return the figures of the residency queries."""
        return self._residency.statistics()

    def __repr__(self) -> str:
        return f"<LogReads hot_from={self.hot_from}>"
