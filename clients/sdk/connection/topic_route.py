"""TopicRoute: a topic's queues and the addresses of their brokers, validated before use.

A name server forwards the registrations of brokers without checks, so numbers and names in a route are untrusted. A
route is rejected as a whole, with InvalidResponse, if one of its entries is invalid, or if it has more than
`max_queues` queues. It is never shortened: the members of a consumer group share the queues by the same list, and
producers map keys to indexes of it, so a client with a shorter list would use other queues than the other clients.

Queues are ordered by broker name and number, as in RocketMQ's clients, so all producers map a key to the same queue.
Source: docs/reference/wire.md, "Routes".
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import InvalidResponse, NoRoute, printable, reading_response
from skylarkmq.clients.sdk.base.settings import MAX_ROUTE_QUEUES
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import Permission, RequestCode

MASTER: Final = 0
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

        InvalidResponse if it has more than `max_queues` readable or writable queues, or an invalid entry.
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
        """Return the address of a broker; if it has no such id, the one with the lowest id. NoRoute."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            raise NoRoute(
                f"the route has no address of broker {broker_name}. Check that it is registered with the name server.",
                broker=broker_name,
                topic=self.topic,
            )
        return addresses.get(broker_id) or addresses[min(addresses)]


def checked_cluster(body: bytes) -> ClusterInfo:
    """Return the brokers that a name server lists. InvalidResponse for a list that is invalid."""
    with reading_response(RequestCode.GET_BROKER_CLUSTER_INFO, "a name server"):
        cluster = ClusterInfo.decode(body)
    for broker in cluster.broker_addr_table.values():
        checked_addresses(broker)
    return cluster


def checked_addresses(broker: BrokerData, topic: str | None = None) -> dict[int, str]:
    """Return a broker's addresses by id. InvalidResponse for an invalid name, id or address."""
    _check_name(broker.broker_name, topic)
    for broker_id, address in broker.broker_addrs.items():
        if not 0 <= broker_id <= _MAX_BROKER_ID:
            raise _invalid(topic, f"broker {broker.broker_name} has the id {_short(broker_id)}, which is out of range")
        if not is_address(address):
            raise _invalid(
                topic, f"broker {broker.broker_name} has the address {_short(address)}, which is not host:port"
            )
    return dict(broker.broker_addrs)


def address_text(host: tuple[str, int]) -> str:
    """Return an IP address and a port as `ip:port` or `[ip]:port`."""
    ip, port = host
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


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
    """Return the queue numbers by broker, cut to `per_broker`. InvalidResponse if their sum exceeds `max_queues`."""
    cut = counts if per_broker is None else [(name, min(count, per_broker)) for name, count in counts]
    total = sum(count for _, count in cut)
    if total > max_queues:
        raise _invalid(topic, f"it has {_short(total)} queues, the limit is max_route_queues={max_queues}")
    return cut


def _queues(topic: str, counts: list[tuple[str, int]]) -> Iterator[MessageQueue]:
    return (MessageQueue(topic, name, n) for name, count in counts for n in range(count))


def _short(value: object) -> str:
    """Return a peer's value for the text of an error: on one line, shortened."""
    text = printable(str(value)[: MAX_NAME_LENGTH + 1])
    return repr(text) if isinstance(value, str) else text


def _invalid(topic: str | None, reason: str) -> InvalidResponse:
    of = f"the route of topic {printable(topic)}" if topic else "the list of brokers"
    return InvalidResponse(f"{of} cannot be used: {reason}. Check the registrations of the name server.", topic=topic)
