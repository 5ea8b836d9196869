"""The values of the replication model: the state of a group, its logs, and its representative under symmetry.

A log is `bytes` with one byte for each record, so that an offset is an index. A record below 16 is the epoch record of
that epoch. Any other record is a message: 16 × the number of the write + its queue offset.

Stores are numbered: 0, 1 and 2 are the present stores of the three nodes. `LOST` is the storeId of the one store that
was lost with its disk; it stays in sets until a leader removes it, and never acts. A set of stores is a bit mask.
"""

from functools import lru_cache
from itertools import permutations, zip_longest
from typing import Final, NamedTuple

NODES: Final = 3
ALL_NODES: Final = 0b111
LOST: Final = 3
STORES: Final = NODES + 1
NAMES: Final = ("A", "B", "C", "lost")
FIRST_MESSAGE: Final = 16

FOLLOWER, CANDIDATE, LEADER, DAMAGED = range(4)
ROLES: Final = ("follower", "candidate", "leader", "damaged")


class Node(NamedTuple):
    """One node. The fields up to `term` do not depend on how nodes are numbered."""

    promised: int = 0
    log: bytes = b""
    synced: int = 0
    """How many records of the log are on disk; they survive a power cut."""
    committed: int = 0
    old_log: bytes = b""
    """The log before a truncation, until the zeros behind the cut are synced; else empty."""
    role: int = FOLLOWER
    term: int = 0
    """The epoch in which the node leads or campaigns, or in which it is connected to the leader; 0: none."""
    known: int = 0
    """Leader: the set that the record has, as far as the leader has read."""
    proposed: int = 0
    """Leader: the set of its open swap; 0: none."""
    acked: tuple[int, ...] = ()
    """Leader: the synced end that each store has acknowledged in this term."""


NUMBERING_FREE: Final = Node._fields.index("known")


class Record(NamedTuple):
    """The record of the group in the store of decisions."""

    epoch: int
    leader: int
    members: int


class Stream(NamedTuple):
    """The DATA frames of a term: those of a leader, or those still in flight when the leader has ended its term."""

    term: int
    log: bytes
    committed: int


class State(NamedTuple):
    """The group, the requests and frames in flight, and what was committed so far."""

    nodes: tuple[Node, ...]
    record: Record
    swaps: tuple[Record, ...]
    """Requests to the store of decisions that can still take effect: each is the record that its sender wants.

    All of them were made for the present record: any change of it makes the others fail."""
    in_flight: tuple[Stream, ...]
    decided: bytes
    """The longest log prefix that any leader has ever committed. Every message in it counts as acknowledged."""
    written: int = 0
    crashes: int = 0
    losses: int = 0
    operator_elections: int = 0


# logs


def epoch_record(epoch: int) -> bytes:
    return bytes((epoch,))


def message(number: int, queue_offset: int) -> bytes:
    return bytes((FIRST_MESSAGE * number + queue_offset,))


@lru_cache(maxsize=1 << 16)
def queue_offsets(log: bytes) -> list[int]:
    """Return the queue offset of each message, in log order."""
    return [record % FIRST_MESSAGE for record in log if record >= FIRST_MESSAGE]


def last_epoch(log: bytes) -> int:
    return max((record for record in log if record < FIRST_MESSAGE), default=0)


