"""The minimum latency from process to process at a fixed rate: the end-to-end row of the table without a broker.

    python -m tests.bench.bench_relay                          # 5 rounds of 2 s at 10,000 messages/s
    python -m tests.bench.bench_relay --rate 2000 --seconds 5
    python -m tests.bench.bench_relay --work-us 18 36 22       # the CPU of our producer, broker and consumer

A producer writes the due messages every millisecond; a relay in a second process forwards all bytes it reads; a
consumer in a third process takes the time. Nothing is decoded, stored or acknowledged. The "end to end" row of
`tests.bench.table` in the same hour cannot be below this: it is the cost of waking three processes on two cores. With
`--work-us`, each process is also busy for that time per message, which gives the minimum for processes with that CPU
per message.
"""

import argparse
import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from statistics import median
from struct import Struct
from typing import Final, cast

import numpy as np
import uvloop

from skylarkmq.clients.mqbench.histogram import Histogram
from tests.bench.peers.end_to_end import NS, TICK_NS, WARMUP_S
from tests.bench.peers.ticks import strike

MESSAGE_BYTES: Final = 1300  # a body of 1 KiB with headers
DUE: Final = Struct(">q")
PERCENTILES: Final = (50, 90, 99, 99.9)


class Relay(asyncio.Protocol):
    """Passes on all bytes that it receives."""

    transport: asyncio.Transport

    def __init__(self, pass_on: Callable[[bytes], None], work_us: float) -> None:
        self._pass_on = pass_on
        self._work_us = work_us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass on a read."""
        be_busy(self._work_us * len(data) / MESSAGE_BYTES)
        self._pass_on(data)


def be_busy(us: float) -> None:
    """Use a core for this time."""
    until_ns = time.perf_counter_ns() + us * 1000
    while time.perf_counter_ns() < until_ns:
        pass


async def relay(work_us: float, pipe: Connection) -> None:
    """The second process: the first connection is the consumer's."""
    ends: list[Relay] = []

    def pass_on(data: bytes) -> None:
        ends[0].transport.write(data)

    def accepted() -> Relay:
        ends.append(Relay(pass_on, work_us))
        return ends[-1]

    server = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def consume(work_us: float, port: int, messages: int, pipe: Connection) -> None:
    """The third process: measure the ages of all messages, in nanoseconds."""
    ages: list[int] = []
    rest = b""
    done = asyncio.Event()

    def arrived(data: bytes) -> None:
        nonlocal rest
        now_ns, rest = time.monotonic_ns(), rest + data
        whole = len(rest) // MESSAGE_BYTES
        ages.extend(now_ns - DUE.unpack_from(rest, number * MESSAGE_BYTES)[0] for number in range(whole))
        rest = rest[whole * MESSAGE_BYTES :]
        if len(ages) >= messages:
            done.set()

    await asyncio.get_running_loop().create_connection(lambda: Relay(arrived, work_us), "127.0.0.1", port)
    pipe.send("connected")
    await done.wait()
    pipe.send(ages)


async def produce(work_us: float, port: int, rate: int, ticks: int) -> None:
    """The first process: write the due messages of every tick at once."""
    filling = os.urandom(MESSAGE_BYTES - DUE.size)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
    start_ns, sent = time.monotonic_ns() + TICK_NS, 0

    def send_due(tick: int) -> None:
        nonlocal sent
        due = (tick + 1) * rate * TICK_NS // NS
        be_busy(work_us * (due - sent))
        transport.write((DUE.pack(start_ns + tick * TICK_NS) + filling) * (due - sent))
        sent = due

    await strike(start_ns, TICK_NS, ticks, send_due)
    transport.close()


def _run(work: Callable[..., Coroutine[object, object, None]], *arguments: object) -> None:
    uvloop.run(work(*arguments))


def measured(rate: int, seconds: float, work_us: Sequence[float]) -> tuple[float, ...]:
    """Return percentiles of one round, in milliseconds."""
    at_producer, at_relay, at_consumer = work_us
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    ticks = round((seconds + WARMUP_S) * NS / TICK_NS)
    messages = ticks * rate * TICK_NS // NS
    middle = context.Process(target=_run, args=(relay, at_relay, theirs), daemon=True)
    middle.start()
    try:
        port = ours.recv()
        last = context.Process(target=_run, args=(consume, at_consumer, port, messages, theirs), daemon=True)
        last.start()
        assert ours.recv() == "connected"
        first = context.Process(target=_run, args=(produce, at_producer, port, rate, ticks), daemon=True)
        first.start()
        ages = ours.recv()
        first.join()
        last.join()
    finally:
        middle.kill()
        middle.join()
    histogram = Histogram()
    histogram.add(np.array(ages[round(rate * WARMUP_S) :], np.int64))
    return tuple(value / 1e6 for value in histogram.percentiles(PERCENTILES))


def main() -> None:
    """Measure and print the medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=10_000, help="messages per second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument(
        "--work-us", type=float, nargs=3, default=(0, 0, 0), metavar="US", help="CPU per message of each"
    )
    options = parser.parse_args()
    rounds = [measured(options.rate, options.seconds, options.work_us) for _ in range(options.rounds)]
    for name, values in zip(PERCENTILES, zip(*rounds, strict=True), strict=True):
        print(f"p{name:<5} min {min(values):7.3f}   median {median(values):7.3f}   max {max(values):7.3f} ms")


if __name__ == "__main__":
    main()
