"""Free ports for daemons that a test starts.

The kernel picks local ports of client connections from its own range, so a free port from that range may be in use by
the time a slow daemon binds it (a JVM takes seconds). These ports are below that range. Each worker of pytest-xdist has
a part of them of its own, so that no two choose the same one at the same time. Within it they are chosen at random,
because test suites may run in parallel.
"""

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from random import SystemRandom
from typing import Final

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(10_240, 32_000)
"""Above well-known service ports, below Linux's range for clients (net.ipv4.ip_local_port_range)."""
PARTS: Final = 8
"""Workers with a higher number share the part of a lower one."""


def ports_of(worker: str | None) -> range:
    """Return the ports of a worker (`gw0`, `gw1`, ...); all of them without workers."""
    if worker is None:
        return PORTS
    size, part = len(PORTS) // PARTS, int(worker.removeprefix("gw")) % PARTS
    return PORTS[part * size : (part + 1) * size]


def free_ports(count: int, beside: Sequence[int] = ()) -> list[int]:
    """Return different free ports. For each, the ports at the distances in `beside` are free, too."""
    found: dict[int, set[int]] = {}
    chance, ports = SystemRandom(), ports_of(os.environ.get("PYTEST_XDIST_WORKER"))
    while len(found) < count:
        port = chance.choice(ports)
        wanted = {port + distance for distance in (0, *beside)}
        if all(wanted.isdisjoint(taken) for taken in found.values()) and all_free(wanted):
            found[port] = wanted
    return list(found)


def all_free(ports: set[int]) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind((LOOPBACK, port))
        except OSError:
            return False
    return True
