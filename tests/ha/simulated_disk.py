"""The disk of a simulated machine: its log loses unsynced bytes in a power cut.

The log consists of entries of 8 bytes: the epoch if an entry begins a term, or the number of a message. Offsets are in
bytes, as in the real log. Entries never survive a power cut in part, because recovery drops a torn record.
"""

import struct
from typing import Final

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import HaState

ENTRY: Final = struct.Struct(">HHI")  # kind, epoch, number
EPOCH, MESSAGE = 1, 2


def epochs_in(log: bytes | bytearray, start: int) -> tuple[Epoch, ...]:
    """Return the epochs that begin in these bytes, which begin at offset `start`."""
    return tuple(
        Epoch(epoch, start + n * ENTRY.size)
        for n, (kind, epoch, _) in enumerate(ENTRY.iter_unpack(log))
        if kind == EPOCH
    )


class Disk:
    """`log`: as the kernel has it; the first `synced` bytes are on the disk. `state` and `epochs` are on the disk."""

    def __init__(self, store_id: str) -> None:
        self.log = bytearray()
        self.synced = 0
        self.state = HaState(0, store_id, 0)
        self.epochs = EpochHistory()

    def cut_power(self, survives: float) -> None:
        """Lose unsynced entries, but for this part of them."""
        unsynced = (len(self.log) - self.synced) // ENTRY.size
        del self.log[self.synced + round(unsynced * survives) * ENTRY.size :]
