"""The configuration of a daemon: one frozen struct per part.

`load_broker` and `load_namesrv` read no files and do not query the machine. They take the given keys
(`broker/config/parsing.py`; which key sets which field: `broker/config/keys.py`) and a `Machine` for the defaults that
depend on it, and return values. They raise StartError for an invalid configuration, such as a known key with a value
that it does not permit.

Addresses. A broker binds to `bindAddress`; without it to 0.0.0.0 if `brokerIP1` is set (which is the address that
clients connect to, and may belong to a router in front of the broker); without either to 127.0.0.1, so that an
unconfigured daemon is not open to a network. The advertised address is `brokerIP1`, else the address that it binds to,
else, if that is a wildcard, the name of the pod or the machine's own address (`broker/app/host/addresses.py`). A broker
that is bound to a wildcard never advertises a loopback address, unless `brokerIP1` sets it. The name server inside a
broker and the health pages bind to the same address as the broker.

Without `namesrvAddr` a broker runs its own name server; with it, the broker registers with those name servers.

Settings that protect a daemon have no effect without others; a combination without effect raises StartError, too.
"""

import ipaddress
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from skylarkmq.broker.access.config import AccessConfig, AuditConfig, QuotaConfig, check_access
from skylarkmq.broker.access.security_config import SecurityConfig
from skylarkmq.broker.base.address_ranges import default_networks, is_loopback
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.base.protected_keys import DEFAULT
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import Catalogue, Given, Setting, Settled, settle
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.protocol.message_id import encode_host

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"
LAST_PORT: Final = 65_535

Config = TypeVar("Config")


class Machine(NamedTuple):
    """The values of the machine that defaults depend on."""

    host_name: str  # brokerName
    address: str  # advertised when bound to all addresses; a loopback address: there is no other
    home: Path  # mqnamesrv keeps its files below it
    resolve: Callable[[str], str]  # host name -> address; StartError if the name has no address
    pod_host: str | None = None  # in Kubernetes, advertised instead of the address


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's identity and its features for clients. Periods in ms."""

    broker_cluster_name: str = "DefaultCluster"  # the cluster that the broker registers with
    broker_name: str  # default: the host name; to clients, brokers with the same name are replicas of each other
    broker_id: int = 0  # 0: the master of the name; slaves have different ids above 0
    namesrv_addresses: tuple[str, ...] = ()  # name servers, "host:port" each; none: the one in this process
    broker_permission: int = 6  # 2: write, 4: read, 6: both
    default_topic_queue_nums: int = 8  # maximum number of queues of an auto-created topic
    auto_create_topic_enable: bool = True  # a send to an unknown topic creates it
    auto_create_subscription_group: bool = True  # a pull of an unknown group creates it
    region_id: str = "DefaultRegion"  # value of MSG_REGION in send responses
    trace_on: bool = True  # value of TRACE_ON in send responses
    start_accept_send_request_time_stamp: int = 0  # sends are refused before this time (Unix ms)
    long_polling_enable: bool = True  # a pull without messages waits for the time in its request
    short_polling_time_mills: int = 1_000  # how long a pull without messages waits if long polling is off
    lite_pull_message_enable: bool = True  # LITE_PULL_MESSAGE (361) is allowed
    enable_property_filter: bool = False  # subscriptions by SQL92 expressions on message properties
    filter_support_retry: bool = False  # SQL92 subscriptions also filter the group's retry topic
    slave_read_enable: bool = False  # groups that read from disk are redirected to whichBrokerWhenConsumeSlowly
    real_time_notify_consumer_change: bool = True  # members of a group are notified at once of joins and leaves
    store_reply_message_enable: bool = True  # replies of request-reply are also stored
    use_server_side_reset_offset: bool = True  # offsets are reset by the broker, otherwise by the group's members
    rebalance_lock_max_live_time: int = 60_000  # without a renewal in this time another consumer may lock the queue
    notify_consumer_ids_changed_enable: bool = True  # false: members of a group are never notified of changes
    register_name_server_period: int = 30_000  # time between registrations, limited to 10 s to 60 s
    flush_consumer_offset_interval: int = 5_000  # a crash may lose the offsets committed in this time
    recall_message_enable: bool = False  # RECALL_MESSAGE (370) is allowed for timer messages
    flush_delay_offset_interval: int = 10_000  # after a crash, delayed messages of this time may be delivered twice
    reject_transaction_message: bool = False  # half messages are refused
    transaction_time_out: int = 6_000  # time from the birth of a half message to its first check
    transaction_check_max: int = 15  # number of checks, after which the half message is discarded
    transaction_check_interval: int = 30_000  # time between two check rounds
    trace_topic_enable: bool = False  # the topic for message traces is created at the start
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"  # the topic for message traces
    config_black_list: tuple[str, ...] = DEFAULT  # further keys that UPDATE_BROKER_CONFIG (25) must not change


class ListenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's addresses."""

    bind_host: str  # an address of this machine, or a wildcard
    advertised_host: str  # the address that name servers give to clients
    advertised_ip: str  # the same as an IP address, for records and message ids
    port: int  # the port for clients
    why: str  # the settings that decided this, for the log


class PoolsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The number of requests of each pool that may wait for a response; more are refused with SYSTEM_BUSY."""

    send: int = 10_000  # sends, batches and messages that consumers send back
    pull: int = 100_000  # including parked pulls of both kinds
    lite_pull: int = 100_000  # LITE_PULL_MESSAGE (361), including parked ones
    query: int = 20_000  # queries by key, id, offset and time
    client_manage: int = 1_000_000  # requests about clients and members of groups
    heartbeat: int = 50_000  # HEART_BEAT (34)
    consumer_manage: int = 1_000_000  # QUERY_CONSUMER_OFFSET (14) and UPDATE_CONSUMER_OFFSET (15)
    end_transaction: int = 100_000  # END_TRANSACTION (37)
    admin: int = 10_000  # requests of operators
    reply: int = 10_000  # replies of request-reply


class WaitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many ms requests of a pool may wait for their dispatch; older ones are refused with SYSTEM_BUSY."""

    send: int = 200  # sends, batches and messages that consumers send back
    pull: int = 5_000  # PULL_MESSAGE (11)
    lite_pull: int = 5_000  # LITE_PULL_MESSAGE (361)
    heartbeat: int = 31_000  # HEART_BEAT (34)
    end_transaction: int = 3_000  # END_TRANSACTION (37)
    admin: int = 5_000  # requests of operators


class FastFailureConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for all pools."""

    broker_fast_failure_enable: bool = True  # false: requests wait without a limit
    os_page_cache_busy_time_out_mills: int = 1_000  # sends that a disk stall has delayed so long get PCBUSY_CLEAN_QUEUE
    thread_pool_queue_max_bytes: int = 48 << 20  # memory of one pool's waiting requests (ours)


class OpsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Health pages and metrics."""

    host: str  # default: the address of the broker's port
    port: int = 5557  # 0: off, the default of `mqnamesrv`, since several may run on a machine
    port_may_move: bool = False  # the next free port is used if this one is in use: the port is not set
    metrics_auth: bool | None = None  # /metrics needs an account (ours); default: if accounts exist, except on loopback
    metrics_tls: bool = False  # the pages use TLS, with the certificate of the broker's ports (ours)
    metrics_exporter_type: str = "PROM"  # DISABLE turns /metrics off; RocketMQ's other values have the effect of PROM
    metrics_label: str = ""  # additional labels of native metrics, name:value,name:value
    metrics_otel_cardinality_limit: int = 50_000  # series per metric; the rest are aggregated into one overflow series
    enable_connection_metrics: bool = True  # metrics of connections
    enable_lag_and_dlq_metrics: bool = True  # metrics of consumer lag and dead letters
    enable_message_store_metrics: bool = True  # metrics of the store
    enable_remoting_metrics: bool = True  # metrics of the latency of requests
    enable_request_metrics: bool = True  # metrics of messages and bytes
    enable_stats_metrics: bool = True  # metrics of the broker's tables and pools
    enable_transaction_metrics: bool = True  # metrics of transactions


class ConsoleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The console in the browser."""

    port: int = 0  # 0: off
    host: str = LOOPBACK  # the address to listen on; addresses other than loopback need accounts
    tls: bool = False  # use TLS, with the certificate of the broker's ports


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of `mqbroker`."""

    broker: BrokerConfig
    listen: ListenConfig
    replication: ReplicationConfig
    remoting: RemotingConfig
    tls: TlsConfig
    outbound_tls: OutboundTlsConfig
    pools: PoolsConfig
    waits: WaitsConfig
    fast_failure: FastFailureConfig
    store: StoreConfig
    ops: OpsConfig
    console: ConsoleConfig
    limits: LimitsConfig
    security: SecurityConfig
    access: AccessConfig
    quotas: QuotaConfig
    audit: AuditConfig
    namesrv: NamesrvConfig | None  # the one in this process

    @property
    def ha_port(self) -> int:
        """Return the port for slaves, whether it is opened or not."""
        return self.replication.ha_listen_port or self.listen.port + 1


class NamesrvDaemonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of `mqnamesrv`."""

    namesrv: NamesrvConfig
    remoting: RemotingConfig
    tls: TlsConfig
    security: SecurityConfig
    quotas: QuotaConfig
    audit: AuditConfig
    ops: OpsConfig


class EffectiveSetting(msgspec.Struct, frozen=True):
    """One row of the output of `-p`."""

    key: str
    value: str
    origin: str  # "default", or its source


class Loaded(NamedTuple, Generic[Config]):
    """A configuration, its origin, and messages for the operator about its keys.

    `others`: the texts of keys that are not supported; `file`: the configuration file, if there is one.
    """

    config: Config
    effective: Sequence[EffectiveSetting] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    others: Mapping[str, str] = {}
    file: Path | None = None


def load_broker(given: Iterable[Given], machine: Machine) -> Loaded[DaemonConfig]:
    """Return the configuration of `mqbroker` for the given keys, weakest source first. Raises StartError."""
    settled = settle(given, BROKER_KEYS)
    listen = listen_config(settled, machine)
    store = store_config(settled, listen)
    broker = msgspec.structs.replace(BrokerConfig(broker_name=machine.host_name), **settled.of("broker"))
    config = DaemonConfig(
        broker=broker,
        listen=listen,
        replication=replication_config(settled, listen, machine),
        remoting=RemotingConfig(**settled.of("remoting")),
        tls=TlsConfig(**settled.of("tls")),
        outbound_tls=OutboundTlsConfig(**settled.of("outbound_tls")),
        pools=PoolsConfig(**settled.of("pools")),
        waits=WaitsConfig(**settled.of("waits")),
        fast_failure=FastFailureConfig(**settled.of("fast_failure")),
        store=store,
        ops=msgspec.structs.replace(
            OpsConfig(host=listen.bind_host, port_may_move="port" not in settled.of("ops")), **settled.of("ops")
        ),
        console=ConsoleConfig(**settled.of("console")),
        limits=LimitsConfig(**settled.of("limits")),
        security=security_config(settled, bound_address(listen.bind_host, machine)),
        access=AccessConfig(**{"acl_config_dir": store.store_path_root_dir / "conf"} | settled.of("access")),
        quotas=QuotaConfig(**settled.of("quotas")),
        audit=AuditConfig(**settled.of("audit")),
        namesrv=None if broker.namesrv_addresses else embedded_namesrv(settled, listen, store),
    )
    check_own_registration(config)
    check_role(config)
    check_link(config)
    check_access(config.access)
    check_protection(config.security, config.tls, has_name_server=config.namesrv is not None)
    check_pages("metricsTls", config.tls, is_on=config.ops.metrics_tls)
    check_pages("consoleTls", config.tls, is_on=config.console.tls)
    return loaded_of(config, BROKER_KEYS, settled)


def load_namesrv(given: Iterable[Given], machine: Machine) -> Loaded[NamesrvDaemonConfig]:
    """Return the configuration of `mqnamesrv`. The default bind address is 0.0.0.0, as in RocketMQ. Raises
    StartError."""
    settled = settle(given, NAMESRV_KEYS)
    home = machine.home / "namesrv"
    defaults = NamesrvConfig(bind_address=EVERYWHERE, kv_config_path=home / "kvConfig.json")
    namesrv = msgspec.structs.replace(defaults, **settled.of("namesrv"))
    config = NamesrvDaemonConfig(
        namesrv=namesrv,
        remoting=RemotingConfig(**settled.of("remoting")),
        tls=TlsConfig(**settled.of("tls")),
        security=security_config(settled, bound_address(namesrv.bind_address, machine)),
        quotas=QuotaConfig(**settled.of("quotas")),
        audit=AuditConfig(**settled.of("audit")),
        ops=msgspec.structs.replace(OpsConfig(host=namesrv.bind_address, port=0), **settled.of("ops")),
    )
    check_protection(config.security, config.tls, has_name_server=True)
    check_pages("metricsTls", config.tls, is_on=config.ops.metrics_tls)
    if config.security.namesrv_auth and config.security.accounts_file is None:
        raise StartError("namesrvAuth=true: expected with accountsFile")
    return loaded_of(config, NAMESRV_KEYS, settled)


def loaded_of(config: Config, catalogue: Catalogue, settled: Settled) -> Loaded[Config]:
    """Return the configuration with its effective settings and messages."""
    effective = effective_settings(config, catalogue.settings, settled.origins)
    return Loaded(config, effective, settled.warnings, settled.notes, settled.others)


def listen_config(settled: Settled, machine: Machine) -> ListenConfig:
    """Return the broker's addresses, by the rule in the docstring of this module."""
    given = settled.of("listen")
    bind, advertised = given.get("bind_host"), given.get("advertised_host")
    if bind:
        why = "bindAddress and brokerIP1 are set" if advertised else "bindAddress is set"
    else:
        why = "brokerIP1 is set" if advertised else "neither bindAddress nor brokerIP1 is set"
        bind = EVERYWHERE if advertised else LOOPBACK
    if not advertised and is_wildcard(bind):
        advertised = machine.pod_host or machine.address
        why += f", {advertised} is this pod's" if machine.pod_host else f", {advertised} is this machine's"
        if is_loopback(advertised) or is_wildcard(advertised):
            expected = "expected with brokerIP1, the address that clients connect to: none was found on this machine"
            raise StartError(f"bindAddress={bind}: {expected}")
    advertised = advertised or bind
    ip = advertised if is_address(advertised) else machine.resolve(advertised)
    port = given.get("port", 10911)
    return ListenConfig(bind_host=bind, advertised_host=advertised, advertised_ip=ip, port=port, why=why)


