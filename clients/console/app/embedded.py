"""The console that a broker serves on `consolePort`. The broker passes its addresses, accounts and settings."""

import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final, Protocol

from starlette.applications import Starlette

from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import Accounts, ConsoleOptions, OwnSetting

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Backend(Protocol):
    """A broker: `broker.ops.pages.console.ConsoleBackend`."""

    @property
    def name_servers(self) -> str: ...
    @property
    def tls(self) -> ssl.SSLContext | None: ...
    @property
    def accounts(self) -> Accounts | None: ...
    @property
    def host(self) -> str: ...
    @property
    def is_secure(self) -> bool: ...
    @property
    def broker_name(self) -> str: ...
    @property
    def settings(self) -> Callable[[], Sequence[OwnSetting]]: ...


def embedded_console(backend: Backend) -> Starlette:
    """Return the console of a broker."""
    return application(
        ConsoleOptions(
            target=Target(backend.name_servers, backend.tls),
            accounts=backend.accounts,
            is_secure=backend.is_secure,
            hosts=allowed_hosts(backend.host),
            own_broker=backend.broker_name,
            own_settings=backend.settings,
        )
    )


def allowed_hosts(host: str) -> frozenset[str]:
    """Return the names that browsers may use for a console on this address; none: all names."""
    return LOOPBACK_NAMES | {host.lower()} if is_local(host) else frozenset()


def is_local(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
