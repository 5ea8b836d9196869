"""A node that does not lead: it copies the leader's log, and campaigns when the leader is gone.

The order on one link: HELLO, once the whole log is synced; WELCOME; promise its epoch (rule 1); truncate (rule 7);
acknowledge; append DATA in order. BEATs come from WELCOME on. A link that breaks this order is closed, and the node
connects again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from skylarkmq.broker.ha.core.campaign import Campaign, State
from skylarkmq.broker.ha.core.decisions import Decisions, Outcome
from skylarkmq.broker.ha.core.events import (
    Close,
    Connect,
    Copied,
    EndSet,
    Event,
    Heard,
    LifeSeen,
    Linked,
    LinkFailed,
    Received,
    Send,
    SetEnd,
    Show,
    Stop,
    Synced,
    Tick,
    Unlinked,
    Write,
)  # fmt: skip
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.local import Local
from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Hello, Message, Refused, Welcome
from skylarkmq.broker.ha.core.peers import Peers
from skylarkmq.broker.ha.core.record import FORMAT, GroupRecord

NEVER: Final = float("-inf")


@dataclass(slots=True)
class _Link:
    """The link to the leader. `epoch`: the epoch of the WELCOME, once the log was truncated for it."""

    number: int
    node: str
    heard_at: float
    greeted: bool = False
    welcome: Welcome | None = None
    epoch: int | None = None


class Follower:
    """The role of every node at its start. `won`: a campaign has succeeded."""

    def __init__(self, me: Identity, local: Local, decisions: Decisions, peers: Peers, now: float) -> None:
        self.won = False
        self._me = me
        self._local = local
        self._decisions = decisions
        self._timings = me.timings
        self._now = now
        self._link: _Link | None = None
        self._connecting: str | None = None
        self._connected_at = NEVER
        self._expected = local.written
        self._setting_end = False
        self._shown = NEVER
        self._peers = peers
        self._refused_by: str | None = None  # the node whose machine refused the connection: no process listens
        self._gone_since: float | None = None
        self._campaign: Campaign | None = None
        self._ended_campaigns = 0
        self._show(local.committed)

    def handle(self, event: Event, now: float) -> None:
        """Handle an event of a link, of time, or of the disk."""
        self._now = now
        if handler := _HANDLERS.get(type(event)):
            handler(self, event)

    @property
    def leader(self) -> str | None:
        """The node that this one copies from; None without a link, or before its WELCOME."""
        return self._link.node if self._link and self._link.epoch is not None else None

    def refusal(self) -> str | None:
        """Return why messages cannot be committed on this node."""
        return "this node does not lead"

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        """The record is known."""
        self._now = now
        if outcome.moved:
            self._ended_campaigns = 0
            self._refused_by = None
            self._leave_former_leader()
        if self._campaign:
            self._campaign.on_outcome(outcome, now)
            self._look_at_campaign()

    def campaign_continues(self) -> None:
        """A promise may be on the disk."""
        self._look_at_campaign()

    # Links

    def _life_seen(self, event: LifeSeen) -> None:
        """If a member leads in a later epoch than the record's, read the record at once."""
        epoch = event.life.leading if event.life else None
        record = self._decisions.record
        if epoch is not None and (record is None or record.epoch < epoch):
            self._decisions.read(self._now)

    def _unlinked(self, event: Unlinked) -> None:
        if self._link and self._link.number == event.link:
            self._link = None

    def _heard(self, event: Heard) -> None:
        if self._link and self._link.number == event.link:
            self._link.heard_at = self._now

    def _link_failed(self, event: LinkFailed) -> None:
        self._connecting = None
        self._refused_by = event.node if event.refused else None

    def _leave_former_leader(self) -> None:
        record = self._decisions.record
        if self._link and record and record.leader not in ("", self._link.node):
            self._drop(f"{record.leader} leads in epoch {record.epoch}")

    def _linked(self, event: Linked) -> None:
        link, node = event.link, event.node
        is_wanted = self._connecting == node and not (self._link or self._campaign)
        self._connecting = self._refused_by = None
        if not is_wanted:
            self._close(link, "not needed any more")
            return
        self._link = _Link(link, node, self._now)
        self._greet()

    def _greet(self) -> None:
        """Send HELLO once all that was received is on the disk: `end` counts as acknowledged (rule 8)."""
        link, local = self._link, self._local
        if link and not (link.greeted or self._setting_end) and local.synced == local.written == self._expected:
            link.greeted = True
            hello = Hello(
                self._me.group,
                self._me.node,
                local.store_id,
                local.promised,
                local.epochs,
                local.start,
                local.synced,
                FORMAT,
                self._me.segment_bytes,
            )
            self._send(link.number, hello)

    def _received(self, event: Received) -> None:
        if self._link and self._link.number == event.link:
            self._receive(self._link, event.message)
        else:
            self._answer_stranger(event.link, event.message)

    def _receive(self, link: _Link, message: Message) -> None:
        link.heard_at = self._now
        match message:
            case Data(epoch, offset, committed, payload) if self._follows(link, epoch):
                if offset != self._expected:
                    self._drop(f"data at {offset}, expected {self._expected}")
                    return
                self._expected += len(payload)
                self._local.effects.append(Write(offset, payload))
                self._learn(committed)
            case Beat(epoch, committed) if self._follows(link, epoch):
                self._learn(committed)
                self._acknowledge(link)
            case Welcome(epoch) if link.greeted and link.welcome is None:
                if self._refuses(link, epoch):
                    return
                link.welcome = message
                self._local.promise(epoch, lambda: self._adopt(link, message))
            case Beat(epoch) if link.welcome and link.epoch is None and epoch == link.welcome.epoch:
                pass  # the promise or the truncation is under way
            case Refused(_, reason, lost):
                self._refused(reason, lost=lost)
            case Data(epoch) | Beat(epoch) | Welcome(epoch) if self._refuses(link, epoch):
                pass
            case _:
                self._drop(f"unexpected {type(message).__name__}")

    def may_copy(self, number: int, data: Data) -> bool:
        """Return whether the bytes continue a log that is synced, on a link that this node follows: their sync
        acknowledges all of it (rules 1 and 8)."""
        link, local = self._link, self._local
        is_followed = link is not None and link.number == number and self._follows(link, data.epoch)
        return is_followed and data.offset == self._expected == local.written == local.synced

    def _copied(self, event: Copied) -> None:
        self._expected = event.end
        if self._link and self._link.number == event.link:
            self._link.heard_at = self._now
        self._learn(event.committed)

    def _answer_stranger(self, link: int, message: Message) -> None:
        """A node that links to this one takes it for the leader."""
        if isinstance(message, Hello):
            self._send(link, Refused(self._local.promised, f"{self._me.node} does not lead"))
        self._close(link, "this node does not lead")

    def _follows(self, link: _Link, epoch: int) -> bool:
        return link.epoch == epoch and epoch >= self._local.promised

    def _refuses(self, link: _Link, epoch: int) -> bool:
        """Refuse a lower epoch than the promised one (rule 1)."""
        if epoch >= self._local.promised:
            return False
        self._send(link.number, Refused(self._local.promised, f"epoch {epoch} is over"))
        self._drop(f"epoch {epoch} is below the promised {self._local.promised}")
        return True

    def _refused(self, reason: str, *, lost: bool) -> None:
        self._drop(f"refused: {reason}")
        if lost:
            self._local.effects.append(Stop(reason))

    # From WELCOME to data

    def _adopt(self, link: _Link, welcome: Welcome) -> None:
        """The epoch is promised, on the disk: go back to the common prefix (rule 7)."""
        local = self._local
        if link is not self._link or self._refuses(link, welcome.epoch):
            return
        if welcome.start < min(local.committed, local.synced):
            mark = local.committed
            self._drop("damaged")
            problem = f"the leader's log differs from offset {welcome.start} on, below the committed {mark}"
            local.effects.append(Stop(f"{problem}: start the node whose log is damaged with an empty directory"))
        elif welcome.start > local.written > local.start:
            self._drop(f"data would begin at {welcome.start}, behind the log's end {local.written}")
        elif welcome.start != local.written:
            self._setting_end = True
            local.effects.append(SetEnd(welcome.start))
        else:
            self._follow(link, welcome)

    def _follow(self, link: _Link, welcome: Welcome) -> None:
        """The log ends where the leader's data begin, so up to there it has the leader's history."""
        if self._refuses(link, welcome.epoch):
            return
        link.epoch = welcome.epoch
        self._local.keep_epochs(welcome.epochs)
        self._learn(welcome.committed)
        self._acknowledge(link)

    def _end_set(self, _event: EndSet) -> None:
        self._setting_end = False
        self._expected = self._local.written
        if self._link and self._link.welcome:
            self._follow(self._link, self._link.welcome)
        self._greet()

    def _synced(self, _event: Synced) -> None:
        self._greet()
        self._show(self._local.committed)
        if self._link and self._link.epoch is not None:
            self._acknowledge(self._link)

    def _acknowledge(self, link: _Link) -> None:
        assert link.epoch is not None
        if not self._refuses(link, link.epoch):
            self._send(link.number, Ack(link.epoch, self._local.written, self._local.synced))

    def _learn(self, committed: int) -> None:
        self._local.committed = max(self._local.committed, committed)
        self._show(self._local.committed)

    def _show(self, committed: int) -> None:
        """Make visible what is committed and synced here (rule 4)."""
        end = min(committed, self._local.synced)
        if end > self._shown:
            self._shown = end
            self._local.effects.append(Show(end))

    # Time: connections and campaigns

    def _tick(self, _event: Tick) -> None:
        now, timings = self._now, self._timings
        record = self._decisions.record
        if now - self._decisions.asked_at >= timings.read_s:
            self._decisions.read(now)
        if self._link and now - self._link.heard_at > timings.silent_s:
            self._drop("the leader is silent")
        if self._campaign:
            return
        if record and not (self._link or self._connecting) and now - self._connected_at >= timings.connect_s:
            self._connect(record.leader)
        if self._should_campaign(record):
            self._drop("campaign")
            self._campaign = Campaign(self._local, self._decisions, self._proposal, now)

    def _connect(self, leader: str) -> None:
        if leader not in ("", self._me.node):
            self._connecting, self._connected_at = leader, self._now
            self._local.effects.append(Connect(leader))

    def _should_campaign(self, record: GroupRecord | None) -> bool:
        if self._decisions.busy or self._setting_end:
            return False
        if self._proposal(record) is None:
            self._gone_since = None
            return False
        if self._gone_since is None:
            self._gone_since = self._now
        names = sorted(record.members) if record else [self._me.node]
        rank = names.index(self._me.node) if self._me.node in names else len(names)
        wait = (self._timings.gone_s + rank * self._timings.rank_s) * float(2 ** min(self._ended_campaigns, 7))
        return self._now - self._gone_since >= wait

    def _proposal(self, record: GroupRecord | None) -> tuple[GroupRecord, str | None] | None:
        """Return the record of a term of this node, if it may begin one: see Campaign."""
        own = self._local.store_id
        if record is None:
            is_new = not self._local.epochs.entries  # whatever it promised: a founding may fail several times
            return (self._me.founds(own), None) if self._me.founds and is_new else None
        if own not in record.in_sync or record.format > FORMAT or not self._is_gone(record):
            return None
        others = {
            record.members[name].store_id
            for name in record.others_in_sync(own)
            if self._peers.is_reached(name, self._now)
        }
        if len(others) + 1 < record.min and len(record.in_sync) >= record.min:
            return None
        in_sync = frozenset({own, *others}) if len(others) + 1 >= record.min else frozenset(record.in_sync)
        absent = record.leader if self._has_expired(record.leader) else None
        return record.with_leader(0, self._me.node, in_sync), absent

    def _is_gone(self, record: GroupRecord) -> bool:
        """Return whether no node leads in the term of this record, as far as this node has seen."""
        leader = record.leader
        if leader in ("", self._me.node) or (leader == self._refused_by and self._link is None):
            return True
        return not self._peers.leads(record)

    def _has_expired(self, leader: str) -> bool:
        return leader not in ("", self._me.node, self._refused_by) and self._peers.has_expired(leader)

    def _look_at_campaign(self) -> None:
        campaign = self._campaign
        if campaign is None:
            return
        if campaign.state is State.WON:
            self.won = True
        elif campaign.state is State.ENDED:
            self._campaign, self._gone_since = None, None
            self._ended_campaigns += 1

    # Effects

    def _send(self, link: int, message: Message) -> None:
        self._local.effects.append(Send(link, message))

    def _close(self, link: int, reason: str) -> None:
        self._local.effects.append(Close(link, reason))

    def _drop(self, reason: str) -> None:
        if self._link:
            self._close(self._link.number, reason)
            self._link = None


_HANDLERS: Final[dict[type[Event], Callable[[Follower, Any], None]]] = {
    Received: Follower._received,
    Heard: Follower._heard,
    Copied: Follower._copied,
    Synced: Follower._synced,
    Tick: Follower._tick,
    EndSet: Follower._end_set,
    Linked: Follower._linked,
    LinkFailed: Follower._link_failed,
    LifeSeen: Follower._life_seen,
    Unlinked: Follower._unlinked,
}
"""A follower ignores the other events."""
