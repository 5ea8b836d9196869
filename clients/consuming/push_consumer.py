"""A consumer that is handed messages: by a loop, or by calls of a handler.

    async for message in consumer: ...            one at a time; a message is finished when the next is asked for
    PushConsumer("group", handler=handle, ...)    up to `concurrency` calls at a time; finished when a call returns
        orderly=True                              ... but of each queue one at a time, in its order
        broadcast=True                            every member gets everything

The members of a group share the queues, unless they broadcast. A queue's committed offset is its smallest message that
is not finished, so after a crash some messages come again; none is lost.

A handler that raises, or returns `LATER`, has not finished its message: it goes back to the broker and comes again
after a while, to whichever member reads the group's retry topic then; too often, and it goes to the dead letters
(clients/consuming/handler_dispatch.py, clients/consuming/send_back.py).
"""

from collections.abc import AsyncIterator
from typing import Unpack

import msgspec

from skylarkmq.clients.arguments import check_group
from skylarkmq.clients.connection.client import unique_ids
from skylarkmq.clients.connection.participant import Participant
from skylarkmq.clients.consuming.allocation import averagely
from skylarkmq.clients.consuming.group_member import ConsumeFrom, GroupMember, Role, Sql92
from skylarkmq.clients.consuming.handler_calls import HandlerCalls, MessageHandler
from skylarkmq.clients.consuming.handler_dispatch import (
    ConcurrentHandling,
    Handling,
    OrderlyHandling,
    Workers,
    observed,
)
from skylarkmq.clients.consuming.local_offsets import DEFAULT_INSTANCE, LocalOffsets, default_path
from skylarkmq.clients.consuming.member_responses import MemberAnswers
from skylarkmq.clients.consuming.message_buffer import Inbox
from skylarkmq.clients.consuming.queue_inboxes import Lanes
from skylarkmq.clients.consuming.send_back import SendBack
from skylarkmq.clients.errors import InvalidArgument
from skylarkmq.clients.hooks import Received, joined
from skylarkmq.clients.namespaces import Namespace
from skylarkmq.clients.options import PushConsumerOptions, StandalonePushConsumerOptions, check_options
from skylarkmq.clients.producing.replies import reply
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.clients.tracing import Tracing
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt

CONCURRENT_RECONSUME_TIMES = 16
ENDLESS_RECONSUME_TIMES = 2**31 - 1


class ConsumerStatistics(msgspec.Struct, frozen=True):
    """A consumer at one moment; totals since its start from `handled` on. `failed` holds `timed_out`."""

    group: str
    queues: tuple[MessageQueue, ...]
    waiting: int
    unfinished: int
    handled: int
    failed: int
    sent_back: int = 0
    timed_out: int = 0


