"""`mqadmin console`: the console in the browser, for any cluster.

Without a login it acts with the credentials of the profile, and listens on loopback addresses only. With `--login` each
session has an account of the cluster.
"""

import logging
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.console.app.server import Certificate, Listen, serve
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.mqadmin.connection import connection_of, refuse_exposed
from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.mqadmin.options import NamesrvAddress, ProfileName

DEFAULT_PORT: Final = 8086


def console(
    namesrv: NamesrvAddress = None,
    profile: ProfileName = None,
    address: Annotated[
        str,
        typer.Option(
            "--address", metavar="HOST", help="An address of this machine. Without --login: a loopback address."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0: any free port.")] = DEFAULT_PORT,
    has_login: Annotated[
        bool, typer.Option("--login", help="Sessions log in with accounts of the cluster, and act as these accounts.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate of the console (PEM), for HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key (PEM). Default: in the same file.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show pages only, without actions.")] = False,
) -> None:
    """Serve the console until Ctrl-C."""
    connection = connection_of(namesrv, profile, os.environ)
    listen = Listen(address, port, _certificate(tls_cert, tls_key))
    target = Target(connection.namesrv, connection.tls)
    if has_login:
        logging.getLogger("skylarkmq.clients.console").setLevel(logging.WARNING)  # refused logins are lines on stderr
    serve(target, connection.credentials, listen, has_login=has_login, is_read_only=read_only)


def _certificate(cert: Path | None, key: Path | None) -> Certificate | None:
    """Return the certificate of the console. CommandFailed if it has no file, or if other users can read its key."""
    if cert is None:
        if key is not None:
            raise usage_error("--tls-key needs --tls-cert.")
        return None
    for file in (cert, key or cert):
        if not file.is_file():
            raise usage_error(f"{file} is not a file: give the certificate and its key in PEM.")
    refuse_exposed(key or cert)
    return Certificate(cert, key)
