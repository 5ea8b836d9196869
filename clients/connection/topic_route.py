"""TopicRoute: a topic's queues and the addresses of their brokers, checked before anything is built from them.

A name server forwards what brokers registered, so every number and name in a route is a peer's claim. A route is
rejected as a whole, with InvalidResponse, if one of its entries makes no sense, or if it has more than `max_queues`
queues. It is never shortened: members of a consumer group share the queues by the same list, and producers map a key
to a place in it, so a client with a shorter list would read and write other queues than its neighbours.

Queues are listed by broker name and number, as RocketMQ's clients list them, so that all producers map a key to the
same queue. Source: docs/formats.md, "Routes".
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from skylarkmq.clients.errors import InvalidResponse, NoRoute, printable, reading_response
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import Permission, RequestCode

MASTER: Final = 0
MAX_ROUTE_QUEUES: Final = 65_536
"""Default of `ClientSettings.max_route_queues`; the default limit of a broker for all of its queues."""
MAX_NAME_LENGTH: Final = 255
_MAX_PORT: Final = 65_535
_MAX_BROKER_ID: Final = 2**63 - 1


class TopicRoute(msgspec.Struct, frozen=True):
    """A topic's queues and the addresses of their brokers: broker name -> broker id (0: master) -> `host:port`."""

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]

    @classmethod
    def of(
        cls, topic: str, data: TopicRouteData, per_broker: int | None = None, max_queues: int = MAX_ROUTE_QUEUES
    ) -> "TopicRoute":
        """Return the route in a name server's response; `per_broker` cuts the queues of each broker.

        InvalidResponse if it has more than `max_queues` queues to read or to write, or an entry that makes no sense.
        """
        brokers = {broker.broker_name: checked_addresses(broker, topic) for broker in data.broker_datas}
        rows = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        for row in rows:
            _check_row(row, topic)
        write = [(row.broker_name, row.write_queue_nums) for row in rows if _is_writable(row, brokers)]
        read = [(row.broker_name, row.read_queue_nums) for row in rows if _is_readable(row, brokers)]
        publish, subscribe = (_counted(topic, counts, per_broker, max_queues) for counts in (write, read))
        return cls(topic, tuple(_queues(topic, publish)), tuple(_queues(topic, subscribe)), brokers)

    def address(self, broker_name: str, broker_id: int = MASTER) -> str:
        """Return where a broker listens; any other member of it if that id is unknown. NoRoute."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            raise NoRoute(
                f"no address is known of broker {broker_name}. Check that it is registered with the name server.",
                broker=broker_name,
                topic=self.topic,
            )
        return addresses.get(broker_id) or addresses[min(addresses)]


def checked_cluster(body: bytes) -> ClusterInfo:
    """Return the brokers that a name server lists. InvalidResponse if they cannot be read, or one makes no sense."""
    with reading_response(RequestCode.GET_BROKER_CLUSTER_INFO, "a name server"):
        cluster = ClusterInfo.decode(body)
    for broker in cluster.broker_addr_table.values():
        checked_addresses(broker)
    return cluster


def checked_addresses(broker: BrokerData, topic: str | None = None) -> dict[int, str]:
    """Return a broker's addresses by id. InvalidResponse for a name, an id or an address that cannot be one."""
    _check_name(broker.broker_name, topic)
    for broker_id, address in broker.broker_addrs.items():
        if not 0 <= broker_id <= _MAX_BROKER_ID:
            raise _invalid(topic, f"broker {broker.broker_name} has the id {_short(broker_id)}, which is out of range")
        if not is_address(address):
            raise _invalid(
                topic, f"broker {broker.broker_name} has the address {_short(address)}, which is not host:port"
            )
    return dict(broker.broker_addrs)


def is_address(text: str) -> bool:
    """Return whether `text` is `host:port`, with a host of 1 to 255 printable characters and a port of 1 to 65535."""
    host, _, port = text.rpartition(":")
    if not 0 < len(host) <= MAX_NAME_LENGTH or not host.isprintable() or " " in host:
        return False
    return port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= _MAX_PORT


def _check_row(row: QueueData, topic: str) -> None:
    _check_name(row.broker_name, topic)
    for kind, count in (("read", row.read_queue_nums), ("write", row.write_queue_nums)):
        if count < 0:
            raise _invalid(topic, f"broker {row.broker_name} has {_short(count)} {kind} queues")


def _check_name(name: str, topic: str | None) -> None:
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise _invalid(topic, f"a broker has the name {_short(name)}")


def _is_writable(row: QueueData, brokers: dict[str, dict[int, str]]) -> bool:
    return bool(row.perm & Permission.WRITE) and MASTER in brokers.get(row.broker_name, {})


def _is_readable(row: QueueData, brokers: dict[str, dict[int, str]]) -> bool:
    return bool(row.perm & Permission.READ) and bool(brokers.get(row.broker_name))


def _counted(
    topic: str, counts: list[tuple[str, int]], per_broker: int | None, max_queues: int
) -> list[tuple[str, int]]:
    """Return the numbers of queues by broker, cut to `per_broker`, if they stay within `max_queues` in all."""
    cut = counts if per_broker is None else [(name, min(count, per_broker)) for name, count in counts]
    total = sum(count for _, count in cut)
    if total > max_queues:
        raise _invalid(topic, f"it has {_short(total)} queues, the limit is max_route_queues={max_queues}")
    return cut


def _queues(topic: str, counts: list[tuple[str, int]]) -> Iterator[MessageQueue]:
    return (MessageQueue(topic, name, n) for name, count in counts for n in range(count))


def _short(value: object) -> str:
    """Return a peer's value as it may stand in an error: one line, not endless."""
    text = printable(str(value)[: MAX_NAME_LENGTH + 1])
    return repr(text) if isinstance(value, str) else text


def _invalid(topic: str | None, reason: str) -> InvalidResponse:
    of = f"the route of topic {printable(topic)}" if topic else "the list of brokers"
    return InvalidResponse(
        f"{of} cannot be used: {reason}. Check what is registered with the name server.", topic=topic
    )
