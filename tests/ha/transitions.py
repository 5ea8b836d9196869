"""The transitions of the replication model: everything that may happen next in a state.

There is no time: every step may happen at any moment, so that no timeout, lease or clock can be part of an argument.
Each step is one of: a request that reaches the store of decisions, a frame that arrives, a decision or a sync of one
node, a fault. The rules of tests/ha/model.py are the conditions of the steps; a switch of `Rules` takes one out.

Frames and answers in flight need few values of their own:

  - DATA frames of a leader are its log; when it ends its term, `State.in_flight` keeps them for connected followers.
  - An acknowledgement arrives when it is sent, and the leader may commit at any later moment. A late acknowledgement is
    the same sequence of steps: nothing but the commit depends on it.
  - An answer of the store of decisions is lost if the step that receives it does not happen. Until then the node cannot
    conclude whether its swap took effect, and may end, or be overtaken, in that condition.
  - A promise drops the connections of lower epochs, whose frames would be refused.
  - A candidate's choice of its set matters only when its swap takes effect, so it is made then.
  - When no power cut can follow, all bytes are synced at once: a late sync is the same as a late commit.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.ha.rules import Rules, Scope
from tests.ha.state import (
    ALL_NODES,
    CANDIDATE,
    DAMAGED,
    FOLLOWER,
    LEADER,
    LOST,
    MEMBERS,
    NAMES,
    NODES,
    SIZE,
    STORES,
    Node,
    Record,
    State,
    Stream,
    common_prefix,
    epoch_record,
    last_epoch,
    leader_of,
    message,
    queue_offsets,
    set_text,
)


class Step(NamedTuple):
    """What happened: `text` with the node, a number and a set of stores."""

    text: str
    node: int
    number: int = 0
    members: int = 0

    def __str__(self) -> str:
        return self.text.format(node=NAMES[self.node], number=self.number, set=set_text(self.members))


Steps = Iterator[tuple[Step, State]]

NO_ACKS: Final = (0,) * STORES

RECORDED: Final = "the record becomes epoch {number}, leader {node}, {set}"
RESTARTS: Final = "{node} restarts and follows"
CUT: Final = "power cut of {node}: {number} records survive"
CUT_WITHOUT_MARK: Final = "power cut of {node}: {number} records survive; its committed mark was not written"
KEEPS: Final = "the disk of {node} keeps only {number} records"
WIPED: Final = "the disk of {node} is wiped"
ELECTED: Final = "the operator elects {node} although messages are lost"
FORGETTING: Final = frozenset({CUT, CUT_WITHOUT_MARK, KEEPS, WIPED})
"""The steps in which a node's committed mark may go back."""


