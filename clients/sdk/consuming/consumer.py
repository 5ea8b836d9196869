"""The common part of both consumers: a member of a group, its subscriptions, its queues and their offsets.

Applications see the names of topics and groups without the namespace; the member uses the names with it.

A subclass makes `_member` and `_responses`, and decides how the application receives the messages of the buffer.
"""

from collections.abc import Sequence

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_group, check_queue, settings_of
from skylarkmq.clients.sdk.base.namespaces import Namespace
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.clients.sdk.consuming.allocation import averagely
from skylarkmq.clients.sdk.consuming.group_member import GroupMember, Role, Sql92, expressions_of
from skylarkmq.clients.sdk.consuming.member_responses import MemberResponses
from skylarkmq.clients.sdk.consuming.message_buffer import MessageBuffer, Sink
from skylarkmq.clients.sdk.consuming.options import StandaloneConsumerOptions
from skylarkmq.clients.sdk.consuming.queue_puller import OffsetStore
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import RebalanceCallbacks
from skylarkmq.clients.sdk.consuming.received_message import checked_deserializer
from skylarkmq.clients.sdk.producing.replies import reply
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, Received
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt


class ConsumerStatistics(msgspec.Struct, frozen=True):
    """A consumer at one moment. `handled` and all fields after it are totals since its start. `failed` includes
    `timed_out`."""

    group: str
    queues: tuple[MessageQueue, ...]
    waiting: int
    unfinished: int
    handled: int
    failed: int
    sent_back: int = 0
    timed_out: int = 0


class Consumer(Participant):
    """A member of `group`. Its calls take a `timeout_s` for all their requests together, and raise RequestTimeout after
    it; the default is `ClientSettings.call_timeout_s` (30 s).
    """

    _member: GroupMember
    _responses: MemberResponses

    def __init__(self, group: str, options: StandaloneConsumerOptions) -> None:
        check_group(group)
        super().__init__(options)
        self._settings = settings_of(options.get("settings"), ConsumerSettings)
        self._namespace = Namespace(options.get("namespace", ""))
        self._hooks: Hooks | None = options.get("hooks")
        self._observe_connections(self._hooks)
        self._topics = expressions_of(options.get("topics"))
        self._deserializer = checked_deserializer(options.get("deserializer"))
        self._buffer = MessageBuffer()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._member}>"

    def _member_of(
        self,
        group: str,
        role: Role,
        options: StandaloneConsumerOptions,
        sink: Sink,
        offsets: OffsetStore | None = None,
    ) -> GroupMember:
        """Return the member that the options describe; `offsets` None: the brokers keep them."""
        return GroupMember(
            self.client,
            self._namespace.wrap(group),
            role,
            self._settings,
            sink,
            offsets,
            options.get("allocation", averagely),
            self._namespace,
            RebalanceCallbacks(options.get("on_assigned"), options.get("on_revoked"), self._namespace),
        )

    async def _subscribe_at_start(self) -> None:
        """Serve requests of brokers, notify the hooks, and subscribe to `topics`; leave the group if that fails."""
        self.client.callbacks.consumers[self._member.group] = self._responses
        if self._hooks is not None:
            self._hooks.consuming(self._member.group, self.client.client_id, self._member.assigned.cached)
        try:
            await self._member.subscribe_all(self._topics)
        except BaseException:
            await self._leave()
            raise

    def _forked(self) -> None:
        """As in Participant."""
        super()._forked()
        self._buffer.forked()

    # -------------------------------------------------------------------------------------------- topics and queues

    async def subscribe(self, topic: str, expression: str | Sql92 = "*", *, timeout_s: float | None = None) -> None:
        """Read this member's share of `topic`: all messages, those with one of the tags in `expression` (`a || b`), or
        those whose properties match an `Sql92`.

        Raises InvalidMessage for a bad name, ClientClosed before the start, BrokerError if a broker rejects the
        expression.
        """
        async with self._within(timeout_s, "subscribe"):
            await self._member.subscribe(self._namespace.wrap(topic), expression)

    async def unsubscribe(self, topic: str, *, timeout_s: float | None = None) -> None:
        """Stop reading `topic`, and commit."""
        async with self._within(timeout_s, "unsubscribe"):
            await self._member.unsubscribe(self._namespace.wrap(topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this member reads now."""
        return tuple(map(self._namespace.strip_queue, self._member.assigned.queues()))

    async def position(self, queue: MessageQueue, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next message of a queue that the application receives.

        Raises ClientClosed if this member does not read the queue.
        """
        async with self._within(timeout_s, "position"):
            return await self._member.position(self._wrapped(queue))

    async def committed(self, queue: MessageQueue, *, timeout_s: float | None = None) -> int | None:
        """Return the committed offset of the group in a queue, or None.

        Raises NoRoute, BrokerError, or an error of the transport.
        """
        async with self._within(timeout_s, "committed"):
            return await self._member.offsets.committed_offset(self._wrapped(queue))

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        check_queue(queue)
        return self._namespace.wrap_queue(queue)

    # ----------------------------------------------------------------------------------------------------- messages

    async def reply(
        self,
        message: MessageExt,
        body: bytes,
        properties: dict[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Reply to a message that `Producer.request` sent.

        Raises InvalidMessage if it is not a request, or the errors of a send.
        """
        async with self._within(timeout_s, "reply"):
            await reply(self.client, self._member.group, message, body, properties)

    def _received(self, messages: Sequence[MessageExt], begun_s: float) -> None:
        """Notify the hooks of messages that the application gets, and when it began to wait for them."""
        if self._hooks is not None:
            group, client_id = self._member.group, self.client.client_id
            self._hooks.received(Received(messages, group, client_id, begun_s, self._namespace.name))
