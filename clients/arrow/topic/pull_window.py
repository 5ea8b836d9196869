"""Concurrent pulls of known ranges, and the reordering of their responses. Pure logic: no socket, no clock.

    ranges -> slots of `step` offsets -> requests -> responses, in any order -> pieces, in each queue's order

A broker returns fewer messages than requested if they are large or no longer in memory; the slot then requests the
rest. If a connection breaks, the slots in flight are requested again from their current offset. A piece is the body of
a response; it is returned once all pieces before it in its range were.

With a filter, a response may reach beyond its slot, and the next slot reads those messages again. So slots are long in
that case (the caller chooses `step`), and a slot sends one pull after the other. The code that makes rows of pieces
drops messages at offsets not below `upto`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from skylarkmq.clients.arrow.topic.splitting import Range
from skylarkmq.protocol.codes import ResponseCode


class Piece(msgspec.Struct):
    """Offsets [begin, upto) of a range from one response: positions in a buffer, or a copy of the bytes.

    With a filter, the body may contain messages after `upto`, too.
    """

    range: Range
    begin: int
    upto: int
    body: tuple[int, int] | bytes


class Slot(msgspec.Struct, eq=False):
    """Offsets [at, end) that are still to be requested; `tries` counts responses without progress."""

    range: Range
    at: int
    end: int
    pieces: list[Piece]
    tries: int = 0

    @property
    def is_done(self) -> bool:
        return self.at >= self.end


class Kind(Enum):
    """The meaning of a response for its slot."""

    TAKEN = "messages up to `upto`"
    PASSED = "no matching messages up to `upto`"
    LOST = "the messages up to `upto` are deleted"
    ENDED = "the queue ends before the slot does"
    GONE = "the queue does not exist"
    BUSY = "retry later"
    REFUSED = "the broker rejects the request"


class Verdict(NamedTuple):
    """The next state of a slot; `upto` is its new position."""

    kind: Kind
    upto: int
    why: str = ""


DELETED: Final = "deleted before they were read"
_NOTHING_NEW: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_NO_QUEUE: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
_LATER: Final = frozenset({
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.GO_AWAY,
})  # fmt: skip


def verdict(code: int, following: int, slot: Slot, is_filtered: bool) -> Verdict:
    """Return the meaning of a response with this code and next offset (`following`)."""
    if code == ResponseCode.SUCCESS and following > slot.at:
        return Verdict(Kind.TAKEN, following)
    if code in _NOTHING_NEW and following > slot.at:
        if is_filtered:
            return Verdict(Kind.PASSED, following)
        return Verdict(Kind.LOST, following, DELETED)
    if code == ResponseCode.PULL_OFFSET_MOVED and following > slot.at:
        return Verdict(Kind.LOST, following, DELETED)
    if code in _NOTHING_NEW or code == ResponseCode.PULL_OFFSET_MOVED:
        return Verdict(Kind.ENDED, slot.range.end, f"the queue ends at {following}: was the topic recreated?")
    if code in _NO_QUEUE:
        return Verdict(Kind.GONE, slot.range.end, "the queue no longer exists")
    if code in _LATER or code == ResponseCode.SUCCESS:
        return Verdict(Kind.BUSY, slot.at)
    return Verdict(Kind.REFUSED, slot.at)


class PullWindow:
    """The slots of a task, of `step` offsets each."""

    def __init__(self, ranges: Iterable[Range], step: int) -> None:
        self._unopened = _slots(ranges, step)
        self._waiting: deque[Slot] = deque()
        self._in_flight: dict[int, Slot] = {}
        self._slots_by_range: dict[Range, deque[Slot]] = {}
        self._is_exhausted = False

    def __repr__(self) -> str:
        return f"<PullWindow {len(self._in_flight)} in flight, {len(self._waiting)} wait>"

    @property
    def in_flight(self) -> int:
        """Slots that wait for a response."""
        return len(self._in_flight)

    @property
    def is_finished(self) -> bool:
        """Whether every slot is complete; pieces may still wait for `take`."""
        if not self._waiting and not self._in_flight and not self._is_exhausted:
            self._open()
        return not self._waiting and not self._in_flight

    def next_slot(self) -> Slot | None:
        """Return the next slot to request; None: all slots are requested."""
        if not self._waiting and not self._is_exhausted:
            self._open()
        return self._waiting.popleft() if self._waiting else None

    def mark_sent(self, number: int, slot: Slot) -> None:
        """Record that the slot's request was sent with this opaque."""
        self._in_flight[number] = slot

    def take_slot(self, number: int) -> Slot | None:
        """Return the slot of a response, which is in flight no more; None: no slot waits for this opaque."""
        return self._in_flight.pop(number, None)

    def advance(self, slot: Slot, upto: int, body: tuple[int, int] | None = None) -> None:
        """Move the slot to `upto`; it is requested again if it is incomplete."""
        if body is not None:
            slot.pieces.append(Piece(slot.range, slot.at, min(upto, slot.end), body))
        slot.at, slot.tries = upto, 0
        if not slot.is_done:
            self._waiting.appendleft(slot)

    def retry(self, slot: Slot) -> None:
        """Queue the slot to be requested again, before all others."""
        slot.tries += 1
        self._waiting.appendleft(slot)

    def lose_connection(self) -> None:
        """Queue all slots in flight to be requested again."""
        self._waiting.extendleft(reversed(self._in_flight.values()))
        self._in_flight = {}

    def take(self) -> list[Piece]:
        """Return the pieces that are next in their ranges."""
        taken: list[Piece] = []
        for slots in self._slots_by_range.values():
            while slots:
                taken += slots[0].pieces
                slots[0].pieces = []
                if not slots[0].is_done:
                    break
                slots.popleft()
        self._slots_by_range = {key: slots for key, slots in self._slots_by_range.items() if slots}
        return taken

    def waiting_pieces(self) -> Iterator[Piece]:
        """Yield the pieces that wait for earlier ones."""
        return (piece for slots in self._slots_by_range.values() for slot in slots for piece in slot.pieces)

    def _open(self) -> None:
        slot = next(self._unopened, None)
        if slot is None:
            self._is_exhausted = True
            return
        self._waiting.append(slot)
        self._slots_by_range.setdefault(slot.range, deque()).append(slot)


def _slots(ranges: Iterable[Range], step: int) -> Iterator[Slot]:
    for whole in ranges:
        for begin in range(whole.begin, whole.end, step):
            yield Slot(whole, begin, min(begin + step, whole.end), [])
