"""Registration conflicts: which hosts may change a live registration, and the limits of the route table. Pure
functions.

RocketMQ accepts every REGISTER_BROKER (103). Here a live broker is protected from other hosts, by the remote address of
the connection that registered it. A registration from another host must not take its name and id or its address, and
must not raise its stateVersion by more than STATE_VERSION_STEP, after which the broker itself would be ignored. An
UNREGISTER_BROKER (104) from another host does not remove it. Otherwise the rules are RocketMQ's: a broker that has
expired or whose connection is lost is not live, and its own host may change its address at any time.

The limits prevent growth only: existing entries stay and can register again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.route import QueueData
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

STATE_VERSION_STEP: Final = 1 << 32
MAX_NAME_LENGTH: Final = 255
"""Maximum number of characters of a cluster, a broker, an address, a zone or a topic."""


class RouteLimits(msgspec.Struct, frozen=True):
    """The limits of the route table."""

    brokers: int = 1_024
    addresses: int = 64  # of one broker name
    topics: int = 100_000
    queues: int = 4_096  # of a topic on one broker, for reads and for writes


class ConflictError(RequestError):
    """Another host owns the registration that a request would change. `holder` is for the log."""

    def __init__(self, holder: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, "register broker failed, another host holds this broker")
        self.holder = holder


class LimitError(RequestError):
    """The table would exceed a configured limit."""

    def __init__(self, what: str, setting: str, limit: int) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, f"register broker failed, {what}, {setting}={limit}")


def check_names(names: Iterable[str]) -> None:
    """Raise RequestError for a name above MAX_NAME_LENGTH."""
    for name in names:
        if len(name) > MAX_NAME_LENGTH:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"register broker failed, a name has {len(name)} characters")


def check_addresses(
    limits: RouteLimits, brokers: Collection[str], name: str, ids: Collection[int], new_id: int
) -> None:
    """Raise LimitError if the new broker name or broker id exceeds a limit."""
    if name not in brokers and len(brokers) >= limits.brokers:
        raise LimitError(f"there are {len(brokers)} brokers", "maxRouteBrokers", limits.brokers)
    if new_id not in ids and len(ids) >= limits.addresses:
        raise LimitError(f"broker {name} has {len(ids)} addresses", "maxRouteAddresses", limits.addresses)


def check_topics(
    limits: RouteLimits, known: Mapping[str, Mapping[str, QueueData]], broker: str, topics: Mapping[str, TopicConfig]
) -> None:
    """Raise LimitError if the topics of a registration exceed the limit of topics, or of queues of a topic."""
    check_names(topics)
    added = sum(topic not in known for topic in topics)
    if added and len(known) + added > limits.topics:
        raise LimitError(f"there would be {len(known) + added} topics", "maxRouteTopics", limits.topics)
    for topic, config in topics.items():
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queues > limits.queues:
            before = known.get(topic, {}).get(broker)
            if before is None or queues > max(before.read_queue_nums, before.write_queue_nums):
                raise LimitError(f"topic {topic} has {queues} queues", "maxRouteQueues", limits.queues)
