"""What a start need not look at again: offsets of CID_RMQ_SYS_TRANS in the half topic and in the op topic.

    half offset     nothing before it is open
    op offset       every op message before it is about half messages before the half offset

The first is `OpenHalves.begin`. For the second it is enough to look now and then how far both queues are (a mark):
whoever decided something before that did so about what was there, so once nothing before the half queue's end of then
is open, the op messages before the op queue's end of then have done their service.

A saved offset must never be ahead of the disk: it would hide what a power cut leaves undecided. So offsets are
committed only when the log is on disk as far as it went when they were read, one pair at a time. Clients cannot commit
them: an offset too far on would hide open half messages.
Source: docs/formats.md, "Half messages on disk".
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.protocol.codes import TRANSACTIONS_GROUP, SystemTopic

GROUP: Final = TRANSACTIONS_GROUP
QUEUE_ID: Final = 0


class Offsets(NamedTuple):
    """A pair that belongs together."""

    half: int
    op: int


class ProgressStatistics(msgspec.Struct, frozen=True):
    """What is committed, and how many marks wait."""

    half: int
    op: int
    marks: int


class Progress:
    """The offsets of one broker, kept in its table of committed offsets."""

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self._offsets = offsets
        self._op = 0
        self._marks: deque[Offsets] = deque()
        self._unsettled: tuple[int, Offsets] | None = None  # end of the log, and what may be committed once it is safe
        self._committed = Offsets(0, 0)

    def __repr__(self) -> str:
        return f"<Progress half={self._committed.half} op={self._committed.op} marks={len(self._marks)}>"

    def statistics(self) -> ProgressStatistics:
        """The figures now."""
        return ProgressStatistics(*self._committed, len(self._marks))

    def begin(self, low: Offsets, high: Offsets) -> Offsets:
        """Where to begin, within what the queues have; a queue without an offset begins with its first message."""
        half = self._offsets.committed(GROUP, SystemTopic.TRANSACTION_HALF, QUEUE_ID)
        op = self._offsets.committed(GROUP, SystemTopic.TRANSACTION_OP, QUEUE_ID)
        self._committed = Offsets(
            min(max(half or 0, low.half), high.half),
            min(max(op or 0, low.op), high.op),
        )
        self._op = self._committed.op
        return self._committed

    def mark(self, end: Offsets) -> None:
        """Both queues go so far now."""
        if not self._marks or self._marks[-1] != end:
            self._marks.append(end)

    def step(self, begin: int, log_end: int, flushed: int) -> None:
        """Nothing before `begin` is open; the log goes to byte `log_end`, and is on disk up to `flushed`."""
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
