"""Our SDK from end to end: a producer in one process, a push consumer in another, at a fixed rate.

    python -m tests.bench.peers.end_to_end 127.0.0.1:9876                  # of any broker behind that name server
    python -m tests.bench.peers.end_to_end 127.0.0.1:9876 --rate 2000 --seconds 20

Every millisecond the due messages are sent by `Producer.send_nowait`. A body begins with the due time of its message
(on the monotonic clock, which both processes share), so the delay of a slow producer is included. The consumer's
handler takes the time when it is called. Messages of the first two seconds do not count.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from struct import Struct
from typing import Final

import numpy as np
import uvloop

from skylarkmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer
from skylarkmq.clients.mqbench.histogram import Histogram
from tests.bench.peers.ticks import strike
from tests.clients.peer import until

DUE: Final = Struct(">q")
BODY_BYTES: Final = 1024
QUEUES: Final = 4  # of a topic that its first message creates
WARMUP_S: Final = 2.0
SETTLE_S: Final = 1.0
NS: Final = 1_000_000_000
TICK_NS: Final = 1_000_000


def main() -> None:
    """Measure and print percentiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namesrv")
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    histogram, lost = end_to_end(options.namesrv, options.rate, options.seconds)
    values = zip(("p50", "p90", "p99", "p99.9"), histogram.percentiles((50, 90, 99, 99.9)), strict=True)
    print(
        ", ".join(f"{name} {value / 1e6:.3f} ms" for name, value in values), f"{histogram.count} messages, {lost} lost"
    )


def end_to_end(namesrv: str, rate: int, seconds: float) -> tuple[Histogram, int]:
    """Return the ages of messages (ns) at the handler, and the number of sent messages that did not arrive.

    Each run has its own topic: a new group of RocketMQ begins with the first message of a young topic.
    """
    topic = f"EndToEnd-{time.time_ns()}"
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    consumer = spawn.Process(target=_in_loop, args=(consume, namesrv, topic, theirs), daemon=True)
    consumer.start()
    theirs.close()
    assert ours.recv() == "ready"
    producer = spawn.Process(target=_in_loop, args=(produce, namesrv, topic, rate, seconds), daemon=True)
    producer.start()
    producer.join()
    ours.send("done")
    histogram, received = ours.recv()
    consumer.join()
    return histogram, round(rate * (seconds + WARMUP_S)) - received


def _in_loop(work: object, *arguments: object) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(*arguments))  # type: ignore[operator]


async def produce(namesrv: str, topic: str, rate: int, seconds: float) -> None:
    """Send at the rate, in ticks of a millisecond."""
    filling = os.urandom(BODY_BYTES - DUE.size)
    async with Producer("end-to-end", namesrv=namesrv) as producer:
        await producer.publish_queues(topic)
        gc.freeze()
        start_ns, sent = time.monotonic_ns() + TICK_NS, 0
        failed: list[BaseException] = []

        def send_due(tick: int) -> None:
            nonlocal sent
            due_ns = start_ns + tick * TICK_NS
            while sent * NS < (tick + 1) * rate * TICK_NS:
                body = DUE.pack(due_ns) + filling
                future = producer.send_nowait(Message(topic, body, tags="TagA", keys=[f"k{sent}"]))
                future.add_done_callback(lambda done: failed.append(error) if (error := done.exception()) else None)
                sent += 1

        await strike(start_ns, TICK_NS, round((seconds + WARMUP_S) * NS / TICK_NS), send_due)
        await asyncio.sleep(SETTLE_S)
        if failed:
            print(f"{len(failed)} sends failed: {failed[0]}")


async def consume(namesrv: str, topic: str, pipe: Connection) -> None:
    """Measure until the pipe signals the end; send the histogram and the number of all messages."""
    ages: list[int] = []
    begun_ns: list[int] = []

    async def handle(message: MessageExt) -> None:
        now_ns = time.monotonic_ns()
        (due_ns,) = DUE.unpack_from(message.body)
        if not begun_ns:
            begun_ns.append(due_ns)
        ages.append(now_ns - due_ns if due_ns - begun_ns[0] >= WARMUP_S * NS else -1)

    group = f"end-to-end-{os.getpid()}"
    async with (
        Producer(f"{group}-first", namesrv=namesrv) as producer,
        PushConsumer(group, namesrv=namesrv, handler=handle, consume_from=ConsumeFrom.LAST) as consumer,
    ):
        await producer.send(Message(topic, DUE.pack(0)))  # creates the topic
        await consumer.subscribe(topic)
        await until(lambda: len(consumer.statistics().queues) >= QUEUES)
        await asyncio.sleep(SETTLE_S)
        ages.clear()
        begun_ns.clear()
        gc.freeze()
        pipe.send("ready")
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        histogram = Histogram()
        histogram.add(np.array([age for age in ages if age >= 0], np.int64))
        pipe.send((histogram, len(ages)))


if __name__ == "__main__":
    main()
