"""Values for single parts that follow from several sections of the configuration: the broker's identity in every form,
its pools, and the settings that parts apply at run time."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from skylarkmq.broker.config.sections import LOOPBACK, DaemonConfig, NamesrvDaemonConfig, is_wildcard
from skylarkmq.broker.delivery.timer.admission import TimerConfig
from skylarkmq.broker.delivery.timer.timers import TimersConfig
from skylarkmq.broker.delivery.transactions.transactions import TransactionsConfig
from skylarkmq.broker.ha.config import BrokerRole
from skylarkmq.broker.metadata.consumer_offsets import OffsetsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig
from skylarkmq.broker.metadata.topics import TopicsConfig
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.ops.metrics.broker import Identity
from skylarkmq.broker.processors.consumer.client_manage import ClientManageConfig
from skylarkmq.broker.processors.pull.checks import PullConfig
from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.processors.send.recall import RecallConfig
from skylarkmq.broker.remoting.admission import Pool, PoolLimits
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.store.files.config import LIVE, StoreConfig
from skylarkmq.protocol.headers.namesrv import RegisterBrokerHeader

LIVE_REMOTING: Final = (
    *("max_connections", "max_idle_s", "transfer_by_copying", "unfinished_frames_host_percent"),
    *("unfinished_frame_min_rate", "unfinished_frame_slow_s"),
)
LIVE_TIMER: Final = ("max_delay_ms",)
LIVE_NAMESRV: Final = (
    "scan_not_active_broker_interval",
    "order_message_enable",
    "return_order_topic_config_to_broker",
    "need_wait_for_service",
    "delete_topic_with_broker_registration",
    "enable_all_topic_list",
    "enable_topic_list",
    *("max_route_brokers", "max_route_addresses", "max_route_topics", "max_route_queues", "max_kv_config_bytes"),
)

C = TypeVar("C", bound=msgspec.Struct)


def topics_config(config: DaemonConfig) -> TopicsConfig:
    """Return the settings of the topic table."""
    broker = config.broker
    return TopicsConfig(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name,
        broker_permission=broker.broker_permission,
        default_topic_queue_nums=broker.default_topic_queue_nums,
        auto_create_topic_enable=broker.auto_create_topic_enable,
        trace_topic=broker.msg_trace_topic_name if broker.trace_topic_enable else None,
        has_timers=config.store.timer_wheel_enable,
    )


def registration_of(config: DaemonConfig) -> RegisterBrokerHeader:
    """Return the broker's own data for its registration with name servers."""
    host, port = config.listen.advertised_host, config.listen.port
    return RegisterBrokerHeader(
        broker_name=config.broker.broker_name,
        broker_addr=address_text(host, port),
        cluster_name=config.broker.broker_cluster_name,
        ha_server_addr=address_text(config.replication.advertised_host, config.ha_port),
        broker_id=config.broker.broker_id,
        compressed=False,
    )


def embedded_address(namesrv: NamesrvConfig) -> str:
    """Return the address at which the broker reaches the name server in its own process."""
    host = namesrv.bind_address
    return address_text(LOOPBACK if is_wildcard(host) else host, namesrv.listen_port)


