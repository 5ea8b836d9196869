"""The loop of a load, over a pair of sockets."""

import socket
import time

from skylarkmq.clients.mqbench.loop import Loop
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.many_descriptors import many_descriptors


class Echo:
    """A connection that sends one byte when that is due, and is done when the byte comes back."""

    blocked = False

    def __init__(self, ours: socket.socket, due_ns: int) -> None:
        self.socket = ours
        self.due_ns: int | None = due_ns
        self.outstanding = 0

    def pump(self, now_ns: int) -> None:
        if self.due_ns is not None and now_ns >= self.due_ns:
            self.due_ns = None
            self.outstanding = self.socket.send(b"x")

    def readable(self) -> None:
        self.outstanding -= len(self.socket.recv(10))

    def writable(self) -> None:
        raise AssertionError("it never waits for that")


def test_a_load_may_have_more_connections_than_select_takes() -> None:
    """The loop waits for a send that is due, with sockets of any number."""
    now_ns = time.perf_counter_ns()
    loop = Loop()
    with many_descriptors():
        ours, theirs = socket.socketpair()
        with theirs:
            echo = Echo(ours, now_ns + 20_000_000)
            loop.add(echo)
            theirs.sendall(b"y")  # it has asked for one before
            echo.outstanding = 1
            loop.run(now_ns + int(WAIT_LIMIT_S * 1e9), pumping=False)
            assert echo.outstanding == 0
            theirs.setblocking(False)
            loop.run(time.perf_counter_ns() + 60_000_000)
            assert theirs.recv(10) == b"x"
            loop.close()
