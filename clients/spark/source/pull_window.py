"""Many pulls of known ranges in flight at once, and their answers in order again. Pure: no socket, no clock.

    ranges -> slots of `step` offsets -> asked -> answered, in any order -> pieces, in each queue's order

A broker gives less than was asked for when messages are large or lie far back; the slot then asks for its rest. A
connection that breaks loses what was in flight: those slots ask again from where they stand. A piece is the body of an
answer; it is given out when everything before it in its range has been.

Under a filter an answer may reach beyond its slot, and the next slot reads that once more. So slots are long there
(the caller chooses `step`), each is read one pull after the other, and whoever makes rows of pieces leaves out those
that are not below `upto`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from skylarkmq.clients.spark.source.splitting import Range
from skylarkmq.protocol.codes import ResponseCode


class Piece(msgspec.Struct):
    """Offsets [begin, upto) of a range, as an answer brought them: places in a buffer, or bytes of its own. Under a
    filter some that lie behind may stand there, too."""

    range: Range
    begin: int
    upto: int
    body: tuple[int, int] | bytes


class Slot(msgspec.Struct, eq=False):
    """Offsets [at, end) that are still to be asked for; `tries` counts answers that brought nothing new."""

    range: Range
    at: int
    end: int
    pieces: list[Piece]
    tries: int = 0

    @property
    def is_done(self) -> bool:
        return self.at >= self.end


class Kind(Enum):
    """What an answer means for its slot."""

    TAKEN = "messages up to `upto`"
    PASSED = "none that is wanted up to `upto`"
    LOST = "those up to `upto` are gone"
    ENDED = "the queue ends before the slot does"
    GONE = "there is no such queue"
    BUSY = "ask again later"
    REFUSED = "the broker will not"


class Verdict(NamedTuple):
    """How to go on; `upto` is where a slot then stands."""

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
    """What the answer `code` means, which says that the next offset is `following`."""
    if code == ResponseCode.SUCCESS and following > slot.at:
        return Verdict(Kind.TAKEN, following)
    if code in _NOTHING_NEW and following > slot.at:
        if is_filtered:
            return Verdict(Kind.PASSED, following)
        return Verdict(Kind.LOST, following, DELETED)
    if code == ResponseCode.PULL_OFFSET_MOVED and following > slot.at:
        return Verdict(Kind.LOST, following, DELETED)
    if code in _NOTHING_NEW or code == ResponseCode.PULL_OFFSET_MOVED:
        return Verdict(Kind.ENDED, slot.range.end, f"the queue ends at {following}: was its topic made again?")
    if code in _NO_QUEUE:
        return Verdict(Kind.GONE, slot.range.end, "the queue does not exist any more")
    if code in _LATER or code == ResponseCode.SUCCESS:
        return Verdict(Kind.BUSY, slot.at)
    return Verdict(Kind.REFUSED, slot.at)


class PullWindow:
    """The slots of a task, of `step` offsets each."""

    def __init__(self, ranges: Iterable[Range], step: int) -> None:
        self._unopened = _slots(ranges, step)
        self._waiting: deque[Slot] = deque()
        self._asked: dict[int, Slot] = {}
        self._lines: dict[Range, deque[Slot]] = {}
        self._is_exhausted = False

    def __repr__(self) -> str:
        return f"<PullWindow {len(self._asked)} in flight, {len(self._waiting)} wait>"

    @property
    def in_flight(self) -> int:
        """Slots whose answers are due."""
        return len(self._asked)

    @property
    def is_finished(self) -> bool:
        """Whether everything has been answered; pieces may still wait to be taken."""
        if not self._waiting and not self._asked and not self._is_exhausted:
            self._open()
        return not self._waiting and not self._asked

    def next_slot(self) -> Slot | None:
        """The slot to ask for now; None: all have been asked for."""
        if not self._waiting and not self._is_exhausted:
            self._open()
        return self._waiting.popleft() if self._waiting else None

    def asked(self, number: int, slot: Slot) -> None:
        """The slot is in flight under this number."""
        self._asked[number] = slot

    def answered(self, number: int) -> Slot | None:
        """The slot of that number, in flight no more; None: nobody waits for it (any more)."""
        return self._asked.pop(number, None)

    def advance(self, slot: Slot, upto: int, body: tuple[int, int] | None = None) -> None:
        """The slot stands at `upto`; it asks for the rest if there is any."""
        if body is not None:
            slot.pieces.append(Piece(slot.range, slot.at, min(upto, slot.end), body))
        slot.at, slot.tries = upto, 0
        if not slot.is_done:
            self._waiting.appendleft(slot)

    def again(self, slot: Slot) -> None:
        """The slot is asked for once more, before others are."""
        slot.tries += 1
        self._waiting.appendleft(slot)

    def lose_connection(self) -> None:
        """Whatever was in flight is asked for once more."""
        self._waiting.extendleft(reversed(self._asked.values()))
        self._asked = {}

    def take(self) -> list[Piece]:
        """The pieces that are next in their ranges."""
        taken: list[Piece] = []
        for line in self._lines.values():
            while line:
                taken += line[0].pieces
                line[0].pieces = []
                if not line[0].is_done:
                    break
                line.popleft()
        self._lines = {key: line for key, line in self._lines.items() if line}
        return taken

    def held(self) -> Iterator[Piece]:
        """The pieces that came before their turn."""
        return (piece for line in self._lines.values() for slot in line for piece in slot.pieces)

    def _open(self) -> None:
        slot = next(self._unopened, None)
        if slot is None:
            self._is_exhausted = True
            return
        self._waiting.append(slot)
        self._lines.setdefault(slot.range, deque()).append(slot)


def _slots(ranges: Iterable[Range], step: int) -> Iterator[Slot]:
    for whole in ranges:
        for begin in range(whole.begin, whole.end, step):
            yield Slot(whole, begin, min(begin + step, whole.end), [])
