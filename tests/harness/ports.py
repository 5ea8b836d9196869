"""Ports for daemons that a test starts: free now, and still free when the daemon comes to listen there.

The kernel takes ports for clients' connections from its own range, so a port from there that was free a moment ago may
be somebody's local end by the time a slow daemon (a JVM takes seconds) binds it. These lie below that range, and they
are drawn at random, because suites that run side by side draw too.
"""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from random import SystemRandom
from typing import Final

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(10_240, 32_000)
"""Above what services are known by, below what Linux gives to clients (net.ipv4.ip_local_port_range)."""


def free_ports(count: int, beside: Sequence[int] = ()) -> list[int]:
    """Ports that nobody listens on, all different; those `beside` each, by their distance, are free as well."""
    found: dict[int, set[int]] = {}
    chance = SystemRandom()
    while len(found) < count:
        port = chance.choice(PORTS)
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
