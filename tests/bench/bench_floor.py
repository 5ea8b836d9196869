"""The minimum latency of one send in flight on this machine: servers that only respond, under the loader of the table.

    python -m tests.bench.bench_floor                 # 5 rounds, interleaved, under a minute
    python -m tests.bench.bench_floor --seconds 1 --directory /mnt/disk
    python -m tests.bench.bench_floor --awake         # with broker/app/host/idle_states.py: no processor sleeps

    blocking   a blocking socket: recv, sendall. This is the fastest possible server in Python
    loop       an asyncio protocol on uvloop: the basis of a broker with one event loop
    synced     blocking, with a pwrite and an fdatasync of one record in between, in the same thread

The response is prepared; only the opaque's ten digits are read from the request. A budget for one send in flight below
`loop` (or below `synced`, under SYNC_FLUSH) cannot be met by any broker of that design on this machine. Compare with
the rows `single` and `sync-single` of `tests.bench.table`, measured in the same hour.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Final, cast

import uvloop

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.runs import send_one_at_a_time
from skylarkmq.clients.mqbench.workloads import Workload
from tests.bench.peers.awake import kept_awake
from tests.bench.peers.disk import FILE_BYTES, RECORD, fdatasync_us

READ_BYTES: Final = 64 * 1024
OPAQUE: Final = b'"opaque":'
DIGITS: Final = 10
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")

Serve = Callable[[socket.socket, Path, Event], None]


def answer_to(request: bytes) -> bytes:
    """Return the response to an accepted send, as our broker writes it."""
    at = request.index(OPAQUE) + len(OPAQUE)
    header = (
        b'{"code":0,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"0"},"flag":1,'
        b'"language":"JAVA","opaque":' + request[at : at + DIGITS] + b',"serializeTypeCurrentRPC":"JSON","version":399}'
    )
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def blocking(listener: socket.socket, _: Path, ready: Event) -> None:
    """Serve one connection after the other."""
    ready.set()
    while True:
        connected, _ = listener.accept()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connected:
            while request := connected.recv(READ_BYTES):
                connected.sendall(answer_to(request))


def synced(listener: socket.socket, directory: Path, ready: Event) -> None:
    """Like `blocking`, but write and sync a record before each response."""
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, bytes(FILE_BYTES), 0)
        os.fsync(descriptor)
        ready.set()
        position = 0
        while True:
            connected, _ = listener.accept()
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connected:
                while request := connected.recv(READ_BYTES):
                    os.pwrite(descriptor, RECORD, position)
                    os.fdatasync(descriptor)
                    position = (position + len(RECORD)) % (FILE_BYTES - len(RECORD))
                    connected.sendall(answer_to(request))


class Answering(asyncio.Protocol):
    """One response for each read."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Respond."""
        self.transport.write(answer_to(data))


def loop(listener: socket.socket, _: Path, ready: Event) -> None:
    """Serve from an event loop."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, sock=listener)
        ready.set()
        await server.serve_forever()

    uvloop.run(serve())


SERVERS: Final[dict[str, Serve]] = {"blocking": blocking, "loop": loop, "synced": synced}


def measured(name: str, seconds: float, directory: Path) -> tuple[float, float, float]:
    """Return p50, p99 and the server's CPU per request of one round, in microseconds."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = context.Process(target=SERVERS[name], args=(listener, directory, ready), daemon=True)
        server.start()
        try:
            assert ready.wait(10), f"{name} did not start"
            broker = Broker("floor", f"127.0.0.1:{listener.getsockname()[1]}")
            workload = Workload(topic="floor", connections=1, in_flight=1, seconds=seconds, warmup_s=0.3)
            edges: list[float] = []
            figures = send_one_at_a_time(workload, broker, at_edge=lambda: edges.append(cpu_s(server.pid)))
        finally:
            server.kill()
            server.join()
    p50, p99 = figures.latency.percentiles((50, 99))
    return p50 / 1000, p99 / 1000, (edges[1] - edges[0]) / figures.requests * 1e6


def cpu_s(process: int | None) -> float:
    """Return user and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def main() -> None:
    """Measure alternately and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk of the store")
    parser.add_argument("--awake", action="store_true", help="keep idle processors awake")
    options = parser.parse_args()
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SERVERS}
    bare = []
    with kept_awake(options.awake):
        for _ in range(options.rounds):
            bare.append(fdatasync_us(options.directory))
            for name, figures in taken.items():
                figures.append(measured(name, options.seconds, options.directory))
    print(f"a bare fdatasync: {median(bare):.0f} µs")
    for name, figures in taken.items():
        p50, p99, cpu_us = (median(column) for column in zip(*figures, strict=True))
        print(f"{name:9} p50 {p50:6.0f} µs   p99 {p99:6.0f} µs   CPU {cpu_us:5.1f} µs")


if __name__ == "__main__":
    main()
