"""The node that leads: it welcomes followers, counts their acknowledgements, and keeps the set of copies.

A term begins with the epoch record at the end of the log (rule 6). Followers are welcomed at once, so that they can
acknowledge it. The order on one link: HELLO; WELCOME; the first ACK, once the follower's log ends where the data begin;
DATA. A leader never turns into a follower in place: it asks for a restart of the process's store.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skylarkmq.broker.ha.core.admission import foreign, start_of_data
from skylarkmq.broker.ha.core.campaign import Campaign, State
from skylarkmq.broker.ha.core.commit import CommitRule
from skylarkmq.broker.ha.core.decisions import Decisions, Outcome
from skylarkmq.broker.ha.core.epochs import EpochHistory, founded
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Close,
    Event,
    Feed,
    LifeRenewed,
    Linked,
    Received,
    Restart,
    Send,
    Show,
    Stop,
    Synced,
    Tick,
    Unlinked,
    Written,
)  # fmt: skip
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.in_sync import Progresses
from skylarkmq.broker.ha.core.local import Local
from skylarkmq.broker.ha.core.messages import Ack, Beat, Hello, Message, Refused, Welcome
from skylarkmq.broker.ha.core.peers import Peers
from skylarkmq.broker.ha.core.record import GroupRecord, Member

MAX_AHEAD: Final = 1 << 24
"""A promise further above the leader's epoch comes from a damaged disk. Its node is refused and changes no term, so no
node can raise the terms of a group to their limit, which is that of Number."""


class CopyProgress(NamedTuple):
    """A linked follower. `synced`: what it has acknowledged in this term; None if nothing. `is_heard`: not long ago."""

    link: int
    node: str
    synced: int | None
    is_in_sync: bool
    is_heard: bool


@dataclass(slots=True)
class _Copy:
    """A follower that was welcomed in this term. `start`: where its data begin. `feeds`: they are being sent."""

    node: str
    store_id: str
    start: int
    feeds: bool = False


class Leader:
    """The role of a node from the swap of its term until its restart."""

    won: Final = False  # only a follower wins this role

    def __init__(self, me: Identity, local: Local, decisions: Decisions, peers: Peers, now: float) -> None:
        self._me = me
        self._local = local
        self._decisions = decisions
        self._timings = me.timings
        self._now = now
        self._renewed_at = now
        self._peers = peers
        self._beat_at = now
        self._shown = local.committed
        self._renewal: Campaign | None = None
        self._begin()

    def refusal(self) -> str | None:
        """Return why messages cannot be committed now; None if they can."""
        if self._commit is None:
            return "the epoch record is not written yet"
        record = self._record()
        count = len(self._commit.in_sync)
        if count < record.min and record.acks == "all":
            return f"the set has {count} of {record.min} synced copies"
        return None

    def copies(self, now: float) -> list[CopyProgress]:
        """Return the followers that are linked now."""
        in_sync = self._commit.in_sync if self._commit else frozenset(self._record().in_sync)
        return [
            CopyProgress(
                link,
                copy.node,
                self._commit.synced(copy.store_id) if self._commit else None,
                copy.store_id in in_sync,
                self._progresses.is_heard(copy.store_id, now),
            )
            for link, copy in self._copies.items()
        ]

    def handle(self, event: Event, now: float) -> None:
        """Handle an event of a link, of time, or of the disk."""
        self._now = now
        if handler := _HANDLERS.get(type(event)):
            handler(self, event)

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        """The record is known."""
        self._now = now
        if self._renewal:
            self._renewal.on_outcome(outcome, now)
            self._look_at_renewal()
        if outcome.moved:
            self._settle()

    def campaign_continues(self) -> None:
        """A promise may be on the disk."""
        self._look_at_renewal()

    # The term

    def _begin(self) -> None:
        self.epoch = self._record().epoch
        self._commit: CommitRule | None = None  # once the epoch record is written
        self._copies: dict[int, _Copy] = {}
        self._progresses = Progresses(self._timings, self._now)
        self._stuck_since: float | None = None
        if not self._local.epochs.entries:
            self._local.keep_epochs(EpochHistory((founded(self._local.store_id),)))
        self._local.effects.append(BeginTerm(self.epoch, self._record().in_sync))

    def _count_from(self, term_end: int) -> None:
        record = self._record()
        self._commit = CommitRule(
            committed=self._local.committed, term_end=term_end, in_sync=record.in_sync, minimum=record.min
        )

    def _record(self) -> GroupRecord:
        record = self._decisions.record
        assert record is not None
        return record

    def _settle(self) -> None:
        """The record has moved: by a swap of this leader, or because another node leads."""
        record = self._record()
        if record.epoch != self.epoch or record.leader != self._me.node:
            self._restart(f"epoch {record.epoch} has begun, led by {record.leader or 'no node'}")
        elif self._local.store_id not in record.in_sync:
            self._restart("this node's store was removed from the set")
        elif self._commit:
            for store_id in self._commit.in_sync - set(record.in_sync):
                self._progresses.removed(store_id)
            self._commit.settle(record.in_sync)
            self._advance()

    def _problem_of(self, epoch: int) -> str:
        """Return why a node with this promise is refused."""
        if epoch - self.epoch <= MAX_AHEAD:
            return f"epoch {epoch} is promised"
        return f"epoch {epoch} is promised, far above epoch {self.epoch} of this group: start with an empty directory"

    def _learn(self, epoch: int, node: str) -> None:
        """A node refused this term with a higher epoch: take another one above it, if still recorded (rule 2).

        If an operator decides which node leads, this is not the newest leader: it ends.
        """
        if not self.epoch < epoch <= self.epoch + MAX_AHEAD or self._renewal:
            return
        if self._me.has_static_leader:
            self._stop(epoch, node)
            return
        self._local.promise(epoch, lambda: None)
        if not self._decisions.busy:
            self._renewal = Campaign(self._local, self._decisions, self._proposal, self._now)

    def _proposal(self, record: GroupRecord | None) -> tuple[GroupRecord, str | None] | None:
        if record is None or record.epoch != self.epoch or record.leader != self._me.node:
            return None
        return record, None

    def _look_at_renewal(self) -> None:
        renewal = self._renewal
        if renewal is None:
            return
        if renewal.state is State.WON:
            self._renewal = None
            for link in self._copies:
                self._close(link, f"epoch {renewal.epoch} begins")
            self._begin()
        elif renewal.state is State.ENDED:
            self._renewal = None

    def _stop(self, epoch: int, node: str) -> None:
        reason = f"{node} has promised epoch {epoch}, and this node leads in epoch {self.epoch} by an older haRecord"
        next_step = "copy haRecord from the node that led last, or name that node first in haPeers"
        otherwise = f"if the messages of {node} are not needed, start {node} with an empty directory"
        self._local.effects.append(Stop(f"{reason}; {next_step}; {otherwise}"))

    def _restart(self, reason: str) -> None:
        self._local.effects.append(Restart(reason))

    # Events

    def _received(self, event: Received) -> None:
        link, message = event.link, event.message
        copy = self._copies.get(link)
        if copy is not None:
            self._receive(link, copy, message)
        elif isinstance(message, Hello):
            self._welcome(link, message)
        else:
            self._close(link, f"{type(message).__name__} before HELLO")

    def _synced(self, event: Synced) -> None:
        self._acknowledged(self._local.store_id, event.end)

    def _written(self, event: Written) -> None:
        if event.epochs and event.epochs[-1].epoch == self.epoch:
            self._count_from(self._local.written)

    def _unlinked(self, event: Unlinked) -> None:
        self._copies.pop(event.link, None)

    def _linked(self, event: Linked) -> None:
        self._close(event.link, "not needed any more")

    def _life_renewed(self, event: LifeRenewed) -> None:
        self._renewed_at = max(self._renewed_at, event.asked_at)

    # Followers

    def _welcome(self, link: int, hello: Hello) -> None:
        owners = {copy.node for copy in self._copies.values() if copy.store_id == hello.store_id}
        if problem := foreign(hello, self._me, self._record(), self._local, owners):
            self._refuse(link, problem)
            return
        if (ahead := max(hello.promised, hello.epochs.last)) > self.epoch:
            self._refuse(link, self._problem_of(ahead))
            self._learn(ahead, hello.node)
            return
        if self._has_lost(hello):
            self._refuse(link, "the store lost acknowledged bytes: start the node with an empty directory", lost=True)
            return
        start = start_of_data(hello, self._local)
        if start is None:
            self._refuse(link, "the log has no epoch in common with the leader's: start with an empty directory")
            return
        for older, copy in list(self._copies.items()):
            if hello.node == copy.node or hello.store_id == copy.store_id:
                self._drop(older, "replaced by another link")
        self._copies[link] = _Copy(hello.node, hello.store_id, start)
        self._send(link, Welcome(self.epoch, start, self._local.committed, self._local.epochs.truncated(start)))

    def _has_lost(self, hello: Hello) -> bool:
        acknowledged = self._commit.synced(hello.store_id) if self._commit else None
        return acknowledged is not None and hello.end < acknowledged

    def _receive(self, link: int, copy: _Copy, message: Message) -> None:
        match message:
            case Ack(epoch, _, synced) if self._is_valid(copy, message):
                if not copy.feeds:
                    copy.feeds = True
                    self._local.effects.append(Feed(link, epoch, copy.start))
                self._progresses.acknowledged(copy.store_id, synced, self._local.written, self._now)
                self._acknowledged(copy.store_id, synced)
            case Refused(epoch):
                self._drop(link, "refused by the follower")
                self._learn(epoch, copy.node)
            case _:
                self._drop(link, f"unexpected {message!r:.100}")

    def _is_valid(self, copy: _Copy, ack: Ack) -> bool:
        in_order = ack.synced <= ack.written <= self._local.written
        return ack.epoch == self.epoch and in_order and (copy.feeds or ack.written == copy.start)

    def _acknowledged(self, store_id: str, end: int) -> None:
        if self._commit:
            self._commit.acknowledged(store_id, end)
            self._advance()

    def _advance(self) -> None:
        """Show what is committed (rule 4), or with `acks` "leader" what is synced here."""
        if self._commit is None:
            return
        if self._commit.advance():
            self._local.committed = self._commit.committed
        visible = self._visible(self._commit)
        if visible > self._shown:
            self._shown = visible
            self._stuck_since = None
            self._local.effects.append(Show(visible))

    def _visible(self, commit: CommitRule) -> int:
        return commit.visible(self._record().acks, self._local.store_id)

    # Time

    def _tick(self, _event: Tick) -> None:
        now, timings = self._now, self._timings
        if now - self._beat_at >= timings.beat_s:
            self._beat_at = now
            for link in self._copies:
                self._send(link, Beat(self.epoch, self._local.committed))
        if now - self._renewed_at > timings.lost_s and not self._hears_all():
            self._restart("the sign of life was not renewed, and not the whole set responded")
        elif not self._decisions.busy:
            self._decide()

    def _decide(self) -> None:
        """Make one request of the store of decisions, if there is a reason for one."""
        now, record, commit = self._now, self._record(), self._commit
        if self._is_stuck():
            self._decisions.swap(record.with_leader(self.epoch, "", frozenset(record.in_sync)), None, now)
        elif self._renewal:
            return  # its promise is being stored, or its read is going to be repeated
        elif self._local.promised > self.epoch:
            self._renewal = Campaign(self._local, self._decisions, self._proposal, now)
        elif commit and (wanted := self._wanted(commit)) != commit.in_sync:
            commit.propose(wanted)
            joining = {
                copy.node: Member(copy.store_id, *self._addresses(copy.node))
                for copy in self._copies.values()
                if copy.store_id in wanted
            }
            self._decisions.swap(record.with_set(wanted, joining), None, now)
        elif now - self._decisions.asked_at >= self._timings.read_s:
            self._decisions.read(now)

    def _wanted(self, commit: CommitRule) -> frozenset[str]:
        own = self._local.store_id
        may_join = frozenset(copy.store_id for copy in self._copies.values() if commit.has_committed(copy.store_id))
        return self._progresses.wanted(commit.in_sync, own, self._record().min, may_join, self._now)

    def _addresses(self, node: str) -> tuple[str, str]:
        member = self._record().members.get(node)
        return (member.address, member.ha) if member else ("", "")

    def _is_stuck(self) -> bool:
        """Return whether another member should lead: nothing is committed, though others and the store respond."""
        record, stuck_s = self._record(), self._timings.stuck_s
        if not self._waits_for_commit(record):
            self._stuck_since = None
            return False
        if self._stuck_since is None:
            self._stuck_since = self._now
        successors = [name for name in record.others_in_sync(self._local.store_id) if self._is_healthy(name)]
        healthy = self._renewed_at > self._now - stuck_s and len(successors) + 1 >= max(2, record.min)
        return healthy and self._now - self._stuck_since > stuck_s

    def _waits_for_commit(self, record: GroupRecord) -> bool:
        """Return whether the log has bytes to commit, the epoch record included, and the set has `min` stores."""
        if self._commit is None:
            return True
        return self._local.written > self._visible(self._commit) and len(record.in_sync) >= record.min

    def _is_healthy(self, node: str) -> bool:
        """Return whether a member responds, and still has the store that is in the set."""
        store_id = self._record().members[node].store_id
        return self._peers.is_reached(node, self._now) and self._peers.has_store(node, store_id)

    def _hears_all(self) -> bool:
        heard_from = self._now - self._timings.lost_s
        others = set(self._record().in_sync) - {self._local.store_id}
        return all(self._progresses.heard_at(store_id) >= heard_from for store_id in others)

    # Effects

    def _send(self, link: int, message: Message) -> None:
        self._local.effects.append(Send(link, message))

    def _close(self, link: int, reason: str) -> None:
        self._local.effects.append(Close(link, reason))

    def _refuse(self, link: int, reason: str, *, lost: bool = False) -> None:
        self._send(link, Refused(max(self.epoch, self._local.promised), reason, lost))
        self._close(link, reason)

    def _drop(self, link: int, reason: str) -> None:
        """Close the link of a follower."""
        del self._copies[link]
        self._close(link, reason)


_HANDLERS: Final[dict[type[Event], Callable[[Leader, Any], None]]] = {
    Received: Leader._received,
    Synced: Leader._synced,
    Written: Leader._written,
    Tick: Leader._tick,
    Unlinked: Leader._unlinked,
    Linked: Leader._linked,
    LifeRenewed: Leader._life_renewed,
}
"""A leader ignores the other events."""
