"""What parts are given that follows from several sections of the configuration: who the broker is, in every form, and
its pools."""

import msgspec

from broker.config import LOOPBACK, DaemonConfig, is_wildcard
from broker.metadata.topics import TopicsConfig
from broker.namesrv.config import NamesrvConfig
from broker.ops.metrics import Identity
from broker.remoting.admission import Pool, PoolLimits
from broker.store.config import parse_delay_levels
from protocol.headers.namesrv import RegisterBrokerHeader


def topics_config(config: DaemonConfig) -> TopicsConfig:
    """The topic table's part of the configuration."""
    broker = config.broker
    return TopicsConfig(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name,
        broker_permission=broker.broker_permission,
        default_topic_queue_nums=broker.default_topic_queue_nums,
        auto_create_topic_enable=broker.auto_create_topic_enable,
        delay_levels=len(parse_delay_levels(config.store.message_delay_level)),
    )


def registration_of(config: DaemonConfig) -> RegisterBrokerHeader:
    """What name servers are told of the broker itself."""
    host, port = config.listen.advertised_host, config.listen.port
    return RegisterBrokerHeader(
        broker_name=config.broker.broker_name,
        broker_addr=address_text(host, port),
        cluster_name=config.broker.broker_cluster_name,
        ha_server_addr=address_text(host, port + 1),
        broker_id=config.broker.broker_id,
        compressed=False,
    )


def embedded_address(namesrv: NamesrvConfig) -> str:
    """Where the broker reaches the name server in its own process."""
    host = namesrv.bind_address
    return address_text(LOOPBACK if is_wildcard(host) else host, namesrv.listen_port)


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def identity_of(config: DaemonConfig, boot_ms: int) -> Identity:
    """Who the broker is, as the labels of its metrics say."""
    return Identity(
        cluster=config.broker.broker_cluster_name,
        name=config.broker.broker_name,
        address=address_text(config.listen.advertised_host, config.listen.port),
        boot_ms=boot_ms,
    )


def pools_of(config: DaemonConfig) -> dict[str, Pool]:
    """Every pool by name, with its part of the configuration."""
    failure = config.fast_failure
    waits: dict[str, int] = msgspec.structs.asdict(config.waits) if failure.broker_fast_failure_enable else {}
    stall_ms = failure.os_page_cache_busy_time_out_mills if waits else None
    return {
        name: Pool(
            name,
            capacity,
            PoolLimits(
                failure.thread_pool_queue_max_bytes,
                wait_ms=waits.get(name),
                stall_ms=stall_ms if name == "send" else None,
            ),
        )
        for name, capacity in msgspec.structs.asdict(config.pools).items()
    }
