"""Who reads which queue: rules that all members of a consumer group apply by themselves.

Each member sorts the topic's queues (topic, broker name, queue id) and the group's client ids, text compared as Java
compares it, by UTF-16 units; then a rule says which of the queues are its own. Nobody coordinates: members that see the
same lists, and have the same rule, come to the same result, whatever language they are written in, so not one step may
differ. These are the rules of RocketMQ's clients:

    averagely                 a row of neighbours each, by the member's place; the default here as there
    in_turn                   queue by queue in a circle
    consistent_hash()         by MD5 on a ring: who joins or leaves moves few queues
    by_machine_room(rooms)    averagely, of the queues on brokers named room@broker
    nearby(inner, ...)        `inner` within each room; rooms without members are shared by all
    fixed(queues)             what this member was told

    PushConsumer("billing", ..., allocation=consistent_hash())

Any callable of the same shape is a rule too. Source: docs/formats.md, "Queue allocation".
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final, TypeVar

from skylarkmq.protocol.bodies.message_queue import MessageQueue

Allocation = Callable[[Sequence[MessageQueue], Sequence[str], str], Iterable[MessageQueue]]
"""(queues of one topic, client ids of the group, own client id) -> own queues. Both lists are sorted, and the own id is
among the others. Retry topics are shared like any other topic. If it raises, everything stays as it is."""

T = TypeVar("T")

VIRTUAL_NODES: Final = 10


def share(
    rule: Allocation, queues: Iterable[MessageQueue], client_ids: Iterable[str], own_id: str
) -> tuple[MessageQueue, ...]:
    """The queues of `own_id`, each once; none if it is not among the members."""
    members = sorted(client_ids, key=utf16_order)
    if own_id not in members:
        return ()
    ordered = sorted(queues, key=_queue_order)
    known = set(ordered)
    return tuple(queue for queue in dict.fromkeys(rule(ordered, members, own_id)) if queue in known)


def averagely(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
    """A row of neighbours for each; the first members have one more if it does not come out even."""
    size, rest = divmod(len(queues), len(members))
    index = members.index(own_id)
    start = index * size + min(index, rest)
    return queues[start : start + size + (index < rest)]


def in_turn(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
    """Every n-th queue for each of n members (AllocateMessageQueueAveragelyByCircle)."""
    return queues[members.index(own_id) :: len(members)]


def fixed(queues: Iterable[MessageQueue]) -> Allocation:
    """These queues, whoever else there is, as far as they exist; those of the group's retry topic must be among them if
    this member shall read it (AllocateMessageQueueByConfig).
    """
    given = tuple(queues)
    return lambda *_: given


def by_machine_room(rooms: Iterable[str]) -> Allocation:
    """Only queues of brokers that are named `room@broker` with one of these rooms: the same number for each member,
    what is left one by one to the first members (AllocateMessageQueueByMachineRoom). Others are read by nobody.
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
    """`inner` among the queues and members of each room; what is in rooms without members is shared by all
    (AllocateMachineRoomNearby). ValueError, and nothing changes, if a queue or a member is in no room ("").
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
    """Each member has places on a ring, a queue belongs to the next one (AllocateMessageQueueConsistentHash).

    All members need the same number of places, at least one, and the same hash; None: the first 32 bits of MD5.
    """
    if virtual_nodes < 1:
        raise ValueError(f"virtual_nodes={virtual_nodes}: a member needs a place on the ring to get queues")
    place_of = hash_of or _md5_place

    @lru_cache(maxsize=1)  # a group has the same members in all its topics
    def ring_of(members: tuple[str, ...]) -> tuple[list[int], dict[int, str]]:
        owners = {place_of(f"{member}-{n}"): member for member in members for n in range(virtual_nodes)}
        return sorted(owners), owners

    def allocate(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
        ring, owners = ring_of(tuple(members))

        def owner(queue: MessageQueue) -> str:
            name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return owners[ring[bisect_left(ring, place_of(name)) % len(ring)]]

        return [queue for queue in queues if owner(queue) == own_id]

    return allocate


def utf16_order(text: str) -> bytes:
    """A key that sorts text as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return utf16_order(queue.topic), utf16_order(queue.broker_name), queue.queue_id


def _room_of(broker_name: str) -> str | None:
    """What stands before the one `@` of a broker's name; Java's split forgets those at the end."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _by_room(items: Collection[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"{item} is in no room")
        rooms[room].append(item)
    return rooms


def _md5_place(text: str) -> int:
    digest = md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])
