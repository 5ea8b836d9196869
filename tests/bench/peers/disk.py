"""What a bare fdatasync takes here and now: the least that a send under SYNC_FLUSH can wait.

A record's worth of bytes is appended to a file that was written beforehand, as a segment is under SYNC_FLUSH, and
synced; the time is that of the sync alone.
"""

import os
import time
from pathlib import Path
from statistics import median
from typing import Final

RECORD: Final = os.urandom(1350)
SYNCS: Final = 300
FILE_BYTES: Final = 4 << 20


def fdatasync_us(directory: Path, syncs: int = SYNCS) -> float:
    """The median of some hundred syncs, in microseconds."""
    path = directory / "fdatasync.probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fsync(descriptor)
        return median(_one(descriptor, number) for number in range(syncs))
    finally:
        os.close(descriptor)
        path.unlink()


def _one(descriptor: int, number: int) -> float:
    os.pwrite(descriptor, RECORD, number * len(RECORD) % (FILE_BYTES - len(RECORD)))
    begun_ns = time.perf_counter_ns()
    os.fdatasync(descriptor)
    return (time.perf_counter_ns() - begun_ns) / 1000
