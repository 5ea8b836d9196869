"""How many timer messages wait for each topic: the content of `config/timermetrics`.

A figure for operators and nothing else: saved every SAVE_INTERVAL_MS while it changes and at a stop, so what a crash
leaves may be off by what happened since. A topic that nothing waits for is left out.
Source: docs/formats.md, "State files".
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import StoreError
from skylarkmq.broker.store.state_file import StateFile
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


class TimingCountsStatistics(msgspec.Struct, frozen=True):
    """Messages that wait, by topic."""

    counts: Mapping[str, int]


class CountsWrite:
    """A content on its way to disk."""

    def __init__(self, file: StateFile, data: bytes) -> None:
        self._file = file
        self._data = data

    def sync(self) -> None:
        """Write and sync it; whatever goes wrong is no reason to stop anything: these are figures."""
        try:
            self._file.save(self._data)
        except OSError as problem:
            log.warning("counts of timers not saved error=%s", problem)


class TimingCounts:
    """Counts by topic, which are kept at `path`. `clock` gives Unix ms."""

    def __init__(self, path: Path, clock: Callable[[], int], disk: Disk | None = None) -> None:
        self._file = StateFile(path, validate=_decode, disk=disk)
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._is_changed = False
        self._next_save_ms = 0
        self.entered: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        """Of each topic since the start: messages that began to wait, and that do not any more."""
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<TimingCounts topics={len(self._counts)}>"

    def statistics(self) -> TimingCountsStatistics:
        """The figures now."""
        return TimingCountsStatistics({topic: max(count.count, 0) for topic, count in self._counts.items()})

    def load(self) -> None:
        """Take what was saved, except of topics that no message waits for; a damaged file counts as none."""
        try:
            data = self._file.load()
        except StoreError as problem:
            log.warning("counts of timers begin at 0 reason=%s", problem)
            return
        if data is not None:
            content = _decode(data)
            self._counts = {topic: count for topic, count in content.timing_count.items() if is_client_topic(topic)}
            self.version = content.data_version or DataVersion()

    def add(self, topic: str, difference: int) -> None:
        """So many more wait for a topic."""
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = _Count(0)
        count.count += difference
        (self.entered if difference > 0 else self.left)[topic] += abs(difference)
        count.time_stamp = self._clock()
        self._is_changed = True

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        del self.entered[topic], self.left[topic]
        if self._counts.pop(topic, None) is not None:
            self._is_changed = True

    def take(self, now_ms: int) -> "CountsWrite | None":
        """What is to be saved, if anything has changed and the interval is over."""
        if not self._is_changed or now_ms < self._next_save_ms:
            return None
        self._next_save_ms = now_ms + SAVE_INTERVAL_MS
        return CountsWrite(self._file, self.encode())

    def hurry(self) -> None:
        """The next `take` is not to wait for its interval."""
        self._next_save_ms = 0

    def encode(self) -> bytes:
        """The content of the file, under a new version if anything has changed."""
        if self._is_changed:
            self._is_changed = False
            self.version = self.version.next(self._clock())
        waiting = {topic: count for topic, count in self._counts.items() if count.count > 0}
        return _encode(_Content(waiting, self.version))
