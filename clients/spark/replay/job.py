"""The run of a replay: from record batches to requests, with the map of offsets written beside.

    source thread     the next record batch
    feed              selected rows by stream -> skip what was sent -> copies -> requests, by new queue
    senders           a task for each queue that holds copies (queue_senders.py)
    writer thread     files of the map, one after the other (journal.py)

All requests leave from this one process: so the rate holds for the whole replay, and a killed replay leaves no other
process behind that still sends.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.messages.outgoing_message import BATCH_RECORD_OVERHEAD
from skylarkmq.clients.spark.base.request_retry import RetryLimit, with_retries
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.clients.spark.replay.journal import Journal, Stream
from skylarkmq.clients.spark.replay.pace import Pace
from skylarkmq.clients.spark.replay.queue_senders import Cluster, Copy, Limits, QueueSender
from skylarkmq.clients.spark.replay.runs import CopyMaker, Run, runs
from skylarkmq.clients.spark.replay.selection import Selector
from skylarkmq.clients.spark.replay.targets import Targets, check_target, choose_queue
from skylarkmq.protocol.bodies.message_queue import MessageQueue

WRITE_S: Final = 10.0
"""Seconds between files of the map."""
POLL_S: Final = 0.1
ROUTE_TIMEOUT_S: Final = 15.0
REQUESTS_PER_S: Final = 20
"""With a rate, requests are so small that about this many leave in a second."""
PENDING_BYTES: Final = 64 << 20
"""Limit of the copies that wait until their requests are full, of all queues together."""
REQUESTED_BYTES: Final = 64 << 20
"""Limit of the copies in the requests of all senders; a single request may exceed it."""


class Counts(msgspec.Struct):
    """Messages so far. `topics`: selected messages by new topic, without those that earlier runs sent."""

    read: int = 0
    selected: int = 0
    sent_before: int = 0
    topics: Counter[str] = msgspec.field(default_factory=Counter)


class Pending(msgspec.Struct):
    """Copies for one new queue that wait for their request."""

    copies: list[Copy] = []
    size: int = 0


class Job:
    """One run over the rows of `batches`; `run` may be called once. `observe` is called after each batch."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        selector: Selector,
        targets: Targets,
        cluster: Cluster,
        journal: Journal,
        pace: Pace,
        limits: Limits,
        observe: Callable[["Job"], None] = lambda _: None,
    ) -> None:
        self.counts = Counts()
        self.senders: dict[MessageQueue, QueueSender] = {}
        self._batches = batches
        self._selector = selector
        self._targets = targets
        self._cluster = cluster
        self._journal = journal
        self._pace = pace
        self._limits = limits
        self._observe = observe
        self._most_rows = rows_per_request(limits.batch_rows, pace.rate, targets.delay_level)
        self._pending: dict[MessageQueue, Pending] = {}
        self._seen: dict[Stream, int] = {}
        self._running: list[asyncio.Task[None]] = []
        self._recorded = journal.rows
        self._pending_bytes = self._requested_bytes = 0
        self._drained = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Job {self.counts} {self._journal!r}>"

    async def run(self) -> None:
        """Send everything that was not sent before. Raises ReplayFailed, JournalError, and errors of the source."""
        with ThreadPoolExecutor(1, "replay-map") as writer, ThreadPoolExecutor(1, "replay-source") as reader:
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._send_all(tasks, writer, reader)
            except BaseExceptionGroup as errors:
                raise _first_of(errors) from None
            finally:
                self._submit(writer).result()

    async def _send_all(self, tasks: asyncio.TaskGroup, writer: Executor, reader: Executor) -> None:
        for floor in self._journal.saved.floors:
            self._open(floor.queue)
        timer = tasks.create_task(self._write_regularly(writer))
        await asyncio.gather(*(sender.recover() for sender in self.senders.values()))
        self._running = [tasks.create_task(sender.run()) for sender in self.senders.values()]
        following = self._next(reader)
        try:
            while (batch := await following) is not None:
                following = self._next(reader)
                await self._feed(batch, tasks)
                self._observe(self)
        finally:
            following.cancel()
        for queue in list(self._pending):
            await self._flush(queue)
        for sender in self.senders.values():
            await sender.finish()
        await asyncio.gather(*self._running)
        timer.cancel()
        self._check_skipped()

    @property
    def found(self) -> int:
        """The number of copies that earlier runs sent and did not record."""
        return sum(sender.found for sender in self.senders.values())

    def _check_skipped(self) -> None:
        """Raises ReplayFailed if more messages were skipped than sent by earlier runs."""
        unsent = self.counts.sent_before - self._recorded - self.found
        if unsent > 0:
            raise ReplayFailed(
                f"{unsent} messages of the source were not sent: they are new there, at offsets before those that "
                "earlier runs sent. Select them by time, and replay them with another directory"
            )

    def _next(self, reader: Executor) -> asyncio.Future[pa.RecordBatch | None]:
        """Begin to read the next batch; None at the end."""
        return asyncio.get_running_loop().run_in_executor(reader, next, self._batches, None)

    def _open(self, held: MessageQueue) -> QueueSender:
        sender = self.senders[held] = QueueSender(
            held, self._cluster, self._journal, self._pace, self._limits, self._release
        )
        return sender

    # ---------------------------------------------------------------------------------------------------------- feed

    async def _feed(self, batch: pa.RecordBatch, tasks: asyncio.TaskGroup) -> None:
        """Add the selected rows of a batch to the requests."""
        self.counts.read += batch.num_rows
        batch = self._selector.select(batch)
        self.counts.selected += batch.num_rows
        if not batch.num_rows:
            return
        maker = CopyMaker(batch, self._journal.saved.id, self._targets)
        for run in runs(batch, self._targets):
            rest = self._unsent(run, maker.offsets[run.rows])
            if len(rest.rows):
                queue = self._journal.queues.get(run.stream) or await self._assign(run.stream, tasks)
                self.counts.topics[run.stream.topic] += len(rest.rows)
                await self._add(queue, maker.copies(rest))

    def _unsent(self, run: Run, offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Run:
        """Return the rows of a run that no run has sent. Raises ReplayFailed if the offsets do not ascend."""
        before = self._seen.get(run.stream, -1)
        steps = np.diff(offsets, prepend=before)
        if (steps <= 0).any():
            at = int(np.flatnonzero(steps <= 0)[0])
            raise ReplayFailed(
                f"offset {offsets[at]} of {run.stream.source} follows offset {offsets[at - 1] if at else before}: the "
                "source has messages twice, or the topic was created again. Select one of them (--since, --until)"
            )
        self._seen[run.stream] = int(offsets[-1])
        sent = int(np.searchsorted(offsets, self._journal.sent.get(run.stream, -1), side="right"))
        self.counts.sent_before += sent
        return Run(run.stream, run.rows[sent:])

    async def _assign(self, stream: Stream, tasks: asyncio.TaskGroup) -> MessageQueue:
        """Choose and record the new queue of a stream."""
        try:
            check_target(stream.topic)
            find = partial(self._cluster.queues, stream.topic)
            queues = await with_retries(find, f"route of {stream.topic}", RetryLimit(ROUTE_TIMEOUT_S, ROUTE_TIMEOUT_S))
            queue = choose_queue(stream.source, queues)
            held = self._targets.held_in(queue)
            _, end = await self._cluster.bounds(held)
        except (ClientError, ValueError) as error:
            raise ReplayFailed(f"messages of {stream.source} cannot go to topic {stream.topic}: {error}") from error
        self._journal.assign(stream, queue, held, end)
        if held not in self.senders:
            self._running.append(tasks.create_task(self._open(held).run()))
        return queue

    async def _add(self, queue: MessageQueue, copies: Iterable[Copy]) -> None:
        """Add copies of one stream; requests that are full go to their senders."""
        pending = self._pending.get(queue) or self._begin(queue)
        limit, most_rows = self._limits.batch_bytes, self._most_rows
        for copy in copies:
            size = BATCH_RECORD_OVERHEAD + len(copy.body) + len(copy.properties)
            waiting = pending.copies
            if waiting and (
                pending.size + size > limit or len(waiting) >= most_rows or waiting[0].compression != copy.compression
            ):
                await self._flush(queue)
                pending = self._begin(queue)
                waiting = pending.copies
            waiting.append(copy)
            pending.size += size
            self._pending_bytes += size
        if self._pending_bytes > PENDING_BYTES:
            for each in list(self._pending):
                await self._flush(each)

    def _begin(self, queue: MessageQueue) -> Pending:
        pending = self._pending[queue] = Pending()
        return pending

    async def _flush(self, queue: MessageQueue) -> None:
        """Pass a request to its sender; waits while the sender, or all senders together, have enough."""
        pending = self._pending.pop(queue)
        self._pending_bytes -= pending.size
        while self._requested_bytes and self._requested_bytes + pending.size > REQUESTED_BYTES:
            self._drained.clear()
            await self._drained.wait()
        self._requested_bytes += pending.size
        await self.senders[self._targets.held_in(queue)].put(queue, pending.copies, pending.size)
        await asyncio.sleep(0)  # let the senders take responses

    def _release(self, size: int) -> None:
        """Count a request of `size` bytes as stored."""
        self._requested_bytes -= size
        self._drained.set()

    # ----------------------------------------------------------------------------------------------------------- map

    async def _write_regularly(self, writer: Executor) -> None:
        written_s = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            if self._journal.is_full or time.monotonic() - written_s >= WRITE_S:
                written_s = time.monotonic()
                writing = self._submit(writer)
                while not writing.done():  # noqa: ASYNC110 - waiting for the future itself could cancel it
                    await asyncio.sleep(POLL_S)
                writing.result()

    def _submit(self, writer: Executor) -> Future[None]:
        return writer.submit(self._journal.write, self._journal.take())


def rows_per_request(most: int, rate: float | None, delay_level: int) -> int:
    """Return the limit of messages in a request. Brokers ignore the delays of messages in a batch."""
    if delay_level:
        return 1
    return most if rate is None else max(1, min(most, int(rate / REQUESTS_PER_S)))


def counted(batches: Iterator[pa.RecordBatch], selector: Selector, targets: Targets) -> Counts:
    """Return what a new replay would send, without sending it. Raises the errors of the source, ReplayFailed."""
    counts = Counts()
    for batch in batches:
        counts.read += batch.num_rows
        selected = selector.select(batch)
        counts.selected += selected.num_rows
        if selected.num_rows:
            for run in runs(selected, targets):
                counts.topics[run.stream.topic] += len(run.rows)
    return counts


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
