"""The route table: which brokers serve a topic, and their addresses. Pure: no I/O, the time is an argument.

Three tables, filled by REGISTER_BROKER (103) and emptied by UNREGISTER_BROKER (104), silence and lost connections:

    brokers   broker name -> its cluster and its addresses by broker id (0 = master)
    live      (cluster, address) -> time of the last heartbeat, owner, and DataVersion
    topics    topic -> broker name -> queue counts and permission

Rules that are not obvious (docs/reference/wire.md, "Name server"):

- The topics of a broker are those that its master registers. They are processed only if they can have changed: at the
  first registration of that broker id, with another DataVersion than the last one, or if the table lacks a topic.
- A first registration with exactly one topic is refused, because brokers also register single changed topics, and one
  of those must not replace the whole table. A refused registration changes nothing.
- A topic that a broker no longer lists stays in its route until it is deleted (DELETE_TOPIC_IN_NAMESRV, 216).
- An address that registers with another id has changed its role. Another address with the same id replaces the old
  one, unless the old one is live with a newer state version: then the registration has no effect, but succeeds.
- The topics of a broker name are removed with its last address.
- Only its own host changes a live broker, and the table has limits (`registration_conflicts.py`).

`owner` identifies the connection through which a broker registered: when the owner is gone, the broker is removed,
unless it has registered through another owner meanwhile.
"""

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from skylarkmq.broker.namesrv.registration_conflicts import (
    STATE_VERSION_STEP,
    ConflictError,
    RouteLimits,
    check_addresses,
    check_names,
    check_topics,
)
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig
from skylarkmq.protocol.codes import Permission, ResponseCode
from skylarkmq.protocol.errors import RequestError

MASTER_ID: Final = 0
HEARTBEAT_TIMEOUT_MS: Final = 120_000

Owner = TypeVar("Owner", bound=Hashable)


class BrokerAddress(msgspec.Struct, frozen=True):
    """The names and the address of a broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class Registration(msgspec.Struct, frozen=True):
    """The content of a registration."""

    broker: BrokerAddress
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    ha_address: str = ""
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    enable_acting_master: bool = False
    zone: str | None = None
    host: str = ""  # the remote address of its connection


class MasterAddress(msgspec.Struct, frozen=True):
    """The master's addresses in the response to a registering slave."""

    address: str
    ha_address: str


class RouteTableStatistics(msgspec.Struct, frozen=True):
    """Figures of the table; `registrations`, `refused`, `refused_hosts` (other hosts' attempts to change a live
    broker), `refused_sizes` (above a limit) and `expired` are totals since the start."""

    clusters: int
    brokers: int
    addresses: int
    topics: int
    registrations: int
    refused: int
    refused_hosts: int
    refused_sizes: int
    expired: int


class _Broker(msgspec.Struct):
    cluster: str
    addresses: dict[int, str]
    enable_acting_master: bool = False
    zone: str | None = None


class _Live(msgspec.Struct, Generic[Owner]):
    broker: BrokerAddress
    owner: Owner
    host: str
    ha_address: str
    data_version: DataVersion
    timeout_ms: int
    last_heartbeat_ms: int


