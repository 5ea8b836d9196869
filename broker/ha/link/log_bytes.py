"""The bytes of a log as a leader sends them: short ranges from the mapping, long ones as regions of a file."""

from typing import NamedTuple, Protocol


class FileRange(NamedTuple):
    """`size` bytes of a file from `position` on. The receiver closes `fd`."""

    fd: int
    position: int
    size: int


class LogBytes(Protocol):
    """A log of segments. Offsets are offsets in the log.

    Each range that a follower gets ends where a record or a segment ends: recovery drops a record that is not whole,
    and a follower must not lose what it has acknowledged.
    """

    @property
    def end(self) -> int:
        """The end of what is written."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return at most `size` bytes of one segment from `offset` on, as they are in the mapping.

        Raises OSError if retention removed them or the disk lost them.
        """

    def file_range(self, offset: int, size: int) -> FileRange:
        """Return the same bytes as a part of a file. Raises OSError."""

    def whole_records(self, part: FileRange) -> int:
        """Return the size of the whole records at the begin of a range, at least of one, which may be larger than the
        range. Called in a thread. Raises OSError."""
