"""One node of a group: what it has on its disk, what it knows of the record, and its role."""

from collections.abc import Callable
from typing import Any, Final

from skylarkmq.broker.ha.core.decisions import Decisions
from skylarkmq.broker.ha.core.events import (
    Copied,
    Effect,
    EndSet,
    Event,
    HaState,
    LifeSeen,
    Reached,
    ReadFailed,
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
from skylarkmq.broker.ha.core.messages import Data
from skylarkmq.broker.ha.core.peers import Peers


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

    def may_copy(self, link: int, data: Data) -> bool:
        """Return whether DATA that has just arrived may be appended, synced and acknowledged at once, before any other
        event. Copied follows; without Copied nothing has happened."""
        return isinstance(self.role, Follower) and not self._ended and self.role.may_copy(link, data)

    def step(self, now: float, event: Event) -> list[Effect]:
        """Return the effects of an event. After a Restart or Stop no step has any."""
        if self._ended:
            return []
        if now > self._now:
            self._now = now
        kind = type(event)
        if note := _NOTES.get(kind):
            note(self, event)
        if handler := _HANDLERS.get(kind):
            handler(self, event)
            if self.role.won:
                self.role = Leader(self._me, self.local, self.decisions, self._peers, self._now)
        else:
            self.role.handle(event, self._now)
        if not self.effects:
            return []
        effects = self.effects.copy()
        self.effects.clear()
        for effect in effects:
            if type(effect) in _ENDS:
                self._ended = True
        return effects

    def _responded(self, event: RecordRead | ReadFailed | Swapped | SwapRefused | SwapUnknown) -> None:
        if outcome := self.decisions.handle(event, self._now):
            self.role.on_outcome(outcome, self._now)

    def _state_stored(self, event: StateStored) -> None:
        self.local.stored(event.state)
        self.role.campaign_continues()

    def _sync_failed(self, _event: SyncFailed) -> None:
        self.effects.append(Restart("a sync of the log failed", new_store=True))

    def _tick(self, event: Tick) -> None:
        self.decisions.tick(self._now)
        self._keep_committed_mark()
        self.role.handle(event, self._now)

    def _keep_committed_mark(self) -> None:
        if self._now - self._marked_at >= self._me.timings.mark_s:
            self._marked_at = self._now
            self.local.keep_committed_mark()


_Handler = Callable[[Node, Any], None]
_NOTES: Final[dict[type[Event], _Handler]] = {
    Written: lambda node, event: node.local.extended(event.end, event.epochs),
    Synced: lambda node, event: node.local.synced_to(event.end),
    Copied: lambda node, event: node.local.copied(event.end),
    EndSet: lambda node, event: node.local.end_set(event.end),
    StartSet: lambda node, event: node.local.begins_at(event.start),
    LifeSeen: lambda node, event: node._peers.life_seen(event.node, event.life),
    Reached: lambda node, event: node._peers.reached(event.node, node._now),
}
"""What an event says of this node's log and of the other members, whatever the role is."""
_HANDLERS: Final[dict[type[Event], _Handler]] = {
    RecordRead: Node._responded,
    ReadFailed: Node._responded,
    Swapped: Node._responded,
    SwapRefused: Node._responded,
    SwapUnknown: Node._responded,
    StateStored: Node._state_stored,
    SyncFailed: Node._sync_failed,
    Tick: Node._tick,
}
"""Events that concern more than the role, which handles all others."""
_ENDS: Final = frozenset({Restart, Stop})
