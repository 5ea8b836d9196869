"""A slave of classic replication that a test drives step by step. Its log is in memory.

Source: docs/reference/wire.md, "Classic replication".
"""

import asyncio
import socket
from collections import deque
from types import TracebackType
from typing import Self

from skylarkmq.broker.ha.classic.frames import Transfer, TransferReader, pack_report
from tests.harness.limits import WAIT_LIMIT_S


class RawSlave:
    """Use as `async with await RawSlave.connect(port) as slave`. Every wait is limited to WAIT_LIMIT_S (TimeoutError).

    `log` has the bytes from offset `start` on.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: int, log: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._transfers = TransferReader()
        self._received: deque[Transfer] = deque()
        self.start = start
        self.log = bytearray(log)
        self.heartbeats: list[int] = []

    @classmethod
    async def connect(cls, port: int, log: bytes = b"", start: int = 0, host: str = "127.0.0.1") -> Self:
        """Connect without a report."""
        return cls(*await asyncio.open_connection(host, port), start, log)

    @classmethod
    async def connect_without_reading(cls, port: int) -> Self:
        """Connect with a small receive buffer, and read nothing."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket transport has it
        return cls(reader, writer, 0, b"")

    @property
    def end(self) -> int:
        """The end of the log; 0 if it is empty."""
        return self.start + len(self.log) if self.log else 0

    @property
    def address(self) -> str:
        """The address of this end."""
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def report(self, end: int | None = None) -> None:
        """Report the end of the log, or another offset."""
        self.send(pack_report(self.end if end is None else end))

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self._writer.write(data)

    async def transfer(self) -> Transfer:
        """Return the next transfer, which may be a heartbeat. Raises ConnectionError at the end of the connection."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not self._received:
                data = await self._reader.read(1 << 20)
                if not data:
                    raise ConnectionError("the master has closed the connection")
                self._received += self._transfers.feed(data)
        return self._received.popleft()

    async def copy(self, end: int) -> None:
        """Append transfers to the log, and report each, until the log ends at `end`. Heartbeats are checked, too."""
        while self.end < end:
            offset, data = await self.transfer()
            if not self.log:
                self.start = offset
            assert offset == self.start + len(self.log)
            if data:
                self.log += data
                self.report()
            else:
                self.heartbeats.append(offset)

    async def closed(self) -> bytes:
        """Return the rest of the bytes when the master has closed the connection."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