class RouteTable(Generic[Owner]):
    """The table; see the module docstring."""

    def __init__(self, *, forget_unlisted_topics: bool = False, limits: RouteLimits = RouteLimits()) -> None:
        self.limits = limits
        self.forget_unlisted_topics = forget_unlisted_topics
        """Whether a registration removes the topics that it no longer lists."""
        self._brokers: dict[str, _Broker] = {}
        self._live: dict[tuple[str, str], _Live[Owner]] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._registrations = 0
        self._refused = self._refused_hosts = self._refused_sizes = 0
        self._expired = 0

    def __repr__(self) -> str:
        return f"<RouteTable {len(self._brokers)} brokers, {len(self._topics)} topics>"

    def statistics(self) -> RouteTableStatistics:
        """Return the current figures."""
        return RouteTableStatistics(
            clusters=len({broker.cluster for broker in self._brokers.values()}),
            brokers=len(self._brokers),
            addresses=sum(len(broker.addresses) for broker in self._brokers.values()),
            topics=len(self._topics),
            registrations=self._registrations,
            refused=self._refused,
            refused_hosts=self._refused_hosts,
            refused_sizes=self._refused_sizes,
            expired=self._expired,
        )

    # ----------------------------------------------------------------------------------------------------- registration

    def register(self, registration: Registration, owner: Owner, now_ms: int) -> MasterAddress | None:
        """Apply a registration; return the master for a slave, if the master is live.

        Raises RequestError (SYSTEM_ERROR) for a first registration with exactly one topic, ConflictError for a change
        of a broker that another host registered, LimitError above a limit. A refused registration changes nothing."""
        identity = registration.broker
        self._check_conflict(identity, registration.data_version, registration.host)
        self._check_size(registration)
        broker = self._brokers.get(identity.broker_name)
        addresses = {} if broker is None else broker.addresses
        if self._outranked(identity, addresses, registration.data_version):
            self._live.pop((identity.cluster, identity.address), None)
            return None
        first = identity.broker_id not in addresses
        if first and len(registration.topics) == 1:
            self._refused += 1
            raise RequestError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if broker is None:
            broker = self._brokers[identity.broker_name] = _Broker(cluster=identity.cluster, addresses={})
        _drop_address(broker.addresses, identity.address)
        broker.addresses[identity.broker_id] = identity.address
        broker.enable_acting_master = registration.enable_acting_master
        broker.zone = registration.zone
        if identity.broker_id == MASTER_ID:
            self._take_topics(registration, changed=first or self.is_changed(identity, registration.data_version))
        self._live[identity.cluster, identity.address] = _Live(
            broker=identity,
            owner=owner,
            host=registration.host,
            ha_address=registration.ha_address,
            data_version=registration.data_version,
            timeout_ms=registration.heartbeat_timeout_ms,
            last_heartbeat_ms=now_ms,
        )
        self._registrations += 1
        return self._master_of(identity)

    def _check_conflict(self, identity: BrokerAddress, version: DataVersion, host: str) -> None:
        """Raise ConflictError if another host registered what the registration would change."""
        broker = self._brokers.get(identity.broker_name)
        if broker is not None:
            holder = self._live.get((broker.cluster, broker.addresses.get(identity.broker_id, "")))
            if holder is not None and holder.host != host and holder.broker != identity:
                self._refuse(holder)
        same = self._live.get((identity.cluster, identity.address))
        if same is not None and same.host != host:
            step = version.state_version - same.data_version.state_version
            if same.broker != identity or step > STATE_VERSION_STEP:
                self._refuse(same)

    def _refuse(self, holder: _Live[Owner]) -> None:
        self._refused_hosts += 1
        raise ConflictError(f"address={holder.broker.address} id={holder.broker.broker_id} host={holder.host}")

    def _check_size(self, registration: Registration) -> None:
        identity = registration.broker
        try:
            check_names((identity.cluster, identity.broker_name, identity.address, registration.ha_address))
            check_names((registration.zone or "",))
            broker = self._brokers.get(identity.broker_name)
            ids = () if broker is None else broker.addresses.keys()
            check_addresses(self.limits, self._brokers.keys(), identity.broker_name, ids, identity.broker_id)
            if identity.broker_id == MASTER_ID:
                check_topics(self.limits, self._topics, identity.broker_name, registration.topics)
        except RequestError:
            self._refused_sizes += 1
            raise

    def is_ignored(self, registration: Registration) -> bool:
        """Return whether another address has this name and id with a newer state, so that a registration has no
        effect."""
        broker = self._brokers.get(registration.broker.broker_name)
        addresses = {} if broker is None else broker.addresses
        return self._outranked(registration.broker, addresses, registration.data_version)

    def _outranked(self, identity: BrokerAddress, addresses: Mapping[int, str], version: DataVersion) -> bool:
        """Return whether another address has this id with a newer state."""
        holder = addresses.get(identity.broker_id, identity.address)
        live = self._live.get((identity.cluster, holder))
        return (
            holder != identity.address and live is not None and live.data_version.state_version > version.state_version
        )

    def _take_topics(self, registration: Registration, *, changed: bool) -> None:
        name = registration.broker.broker_name
        if self.forget_unlisted_topics:
            unlisted = [t for t, queues in self._topics.items() if name in queues and t not in registration.topics]
            for topic in unlisted:
                self._forget(topic, name)
        for topic, config in registration.topics.items():
            queues = self._topics.setdefault(topic, {})
            if changed or name not in queues:
                queues[name] = QueueData(
                    broker_name=name,
                    perm=config.perm,
                    read_queue_nums=config.read_queue_nums,
                    topic_sys_flag=config.topic_sys_flag,
                    write_queue_nums=config.write_queue_nums,
                )

    def _master_of(self, identity: BrokerAddress) -> MasterAddress | None:
        master = self._brokers[identity.broker_name].addresses.get(MASTER_ID)
        if identity.broker_id == MASTER_ID or master is None:
            return None
        live = self._live.get((identity.cluster, master))
        return None if live is None else MasterAddress(address=master, ha_address=live.ha_address)

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the DataVersion of a broker's last registration, or None."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def is_changed(self, broker: BrokerAddress, version: DataVersion) -> bool:
        """Return whether a broker with `version` has changed since its last registration."""
        return self.data_version(broker.cluster, broker.address) != version

    def record_heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        """Record a heartbeat of a broker."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_heartbeat_ms = now_ms

    # ---------------------------------------------------------------------------------------------------------- removal

    def unregister_from(self, host: str, gone: BrokerAddress) -> None:
        """Unregister a broker that stops. Raises ConflictError, without a change, if another host registered its
        address."""
        broker = self._brokers.get(gone.broker_name)
        for cluster in {gone.cluster, gone.cluster if broker is None else broker.cluster}:
            holder = self._live.get((cluster, gone.address))
            if holder is not None and holder.host != host:
                self._refuse(holder)
        self.unregister(gone)

    def unregister(self, gone: BrokerAddress) -> None:
        """Remove a broker's address, and its topics if that was the last one."""
        self._live.pop((gone.cluster, gone.address), None)
        broker = self._brokers.get(gone.broker_name)
        if broker is None:
            return
        _drop_address(broker.addresses, gone.address)
        if not broker.addresses:
            del self._brokers[gone.broker_name]
            for topic in [topic for topic, queues in self._topics.items() if gone.broker_name in queues]:
                self._forget(topic, gone.broker_name)

    def connection_lost(self, owner: Owner) -> list[BrokerAddress]:
        """Remove the brokers of an owner; return them."""
        gone = [live.broker for live in self._live.values() if live.owner is owner]
        for broker in gone:
            self.unregister(broker)
        return gone

    def expire(self, now_ms: int) -> list[tuple[BrokerAddress, Owner]]:
        """Remove the brokers that were silent for too long; return them with their owners."""
        silent = [live for live in self._live.values() if live.last_heartbeat_ms + live.timeout_ms < now_ms]
        for live in silent:
            self.unregister(live.broker)
        self._expired += len(silent)
        return [(live.broker, live.owner) for live in silent]

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, on all brokers or on the brokers of one cluster."""
        for name in list(self._topics.get(topic, ())):
            if cluster is None or self._brokers[name].cluster == cluster:
                self._forget(topic, name)

    def permit_writing(self, broker_name: str, *, allowed: bool) -> int:
        """Set the permission of a broker's topics to read and write, or remove write; return their number. It is valid
        until the broker registers with another version of its topics."""
        rows = [queues[broker_name] for queues in self._topics.values() if broker_name in queues]
        for row in rows:
            row.perm = Permission.READ_WRITE if allowed else row.perm & ~Permission.WRITE
        return len(rows)

    def _forget(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        if not queues:
            del self._topics[topic]

    # ---------------------------------------------------------------------------------------------------------- queries

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the brokers and queues of a topic; None if there are none."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in queues],
            filter_server_table={},
            queue_datas=list(queues.values()),
        )

    def missing_route_reason(self, topic: str) -> str:
        """Return the reason for a missing route, for the log."""
        if not self._brokers:
            return "no broker is registered with this name server"
        return f"none of the {len(self._brokers)} registered brokers has a topic {topic!r}"

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers, by name and by cluster."""
        clusters: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            clusters.setdefault(broker.cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in self._brokers},
            cluster_addr_table=clusters,
        )

    def topics(self) -> list[str]:
        """Return all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that some broker of a cluster serves; none for an unknown cluster."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_flagged(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Return the topics whose system flag has the bits `wanted` and not `unwanted`."""
        flags = {topic: next(iter(queues.values())).topic_sys_flag for topic, queues in self._topics.items()}
        return [topic for topic, flag in flags.items() if flag & wanted and not flag & unwanted]

    def names(self) -> list[str]:
        """Return the names of clusters and brokers, which are also names of topics."""
        return [*dict.fromkeys(broker.cluster for broker in self._brokers.values()), *self._brokers]

    def any_address(self) -> str | None:
        """Return the address of one of the brokers."""
        return next((address for broker in self._brokers.values() for address in broker.addresses.values()), None)

    def _broker_data(self, name: str) -> BrokerData:
        broker = self._brokers[name]
        return BrokerData(
            broker_addrs=dict(sorted(broker.addresses.items())),
            broker_name=name,
            cluster=broker.cluster,
            enable_acting_master=broker.enable_acting_master,
            zone_name=broker.zone,
        )


def _drop_address(addresses: dict[int, str], address: str) -> None:
    for broker_id in [broker_id for broker_id, known in addresses.items() if known == address]:
        del addresses[broker_id]
