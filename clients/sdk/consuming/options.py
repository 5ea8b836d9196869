"""Options of consumers; those of every object are in clients/sdk/connection/options.py."""

from datetime import datetime
from pathlib import Path

from skylarkmq.clients.sdk.base.field_docstrings import explained
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.options import NamedOptions, StandaloneOptions, TracedOptions
from skylarkmq.clients.sdk.consuming.allocation import Allocation
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Topics
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.clients.sdk.consuming.received_message import Deserializer


@explained
class ConsumerOptions(NamedOptions, total=False):
    """Options of both consumers."""

    settings: ConsumerSettings | None
    """Limits and times of the consumer. Default: `ConsumerSettings()`."""
    consume_from: ConsumeFrom | datetime
    """Where to begin in a queue without a committed offset: LAST, FIRST, or a time. Default: LAST."""
    allocation: Allocation
    """How the members of a group share the queues (`skylarkmq.allocation`). Default: `averagely`."""
    topics: Topics | None
    """Topics to subscribe to at the start: a name, names, or names with tags or an `Sql92`. Default: none."""
    deserializer: Deserializer | None
    """Makes `ReceivedMessage.value` from the body. Default: the value is the body."""
    on_assigned: QueuesCallback | None
    """Called with new queues, before their first pull. Default: no call."""
    on_revoked: QueuesCallback | None
    """Called with queues that are given up, before their commit. Default: no call."""


@explained
class PullConsumerOptions(ConsumerOptions, total=False):
    """Options of `PullConsumer`."""

    auto_commit: bool
    """Whether offsets are committed in the background. False: only `commit` commits. Default: True."""


@explained
class PushConsumerOptions(ConsumerOptions, TracedOptions, total=False):
    """Options of `PushConsumer`, besides its handler."""

    thread: bool
    """Whether the handler is a plain function that runs in threads. Default: False, the handler is `async def`."""
    auto_ack: bool
    """Whether `async for` acknowledges a message when it asks for the next one. Default: False, `message.ack()`."""
    orderly: bool
    """Whether messages of a queue are handled one by one, in the order of the queue. Default: False."""
    broadcast: bool
    """Whether each member receives all messages, and keeps its offsets in a file. Default: False."""
    instance_name: str
    """Distinguishes the offset files of the broadcasting members on one host. Default: `"DEFAULT"`."""
    offsets_path: Path | None
    """The offset file of a broadcasting member. Default: below `~/.skylark_offsets/<group>/<instance_name>`."""


@explained
class StandaloneConsumerOptions(StandaloneOptions, ConsumerOptions, total=False):
    """Options of both consumers, if they are made without `connect`."""


@explained
class StandalonePullConsumerOptions(StandaloneConsumerOptions, PullConsumerOptions, total=False):
    """Options of a pull consumer that is made without `connect`."""


@explained
class StandalonePushConsumerOptions(StandaloneConsumerOptions, PushConsumerOptions, total=False):
    """Options of a push consumer that is made without `connect`."""
