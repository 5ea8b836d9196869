"""What the commands have in common: the options by which a load and its brokers are told.

    @mqbench.command("produce")
    @options("size", "queues", "rate", seconds=3.0)         fields of a Workload; one has a default of its own
    def produce(workload: Workload, cluster: Cluster, output: Output, again: Again = False) -> None: ...

A command names its options once, and is called with what they make together; what it alone has it declares itself.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer

from skylarkmq.clients.mqbench.clusters import Broker, find_brokers
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.clients.settings import TlsSettings

Command = Callable[..., None]

Rate = Annotated[float | None, typer.Option("-r", "--rate", min=0.1, help="Messages per second; else all it takes.")]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

LOAD: Final[dict[str, Any]] = {
    "size": Annotated[int, typer.Option("-s", "--size", min=0, help="Bytes of a body.")],
    "topics": Annotated[int, typer.Option(min=1, help="Topics; they are created.")],
    "queues": Annotated[int, typer.Option(min=1, help="Queues of each topic.")],
    "topic": Annotated[str, typer.Option(help="How the topics' names begin.")],
    "batch": Annotated[int, typer.Option(min=1, help="Messages of one request.")],
    "connections": Annotated[int, typer.Option("-c", "--connections", min=1)],
    "in_flight": Annotated[int, typer.Option("-f", "--in-flight", min=1, help="Requests on each connection.")],
    "rate": Rate,
    "seconds": Annotated[float, typer.Option("-t", "--seconds", min=0.01)],
    "warmup_s": Annotated[float, typer.Option("--warmup", min=0, help="Seconds before that which do not count.")],
    "processes": Annotated[int, typer.Option(min=1, help="Processes that share the connections.")],
    "backlog": Annotated[int, typer.Option("-m", "--messages", min=1, help="Messages of the backlog.")],
    "pull": Annotated[int, typer.Option(min=1, help="Messages of one pull.")],
}
"""By the name of the Workload's field."""

TARGET: Final[dict[str, Any]] = {
    "target": Annotated[str | None, typer.Argument(metavar="[HOST:PORT]", help="A broker; or give -n.")],
    "namesrv": Annotated[
        str | None, typer.Option("-n", "--namesrv", metavar="ADDR;ADDR", help="Name servers instead.")
    ],
}

TLS: Final[dict[str, Any]] = {
    "tls": Annotated[bool, typer.Option("--tls", help="Encrypt, and check who answers.")],
    "ca": Annotated[Path | None, typer.Option(metavar="FILE", help="Who may sign servers' certificates (PEM).")],
    "cert": Annotated[Path | None, typer.Option(metavar="FILE", help="For servers that ask for a certificate (PEM).")],
    "key": Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, if that is not with it.")],
    "insecure": Annotated[bool, typer.Option("--insecure", help="Anybody may answer.")],
}

OUTPUT: Final[dict[str, Any]] = {
    "as_json": AsJson,
    "plot": Annotated[Path | None, typer.Option(metavar="FILE", help="Latency over time, as .svg or .png.")],
}


class Cluster(msgspec.Struct, frozen=True):
    """The brokers that are meant: one by its address, or those of name servers; and how to talk to them."""

    target: str | None = None
    namesrv: str | None = None
    tls: TlsSettings | None = None

    def brokers(self) -> list[Broker]:
        """ClientError, ValueError."""
        return find_brokers(self.target, self.namesrv, self.tls)


class Output(msgspec.Struct, frozen=True):
    """How figures are told."""

    as_json: bool = False
    plot: Path | None = None


def tls_of(tls: bool, ca: Path | None, cert: Path | None, key: Path | None, insecure: bool) -> TlsSettings | None:
    """What the options of TLS mean; typer.BadParameter if they are given without --tls."""
    if tls:
        return TlsSettings(trust_cert_path=ca, cert_path=cert, key_path=key, check_server=not insecure)
    if ca or cert or key or insecure:
        raise typer.BadParameter("--ca, --cert, --key and --insecure go with --tls")
    return None


def cluster_of(target: str | None, namesrv: str | None, **tls: Any) -> Cluster:
    """What the options of a target mean."""
    return Cluster(target, namesrv, tls_of(**tls))


SHARED: Final[dict[str, tuple[dict[str, Any], Callable[..., object]]]] = {
    "cluster": (TARGET | TLS, cluster_of),
    "tls": (TLS, tls_of),
    "output": (OUTPUT, Output),
}
"""Parameter of a command -> the options behind it, and what makes one of the others."""


def options(*names: str, **defaults: object) -> Callable[[Command], Command]:
    """Give a command the options of these fields of a Workload, and those of what else it takes: see above."""
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

        own = [its.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, its in declared.items() if name not in parts]
        shared = [parameter(name, kind) for kinds, _ in parts.values() for name, kind in kinds.items()]
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {its.name: its.annotation for its in (*own, *shared)}
        return run

    return decorate
