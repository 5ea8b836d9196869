"""The name server's settings: RocketMQ's names in snake case.

Defaults: docs/reference/behaviour.md, "Operator settings".
"""

from pathlib import Path

import msgspec

from skylarkmq.broker.base.protected_keys import DEFAULT


class NamesrvConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One name server, in a process of its own or in a broker's process."""

    bind_address: str  # an address of this machine, or 0.0.0.0 for all
    listen_port: int = 9876  # the port for brokers and clients
    kv_config_path: Path  # the key-value configuration (100, 101, 102, 219), saved at each change
    scan_not_active_broker_interval: int = 5_000  # ms between scans for silent brokers
    order_message_enable: bool = False  # the route of a topic includes its ordering configuration
    return_order_topic_config_to_broker: bool = True  # a registering broker gets all ordering configurations
    need_wait_for_service: bool = False  # refuse route requests after the start until brokers have had time to register
    wait_seconds_for_service: int = 45  # for how many seconds route requests are refused
    delete_topic_with_broker_registration: bool = False  # a registration removes the topics that it no longer lists
    enable_all_topic_list: bool = True  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) is allowed
    enable_topic_list: bool = True  # GET_TOPICS_BY_CLUSTER (224) is allowed
    max_route_brokers: int = 1_024  # maximum number of broker names
    max_route_addresses: int = 64  # maximum number of addresses of one broker name
    max_route_topics: int = 100_000  # maximum number of topics of all brokers
    max_route_queues: int = 65_536  # maximum number of queues of a topic on one broker
    max_kv_config_bytes: int = 1 << 20  # maximum size of all keys and values; each change writes all of them
    config_black_list: tuple[str, ...] = DEFAULT  # further keys that UPDATE_NAMESRV_CONFIG (318) must not change
