"""Who may change a live registration, and how large the route table may become. Pure: values in, refusals out.

RocketMQ believes every registration (103). Here a live broker is protected from other hosts, by the address of the
connection that registered it: a registration from another host may not take its name and id, its address, or raise its
stateVersion by more than STATE_VERSION_STEP, after which the broker itself would be ignored; and an unregistration
(104) from another host does not remove it. Everything else is as in RocketMQ: a broker that has expired or whose
connection is lost is not live, and its host may change its address at any time.

The limits refuse growth only: what is in the table stays, and registers again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from skylarkmq.protocol.bodies.route import QueueData
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

STATE_VERSION_STEP: Final = 1 << 32
LONGEST_NAME: Final = 255
"""Characters of a cluster, a broker, an address, a zone or a topic."""


class RouteLimits(msgspec.Struct, frozen=True):
    """The largest route table."""

    brokers: int = 1_024
    addresses: int = 64  # of one broker name
    topics: int = 100_000
    queues: int = 4_096  # of a topic on one broker, for reads and for writes


class Claim(Protocol):
    """A live registration, as far as it is compared."""

    @property
    def host(self) -> str:
        """The remote address of the connection that registered it."""


class ClaimError(RequestError):
    """Another host holds what a request would change. `held_by` is for the log."""

    def __init__(self, held_by: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, "register broker failed, another host holds this broker")
        self.held_by = held_by


class LimitError(RequestError):
    """The table would become larger than a setting allows."""

    def __init__(self, what: str, setting: str, limit: int) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, f"register broker failed, {what}, {setting}={limit}")


def check_names(names: Iterable[str]) -> None:
    """Raise for a name above LONGEST_NAME."""
    for name in names:
        if len(name) > LONGEST_NAME:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"register broker failed, a name has {len(name)} characters")


def check_addresses(
    limits: RouteLimits, brokers: Collection[str], name: str, ids: Collection[int], new_id: int
) -> None:
    """Raise if one broker name or one address more would be too many."""
    if name not in brokers and len(brokers) >= limits.brokers:
        raise LimitError(f"there are {len(brokers)} brokers", "maxRouteBrokers", limits.brokers)
    if new_id not in ids and len(ids) >= limits.addresses:
        raise LimitError(f"broker {name} has {len(ids)} addresses", "maxRouteAddresses", limits.addresses)


def check_topics(
    limits: RouteLimits, known: Mapping[str, Mapping[str, QueueData]], broker: str, told: Mapping[str, TopicConfig]
) -> None:
    """Raise if the topics of a registration add too many topics, or too many queues to one."""
    check_names(told)
    added = sum(topic not in known for topic in told)
    if added and len(known) + added > limits.topics:
        raise LimitError(f"there would be {len(known) + added} topics", "maxRouteTopics", limits.topics)
    for topic, config in told.items():
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queues > limits.queues:
            before = known.get(topic, {}).get(broker)
            if before is None or queues > max(before.read_queue_nums, before.write_queue_nums):
                raise LimitError(f"topic {topic} has {queues} queues", "maxRouteQueues", limits.queues)
