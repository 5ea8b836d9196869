"""Transactions: messages that become visible together with a local transaction of the application.

    send_in_transaction   half message (not visible) -> the local transaction -> END_TRANSACTION (37): commit, rollback
    check                 a broker without an end sends CHECK_TRANSACTION_STATE (39) to a producer of the group
                          -> the checker -> END_TRANSACTION (37)

If a producer dies between the two steps, the broker sends the check to any member of its group. So the checker must
derive the state from persistent data (a database), by the message or its transaction id. A checker that cannot decide
returns UNKNOWN, and the broker checks again. A commit that does not reach the broker is no error either: the broker
checks. Source: docs/reference/wire.md, "Transactions".
"""

import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Unpack

import msgspec

from skylarkmq.clients.sdk.base.arguments import check_callable
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, InvalidArgument, invalid_response
from skylarkmq.clients.sdk.connection.connection import Connection
from skylarkmq.clients.sdk.connection.options import lists_options
from skylarkmq.clients.sdk.messages.outgoing_message import encoding
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.sdk.messages.stored_messages import inflate_message
from skylarkmq.clients.sdk.producing.options import StandaloneProducerOptions
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SysFlag
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from skylarkmq.protocol.message import Message, MessageExt, PropertyName
from skylarkmq.protocol.message_id import decode_offset_id

log = logging.getLogger(__name__)


class TransactionState(IntEnum):
    """How a local transaction ended."""

    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = 0


LocalTransaction = Callable[[str], Awaitable[TransactionState]]
"""The local transaction; the argument is the transaction id. If it raises, the state is left to the checker."""
TransactionChecker = Callable[[MessageExt], Awaitable[TransactionState]]
"""Returns the state of the transaction of this half message; its id is the message's `msg_id`."""


class TransactionResult(msgspec.Struct, frozen=True):
    """The result of sending the half message, and the state of the transaction."""

    send: SendResult
    state: TransactionState

    @property
    def transaction_id(self) -> str:
        """Return the transaction id that the local transaction was called with."""
        return self.send.msg_id


class TransactionProducer(Producer):
    """A producer of transactions. All members of its group need the same `checker`."""

    @lists_options
    def __init__(
        self, group: str, *, checker: TransactionChecker, **options: Unpack[StandaloneProducerOptions]
    ) -> None:
        super().__init__(group, **options)
        check_callable("checker", checker)
        self._checker = checker

    async def _join(self) -> None:
        self.client.callbacks.checkers[self.group] = self._check
        await super()._join()

    async def _leave(self) -> None:
        self.client.callbacks.checkers.pop(self.group, None)
        await super()._leave()

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Send `message`, run `local`, and commit or roll back the message by its result.

        Errors as of `send`: `local` was not run. Exceptions of `local` are raised, and the broker checks the
        transaction later. `timeout_s` limits the send, not `local`.
        """
        check_callable("local", local)
        half = {PropertyName.TRANSACTION_PREPARED: "true", PropertyName.PRODUCER_GROUP: self.group}
        with encoding(message):
            message = msgspec.structs.replace(message, properties=message.properties | half)
        result = await self._begin(message, timeout_s=timeout_s, sys_flag=SysFlag.TRANSACTION_PREPARED)
        state = TransactionState.ROLLBACK
        if result.status is SendStatus.OK:  # otherwise the half message may be lost
            state = _state(await local(result.msg_id), "the local transaction")
        await self._end(message, result, state)
        return TransactionResult(result, state)

    async def _end(self, message: Message, result: SendResult, state: TransactionState) -> None:
        if state is TransactionState.UNKNOWN:
            return
        queue = self._namespace.wrap_queue(result.queue)
        try:
            _, _, physical_offset = decode_offset_id(result.offset_msg_id)
        except ValueError as error:
            code, broker = RequestCode.SEND_MESSAGE_V2, f"broker {queue.broker_name}"
            raise invalid_response(code, broker, f"{error}, so the transaction cannot be ended", queue.topic) from error
        header = EndTransactionHeader(
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=int(state),
            msg_id=result.msg_id,
            topic=queue.topic,
            transaction_id=result.transaction_id or result.msg_id,
            bname=queue.broker_name,
        )
        try:
            route = await self.client.routes.find(queue.topic)
            address = route.address(queue.broker_name)
            await self.client.request(address, RequestCode.END_TRANSACTION, header, topic=queue.topic)
        except ClientError as error:
            log.warning(
                "end not sent, the broker will check msg_id=%s state=%s error=%s", result.msg_id, state.name, error
            )
        else:
            self._observe_end(message, result.msg_id, result.offset_msg_id, header.transaction_id, state, checked=False)

    async def _check(self, connection: Connection, check: CheckTransactionHeader, message: MessageExt) -> None:
        """Serve a transaction check of a broker."""
        topic, message.topic = message.topic, self._namespace.strip(message.topic)
        try:
            await inflate_message(message)
            state = _state(await self._checker(message), "the checker")
        except Exception:
            log.warning("checker failed, the broker checks again msg_id=%s", message.msg_id, exc_info=True)
            return
        if state is TransactionState.UNKNOWN:
            return
        header = EndTransactionHeader(
            producer_group=self.group,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=int(state),
            msg_id=check.msg_id or message.msg_id,
            topic=topic,
            from_transaction_check="true",
            transaction_id=check.transaction_id,
            bname=check.bname,
        )
        code = RequestCode.END_TRANSACTION
        try:
            request = RemotingCommand.request(code, header)
            response = await connection.invoke(request, self.client.settings.request_timeout_s)
            if response.code != ResponseCode.SUCCESS:
                raise BrokerError.of(code, response.code, response.remark, f"broker {connection.peer}", topic)
        except ClientError as error:
            log.warning("end not sent, the broker checks again msg_id=%s error=%s", message.msg_id, error)
        else:
            ids = (message.msg_id, message.offset_msg_id, check.transaction_id)
            self._observe_end(message, *ids, state, checked=True)

    def _observe_end(
        self,
        message: Message | MessageExt,
        msg_id: str,
        offset_msg_id: str,
        transaction_id: str | None,
        state: TransactionState,
        *,
        checked: bool,
    ) -> None:
        if self._observer is not None:
            ids = (msg_id, offset_msg_id, transaction_id or msg_id)
            self._observer.ended(message, ids, state.name, by_checker=checked)


def _state(returned: object, function: str) -> TransactionState:
    """Return what a function of the application returned. InvalidArgument if it is no TransactionState."""
    if not isinstance(returned, TransactionState):
        raise InvalidArgument(f"{function} returned {returned!r}, not a TransactionState")
    return returned
