"""The ledger of committed batches: a topic that holds the entries, and a group whose offset is where reading begins.

    entry      {"query": {"batch": 17, "at": 1700000000000}, ...}      a message's body; KEYS: the writer's query

An entry names one query, or all of them (a summary). Of several entries for a query, the highest batch counts, so
entries can be read in any order, twice, and from any earlier offset. The topic has one queue on every broker. Each
queue is a ledger of its own, and the union of all queues counts.

    read       from the group's offset to the end, queue by queue; a later read continues there
    commit     write one entry; the batch is committed once the entry is acknowledged
    summary    if more than SUMMARY_AFTER entries lie between the group's offset and the end: write all known queries,
               with the new batch, as one entry; then move the group's offset to the end of the last read

So a summary lies after the offset that it allows, as do entries that other drivers wrote in the meantime: several
drivers may commit concurrently. The offset only saves time: a broker without it returns 0, and reading begins at the
first entry that exists. Brokers delete messages after `fileReservedTime`. Summaries repeat the entries of idle queries
as long as one query commits. A query that has not committed for FORGOTTEN_AFTER_MS is left out.

If the topic is missing, it is created on all brokers with one readable and writable queue each; so is the group.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, NoRoute
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.routes import TRANSPORT_ERRORS
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.sdk.producing.queue_selection import queue_of_key
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.compression import PayloadError
from skylarkmq.protocol.message import Message, MessageExt

SUMMARY_AFTER: Final = 64
FORGOTTEN_AFTER_MS: Final = 90 * 24 * 3600 * 1000
NOTHING: Final = -1
_READ_AT_ONCE: Final = 32

log = logging.getLogger(__name__)


class Committed(msgspec.Struct, frozen=True):
    """The last committed batch of a query, and the time of its commit in ms."""

    batch: int
    at: int


Entry = dict[str, Committed]
_decoder: Final = msgspec.json.Decoder(Entry)


def fold(known: Entry, entry: Mapping[str, Committed]) -> None:
    """Merge an entry into `known`."""
    for query, committed in entry.items():
        before = known.get(query)
        if before is None or committed.batch > before.batch:
            known[query] = committed


def decoded(body: bytes) -> Entry:
    """Decode a message's body; an empty entry if it is invalid."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        log.warning("message in the ledger ignored, it is not an entry error=%s", error)
        return {}


def entry_of(message: MessageExt) -> Entry:
    """Decode the entry in a stored message; an empty entry if it is invalid."""
    try:
        return decoded(message.payload())
    except PayloadError as error:
        log.warning("message in the ledger ignored, it cannot be decompressed error=%s", error)
        return {}


def summary(known: Entry, now_ms: int) -> Entry:
    """Return the entries that are not too old for a summary."""
    return {query: entry for query, entry in known.items() if now_ms - entry.at < FORGOTTEN_AFTER_MS}


class QueueLog(msgspec.Struct):
    """The state of one queue: how far it was read."""

    next_offset: int
    unsummed: int = 0  # entries since the group's offset
    known: Entry = {}


class LedgerStatistics(msgspec.Struct, frozen=True):
    """Figures about the reads since the ledger was opened."""

    queues: int
    queries: int
    unsummed: int


class Ledger:
    """A view of the ledger, over a started client."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        self._client = client
        self._topic = topic
        self._group = group
        self._calls = QueueCalls(client, group)
        self._producer = Producer(group, client=client, settings=ProducerSettings(retries=0))
        self._logs: dict[MessageQueue, QueueLog] = {}

    def __repr__(self) -> str:
        return f"<Ledger {self._topic} of {len(self._logs)} queues>"

    def statistics(self) -> LedgerStatistics:
        """Return the figures now."""
        logs = self._logs.values()
        queries = {query for log in logs for query in log.known}
        return LedgerStatistics(len(logs), len(queries), sum(log.unsummed for log in logs))

    async def start(self) -> None:
        """Start the producer."""
        await self._producer.start()

    async def stop(self) -> None:
        """Wait for requests in flight."""
        await self._producer.stop()

    async def last_batch(self, query: str) -> int:
        """Return the last committed batch of a query, or NOTHING. Raises the errors of
        `Client.request`."""
        await self._read()
        entries = [log.known[query] for log in self._logs.values() if query in log.known]
        return max((entry.batch for entry in entries), default=NOTHING)

    async def commit(self, query: str, batch: int, now_ms: int | None = None) -> None:
        """Make `batch` the last of `query`; returns after a broker has acknowledged the entry."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        await self._read()
        entry = {query: Committed(batch, now_ms)}
        queues = await self._in_turn(query)
        for queue in queues:
            try:
                await self._write(queue, query, entry, now_ms)
                return
            except TRANSPORT_ERRORS as error:
                if queue == queues[-1]:
                    raise
                log.warning("entry not stored, trying the next queue queue=%s error=%s", queue, error)

    # --------------------------------------------------------------------------------------------------------- write

    async def _in_turn(self, query: str) -> list[MessageQueue]:
        """Return the queues that were read and are writable, beginning with the query's own queue."""
        route = await self._client.routes.find(self._topic)
        queues = [queue for queue in route.publish_queues if queue in self._logs]
        if not queues:
            raise NoRoute(
                f"topic {self._topic} has no queue that can be read and written: check its permission",
                topic=self._topic,
            )
        at = queues.index(queue_of_key(queues, query))
        return queues[at:] + queues[:at]

    async def _write(self, queue: MessageQueue, query: str, entry: Entry, now_ms: int) -> None:
        log = self._logs[queue]
        end = log.next_offset
        is_summary = log.unsummed >= SUMMARY_AFTER
        if is_summary:
            fold(entry, summary(log.known, now_ms))
        message = Message(self._topic, msgspec.json.encode(entry, order="sorted"), keys=query)
        await self._producer.send(message, queue=queue)
        if is_summary:
            await self._calls.commit(queue, end)
            log.unsummed = 0

    # ---------------------------------------------------------------------------------------------------------- read

    async def _read(self) -> None:
        """Read the new entries of all queues."""
        for queue in await self._queues():
            log = self._logs.get(queue)
            if log is None:
                log = self._logs[queue] = QueueLog(await self._beginning(queue))
            await self._read_on(queue, log)

    async def _read_on(self, queue: MessageQueue, log: QueueLog) -> None:
        while True:
            messages, following = await self._calls.read(queue, log.next_offset, _READ_AT_ONCE)
            for message in messages:
                fold(log.known, entry_of(message))
            log.unsummed += len(messages)
            if following is None:
                return
            log.next_offset = following

    async def _beginning(self, queue: MessageQueue) -> int:
        first = await self._calls.min_offset(queue)
        try:
            committed = await self._calls.committed_offset(queue)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            committed = None
        last = await self._calls.max_offset(queue)
        return committed if committed is not None and first <= committed <= last else first

    async def _queues(self) -> tuple[MessageQueue, ...]:
        try:
            return (await self._client.routes.find(self._topic)).subscribe_queues
        except ClientError as error:
            if not (isinstance(error, NoRoute) or error.code == ResponseCode.TOPIC_NOT_EXIST):
                raise
        await self._make()
        return (await self._client.routes.reload(self._topic)).subscribe_queues

    async def _make(self) -> None:
        """Create topic and group on all brokers; harmless if another driver does the same."""
        async with Admin(client=self._client) as admin:
            await admin.create_group(SubscriptionGroupConfig(group_name=self._group))
            await admin.create_topic(self._topic, queues=1)
        log.info("ledger created topic=%s group=%s", self._topic, self._group)
