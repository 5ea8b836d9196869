"""The options of the SDK's classes: each is named and explained here, and nowhere else.

    ConnectOptions        `connect`
    StandaloneOptions     `Admin`; with the options below also the other classes, if they are made without `connect`
    ProducerOptions       `Producer`, `TransactionProducer`
    PullConsumerOptions   `PullConsumer`
    PushConsumerOptions   `PushConsumer`

`skylarkmq.blocking` takes the same options. Limits and times are grouped in clients/sdk/settings.py.
"""

import ssl
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import msgspec

from skylarkmq.clients.sdk.compression import Compression
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.signing import Credentials
from skylarkmq.clients.sdk.consuming.allocation import Allocation
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Topics
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.clients.sdk.consuming.received_message import Deserializer
from skylarkmq.clients.sdk.errors import UnknownOption
from skylarkmq.clients.sdk.hooks import Hooks
from skylarkmq.clients.sdk.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings

Serializer = Callable[[Any], bytes]
"""Returns the body for a value."""


class SecurityOptions(TypedDict, total=False):
    """How a client protects its connections and identifies itself."""

    tls: TlsSettings | ssl.SSLContext | None  # default: no TLS
    credentials: Credentials | None  # default: requests are not signed


class NamedOptions(TypedDict, total=False):
    """Names and observation; objects that `connect` makes take the connection's by default."""

    namespace: str  # put in front of the names of topics and groups (clients/sdk/namespaces.py); default: none
    hooks: Hooks | None  # observers (clients/sdk/hooks.py); several as `Several(first, second)`


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


class ProducerOptions(TracedOptions, total=False):
    """Options of `Producer` and `TransactionProducer`."""

    settings: ProducerSettings | None  # limits and times
    compression: Compression | None  # codec of large bodies, "zlib", "lz4" or "zstd"; default: "zlib"; None: never
    serializer: Serializer | None  # makes the bodies of `Producer.message`; default: bodies are bytes


class ConsumerOptions(NamedOptions, total=False):
    """Options of both consumers."""

    settings: ConsumerSettings | None  # limits and times
    consume_from: ConsumeFrom | datetime  # where to begin in a queue without a committed offset; default: LAST
    allocation: Allocation  # how the members of a group share the queues; default: averagely
    topics: Topics | None  # to subscribe to at the start: a name, names, or names with tags or an Sql92; default: none
    deserializer: Deserializer | None  # makes `ReceivedMessage.value` of the body; default: the value is the body
    on_assigned: QueuesCallback | None  # called with new queues, before their first pull
    on_revoked: QueuesCallback | None  # called with queues that are given up, before their commit


class PullConsumerOptions(ConsumerOptions, total=False):
    """Options of `PullConsumer`."""

    auto_commit: bool  # False: only `commit` commits; default: True


class PushConsumerOptions(ConsumerOptions, TracedOptions, total=False):
    """Options of `PushConsumer`, besides its handler."""

    thread: bool  # the handler is a plain function, and runs in a thread; default: False, it is `async def`
    auto_ack: bool  # `async for` acknowledges a message when it asks for the next; default: False, `message.ack()`
    orderly: bool  # one message of a queue at a time, in the order of the queue; default: False
    broadcast: bool  # each member gets all messages, and keeps its offsets in a file; default: False
    instance_name: str  # distinguishes the offset files of the broadcasting members on one host; default: "DEFAULT"
    offsets_path: Path | None  # the offset file; default: below ~/.skylark_offsets/<group>/<instance_name>


class StandaloneProducerOptions(StandaloneOptions, ProducerOptions, total=False):
    """Options of a producer that is made without `connect`."""


class StandaloneConsumerOptions(StandaloneOptions, ConsumerOptions, total=False):
    """Options of both consumers, if they are made without `connect`."""


class StandalonePullConsumerOptions(StandaloneConsumerOptions, PullConsumerOptions, total=False):
    """Options of a pull consumer that is made without `connect`."""


class StandalonePushConsumerOptions(StandaloneConsumerOptions, PushConsumerOptions, total=False):
    """Options of a push consumer that is made without `connect`."""


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
