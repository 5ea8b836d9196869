"""Transactions: END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323).

    37 -> half message -> checks -> final and op message put ... end of the read: store.commit -> responses

As with sends, an end is served within the read if possible: its messages are written with the batch of the read, and
the response is built when the store has decided their status. An end becomes a coroutine, with a put of its own, if the
log range is cold, if the open half messages are not loaded yet, or if another end of the same half message is in
progress.

An END_TRANSACTION whose state is "unknown" gets no response; the broker checks that transaction later. Ending a
transaction a second time changes nothing and succeeds. Source: docs/reference/wire.md, "Transactions".
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.transactions.ending import Ending, Endings
from skylarkmq.broker.delivery.transactions.messages import HalfMessage
from skylarkmq.broker.delivery.transactions.recheck import Recheck
from skylarkmq.broker.processors.send.processor import RESULTS
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SysFlag, SystemTopic
from skylarkmq.protocol.command import JSON, NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.frame import encode_prefix
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.transactions import EndTransactionHeader, ResumeCheckHeader
from skylarkmq.protocol.message_id import decode_offset_id
from skylarkmq.protocol.serialize import encode_header

NOT_FOUND: Final = "Find prepared transaction message failed"
PUT_BACK_FAILED: Final = f"Put message back to {SystemTopic.TRANSACTION_HALF} failed."
PUT_BACK_RAISED: Final = f"Exception was thrown when putting message back to {SystemTopic.TRANSACTION_HALF}."
ILLEGAL: Final = (
    "The message is illegal, maybe msg body or properties length not matched. msg body length limit {limit}B, "
    "msg properties length limit 32KB."
)
IS_COMMIT: Final = {SysFlag.TRANSACTION_COMMIT: True, SysFlag.TRANSACTION_ROLLBACK: False}

FAILURES: Final[dict[PutStatus, tuple[ResponseCode, str | None]]] = RESULTS | {
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (ResponseCode.SYSTEM_ERROR, "Create mapped file failed."),
    PutStatus.SYSTEM_BUSY: (ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"),
}

Waiting = tuple[RequestSource, RemotingCommand, Ending]

log = logging.getLogger(__name__)


class EndTransactionProcessor:
    """Ends transactions. `max_message_size`: the limit in bytes that remarks mention."""

    def __init__(
        self,
        endings: Endings,
        resumption: Recheck,
        pool: Pool,
        latencies: Latencies,
        max_message_size: int,
        rights: MessageRights,
    ) -> None:
        self._endings = endings
        self._resumption = resumption
        self._pool = pool
        self._latencies = latencies
        self._rights = rights
        self._waiting: list[Waiting] = []
        self.set_max_message_size(max_message_size)

    def __repr__(self) -> str:
        return f"<EndTransactionProcessor waiting={len(self._waiting)} {self._pool!r}>"

    def set_max_message_size(self, max_message_size: int) -> None:
        """Set the maxMessageSize that remarks mention."""
        self._illegal = ILLEGAL.format(limit=max_message_size)

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.END_TRANSACTION: self.end, RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    # ------------------------------------------------------------------------------------------------------------- 37

    def end(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand] | None:
        """Serve END_TRANSACTION (37)."""
        header = command.header(EndTransactionHeader)
        is_commit = IS_COMMIT.get(header.commit_or_rollback)
        if is_commit is None:
            log.debug("transaction not decided peer=%s key=%s", source.peer, header.msg_id)
            return None
        may_send = partial(self._may, source, command, Action.PUB)
        if not self._endings.is_loaded:
            return self._end_later(header, may_send, is_commit=is_commit)
        try:
            found = self._endings.half_at(header.commit_log_offset, header.tran_state_table_offset)
            half = self._checked(header, found, may_send)
        except ColdRead:
            return self._end_later(header, may_send, is_commit=is_commit)
        if self._endings.is_under_way(half):
            return self._end_later(header, may_send, is_commit=is_commit)
        if self._endings.is_decided(half):
            return end_response(is_commit=is_commit)
        ending = self._endings.begin(half, is_commit=is_commit)
        if isinstance(ending, PutStatus):
            return self._response(ending, is_commit=is_commit)
        self._endings.put(ending)
        self._waiting.append((source, command, ending))
        return None

    async def _end_later(
        self, header: EndTransactionHeader, may_send: Callable[[str], bool], *, is_commit: bool
    ) -> RemotingCommand:
        found = await self._endings.load_half(header.commit_log_offset, header.tran_state_table_offset)
        half = self._checked(header, found, may_send)
        await self._endings.wait_for_others(half)
        if self._endings.is_decided(half):
            return end_response(is_commit=is_commit)
        ending = self._endings.begin(half, is_commit=is_commit)
        if not isinstance(ending, PutStatus):
            ending = await self._endings.put_alone(ending)
        return self._response(ending, is_commit=is_commit)

    def _may(self, source: RequestSource, command: RemotingCommand, action: Action, topic: str) -> bool:
        return self._rights.rights_of(source, command)(topic, action)

    def _checked(
        self, header: EndTransactionHeader, half: HalfMessage | None, may_send: Callable[[str], bool]
    ) -> HalfMessage:
        """Return `half` if the request may end it.

        Raises RequestError if it is absent, overdue, or another half message than the request means. A half message
        whose topic the caller may not send to counts as absent.
        """
        if half is None or not may_send(half.topic):
            raise RequestError(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        if not is_true(header.from_transaction_check) and self._endings.is_overdue(half):
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, NO_RESPONSE_REMARK)
        if half.group != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.record.queue_offset != header.tran_state_table_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.record.physical_offset != header.commit_log_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        if not _ids_match(header, half):
            log.warning(
                "half message at this offset has another id key=%s there=%s",
                header.msg_id,
                half.unique_key,
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        return half

    # ---------------------------------------------------------------------------------------------------------
    # responses

    def finish_iteration(self) -> None:
        """Write the messages of this read, and send the responses whose status the write decided."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        for _, command, _ in waiting:
            command.drop_payload()
        self._pool.pending += len(waiting)
        respond_all = partial(self._respond_all, waiting, waiting[0][0].arrived_s)
        if self._endings.commit(respond_all):
            respond_all()

    def _respond_all(self, waiting: list[Waiting], arrived_s: float) -> None:
        self._pool.pending -= len(waiting)
        for source, command, ending in waiting:
            self._endings.finish(ending)
            if ending.status in STORED and command.dialect == JSON and not command.is_oneway:
                header = END_HEADERS[ending.is_commit] % command.opaque
                source.write(encode_prefix(JSON, len(header), 0) + header)
                code = int(ResponseCode.SUCCESS)
            else:
                response = self._response(ending.status, is_commit=ending.is_commit)
                source.respond(command, response)
                code = response.code
            self._latencies.note(command.code, code, arrived_s, was_oneway=command.is_oneway)

    def _response(self, status: PutStatus, *, is_commit: bool) -> RemotingCommand:
        if status in STORED:
            return end_response(is_commit=is_commit)
        code, remark = FAILURES[status]
        if code is ResponseCode.MESSAGE_ILLEGAL and remark is None:
            remark = self._illegal
        return RemotingCommand.response(code, remark)

    # ------------------------------------------------------------------------------------------------------------ 323

    def resume(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve RESUME_CHECK_HALF_MESSAGE (323)."""
        header = command.header(ResumeCheckHeader)
        log.info("half message check resumed by request peer=%s msg_id=%s", source.peer, header.msg_id)
        return self._resume(header, partial(self._may, source, command, Action.UPDATE))

    async def _resume(self, header: ResumeCheckHeader, may_resume: Callable[[str], bool]) -> RemotingCommand:
        try:
            _, _, physical_offset = decode_offset_id(header.msg_id)
        except ValueError:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_RAISED) from None
        status = await self._resumption.resume(physical_offset, may_resume)
        if status is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_RAISED)
        if status not in STORED:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_FAILED)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK)


def _ids_match(header: EndTransactionHeader, half: HalfMessage) -> bool:
    """Return whether the ids in a request, if it has any, belong to this half message.

    After a power cut the offset of a lost half message may hold another one.
    """
    named = [one for one in (header.msg_id, header.transaction_id) if one]
    if not named or half.unique_key is None or half.unique_key in named:
        return True
    return any(_offset_of(one) == half.record.physical_offset for one in named)


def _offset_of(msg_id: str) -> int | None:
    """Return the physical offset in an offset id, which some clients send as message id; None if it is no offset id."""
    try:
        return decode_offset_id(msg_id)[2]
    except ValueError:
        return None


def end_response(*, is_commit: bool) -> RemotingCommand:
    """Return the response to an END_TRANSACTION (37) that ended the transaction."""
    return RemotingCommand.response(remark=None if is_commit else NO_RESPONSE_REMARK)


def _end_header(*, is_commit: bool) -> bytes:
    """Return the JSON header of that response with a placeholder for the opaque."""
    header = encode_header(end_response(is_commit=is_commit))
    before, opaque, after = header.replace(b"%", b"%%").partition(b'"opaque":')
    return before + opaque + b"%d" + after.removeprefix(b"0")


END_HEADERS: Final = {is_commit: _end_header(is_commit=is_commit) for is_commit in (True, False)}
