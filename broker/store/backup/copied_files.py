"""Files of a backup, as a restore reads them: complete, and equal to their checksums in the manifest."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.manifest import CopiedSegment
from skylarkmq.broker.store.files.disk import open_untrusted


@contextmanager
def opened(path: Path, length: int) -> Iterator[int]:
    """Yield a descriptor of a file. Raises BackupError if it has fewer than `length` bytes."""
    fd = open_untrusted(path)
    try:
        size = os.fstat(fd).st_size
        if size < length:
            raise BackupError(f"{path} has {size} of {length} bytes: repeat the backup, or restore with --until")
        yield fd
    finally:
        os.close(fd)


def check_checksum(path: Path, segment: CopiedSegment, length: int, crc: int) -> None:
    """Raise BackupError if the first `length` bytes were verified by the backup, and had another checksum then."""
    if segment.verified == length and crc != segment.crc32:
        raise BackupError(
            f"{path} is damaged (checksum): repeat the backup while the store still has it, or restore with "
            "--no-verify, which keeps all records that are valid"
        )
