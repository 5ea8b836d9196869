"""What a daemon runs with: one frozen struct per part.

Nothing here reads a file or asks the machine: `load_broker` and `load_namesrv` take the keys that were given
(`broker/config/parsing.py`; which key sets which field: `broker/config/keys.py`) and a `Machine` for the defaults that
come from it, and return values. They raise StartError for what cannot be, such as a known key with a value that it
cannot have.

Addresses. A broker binds to `bindAddress`; without it to 0.0.0.0 if `brokerIP1` is set (which is what it tells clients
to connect to, and may belong to a router in front of it); without either to 127.0.0.1, so that a daemon that nobody
configured is not open to a network. What it advertises is `brokerIP1`, else the address it binds to, else, when that
is a wildcard, the machine's own. The name server inside a broker and the health pages bind like the broker.

Without `namesrvAddr` a broker brings its own name server; with it, it registers with those.
"""

import ipaddress
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import Catalogue, Given, Setting, Settled, settle, shown
from skylarkmq.broker.config.protected_keys import DEFAULT
from skylarkmq.broker.errors import StartError
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.protocol.message_id import encode_host

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"

Config = TypeVar("Config")


class Machine(NamedTuple):
    """What defaults take from the machine."""

    host_name: str  # brokerName
    address: str  # advertised when bound to all addresses
    home: Path  # under it mqnamesrv keeps its files
    resolve: Callable[[str], str]  # host name -> address; StartError if it has none


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who this broker is and what it lets clients do. Periods in ms."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str  # the host's name unless given; brokers of one name are one group of replicas to clients
    broker_id: int = 0  # 0 is a master, and this version has nothing else
    namesrv_addresses: tuple[str, ...] = ()  # "host:port" each; none: the name server in this process
    broker_permission: int = 6  # 2 may be written, 4 may be read, 6 both
    default_topic_queue_nums: int = 8  # most queues that an auto-created topic gets
    auto_create_topic_enable: bool = True  # a send to an unknown topic makes it
    auto_create_subscription_group: bool = True  # an unknown group that pulls is made
    region_id: str = "DefaultRegion"  # MSG_REGION of send answers
    trace_on: bool = True  # TRACE_ON of send answers
    start_accept_send_request_time_stamp: int = 0  # Unix ms before which sends are refused
    long_polling_enable: bool = True  # a pull that finds nothing waits as long as its request says
    short_polling_time_mills: int = 1_000  # how long it waits if not
    lite_pull_message_enable: bool = True  # 361 may be asked
    enable_property_filter: bool = False  # subscriptions by SQL92 expressions over the properties
    filter_support_retry: bool = False  # such a subscription holds for what its group sent back, too
    slave_read_enable: bool = False  # groups that read from disk are sent to their whichBrokerWhenConsumeSlowly
    real_time_notify_consumer_change: bool = True  # members of a group hear at once who came or left
    store_reply_message_enable: bool = True  # replies of request-reply are stored, too
    use_server_side_reset_offset: bool = True  # groups are reset by the broker, else by their members
    rebalance_lock_max_live_time: int = 60_000  # a queue that its owner does not lock again meanwhile may go to another
    notify_consumer_ids_changed_enable: bool = True  # members of groups hear of changes at all
    register_name_server_period: int = 30_000  # kept between 10 s and 60 s
    flush_consumer_offset_interval: int = 5_000  # committed offsets that a crash may take back
    recall_message_enable: bool = False  # timer messages may be taken back (370)
    flush_delay_offset_interval: int = 10_000  # delayed messages that a crash may have delivered twice
    reject_transaction_message: bool = False  # half messages are refused
    transaction_time_out: int = 6_000  # from the birth of a half message, before its producers are asked about it
    transaction_check_max: int = 15  # times, then it is discarded
    transaction_check_interval: int = 30_000  # between two rounds of questions
    trace_topic_enable: bool = False  # the topic for traces of messages is made at the start
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    config_black_list: tuple[str, ...] = DEFAULT  # keys that 25 may not change, besides those of black_list.ALWAYS


class ListenConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is reached."""

    bind_host: str  # an address of this machine, or a wildcard
    advertised_host: str  # what name servers tell clients
    advertised_ip: str  # the same as an address, which stands in records and message ids
    port: int
    why: str  # which settings decided, for the log


class PoolsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a kind that may wait for their answers; more are refused with SYSTEM_BUSY."""

    send: int = 10_000
    pull: int = 100_000  # parked ones of both kinds among them
    lite_pull: int = 100_000
    query: int = 20_000
    client_manage: int = 1_000_000
    heartbeat: int = 50_000
    consumer_manage: int = 1_000_000
    end_transaction: int = 100_000
    admin: int = 10_000
    reply: int = 10_000


class WaitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests of a pool may wait before they are looked at, ms; older ones are refused with SYSTEM_BUSY."""

    send: int = 200
    pull: int = 5_000
    lite_pull: int = 5_000
    heartbeat: int = 31_000
    end_transaction: int = 3_000
    admin: int = 5_000


class FastFailureConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all pools."""

    broker_fast_failure_enable: bool = True  # without, requests wait as long as it takes
    os_page_cache_busy_time_out_mills: int = 1_000  # sends that a write has held up so long hear of that
    thread_pool_queue_max_bytes: int = 48 << 20  # memory of one pool's requests that wait (ours)


class OpsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Health pages and metrics."""

    host: str
    port: int = 5557  # 0: none, as in `mqnamesrv`, of which several may stand on a machine
    metrics_exporter_type: str = "PROM"  # DISABLE takes /metrics away; RocketMQ's other values do the same as PROM
    metrics_label: str = ""  # more labels of native metrics, name:value,name:value
    metrics_otel_cardinality_limit: int = 50_000  # series of one metric; those beyond are told as one
    enable_connection_metrics: bool = True
    enable_lag_and_dlq_metrics: bool = True
    enable_message_store_metrics: bool = True
    enable_remoting_metrics: bool = True
    enable_request_metrics: bool = True
    enable_stats_metrics: bool = True
    enable_transaction_metrics: bool = True


class DaemonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `mqbroker` runs with."""

    broker: BrokerConfig
    listen: ListenConfig
    remoting: RemotingConfig
    tls: TlsConfig
    outbound_tls: OutboundTlsConfig
    pools: PoolsConfig
    waits: WaitsConfig
    fast_failure: FastFailureConfig
    store: StoreConfig
    ops: OpsConfig
    limits: LimitsConfig
    namesrv: NamesrvConfig | None  # the one in this process


class NamesrvDaemonConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `mqnamesrv` runs with."""

    namesrv: NamesrvConfig
    remoting: RemotingConfig
    tls: TlsConfig
    ops: OpsConfig


class EffectiveSetting(msgspec.Struct, frozen=True):
    """One row of what `-p` prints."""

    key: str
    value: str
    origin: str  # "default", or where it was given


class Loaded(NamedTuple, Generic[Config]):
    """A configuration, how it came about, and what an operator should hear about the keys it was made of.

    `others`: the texts of keys that are not acted on; `file`: where most of it stands, if it stands in one.
    """

    config: Config
    effective: Sequence[EffectiveSetting] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    others: Mapping[str, str] = {}
    file: Path | None = None


def load_broker(given: Iterable[Given], machine: Machine) -> Loaded[DaemonConfig]:
    """The configuration of `mqbroker` from the keys that were given, weakest source first."""
    settled = settle(given, BROKER_KEYS)
    listen = listen_config(settled, machine)
    store = store_config(settled, listen)
    broker = msgspec.structs.replace(BrokerConfig(broker_name=machine.host_name), **settled.of("broker"))
    config = DaemonConfig(
        broker=broker,
        listen=listen,
        remoting=RemotingConfig(**settled.of("remoting")),
        tls=TlsConfig(**settled.of("tls")),
        outbound_tls=OutboundTlsConfig(**settled.of("outbound_tls")),
        pools=PoolsConfig(**settled.of("pools")),
        waits=WaitsConfig(**settled.of("waits")),
        fast_failure=FastFailureConfig(**settled.of("fast_failure")),
        store=store,
        ops=msgspec.structs.replace(OpsConfig(host=listen.bind_host), **settled.of("ops")),
        limits=LimitsConfig(**settled.of("limits")),
        namesrv=None if broker.namesrv_addresses else embedded_namesrv(settled, listen, store),
    )
    check_own_registration(config)
    return loaded_of(config, BROKER_KEYS, settled)


def load_namesrv(given: Iterable[Given], machine: Machine) -> Loaded[NamesrvDaemonConfig]:
    """The configuration of `mqnamesrv`. It listens on all addresses unless told otherwise, as RocketMQ's does."""
    settled = settle(given, NAMESRV_KEYS)
    home = machine.home / "namesrv"
    defaults = NamesrvConfig(bind_address=EVERYWHERE, kv_config_path=home / "kvConfig.json")
    namesrv = msgspec.structs.replace(defaults, **settled.of("namesrv"))
    config = NamesrvDaemonConfig(
        namesrv=namesrv,
        remoting=RemotingConfig(**settled.of("remoting")),
        tls=TlsConfig(**settled.of("tls")),
        ops=msgspec.structs.replace(OpsConfig(host=namesrv.bind_address, port=0), **settled.of("ops")),
    )
    return loaded_of(config, NAMESRV_KEYS, settled)