def address_text(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identity_of(config: DaemonConfig, boot_ms: int) -> Identity:
    """Return the broker's identity for the labels of its metrics."""
    return Identity(
        cluster=config.broker.broker_cluster_name,
        name=config.broker.broker_name,
        address=address_text(config.listen.advertised_host, config.listen.port),
        boot_ms=boot_ms,
    )


def pools_of(config: DaemonConfig) -> dict[str, Pool]:
    """Return every pool by name, with its capacity and limits."""
    return {name: Pool(name, capacity, limits) for name, (capacity, limits) in pool_limits_of(config).items()}


def pool_limits_of(config: DaemonConfig) -> dict[str, tuple[int, PoolLimits]]:
    """Return the capacity and the limits of each pool."""
    failure = config.fast_failure
    waits: dict[str, int] = msgspec.structs.asdict(config.waits) if failure.broker_fast_failure_enable else {}
    stall_ms = failure.os_page_cache_busy_time_out_mills if waits else None
    return {
        name: (
            capacity,
            PoolLimits(
                failure.thread_pool_queue_max_bytes,
                wait_ms=waits.get(name),
                stall_ms=stall_ms if name == "send" else None,
            ),
        )
        for name, capacity in msgspec.structs.asdict(config.pools).items()
    }


def groups_config(config: DaemonConfig) -> GroupsConfig:
    """Return the settings of subscription groups."""
    return GroupsConfig(auto_create_subscription_group=config.broker.auto_create_subscription_group)


def offsets_config(config: DaemonConfig) -> OffsetsConfig:
    """Return how often committed offsets are saved."""
    return OffsetsConfig(flush_consumer_offset_interval=config.broker.flush_consumer_offset_interval)


def send_config(config: DaemonConfig) -> SendConfig:
    """Return the settings for the checks of sends."""
    broker = config.broker
    return SendConfig(
        broker_ip=config.listen.advertised_ip,
        broker_permission=broker.broker_permission,
        start_accept_ms=broker.start_accept_send_request_time_stamp,
    )


def transactions_config(config: DaemonConfig) -> TransactionsConfig:
    """Return whether transactions are enabled, and the times of transaction checks."""
    broker = config.broker
    return TransactionsConfig(
        broker_ip=config.listen.advertised_ip,
        broker_name=broker.broker_name,
        store_host=config.store.store_host,
        reject_transaction_message=broker.reject_transaction_message,
        transaction_time_out=broker.transaction_time_out,
        transaction_check_max=broker.transaction_check_max,
        transaction_check_interval=broker.transaction_check_interval,
        file_reserved_time=config.store.file_reserved_time,
    )


def pull_config(config: DaemonConfig) -> PullConfig:
    """Return the settings for the checks of pulls, and for long polling."""
    broker = config.broker
    return PullConfig(
        broker_ip=config.listen.advertised_ip,
        broker_permission=broker.broker_permission,
        lite_pull_message_enable=broker.lite_pull_message_enable,
        long_polling_enable=broker.long_polling_enable,
        short_polling_time_mills=broker.short_polling_time_mills,
        is_slave=config.replication.broker_role is BrokerRole.SLAVE,
        slave_read_enable=broker.slave_read_enable,
        disk_fall_recorded=config.store.disk_fall_recorded,
        enable_property_filter=broker.enable_property_filter,
        filter_support_retry=broker.filter_support_retry,
    )


def notices_config(config: DaemonConfig) -> ClientManageConfig:
    """Return how groups are notified of their members, and which filters they may use."""
    broker = config.broker
    return ClientManageConfig(
        real_time_notify_consumer_change=broker.real_time_notify_consumer_change,
        notify_consumer_ids_changed_enable=broker.notify_consumer_ids_changed_enable,
        enable_property_filter=broker.enable_property_filter,
    )


def timers_config(config: DaemonConfig) -> TimersConfig:
    """Return the settings of timers."""
    store = config.store
    return TimersConfig(
        root=store.store_path_root_dir,
        admission=timer_config(config),
        window_slots=store.timer_roll_window_slot,
        log_file_size=store.mapped_file_size_timer_log,
        flush_interval_ms=store.timer_flush_interval_ms,
    )


def recall_config(config: DaemonConfig) -> RecallConfig:
    """Return whether timer messages may be recalled."""
    broker = config.broker
    return RecallConfig(
        is_enabled=broker.recall_message_enable,
        broker_name=broker.broker_name,
        cluster_name=broker.broker_cluster_name,
        region=broker.region_id,
        start_accept_ms=broker.start_accept_send_request_time_stamp,
        max_delay_ms=config.store.timer_max_delay_sec * 1000,
    )


def timer_config(config: DaemonConfig) -> TimerConfig:
    """Return the limits of timer messages."""
    store = config.store
    return TimerConfig(
        is_enabled=store.timer_wheel_enable,
        precision_ms=store.timer_precision_ms,
        max_delay_ms=store.timer_max_delay_sec * 1000,
        congested=store.timer_congest_num_each_slot,
    )


# Structs of which a part applies only some fields at run time: all other fields keep their values of the start.


def live_store(start: DaemonConfig) -> Callable[[DaemonConfig], StoreConfig]:
    """Return a function for the store's settings; only the fields in `broker.store.files.config.LIVE` are current."""
    return lambda config: _with(start.store, config.store, LIVE)


def live_remoting(start: DaemonConfig) -> Callable[[DaemonConfig], RemotingConfig]:
    """Return a function for the connection settings; only fields that need no other buffers are current."""
    return lambda config: _with(start.remoting, config.remoting, LIVE_REMOTING)


def live_namesrv(start: NamesrvConfig) -> Callable[[DaemonConfig | NamesrvDaemonConfig], NamesrvConfig]:
    """Return a function for the name server's settings; its addresses and file names stay as at the start."""
    return lambda config: start if config.namesrv is None else _with(start, config.namesrv, LIVE_NAMESRV)


def live_timer(start: DaemonConfig) -> Callable[[DaemonConfig], TimerConfig]:
    """Return a function for the limits of timer messages; only the maximum delay is current."""
    return lambda config: _with(timer_config(start), timer_config(config), LIVE_TIMER)


def _with(start: C, now: C, fields: Iterable[str]) -> C:
    return msgspec.structs.replace(start, **{field: getattr(now, field) for field in fields})