@lru_cache(maxsize=1 << 16)
def history(log: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return the epoch history of a log: (epoch, start, end) for each epoch record; epoch 0 is before the first one."""
    starts = [(0, 0), *((record, offset) for offset, record in enumerate(log) if record < FIRST_MESSAGE)]
    ends = [start for _, start in starts[1:]] + [len(log)]
    return tuple((epoch, start, end) for (epoch, start), end in zip(starts, ends, strict=True))


@lru_cache(maxsize=1 << 16)
def common_prefix(ours: bytes, theirs: bytes) -> int:
    """Return the end of the longest common prefix of two logs, as their epoch histories show it."""
    common = 0
    for our, their in zip(history(ours), history(theirs), strict=False):
        if our[:2] != their[:2]:
            break
        common = min(our[2], their[2])
        if our[2] != their[2]:
            break
    return common


# sets of stores

MEMBERS: Final = tuple(tuple(store for store in range(STORES) if mask >> store & 1) for mask in range(1 << STORES))
"""The stores of each set."""
SIZE: Final = tuple(len(members) for members in MEMBERS)


def leader_of(state: State, term: int) -> int | None:
    """Return the node that leads a term at present."""
    for number, node in enumerate(state.nodes):
        if node.role == LEADER and node.term == term:
            return number
    return None


# symmetry

ORDERS: Final = tuple(permutations(range(NODES)))
RENUMBERED: Final = {order: (*(order.index(old) for old in range(NODES)), LOST) for order in ORDERS}
"""The new number of each store, if nodes are put into an order."""
MASKS: Final = {
    order: tuple(sum(1 << RENUMBERED[order][store] for store in members) for members in MEMBERS) for order in ORDERS
}
UNCHANGED: Final = ORDERS[0]


def representative(state: State) -> State:
    """Return the one state that stands for all renumberings of the nodes.

    Nodes are sorted by the fields that do not depend on numbering. If this leaves several orders, the least state of
    these is returned.
    """
    first, second, third = state.nodes
    keys = (first[:NUMBERING_FREE], second[:NUMBERING_FREE], third[:NUMBERING_FREE])
    low, middle, high = order = tuple(sorted(UNCHANGED, key=keys.__getitem__))
    if keys[low] != keys[middle] != keys[high]:
        return reordered(state, order)
    orders = [order for order in ORDERS if keys[order[0]] <= keys[order[1]] <= keys[order[2]]]
    return min([reordered(state, order) for order in orders])


def reordered(state: State, order: tuple[int, ...]) -> State:
    """Return the state with the nodes in another order."""
    if order == UNCHANGED:
        return state
    masks, numbers = MASKS[order], RENUMBERED[order]
    nodes = state.nodes
    return State(
        tuple([_renumbered(nodes[old], order, masks) for old in order]),
        _record(state.record, numbers, masks),
        tuple(sorted([_record(swap, numbers, masks) for swap in state.swaps])),
        *state[3:],
    )


def _record(record: Record, numbers: tuple[int, ...], masks: tuple[int, ...]) -> Record:
    return Record(record.epoch, numbers[record.leader], masks[record.members])


def _renumbered(node: Node, order: tuple[int, ...], masks: tuple[int, ...]) -> Node:
    acked = node.acked
    if not acked:
        return node
    in_order = (acked[order[0]], acked[order[1]], acked[order[2]], acked[LOST])
    return node._replace(known=masks[node.known], proposed=masks[node.proposed], acked=in_order)


# text


def set_text(members: int) -> str:
    return "{" + " ".join(NAMES[store] for store in MEMBERS[members]) + "}"


def log_text(node: Node) -> str:
    """Return the records of a log: `!` is behind the committed ones, `|` behind the synced ones."""
    words: list[str] = []
    for offset, record in enumerate(node.log):
        words += _marks(node, offset)
        words.append(record_text(record))
    words += _marks(node, len(node.log))
    return " ".join(words)


def record_text(record: int) -> str:
    if record < FIRST_MESSAGE:
        return f"E{record}"
    return f"m{record // FIRST_MESSAGE}@{record % FIRST_MESSAGE}"


def _marks(node: Node, offset: int) -> list[str]:
    return ["!"] * (offset == node.committed) + ["|"] * (offset == node.synced)


def state_text(state: State) -> list[str]:
    """Return one line for the record and one for each node."""
    record = state.record
    swaps = ", ".join(f"epoch {swap.epoch} {NAMES[swap.leader]} {set_text(swap.members)}" for swap in state.swaps)
    decided = " ".join(record_text(entry) for entry in state.decided)
    lines = [
        f"record: epoch {record.epoch}, leader {NAMES[record.leader]}, {set_text(record.members)}"
        + (f"; swaps in flight: {swaps}" if swaps else "")
        + f"; committed so far: {decided or 'nothing'}"
    ]
    for name, node in zip_longest(NAMES[:NODES], state.nodes):
        role = f"{ROLES[node.role]} of epoch {node.term}" if node.term else ROLES[node.role]
        lines.append(f"{name}: promised {node.promised}, {role}, log {log_text(node)}" + _leader_text(node))
    return lines


def _leader_text(node: Node) -> str:
    if node.role != LEADER:
        return " (truncation not synced)" if node.old_log else ""
    proposed = f", proposes {set_text(node.proposed)}" if node.proposed else ""
    return f", set {set_text(node.known)}{proposed}, acknowledged {node.acked}"
