"""The console on `consolePort`: served by the daemon, made by a factory that its command gives.

The console is a client of the broker, and the broker imports no clients (docs/architecture.md). So `mqbroker` passes a
factory, which gets a ConsoleBackend and returns an ASGI application with a lifespan.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.types import ASGIApp

from skylarkmq.broker.access.console_accounts import ConsoleAccounts
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.sections import ConsoleConfig, EffectiveSetting
from skylarkmq.broker.ops.pages.page_server import PagesAddress, PageServer
from skylarkmq.broker.remoting.tls import ServerTls


class ConsoleBackend(NamedTuple):
    """The values of a broker that its console needs.

    `name_servers`: `host:port;host:port`. `tls`: for connections to them and to brokers; None: plain ones. `accounts`
    None: no login. `host`: the address of the console; `is_secure`: it is served over TLS.
    """

    name_servers: str
    tls: ssl.SSLContext | None
    accounts: ConsoleAccounts | None
    host: str
    is_secure: bool
    broker_name: str
    settings: Callable[[], Sequence[EffectiveSetting]]


ConsoleFactory = Callable[[ConsoleBackend], ASGIApp]


def console_server(
    config: ConsoleConfig, factory: ConsoleFactory | None, backend: ConsoleBackend, tls: ServerTls
) -> PageServer:
    """Return the server of the console. Raises StartError without a factory."""
    if factory is None:
        raise StartError("consolePort: expected with the command mqbroker, this process has no console")
    address = PagesAddress("console", config.host, config.port, "consolePort")
    return PageServer(factory(backend), address, tls=tls if config.tls else None, lifespan="on")
