"""How far each delay level is delivered: the content of `config/delayOffset.json`.

    level -> queue offset, in SCHEDULE_TOPIC_XXXX, of the next message to deliver

Two things are kept of a level. `next_of` is where delivery goes on in this process. What the file may say is older: a
delivered copy that a power cut takes must be delivered again, so an offset counts as settled only when the log is
flushed up to behind the copies before it. So a crash repeats messages (what was delivered within
`flushDelayOffsetInterval`, or since the last flush), and never leaves one out.

Saved once per interval while offsets move, and at a stop. Source: docs/formats.md, "Delayed messages", "State files".
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
    """`unsettled`: advances that wait for the log's flush."""

    next_offsets: dict[int, int]
    settled: dict[int, int]
    unsettled: int


class DelayOffsetTable:
    """Offsets by level. `interval_ms` between two saves; `clock` gives Unix ms, for versions."""

    def __init__(self, interval_ms: int, clock: Callable[[], int]) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._next: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._unsettled: deque[tuple[int, int, int]] = deque()  # end of the log, level, offset; in the log's order
        self._listeners: list[Callable[[], None]] = []
        self._due_ms = 0
        self._unsaved = False
        self._is_changed = False  # since `version`
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<DelayOffsetTable {self._next} unsettled={len(self._unsettled)}>"

    def statistics(self) -> DelayOffsetsStatistics:
        """The figures now."""
        return DelayOffsetsStatistics(dict(self._next), dict(self._settled), len(self._unsettled))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` from `step` when settled offsets have moved since it was last called."""
        self._listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Take the content of delayOffset.json (None: nothing was ever delivered). BodyError."""
        if data is not None:
            body = DelayOffsets.decode(data)
            self._next = dict(body.offset_table)
            self._settled = dict(body.offset_table)
            self.version = body.data_version or DataVersion()
        log.info("delay offsets loaded levels=%d", len(self._next))

    def save_every(self, interval_ms: int) -> None:
        """Save no more often than that, from the next save on."""
        self._interval_ms = interval_ms

    def next_of(self, level: int) -> int:
        """The queue offset at which delivery of a level goes on."""
        return self._next.get(level, 0)

    def table(self) -> Mapping[int, int]:
        """That of every level that has one, to look at."""
        return self._next

    def advance(self, level: int, offset: int, log_end: int) -> None:
        """Everything before `offset` is delivered, by messages in front of byte `log_end` of the log."""
        self._next[level] = offset
        self._unsettled.append((log_end, level, offset))

    def settle(self, flushed: int) -> None:
        """The log is on disk up to byte `flushed`."""
        unsettled = self._unsettled
        while unsettled and unsettled[0][0] <= flushed:
            _, level, offset = unsettled.popleft()
            self._settled[level] = offset
            self._unsaved = self._is_changed = True

    def step(self, now_ms: int, flushed: int) -> None:
        """Have offsets saved that have moved, once per interval; the log is on disk up to byte `flushed`."""
        self.settle(flushed)
        if self._unsaved and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self._unsaved = False
            for listener in self._listeners:
                listener()

    def encode(self) -> bytes:
        """The settled offsets as delayOffset.json, under a new version if they have changed."""
        if self._is_changed:
            self._is_changed = False
            self.version = self.version.next(self._clock())
        return self._text(self._settled)

    def encode_now(self) -> bytes:
        """The same with the offsets of this moment, as the answer to 45."""
        return self._text(self._next)

    def _text(self, offsets: Mapping[int, int]) -> bytes:
        rows = ",".join(f"{level}:{offset}" for level, offset in sorted(offsets.items()))
        return b'{"dataVersion":%b,"offsetTable":{%b}}' % (_encode(self.version), rows.encode())
