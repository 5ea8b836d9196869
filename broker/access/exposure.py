"""Listeners that other machines can use without proof of an account: one warning at the start, and a metric.

A listener is closed to others if it is bound to the loopback address, if TLS with a verified client certificate is
required, or if requests need an account: those of the broker with access control, those of a name server that change
anything with `namesrvAuth`. The port for slaves has neither TLS nor accounts.
"""

import logging
from typing import Final, NamedTuple

from skylarkmq.broker.base.address_ranges import is_loopback
from skylarkmq.broker.remoting.config import ClientAuth, TlsConfig, TlsMode

ADVICE: Final = {
    "broker": "aclEnable or authenticationEnabled",
    "name_server": "namesrvAuth",
    "replicas": "haAllowedNetworks",
}

log = logging.getLogger(__name__)


class Listener(NamedTuple):
    """One listening address: `broker`, `name_server` or `replicas`, and whether its requests need an account."""

    name: str
    host: str
    needs_account: bool
    has_tls: bool = True  # whether it follows the settings of TLS

    def is_open(self, tls: TlsConfig) -> bool:
        """Return whether other machines can use it without proof of an account."""
        needs_certificate = tls.mode is TlsMode.ENFORCING and tls.need_client_auth is ClientAuth.REQUIRE
        is_local = is_loopback(self.host) or self.host == "localhost"
        return not (is_local or self.needs_account or (self.has_tls and needs_certificate))


class Exposure:
    """The listeners of a daemon. Those that are open are logged once, when this is created."""

    def __init__(self, tls: TlsConfig, *listeners: Listener) -> None:
        self.is_open = {listener.name: listener.is_open(tls) for listener in listeners}
        """Whether a listener is open, by name."""
        if any(self.is_open.values()):
            names = [name for name, is_open in self.is_open.items() if is_open]
            log.warning(
                "other machines can use this daemon without an account listeners=%s settings=%s",
                ",".join(names),
                ", ".join((*(ADVICE[name] for name in names), "tls.server.mode and tls.server.need.client.auth")),
            )

    def __repr__(self) -> str:
        return f"<Exposure {self.is_open}>"
