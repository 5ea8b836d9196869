"""`mqadmin console`: the console in the browser, for any cluster, with the credentials of its profile."""

import os
from typing import Annotated, Final

import typer

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.server import serve
from skylarkmq.clients.mqadmin.connection import connection_of
from skylarkmq.clients.mqadmin.options import NamesrvAddress, ProfileName

DEFAULT_PORT: Final = 8086


def console(
    namesrv: NamesrvAddress = None,
    profile: ProfileName = None,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST", help="A loopback address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0: any free one.")] = DEFAULT_PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show pages only, without actions.")] = False,
) -> None:
    """Serve the console until Ctrl-C."""
    connection = connection_of(namesrv, profile, os.environ)
    target = Target(connection.namesrv, connection.tls)
    serve(target, connection.credentials, address, port, is_read_only=read_only)
