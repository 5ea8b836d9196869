"""Who reads which queue: the rule that all members of a consumer group apply by themselves.

Each member sorts the topic's queues (topic, broker name, queue id) and the group's client ids, text compared as Java
compares it, by UTF-16 units; then every member takes a row of neighbours by its own place. Nobody coordinates: members
that see the same lists come to the same result, whatever language they are written in, so not one step may differ.
Source: docs/formats.md, "Queue allocation".
"""

from collections.abc import Iterable, Sequence

from protocol.bodies.message_queue import MessageQueue


def allocate_averagely(
    queues: Iterable[MessageQueue], client_ids: Iterable[str], own_id: str
) -> tuple[MessageQueue, ...]:
    """The queues of `own_id` (AllocateMessageQueueAveragely); none if it is not among the members."""
    members = sorted(client_ids, key=utf16_order)
    if own_id not in members:
        return ()
    ordered = sorted(queues, key=_queue_order)
    return tuple(_share(ordered, len(members), members.index(own_id)))


def _share(queues: Sequence[MessageQueue], members: int, index: int) -> Sequence[MessageQueue]:
    count = len(queues)
    rest = count % members
    size = 1 if count <= members else count // members + (index < rest)
    start = index * size if index < rest else index * size + rest
    return queues[start : start + size]


def utf16_order(text: str) -> bytes:
    """A key that sorts text as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return utf16_order(queue.topic), utf16_order(queue.broker_name), queue.queue_id
