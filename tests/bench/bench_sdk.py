"""Cost of our SDK to its users: CPU of the processes of a producer and of a push consumer per message.

    mqbroker &
    python -m tests.bench.bench_sdk 127.0.0.1:9876                        # of any broker behind that name server
    python -m tests.bench.bench_sdk 127.0.0.1:9876 --rate 2000 --rounds 5

    producer alone          `send_nowait` of all due messages each millisecond, without a consumer
    consumer alone          a new group reads these messages: pulls of 32
    producer, consumer      both at the same time, in separate processes: pulls of a few messages

User and system time, sampled every 50 ms: the minimum and the median of all samples. Bodies of 1 KiB, TAGS and one KEY;
the handler does nothing.
"""

import argparse
import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

import uvloop

from skylarkmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer
from tests.bench.peers.ticks import strike

BODY: Final = b"x" * 1024
NS: Final = 1_000_000_000
TICK_NS: Final = 1_000_000
SLICE_S: Final = 0.05
LEAST_COUNT: Final = 100  # messages of a slice


def main() -> None:
    """Measure and print µs of CPU per message."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namesrv")
    parser.add_argument("--rate", type=int, default=10_000, help="messages per second")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, slices in one_round(options.namesrv, options.rate, round(options.rate * options.seconds)).items():
            figures.setdefault(name, []).extend(slices)
    print(f"{'us of CPU per message':28} {'least':>8} {'median':>8}")
    for name, values in figures.items():
        print(f"{name:28} {min(values):8.2f} {statistics.median(values):8.2f}")


def one_round(namesrv: str, rate: int, count: int) -> dict[str, list[float]]:
    """Return the samples of one round; each round has its own topic."""
    topic = asyncio.run(new_topic(namesrv))
    alone = {
        "producer alone": Aside(produce, namesrv, topic, rate, count).end(),
        "consumer alone": Aside(consume, namesrv, topic, count + 1).end(),
    }
    topic = asyncio.run(new_topic(namesrv))
    consumer = Aside(consume, namesrv, topic, count + 1)
    producer = Aside(produce, namesrv, topic, rate, count)
    return alone | {"producer, with a consumer": producer.end(), "consumer, with a producer": consumer.end()}


class Aside:
    """Work in a separate process, which is ready after the constructor; `end` returns its measurements."""

    def __init__(self, work: object, *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._ours, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_run, args=(work, theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        assert self._ours.recv() == "ready"

    def end(self) -> list[float]:
        """Wait for the process."""
        slices: list[float] = self._ours.recv()
        self._process.join()
        return slices


def _run(work: Any, pipe: Connection, *arguments: object) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(pipe, *arguments))


async def new_topic(namesrv: str) -> str:
    """Create a topic with one message; return its name."""
    topic = f"BenchSdk-{time.time_ns()}"
    async with Producer("bench-sdk", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY))
    return topic


async def produce(pipe: Connection, namesrv: str, topic: str, rate: int, count: int) -> None:
    """Send `count` messages at the rate."""
    async with Producer("bench-sdk", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY, tags="Warm"))
        pipe.send("ready")
        slices = Slices(lambda: producer.statistics().sent)
        sent = 0

        def send_due(tick: int) -> None:
            nonlocal sent
            while sent < count and sent * NS < (tick + 1) * rate * TICK_NS:
                producer.send_nowait(Message(topic, BODY, tags="TagA", keys=[f"k{sent}"]))
                sent += 1

        await strike(time.monotonic_ns() + TICK_NS, TICK_NS, round(count * NS / rate / TICK_NS), send_due)
        pipe.send(slices.end())


async def consume(pipe: Connection, namesrv: str, topic: str, count: int) -> None:
    """Read the topic from its beginning until `count` messages were handled."""
    over = asyncio.Event()
    handled = 0

    async def handle(_: MessageExt) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            over.set()

    group = f"bench-sdk-{time.time_ns()}"
    async with PushConsumer(group, namesrv=namesrv, handler=handle, consume_from=ConsumeFrom.FIRST) as consumer:
        pipe.send("ready")
        slices = Slices(lambda: handled)
        await consumer.subscribe(topic)
        await over.wait()
        pipe.send(slices.end())


class Slices:
    """CPU of this process per message, µs, sample by sample; `count` returns the messages so far."""

    def __init__(self, count: Callable[[], int]) -> None:
        gc.freeze()
        self._count = count
        self._slices: list[float] = []
        self._begin()

    def end(self) -> list[float]:
        """Return the samples so far, except those with almost no messages."""
        self._timer.cancel()
        return self._slices

    def _begin(self) -> None:
        self._from = time.process_time_ns(), self._count()
        self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._over)

    def _over(self) -> None:
        cpu_ns, count = time.process_time_ns() - self._from[0], self._count() - self._from[1]
        if count >= LEAST_COUNT:
            self._slices.append(cpu_ns / count / 1000)
        self._begin()


if __name__ == "__main__":
    main()
