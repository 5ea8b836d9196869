"""The push consumer: it calls a handler, or is read by `async for`.

    PushConsumer("group", handler=handle, ...)    up to `concurrency` calls at a time; the result acknowledges
        orderly=True                              one message of a queue at a time, in the order of the queue
        broadcast=True                            every member receives all messages
        thread=True                               the handler is a plain function, and runs in a thread

    async for message in consumer:                without a handler; each message is acknowledged by itself
        async with message.process(): ...         (clients/sdk/consuming/received_message.py), or, with auto_ack=True,
                                                  when the loop asks for the next one

The members of a group share the queues, unless they broadcast. The committed offset of a queue is its smallest message
that is not acknowledged. So a crash repeats some messages and loses none.

A handler that raises, or returns a `Later`, has not finished its message: the broker redelivers it through the retry
topic of the group, to any member. After `max_reconsume_times` redeliveries it becomes a dead letter
(clients/sdk/consuming/handler_dispatch.py, clients/sdk/consuming/send_back.py).
"""

import time
from typing import Unpack

from skylarkmq.clients.sdk.base.errors import InvalidArgument, InvalidBody
from skylarkmq.clients.sdk.connection.client import unique_ids
from skylarkmq.clients.sdk.connection.options import check_options, lists_options
from skylarkmq.clients.sdk.consuming.acknowledgment import Acknowledgment
from skylarkmq.clients.sdk.consuming.consumer import Consumer, ConsumerStatistics
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Role
from skylarkmq.clients.sdk.consuming.handler_calls import HandlerCalls
from skylarkmq.clients.sdk.consuming.handler_dispatch import (
    ConcurrentHandling,
    Handling,
    OrderlyHandling,
    Workers,
    log_rejected,
    observed,
)
from skylarkmq.clients.sdk.consuming.handlers import BlockingHandler, HandlerThreads, MessageHandler, checked_handler
from skylarkmq.clients.sdk.consuming.later import LATER
from skylarkmq.clients.sdk.consuming.local_offsets import DEFAULT_INSTANCE, LocalOffsets, default_path
from skylarkmq.clients.sdk.consuming.member_responses import MemberResponses
from skylarkmq.clients.sdk.consuming.message_loop import MessageLoop
from skylarkmq.clients.sdk.consuming.options import PushConsumerOptions, StandalonePushConsumerOptions
from skylarkmq.clients.sdk.consuming.queue_inboxes import QueueInboxes
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage, prepare
from skylarkmq.clients.sdk.consuming.send_back import SendBack
from skylarkmq.clients.sdk.producing.tracing import Tracing
from skylarkmq.clients.sdk.telemetry.hooks import joined
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel

CONCURRENT_RECONSUME_TIMES = 16
ENDLESS_RECONSUME_TIMES = 2**31 - 1


