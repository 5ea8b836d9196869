"""One node of a group: what it has on its disk, what it knows of the record, and its role."""

from typing import Final

from skylarkmq.broker.ha.core.decisions import Decisions
from skylarkmq.broker.ha.core.events import (
    Effect,
    EndSet,
    Event,
    HaState,
    LifeSeen,
    Reached,
    ReadFailed,
    Received,
    RecordRead,
    Restart,
    StartSet,
    StateStored,
    Stop,
    Swapped,
    SwapRefused,
    SwapUnknown,
    Synced,
    SyncFailed,
    Tick,
    Written,
)  # fmt: skip
from skylarkmq.broker.ha.core.follower import Follower
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.leader import Leader
from skylarkmq.broker.ha.core.local import Local, Log
from skylarkmq.broker.ha.core.peers import Peers

FREQUENT: Final = frozenset({Received, Written, Synced})
"""Events of each batch of messages: only the role handles them."""


class Node:
    """A node from its start to its restart.

    `state` and `log` are what recovery found; all of the log has to be synced before. `now` is a steady time in
    seconds, here and in `step`.
    """

    def __init__(self, me: Identity, state: HaState, log: Log, now: float) -> None:
        self.effects: Final[list[Effect]] = []
        self._me = me
        self._now = self._marked_at = now
        self._ended = False
        self.local = Local(state, log, self.effects)
        self.decisions = Decisions(me.incarnation, self.effects)
        self._peers = Peers(me.timings)
        self.role: Follower | Leader = Follower(me, self.local, self.decisions, self._peers, now)

    @property
    def leading(self) -> int | None:
        """The epoch in which this node leads; None if it follows."""
        return self.role.epoch if isinstance(self.role, Leader) and not self._ended else None

    @property
    def refusal(self) -> str | None:
        """Why messages cannot be committed on this node now; None if they can."""
        return "this node restarts its store" if self._ended else self.role.refusal()

    def step(self, now: float, event: Event) -> list[Effect]:
        """Return the effects of an event. After a Restart or Stop no step has any."""
        if self._ended:
            return []
        self._now = max(now, self._now)
        self._note(event)
        if type(event) in FREQUENT:
            self.role.handle(event, self._now)
        else:
            self._handle(event)
            if isinstance(self.role, Follower) and self.role.won:
                self.role = Leader(self._me, self.local, self.decisions, self._peers, self._now)
        if not self.effects:
            return []
        effects = self.effects.copy()
        self.effects.clear()
        self._ended = any(isinstance(effect, Restart | Stop) for effect in effects)
        return effects

    def _handle(self, event: Event) -> None:
        match event:
            case RecordRead() | ReadFailed() | Swapped() | SwapRefused() | SwapUnknown():
                if outcome := self.decisions.handle(event, self._now):
                    self.role.on_outcome(outcome, self._now)
            case StateStored(state):
                self.local.stored(state)
                self.role.campaign_continues()
            case SyncFailed():
                self.effects.append(Restart("a sync of the log failed", new_store=True))
            case Tick():
                self.decisions.tick(self._now)
                self._keep_committed_mark()
                self.role.handle(event, self._now)
            case _:
                self.role.handle(event, self._now)

    def _note(self, event: Event) -> None:
        """Keep what an event says of this node's log and of the other members."""
        match event:
            case Received():
                pass
            case Written(end, epochs):
                self.local.extended(end, epochs)
            case Synced(end):
                self.local.synced = max(end, self.local.synced)
            case EndSet(end):
                self.local.end_set(end)
            case StartSet(start):
                self.local.begins_at(start)
            case LifeSeen(node, life):
                self._peers.life_seen(node, life)
            case Reached(node):
                self._peers.reached(node, self._now)

    def _keep_committed_mark(self) -> None:
        if self._now - self._marked_at >= self._me.timings.mark_s:
            self._marked_at = self._now
            self.local.keep_committed_mark()
