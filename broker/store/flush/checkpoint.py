"""The checkpoint file: how far the store is known to be on disk, so that recovery need not begin at the first record.

Its fields only cover data that was synced before they are written. The log's timestamp comes from a completed sync. The
queues' timestamp is written by the same flusher round that has synced every queue first.

Source: docs/reference/disk.md, "Checkpoint".
"""

import os
from pathlib import Path

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.protocol.disk import CHECKPOINT_FILE, CHECKPOINT_SIZE, Checkpoint


class CheckpointFile:
    """The file is overwritten in place: its 40 bytes lie in one sector."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._path = str(root / CHECKPOINT_FILE)
        self._disk = disk

    def load(self) -> Checkpoint:
        """Return the content of the file; zeros if it does not exist."""
        try:
            with open(self._path, "rb") as file:
                return Checkpoint.decode(file.read(CHECKPOINT_SIZE))
        except FileNotFoundError:
            return Checkpoint()

    def write(self, checkpoint: Checkpoint) -> None:
        """Overwrite the fields and sync them. The flusher's thread calls this, and the stop after that thread ended."""
        if not os.path.exists(self._path):
            os.close(self._disk.create(self._path, CHECKPOINT_SIZE))
        fd = self._disk.open(self._path)
        try:
            self._disk.pwrite(fd, checkpoint.encode(), 0)
            self._disk.fdatasync(fd)
        finally:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<CheckpointFile {self._path}>"


class CheckpointWrite:
    """One value of the checkpoint to be written after the files that it covers."""

    __slots__ = ("_checkpoint", "_file")

    def __init__(self, file: CheckpointFile, checkpoint: Checkpoint) -> None:
        self._file = file
        self._checkpoint = checkpoint

    def sync(self) -> None:
        """Write and sync the checkpoint."""
        self._file.write(self._checkpoint)
