"""The broker's own data for its name servers."""

from skylarkmq.broker.app.sections.addresses import address_text
from skylarkmq.broker.config.sections import LOOPBACK, DaemonConfig, is_wildcard
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.protocol.headers.namesrv import RegisterBrokerHeader


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
