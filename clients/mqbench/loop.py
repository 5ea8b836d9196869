"""The loop in which every load runs: sockets that do not block, one poll, no tasks.

A `Lane` is one connection with its load. It is told when it can read or write, and asked once a turn what it wants to
send (`pump`) and when it will next want to (`due_ns`), so a load at a fixed rate wakes up for it. Its waits are as fine
as `select` is: epoll's own would be rounded to whole milliseconds, which at 10,000 messages a second is ten of them.
"""

import select
import socket
import time
from collections.abc import Sequence
from typing import Final, Protocol

from skylarkmq.clients.mqbench.sockets import TlsSocket

LONGEST_WAIT_S: Final = 0.1


class Lane(Protocol):
    """One connection with its load."""

    socket: socket.socket

    @property
    def blocked(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        ...

    @property
    def due_ns(self) -> int | None:
        """When `pump` should be called next; None: not before something is read."""
        ...

    @property
    def outstanding(self) -> int:
        """Requests without an answer."""
        ...

    def readable(self) -> None:
        """Read what is there."""
        ...

    def writable(self) -> None:
        """Write on."""
        ...

    def pump(self, now_ns: int) -> None:
        """Send what is due."""
        ...


class Loop:
    """Runs lanes until a time, or until they have nothing left to do."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = {lane.socket.fileno(): lane for lane in lanes}
        self._poll = select.epoll()
        self._writing: set[int] = set()
        self._encrypted = [(lane, lane.socket) for lane in lanes if isinstance(lane.socket, TlsSocket)]
        for number in self._lanes:
            self._poll.register(number, select.EPOLLIN)

    def __repr__(self) -> str:
        return f"<Loop {len(self._lanes)} lanes>"

    def run(self, until_ns: int, *, pumping: bool = True) -> None:
        """Turn until the time (of `perf_counter_ns`), or until there is nothing to wait for. ConnectionError."""
        lanes = self._lanes
        while (now_ns := time.perf_counter_ns()) < until_ns:
            if pumping:
                for lane in lanes.values():
                    lane.pump(now_ns)
            waiting = self._watch_writers()
            wait_s = min((until_ns - now_ns) / 1e9, LONGEST_WAIT_S)
            due = [at_ns for lane in lanes.values() if (at_ns := lane.due_ns) is not None] if pumping else []
            if not due and not waiting and not any(lane.outstanding for lane in lanes.values()):
                return
            if due:
                wait_s = min(wait_s, max(0.0, (min(due) - time.perf_counter_ns()) / 1e9))
                select.select((self._poll,), (), (), wait_s)
                wait_s = 0.0
            self._move(wait_s)

    def _move(self, wait_s: float) -> None:
        """Have read and written what can be, or can be within so long."""
        lanes = self._lanes
        for number, event in self._poll.poll(wait_s):
            if event & select.EPOLLOUT:
                lanes[number].writable()
            if event & ~select.EPOLLOUT:
                lanes[number].readable()
        for lane, encrypted in self._encrypted:
            while encrypted.pending():
                lane.readable()

    def close(self) -> None:
        """Close the sockets."""
        self._poll.close()
        for lane in self._lanes.values():
            lane.socket.close()

    def _watch_writers(self) -> bool:
        """Have the poll tell when a blocked lane can write; whether there is one."""
        blocked = {number for number, lane in self._lanes.items() if lane.blocked}
        if blocked != self._writing:
            for number in blocked ^ self._writing:
                self._poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if number in blocked else 0))
            self._writing = blocked
        return bool(blocked)
