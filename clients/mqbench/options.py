"""The options that commands share: for the load and for its brokers.

    @mqbench.command("produce")
    @options("size", "queues", "rate", seconds=3.0)         fields of a Workload; a keyword sets another default
    def produce(workload: Workload, cluster: Cluster, output: Output, again: Again = False) -> None: ...

A command names its options once, and is called with the objects built from them; it declares its own options itself.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer

from skylarkmq.clients.mqbench.clusters import NO_SECURITY, Broker, Security, find_brokers
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.terminal.command_options import set_options

Command = Callable[..., None]

Rate = Annotated[float | None, typer.Option("-r", "--rate", min=0.1, help="Messages per second; default: full speed.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]

LOAD: Final[dict[str, Any]] = {
    "size": Annotated[int, typer.Option("-s", "--size", min=0, help="Bytes per body.")],
    "topics": Annotated[int, typer.Option(min=1, help="Number of topics, which are created.")],
    "queues": Annotated[int, typer.Option(min=1, help="Queues per topic.")],
    "topic": Annotated[str, typer.Option(help="Prefix of the topics' names.")],
    "batch": Annotated[int, typer.Option(min=1, help="Messages per request.")],
    "connections": Annotated[int, typer.Option("-c", "--connections", min=1)],
    "in_flight": Annotated[int, typer.Option("-f", "--in-flight", min=1, help="Requests in flight per connection.")],
    "rate": Rate,
    "seconds": Annotated[float, typer.Option("-t", "--seconds", min=0.01)],
    "warmup_s": Annotated[float, typer.Option("--warmup", min=0, help="Seconds before the measurement.")],
    "processes": Annotated[int, typer.Option(min=1, help="Processes that share the connections.")],
    "backlog": Annotated[int, typer.Option("-m", "--messages", min=1, help="Messages of the backlog.")],
    "pull": Annotated[int, typer.Option(min=1, help="Messages per pull.")],
}
"""Options by the name of the Workload's field."""

TARGET: Final[dict[str, Any]] = {
    "target": Annotated[str | None, typer.Argument(metavar="[HOST:PORT]", help="A broker; or set -n.")],
    "namesrv": Annotated[
        str | None, typer.Option("-n", "--namesrv", metavar="ADDR;ADDR", help="Name servers, instead of a broker.")
    ],
}

TLS: Final[dict[str, Any]] = {
    "tls": Annotated[bool, typer.Option("--tls", help="Use TLS and check the server's certificate.")],
    "ca": Annotated[Path | None, typer.Option(metavar="FILE", help="Authorities that sign server certificates (PEM).")],
    "cert": Annotated[Path | None, typer.Option(metavar="FILE", help="Client certificate, if servers require one.")],
    "key": Annotated[Path | None, typer.Option(metavar="FILE", help="Key of --cert, if it is in another file.")],
    "insecure": Annotated[bool, typer.Option("--insecure", help="Do not check the server's certificate.")],
}

CREDENTIALS: Final[dict[str, Any]] = {
    "access_key": Annotated[
        str | None, typer.Option(envvar="MQBENCH_ACCESS_KEY", help="Sign all requests, for brokers with accounts.")
    ],
    "secret_key": Annotated[
        str | None,
        typer.Option(envvar="MQBENCH_SECRET_KEY", help="Key of --access-key; as a variable it is in no process list."),
    ],
}

OUTPUT: Final[dict[str, Any]] = {
    "as_json": AsJson,
    "plot": Annotated[Path | None, typer.Option(metavar="FILE", help="Latency over time, as .svg or .png.")],
}


class Cluster(msgspec.Struct, frozen=True):
    """The target brokers (one address, or the addresses of name servers) and how to connect to them."""

    target: str | None = None
    namesrv: str | None = None
    security: Security = NO_SECURITY

    def brokers(self) -> list[Broker]:
        """Return the target brokers. Raises ClientError, ValueError."""
        return find_brokers(self.target, self.namesrv, self.security)


class Output(msgspec.Struct, frozen=True):
    """How figures are printed."""

    as_json: bool = False
    plot: Path | None = None


def tls_of(tls: bool, ca: Path | None, cert: Path | None, key: Path | None, insecure: bool) -> TlsSettings | None:
    """Return the TLS settings of the options. Raises typer.BadParameter if they are set without --tls."""
    if tls:
        return TlsSettings(trust_cert_path=ca, cert_path=cert, key_path=key, check_server=not insecure)
    if ca or cert or key or insecure:
        raise typer.BadParameter("--ca, --cert, --key and --insecure need --tls")
    return None


def security_of(access_key: str | None, secret_key: str | None, **tls: Any) -> Security:
    """Return the TLS settings and the credentials of the options. Raises typer.BadParameter for half of them."""
    if bool(access_key) != bool(secret_key):
        raise typer.BadParameter("--access-key and --secret-key go together: set both or neither")
    credentials = Credentials(access_key, secret_key) if access_key and secret_key else None
    return Security(tls_of(**tls), credentials)


def cluster_of(target: str | None, namesrv: str | None, **security: Any) -> Cluster:
    """Return the target of the options."""
    return Cluster(target, namesrv, security_of(**security))


SHARED: Final[dict[str, tuple[dict[str, Any], Callable[..., object]]]] = {
    "cluster": (TARGET | TLS | CREDENTIALS, cluster_of),
    "security": (TLS | CREDENTIALS, security_of),
    "output": (OUTPUT, Output),
}
"""Parameter of a command -> its options, and the function that builds the object from their values."""


def options(*names: str, **defaults: object) -> Callable[[Command], Command]:
    """Add the options of these Workload fields and of the command's other parameters (see the module docstring)."""
    load = {name: LOAD[name] for name in (*names, *defaults)}
    given = {name: getattr(Workload(), name) for name in names} | defaults

    def parameter(name: str, kind: Any) -> inspect.Parameter:
        default = given.get(name, False if get_args(kind)[0] is bool else None)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    def decorate(command: Command) -> Command:
        declared = inspect.signature(command).parameters
        parts = {name: part for name, part in ({"workload": (load, Workload)} | SHARED).items() if name in declared}

        @functools.wraps(command)
        def run(**values: Any) -> None:
            made = {name: make(**{name: values.pop(name) for name in kinds}) for name, (kinds, make) in parts.items()}
            command(**made, **values)

        own = [its for name, its in declared.items() if name not in parts]
        shared = [parameter(name, kind) for kinds, _ in parts.values() for name, kind in kinds.items()]
        set_options(run, [*own, *shared])
        return run

    return decorate
