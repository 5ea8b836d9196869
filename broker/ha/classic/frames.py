"""The bytes of a classic replication connection: values to bytes and back.

A slave connects to the HA port of its master. Neither side sends a greeting. Big-endian, signed:

    slave -> master   report     i64   end of the slave's log: what it has written, not what it has synced
    master -> slave   transfer   i64   offset of the data
                                 i32   size of the data; 0: a heartbeat
                                       `size` bytes of the log

The first report is the offset at which the slave wants the transfer to begin. A report has the size of 8 bytes and no
mark, so any 8 bytes are one; `MAX_OFFSET` and `ReportReader` refuse those that no log has.

Source: docs/reference/wire.md, "Classic replication".
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

REPORT_BYTES: Final = 8
HEADER_BYTES: Final = 12
MAX_TRANSFER_BYTES: Final = (4 << 20) - HEADER_BYTES
"""Largest transfer: a Java slave has a read buffer of 4 MiB, which has to hold header and data."""
MAX_OFFSET: Final = 1 << 62
"""Above the end of any log. So a report never begins with a byte above 0x3F."""

Buffer: TypeAlias = bytes | bytearray | memoryview

_REPORT: Final = Struct(">q")
_HEADER: Final = Struct(">qi")


class FrameError(ValueError):
    """The peer's bytes are not classic replication: close the connection."""


class Transfer(NamedTuple):
    """Bytes of the master's log from `offset` on; without data, a heartbeat with the master's next offset."""

    offset: int
    data: bytes


def pack_report(end: int) -> bytes:
    """Return the report of a slave whose log ends at this offset."""
    return _REPORT.pack(end)


def pack_header(offset: int, size: int) -> bytes:
    """Return the header of a transfer of `size` bytes; 0 for a heartbeat."""
    return _HEADER.pack(offset, size)


class ReportReader:
    """The master's side: splits the bytes of one slave into reports. Keeps at most 7 bytes."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: Buffer) -> int | None:
        """Return the last whole report in these bytes, or None if they complete none. Raises FrameError.

        Reports before the last one are superseded by it, so their values are not checked.
        """
        pending = self._pending + data
        whole = len(pending) // REPORT_BYTES * REPORT_BYTES
        self._pending = pending[whole:]
        if not whole:
            return None
        end: int = _REPORT.unpack_from(pending, whole - REPORT_BYTES)[0]
        if not 0 <= end < MAX_OFFSET:
            raise FrameError(f"a report of {end}, which is not an offset of a log")
        return end


class TransferReader:
    """The slave's side: splits the bytes of the master into transfers. Keeps at most one transfer."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: Buffer) -> Iterator[Transfer]:
        """Yield the transfers that these bytes complete. Raises FrameError; the reader is of no use afterwards."""
        pending = self._pending
        pending += data
        at = 0
        try:
            while (header := self._header_at(at)) is not None:
                offset, size = header
                start = at + HEADER_BYTES
                if len(pending) - start < size:
                    return
                yield Transfer(offset, bytes(memoryview(pending)[start : start + size]))
                at = start + size
        finally:
            del pending[:at]

    @property
    def expected_offset(self) -> int | None:
        """The offset in the header of the transfer that is not whole yet; None before its header is there."""
        header = self._header_at(0)
        return None if header is None else header[0]

    def _header_at(self, at: int) -> tuple[int, int] | None:
        if len(self._pending) - at < HEADER_BYTES:
            return None
        offset, size = _HEADER.unpack_from(self._pending, at)
        if not 0 <= offset < MAX_OFFSET:
            raise FrameError(f"a transfer from offset {offset}, which is not an offset of a log")
        if not 0 <= size <= MAX_TRANSFER_BYTES:
            raise FrameError(f"a transfer of {size} bytes; at most {MAX_TRANSFER_BYTES} are possible")
        return offset, size
