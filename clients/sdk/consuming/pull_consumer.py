"""The pull consumer: it returns messages when the application asks for them.

    await consumer.subscribe("Orders")            the members of the group share the queues, as with PushConsumer
    await consumer.assign(queues)                 or: exactly these queues, whatever other members read

    messages = await consumer.poll(32, timeout_s=1.0)
    async for message in consumer: ...

Messages that `poll` returned are acknowledged by the next `poll`, or by `commit`; a message of a loop when the loop
asks for the next one. Offsets are committed every `commit_interval_s` and at the stop, or, with `auto_commit=False`, by
`commit` only. Queues are read ahead, up to the limits in `ConsumerSettings`. `seek` and its variants continue elsewhere
in a queue; `pause` and `resume` stop and continue the pulls of a queue.

A body that cannot be inflated or deserialized is an InvalidBody, raised by `poll` and by the loop. The position stays
before that message: `seek` to the offset after it skips it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Unpack

from skylarkmq.clients.sdk.base.arguments import check_number, check_offset, time_ms
from skylarkmq.clients.sdk.base.errors import InvalidBody, checking_argument
from skylarkmq.clients.sdk.connection.options import check_options, lists_options
from skylarkmq.clients.sdk.consuming.consumer import Consumer, ConsumerStatistics
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Role
from skylarkmq.clients.sdk.consuming.member_responses import MemberResponses
from skylarkmq.clients.sdk.consuming.message_loop import MessageLoop
from skylarkmq.clients.sdk.consuming.options import StandalonePullConsumerOptions
from skylarkmq.clients.sdk.consuming.queue_puller import QueuePuller
from skylarkmq.clients.sdk.consuming.queue_state import QueueEvent
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage, prepare
from skylarkmq.protocol.bodies.enums import ConsumeType
from skylarkmq.protocol.bodies.message_queue import MessageQueue


class PullConsumer(Consumer):
    """A member of `group`. The options are described in `StandalonePullConsumerOptions` (`skylarkmq.options`).

    `start` subscribes to `topics`; `subscribe` and `assign` add queues. `stop` commits, unless `auto_commit` is off;
    loops over messages end.

    `consume_from` applies to queues without a committed offset of the group; a time selects messages stored since then.
    All members that subscribe need the same `allocation` rule (`skylarkmq.allocation`).

    Each method takes a `timeout_s` for all its requests together, and raises RequestTimeout after it. The default is
    `ClientSettings.call_timeout_s` (30 s).
    """

    @lists_options
    def __init__(self, group: str, **options: Unpack[StandalonePullConsumerOptions]) -> None:
        check_options(options, StandalonePullConsumerOptions, "PullConsumer")
        super().__init__(group, options)
        self._auto_commit = options.get("auto_commit", True)
        role = Role(ConsumeType.CONSUME_ACTIVELY, options.get("consume_from", ConsumeFrom.LAST))
        self._member = self._member_of(group, role, options, self._buffer)
        self._responses = MemberResponses(self._member, None, self._settings)
        self._polled: list[ReceivedMessage] = []
        self._handled = 0

    def statistics(self) -> ConsumerStatistics:
        """Return the figures of the consumer; `handled` is the number of messages that `poll` returned."""
        assigned = self._member.assigned
        return ConsumerStatistics(
            group=self._member.group,
            queues=self.assignment,
            waiting=len(self._buffer),
            unfinished=assigned.unfinished(),
            handled=self._handled,
            failed=0,
        )

    async def _join(self) -> None:
        await self._member.start(auto_commit=self._auto_commit)
        await self._subscribe_at_start()

    async def _leave(self) -> None:
        self.client.callbacks.consumers.pop(self._member.group, None)
        self._buffer.close()
        await self._responses.stop()
        await self._member.stop_reading()
        try:
            await self._member.revoke_all()
        finally:
            await self._member.leave(commit=self._auto_commit)

    # -------------------------------------------------------------------------------------------------------- queues

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic. Raises NoRoute if no name server has the topic."""
        async with self._within(timeout_s, "queues"):
            queues = (await self.client.routes.find(self._namespace.wrap(topic))).subscribe_queues
        return tuple(map(self._namespace.strip_queue, queues))

    async def assign(self, queues: Sequence[MessageQueue], *, timeout_s: float | None = None) -> None:
        """Read exactly these queues, from the committed offsets of the group; give up all others.

        Do not combine it with `subscribe`: rebalancing would revoke queues of the same topics. Pulls of a queue that
        does not exist, or whose broker cannot be reached, are repeated, with warnings in the log. The rebalance
        callbacks are not called.
        """
        with checking_argument("queues"):
            wanted = [self._wrapped(queue) for queue in queues]
        assigned = self._member.assigned
        async with self._within(timeout_s, "assign"):
            await assigned.release(queue for queue in assigned.queues() if queue not in wanted)
        for queue in wanted:
            if queue not in assigned:
                assigned.adopt(queue, self._member.subscription(queue.topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in a queue that is read now. Messages that were received ahead are dropped.

        A paused queue stays paused. An offset that the queue does not have leads to the nearest one that it has. Raises
        ClientClosed if this member does not read the queue.
        """
        check_offset(offset)
        queue = self._puller(queue).queue
        self._polled = [message for message in self._polled if message.tracker.queue != queue]
        self._member.assigned.adopt(queue, self._member.subscription(queue.topic), offset)

    async def seek_to_time(self, queue: MessageQueue, when: datetime, *, timeout_s: float | None = None) -> int:
        """Continue at the first message stored at or after `when`. Return its offset, or the end of the queue.

        Raises ClientClosed if this member does not read the queue, NoRoute, BrokerError, or an error of the transport.
        """
        wrapped = self._wrapped(queue)
        async with self._within(timeout_s, "seek_to_time"):
            offset = await self._member.calls.offset_at(wrapped, time_ms("when", when))
        self.seek(queue, offset)
        return offset

    async def seek_to_begin(self, queue: MessageQueue, *, timeout_s: float | None = None) -> int:
        """Continue at the first message that the queue still has. Return its offset. Errors: see `seek_to_time`."""
        async with self._within(timeout_s, "seek_to_begin"):
            offset = await self._member.calls.min_offset(self._wrapped(queue))
        self.seek(queue, offset)
        return offset

    async def seek_to_end(self, queue: MessageQueue, *, timeout_s: float | None = None) -> int:
        """Continue at the end of the queue. Return the offset of its next message. Errors: see `seek_to_time`."""
        async with self._within(timeout_s, "seek_to_end"):
            offset = await self._member.calls.max_offset(self._wrapped(queue))
        self.seek(queue, offset)
        return offset

    def pause(self, *queues: MessageQueue) -> None:
        """Pull no more from these queues. Messages that were received ahead, and messages of a pull in flight, are
        still returned. Raises ClientClosed if this member does not read one of the queues.
        """
        for queue in queues:
            self._puller(queue).assignment.change(QueueEvent.PAUSE)

    def resume(self, *queues: MessageQueue) -> None:
        """Continue to pull from paused queues. Raises ClientClosed if this member does not read one of them."""
        for queue in queues:
            self._puller(queue).assignment.change(QueueEvent.RESUME)

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Acknowledge the messages that `poll` returned, and write the offsets of all queues to the brokers; with
        `offsets`, write these offsets instead, and acknowledge nothing.

        Raises the error of the first broker that cannot be reached or that rejects an offset.
        """
        async with self._within(timeout_s, "commit"):
            if offsets is None:
                self._finish_polled()
                await self._member.assigned.commit_now()
                return
            with checking_argument("offsets"):
                wrapped = {self._wrapped(queue): offset for queue, offset in offsets.items()}
            for offset in wrapped.values():
                check_offset(offset)
            await self._member.assigned.commit_offsets(wrapped)

    # ------------------------------------------------------------------------------------------------------ messages

    async def poll(self, max_messages: int = 32, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Return up to `max_messages`, as soon as there is one; none if none arrives within `timeout_s` (0: at once).

        Acknowledges the messages that the last call returned. Raises InvalidBody if the next message cannot be
        inflated or deserialized. Errors of pulls are logged, and the pulls repeated.
        """
        self._check_process()
        check_number("max_messages", max_messages, 1)
        check_number("timeout_s", timeout_s, 0)
        self._finish_polled()
        begun_s = time.time()
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._buffer.take()
        except TimeoutError:
            return []
        messages: list[ReceivedMessage] = []
        while message is not None:
            try:
                messages.append(prepare(message, self._deserializer))
            except InvalidBody:
                self._buffer.put_back(message)
                if messages:
                    break  # the next call raises it
                raise
            self._polled.append(message)
            message = self._buffer.take_nowait() if len(messages) < max_messages else None
        self._handled += len(messages)
        if messages:
            self._received(messages, begun_s)
        return messages

    def __aiter__(self) -> MessageLoop:
        self._check_process()
        return MessageLoop(self._buffer, self._take, acknowledges=True)

    async def _take(self) -> ReceivedMessage | None:
        begun_s = time.time()
        message = await self._buffer.take()
        if message is None:
            return None
        try:
            prepare(message, self._deserializer)
        except InvalidBody:
            self._buffer.put_back(message)
            raise
        self._received([message], begun_s)
        return message

    def _finish_polled(self) -> None:
        polled, self._polled = self._polled, []
        for message in polled:
            message.finish()

    def _puller(self, queue: MessageQueue) -> QueuePuller:
        self._check_process()
        return self._member.puller(self._wrapped(queue))
