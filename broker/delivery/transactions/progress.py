"""The messages that a start need not read again: offsets of CID_RMQ_SYS_TRANS in the half topic and the op topic.

    half offset     no half message before it is open
    op offset       each op message before it is about half messages before the half offset

The first is `OpenHalves.begin`. For the second, the ends of both queues are recorded at intervals (a mark). An op
message before a mark's op offset is about half messages before the mark's half offset. Once none of these half messages
is open, these op messages are no longer needed.

A saved offset must never be ahead of the disk, because it would hide half messages that a power cut leaves undecided.
So a pair of offsets is committed only after the log is on disk up to its end at the time when they were read, one pair
at a time. Clients cannot commit these offsets: an offset that is too high would hide open half messages.
Source: docs/reference/disk.md, "Half messages on disk".
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.protocol.codes import TRANSACTIONS_GROUP, SystemTopic

GROUP: Final = TRANSACTIONS_GROUP
QUEUE_ID: Final = 0


class Offsets(NamedTuple):
    """A pair of offsets, or of queue ends."""

    half: int
    op: int


class ProgressStatistics(msgspec.Struct, frozen=True):
    """The committed offsets, and the number of marks."""

    half: int
    op: int
    marks: int


class Progress:
    """The offsets of one broker, stored in its table of committed offsets."""

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self._offsets = offsets
        self._op = 0
        self._marks: deque[Offsets] = deque()
        self._unsettled: tuple[int, Offsets] | None = None  # end of the log, and the pair to commit once it is on disk
        self._committed = Offsets(0, 0)

    def __repr__(self) -> str:
        return f"<Progress half={self._committed.half} op={self._committed.op} marks={len(self._marks)}>"

    def statistics(self) -> ProgressStatistics:
        """Return the current figures."""
        return ProgressStatistics(*self._committed, len(self._marks))

    def begin(self, low: Offsets, high: Offsets) -> Offsets:
        """Return where to begin, within the ranges of the queues; a queue without an offset begins at its start."""
        half = self._offsets.committed(GROUP, SystemTopic.TRANSACTION_HALF, QUEUE_ID)
        op = self._offsets.committed(GROUP, SystemTopic.TRANSACTION_OP, QUEUE_ID)
        self._committed = Offsets(
            min(max(half or 0, low.half), high.half),
            min(max(op or 0, low.op), high.op),
        )
        self._op = self._committed.op
        return self._committed

    def mark(self, end: Offsets) -> None:
        """Record the current ends of both queues."""
        if not self._marks or self._marks[-1] != end:
            self._marks.append(end)

    def step(self, begin: int, log_end: int, flushed: int) -> None:
        """Advance and commit. No half before `begin` is open; the log ends at `log_end`, synced up to `flushed`."""
        while self._marks and self._marks[0].half <= begin:
            self._op = max(self._op, self._marks.popleft().op)
        self._settle(flushed)
        now = Offsets(begin, self._op)
        if self._unsettled is None and now != self._committed:
            self._unsettled = log_end, now
            self._settle(flushed)

    def _settle(self, flushed: int) -> None:
        if self._unsettled is None or self._unsettled[0] > flushed:
            return
        self._committed = self._unsettled[1]
        self._unsettled = None
        half, op = self._committed
        self._offsets.commit_own(SystemTopic.TRANSACTION_HALF, QUEUE_ID, half)
        self._offsets.commit_own(SystemTopic.TRANSACTION_OP, QUEUE_ID, op)
