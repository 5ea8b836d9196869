"""Epoch records: the first record of each term, in the log itself (rule 6 of `broker.ha.core`).

An ordinary record of the topic EPOCH_TOPIC, queue 0, whose body is JSON: epoch, leader, and the ids of the stores in
the set. Only the broker writes to that topic, so its queue is an index of the epochs of the log.

After a start the epochs come from that queue as far as the log is dispatched, from a scan of the rest, and from
`epochFileCheckpoint` for the bytes that retention removed. While a node follows, new records are found by their topic:
only bytes that contain it are scanned, from the last known border of records on.

Source: docs/reference/wire.md, "Replication link".
"""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.record import Blank, Record, parse

EPOCH_TOPIC: Final = f"{SystemTopic.SYSTEM_PREFIX}SKYLARK_STATE"
QUEUE_ID: Final = 0
UNITS: Final = 1_000
_TOPIC_BYTES: Final = EPOCH_TOPIC.encode()
_PIECE_BYTES: Final = 64 << 10


class EpochBody(msgspec.Struct, frozen=True, rename="camel"):
    """The body of an epoch record."""

    epoch: int
    leader: str
    in_sync: tuple[str, ...]


_decode: Final = msgspec.json.Decoder(EpochBody).decode


def encode_body(epoch: int, leader: str, in_sync: tuple[str, ...]) -> bytes:
    """Return the body of an epoch record."""
    return msgspec.json.encode(EpochBody(epoch, leader, in_sync), order="sorted")


def epoch_of(record: Record) -> Epoch | None:
    """Return the epoch that begins with this record; None for other records."""
    if record.topic != EPOCH_TOPIC or record.queue_id != QUEUE_ID:
        return None
    try:
        return Epoch(_decode(record.body).epoch, record.physical_offset)
    except msgspec.MsgspecError:
        return None


class LogView(Protocol):
    """Reads of the log's bytes."""

    @property
    def end(self) -> int:
        """The end of what is written."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return at most `size` bytes of one segment from `offset` on. Raises OSError."""

    def segment_end(self, offset: int) -> int:
        """Return the end of the segment of this byte."""


def records(log: LogView, start: int) -> Iterator[Record]:
    """Yield the whole records from `start`, which is the border of two records, to the end. Raises OSError."""
    while start < log.end:
        segment_end = log.segment_end(start)
        view = log.view(start, min(log.end, segment_end) - start)
        at = 0
        while isinstance(found := parse(view, at, check_body=False), Record):
            yield found
            at += found.size
        if not isinstance(found, Blank) and at < len(view):
            return
        if log.end < segment_end:
            return
        start = segment_end


def recovered_epochs(kept: EpochHistory, queued: list[Epoch], tail: list[Epoch], log_start: int) -> EpochHistory:
    """Return the history of a log that begins at `log_start`.

    `kept`: from the file. `queued`: of the queue of epoch records. `tail`: of the records that are not dispatched.
    """
    before = [entry for entry in kept.entries if entry.start < log_start]
    inside = sorted({entry for entry in (*queued, *tail) if entry.start >= log_start}, key=lambda entry: entry.start)
    return EpochHistory(tuple(before)).appended(inside)


class EpochScan:
    """Finds the epochs in appended bytes. `border`: the end of the log's whole records, whose epochs are known."""

    def __init__(self, log: LogView, border: int) -> None:
        self._log = log
        self._border = border
        self._last = b""  # the end of the bytes before: the topic may be cut
        self._is_awaited = False  # whether the topic was found in a record that is not whole yet

    def __repr__(self) -> str:
        return f"<EpochScan border={self._border}>"

    def may_find(self, payload: bytes | memoryview) -> bool:
        """Return whether these bytes may complete an epoch record."""
        return _has_topic(payload) or self._is_awaited or _TOPIC_BYTES in self._last + payload[: len(_TOPIC_BYTES)]

    def appended(self, payload: bytes | memoryview, known_border: int) -> tuple[Epoch, ...]:
        """Return the epochs whose records these bytes complete. The bytes are in the log already.

        `known_border`: another border of records, which may be further. Raises OSError.
        """
        is_inside = _has_topic(payload)
        is_cut = _TOPIC_BYTES in self._last + payload[: len(_TOPIC_BYTES)]
        self.passed(payload, known_border)
        if not (is_inside or is_cut or self._is_awaited):
            return ()
        if not (is_cut or self._is_awaited):
            self._begin_at(self._log.end - len(payload))
        epochs = []
        for record in records(self._log, self._border):
            self._border = record.physical_offset + record.size
            if (epoch := epoch_of(record)) is not None:
                epochs.append(epoch)
        self._is_awaited = self._border < self._log.end
        return tuple(epochs)

    def passed(self, payload: bytes | memoryview, known_border: int) -> None:
        """These bytes were appended, and `may_find` has returned False for them."""
        self._last = (self._last + payload[-len(_TOPIC_BYTES) :])[-len(_TOPIC_BYTES) :]
        self._border = max(self._border, known_border)

    def truncated(self, border: int) -> None:
        """The log ends here now, which is the border of two records."""
        self._border, self._last, self._is_awaited = border, b"", False

    def _begin_at(self, start: int) -> None:
        """Leave out the records before `start`, if one begins there: frames of a leader begin where records do, and
        what is dispatched may end far before."""
        found = parse(self._log.view(start, self._log.end - start), 0, check_body=False)
        if isinstance(found, Record) and found.physical_offset == start:
            self._border = max(self._border, start)


def _has_topic(data: bytes | memoryview) -> bool:
    """Return whether these bytes contain the topic. A view has no search, so pieces of it are copied, which overlap."""
    if isinstance(data, bytes):
        return _TOPIC_BYTES in data
    step = _PIECE_BYTES - len(_TOPIC_BYTES)
    return any(_TOPIC_BYTES in bytes(data[at : at + _PIECE_BYTES]) for at in range(0, len(data), step))
