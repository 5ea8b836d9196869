"""The order in which Java's HashMap and HashSet return their elements: by bucket, then by insertion.

The bucket is the hash, with its upper half mixed into the lower, modulo the capacity. The capacity is a power of two,
and doubles when the map is more than three quarters full. `putAll` into an empty map sets a capacity for all entries.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import java_hash

K = TypeVar("K")
DEFAULT_CAPACITY: Final = 16
LOAD: Final = 0.75


def bucket_order(names: Iterable[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """Return names in the order of a map with these keys, made with this capacity (a power of two)."""
    return _ordered(names, java_hash, capacity)


def queue_bucket_order(queues: Iterable[MessageQueue], capacity: int = DEFAULT_CAPACITY) -> list[MessageQueue]:
    """Return queues in the order of a set of them, made with this capacity."""
    return _ordered(queues, _queue_hash, capacity)


def capacity_of_copy(count: int) -> int:
    """Return the capacity of an empty map after `putAll` of `count` entries."""
    return 1 << (int(count / LOAD + 1.0) - 1).bit_length()


def _ordered(keys: Iterable[K], hash_of: Callable[[K], int], capacity: int) -> list[K]:
    keys = list(keys)
    while len(keys) > capacity * LOAD:
        capacity *= 2

    def bucket(key: K) -> int:
        unsigned = hash_of(key) & 0xFFFF_FFFF
        return (unsigned ^ (unsigned >> 16)) & (capacity - 1)

    return sorted(keys, key=bucket)


def _queue_hash(queue: MessageQueue) -> int:
    """Return the hash code of RocketMQ's MessageQueue."""
    return ((31 + java_hash(queue.broker_name)) * 31 + queue.queue_id) * 31 + java_hash(queue.topic)
