"""The node's view of the store of decisions (rule 2): one request at a time, and no conclusion from a missing response.

A swap without a response may take effect at any later time, until the revision of the record moves on. So after each
swap that is not confirmed the record is read. If it has a new revision, its nonce shows who wrote it. If it has the
old one, all swaps at that revision remain possible.

The owner passes exactly one event for each request, and never repeats a swap on its own.
"""

from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.ha.core.events import (
    Effect,
    Event,
    Read,
    ReadFailed,
    RecordRead,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)  # fmt: skip
from skylarkmq.broker.ha.core.record import GroupRecord

RETRY_S: Final = 0.5
KEPT_ATTEMPTS: Final = 8
"""More swaps without a response, all at one revision, need no memory of their own: see `_seen`."""


class Outcome(NamedTuple):
    """The record is known. `moved`: it has another revision than before. `own`: a swap of this node wrote it. `open`: a
    swap at this revision may still take effect."""

    moved: bool
    own: bool
    open: bool = False


class Decisions:
    """`incarnation`: text that no other process of the group has; it makes nonces unique."""

    def __init__(self, incarnation: str, effects: list[Effect]) -> None:
        self.record: GroupRecord | None = None
        self.revision = 0
        self.busy = False
        self.asked_at = float("-inf")
        self._effects = effects
        self._incarnation = incarnation
        self._swaps = 0
        self._attempts: dict[str, GroupRecord] = {}  # by nonce: swaps at this revision that may have taken effect
        self._must_read = False

    def read(self, now: float) -> None:
        """Request the record, unless a request is under way."""
        if not self.busy:
            self.busy, self.asked_at, self._must_read = True, now, False
            self._effects.append(Read())

    def swap(self, record: GroupRecord, absent: str | None, now: float) -> None:
        """Request a swap of the record as it is known. No request may be under way."""
        assert not self.busy, "a second request: their responses could be mistaken for each other"
        self._swaps += 1
        if len(self._attempts) == KEPT_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]
        nonce = f"{self._incarnation}-{self._swaps}"
        self._attempts[nonce] = msgspec.structs.replace(record, nonce=nonce)
        self.busy, self.asked_at = True, now
        self._effects.append(Swap(self._attempts[nonce], self.revision, absent))

    def tick(self, now: float) -> None:
        """Repeat a read that failed."""
        if self._must_read and now - self.asked_at >= RETRY_S:
            self.read(now)

    def handle(self, event: Event, now: float) -> Outcome | None:
        """Return what is known after a response of the store; None if it has to be read first."""
        self.busy = False
        match event:
            case RecordRead(record, revision):
                return self._seen(record, revision)
            case Swapped(revision):
                return self._seen(list(self._attempts.values())[-1], revision)
            case SwapRefused():
                self._attempts.popitem()
                self.read(now)
            case SwapUnknown():
                self.read(now)
            case ReadFailed():
                self._must_read = True
        return None

    def _seen(self, record: GroupRecord | None, revision: int) -> Outcome:
        if revision <= self.revision:
            return Outcome(moved=False, own=False, open=bool(self._attempts))
        # A swap takes effect at the revision that it names only, so any of this process is one of the last revision's.
        own = record is not None and record.nonce.rpartition("-")[0] == self._incarnation
        self.record, self.revision = record, revision
        self._attempts.clear()
        return Outcome(moved=True, own=own)
