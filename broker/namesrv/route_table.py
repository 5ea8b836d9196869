"""The route table: which broker serves which topic, under which address. Pure: no I/O, the time is an argument.

Three tables, all filled by registrations (103) and emptied by unregistrations (104), silence and lost connections:

    brokers   broker name -> its cluster and its addresses by broker id (0 = master)
    live      (cluster, address) -> when it was last heard of, by whom, with which DataVersion
    topics    topic -> broker name -> queue counts and permission

Rules that are easily missed (docs/formats.md, "Name server"):

- The topics of a broker are what its master told. They are looked at only if something can have changed: the first
  registration of that broker id, another DataVersion than the last one, or a topic that this table lacks.
- A first registration with exactly one topic is refused, because brokers also register single changed topics and one
  of those must not stand for the whole. A refused registration changes nothing.
- A topic that a broker no longer lists stays in its route until somebody deletes it (216).
- An address that comes back under another id has changed its role; another address under the same id has taken its
  place, unless the old one is alive with a newer state version: then the newcomer is ignored, politely.
- The topics of a broker name go with its last address.
- Only its own host changes a live broker, and the table grows up to its limits (`claims.py`).

`owner` is whoever speaks for a broker, for the server its connection: when the owner goes, the broker does, unless it
has registered through another one meanwhile.
"""

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from skylarkmq.broker.namesrv.claims import (
    STATE_VERSION_STEP,
    ClaimError,
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
    """Where a broker is and what it is called."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class Registration(msgspec.Struct, frozen=True):
    """What a broker says about itself."""

    broker: BrokerAddress
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    ha_address: str = ""
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS
    enable_acting_master: bool = False
    zone: str | None = None
    host: str = ""  # the remote address of the connection that it came by


class MasterAddress(msgspec.Struct, frozen=True):
    """What a registering slave is told about its master."""

    address: str
    ha_address: str


class RouteTableStatistics(msgspec.Struct, frozen=True):
    """The table at one moment; `registrations`, `refused`, `refused_hosts` (other hosts' attempts to change a
    live broker), `refused_sizes` (beyond a limit) and `expired` are totals since the start."""

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
    heard_ms: int


class RouteTable(Generic[Owner]):
    """See the module's story."""

    def __init__(self, *, forget_unlisted_topics: bool = False, limits: RouteLimits = RouteLimits()) -> None:
        self.limits = limits
        self.forget_unlisted_topics = forget_unlisted_topics
        """Whether a registration withdraws the topics that it no longer lists."""
        self._brokers: dict[str, _Broker] = {}
        self._live: dict[tuple[str, str], _Live[Owner]] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._registrations = 0
        self._refused = self._refused_hosts = self._refused_sizes = 0
        self._expired = 0

    def __repr__(self) -> str:
        return f"<RouteTable {len(self._brokers)} brokers, {len(self._topics)} topics>"

    def statistics(self) -> RouteTableStatistics:
        """The table's figures now."""
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

    # ------------------------------------------------------------------------------------------------ brokers come ...

    def register(self, registration: Registration, owner: Owner, now_ms: int) -> MasterAddress | None:
        """Take a registration; a slave is told its master, if that is alive.

        RequestError for a first registration with exactly one topic (SYSTEM_ERROR), for a change of a broker that
        another host holds (ClaimError) and for one that is too large. A refused registration changes nothing.
        """
        told = registration.broker
        self._check_claim(told, registration.data_version, registration.host)
        self._check_size(registration)
        broker = self._brokers.get(told.broker_name)
        addresses = {} if broker is None else broker.addresses
        if self._outranked(told, addresses, registration.data_version):
            self._live.pop((told.cluster, told.address), None)
            return None
        first = told.broker_id not in addresses
        if first and len(registration.topics) == 1:
            self._refused += 1
            raise RequestError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if broker is None:
            broker = self._brokers[told.broker_name] = _Broker(cluster=told.cluster, addresses={})
        _drop_address(broker.addresses, told.address)
        broker.addresses[told.broker_id] = told.address
        broker.enable_acting_master = registration.enable_acting_master
        broker.zone = registration.zone
        if told.broker_id == MASTER_ID:
            self._take_topics(registration, changed=first or self.is_changed(told, registration.data_version))
        self._live[told.cluster, told.address] = _Live(
            broker=told,
            owner=owner,
            host=registration.host,
            ha_address=registration.ha_address,
            data_version=registration.data_version,
            timeout_ms=registration.heartbeat_timeout_ms,
            heard_ms=now_ms,
        )
        self._registrations += 1
        return self._master_of(told)

    def _check_claim(self, told: BrokerAddress, version: DataVersion, host: str) -> None:
        """Raise ClaimError if another host holds what the registration would change."""
        broker = self._brokers.get(told.broker_name)
        if broker is not None:
            holder = self._live.get((broker.cluster, broker.addresses.get(told.broker_id, "")))
            if holder is not None and holder.host != host and holder.broker != told:
                self._refuse(holder)
        same = self._live.get((told.cluster, told.address))
        if same is not None and same.host != host:
            step = version.state_version - same.data_version.state_version
            if same.broker != told or step > STATE_VERSION_STEP:
                self._refuse(same)

    def _refuse(self, holder: _Live[Owner]) -> None:
        self._refused_hosts += 1
        raise ClaimError(f"address={holder.broker.address} id={holder.broker.broker_id} host={holder.host}")

    def _check_size(self, registration: Registration) -> None:
        told = registration.broker
        try:
            check_names((told.cluster, told.broker_name, told.address, registration.ha_address))
            check_names((registration.zone or "",))
            broker = self._brokers.get(told.broker_name)
            ids = () if broker is None else broker.addresses.keys()
            check_addresses(self.limits, self._brokers.keys(), told.broker_name, ids, told.broker_id)
            if told.broker_id == MASTER_ID:
                check_topics(self.limits, self._topics, told.broker_name, registration.topics)
        except RequestError:
            self._refused_sizes += 1
            raise

    def is_ignored(self, registration: Registration) -> bool:
        """Whether another address holds this name and id with a newer state, so that a registration changes nothing."""
        broker = self._brokers.get(registration.broker.broker_name)
        addresses = {} if broker is None else broker.addresses
        return self._outranked(registration.broker, addresses, registration.data_version)

    def _outranked(self, told: BrokerAddress, addresses: Mapping[int, str], version: DataVersion) -> bool:
        """Whether another address holds this id with a newer state."""
        holder = addresses.get(told.broker_id, told.address)
        live = self._live.get((told.cluster, holder))
        return holder != told.address and live is not None and live.data_version.state_version > version.state_version

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

    def _master_of(self, told: BrokerAddress) -> MasterAddress | None:
        master = self._brokers[told.broker_name].addresses.get(MASTER_ID)
        if told.broker_id == MASTER_ID or master is None:
            return None
        live = self._live.get((told.cluster, master))
        return None if live is None else MasterAddress(address=master, ha_address=live.ha_address)

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The DataVersion of a broker's last registration; None if it is not known."""
        live = self._live.get((cluster, address))
        return None if live is None else live.data_version

    def is_changed(self, broker: BrokerAddress, version: DataVersion) -> bool:
        """Whether a broker that is at `version` has news for this table."""
        return self.data_version(broker.cluster, broker.address) != version

    def heard_of(self, cluster: str, address: str, now_ms: int) -> None:
        """A broker gave a sign of life."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard_ms = now_ms

    # -------------------------------------------------------------------------------------------------- ... and go

    def unregister_from(self, host: str, gone: BrokerAddress) -> None:
        """Do what a broker asks for that stops. ClaimError if another host holds that address, and nothing changes."""
        broker = self._brokers.get(gone.broker_name)
        for cluster in {gone.cluster, gone.cluster if broker is None else broker.cluster}:
            holder = self._live.get((cluster, gone.address))
            if holder is not None and holder.host != host:
                self._refuse(holder)
        self.unregister(gone)

    def unregister(self, gone: BrokerAddress) -> None:
        """Forget a broker's address, and its topics if that was the last one."""
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
        """Forget the brokers that an owner spoke for; returns them."""
        gone = [live.broker for live in self._live.values() if live.owner is owner]
        for broker in gone:
            self.unregister(broker)
        return gone

    def expire(self, now_ms: int) -> list[tuple[BrokerAddress, Owner]]:
        """Forget the brokers that were silent for too long; returns them with who spoke for them."""
        silent = [live for live in self._live.values() if live.heard_ms + live.timeout_ms < now_ms]
        for live in silent:
            self.unregister(live.broker)
        self._expired += len(silent)
        return [(live.broker, live.owner) for live in silent]

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        for name in list(self._topics.get(topic, ())):
            if cluster is None or self._brokers[name].cluster == cluster:
                self._forget(topic, name)

    def permit_writing(self, broker_name: str, *, allowed: bool) -> int:
        """Have the routes of a broker's topics say that they may be written (and read), or not; returns how many there
        are. It holds until the broker registers with another version of its topics."""
        rows = [queues[broker_name] for queues in self._topics.values() if broker_name in queues]
        for row in rows:
            row.perm = Permission.READ_WRITE if allowed else row.perm & ~Permission.WRITE
        return len(rows)

    def _forget(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        if not queues:
            del self._topics[topic]

    # ------------------------------------------------------------------------------------------------------- questions

    def route(self, topic: str) -> TopicRouteData | None:
        """Who serves a topic; None if nobody does."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in queues],
            filter_server_table={},
            queue_datas=list(queues.values()),
        )

    def why_no_route(self, topic: str) -> str:
        """The reason for a missing route, for the log: what an operator should look at."""
        if not self._brokers:
            return "no broker is registered with this name server"
        return f"none of the {len(self._brokers)} registered brokers has a topic {topic!r}"

    def cluster_info(self) -> ClusterInfo:
        """All brokers, by name and by cluster."""
        clusters: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            clusters.setdefault(broker.cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in self._brokers},
            cluster_addr_table=clusters,
        )

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics that some broker of a cluster serves; none for an unknown cluster."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def topics_flagged(self, wanted: int, unwanted: int = 0) -> list[str]:
        """The topics whose system flag has these bits, and not those."""
        flags = {topic: next(iter(queues.values())).topic_sys_flag for topic, queues in self._topics.items()}
        return [topic for topic, flag in flags.items() if flag & wanted and not flag & unwanted]

    def names(self) -> list[str]:
        """Clusters and brokers, which are names of topics too."""
        return [*dict.fromkeys(broker.cluster for broker in self._brokers.values()), *self._brokers]

    def any_address(self) -> str | None:
        """Where one of the brokers is."""
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
