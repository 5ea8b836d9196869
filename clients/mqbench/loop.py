"""The loop in which every load runs: nonblocking sockets, one poll, no tasks.

A `LoadConnection` is one connection with its load. The loop calls it when it can read or write. Once per iteration, the
loop calls `pump` to send and reads `due_ns`, the time of its next send, so a load at a fixed rate wakes up in time. The
waits have the resolution of `select`: epoll's own would be rounded to whole milliseconds, which at 10,000 messages per
second is ten messages.
"""

import select
import socket
import time
from typing import Final, Protocol

from skylarkmq.clients.mqbench.sockets import TlsSocket

LONGEST_WAIT_S: Final = 0.1


class LoadConnection(Protocol):
    """One connection with its load."""

    socket: socket.socket

    @property
    def blocked(self) -> bool:
        """Whether bytes wait until the socket is writable."""
        ...

    @property
    def due_ns(self) -> int | None:
        """When `pump` should be called next; None: not before something is read."""
        ...

    @property
    def outstanding(self) -> int:
        """The number of requests without a response."""
        ...

    def readable(self) -> None:
        """Read the available bytes."""
        ...

    def writable(self) -> None:
        """Continue writing."""
        ...

    def pump(self, now_ns: int) -> None:
        """Send what is due."""
        ...


class Loop:
    """Runs connections until a given time, or until none of them has work left.

    Make it before its connections: `select` refuses descriptors from 1024 on, and the poll needs one.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._connections: dict[int, LoadConnection] = {}
        self._writing: set[int] = set()
        self._encrypted: list[tuple[LoadConnection, TlsSocket]] = []

    def add(self, connection: LoadConnection) -> None:
        """Run this connection, too."""
        number = connection.socket.fileno()
        self._connections[number] = connection
        self._poll.register(number, select.EPOLLIN)
        if isinstance(connection.socket, TlsSocket):
            self._encrypted.append((connection, connection.socket))

    def __repr__(self) -> str:
        return f"<Loop {len(self._connections)} connections>"

    def run(self, until_ns: int, *, pumping: bool = True) -> None:
        """Run until the time (of `perf_counter_ns`), or until there is nothing to wait for. Raises ConnectionError."""
        connections = self._connections
        while (now_ns := time.perf_counter_ns()) < until_ns:
            if pumping:
                for connection in connections.values():
                    connection.pump(now_ns)
            waiting = self._watch_writers()
            wait_s = min((until_ns - now_ns) / 1e9, LONGEST_WAIT_S)
            due = (
                [at_ns for connection in connections.values() if (at_ns := connection.due_ns) is not None]
                if pumping
                else []
            )
            if not due and not waiting and not any(connection.outstanding for connection in connections.values()):
                return
            if due:
                wait_s = min(wait_s, max(0.0, (min(due) - time.perf_counter_ns()) / 1e9))
                select.select((self._poll,), (), (), wait_s)
                wait_s = 0.0
            self._serve(wait_s)

    def _serve(self, wait_s: float) -> None:
        """Read and write on the sockets that are ready, or become ready within `wait_s`."""
        connections = self._connections
        for number, event in self._poll.poll(wait_s):
            if event & select.EPOLLOUT:
                connections[number].writable()
            if event & ~select.EPOLLOUT:
                connections[number].readable()
        for connection, encrypted in self._encrypted:
            while encrypted.pending():
                connection.readable()

    def close(self) -> None:
        """Close the sockets."""
        self._poll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def _watch_writers(self) -> bool:
        """Poll the blocked connections for writability; return whether there are any."""
        blocked = {number for number, connection in self._connections.items() if connection.blocked}
        if blocked != self._writing:
            for number in blocked ^ self._writing:
                self._poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if number in blocked else 0))
            self._writing = blocked
        return bool(blocked)