def replication_config(settled: Settled, listen: ListenConfig, machine: Machine) -> ReplicationConfig:
    """Return the settings of replication of a broker with these addresses."""
    defaults = ReplicationConfig(
        advertised_host=listen.advertised_host,
        ha_allowed_networks=default_networks(bound_address(listen.bind_host, machine)),
    )
    return msgspec.structs.replace(defaults, **settled.of("replication"))


def store_config(settled: Settled, listen: ListenConfig) -> StoreConfig:
    """Return the store's settings. Raises StartError if the log would be outside of the root directory."""
    given = dict(settled.of("store"))
    root = given.pop("store_path_root_dir", Path("store"))
    commit_log = given.pop("commit_log_path", root / "commitlog")
    if os.path.normpath(commit_log) != os.path.normpath(root / "commitlog"):
        where = settled.origins["storePathCommitLog"]
        expected = f"{root / 'commitlog'}, a log outside storePathRootDir is not part of this version"
        raise StartError(f"{where}: storePathCommitLog={commit_log}: expected {expected}")
    host = encode_host(listen.advertised_ip, listen.port)
    is_follower = settled.of("replication").get("broker_role") is BrokerRole.SLAVE
    return StoreConfig(store_path_root_dir=root, store_host=host, is_follower=is_follower, **given)


def embedded_namesrv(settled: Settled, listen: ListenConfig, store: StoreConfig) -> NamesrvConfig:
    """Return the settings of the name server inside a broker: it uses the broker's address and directory."""
    kv_config_path = store.store_path_root_dir / "config" / "kvConfig.json"
    defaults = NamesrvConfig(bind_address=listen.bind_host, kv_config_path=kv_config_path)
    return msgspec.structs.replace(defaults, **settled.of("namesrv"))


def security_config(settled: Settled, bound: str) -> SecurityConfig:
    """Return the settings that protect a daemon that is bound to this IP address."""
    defaults = SecurityConfig(
        admin_allowed_networks=default_networks(bound), secret_files=tuple(map(Path, settled.secret_files))
    )
    return msgspec.structs.replace(defaults, **settled.of("security"))


def bound_address(host: str, machine: Machine) -> str:
    """Return the IP address that a daemon is bound to; the machine's own one if it is bound to all addresses."""
    if is_wildcard(host):
        return machine.address
    return host if is_address(host) else machine.resolve(host)


def check_pages(key: str, tls: TlsConfig, *, is_on: bool) -> None:
    """Check that pages can use TLS if the setting `key` is on. Raises StartError otherwise."""
    if is_on and tls.mode is TlsMode.DISABLED:
        raise StartError(f"{key}=true: expected with tls.server.mode=permissive or enforcing")


def check_protection(security: SecurityConfig, tls: TlsConfig, *, has_name_server: bool) -> None:
    """Check that no setting lacks another one that it needs. Raises StartError otherwise."""
    if security.namesrv_auth and not has_name_server:
        raise StartError(
            "namesrvAuth=true: expected without namesrvAddr, because it protects the broker's own name server"
        )
    asks = tls.mode is not TlsMode.DISABLED and tls.need_client_auth is not ClientAuth.NONE and tls.verifies_clients
    if security.tls_auth_mapping and not asks:
        raise StartError(
            "tlsAuthMapping: expected with tls.server.need.client.auth=optional or require, and "
            "tls.server.trustCertPath"
        )


