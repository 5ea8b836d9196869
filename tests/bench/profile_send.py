"""CPU of a send, stage by stage, as ns per message.

    python -m tests.bench.profile_send                        # batches of 128, 8 and 1 frames
    SKYLARK_COMPILED=0 python -m tests.bench.profile_send     # the interpreted variant on a machine that compiles
    python -m tests.bench.profile_send --batches 128 --rounds 200 --dialect binary --no-index

Frames of 1 KiB messages (UNIQ_KEY, TAGS, one of KEYS) are fed from memory through the broker's own parts over a real
store; only the socket is simulated, whose two calls are timed on a separate pair. Every figure is the minimum of many
rounds, so that a busy machine adds little. `whole` is one read as the selector handles it, from the receive buffer to
the transport: it is measured separately, not added up.
"""

import argparse
import asyncio
import gc
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.app.sections.production import Production, ProductionConfig
from skylarkmq.broker.app.sections.tables import Tables, TablesConfig
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.metadata.consumer_offsets import OffsetsConfig
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig
from skylarkmq.broker.metadata.topics import TopicsConfig
from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.processors.send.messages import FastPathSend
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.stream import CommandDecoder
from tests.bench.bench_send import DIALECTS, TOPIC, send_frame
from tests.harness.peer import MemoryTransport

STAGES = {
    "read": "recv of the frames",
    "decode": "frames of the read, headers",
    "encode": "topic and queue checked, properties completed, append created",
    "store": "put: record into the open batch",
    "append": "commit without the following stages: join, flusher notified, statuses",
    "write": "the one pwrite",
    "dispatch": "queue units and arrivals",
    "index": "keys into the index",
    "response": "responses created and collected",
    "send": "responses joined (without the kernel)",
    "whole": "receive buffer to transport, all of the above but read",
}
FIRST_OPAQUE = 10**9
"""A start number with the same number of digits in all rounds."""
STEP_ROUNDS = 8
clock = time.perf_counter_ns


class SendSide:
    """The parts that a send passes, wired as in the daemon."""

    def __init__(self, directory: Path, *, is_indexed: bool) -> None:
        config = StoreConfig(
            store_path_root_dir=directory, message_index_enable=is_indexed, mapped_file_size_commit_log=1 << 30
        )
        self.store = MessageStore(config, now_ms)
        self.store.load()
        self.store.start(asyncio.get_running_loop())
        tables = Tables(
            TablesConfig(
                LimitsConfig(),
                TopicsConfig(cluster_name="DefaultCluster", broker_name="broker-a"),
                GroupsConfig(),
                OffsetsConfig(),
            ),
            now_ms,
        )
        tables.topics.load(None)
        tables.topics.update(TopicConfig(TOPIC, 4, 4))
        production = Production(
            ProductionConfig(
                SendConfig(broker_ip="127.0.0.1"),
                max_message_size=4 << 20,
                cluster_name="DefaultCluster",
                broker_name="broker-a",
                region_id="DefaultRegion",
                trace_on=True,
                store_host=encode_host("127.0.0.1", 10911),
            ),
            tables,
            self.store,
            Deferral(()),
            PutLatency(Latencies()),
            Pool("send", 10_000),
            lambda group: False,
            lambda: "0" * 32,
            now_ms,
            Refusals(),
        )
        self.checks, self.messages, self.responses = production.checks, production.messages, production.responses
        self.sends = production.sends
        dispatcher = Dispatcher()
        production.register(dispatcher)
        self.selector = Selector(dispatcher, RemotingConfig())
        self.transport = MemoryTransport(("127.0.0.1", 40000))
        self.connection = self.selector.new_connection()
        self.connection.connection_made(self.transport)

    def read(self, data: bytes) -> None:
        """Process these bytes as one read."""
        self.selector.read_scheduler.receive_buffer[: len(data)] = data
        self.updated(len(data))

    def step(self, number: int) -> None:
        """Run periodic work between rounds: put keys into the index, which the event loop does between iterations."""
        if number % STEP_ROUNDS == 0:
            self.store.step(now_ms())

    def updated(self, size: int) -> None:
        """Process `size` bytes of the receive buffer as a read and an iteration. The caller must set the window."""
        rounds = self.selector.read_scheduler
        rounds.window = rounds.receive_buffer[:size]
        self.connection.buffer_updated(size)
        self.selector.batch.end()