class PushConsumer(Consumer):
    """A member of `group`. The options are described in `StandalonePushConsumerOptions` (`skylarkmq.options`).

    `start` subscribes to `topics`, and `subscribe` to more. `stop` lets running handlers finish (at most
    `stop_timeout_s`), and commits; loops over messages end. Messages of a loop that are not acknowledged by then are
    delivered to another member.

    `consume_from` applies to queues without a committed offset of the group; a time selects messages stored since then.
    `orderly` and `broadcast` exclude each other. A broadcasting member keeps its offsets in `offsets_path`, by default
    below `~/.skylark_offsets/<group>/<instance_name>`: each member of a group on one host needs a name of its own.
    `start` raises ClientError if another member uses the file, or if it cannot be read.

    All members of a group need the same `allocation` rule (`skylarkmq.allocation`).

    Raises InvalidArgument for a handler that is neither `async def` nor has `thread=True`, and for other
    invalid options.
    """

    @lists_options
    def __init__(
        self,
        group: str,
        *,
        handler: MessageHandler | BlockingHandler | None = None,
        **options: Unpack[StandalonePushConsumerOptions],
    ) -> None:
        check_options(options, StandalonePushConsumerOptions, "PushConsumer")
        _check_combination(options, has_handler=handler is not None)
        super().__init__(group, options)
        self._threads = HandlerThreads(handler, self._settings.concurrency, group) if options.get("thread") else None
        accepted = self._threads.handle if self._threads else None if handler is None else checked_handler(handler)
        role, wrapped = _role(options), self._namespace.wrap(group)
        self._offsets = _local_offsets(wrapped, options) if role.broadcasts else None
        ids = unique_ids(self.client)
        self._tracing = Tracing(self.client, wrapped, ids, self._namespace) if options.get("trace") else None
        self._hooks = joined(self._hooks, self._tracing)
        self._auto_ack = options.get("auto_ack", False)
        self._inboxes = QueueInboxes()
        sink = self._inboxes if role.orderly else self._buffer
        self._member = self._member_of(group, role, options, sink, self._offsets)
        self._send_back = SendBack(self.client, wrapped, self._max_reconsume_times(), self._namespace)
        retries = None if role.broadcasts else self._send_back
        self._acknowledgment = Acknowledgment(self._buffer, retries, self._settings)
        self._calls = None if accepted is None else self._calls_of(accepted)
        self._handling = None if self._calls is None else self._handling_of(self._calls)
        self._workers = Workers(wrapped, self._settings)
        self._responses = MemberResponses(self._member, self._calls, self._settings)

    def statistics(self) -> ConsumerStatistics:
        """Return the figures of the consumer."""
        assigned, handling = self._member.assigned, self._handling
        return ConsumerStatistics(
            group=self._member.group,
            queues=self.assignment,
            waiting=len(self._buffer) + len(self._inboxes),
            unfinished=assigned.unfinished(),
            handled=handling.handled if handling else 0,
            failed=handling.failed if handling else self._acknowledgment.failed,
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
        if self._handling is not None and self._calls is not None:
            self._workers.start(self._handling, self._calls)
        await self._subscribe_at_start()

    def _forked(self) -> None:
        """As in Consumer. The offsets file stays locked by the parent alone."""
        super()._forked()
        if self._offsets is not None:
            self._offsets.forked()

    async def _leave(self) -> None:
        self.client.callbacks.consumers.pop(self._member.group, None)
        self._buffer.close()
        self._inboxes.close()
        await self._responses.stop()
        await self._member.stop_reading()
        try:
            await self._workers.stop()
            await self._member.revoke_all()
        finally:
            self._acknowledgment.close()
            if self._threads is not None:
                self._threads.stop()
            await self._member.leave()
            if self._tracing is not None:
                await self._tracing.stop()
            if self._offsets is not None:
                await self._offsets.close()

    async def commit(self, *, timeout_s: float | None = None) -> None:
        """Write the offsets of all queues now: up to the first message that is not acknowledged.

        Raises the error of the first broker that cannot be reached or that rejects its offsets. Offsets are also
        committed every `commit_interval_s`, and at the stop.
        """
        async with self._within(timeout_s, "commit"):
            await self._member.assigned.commit_now()

    def __aiter__(self) -> MessageLoop:
        self._check_process()
        if self._calls is not None:
            raise InvalidArgument("a consumer with a handler is not read by `async for`: leave one of them out")
        return MessageLoop(self._buffer, self._take, acknowledges=self._auto_ack)

    async def _take(self) -> ReceivedMessage | None:
        begun_s = time.time()
        while (message := await self._buffer.take()) is not None:
            if not await self._is_readable(message):
                continue
            self._received((message,), begun_s)
            return message
        return None

    async def _is_readable(self, message: ReceivedMessage) -> bool:
        """Prepare a message for the loop. Return False if its body cannot be read: it is then sent back."""
        try:
            prepare(message, self._deserializer, self._acknowledgment)
        except InvalidBody as error:
            log_rejected(message, error)
            await self._acknowledgment.failure(message, LATER)
            return False
        return True

    def _calls_of(self, handler: MessageHandler) -> HandlerCalls:
        role, group = self._member.role, self._member.group
        if self._hooks is not None:
            client_id, namespace = self.client.client_id, self._namespace.name
            handler = observed(handler, self._hooks, group, client_id, namespace, broadcast=role.broadcasts)
        limit_s = None if role.orderly else self._settings.consume_timeout_s
        return HandlerCalls(handler, self._member.rates, limit_s, self._deserializer)

    def _handling_of(self, calls: HandlerCalls) -> Handling:
        member, settings = self._member, self._settings
        if member.locks is not None:
            return OrderlyHandling(calls, self._inboxes, member.locks, self._send_back, settings)
        return ConcurrentHandling(calls, self._buffer, self._acknowledgment)

    def _max_reconsume_times(self) -> int:
        given = self._settings.max_reconsume_times
        if given is not None:
            return given
        return ENDLESS_RECONSUME_TIMES if self._member.role.orderly else CONCURRENT_RECONSUME_TIMES


def _check_combination(options: PushConsumerOptions, *, has_handler: bool) -> None:
    if options.get("orderly") and (options.get("broadcast") or not has_handler):
        raise InvalidArgument("orderly=True needs a handler, and does not go with broadcast=True")
    if options.get("thread") and not has_handler:
        raise InvalidArgument("thread=True needs a handler")
    if options.get("auto_ack") and has_handler:
        raise InvalidArgument("auto_ack=True is for `async for`: the result of a handler acknowledges its message")


def _role(options: PushConsumerOptions) -> Role:
    model = MessageModel.BROADCASTING if options.get("broadcast") else MessageModel.CLUSTERING
    consume_from = options.get("consume_from", ConsumeFrom.LAST)
    return Role(ConsumeType.CONSUME_PASSIVELY, consume_from, model, options.get("orderly", False))


def _local_offsets(group: str, options: PushConsumerOptions) -> LocalOffsets:
    path = options.get("offsets_path") or default_path(group, options.get("instance_name", DEFAULT_INSTANCE))
    return LocalOffsets(path)
