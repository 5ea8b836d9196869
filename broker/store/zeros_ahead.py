"""Zeros behind the end of a SYNC_FLUSH log, so that its syncs find blocks that were written before.

A segment is reserved, and as much of it as there was time for is written beforehand (allocate.py). Blocks that are only
reserved become written ones by an entry in the file system's journal, and a sync that has to wait for one takes twice
as long (tests/bench/bench_sync.py). So a batch that comes to the end of what is stored takes a stretch of zeros with
it, and one sync in six pays for all of them.

    records ... records | rest of the block | ... rest of the stretch |      only reserved
                        ^ the log's end                               ^ stored_end

Up to the end of its last block a batch has zeros in any case, where blocks are written already: if the block's page is
no longer in memory, what is not overwritten would have to be read from the disk, and everybody would wait for that.

Nothing counts as written that is not a record: recovery finds zeros, as behind every end of a log.
Source: docs/formats.md, "Mapped files".
"""

from typing import Final

from broker.store.config import StoreConfig
from broker.store.mapped_file import MappedFile

_BLOCK_BYTES: Final = 4_096
_STRETCH: Final = memoryview(bytes(256 << 10))
"""More hold the loop and one sync up for longer, less come too often."""
_UNLIMITED: Final = 1 << 62


class ZerosAhead:
    """Of one log. Positions are bytes of the log."""

    def __init__(self, config: StoreConfig) -> None:
        self._is_padded = config.written_beforehand_bytes > 0
        self._has_stretches = config.is_sync_flush and not config.transient_store_pool_enable
        self.stored_end = _UNLIMITED  # from here on the segment is only reserved

    def turn_to(self, segment: MappedFile, end: int) -> None:
        """The log, which ends there, goes on in this segment."""
        if self._has_stretches:
            self.stored_end = segment.start + segment.stored_end(end - segment.start)

    def padding(self, segment: MappedFile, end: int) -> int:
        """How many zeros are written with a batch that ends there."""
        return min((segment.start - end) % _BLOCK_BYTES, segment.end - end) if self._is_padded else 0

    def follow(self, segment: MappedFile, end: int) -> None:
        """A batch and its padding, up to there, are written. OSError: the zeros are not."""
        if end > self.stored_end:
            size = min((segment.start - end) % len(_STRETCH), segment.end - end)
            segment.write(_STRETCH[:size], end - segment.start)
            self.stored_end = end + size

    def __repr__(self) -> str:
        return f"<ZerosAhead stored_end={self.stored_end}>"