def check_role(config: DaemonConfig) -> None:
    """Check that the broker's id and port fit its role. Raises StartError otherwise."""
    role, broker_id = config.replication.broker_role, config.broker.broker_id
    if role is BrokerRole.SLAVE and broker_id == 0:
        raise StartError("brokerRole=SLAVE: expected with a brokerId above 0, which no other slave of its name has")
    if role is BrokerRole.SLAVE and not config.broker.namesrv_addresses:
        raise StartError("brokerRole=SLAVE: expected with namesrvAddr, where the slave finds its master")
    if role is not BrokerRole.SLAVE and broker_id != 0:
        raise StartError(f"brokerId={broker_id}: expected 0, or with brokerRole=SLAVE")
    if config.replication.serves_slaves and config.ha_port > LAST_PORT:
        raise StartError(f"listenPort={config.listen.port}: expected with haListenPort, as there is no next port")


def check_link(config: DaemonConfig) -> None:
    """Check the settings of a node of a replication link. Raises StartError."""
    replication, node = config.replication, config.replication.ha_node_id
    if not replication.is_linked:
        if node:
            raise StartError(f"haNodeId={node}: expected with haPeers")
        return
    peers = {peer.name: peer for peer in replication.ha_peers}
    leader, count = replication.ha_peers[0], replication.min_in_sync_replicas
    if node not in peers:
        raise StartError(f"haNodeId={node}: expected one of haPeers: {', '.join(peers)}")
    if (role := replication.broker_role) is BrokerRole.SLAVE and replication.leads:
        raise StartError(
            f"brokerRole=SLAVE: expected the role of a master, because haPeers begins with this node, {node}"
        )
    if role is not BrokerRole.SLAVE and not replication.leads:
        raise StartError(
            f"brokerRole={role.value}: expected SLAVE, because haPeers begins with the leader, {leader.name}"
        )
    if replication.leads and leader.port != config.ha_port:
        raise StartError(f"haPeers: {leader}: expected port {config.ha_port}, where this node listens (haListenPort)")
    if not 1 <= count <= len(peers):
        raise StartError(f"minInSyncReplicas={count}: expected at most the {len(peers)} nodes of haPeers")
    if role is BrokerRole.SYNC_MASTER and not config.store.is_sync_flush:
        raise StartError("flushDiskType=ASYNC_FLUSH: expected SYNC_FLUSH with brokerRole=SYNC_MASTER and haPeers")
    if replication.ha_cluster_secret is None and not uses_mutual_tls(config) and not is_local(config):
        raise StartError("haPeers: expected with haClusterSecret, or with TLS certificates that both sides verify")


def uses_mutual_tls(config: DaemonConfig) -> bool:
    """Return whether the nodes of a link verify the certificates of each other."""
    verifies = config.tls.mode is not TlsMode.DISABLED and config.tls.verifies_clients
    asks = config.tls.need_client_auth is not ClientAuth.NONE
    outbound = config.outbound_tls
    presents = outbound.is_on(config.tls.mode) and outbound.cert_path is not None
    return verifies and asks and presents and outbound.verifies_servers


def is_local(config: DaemonConfig) -> bool:
    """Return whether all nodes of a link are on this machine."""
    hosts = (config.listen.bind_host, *(peer.host for peer in config.replication.ha_peers))
    return all(is_loopback(host) for host in hosts)


def check_own_registration(config: DaemonConfig) -> None:
    """Check that the broker's own name server accepts its connections. Raises StartError otherwise."""
    if config.namesrv is None:
        return
    if not config.outbound_tls.is_on(config.tls.mode):
        if config.tls.mode is TlsMode.ENFORCING:
            raise StartError("tls.enable=false: expected true, because the broker's own name server enforces TLS")
    elif config.tls.need_client_auth is ClientAuth.REQUIRE and config.outbound_tls.cert_path is None:
        raise StartError(
            "tls.client.certPath: expected, because the broker's own name server requires a client certificate"
        )


def effective_settings(config: Any, settings: Iterable[Setting], origins: Mapping[str, str]) -> list[EffectiveSetting]:
    """Return the value of each key, defaults included; keys of missing parts are left out. `origins`: by key."""
    return [
        EffectiveSetting(setting.key, setting.shown(getattr(part, setting.field)), origins.get(setting.key, "default"))
        for setting in settings
        if hasattr(part := getattr(config, setting.section), setting.field)
    ]


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for all addresses of the machine."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def is_address(host: str) -> bool:
    """Return whether a host is an IP address (v4 or v6)."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
