"""The name server's settings: RocketMQ's names in snake case. Defaults: docs/formats.md, "Operator settings"."""

from pathlib import Path

import msgspec

from skylarkmq.broker.config.protected_keys import DEFAULT


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One name server, in a process of its own or inside a broker's."""

    bind_address: str
    listen_port: int = 9876
    kv_config_path: Path  # the key-value configuration (100, 101, 102, 219), saved at each change
    scan_not_active_broker_interval: int = 5_000  # ms between looks for brokers that fell silent
    order_message_enable: bool = False  # the route of a topic also tells its ordering configuration
    return_order_topic_config_to_broker: bool = True  # a registering broker is told all ordering configurations
    need_wait_for_service: bool = False  # refuse routes after the start until brokers had time to register
    wait_seconds_for_service: int = 45  # s of that refusal
    delete_topic_with_broker_registration: bool = False  # a registration withdraws the topics it no longer lists
    enable_all_topic_list: bool = True  # 206 may be asked
    enable_topic_list: bool = True  # 224 may be asked
    max_route_brokers: int = 1_024  # broker names
    max_route_addresses: int = 64  # of one broker name
    max_route_topics: int = 100_000
    max_route_queues: int = 65_536  # of a topic on one broker
    max_kv_config_bytes: int = 1 << 20  # keys and values together; each change writes all of them
    config_black_list: tuple[str, ...] = DEFAULT  # keys that 318 may not change, besides those of black_list.ALWAYS
