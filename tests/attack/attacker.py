"""The attacker: a process that sends unusual requests over a few connections, most of them pipelined.

    attacker = Attacker(ports, seed, count, access)
    attacker.start(); attacker.is_alive(); attacker.end()      the findings of its responses, with access control

A connection that the daemon closes is replaced. Without access control the responses are read and ignored.
"""

import multiprocessing
import random
import select
import socket
import time
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from tests.attack.accounts import GENERATIONS
from tests.attack.generators import Generator, OddRequest, SigningGenerator
from tests.attack.refusals import Responses
from tests.harness.ports import LOOPBACK

CONNECTIONS: Final = 6
PIECE: Final = 40
"""Maximum number of requests that are written at once on one connection."""
LAST_WAIT_S: Final = 0.3

_processes: Final = multiprocessing.get_context("fork")


class Ports(NamedTuple):
    """The ports of the daemon."""

    broker: int
    namesrv: int


class Peer:
    """A connection of the attacker; `responses` checks what it receives, if there is access control."""

    def __init__(self, port: int, responses: Responses | None) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), 10.0)
        self._responses = responses

    def __repr__(self) -> str:
        return f"<Peer {self._responses!r}>"

    def exchange(self, piece: list[OddRequest]) -> bool:
        """Write requests while reading responses; return whether the connection is open. Waits briefly for a first
        response."""
        if self._responses is not None:
            self._responses.expect(piece)
        view, limit_s = memoryview(b"".join(request.data for request in piece)), time.monotonic() + 5.0
        while time.monotonic() < limit_s:
            readable, writable, _ = select.select([self.socket], [self.socket] if view else [], [], 0.05)
            try:
                if readable:
                    if not self._receive():
                        return False
                    if not view:
                        return True
                if writable:
                    view = view[self.socket.send(view[: 1 << 18]) :]
            except OSError:
                return False
            if not readable and not writable:
                return not view
        return False

    def drain(self, limit_s: float) -> None:
        """Read the responses that arrive within the limit."""
        end_s = time.monotonic() + limit_s
        while (wait_s := end_s - time.monotonic()) > 0 and select.select([self.socket], [], [], wait_s)[0]:
            try:
                if not self._receive():
                    return
            except OSError:
                return

    def _receive(self) -> bool:
        data = self.socket.recv(1 << 18)
        if self._responses is not None:
            self._responses.feed(data)
        return bool(data)


class Attacker:
    """A process that sends `count` requests. It ends early if the daemon is gone."""

    def __init__(self, ports: Ports, seed: str, count: int, access: str | None) -> None:
        self._findings, end = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=attack, args=(ports, seed, count, access, end))

    def __repr__(self) -> str:
        return f"<Attacker {self._process!r}>"

    def start(self) -> None:
        """Start the process."""
        self._process.start()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def end(self) -> list[str]:
        """End the process; return its findings, none if it did not complete."""
        self._process.kill()
        self._process.join()
        findings: list[str] = self._findings.recv() if self._findings.poll() else []
        self._findings.close()
        return findings


def attack(ports: Ports, seed: str, count: int, access: str | None, pipe: Connection) -> None:
    """Send `count` unusual requests, and write the findings to the pipe."""
    findings: list[str] = []
    generator, rng = SigningGenerator(seed) if access else Generator(seed), random.Random(seed)
    peers: list[Peer] = []
    sent = 0
    while sent < count:
        try:
            while len(peers) < CONNECTIONS:
                is_broker = rng.random() >= 0.2
                responses = Responses(GENERATIONS[access], findings, is_broker=is_broker) if access else None
                peers.append(Peer(ports.broker if is_broker else ports.namesrv, responses))
        except OSError:
            break
        peer = rng.choice(peers)
        odd = [generator.request() for _ in range(rng.randint(1, PIECE))]
        end = next((n for n, request in enumerate(odd) if request.ends), None)
        piece = odd if end is None else odd[: end + 1]
        sent += len(piece)
        is_open = peer.exchange(piece)
        if not is_open or end is not None:
            if access and is_open:
                peer.drain(0.01)
            peer.socket.close()
            peers.remove(peer)
    if access:
        for peer in peers:
            peer.drain(LAST_WAIT_S)
    pipe.send(findings)
