"""A connection and its peer over a real socket, for tests of output: files, small socket buffers, a raw peer.

    async with FileLine(config) as line:
        line.connection.write_regions([line.file.region(0, 100_000)])
        line.selector.pending_writes.flush()
        await line.read(100_000)

The peer reads only when the test calls `read`; both kernels buffer little. Regions with `is_hot=False` claim not to be
in memory; nothing else differs.
"""

import asyncio
import mmap
import os
import random
import socket
import struct
from types import TracebackType
from typing import NamedTuple, Self

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.remoting.sendfile import Holder
from skylarkmq.protocol.disk import UNIT
from skylarkmq.protocol.unit_runs import Records, UnitRun
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.waiting import until

BUFFER_BYTES = 4096


class RegionsFile:
    """A file of random bytes, unlinked at once; `holders`: the holders of its regions."""

    start = 0
    is_deleted = False

    def __init__(self, size: int, seed: int = 0) -> None:
        self.data = random.Random(seed).randbytes(size)
        self.fd = os.memfd_create("regions")
        os.write(self.fd, self.data)
        self.view = memoryview(mmap.mmap(self.fd, size, access=mmap.ACCESS_READ))
        self.holders: list[Holder] = []

    def region(self, position: int, size: int, *, is_hot: bool = True) -> "Region":
        return Region(self, position, size, is_hot)

    def records(self, position: int, size: int) -> Records:
        """Return the same bytes as records of up to 5,000 bytes."""
        places = [(at, min(5_000, position + size - at)) for at in range(position, position + size, 5_000)]
        units = b"".join(UNIT.pack(*place, 0) for place in places)
        records = UnitRun(0, units, self, len(self.data), size, 5_001).take(0, len(places), size)
        assert records is not None
        return records

    def revoke(self) -> None:
        """Make all holders release their regions, as a deleted segment does after its timeout."""
        for holder in tuple(self.holders):
            holder.abort_transfer()

    def close(self) -> None:
        os.close(self.fd)


class Region(NamedTuple):
    """A region as the store defines it."""

    file: RegionsFile
    position: int
    size: int
    is_hot: bool

    @property
    def fd(self) -> int:
        return self.file.fd

    def parts_after(self, head: bytes) -> tuple[bytes, memoryview]:
        return head, self.file.view[self.position : self.position + self.size]

    def hold(self, holder: Holder) -> None:
        self.file.holders.append(holder)

    def release(self, holder: Holder) -> None:
        self.file.holders.remove(holder)


class FileLine:
    """An accepted connection, its peer's socket, and a file of 1 MiB."""

    def __init__(self, config: RemotingConfig = RemotingConfig(), *, file_bytes: int = 1 << 20) -> None:
        self.file = RegionsFile(file_bytes)
        self.selector = Selector(Dispatcher(), config)
        self.peer = socket.socket()
        self._accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self.connection: Connection

    def _accept(self) -> Connection:
        connection = self.selector.new_connection()
        self._accepted.set_result(connection)
        return connection

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", 0)
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.peer.setblocking(False)
        await loop.sock_connect(self.peer, self._server.sockets[0].getsockname())
        self.connection = await self._accepted
        await until(lambda: self.selector.registry.connections)
        transport = self.connection._transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.abort()
        self.peer.close()
        assert self._server is not None
        self._server.close()
        await until(lambda: self.connection not in self.selector.registry.connections)
        self.selector.pending_writes.close()
        self.file.close()

    async def read(self, count: int, at_most: int = 65_536) -> bytes:
        """Return the next `count` bytes, at most `at_most` per call; fewer if the connection ends before."""
        data = bytearray()
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(data) < count:
                more = await asyncio.get_running_loop().sock_recv(self.peer, min(at_most, count - len(data)))
                if not more:
                    break
                data += more
        return bytes(data)

    def reset(self) -> None:
        """Reset the connection from the peer's side."""
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()