def loaded_of(config: Config, catalogue: Catalogue, settled: Settled) -> Loaded[Config]:
    """The configuration with what is known about it."""
    effective = effective_settings(config, catalogue.settings, settled)
    return Loaded(config, effective, settled.warnings, settled.notes, settled.others)


def listen_config(settled: Settled, machine: Machine) -> ListenConfig:
    """The rule for addresses: the docstring of this module."""
    given = settled.of("listen")
    bind, advertised = given.get("bind_host"), given.get("advertised_host")
    if bind:
        why = "bindAddress and brokerIP1 are set" if advertised else "bindAddress is set"
    else:
        why = "brokerIP1 is set" if advertised else "neither bindAddress nor brokerIP1 is set"
        bind = EVERYWHERE if advertised else LOOPBACK
    advertised = advertised or (machine.address if is_wildcard(bind) else bind)
    ip = advertised if is_address(advertised) else machine.resolve(advertised)
    port = given.get("port", 10911)
    return ListenConfig(bind_host=bind, advertised_host=advertised, advertised_ip=ip, port=port, why=why)


def store_config(settled: Settled, listen: ListenConfig) -> StoreConfig:
    """The store's part; StartError if the log would have to lie outside the root, where an existing one may be."""
    given = dict(settled.of("store"))
    root = given.pop("store_path_root_dir", Path("store"))
    commit_log = given.pop("commit_log_path", root / "commitlog")
    if os.path.normpath(commit_log) != os.path.normpath(root / "commitlog"):
        where = settled.origins["storePathCommitLog"]
        expected = f"{root / 'commitlog'}, a log outside storePathRootDir is not part of this version"
        raise StartError(f"{where}: storePathCommitLog={commit_log}: expected {expected}")
    host = encode_host(listen.advertised_ip, listen.port)
    return StoreConfig(store_path_root_dir=root, store_host=host, **given)


def embedded_namesrv(settled: Settled, listen: ListenConfig, store: StoreConfig) -> NamesrvConfig:
    """The name server inside a broker: it listens where the broker does and keeps its file with the broker's."""
    kv_config_path = store.store_path_root_dir / "config" / "kvConfig.json"
    defaults = NamesrvConfig(bind_address=listen.bind_host, kv_config_path=kv_config_path)
    return msgspec.structs.replace(defaults, **settled.of("namesrv"))


def check_own_registration(config: DaemonConfig) -> None:
    """A broker that its own name server would not let in: StartError."""
    if config.namesrv is None:
        return
    if not config.outbound_tls.is_on(config.tls.mode):
        if config.tls.mode is TlsMode.ENFORCING:
            raise StartError("tls.enable=false: expected true, the broker's own name server is enforcing TLS")
    elif config.tls.need_client_auth is ClientAuth.REQUIRE and config.outbound_tls.cert_path is None:
        raise StartError("tls.client.certPath: expected, the broker's own name server requires a certificate of it")


def effective_settings(config: Any, settings: Iterable[Setting], settled: Settled) -> list[EffectiveSetting]:
    """What each key comes to, defaults included; keys of a part that is not there are left out."""
    return [
        EffectiveSetting(setting.key, shown(getattr(part, setting.field)), settled.origins.get(setting.key, "default"))
        for setting in settings
        if hasattr(part := getattr(config, setting.section), setting.field)
    ]


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of the machine."""
    return is_address(host) and ipaddress.ip_address(host).is_unspecified


def is_address(host: str) -> bool:
    """Whether a host is an IP address, of either version."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
