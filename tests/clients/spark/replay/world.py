"""A cluster in memory for replays: its requests can fail in every way, and a run can be killed at any of its steps.

Queues are lists of messages. `settle_s` of the senders is longer than LATE_S, the time after which a request without a
response may still be stored.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.sdk.base.errors import BrokerError, ConnectionLost
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.spark.replay import job, journal, queue_senders
from skylarkmq.clients.spark.replay.job import Job
from skylarkmq.clients.spark.replay.journal import Journal, Saved
from skylarkmq.clients.spark.replay.pace import Pace
from skylarkmq.clients.spark.replay.queue_senders import Copy, Limits
from skylarkmq.clients.spark.replay.selection import Selection, Selector
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import MessageExt, PropertyName, decode_properties

LATE_S: Final = 0.002
LIMITS: Final = Limits(batch_rows=4, retry_timeout_s=5.0, settle_s=0.006)


class Killed(Exception):
    """The process was killed here: nothing that it does afterwards has an effect."""


class World:
    """Queues, and the faults of the requests to them: a number of 0 to 1 is the share of requests that fail so."""

    def __init__(self, queues: Sequence[MessageQueue], seed: int = 0, fault: float = 0.0, kill: float = 0.0) -> None:
        self.log: dict[MessageQueue, list[MessageExt]] = defaultdict(list)
        self.first: dict[MessageQueue, int] = defaultdict(int)
        self.requests = 0
        self.kills = 0
        self.most_in_flight = 0
        self._queues = queues
        self._random = random.Random(seed)
        self._fault, self._kill = fault, kill
        self._is_dead = False
        self._in_flight = 0
        self._late: list[tuple[float, MessageQueue, list[Copy]]] = []

    def __repr__(self) -> str:
        return f"<World {self.requests} requests, {self.kills} kills>"

    def revive(self) -> None:
        """Start a new process."""
        self._is_dead = False

    def step(self) -> None:
        """A step of the process, at which it may die."""
        if self._is_dead:
            raise Killed
        if self._random.random() < self._kill:
            self._is_dead = True
            self.kills += 1
            raise Killed

    def spare(self) -> None:
        """No more faults and kills."""
        self._fault = self._kill = 0.0

    # The Cluster of a sender.

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        self.step()
        return [queue for queue in self._queues if queue.topic == topic]

    async def send(self, queue: MessageQueue, copies: Sequence[Copy]) -> SendResult:
        self.step()
        self.requests += 1
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        await asyncio.sleep(0)
        self._in_flight -= 1
        if self._random.random() >= self._fault:
            result = self.store(queue, copies)
            self.step()
            return result
        match self._random.randrange(4):
            case 0:
                raise BrokerError.of(RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY, "busy", "b")
            case 1:
                self.store(queue, copies)
            case 2:
                self._late.append((time.monotonic() + LATE_S, queue, list(copies)))
        self.step()
        raise ConnectionLost("no response")

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        self.step()
        return self.first[queue], len(self.log[queue])

    async def read(self, queue: MessageQueue, offset: int) -> tuple[list[MessageExt], int | None]:
        self.step()
        await asyncio.sleep(0)
        self._store_late()
        found = self.log[queue][offset : offset + 3]
        return found, offset + len(found) if found else None

    def _store_late(self) -> None:
        """Store the late requests whose time has come."""
        due = [late for late in self._late if late[0] <= time.monotonic()]
        self._late = [late for late in self._late if late not in due]
        for _, queue, copies in due:
            self.store(queue, copies)

    def store(self, queue: MessageQueue, copies: Sequence[Copy]) -> SendResult:
        """Store copies, between messages of other producers."""
        properties = [decode_properties(copy.properties.decode()) for copy in copies]
        real: dict[str, str] = {}
        if PropertyName.DELAY in properties[0]:
            real = {PropertyName.REAL_TOPIC: queue.topic, PropertyName.REAL_QUEUE_ID: str(queue.queue_id)}
            queue = Targets(delay_level=int(properties[0].pop(PropertyName.DELAY))).held_in(queue)
        log = self.log[queue]
        log.append(message(queue, len(log), b"foreign", {}))
        first = len(log)
        for copy, own in zip(copies, properties, strict=True):
            log.append(message(queue, len(log), bytes(copy.body), own | real))
        ids = ",".join(found.offset_msg_id for found in log[first:])
        return SendResult(SendStatus.OK, "", ids, queue, first)


def message(queue: MessageQueue, offset: int, body: bytes, properties: dict[str, str]) -> MessageExt:
    host = ("127.0.0.1", 1)
    return MessageExt(
        queue.topic, queue.queue_id, offset, 100 * offset, body, properties, 0, 0, 1, host, 1, host, 0, 0, 0, 0
    )  # fmt: skip


def rows(sources: Sequence[MessageQueue], count: int, **columns: object) -> pa.Table:
    """Return `count` messages of each queue, with every second offset; the body is the old place."""
    found = [
        {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": 2 * number,
            "physicalOffset": number,
            "sysFlag": 0,
            "flag": 7,
            "msgId": f"id-{queue}-{2 * number}",
            "properties": f"n\x01{number}\x02UNIQ_KEY\x01id-{queue}-{2 * number}\x02WAIT\x01true\x02",
            "body": f"{queue} {2 * number}".encode(),
            **columns,
        }
        for queue in sources
        for number in range(count)
    ]
    return pa.Table.from_pylist(found, ARCHIVE_SCHEMA)


def mixed(table: pa.Table, size: int, pause_s: float = 0.0) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that mix the queues, in the order of offsets."""
    ordered = table.sort_by([("queueOffset", "ascending"), ("queueId", "ascending")])
    for batch in ordered.to_batches(size):
        time.sleep(pause_s)
        yield batch


class Lives:
    """The runs of one replay, each in a new process."""

    def __init__(self, world: World, directory: Path, monkeypatch: pytest.MonkeyPatch, targets: Targets) -> None:
        self._world, self._directory, self._targets = world, directory, targets
        publish = journal._publish

        def dying_publish(path: Path, content: bytes | pa.Buffer) -> None:
            world.step()
            publish(path, content)
            world.step()

        monkeypatch.setattr(journal, "_publish", dying_publish)
        monkeypatch.setattr(journal, "PART_ROWS", 10)
        monkeypatch.setattr(job, "POLL_S", 0.0005)
        monkeypatch.setattr(job, "WRITE_S", 0.003)
        monkeypatch.setattr(queue_senders, "PAUSE_S", 0.0005)

    def live(self, table: pa.Table, size: int = 7, pause_s: float = 0.0) -> Job:
        """Run the replay until it ends or is killed. `pause_s`: before each batch of the source."""
        self._world.revive()
        made = Journal.open(self._directory, Saved("r1", 1, {"source": "here"}), self._targets)
        try:
            selector = Selector(Selection(), made.saved.id)
            pace = Pace(None, lambda: 0.0)
            one = Job(mixed(table, size, pause_s), selector, self._targets, self._world, made, pace, LIMITS)
            asyncio.run(one.run())
            return one
        finally:
            made.close()

    def live_until_done(self, table: pa.Table, most: int = 200) -> Job:
        """Run it again after each kill."""
        for _ in range(most):
            try:
                return self.live(table)
            except Killed:
                continue
        self._world.spare()
        return self.live(table)

    def map(self) -> pa.Table:
        """Return the map of offsets."""
        files = sorted((self._directory / journal.MAP).glob("*.parquet"))
        return pa.concat_tables([pq.read_table(path) for path in files])
