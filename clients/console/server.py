"""Serve a console on an address of this machine: the part of `mqadmin console` after its options."""

import socket
from typing import Final

import uvicorn

from skylarkmq.clients.connection.signing import Credentials
from skylarkmq.clients.console.application import application
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.embedded import allowed_hosts, is_local
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.errors import InvalidArgument

BACKLOG: Final = 128
GRACE_S: Final = 2


def serve(target: Target, credentials: Credentials | None, host: str, port: int, *, is_read_only: bool) -> None:
    """Serve until SIGINT or SIGTERM. The first line on stdout is the address.

    InvalidArgument if the address is not one of the loopback device: the console would act with these credentials for
    every client that can reach it. OSError if the address cannot be bound.
    """
    if not is_local(host):
        raise InvalidArgument(
            f"{host} is not a loopback address, and this console has no login. Use 127.0.0.1 and a tunnel "
            "(ssh -L), or consolePort of a broker with access control."
        )
    app = application(ConsoleOptions(target, credentials, is_read_only=is_read_only, hosts=allowed_hosts(host)))
    listener = socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
    )
    with listener:
        shown = f"[{host}]" if ":" in host else host
        print(f"console: http://{shown}:{listener.getsockname()[1]}/", flush=True)  # noqa: T201
        config = uvicorn.Config(
            app, ws="none", lifespan="on", log_config=None, log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])
