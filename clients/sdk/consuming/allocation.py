"""Allocation rules: which member of a consumer group reads which queue.

Each member sorts the queues of the topic (topic, broker name, queue id) and the client ids of the group, both as Java
compares text, by UTF-16 units. Then a rule selects its own queues. There is no coordination: members that see the same
lists and use the same rule get the same result, in whatever language they are written. So these rules do exactly what
those of RocketMQ's clients do:

    averagely                 a contiguous block for each member; the default, as in RocketMQ
    in_turn                   queue by queue, round-robin
    consistent_hash()         MD5 on a ring: a member that joins or leaves moves few queues
    by_machine_room(rooms)    averagely, among the queues of brokers named room@broker
    nearby(inner, ...)        `inner` within each room; all members share rooms without members
    fixed(queues)             a fixed list for this member

    PushConsumer("billing", ..., allocation=consistent_hash())

Any callable of the same signature is a rule. Source: docs/reference/wire.md, "Queue allocation".
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final, TypeVar

from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.protocol.bodies.message_queue import MessageQueue

Allocation = Callable[[Sequence[MessageQueue], Sequence[str], str], Iterable[MessageQueue]]
"""(queues of one topic, client ids of the group, own client id) -> own queues. Both lists are sorted; the client ids
include the own one. Retry topics are allocated like all topics. If the rule raises, the members keep their queues."""

T = TypeVar("T")

VIRTUAL_NODES: Final = 10


def share(
    rule: Allocation, queues: Iterable[MessageQueue], client_ids: Iterable[str], own_id: str
) -> tuple[MessageQueue, ...]:
    """Return the queues of `own_id`, each once; none if it is not a member."""
    members = sorted(client_ids, key=utf16_order)
    if own_id not in members:
        return ()
    ordered = sorted(queues, key=_queue_order)
    known = set(ordered)
    return tuple(queue for queue in dict.fromkeys(rule(ordered, members, own_id)) if queue in known)


def averagely(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
    """Allocate a contiguous block of queues to each member; the first members get the remainder, one each
    (AllocateMessageQueueAveragely)."""
    size, rest = divmod(len(queues), len(members))
    index = members.index(own_id)
    start = index * size + min(index, rest)
    return queues[start : start + size + (index < rest)]


def in_turn(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
    """Allocate every n-th queue to each of n members (AllocateMessageQueueAveragelyByCircle)."""
    return queues[members.index(own_id) :: len(members)]


def fixed(queues: Iterable[MessageQueue]) -> Allocation:
    """Return a rule that allocates these queues to this member, as far as they exist, whatever other members read. It
    must name the queues of the group's retry topic if this member is to read them (AllocateMessageQueueByConfig).
    """
    given = tuple(queues)
    return lambda *_: given


def by_machine_room(rooms: Iterable[str]) -> Allocation:
    """Return a rule for queues of brokers that are named `room@broker` with one of these rooms: a block of equal size
    for each member, the remainder one by one for the first members (AllocateMessageQueueByMachineRoom). No member
    reads queues of other brokers.
    """
    wanted = frozenset(rooms)

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
        ours = [queue for queue in queues if _room_of(queue.broker_name) in wanted]
        size, rest = divmod(len(ours), len(members))
        index = members.index(own_id)
        last = size * len(members) + index
        return ours[size * index : size * (index + 1)] + (ours[last : last + 1] if index < rest else [])

    return allocate


def nearby(
    inner: Allocation, room_of_queue: Callable[[MessageQueue], str], room_of_member: Callable[[str], str]
) -> Allocation:
    """Return a rule that applies `inner` to the queues and members of each room; all members share the queues of rooms
    without members (AllocateMachineRoomNearby). It raises InvalidArgument if a queue or a member has no room (""); the
    members then keep their queues.
    """

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
        queues_in, members_in = _by_room(queues, room_of_queue), _by_room(members, room_of_member)
        own_room = room_of_member(own_id)
        mine: list[MessageQueue] = []
        if own_room in queues_in:
            mine += inner(queues_in[own_room], members_in[own_room], own_id)
        for room in sorted(queues_in.keys() - members_in.keys(), key=utf16_order):
            mine += inner(queues_in[room], members, own_id)
        return mine

    return allocate


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] | None = None) -> Allocation:
    """Return a rule by consistent hashing: each member has `virtual_nodes` positions on a ring, and a queue belongs to
    the next position (AllocateMessageQueueConsistentHash).

    All members need the same number of positions, at least 1, and the same hash; None: the first 32 bits of MD5. Raises
    InvalidArgument for fewer.
    """
    if virtual_nodes < 1:
        raise InvalidArgument(f"virtual_nodes={virtual_nodes}: a member needs at least 1 to get queues")
    position_of = hash_of or _md5_position

    @lru_cache(maxsize=1)  # the members are the same for all topics of a group
    def ring_of(members: tuple[str, ...]) -> tuple[list[int], dict[int, str]]:
        owners = {position_of(f"{member}-{n}"): member for member in members for n in range(virtual_nodes)}
        return sorted(owners), owners

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
        ring, owners = ring_of(tuple(members))

        def owner(queue: MessageQueue) -> str:
            name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return owners[ring[bisect_left(ring, position_of(name)) % len(ring)]]

        return [queue for queue in queues if owner(queue) == own_id]

    return allocate


def utf16_order(text: str) -> bytes:
    """Return a sort key that orders text as Java's String.compareTo."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return utf16_order(queue.topic), utf16_order(queue.broker_name), queue.queue_id


def _room_of(broker_name: str) -> str | None:
    """Return the room in a broker name `room@broker`; None without one. Java's split drops `@` at the end."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _by_room(items: Collection[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        room = room_of(item)
        if not room:
            raise InvalidArgument(f"{item} has no room")
        rooms[room].append(item)
    return rooms


def _md5_position(text: str) -> int:
    digest = md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])
