"""What must hold in every state of the replication model, and in every step.

Each invariant is a function of the model and a state, which returns whether it holds; `marks_stay` compares the states
before and after a step.
"""

from collections.abc import Callable
from typing import Final

from tests.ha.state import (
    ALL_NODES,
    DAMAGED,
    FIRST_MESSAGE,
    FOLLOWER,
    LEADER,
    MEMBERS,
    SIZE,
    State,
    leader_of,
    queue_offsets,
)
from tests.ha.transitions import FORGETTING, Model, Step

Invariant = Callable[[Model, State], bool]


def acknowledged_is_in_every_successor(model: Model, state: State) -> bool:
    """Every acknowledged message is in the log, synced, of every store that the record lets lead now or next."""
    for store in MEMBERS[state.record.members & ALL_NODES]:
        node = state.nodes[store]
        if not node.log[: node.synced].startswith(state.decided):
            return False
    return True


def one_value_per_offset(model: Model, state: State) -> bool:
    """All nodes have committed the same records, which are also those of the past."""
    return all(node.log[: node.committed] == state.decided[: node.committed] for node in state.nodes)


def visible_is_committed(model: Model, state: State) -> bool:
    """No node shows a record, or acknowledges a send, that is not committed."""
    for node in state.nodes:
        visible = model.visible(node)
        if node.log[:visible] != state.decided[:visible]:
            return False
    return True


def marks_stay(before: State, step: Step, after: State) -> bool:
    """The committed mark of a node goes back only when its process restarts from an older mark, or loses its disk."""
    for old, new in zip(before.nodes, after.nodes, strict=True):
        if new.committed < old.committed:
            return step.text in FORGETTING
    return True


def set_keeps_min_members(model: Model, state: State) -> bool:
    """The recorded set never has fewer than `min` members."""
    return SIZE[state.record.members] >= model.scope.minimum


def queue_offsets_are_unique(model: Model, state: State) -> bool:
    """No two acknowledged messages have the same queue offset."""
    offsets = queue_offsets(state.decided)
    return len(set(offsets)) == len(offsets)


def old_leaders_commit_nothing_new(model: Model, state: State) -> bool:
    """A leader has committed nothing from the first epoch record on that a later leader has committed.

    So whatever an old leader still acknowledges, its successors have committed as well.
    """
    for node in state.nodes:
        if node.role == LEADER and node.committed > _end_before_successors(state.decided, node.term):
            return False
    return True


def leader_shows_all_that_was_shown(model: Model, state: State) -> bool:
    """The recorded leader, once it has committed its epoch record, has committed all that any leader has."""
    for node in state.nodes:
        if node.role == LEADER and node.term == state.record.epoch and node.term in node.log[: node.committed]:
            return node.committed >= len(state.decided)
    return True


def truncation_respects_the_mark(model: Model, state: State) -> bool:
    """No node is truncated below its own committed mark."""
    return all(node.committed <= len(node.log) for node in state.nodes)


def copies_agree(model: Model, state: State) -> bool:
    """The log of a follower that is connected to a living leader is a prefix of the leader's log."""
    for node in state.nodes:
        if node.role == FOLLOWER and node.term:
            leader = leader_of(state, node.term)
            if leader is not None and not state.nodes[leader].log.startswith(node.log):
                return False
    return True


def no_healthy_node_is_damaged(model: Model, state: State) -> bool:
    """No node stops as damaged, unless an operator has given up messages."""
    for node in state.nodes:
        if node.role == DAMAGED:
            return state.operator_elections > 0
    return True


def _end_before_successors(decided: bytes, term: int) -> int:
    """Return the offset of the first committed epoch record above a term, or the end of what is committed."""
    for offset, record in enumerate(decided):
        if term < record < FIRST_MESSAGE:
            return offset
    return len(decided)


INVARIANTS: Final[tuple[Invariant, ...]] = (
    acknowledged_is_in_every_successor,
    one_value_per_offset,
    visible_is_committed,
    set_keeps_min_members,
    queue_offsets_are_unique,
    old_leaders_commit_nothing_new,
    leader_shows_all_that_was_shown,
    truncation_respects_the_mark,
    copies_agree,
    no_healthy_node_is_damaged,
)
AFTER_DATA_LOSS: Final[tuple[Invariant, ...]] = (queue_offsets_are_unique, truncation_respects_the_mark, copies_agree)
"""What still holds when an operator has given up messages (`mqbroker ha elect NODE --lose-data`)."""


def broken(model: Model, state: State) -> str:
    """Return the name of the first invariant that does not hold in a state, or ""."""
    invariants = AFTER_DATA_LOSS if state.operator_elections else INVARIANTS
    for invariant in invariants:
        if not invariant(model, state):
            return invariant.__name__
    return ""
