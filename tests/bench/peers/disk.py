"""The time of a bare fdatasync, which is the minimum latency of a send under SYNC_FLUSH.

A record's worth of bytes is appended to a file that was written in advance, like a segment under SYNC_FLUSH, and
synced; only the sync is timed.
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
    """Return the median of some hundred syncs, in microseconds."""
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
