"""The name servers of a broker: the registration with them, and the one in its own process.

outbound     connections to name servers, and of a slave to its master
name_server  the embedded name server; None: `namesrvAddr` names others
registrar    keeps the broker registered
"""

from collections.abc import Callable

from skylarkmq.broker.app.sections.addresses import address_text, advertised_address
from skylarkmq.broker.config.sections import LOOPBACK, DaemonConfig, is_wildcard
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.registration import Registrar, RegistrationTiming
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls
from skylarkmq.protocol.headers.namesrv import RegisterBrokerHeader
from skylarkmq.protocol.signature import Signer


class Registration:
    """The registration of one broker with its `topics`. `signer` signs its requests; None: they are not signed.
    `may_open`: whether a new connection to the embedded name server may stay."""

    def __init__(
        self,
        config: DaemonConfig,
        topics: TopicTable,
        server_tls: ServerTls,
        client_tls: ReloadingContext | None,
        signer: Signer | None,
        may_open: Callable[[RequestSource], bool],
    ) -> None:
        self._topics = topics
        self.outbound = Outbound(config.remoting, client_tls, signer=signer)
        self.name_server: NameServer | None = None
        self.addresses = config.broker.namesrv_addresses
        """The name servers: `host:port` each."""
        if config.namesrv is not None:
            self.name_server = NameServer(config.namesrv, config.remoting, tls=server_tls, may_open=may_open)
            self.addresses = (embedded_address(config.namesrv),)
        self.registrar = Registrar(
            self.outbound,
            self.addresses,
            registration_of(config),
            topics.registration_body,
            RegistrationTiming.every(config.broker.register_name_server_period),
        )

    def __repr__(self) -> str:
        return f"<Registration {self.registrar!r} {self.name_server!r}>"

    def attach(self) -> None:
        """Register changes of topics."""
        self._topics.on_change(self.registrar.changed)


def registration_of(config: DaemonConfig) -> RegisterBrokerHeader:
    """Return the broker's own data for its registration with name servers."""
    return RegisterBrokerHeader(
        broker_name=config.broker.broker_name,
        broker_addr=advertised_address(config),
        cluster_name=config.broker.broker_cluster_name,
        ha_server_addr=address_text(config.replication.advertised_host, config.ha_port),
        broker_id=config.broker.broker_id,
        compressed=False,
    )


def embedded_address(namesrv: NamesrvConfig) -> str:
    """Return the address at which the broker reaches the name server in its own process."""
    host = namesrv.bind_address
    return address_text(LOOPBACK if is_wildcard(host) else host, namesrv.listen_port)
