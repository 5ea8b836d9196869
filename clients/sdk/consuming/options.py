"""Options of consumers; those of every object are in clients/sdk/connection/options.py."""

from datetime import datetime
from pathlib import Path

from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.options import NamedOptions, StandaloneOptions, TracedOptions
from skylarkmq.clients.sdk.consuming.allocation import Allocation
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Topics
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.clients.sdk.consuming.received_message import Deserializer


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


class StandaloneConsumerOptions(StandaloneOptions, ConsumerOptions, total=False):
    """Options of both consumers, if they are made without `connect`."""


class StandalonePullConsumerOptions(StandaloneConsumerOptions, PullConsumerOptions, total=False):
    """Options of a pull consumer that is made without `connect`."""


class StandalonePushConsumerOptions(StandaloneConsumerOptions, PushConsumerOptions, total=False):
    """Options of a push consumer that is made without `connect`."""
