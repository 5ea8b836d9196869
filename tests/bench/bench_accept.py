"""Cost of a connection until the response to its first request: plain, plain with TLS possible, TLS.

    python -m tests.bench.bench_accept
    python -m tests.bench.bench_accept --rounds 40 --connections 400

Every server is an echo process. A client opens connections in bursts of 50, sends one request on each, and closes them.
The kinds alternate in one run. The figure is the minimum CPU time of the server per connection over all rounds.

    bare        connections without TLS detection
    disabled    the first byte of a connection is checked
    permissive  the same, and TLS is supported
    tls         full handshakes (TLS 1.3, an EC key of 256 bits)

Budget: `permissive` costs at most 10 % more than `bare`, and takes no more event-loop iterations until the response.
"""

import argparse
import asyncio
import multiprocessing
import resource
import ssl
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Final

import uvloop

from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import TlsConfig, TlsMode
from skylarkmq.broker.remoting.tls import ServerTls
from tests.harness.certificates import unverified_context
from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.raw_peer import RawPeer

BURST: Final = 50
KINDS: Final = {
    "bare": TlsMode.DISABLED,
    "disabled": TlsMode.DISABLED,
    "permissive": TlsMode.PERMISSIVE,
    "tls": TlsMode.PERMISSIVE,
}


def serve(kind: str, pipe: Pipe) -> None:
    """Echo until the pipe closes; respond to each word on the pipe with the CPU time so far, in seconds."""
    if kind == "bare":
        RemotingServer._open = lambda self: self.selector.new_connection()  # type: ignore[assignment, method-assign, return-value] # no detection
    uvloop.run(_serve(kind, pipe))


async def _serve(kind: str, pipe: Pipe) -> None:
    async with EchoServer(tls=ServerTls(TlsConfig(mode=KINDS[kind]))) as server:
        pipe.send(server.port)
        stop = asyncio.Event()

        def response() -> None:
            used = resource.getrusage(resource.RUSAGE_SELF)
            if pipe.recv():
                pipe.send(used.ru_utime + used.ru_stime)
            else:
                stop.set()

        asyncio.get_running_loop().add_reader(pipe.fileno(), response)
        await stop.wait()


class Server:
    """The process of one kind."""

    def __init__(self, kind: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(kind, theirs))
        self._process.start()
        self.port: int = self._pipe.recv()

    def cpu_s(self) -> float:
        self._pipe.send(True)
        used: float = self._pipe.recv()
        return used

    def stop(self) -> None:
        self._pipe.send(False)
        self._process.join()


async def connect(port: int, tls: ssl.SSLContext | None) -> None:
    async with await RawPeer.connect(port, tls=tls) as peer:
        await peer.call(ECHO)


async def burst(port: int, tls: ssl.SSLContext | None, connections: int) -> None:
    for _ in range(connections // BURST):
        await asyncio.gather(*(connect(port, tls) for _ in range(BURST)))


def measure(rounds: int, connections: int, say: Callable[[str], None]) -> None:
    servers = {kind: Server(kind) for kind in KINDS}
    cpu_us: dict[str, list[float]] = {kind: [] for kind in KINDS}
    per_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, server in servers.items():
            tls = unverified_context() if kind == "tls" else None
            cpu_s, begun_s = server.cpu_s(), time.monotonic()
            uvloop.run(burst(server.port, tls, connections))
            per_s[kind].append(connections / (time.monotonic() - begun_s))
            cpu_us[kind].append((server.cpu_s() - cpu_s) / connections * 1e6)
    for server in servers.values():
        server.stop()
    least = min(cpu_us["bare"])
    for kind in KINDS:
        figures = sorted(cpu_us[kind])
        say(
            f"{kind:10}  least {figures[0]:7.1f} µs  median {figures[len(figures) // 2]:7.1f} µs of the server per "
            f"connection, {figures[0] / least:5.2f} × bare; best {max(per_s[kind]):6.0f} connections/s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--connections", type=int, default=400, help="of each kind in each round, a multiple of 50")
    options = parser.parse_args()
    measure(options.rounds, options.connections, print)
