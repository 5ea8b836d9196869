"""Structs of which a part applies only some fields at run time: all other fields keep their values of the start."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from skylarkmq.broker.app.sections.delivery import timer_config
from skylarkmq.broker.config.sections import DaemonConfig, NamesrvDaemonConfig
from skylarkmq.broker.delivery.timer.admission import TimerConfig
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.store.files.config import LIVE, StoreConfig

LIVE_REMOTING: Final = (
    "max_connections", "max_idle_s", "transfer_by_copying", "unfinished_frames_host_percent",
    "unfinished_frame_min_rate", "unfinished_frame_slow_s",
)  # fmt: skip
LIVE_TIMER: Final = ("max_delay_ms",)
LIVE_NAMESRV: Final = (
    "scan_not_active_broker_interval",
    "order_message_enable",
    "return_order_topic_config_to_broker",
    "need_wait_for_service",
    "delete_topic_with_broker_registration",
    "enable_all_topic_list",
    "enable_topic_list",
    "max_route_brokers", "max_route_addresses", "max_route_topics", "max_route_queues", "max_kv_config_bytes",
)  # fmt: skip

C = TypeVar("C", bound=msgspec.Struct)


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
