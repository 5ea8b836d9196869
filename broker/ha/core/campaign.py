"""How a node begins a term (rule 2): read the record, promise an epoch above it, swap the record.

A follower campaigns when the leader is gone; a leader that was refused with a higher epoch campaigns to stay leader. A
campaign that ends without success leaves only a promise behind. If its swap takes effect after all, the record names
a leader that does not lead, and the members campaign again.

Only a swap of this campaign wins it. Another swap of the same process may take effect in its place: a change of the set
that a leader requested before, or the term of an earlier campaign.
"""

import enum
from collections.abc import Callable

from skylarkmq.broker.ha.core.decisions import Decisions, Outcome
from skylarkmq.broker.ha.core.local import Local
from skylarkmq.broker.ha.core.record import GroupRecord


class State(enum.Enum):
    """The steps of a campaign."""

    READING = enum.auto()
    PROMISING = enum.auto()
    PROMISED = enum.auto()  # while a read is under way
    SWAPPING = enum.auto()
    WON = enum.auto()
    ENDED = enum.auto()


class Campaign:
    """`proposal` returns the record of the new term with epoch 0, and the node that must have no sign of life; None if
    this node may not begin a term. It is called after the record was read, and again before each swap."""

    def __init__(
        self,
        local: Local,
        decisions: Decisions,
        proposal: Callable[[GroupRecord | None], tuple[GroupRecord, str | None] | None],
        now: float,
    ) -> None:
        self.state = State.READING
        self.epoch = 0
        self._local = local
        self._decisions = decisions
        self._proposal = proposal
        self._now = now
        decisions.read(now)

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        """The record is known: after the read, or after a swap."""
        self._now = now
        if self.state is State.PROMISED:
            self._swap()
        elif self.state is State.SWAPPING:
            if outcome.moved:
                self.state = State.WON if outcome.own and self._is_recorded() else State.ENDED
            elif outcome.open:
                self._swap()
            else:
                self.state = State.ENDED
        elif self.state is State.READING:
            record = self._decisions.record
            if self._proposal(record) is None:
                self.state = State.ENDED
                return
            self.epoch = max(record.epoch if record else 0, self._local.promised) + 1
            self.state = State.PROMISING
            self._local.promise(self.epoch, self._swap)

    def _is_recorded(self) -> bool:
        record = self._decisions.record
        return record is not None and record.epoch == self.epoch

    def _swap(self) -> None:
        """The promise is on the disk."""
        if self._decisions.busy:
            self.state = State.PROMISED
            return
        before = self._decisions.record
        proposal = self._proposal(before)
        is_above = self.epoch >= self._local.promised and (before is None or self.epoch > before.epoch)
        if proposal is None or not is_above:
            self.state = State.ENDED
            return
        record, absent = proposal
        self.state = State.SWAPPING
        self._decisions.swap(
            record.with_leader(self.epoch, record.leader, frozenset(record.in_sync)), absent, self._now
        )
