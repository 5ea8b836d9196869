"""The requests of brokers to a client, on the connections that the client opened: 39, 40, 220, 221, 307, 309, 326.

Consumers and checkers of transactions register here by group. Requests that take time run as tasks, and the response
follows at their end. A request for a group that is not registered here gets the same error as from RocketMQ's clients.
Source: docs/reference/wire.md, "Calls to clients".
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from skylarkmq.clients.sdk.base.errors import printable
from skylarkmq.clients.sdk.connection.connection import Connection, Handler
from skylarkmq.clients.sdk.connection.pending_replies import PendingReplies
from skylarkmq.protocol.bodies.client_state import (
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    ResetOffsets,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
)
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader
from skylarkmq.protocol.message import MessageExt, PropertyName
from skylarkmq.protocol.record import decode

MAX_CALLS: Final = 256
"""Limit of concurrent transaction checks and direct consumptions; further requests are refused."""

log = logging.getLogger(__name__)


class ConsumerAnswers(Protocol):
    """The requests of brokers to a consumer."""

    def group_changed(self) -> None:
        """Handle a change of the group's members."""

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets, in the queues of this consumer."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the offsets that the consumer would commit now."""

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Return the running info, with the stacks of handlers if requested."""

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult | None:
        """Call the handler with a message out of order; None if this consumer has no handler."""


Checker = Callable[[Connection, CheckTransactionHeader, MessageExt], Coroutine[Any, Any, None]]
"""Determines the state of a transaction and sends it to the broker."""
Spawn = Callable[[str, Coroutine[Any, Any, Any]], object]


class Callbacks:
    """The registered consumers and checkers. `handlers()` serves the requests of all connections of a client."""

    def __init__(self, spawn: Spawn) -> None:
        self.consumers: dict[str, ConsumerAnswers] = {}
        self.checkers: dict[str, Checker] = {}
        self.replies = PendingReplies()
        self._spawn = spawn
        self._calls = 0

    def __repr__(self) -> str:
        return f"<Callbacks {len(self.consumers)} consumers, {len(self.checkers)} checkers>"

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._group_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
        }

    def _group_changed(self, connection: Connection, request: RemotingCommand) -> None:
        group = request.header(ConsumerGroupHeader).consumer_group
        log.debug("group changed group=%s peer=%s", group, connection.peer)
        if (consumer := self.consumers.get(group)) is not None:
            consumer.group_changed()

    def _reset(self, connection: Connection, request: RemotingCommand) -> None:
        header = request.header(ResetOffsetHeader)
        table = ResetOffsets.decode(request.body).offset_table
        names = printable(header.group), printable(header.topic)
        log.info("offsets reset by a broker group=%s topic=%s peer=%s", *names, connection.peer)
        if (consumer := self.consumers.get(header.group)) is not None:
            consumer.reset({queue: offset for queue, offset in table.items() if queue.topic == header.topic})

    def _positions(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ConsumerStatusHeader)
        consumer = self.consumers.get(header.group)
        table = {} if consumer is None else consumer.positions(header.topic)
        return RemotingCommand.response(body=ConsumerStatus(table).encode())

    def _running_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(ConsumerRunningInfoHeader)
        consumer = self.consumers.get(header.consumer_group)
        if consumer is None:
            return _no_such_group(header.consumer_group)
        info = consumer.running_info(with_stacks=is_true(header.jstack_enable))
        return RemotingCommand.response(body=info.encode())

    def _consume_directly(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        group = request.header(ConsumeDirectlyHeader).consumer_group
        consumer, messages = self.consumers.get(group), decode(bytes(request.body))
        if consumer is None or not messages:
            return _no_such_group(group)

        async def consume() -> None:
            result = await consumer.consume_directly(messages[0])
            response = _no_such_group(group) if result is None else RemotingCommand.response(body=result.encode())
            connection.respond(request.detached(), response)

        if not self._begin("consume directly", consume()):
            return RemotingCommand.response(ResponseCode.SYSTEM_BUSY, f"{MAX_CALLS} calls run in this client")
        return None

    def _check_transaction(self, connection: Connection, request: RemotingCommand) -> None:
        header = request.header(CheckTransactionHeader)
        for message in decode(bytes(request.body)):
            group = message.properties.get(PropertyName.PRODUCER_GROUP, "")
            checker = self.checkers.get(group)
            if checker is None:
                log.warning("no transaction checker of this group group=%s peer=%s", printable(group), connection.peer)
            elif not self._begin("check transaction", checker(connection, header, message)):
                log.warning("transaction not checked now: too many checks are running peer=%s", connection.peer)

    def _reply(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        if not self.replies.arrived(request):
            log.info("reply without a waiting request peer=%s", connection.peer)
        return RemotingCommand.response()

    def _begin(self, name: str, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Run a call as a task; False if MAX_CALLS run already."""
        if self._calls >= MAX_CALLS:
            coroutine.close()
            return False

        async def counted() -> None:
            try:
                await coroutine
            finally:
                self._calls -= 1

        self._calls += 1
        self._spawn(name, counted())
        return True


def _no_such_group(group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, remark)
