"""The progress of delivery per delay level: the content of `config/delayOffset.json`.

    level -> queue offset, in SCHEDULE_TOPIC_XXXX, of the next message to deliver

Each level has two offsets. `next_of` is where delivery continues in this process. The file may only contain an older
one, because a delivered message that a power cut takes must be delivered again: an offset counts as settled once the
log is flushed past the messages delivered before it. So a crash repeats messages (those delivered within the last
`flushDelayOffsetInterval`, or since the last flush), and never skips one.

The file is saved once per interval while offsets change, and at a stop. Source: docs/reference/wire.md, "Delayed
messages"; docs/reference/disk.md, "State files".
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.bodies.topic import DataVersion

log = logging.getLogger(__name__)

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class DelayOffsetsStatistics(msgspec.Struct, frozen=True):
    """Offsets by level; `unsettled`: number of advances that wait for a flush of the log."""

    next_offsets: dict[int, int]
    settled: dict[int, int]
    unsettled: int


class DelayOffsetTable:
    """Offsets by level. `interval_ms`: time between two saves; `clock` returns Unix ms, for versions."""

    def __init__(self, interval_ms: int, clock: Callable[[], int]) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._next: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._unsettled: deque[tuple[int, int, int]] = deque()  # end of the log, level, offset; in log order
        self._listeners: list[Callable[[], None]] = []
        self._due_ms = 0
        self._unsaved = False
        self._is_changed = False  # since `version`
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<DelayOffsetTable {self._next} unsettled={len(self._unsettled)}>"

    def statistics(self) -> DelayOffsetsStatistics:
        """Return the current figures."""
        return DelayOffsetsStatistics(dict(self._next), dict(self._settled), len(self._unsettled))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `step` call `listener` after settled offsets have changed."""
        self._listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load the content of delayOffset.json (None: nothing was ever delivered). Raises BodyError."""
        if data is not None:
            body = DelayOffsets.decode(data)
            self._next = dict(body.offset_table)
            self._settled = dict(body.offset_table)
            self.version = body.data_version or DataVersion()
        log.info("delay offsets loaded levels=%d", len(self._next))

    def save_every(self, interval_ms: int) -> None:
        """Set the time between two saves, after the next one."""
        self._interval_ms = interval_ms

    def next_of(self, level: int) -> int:
        """Return the queue offset at which delivery of a level continues."""
        return self._next.get(level, 0)

    def table(self) -> Mapping[int, int]:
        """Return the next offsets of all levels that have one; do not change them."""
        return self._next

    def advance(self, level: int, offset: int, log_end: int) -> None:
        """Register that everything before `offset` is delivered, by messages before byte `log_end` of the log."""
        self._next[level] = offset
        self._unsettled.append((log_end, level, offset))

    def follow(self, master: DelayOffsets) -> None:
        """Take over the offsets of a master; the larger one of both stays. Only for a broker that does not deliver."""
        for level, offset in master.offset_table.items():
            if offset > self.next_of(level):
                self._next[level] = self._settled[level] = offset
                self._unsaved = self._is_changed = True

    def settle(self, flushed: int) -> None:
        """Settle offsets: the log is on disk up to byte `flushed`."""
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= flushed:
            _, level, offset = unsettled.popleft()
            self._settled[level] = offset
            self._unsaved = self._is_changed = True

    def step(self, now_ms: int, flushed: int) -> None:
        """Have changed offsets saved, once per interval; the log is on disk up to byte `flushed`."""
        self.settle(flushed)
        if self._unsaved and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self._unsaved = False
            for listener in self._listeners:
                listener()

    def encode(self) -> bytes:
        """Return delayOffset.json with the settled offsets, under a new version if they have changed."""
        if self._is_changed:
            self._is_changed = False
            self.version = self.version.next(self._clock())
        return self._text(self._settled)

    def encode_now(self) -> bytes:
        """Return the same with the current offsets, for the response to GET_ALL_DELAY_OFFSET (45)."""
        return self._text(self._next)

    def _text(self, offsets: Mapping[int, int]) -> bytes:
        rows = ",".join(f"{level}:{offset}" for level, offset in sorted(offsets.items()))
        return b'{"dataVersion":%b,"offsetTable":{%b}}' % (_encode(self.version), rows.encode())
