"""The options of every object of the SDK, and the checks of option names. Each option is explained once, in its class.

    ConnectOptions        `connect`
    StandaloneOptions     `Admin`; with the options below also the other classes, if they are made without `connect`
    ProducerOptions       `Producer`, `TransactionProducer` (clients/sdk/producing/options.py)
    PullConsumerOptions   `PullConsumer` (clients/sdk/consuming/options.py)
    PushConsumerOptions   `PushConsumer` (clients/sdk/consuming/options.py)

`skylarkmq.blocking` takes the same options. Limits and times are grouped in clients/sdk/base/settings.py.
"""

import inspect
import ssl
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Final, TypedDict, TypeVar, cast, get_args

import msgspec

from skylarkmq.clients.sdk.base.errors import UnknownOption
from skylarkmq.clients.sdk.base.field_docstrings import explained
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.telemetry.hooks import Hooks


@explained
class SecurityOptions(TypedDict, total=False):
    """How a client protects its connections and identifies itself."""

    tls: TlsSettings | ssl.SSLContext | None
    """TLS settings or an SSL context. Default: no TLS."""
    credentials: Credentials | None
    """Keys that sign the requests. Default: requests are not signed."""


@explained
class NamedOptions(TypedDict, total=False):
    """Names and observation; objects that `connect` makes take the connection's by default."""

    namespace: str
    """A prefix of the names of topics and groups (`team-a%Orders` at brokers). Default: none."""
    hooks: Hooks | None
    """Observers (`skylarkmq.hooks`); several as `Several(first, second)`. Default: none."""


@explained
class ConnectOptions(SecurityOptions, NamedOptions, total=False):
    """Options of `connect`."""

    settings: ClientSettings | None
    """Limits and times of the client. Default: `ClientSettings()`."""


@explained
class StandaloneOptions(SecurityOptions, total=False):
    """Options of an object that is made without `connect`: `namesrv` or `client`."""

    namesrv: str | Sequence[str] | None
    """Name servers: `"host:port;host:port"`, or a list of `"host:port"`."""
    client: Client | None
    """A client to share, instead of `namesrv`; its owner starts and closes it. It has one member of each group."""


@explained
class TracedOptions(NamedOptions, total=False):
    """Options of an object that can send RocketMQ's message traces."""

    trace: bool
    """Whether a trace of each message is sent to `RMQ_SYS_TRACE_TOPIC`. Default: False."""


class _LeftOut:
    """The default of an option in a signature: the option is left out, and its docstring names the default."""

    def __repr__(self) -> str:
        return "..."


LEFT_OUT: Final = _LeftOut()
Named = TypeVar("Named", bound=NamedOptions)
F = TypeVar("F", bound=Callable[..., object])


def lists_options(function: F) -> F:
    """Give a function with `**options: Unpack[...]` a signature that lists each option, for `help` and editors.

    Type checkers read the annotations, which stay as they are.
    """
    signature = inspect.signature(function)
    *named, options = signature.parameters.values()
    (kind,) = get_args(options.annotation)
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=LEFT_OUT, annotation=hint)
        for name, hint in kind.__annotations__.items()
    ]
    function.__dict__["__signature__"] = signature.replace(parameters=[*named, *listed])
    return function


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