class Stopwatch:
    """Time spent in methods that are called once per iteration: `within(owner, name, stage)` wraps one of them."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self._wrapped: list[tuple[Any, str, Any]] = []

    def within(self, owner: Any, name: str, stage: str) -> None:
        method = getattr(owner, name)
        self._wrapped.append((owner, name, method))

        def timed(*arguments: Any) -> Any:
            begun = clock()
            try:
                return method(*arguments)
            finally:
                self.spent[stage] = self.spent.get(stage, 0) + clock() - begun

        setattr(owner, name, timed)

    def unwrap(self) -> None:
        while self._wrapped:
            setattr(*self._wrapped.pop())

    def take(self) -> dict[str, int]:
        spent, self.spent = self.spent, {}
        return spent


def staged_read(side: SendSide, data: memoryview, watch: Stopwatch) -> Iterator[tuple[str, int]]:
    """Run one read through the parts; yield the ns of each stage."""
    marks = [clock()]
    commands = CommandDecoder().feed_commands(data)
    marks.append(clock())
    sends = sends_of(side, commands)
    marks.append(clock())
    put(side, sends)
    marks.append(clock())
    watch.take()
    side.store.commit()
    marks.append(clock())
    frames, others = side.responses.stored_all(sends)
    side.connection.write(frames)
    marks.append(clock())
    side.selector.pending_writes.flush()
    marks.append(clock())
    assert frames
    assert not others
    stages = ("decode", "encode", "store", "commit", "response", "send")
    spent = dict(zip(stages, (b - a for a, b in pairwise(marks)), strict=True)) | watch.take()
    dispatch = spent.get("dispatch", 0)
    spent["append"] = spent.pop("commit") - spent["write"] - dispatch
    spent["dispatch"] = dispatch - spent.get("index", 0)
    yield from spent.items()


def sends_of(side: SendSide, commands: list[RemotingCommand]) -> list[FastPathSend]:
    """Return the sends of a read's commands."""
    queues, host = side.checks.queues, side.connection.peer_host
    sends = side.messages.fast_path_sends(commands, 0, queues, host)
    assert len(sends) == len(commands)
    return sends


def put(side: SendSide, sends: list[FastPathSend]) -> None:
    side.store.put_run([append for _, append, _ in sends])


def profile(side: SendSide, batch: int, rounds: int, dialect: int) -> dict[str, float]:
    """Return ns per message of every stage."""
    body = bytes(range(256)) * 4
    for n in range(4):
        first = send_frame(n, n, body, dialect)
        side.read(first)  # checks the topic once, and creates the queues
    frames = b"".join(send_frame(FIRST_OPAQUE + n, n % 4, body, dialect) for n in range(batch))
    buffer = side.selector.read_scheduler.receive_buffer
    buffer[: len(frames)] = frames
    batches = max(1, 256 // batch)
    best: dict[str, float] = {}

    def note(stage: str, spent: float) -> None:
        best[stage] = min(best.get(stage, spent), spent)

    for number in range(rounds):
        side.step(number)
        watch = Stopwatch()
        watch.within(MappedFile, "write", "write")
        watch.within(Dispatch, "dispatch", "dispatch")
        watch.within(IndexFeed, "add", "index")
        total: dict[str, int] = {}
        for _ in range(batches):
            for stage, spent in staged_read(side, buffer[: len(frames)], watch):
                total[stage] = total.get(stage, 0) + spent
        watch.unwrap()
        for stage, spent in total.items():
            note(stage, spent / batches / batch)
        begun = clock()
        for _ in range(batches):
            side.updated(len(frames))
        note("whole", (clock() - begun) / batches / batch)
        side.transport.written.clear()
    note("read", socket_calls(frames, batch, rounds))
    return best


def socket_calls(frames: bytes, batch: int, rounds: int) -> float:
    """Return ns per message of receiving the frames."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    buffer = bytearray(len(frames))
    best = float("inf")
    for _ in range(rounds):
        far.setblocking(False)
        sent = far.send(frames)
        received = spent = 0
        while received < sent:
            begun = clock()
            received += near.recv_into(buffer)
            spent += clock() - begun
        best = min(best, spent / batch * len(frames) / received)
    near.close()
    far.close()
    return best


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def show(figures: dict[int, dict[str, float]]) -> None:
    print(f"{'ns per message':16}" + "".join(f"{f'batch {batch}':>12}" for batch in figures))
    for stage, what in STAGES.items():
        print(f"{stage:16}" + "".join(f"{best.get(stage, 0):12.0f}" for best in figures.values()) + f"   {what}")


async def run(options: argparse.Namespace) -> None:
    directory = Path(tempfile.mkdtemp(prefix="profile-send-", dir=options.directory))
    side = SendSide(directory / "store", is_indexed=not options.no_index)
    try:
        gc.collect()
        gc.freeze()
        print(f"Python {platform.python_version()}, {compiled.variant()}, {options.dialect} headers, 1 KiB")
        show({batch: profile(side, batch, options.rounds, DIALECTS[options.dialect]) for batch in options.batches})
    finally:
        side.store.close()
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 8, 1])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--dialect", choices=tuple(DIALECTS), default="json")
    parser.add_argument("--no-index", action="store_true")
    parser.add_argument("--directory", help="directory of the temporary store")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
