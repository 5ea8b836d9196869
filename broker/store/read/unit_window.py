"""The units of one queue that were read last: requests that name messages of a queue mostly come in its order.

A call of the kernel for each unit costs more than everything else that such a request does with the unit. So WINDOW
units are read at a time. A unit may be outdated here. That is harmless: the size of a record is returned only for the
record's own offset in the log, and the caller reads the record.
"""

from typing import Final

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE

WINDOW: Final = 128


class UnitWindow:
    """Units of one queue, from the offset `begin` on."""

    def __init__(self, reads: ColdReads) -> None:
        self._reads = reads
        self._queue: ConsumeQueue | None = None
        self._begin = 0
        self._units: bytes | bytearray = b""

    def __repr__(self) -> str:
        return f"<UnitWindow begin={self._begin} units={len(self._units) // UNIT_SIZE}>"

    def record_size(self, queue: ConsumeQueue, offset: int, physical_offset: int) -> int | None:
        """Return the size of the record at this byte of the log, by the queue's unit at `offset`; None if the unit
        points elsewhere, or does not exist. Raises ColdRead."""
        at = (offset - self._begin) * UNIT_SIZE
        if queue is not self._queue or not 0 <= at < len(self._units):
            if not queue.min_offset <= offset < queue.end:
                return None
            self._units = queue.read_nowait(offset, WINDOW, self._reads)
            self._queue, self._begin, at = queue, offset, 0
            if not self._units:
                return None
        begin, size, _ = UNIT.unpack_from(self._units, at)
        return size if begin == physical_offset else None
