"""Messages that become visible together with something else that the application does.

    send_in_transaction   half message (nobody gets it yet) -> the local transaction -> 37: commit or rollback
    39                    a broker that heard no end asks anybody of the group -> the checker -> 37

A producer that dies between the two leaves the end to the checker of whichever member of its group is there, so the
checker must find out from what lasts (a database), by the message or its transaction id. Who does not know says
UNKNOWN, and is asked again. A commit that does not reach the broker is no error either: it asks.
Source: docs/formats.md, "Transactions".
"""

import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Unpack

import msgspec

from skylarkmq.clients.connection.connection import Connection
from skylarkmq.clients.consuming.stored_messages import inflate_message
from skylarkmq.clients.errors import BrokerError, ClientError, invalid_response
from skylarkmq.clients.options import StandaloneProducerOptions
from skylarkmq.clients.producing.producer import Producer
from skylarkmq.clients.producing.sends import SendResult, SendStatus
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
"""What is done besides, given the transaction's id. If it raises nobody knows how it ended: the checker is asked."""
TransactionChecker = Callable[[MessageExt], Awaitable[TransactionState]]
"""How the transaction of this half message ended; its id is the message's `msg_id`."""


class TransactionResult(msgspec.Struct, frozen=True):
    """Where the half message is, and how the transaction ended."""

    send: SendResult
    state: TransactionState

    @property
    def transaction_id(self) -> str:
        """What the local transaction was given."""
        return self.send.msg_id


class TransactionProducer(Producer):
    """A producer whose group ends transactions. All members of the group need the same `checker`."""

    def __init__(
        self, group: str, *, checker: TransactionChecker, **options: Unpack[StandaloneProducerOptions]
    ) -> None:
        super().__init__(group, **options)
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
        """Send `message`, run `local`, and let the broker deliver or forget the message as that says.

        Errors as of `send`, and then `local` was not run; or what `local` raises.
        """
        half = {PropertyName.TRANSACTION_PREPARED: "true", PropertyName.PRODUCER_GROUP: self.group}
        message = msgspec.structs.replace(message, properties=message.properties | half)
        result = await self._begin(message, timeout_s=timeout_s, sys_flag=SysFlag.TRANSACTION_PREPARED)
        state = TransactionState.ROLLBACK
        if result.status is SendStatus.OK:  # else the half message may be lost, and what depends on it must not be done
            state = await local(result.msg_id)
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
            await self.client.ask(address, RequestCode.END_TRANSACTION, header, topic=queue.topic)
        except ClientError as error:
            log.warning(
                "end not told, the broker will ask msg_id=%s state=%s error=%s", result.msg_id, state.name, error
            )
        else:
            self._observe_end(message, result.msg_id, result.offset_msg_id, header.transaction_id, state, checked=False)

    async def _check(self, connection: Connection, asked: CheckTransactionHeader, message: MessageExt) -> None:
        """Answer a broker's question."""
        topic, message.topic = message.topic, self._namespace.strip(message.topic)
        try:
            await inflate_message(message)
            state = await self._checker(message)
        except Exception:
            log.warning("checker failed, the broker asks again msg_id=%s", message.msg_id, exc_info=True)
            return
        if state is TransactionState.UNKNOWN:
            return
        header = EndTransactionHeader(
            producer_group=self.group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=int(state),
            msg_id=asked.msg_id or message.msg_id,
            topic=topic,
            from_transaction_check="true",
            transaction_id=asked.transaction_id,
            bname=asked.bname,
        )
        code = RequestCode.END_TRANSACTION
        try:
            request = RemotingCommand.request(code, header)
            answer = await connection.invoke(request, self.client.settings.request_timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError.of(code, answer.code, answer.remark, f"broker {connection.peer}", topic)
        except ClientError as error:
            log.warning("end not told, the broker asks again msg_id=%s error=%s", message.msg_id, error)
        else:
            ids = (message.msg_id, message.offset_msg_id, asked.transaction_id)
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
