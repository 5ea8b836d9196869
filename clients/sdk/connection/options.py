"""The options of every object of the SDK, and the checks of option names. Each option is explained once, in its class.

    ConnectOptions        `connect`
    StandaloneOptions     `Admin`; with the options below also the other classes, if they are made without `connect`
    ProducerOptions       `Producer`, `TransactionProducer` (clients/sdk/producing/options.py)
    PullConsumerOptions   `PullConsumer` (clients/sdk/consuming/options.py)
    PushConsumerOptions   `PushConsumer` (clients/sdk/consuming/options.py)

`skylarkmq.blocking` takes the same options. Limits and times are grouped in clients/sdk/base/settings.py.
"""

import ssl
from collections.abc import Collection, Sequence
from functools import cache
from typing import TypedDict, TypeVar, cast

import msgspec

from skylarkmq.clients.sdk.base.errors import UnknownOption
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.telemetry.hooks import Hooks


class SecurityOptions(TypedDict, total=False):
    """How a client protects its connections and identifies itself."""

    tls: TlsSettings | ssl.SSLContext | None  # default: no TLS
    credentials: Credentials | None  # default: requests are not signed


class NamedOptions(TypedDict, total=False):
    """Names and observation; objects that `connect` makes take the connection's by default."""

    namespace: str  # put in front of the names of topics and groups (clients/sdk/base/namespaces.py); default: none
    hooks: Hooks | None  # observers (clients/sdk/telemetry/hooks.py); several as `Several(first, second)`


class ConnectOptions(SecurityOptions, NamedOptions, total=False):
    """Options of `connect`."""

    settings: ClientSettings | None  # limits and times


class StandaloneOptions(SecurityOptions, total=False):
    """Options of an object that is made without `connect`: `namesrv` or `client`."""

    namesrv: str | Sequence[str] | None  # name servers: "host:port;host:port", or a list of "host:port"
    client: Client | None  # a client to share; its owner starts and closes it. One member of a group per client


class TracedOptions(NamedOptions, total=False):
    """Options of an object that can send RocketMQ's message traces."""

    trace: bool  # send a trace of each message to RMQ_SYS_TRACE_TOPIC; default: False


Named = TypeVar("Named", bound=NamedOptions)


def check_options(given: Collection[str], kind: type, callee: str) -> None:
    """Raise UnknownOption if a given name is no option of `kind`, one of the structures above."""
    known = _names_of(kind)
    if unknown := sorted(name for name in given if name not in known):
        raise UnknownOption(f"{callee} has no option {', '.join(unknown)}. Its options: {', '.join(sorted(known))}.")


class SharedOptions(msgspec.Struct, frozen=True):
    """The options of `connect` that the objects it makes have by default."""

    namespace: str
    hooks: Hooks | None

    def complete(self, given: Named, kind: type[Named], callee: str) -> Named:
        """Return the given options, and the shared ones where the caller gave none. Raises UnknownOption."""
        check_options(given, kind, callee)
        defaults: NamedOptions = {"namespace": self.namespace, "hooks": self.hooks}
        return cast(Named, {**defaults, **given})


@cache
def _names_of(kind: type) -> frozenset[str]:
    return frozenset(kind.__annotations__)