class PushConsumer(Participant):
    """A member of `group`. The options are those of `StandalonePushConsumerOptions` (clients/options.py).

    Reading begins with the first subscription. `stop` lets running handlers finish (at most `stop_timeout_s`), and
    commits; loops over messages end.

    `consume_from` counts for queues of which the group has no committed offset; a time means what was stored since.
    `orderly` and `broadcast` exclude each other. A broadcasting member keeps its offsets in `offsets_path`, by default
    below `~/.skylark_offsets/<group>/<instance_name>`: members of one group on one host need a name each. A file that
    another member uses, or that cannot be read, is a ClientError at the start.

    `allocation` is the rule by which members share queues, the same for all of them (clients/consuming/allocation.py).
    Topics and group are in `namespace`, if there is one. `hooks` look on (clients/hooks.py); `trace` sends RocketMQ's
    traces of what the handler does.
    """

    def __init__(
        self,
        group: str,
        *,
        handler: MessageHandler | None = None,
        **options: Unpack[StandalonePushConsumerOptions],
    ) -> None:
        check_options(options, StandalonePushConsumerOptions, "PushConsumer")
        orderly, broadcast = options.get("orderly", False), options.get("broadcast", False)
        if orderly and (broadcast or handler is None):
            raise InvalidArgument("orderly=True needs a handler, and does not go with broadcast=True")
        check_group(group)
        namespace = options.get("namespace", "")
        self._namespace = Namespace(namespace)
        super().__init__(options)
        self._settings = settings = options.get("settings") or ConsumerSettings()
        group = self._namespace.wrap(group)
        model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
        role = Role(ConsumeType.CONSUME_PASSIVELY, options.get("consume_from", ConsumeFrom.LAST), model, orderly)
        self._offsets = _local_offsets(group, options) if broadcast else None
        ids = unique_ids(self.client)
        self._tracing = Tracing(self.client, group, ids, self._namespace) if options.get("trace") else None
        self._hooks = hooks = joined(options.get("hooks"), self._tracing)
        if hooks is not None and handler is not None:
            handler = observed(handler, hooks, group, self.client.client_id, namespace, broadcast=broadcast)
        self._inbox = Inbox()
        self._lanes = Lanes()
        sink = self._lanes if orderly else self._inbox
        allocation = options.get("allocation", averagely)
        self._member = GroupMember(self.client, group, role, settings, sink, self._offsets, allocation, self._namespace)
        self._send_back = SendBack(self.client, group, self._max_reconsume_times(), self._namespace)
        limit_s = None if orderly else settings.consume_timeout_s
        self._calls = None if handler is None else HandlerCalls(handler, self._member.rates, limit_s)
        self._handling = None if self._calls is None else self._handling_of(self._calls)
        self._workers = Workers(group, settings)
        self._answers = MemberAnswers(self._member, self._calls, settings)

    def __repr__(self) -> str:
        return f"<PushConsumer {self._member}>"

    def statistics(self) -> ConsumerStatistics:
        """The consumer's figures now."""
        owned, handling = self._member.owned, self._handling
        return ConsumerStatistics(
            group=self._member.group,
            queues=tuple(map(self._namespace.strip_queue, owned.queues())),
            waiting=len(self._inbox) + len(self._lanes),
            unfinished=owned.unfinished(),
            handled=handling.handled if handling else 0,
            failed=handling.failed if handling else 0,
            sent_back=self._send_back.sent,
            timed_out=self._calls.timed_out if self._calls else 0,
        )

    async def _join(self) -> None:
        if self._offsets is not None:
            self._offsets.open()
        try:
            await self._member.start()
        except BaseException:
            if self._offsets is not None:
                await self._offsets.close()
            raise
        if self._tracing is not None:
            self._tracing.start()
        self.client.callbacks.consumers[self._member.group] = self._answers
        if self._hooks is not None:
            self._hooks.consuming(self._member.group, self.client.client_id, self._member.owned.cached)
        if self._handling is not None and self._calls is not None:
            self._workers.start(self._handling, self._calls)

    def _forked(self) -> None:
        """As a participant's; the file of offsets stays locked by the parent alone."""
        super()._forked()
        self._inbox.forked()
        if self._offsets is not None:
            self._offsets.forked()

    async def _leave(self) -> None:
        self.client.callbacks.consumers.pop(self._member.group, None)
        self._inbox.close()
        self._lanes.close()
        await self._answers.stop()
        await self._member.stop_reading()
        try:
            await self._workers.stop()
        finally:
            await self._member.leave()
            if self._tracing is not None:
                await self._tracing.stop()
            if self._offsets is not None:
                await self._offsets.close()

    async def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Read `topic` from now on: every message, those with one of the tags in `expression` (`a || b`), or those
        whose properties match an `Sql92`. InvalidMessage, ClientClosed, or BrokerError about the expression.
        """
        self._check_process()
        await self._member.subscribe(self._namespace.wrap(topic), expression)

    async def unsubscribe(self, topic: str) -> None:
        """Read `topic` no more."""
        self._check_process()
        await self._member.unsubscribe(self._namespace.wrap(topic))

    async def reply(self, message: MessageExt, body: bytes, properties: dict[str, str] | None = None) -> None:
        """Answer a message that `Producer.request` sent. InvalidMessage if it is none, or what a send fails with."""
        await reply(self.client, self._member.group, message, body, properties)

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        self._check_process()
        return self._inbox.iterate(None if self._hooks is None else self._taken)

    def _taken(self, message: MessageExt, begun_s: float) -> None:
        if self._hooks is not None:
            group, client_id = self._member.group, self.client.client_id
            self._hooks.received(Received((message,), group, client_id, begun_s, self._namespace.name))

    def _handling_of(self, calls: HandlerCalls) -> Handling:
        member, settings = self._member, self._settings
        if member.locks is not None:
            return OrderlyHandling(calls, self._lanes, member.locks, self._send_back, settings)
        send_back = None if member.role.broadcasts else self._send_back
        return ConcurrentHandling(calls, self._inbox, send_back, settings)

    def _max_reconsume_times(self) -> int:
        given = self._settings.max_reconsume_times
        if given is not None:
            return given
        return ENDLESS_RECONSUME_TIMES if self._member.role.orderly else CONCURRENT_RECONSUME_TIMES


def _local_offsets(group: str, options: PushConsumerOptions) -> LocalOffsets:
    path = options.get("offsets_path") or default_path(group, options.get("instance_name", DEFAULT_INSTANCE))
    return LocalOffsets(path)
