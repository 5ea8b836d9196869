"""Bytes of the records in the queues of single topics, for limits on what a topic stores.

A topic has no files of its own in the log, so its bytes are the sizes in its queue units whose records the log still
has:

    counted     by the helper thread, from the units that were visible at one moment
    + received  since that moment, as the topic's traffic counts them

Units are counted again when the start of the log has moved; until then, records that expired still count. Nothing is
counted for topics whose bytes were not requested in the last KEPT_S, so a broker without such limits does nothing here.
Source: docs/reference/behaviour.md, "Bytes of a topic".
"""

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

import numpy as np

from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT_SIZE
from skylarkmq.protocol.unit_search import UNIT_DTYPE

STEP_MS: Final = 1_000
KEPT_S: Final = 600
_READ_BYTES: Final = UNIT_SIZE * 65_536

Segments = Sequence[tuple[str, int]]
"""Paths of queue files, and the bytes of each that contain units."""

log = logging.getLogger(__name__)


class _Counted:
    """What is known about one topic. `bytes` None: not counted yet. `traffic` is None while the topic has no queue."""

    __slots__ = ("bytes", "idle_s", "job", "log_start", "received_before", "traffic")

    def __init__(self) -> None:
        self.bytes: int | None = None
        self.traffic: TopicTraffic | None = None
        self.received_before = 0
        self.log_start = -1
        self.job: Future[int] | None = None
        self.idle_s = 0


class StoredBytes:
    """Bytes of topics. `log_start` returns the first byte of the log."""

    def __init__(self, queues: QueueTable, log_start: Callable[[], int], helper: Helper) -> None:
        self._queues = queues
        self._log_start = log_start
        self._helper = helper
        self._topics: dict[str, _Counted] = {}
        self._stepped_at = 0

    def __repr__(self) -> str:
        return f"<StoredBytes topics={len(self._topics)}>"

    def of(self, topic: str) -> int | None:
        """Return the bytes of a topic; None until they are counted, at the next step."""
        counted = self._topics.get(topic)
        if counted is None:
            counted = self._topics[topic] = _Counted()
        counted.idle_s = 0
        traffic = self._queues.traffic.get(topic)
        if traffic is not counted.traffic:  # its first message, or deleted
            counted.bytes, counted.log_start = None, -1
        if counted.bytes is None:
            return None
        return counted.bytes + self._received(topic) - counted.received_before

    def step(self, now_ms: int) -> None:
        """Take the results of the thread, and count again where that is necessary; at most once in STEP_MS."""
        if not self._topics or now_ms // STEP_MS == self._stepped_at:
            return
        self._stepped_at = now_ms // STEP_MS
        for topic, counted in list(self._topics.items()):
            counted.idle_s += 1
            if counted.idle_s > KEPT_S:
                del self._topics[topic]
            elif counted.job is not None:
                self._take(topic, counted, counted.job)
            elif counted.log_start != self._log_start():
                self._count(topic, counted)

    def _received(self, topic: str) -> int:
        return int(self._queues.topic_traffic(topic).sizes.total) if topic in self._queues.by_topic else 0

    def _count(self, topic: str, counted: _Counted) -> None:
        """Have the thread count the visible units."""
        received, traffic, log_start = self._received(topic), self._queues.traffic.get(topic), self._log_start()
        segments: list[tuple[str, int]] = []
        in_memory = []
        for queue in self._queues.by_topic.get(topic, {}).values():
            segments += queue.written_segments()
            in_memory.append(queue.unwritten_units())
        counted.log_start, counted.traffic = log_start, traffic
        counted.received_before, before = received, counted.received_before
        if counted.bytes is not None:
            counted.bytes += received - before  # the old count, until the new one is there
        counted.job = self._helper.submit(lambda: counted_bytes(segments, b"".join(in_memory), log_start))

    def _take(self, topic: str, counted: _Counted, job: "Future[int]") -> None:
        if not job.done():
            return
        counted.job = None
        if self._queues.traffic.get(topic) is not counted.traffic:
            return  # deleted meanwhile
        try:
            counted.bytes = job.result()
        except OSError as problem:
            counted.log_start = -1
            log.warning("bytes of a topic not counted topic=%s reason=%s", topic, problem)


def counted_bytes(segments: Segments, units: bytes, log_start: int) -> int:
    """Return the bytes of the records at or after `log_start` in the files and in `units`. Runs in a thread; files that
    were deleted meanwhile have only expired units. Raises OSError."""
    total = sum_of(units, log_start)
    for path, size in segments:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            for at in range(0, size, _READ_BYTES):
                total += sum_of(os.pread(fd, min(_READ_BYTES, size - at), at), log_start)
        finally:
            os.close(fd)
    return total


def sum_of(data: bytes, log_start: int) -> int:
    """Return the sum of the sizes in these units, without filler units and expired ones."""
    units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
    sizes, offsets = units["size"], units["physical_offset"]
    return int(sizes[(offsets >= log_start) & (sizes > 0) & (sizes != FILLER_RECORD_SIZE)].sum(dtype=np.int64))
