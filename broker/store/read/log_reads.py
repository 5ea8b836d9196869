"""How bytes of the log are had: the hot tail through the mapping, everything else by reads that do not wait.

What was written last is in memory, and a view of the mapping costs nothing. Further back nobody knows, and looking at a
cold page through the mapping would stop the loop. So the kernel is asked (`residency.py`); what it has, and what was
appended or checked since the start, goes out through the mapping or from the file. A long run of such records that is
not in memory goes out as a region all the same: it is marked, and whoever sends it knows what to do. All else is copied
by `ColdReads`, which raises ColdRead instead of waiting. Records that lie close together are copied by one call.

Source: docs/architecture.md, "Hot and cold".
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.mapped_file import Holder, MappedFile
from skylarkmq.broker.store.read.cold_reads import ColdReads
from skylarkmq.broker.store.read.residency import Residency, ResidencyStatistics
from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges
from skylarkmq.protocol.record import LONGEST_HEAD, SMALLEST_RECORD
from skylarkmq.protocol.record_fields import claimed_size
from skylarkmq.protocol.unit_runs import Records

HOT_TAIL_BYTES: Final = 64 << 20
"""Written so recently that it is in memory, unless it is from before the start."""

LONG_RUN_BYTES: Final = 32 << 10
"""Below that a run costs less by copying than by a call of its own: docs/performance.md, "Zero-copy pulls"."""

_WORTH_COPYING_BYTES: Final = 16 << 10  # copying what is between two records costs less than another system call
_NEAR_BYTES: Final = 2 << 20  # between records of one get
_LARGE: Final = 1 << 20

Chosen = tuple[int, int]
"""A record that a get wants: physical offset, size."""


class Region(msgspec.Struct, frozen=True, gc=False):
    """Whole records, one behind the other: `size` bytes of `file` from byte `position` of it."""

    file: MappedFile
    position: int
    size: int
    is_hot: bool = True  # in memory

    @property
    def view(self) -> memoryview:
        """The bytes, through the mapping; keep it no longer than the turn, or hold the region."""
        return self.file.view[self.position : self.position + self.size]

    def parts_behind(self, head: bytes) -> Sequence[bytes | memoryview]:
        """`head` and the same, as pieces to gather."""
        return (head, self.view)

    @property
    def fd(self) -> int:
        """The file's descriptor, open as long as the region is held."""
        return self.file.fd

    def hold(self, holder: Holder) -> None:
        """Keep the file's bytes until `release`."""
        self.file.hold(holder)

    def release(self, holder: Holder) -> None:
        """Take one hold back."""
        self.file.release(holder)


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Whole records, one behind the other, as they were read: `size` bytes in memory of their own.

    Quacks like a region, of no file: nothing needs to be held.
    """

    view: memoryview
    position: int = 0
    fd: int = -1
    is_hot: bool = True

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.view)

    def parts_behind(self, head: bytes) -> Sequence[bytes | memoryview]:
        """`head` and the bytes, as pieces to gather."""
        return (head, self.view)

    def hold(self, _holder: Holder) -> None:
        """Nothing to keep."""

    def release(self, _holder: Holder) -> None:
        """Nothing was kept."""


Piece = Region | Copy | Records


class LogReads:
    """Bytes of one log."""

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
        """From that byte of the log on everything is in memory."""
        return max(self._log.written - self._hot_tail_bytes, self._verified.tail)

    def bytes_at(self, offset: int, size: int) -> memoryview | None:
        """[offset, offset + size) if that lies in one segment and is written. ColdRead when it is not in memory."""
        segment = self._files.find(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self._log.written):
            return None
        at = offset - segment.start
        if offset >= self.hot_from:
            segment.check(at, at + size)
            return segment.view[at : at + size]
        return memoryview(self._reads.read(segment.fd, segment.path, at, size))

    def hot_window(self, offset: int) -> tuple[int, int, memoryview]:
        """What is in memory of the segment around `offset`: from which byte of the log, to which, and these bytes."""
        segment = self._files.find(offset)
        if segment is None:
            return 0, 0, memoryview(b"")
        begin, end = max(segment.start, self.hot_from), min(segment.end, self._log.written)
        if begin < end:
            segment.check(begin - segment.start, end - segment.start)
        return begin, end, segment.view[begin - segment.start : max(begin, end) - segment.start]

    def may_hold_record(self, offset: int, size: int) -> bool:
        """Whether a record of that size fits there; one of a MiB and more has to claim so much itself."""
        segment = self._files.find(offset)
        if segment is None or not SMALLEST_RECORD <= size <= segment.end - offset:
            return False
        if size < _LARGE:
            return True
        head = self.bytes_at(offset, LONGEST_HEAD)
        return head is not None and claimed_size(head) == size

    def regions(self, records: Sequence[Chosen]) -> list[Region]:
        """The records' places in their files, which must exist; neighbours become one."""
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
        """The records' bytes, in order, as the module's story says. ColdRead: what is to be copied is not in memory."""
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
            is_hot = self._residency.holds(region.file, region.position, region.size)
            pieces.append(region if is_hot else msgspec.structs.replace(region, is_hot=False))
        pieces += self.copies(short)
        return pieces

    def _is_near(self, regions: Sequence[Region]) -> bool:
        """Whether records that stand close together are all in memory, and may go out unseen."""
        first, last = regions[0], regions[-1]
        file, position, end = first.file, first.position, last.position + last.size
        is_verified = self._verified.covers(file.start + position, file.start + end)
        is_near = file is last.file and 0 < end - position <= _NEAR_BYTES
        return is_near and is_verified and self.is_at_hand(file, position, end)

    def is_at_hand(self, file: MappedFile, position: int, end: int) -> bool:
        """Whether [position, end) of a file is in memory."""
        return self._residency.holds(file, position, end - position)

    def _is_verified(self, region: Region) -> bool:
        begin = region.file.start + region.position
        return self._verified.covers(begin, begin + region.size)

    def copies(self, regions: Sequence[Region]) -> list[Copy]:
        """The bytes of each region. ColdRead when any of them is not in memory."""
        copies: list[Copy] = []
        at = 0
        while at < len(regions):
            first = regions[at]
            begin, end = first.position, first.position + first.size
            behind = at + 1
            while behind < len(regions) and regions[behind].file is first.file:
                region = regions[behind]
                if not 0 <= region.position - end <= _WORTH_COPYING_BYTES:
                    break
                end = region.position + region.size
                behind += 1
            data = memoryview(self._reads.read(first.file.fd, first.file.path, begin, end - begin))
            copies += [Copy(data[it.position - begin : it.position - begin + it.size]) for it in regions[at:behind]]
            at = behind
        return copies

    def statistics(self) -> ResidencyStatistics:
        """What was asked about the memory."""
        return self._residency.statistics()

    def __repr__(self) -> str:
        return f"<LogReads hot_from={self.hot_from}>"
