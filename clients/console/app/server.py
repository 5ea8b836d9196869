"""Serve a console on an address of this machine: the part of `mqadmin console` after its options.

Connections and requests have the limits of the broker's own console (`skylarkmq.http_connections`).
"""

import asyncio
import socket
import ssl
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvicorn

from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.app.embedded import allowed_hosts, is_local
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.cluster_accounts import ClusterAccounts
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.http_connections import bounded_protocol

BACKLOG: Final = 128
GRACE_S: Final = 2
IDLE_S: Final = 5


class Certificate(NamedTuple):
    """The certificate of the console; its key may be in the same file."""

    cert: Path
    key: Path | None = None


class Listen(NamedTuple):
    """Where a console listens, and its certificate; without one it is served by plain HTTP."""

    host: str
    port: int
    certificate: Certificate | None = None


def serve(
    target: Target, credentials: Credentials | None, listen: Listen, *, has_login: bool, is_read_only: bool
) -> None:
    """Serve until SIGINT or SIGTERM. The first line on stdout is the address.

    `has_login`: each session has the account of its login, instead of these credentials.

    InvalidArgument if the address is not one of the loopback device and there is no login, because the console would
    act with these credentials for every client that can reach it, or if the certificate cannot be used. ClientError if
    the cluster cannot verify a login. OSError if the address cannot be bound.
    """
    host, port, certificate = listen
    if not is_local(host) and not has_login:
        raise InvalidArgument(
            f"{host} is not a loopback address, and this console has no login. Give --login, use 127.0.0.1 and a "
            "tunnel (ssh -L), or consolePort of a broker with access control."
        )
    accounts = ClusterAccounts(target) if has_login else None
    if accounts is not None:
        asyncio.run(accounts.check_cluster())
    options = ConsoleOptions(
        target,
        None if has_login else credentials,
        accounts=accounts,
        is_read_only=is_read_only,
        is_secure=certificate is not None,
        hosts=frozenset() if has_login else allowed_hosts(host),  # a foreign name has no session's cookie
    )
    config = _uvicorn_config(options, certificate)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=BACKLOG) as listener:
        shown, scheme = f"[{host}]" if ":" in host else host, "http" if certificate is None else "https"
        print(f"console: {scheme}://{shown}:{listener.getsockname()[1]}/", flush=True)  # noqa: T201
        if certificate is None and not is_local(host):
            sys.stderr.write("mqadmin: passwords cross the network in the clear: give --tls-cert and --tls-key.\n")
        uvicorn.Server(config).run(sockets=[listener])


def _uvicorn_config(options: ConsoleOptions, certificate: Certificate | None) -> uvicorn.Config:
    """Return the configuration of the server. InvalidArgument if the certificate cannot be used."""
    protocol: Any = bounded_protocol()
    config = uvicorn.Config(
        application(options), http=protocol, ws="none", lifespan="on", log_config=None, log_level="warning",
        access_log=False, server_header=False, timeout_keep_alive=IDLE_S, timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=None if certificate is None else certificate.cert,
        ssl_keyfile=None if certificate is None else certificate.key,
    )  # fmt: skip
    try:
        config.load()
    except ssl.SSLError as error:
        assert certificate is not None
        key = certificate.key or certificate.cert
        raise InvalidArgument(
            f"{certificate.cert} and {key} are not a certificate and its key in PEM ({error.reason or error})."
        ) from error
    return config
