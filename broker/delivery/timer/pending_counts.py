"""The number of pending timer messages per topic: the content of `config/timermetrics`.

These counts are for operators only. They are saved every SAVE_INTERVAL_MS while they change, and at a stop; after a
crash they may be off by the changes since the last save. The file omits topics without pending messages.
Source: docs/reference/disk.md, "State files".
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.message import is_client_topic

SAVE_INTERVAL_MS: Final = 10_000

log = logging.getLogger(__name__)


class _Count(msgspec.Struct):
    count: int
    time_stamp: int = msgspec.field(default=0, name="timeStamp")


class _Content(msgspec.Struct, rename="camel"):
    timing_count: dict[str, _Count]
    data_version: DataVersion | None = None


_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder(_Content).decode


class PendingCountsStatistics(msgspec.Struct, frozen=True):
    """Pending messages by topic."""

    counts: Mapping[str, int]


class CountsWrite:
    """One content to be written to disk."""

    def __init__(self, file: StateFile, data: bytes) -> None:
        self._file = file
        self._data = data

    def sync(self) -> None:
        """Write and sync it. Failures are only logged, because the counts are not essential."""
        try:
            self._file.save(self._data)
        except OSError as problem:
            log.warning("counts of timer messages not saved error=%s", problem)


class PendingCounts:
    """Counts by topic, stored at `path`. `clock` returns Unix ms."""

    def __init__(self, path: Path, clock: Callable[[], int], disk: Disk | None = None) -> None:
        self._file = StateFile(path, validate=_decode, disk=disk)
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._is_changed = False
        self._next_save_ms = 0
        self.entered: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        """Totals by topic since the start: messages that began to wait (`entered`), and that no longer do (`left`)."""
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<PendingCounts topics={len(self._counts)}>"

    def statistics(self) -> PendingCountsStatistics:
        """Return the current figures."""
        return PendingCountsStatistics({topic: max(count.count, 0) for topic, count in self._counts.items()})

    def load(self) -> None:
        """Load the saved counts, without invalid topics; a damaged file counts as none."""
        try:
            data = self._file.load()
        except StoreError as problem:
            log.warning("counts of timer messages begin at 0 reason=%s", problem)
            return
        if data is not None:
            content = _decode(data)
            self._counts = _client_topics(content)
            self.version = content.data_version or DataVersion()

    def add(self, topic: str, difference: int) -> None:
        """Add `difference` to the count of a topic."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = _Count(0)
        count.count += difference
        (self.entered if difference > 0 else self.left)[topic] += abs(difference)
        count.time_stamp = self._clock()
        self._is_changed = True

    def follow(self, data: bytes) -> None:
        """Take over the counts of a master: its response to GET_TIMER_METRICS (61). Invalid data changes nothing."""
        try:
            content = _decode(data)
        except ValueError as problem:
            log.warning("counts of timer messages not copied reason=%s", problem)
            return
        counts = _client_topics(content)
        if counts != self._counts:
            self._counts = counts
            self._is_changed = True

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic."""
        del self.entered[topic], self.left[topic]
        if self._counts.pop(topic, None) is not None:
            self._is_changed = True

    def take(self, now_ms: int) -> "CountsWrite | None":
        """Return the content to save; None if nothing has changed or the interval is not over."""
        if not self._is_changed or now_ms < self._next_save_ms:
            return None
        self._next_save_ms = now_ms + SAVE_INTERVAL_MS
        return CountsWrite(self._file, self.encode())

    def skip_interval(self) -> None:
        """Have the next `take` ignore the interval."""
        self._next_save_ms = 0

    def encode(self) -> bytes:
        """Return the content to save, under a new version if anything has changed."""
        if self._is_changed:
            self._is_changed = False
            self.version = self.version.next(self._clock())
        return self.encode_now()

    def encode_now(self) -> bytes:
        """Return the current content, under the version that was saved last."""
        waiting = {topic: count for topic, count in self._counts.items() if count.count > 0}
        return _encode(_Content(waiting, self.version))


def _client_topics(content: _Content) -> dict[str, _Count]:
    return {topic: count for topic, count in content.timing_count.items() if is_client_topic(topic)}