class Model:
    """The steps of a group under some rules, within a scope."""

    def __init__(self, scope: Scope, rules: Rules) -> None:
        self.scope = scope
        self.rules = rules

    def initial(self) -> State:
        """Return a group of three empty stores, in which A has begun epoch 1."""
        log = epoch_record(1) if self.rules.terms_begin_with_a_record else b""
        leader = Node(promised=1, log=log, role=LEADER, term=1, known=ALL_NODES, acked=NO_ACKS)
        nodes = (leader._replace(synced=0 if self.scope.crashes else len(log)), Node(), Node())
        return State(nodes, Record(1, 0, ALL_NODES), (), (), b"")

    def visible(self, node: Node) -> int:
        """Return up to which record a node shows messages and acknowledges sends (rule 4)."""
        if self.rules.visible_is_committed or node.role != LEADER:
            return node.committed
        return node.synced

    def steps(self, state: State) -> Steps:
        """Yield everything that may happen next."""
        yield from self._decisions(state)
        for number, node in enumerate(state.nodes):
            if node.role == DAMAGED:
                continue
            if len(node.log) > node.synced or node.old_log:
                yield from self._sync(state, number, node)
            if not node.old_log or not self.rules.truncation_is_synced_first:
                yield from self._node_steps(state, number, node)
            yield from self._faults(state, number, node)

    def _node_steps(self, state: State, number: int, node: Node) -> Steps:
        if node.role == LEADER:
            yield from self._write(state, number, node)
            yield from self._commit(state, number, node)
            yield from self._propose(state, number, node) if not node.proposed else self._conclude(state, number, node)
        elif node.role == CANDIDATE:
            yield from self._lead(state, number, node)
        else:
            yield from self._receive(state, number, node)
            yield from self._connect(state, number, node)
            yield from self._resume(state, number, node)
        if node.role != FOLLOWER:
            yield from self._restart(state, number, node)
        yield from self._promise(state, number, node)
        yield from self._campaign(state, number, node)

    # the store of decisions (rule 2)

    def _decisions(self, state: State) -> Steps:
        """A swap takes effect. All others were made for the record before it, and so fail."""
        for swap in state.swaps:
            others = () if self.rules.swaps_compare else tuple(other for other in state.swaps if other != swap)
            for record in self._records(state, swap):
                step = Step(RECORDED, record.leader, record.epoch, record.members)
                yield step, state._replace(record=record, swaps=others)

    def _records(self, state: State, swap: Record) -> Iterator[Record]:
        """Yield the records that a swap may write. A candidate has chosen any set; the choice shows only here."""
        if swap.members:
            yield swap
            return
        within = state.record.members | 1 << swap.leader
        for members in self._sets(within, containing=swap.leader):
            yield swap._replace(members=members)

    def _requested(self, state: State, swap: Record, read: Record) -> tuple[Record, ...]:
        """Return the swaps in flight after a request by a node that has read `read`."""
        if swap in state.swaps or (self.rules.swaps_compare and read != state.record):
            return state.swaps  # a request for an older record fails when it arrives
        return tuple(sorted((*state.swaps, swap)))

    # promises and terms (rules 1, 2, 6)

    def _promise(self, state: State, number: int, node: Node) -> Steps:
        """The node learns of a higher epoch: from the record, or from another node's refusal or handshake."""
        epochs = {state.record.epoch, *(other.promised for other in state.nodes)}
        for epoch in epochs:
            if epoch > node.promised:
                after = self._outside_terms(node)._replace(promised=epoch)
                yield Step("{node} promises epoch {number}", number, epoch), self._with(state, number, after)

    def _campaign(self, state: State, number: int, node: Node) -> Steps:
        """The node reads the record, promises an epoch above it and above its own promise, and requests the swap."""
        record = state.record
        epoch = max(record.epoch, node.promised) + 1
        if epoch > self.scope.epochs or not (record.members >> number & 1 or not self.rules.members_campaign):
            return
        after = self._outside_terms(node)._replace(promised=epoch, role=CANDIDATE, term=epoch)
        campaigning = self._with(state, number, after)
        swaps = self._requested(state, Record(epoch, number, 0), record)
        yield (
            Step("{node} promises epoch {number} and requests it", number, epoch),
            campaigning._replace(swaps=swaps),
        )

    def _lead(self, state: State, number: int, node: Node) -> Steps:
        """The candidate reads that its swap took effect, and writes its epoch record."""
        if state.record[:2] != (node.term, number):
            return
        log = node.log + epoch_record(node.term) if self.rules.terms_begin_with_a_record else node.log
        acked = NO_ACKS if self.rules.old_acks_are_refused else node.acked or NO_ACKS
        after = node._replace(log=log, role=LEADER, known=state.record.members, acked=acked)
        yield Step("{node} leads epoch {number}", number, node.term), self._written(state, number, after)

    def _restart(self, state: State, number: int, node: Node) -> Steps:
        """A leader or candidate ends: the process restarts and keeps what it has written."""
        yield Step(RESTARTS, number), self._with(state, number, self._after_restart(node, node.log))

    def _resume(self, state: State, number: int, node: Node) -> Steps:
        """Taken out by a mutant: a restarted leader goes on in the term that the record has."""
        record = state.record
        if self.rules.terms_end_with_restart or record[:2] != (node.promised, number) or node.term:
            return
        after = node._replace(role=LEADER, term=record.epoch, known=record.members, acked=NO_ACKS)
        yield Step("{node} resumes epoch {number}", number, record.epoch), self._with(state, number, after)

    # a leader (rules 3, 5, 9)

    def _write(self, state: State, number: int, node: Node) -> Steps:
        if state.written == self.scope.writes:
            return
        written = state.written + 1
        after = node._replace(log=node.log + message(written, self._next_queue_offset(node)))
        yield (
            Step("{node} appends message {number}", number, written),
            self._written(state, number, after)._replace(written=written),
        )

    def _next_queue_offset(self, node: Node) -> int:
        if self.rules.queue_offsets_use_the_tail:
            return len(queue_offsets(node.log))
        start = node.log.rfind(epoch_record(node.term)) + 1
        own = queue_offsets(node.log[start:])
        return own[-1] + 1 if own else len(queue_offsets(node.log[: node.committed]))

    def _commit(self, state: State, number: int, node: Node) -> Steps:
        """The leader advances its committed mark, shows the messages below it, and acknowledges their sends."""
        end = node.synced if self.rules.own_sync_counts else len(node.log)
        for store in MEMBERS[self._counting(state, node) & ~(1 << number)]:
            end = min(end, node.acked[store])
        if end <= node.committed:
            return
        decided, log = state.decided, node.log[:end]
        if log.startswith(decided):
            decided = log  # otherwise the invariants find two values at one offset
        after = self._with(state, number, node._replace(committed=end))._replace(decided=decided)
        yield Step("{node} commits {number} records", number, end), after

    def _counting(self, state: State, node: Node) -> int:
        """Return the set whose acknowledgements a commit needs: known and proposed members."""
        members = node.known | node.proposed
        if node.proposed and not self.rules.removals_wait:
            members = node.proposed
        if not self.rules.additions_count_first:
            members = node.known
        if not self.rules.silent_members_count:
            members &= sum(1 << store for store, other in enumerate(state.nodes) if other.term == node.term)
        return members

    def _propose(self, state: State, number: int, node: Node) -> Steps:
        """The leader requests another set: without members, with new ones that have caught up, or both."""
        if not self.scope.set_changes:
            return
        read = Record(node.term, number, node.known)
        for members in self._sets(within=node.known | ALL_NODES, containing=number):
            if members == node.known or not self._have_caught_up(node, members & ~node.known):
                continue
            swaps = self._requested(state, Record(node.term, number, members), read)
            after = self._with(state, number, node._replace(proposed=members))
            yield Step("{node} requests the set {set}", number, 0, members), after._replace(swaps=swaps)

    def _have_caught_up(self, node: Node, added: int) -> bool:
        """Return whether stores have acknowledged enough to be added."""
        enough = 0
        if self.rules.additions_have_caught_up:
            enough = node.committed
        if self.rules.additions_have_the_epoch_record:
            enough = max(enough, node.log.rfind(epoch_record(node.term)) + 1)
        return all(node.acked[store] >= enough for store in MEMBERS[added])

    def _conclude(self, state: State, number: int, node: Node) -> Steps:
        """The leader receives the answer to its swap, or reads the record again: the result is the same."""
        record = state.record
        read_own = record == (node.term, number, node.proposed)
        if read_own:
            after = node._replace(known=node.proposed, proposed=0)
            yield (
                Step("{node} reads that its set {set} is recorded", number, 0, node.proposed),
                self._with(state, number, after),
            )
        given_up = self._with(state, number, node._replace(proposed=0))
        if not self.rules.lost_answers_are_read_again:
            yield Step("{node} gets no answer and drops the set {set}", number, 0, node.proposed), given_up
        if not self.rules.unchanged_concludes_nothing and record == (node.term, number, node.known):
            yield Step("{node} reads the old record and drops the set {set}", number, 0, node.proposed), given_up

    def _sets(self, within: int, containing: int) -> Iterator[int]:
        """Yield the sets that a swap may record (rule 5)."""
        least = self.scope.minimum if self.rules.min_is_kept else 1
        for members in range(1, within + 1):
            if members & ~within == 0 and members >> containing & 1 and SIZE[members] >= least:
                yield members

    # a follower (rules 1, 7, 8)

    def _connect(self, state: State, number: int, node: Node) -> Steps:
        """Handshake with the leader of the promised epoch; the log is truncated to the common prefix of both."""
        if node.term or not node.promised:
            return
        found = leader_of(state, node.promised)
        if found is None:
            return
        leader = state.nodes[found]
        end = common_prefix(node.log, leader.log)
        if end < node.committed and self.rules.truncation_respects_the_mark:
            damaged = self._with(state, number, node._replace(role=DAMAGED))
            yield Step("{node} stops as damaged: it has committed more than {number} records", number, end), damaged
            return
        connected = node._replace(term=leader.term)
        if end == len(node.log):
            yield Step("{node} connects", number), self._acknowledged(self._with(state, number, connected), number)
            return
        after = connected._replace(log=node.log[:end], synced=min(node.synced, end), old_log=node.log)
        yield (
            Step("{node} connects and is truncated to {number} records", number, end),
            self._written(state, number, after),
        )

    def _receive(self, state: State, number: int, node: Node) -> Steps:
        """A DATA frame arrives: the next record, or a higher committed mark."""
        for stream in self._streams(state, node):
            end = len(node.log)
            if end < len(stream.log):
                after = node._replace(log=node.log + stream.log[end : end + 1])
                received = self._written(state, number, after)
                if not self.rules.acks_are_synced:
                    received = self._acknowledged(received, number)
                yield Step("{node} receives a record of epoch {number}", number, stream.term), received
            committed = min(stream.committed, node.synced)
            if committed > node.committed:
                after = node._replace(committed=committed)
                yield (
                    Step("{node} learns that {number} records are committed", number, committed),
                    self._with(state, number, after),
                )

    def _streams(self, state: State, node: Node) -> Iterator[Stream]:
        """Yield the streams whose frames reach the node and are not refused."""
        for other in state.nodes:
            if other.role == LEADER and self._is_accepted(other.term, node):
                yield Stream(other.term, other.log, other.committed)
        for stream in state.in_flight:
            if self._is_accepted(stream.term, node):
                yield stream

    def _is_accepted(self, term: int, node: Node) -> bool:
        return term == node.term or (not self.rules.old_data_is_refused and node.term > 0 and term < node.promised)

    def _sync(self, state: State, number: int, node: Node) -> Steps:
        yield Step("{node} syncs {number} records", number, len(node.log)), self._flushed(state, number)

    def _written(self, state: State, number: int, after: Node) -> State:
        """Return the state in which a node has changed its log."""
        changed = self._with(state, number, after)
        return changed if state.crashes < self.scope.crashes else self._flushed(changed, number)

    def _flushed(self, state: State, number: int) -> State:
        """Return the state in which all that a node has written is on disk; a follower acknowledges it."""
        node = state.nodes[number]
        flushed = self._with(state, number, node._replace(synced=len(node.log), old_log=b""))
        return self._acknowledged(flushed, number)

    def _acknowledged(self, state: State, number: int) -> State:
        """Return the state after the leader of the follower's term has received its acknowledgement."""
        node = state.nodes[number]
        found = leader_of(state, node.term) if node.term and node.role == FOLLOWER else None
        if found is None:
            return state
        leader = state.nodes[found]
        end = node.synced if self.rules.acks_are_synced else len(node.log)
        if end <= leader.acked[number]:
            return state
        acked = (*leader.acked[:number], end, *leader.acked[number + 1 :])
        return self._with(state, found, leader._replace(acked=acked))

    # faults

    def _faults(self, state: State, number: int, node: Node) -> Steps:
        if state.crashes < self.scope.crashes:
            yield from self._power_cut(state, number, node)
        if state.losses < self.scope.losses:
            yield from self._loss(state, number, node)
        if state.operator_elections < self.scope.operator_elections and node.role == FOLLOWER:
            yield from self._operator_election(state, number, node)

    def _power_cut(self, state: State, number: int, node: Node) -> Steps:
        """Any part of the unsynced end is lost. The zeros of a truncation, too: parts of the old log come back."""
        crashed = state._replace(crashes=state.crashes + 1)
        for log in surviving_logs(node):
            end = len(log)
            restarted = self._after_restart(node, log)
            after = restarted._replace(synced=end, committed=min(node.committed, end), old_log=b"")
            if log != node.log or node.old_log:
                yield Step(CUT, number, end), self._with(crashed, number, after)
            if node.role == LEADER and after.committed:
                yield Step(CUT_WITHOUT_MARK, number, end), self._with(crashed, number, after._replace(committed=0))

    def _loss(self, state: State, number: int, node: Node) -> Steps:
        """The disk loses everything, or the last committed record and what follows (rule 8)."""
        damaged = state._replace(losses=state.losses + 1)
        if node.log or node.promised:
            wiped = Node(acked=self._outside_terms(node).acked)
            yield Step(WIPED, number), self._with_new_store_id(self._with(damaged, number, wiped), number)
        end = node.committed - 1
        if end > 0:
            restarted = self._after_restart(node, node.log[:end])
            kept = restarted._replace(synced=end, committed=end, old_log=b"")
            yield Step(KEEPS, number, end), self._with_new_store_id(self._with(damaged, number, kept), number)

    def _with_new_store_id(self, state: State, number: int) -> State:
        """Return the state in which all sets have LOST in place of the node's former store."""
        if not self.rules.losses_change_the_store_id:
            return state
        return State(
            tuple(_without_store(node, number) for node in state.nodes),
            _record_without(state.record, number),
            tuple(sorted(_record_without(swap, number) for swap in state.swaps)),
            *state[3:],
        )

    def _operator_election(self, state: State, number: int, node: Node) -> Steps:
        """The operator makes one node the whole set; what it does not have is no longer committed."""
        if state.record.members >> number & 1:
            return
        end = common_prefix(node.log, state.decided)
        record = Record(state.record.epoch, LOST, 1 << number)
        yield (
            Step(ELECTED, number),
            state._replace(
                record=record, swaps=(), decided=state.decided[:end], operator_elections=state.operator_elections + 1
            ),
        )

    # shared

    def _outside_terms(self, node: Node) -> Node:
        """Return the node without role, connection and what a leader keeps in memory."""
        acked = () if self.rules.old_acks_are_refused else node.acked
        return node._replace(role=FOLLOWER, term=0, known=0, proposed=0, acked=acked)

    def _after_restart(self, node: Node, log: bytes) -> Node:
        """Return the node as it starts again with a log."""
        promised = node.promised if self.rules.promises_are_persisted else last_epoch(log)
        return self._outside_terms(node)._replace(promised=promised, log=log)

    def _with(self, state: State, number: int, after: Node) -> State:
        """Return the state with a changed node; a term that ends leaves its frames in flight."""
        before = state.nodes[number]
        nodes = (*state.nodes[:number], after, *state.nodes[number + 1 :])
        if before.term == after.term and before.role == after.role:
            return state._replace(nodes=nodes)
        in_flight = state.in_flight
        if before.role == LEADER:
            in_flight = tuple(sorted((*in_flight, Stream(before.term, before.log, before.committed))))
        if in_flight and self.rules.old_data_is_refused:
            connected = {node.term for node in nodes if node.role == FOLLOWER}
            in_flight = tuple(stream for stream in in_flight if stream.term in connected)
        return state._replace(nodes=nodes, in_flight=in_flight)


def surviving_logs(node: Node) -> Iterator[bytes]:
    """Yield the logs that a power cut may leave: any prefix of the unsynced end, and what a truncation had cut off."""
    for end in range(node.synced, len(node.log) + 1):
        for old_end in range(end, max(len(node.old_log), end) + 1):
            yield node.log[:end] + node.old_log[end:old_end]


def _record_without(record: Record, number: int) -> Record:
    leader = LOST if record.leader == number else record.leader
    return Record(record.epoch, leader, _set_without(record.members, number))


def _set_without(members: int, number: int) -> int:
    return members ^ (1 << number | 1 << LOST) if members >> number & 1 else members


def _without_store(node: Node, number: int) -> Node:
    if not node.acked:
        return node
    acked = [*node.acked[:NODES], node.acked[number]]
    acked[number] = 0
    return node._replace(
        known=_set_without(node.known, number), proposed=_set_without(node.proposed, number), acked=tuple(acked)
    )
