"""A consumer that fetches messages when it wants them.

    await consumer.subscribe("Orders")            the group's members share the queues, as with PushConsumer
    await consumer.assign(queues)                 or: exactly these queues, whoever else reads them

    messages = await consumer.poll(32, timeout_s=1.0)
    async for message in consumer: ...

Messages that `poll` returned are finished when `poll` is called again, or `commit`; one of a loop when the next is
asked for. Finished messages are committed every `commit_interval_s` and at the stop, or, with `auto_commit=False`, by
`commit` only. Queues are read ahead, up to the limits in `ConsumerSettings`; `seek` and its like go elsewhere in one,
`pause` and `resume` hold one back.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Unpack

from skylarkmq.clients.arguments import check_group
from skylarkmq.clients.connection.participant import Participant
from skylarkmq.clients.consuming.allocation import averagely
from skylarkmq.clients.consuming.group_member import ConsumeFrom, GroupMember, Role, Sql92
from skylarkmq.clients.consuming.member_responses import MemberAnswers
from skylarkmq.clients.consuming.message_buffer import Delivery, Inbox
from skylarkmq.clients.consuming.push_consumer import ConsumerStatistics
from skylarkmq.clients.consuming.queue_puller import QueueReader
from skylarkmq.clients.errors import ClientClosed
from skylarkmq.clients.hooks import Received
from skylarkmq.clients.namespaces import Namespace
from skylarkmq.clients.options import StandalonePullConsumerOptions, check_options
from skylarkmq.clients.producing.replies import reply
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.protocol.bodies.enums import ConsumeType
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt


class PullConsumer(Participant):
    """A reader in the name of `group`. The options are those of `StandalonePullConsumerOptions` (clients/options.py).

    Reading begins with the first subscription or assignment. `stop` commits what is finished, unless that is left to
    `commit`; loops over messages end.

    `consume_from` counts for queues of which the group has no committed offset; a time means what was stored since.
    `allocation` is the rule by which subscribers share queues, the same for all of them
    (clients/consuming/allocation.py). Topics and group are in `namespace`, if there is one. `hooks` hear what is
    handed over (clients/hooks.py).
    """

    def __init__(self, group: str, **options: Unpack[StandalonePullConsumerOptions]) -> None:
        check_options(options, StandalonePullConsumerOptions, "PullConsumer")
        check_group(group)
        super().__init__(options)
        self._namespace = Namespace(options.get("namespace", ""))
        self._hooks = options.get("hooks")
        group = self._namespace.wrap(group)
        self._auto_commit = options.get("auto_commit", True)
        self._inbox = Inbox()
        role = Role(ConsumeType.CONSUME_ACTIVELY, options.get("consume_from", ConsumeFrom.LAST))
        settings = options.get("settings") or ConsumerSettings()
        allocation = options.get("allocation", averagely)
        self._member = GroupMember(
            self.client, group, role, settings, self._inbox, allocation=allocation, namespace=self._namespace
        )
        self._answers = MemberAnswers(self._member, None, settings)
        self._polled: list[Delivery] = []
        self._handled = 0

    def __repr__(self) -> str:
        return f"<PullConsumer {self._member}>"

    def statistics(self) -> ConsumerStatistics:
        """The consumer's figures now; `handled`: messages that `poll` returned."""
        owned = self._member.owned
        return ConsumerStatistics(
            group=self._member.group,
            queues=self.assignment,
            waiting=len(self._inbox),
            unfinished=owned.unfinished(),
            handled=self._handled,
            failed=0,
        )

    async def _join(self) -> None:
        await self._member.start(auto_commit=self._auto_commit)
        self.client.callbacks.consumers[self._member.group] = self._answers
        if self._hooks is not None:
            self._hooks.consuming(self._member.group, self.client.client_id, self._member.owned.cached)

    def _forked(self) -> None:
        """As a participant's."""
        super()._forked()
        self._inbox.forked()

    async def _leave(self) -> None:
        self.client.callbacks.consumers.pop(self._member.group, None)
        self._inbox.close()
        await self._answers.stop()
        await self._member.stop_reading()
        await self._member.leave(commit=self._auto_commit)

    # -------------------------------------------------------------------------------------------------------- queues

    async def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Read this member's share of `topic`: every message, those with one of the tags in `expression`, or those
        whose properties match an `Sql92`. InvalidMessage, ClientClosed, or BrokerError about the expression.
        """
        self._check_process()
        await self._member.subscribe(self._namespace.wrap(topic), expression)

    async def unsubscribe(self, topic: str) -> None:
        """Read `topic` no more."""
        self._check_process()
        await self._member.unsubscribe(self._namespace.wrap(topic))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read. NoRoute."""
        queues = (await self.client.routes.find(self._namespace.wrap(topic))).subscribe_queues
        return tuple(map(self._namespace.strip_queue, queues))

    async def assign(self, queues: Sequence[MessageQueue]) -> None:
        """Read exactly these queues, from the group's offsets; queues assigned before and not named are given up.

        Does not go with `subscribe`, whose rebalancing would take queues of the same topics away again. A queue that
        does not exist, or whose broker is not there, is tried again and again, with warnings in the log.
        """
        self._check_process()
        owned, wanted = self._member.owned, [self._namespace.wrap_queue(queue) for queue in queues]
        await owned.release(queue for queue in owned.queues() if queue not in wanted)
        for queue in wanted:
            if queue not in owned:
                owned.adopt(queue, self._member.subscription(queue.topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """What is read now."""
        return tuple(map(self._namespace.strip_queue, self._member.owned.queues()))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in a queue that is read now, and forget what was received of it.

        ClientClosed if it is not read here. A paused queue stays so. An offset that the queue does not have (any more)
        leads to the nearest that it has.
        """
        queue = self._reader(queue).queue
        self._polled = [delivery for delivery in self._polled if delivery.progress.queue != queue]
        self._member.owned.adopt(queue, self._member.subscription(queue.topic), offset)

    async def seek_to_time(self, queue: MessageQueue, when: datetime) -> int:
        """Go on at the first message stored at or after `when`; returns its offset, or that of the next to come.

        ClientClosed, NoRoute, BrokerError, or an error of the transport.
        """
        offset = await self._member.calls.offset_at(self._namespace.wrap_queue(queue), int(when.timestamp() * 1000))
        self.seek(queue, offset)
        return offset

    async def seek_to_begin(self, queue: MessageQueue) -> int:
        """Go on at the first message that the queue still has; returns its offset. Errors as of `seek_to_time`."""
        offset = await self._member.calls.min_offset(self._namespace.wrap_queue(queue))
        self.seek(queue, offset)
        return offset

    async def seek_to_end(self, queue: MessageQueue) -> int:
        """Go on at the next message to come; returns its offset. Errors as of `seek_to_time`."""
        offset = await self._member.calls.max_offset(self._namespace.wrap_queue(queue))
        self.seek(queue, offset)
        return offset

    def pause(self, *queues: MessageQueue) -> None:
        """Pull no more from these queues; what was received of them, and a pull under way, still arrive.

        ClientClosed if one is not read here.
        """
        for queue in queues:
            self._reader(queue).pause(paused=True)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with queues that were paused. ClientClosed if one is not read here."""
        for queue in queues:
            self._reader(queue).pause(paused=False)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue, as its broker has it; None if there is none.

        NoRoute, BrokerError, or an error of the transport.
        """
        return await self._member.calls.committed_offset(self._namespace.wrap_queue(queue))

    def _reader(self, queue: MessageQueue) -> QueueReader:
        self._check_process()
        reader = self._member.owned.reader(self._namespace.wrap_queue(queue))
        if reader is None:
            raise ClientClosed(f"{queue} is not read by this consumer: assign it first", topic=queue.topic)
        return reader

    async def commit(self) -> None:
        """Finish what `poll` returned, and write the offsets of all queues to the brokers.

        What a broker does not take is logged, and written by the next commit: `committed` tells what it has.
        """
        self._check_process()
        self._finish_polled()
        await self._member.owned.commit()

    # ------------------------------------------------------------------------------------------------------ messages

    async def poll(self, max_messages: int = 32, timeout_s: float = 1.0) -> list[MessageExt]:
        """Up to `max_messages`, as soon as there is one; none if nothing came within `timeout_s` (seconds, 0: at once).

        What the last call returned is finished by this one. Failures of pulls are logged and tried again, not raised.
        """
        self._check_process()
        self._finish_polled()
        begun_s = time.time()
        try:
            async with asyncio.timeout(timeout_s):
                delivery = await self._inbox.take()
        except TimeoutError:
            return []
        while delivery is not None:
            self._polled.append(delivery)
            delivery = self._inbox.take_nowait() if len(self._polled) < max_messages else None
        self._handled += len(self._polled)
        messages = [delivery.message for delivery in self._polled]
        if self._hooks is not None and messages:
            self._received(messages, begun_s)
        return messages

    async def reply(self, message: MessageExt, body: bytes, properties: dict[str, str] | None = None) -> None:
        """Answer a message that `Producer.request` sent. InvalidMessage if it is none, or what a send fails with."""
        await reply(self.client, self._member.group, message, body, properties)

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        self._check_process()
        return self._inbox.iterate(
            None if self._hooks is None else lambda message, at_s: self._received([message], at_s)
        )

    def _received(self, messages: Sequence[MessageExt], begun_s: float) -> None:
        if self._hooks is not None:
            group, client_id = self._member.group, self.client.client_id
            self._hooks.received(Received(messages, group, client_id, begun_s, self._namespace.name))

    def _finish_polled(self) -> None:
        polled, self._polled = self._polled, []
        for delivery in polled:
            delivery.finish()
