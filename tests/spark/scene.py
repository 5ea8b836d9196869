"""A broker that can be killed and restarted, topics on it, and queries that read them.

Message bodies are numbers, each sent once, so the output of a query shows missing and repeated messages.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skylarkmq import Admin, Message, Producer, ProducerSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from tests.harness.daemon import STORE, Daemon, running
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import free_ports

PORTS = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
PATIENT = ProducerSettings(send_timeout_s=60.0, retries=0)  # no retries: a repeated send may be stored twice


class Scene:
    """One broker and its store below `directory`; `settings` are settings of the broker."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        self._settings = dict(zip(PORTS, free_ports(len(PORTS)), strict=True)) | settings
        self._running = ExitStack()
        self.daemon: Daemon = self._running.enter_context(self._started())
        self._sent = 0

    def _started(self) -> Any:
        return running(directory=self.directory, settings=self._settings)

    @property
    def namesrv(self) -> str:
        return self.daemon.namesrv

    def close(self) -> None:
        self._running.close()

    def kill(self) -> None:
        """Kill the broker like `kill -9`."""
        self.daemon.stop(signal.SIGKILL)
        self._running.close()

    def restart(self) -> None:
        """Start the broker again on its ports and its store."""
        self.daemon = self._running.enter_context(self._started())

    def create(self, topic: str, queues: int) -> None:
        """Create a topic, or add queues to it."""

        async def create() -> None:
            async with Admin(namesrv=self.namesrv) as admin:
                await admin.create_topic(topic, queues)

        asyncio.run(create())

    def send(self, topic: str, count: int, *, size: int = 0, **message: Any) -> list[bytes]:
        """Send `count` more messages, each with a new number as body, padded to `size`; return the bodies."""
        bodies = [(b"%d" % number).ljust(size) for number in range(self._sent, self._sent + count)]
        self._sent += count
        self.send_all([Message(topic, body, **message) for body in bodies])
        return bodies

    def send_all(self, messages: Iterable[Message]) -> None:
        """Send all messages concurrently."""

        async def send() -> None:
            async with Producer("tests", namesrv=self.namesrv, settings=PATIENT) as producer:
                await asyncio.gather(*(producer.send(message) for message in messages))

        asyncio.run(send())

    def administer(self, operation: Callable[[Admin], Any]) -> Any:
        """Return the result of an operation of Admin."""

        async def run() -> Any:
            async with Admin(namesrv=self.namesrv) as admin:
                return await operation(admin)

        return asyncio.run(run())

    def expire(self, topic: str) -> int:
        """Delete segments by retention; return the first offset of queue 0 once it no longer changes."""
        directory = self.directory / STORE / "commitlog"
        due = [segment for segment in sorted(directory.iterdir()) if has_records(segment)][:-1]
        for segment in due:
            os.utime(segment, (0, 0))

        async def delete() -> int:
            async with Client(self.namesrv) as client, Admin(client=client) as admin:
                route = await client.routes.find(topic)
                (broker,) = route.brokers
                await client.request(route.address(broker), RequestCode.DELETE_EXPIRED_COMMITLOG)
                while any(segment.exists() for segment in due):  # noqa: ASYNC110 - no event is available
                    await asyncio.sleep(0.02)
                before, first = -1, 0
                while not first or first != before:
                    await asyncio.sleep(0.3)
                    before = first
                    first = (await admin.topic_offsets(topic))[MessageQueue(topic, broker, 0)].min_offset
                return first

        return asyncio.run(delete())


def has_records(segment: Path) -> bool:
    """Return whether a segment contains records; the next segments are created in advance."""
    with segment.open("rb") as file:
        return any(file.read(8))


@contextmanager
def scene(directory: Path, **settings: object) -> Iterator[Scene]:
    made = Scene(directory, **settings)
    try:
        yield made
    finally:
        made.close()


def batch(spark: SparkSession, namesrv: str, **options: object) -> DataFrame:
    """Return the DataFrame of a batch query."""
    return spark.read.format("rocketmq").options(nameServer=namesrv, **texts(options)).load()


def stream(spark: SparkSession, namesrv: str, **options: object) -> DataFrame:
    """Return the DataFrame of a streaming query, by default from the earliest offset."""
    all_options = {"nameServer": namesrv, "startingOffsets": "earliest"} | texts(options)
    return spark.readStream.format("rocketmq").options(**all_options).load()


def texts(options: dict[str, object]) -> dict[str, str]:
    """Return options as text for Spark; `_` stands for a dot."""
    return {name.replace("_", "."): str(value) for name, value in options.items()}


class Written:
    """A query into Parquet files, which contain each row once even if batches are repeated."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._files = directory / "files"
        self._checkpoint = directory / "checkpoint"

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start the query; it runs until it is stopped, unless the trigger ends it."""
        writer = frame.select("body", "topic", "queueId", "queueOffset").writeStream.format("parquet")
        writer = writer.option("path", str(self._files)).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def drain(self, frame: DataFrame) -> StreamingQuery:
        """Read the existing messages."""
        query = self.start(frame, availableNow=True)
        assert ended(query, PROCESS_LIMIT_S), "not drained in time"
        return query

    def bodies(self) -> Counter[bytes]:
        """Return the written bodies with their counts."""
        if not (self._files / "_spark_metadata").exists():
            return Counter()
        rows = self._spark.read.schema("body BINARY").parquet(str(self._files)).collect()
        return Counter(bytes(row.body) for row in rows)

    def wait(self, count: int, query: StreamingQuery) -> None:
        """Wait for `count` rows."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while sum(self.bodies().values()) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"{sum(self.bodies().values())} of {count} rows, {query.lastProgress}"
            ended(query, 0.2)


def ended(query: StreamingQuery, within_s: float) -> bool:
    """Return whether a query ends within that time; raise its error if it failed."""
    return bool(query.awaitTermination(within_s))  # type: ignore[arg-type]  # fractions are accepted
