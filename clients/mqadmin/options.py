"""The options that several commands share, with RocketMQ's names, and the values of their texts."""

from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.sdk.base.errors import printable
from skylarkmq.clients.sdk.connection.topic_route import is_address
from skylarkmq.protocol.frame import MAX_FRAME_BYTES


def checked_address(text: str | None) -> str | None:
    """Return an address without blanks. BadParameter if it is not host:port."""
    if text is None:
        return None
    address = text.strip()
    if not is_address(address):
        raise typer.BadParameter(f"{printable(address)!r} is not host:port")
    return address


NamesrvAddress = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="ADDR;ADDR",
        help="Name servers, host:port;host:port. Default: NAMESRV_ADDR, the profile, 127.0.0.1:9876.",
    ),
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="A profile of ~/.config/skylark/config.toml.")
]
BrokerAddress = Annotated[
    str | None,
    typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", callback=checked_address, help="Address of one broker."),
]
RequiredBrokerAddress = Annotated[
    str,
    typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", callback=checked_address, help="Address of the broker."),
]
ClusterName = Annotated[
    str | None, typer.Option("-c", "--clusterName", metavar="NAME", help="Name of a cluster: all its masters.")
]
MOST_INTERVAL_S: Final = 24 * 60 * 60
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", min=1, max=MOST_INTERVAL_S, metavar="SECONDS", help="Repeat, with this pause."),
]
BodySize = Annotated[int, typer.Option("-s", "--size", min=1, max=MAX_FRAME_BYTES, help="Bytes of a body.")]


def stripped(text: str | None) -> str | None:
    """Return a value without blanks around it; None if the option is not given."""
    return None if text is None else text.strip()


def is_true(text: str) -> bool:
    """Return the value of a boolean option: `true` in any case; everything else is false, as for RocketMQ's tool."""
    return text.strip().lower() == "true"


def one_of(broker: str | None, cluster: str | None) -> tuple[str | None, str | None]:
    """Return the broker, or else the cluster, without blanks. CommandFailed if neither is given."""
    if broker is not None:
        return broker.strip(), None
    if cluster is not None:
        return None, cluster.strip()
    raise usage_error("give the address of a broker (-b) or the name of a cluster (-c).")
