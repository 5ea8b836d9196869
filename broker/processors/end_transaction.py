"""Transactions: END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323).

    37 -> half message -> checks -> final and op message put ... end of the read: store.commit -> answers

As with sends, everything happens within the read if it can: what is put goes out with its batch, and is answered when
the store has decided. What has to wait (the log is cold, what is open is not known yet, another end of the same half
message is under way) goes on by itself, and puts for itself.

A producer that does not know is not answered: it will be asked. To end a transaction again does nothing, and succeeds.
Source: docs/formats.md, "Transactions".
"""

import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final

from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.transactions.ending import Ending, Endings
from skylarkmq.broker.delivery.transactions.messages import Half
from skylarkmq.broker.delivery.transactions.recheck import Recheck
from skylarkmq.broker.processors.send.processor import RESULTS
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.read.cold_reads import ColdRead
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

Waiting = tuple[Connection, RemotingCommand, Ending]

log = logging.getLogger(__name__)


class EndTransactionProcessor:
    """Ends transactions. `max_message_size` in bytes stands in remarks."""

    def __init__(
        self, endings: Endings, resumption: Recheck, pool: Pool, latencies: Latencies, max_message_size: int
    ) -> None:
        self._endings = endings
        self._resumption = resumption
        self._pool = pool
        self._latencies = latencies
        self._turn: list[Waiting] = []
        self.limit(max_message_size)

    def __repr__(self) -> str:
        return f"<EndTransactionProcessor turn={len(self._turn)} {self._pool!r}>"

    def limit(self, max_message_size: int) -> None:
        """Tell another maxMessageSize from now on."""
        self._illegal = ILLEGAL.format(limit=max_message_size)

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {RequestCode.END_TRANSACTION: self.end, RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    # ------------------------------------------------------------------------------------------------------------- 37

    def end(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand] | None:
        """Request 37."""
        header = command.header(EndTransactionHeader)
        is_commit = IS_COMMIT.get(header.commit_or_rollback)
        if is_commit is None:
            log.debug("transaction not decided peer=%s key=%s", connection.peer, header.msg_id)
            return None
        if not self._endings.is_loaded:
            return self._end_later(header, is_commit=is_commit)
        try:
            half = self._checked(header, self._endings.half_at(header.commit_log_offset))
        except ColdRead:
            return self._end_later(header, is_commit=is_commit)
        if self._endings.is_under_way(half):
            return self._end_later(header, is_commit=is_commit)
        if self._endings.is_decided(half):
            return done(is_commit=is_commit)
        ending = self._endings.begin(half, is_commit=is_commit)
        if isinstance(ending, PutStatus):
            return self._answer(ending, is_commit=is_commit)
        self._endings.put(ending)
        self._turn.append((connection, command, ending))
        return None

    async def _end_later(self, header: EndTransactionHeader, *, is_commit: bool) -> RemotingCommand:
        half = self._checked(header, await self._endings.load_half(header.commit_log_offset))
        await self._endings.wait_for_others(half)
        if self._endings.is_decided(half):
            return done(is_commit=is_commit)
        ending = self._endings.begin(half, is_commit=is_commit)
        if not isinstance(ending, PutStatus):
            ending = await self._endings.put_alone(ending)
        return self._answer(ending, is_commit=is_commit)

    def _checked(self, header: EndTransactionHeader, half: Half | None) -> Half:
        """The half message that is meant. RequestError if it is another, or cannot be ended like this."""
        if half is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        if not is_true(header.from_transaction_check) and self._endings.is_overdue(half):
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, NO_RESPONSE_REMARK)
        if half.group != header.producer_group:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.record.queue_offset != header.tran_state_table_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.record.physical_offset != header.commit_log_offset:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        if not _names(header, half):
            log.warning(
                "end of another half message than the one that lies there key=%s there=%s",
                header.msg_id,
                half.unique_key,
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, NOT_FOUND)
        return half

    # --------------------------------------------------------------------------------------------------------- answers

    def finish_turn(self) -> None:
        """Write what this read brought, and answer what is decided by that."""
        turn = self._turn
        if not turn:
            return
        self._turn = []
        for _, command, _ in turn:
            command.let_go()
        self._pool.pending += len(turn)
        answer_all = partial(self._answer_all, turn, turn[0][0].arrived_s)
        if self._endings.commit(answer_all):
            answer_all()

    def _answer_all(self, turn: list[Waiting], arrived_s: float) -> None:
        self._pool.pending -= len(turn)
        for connection, command, ending in turn:
            self._endings.finish(ending)
            if ending.status in STORED and command.dialect == JSON and not command.is_oneway:
                header = DONE[ending.is_commit] % command.opaque
                connection.write(encode_prefix(JSON, len(header), 0) + header)
                code = int(ResponseCode.SUCCESS)
            else:
                response = self._answer(ending.status, is_commit=ending.is_commit)
                connection.answer(command, response)
                code = response.code
            self._latencies.note(command.code, code, arrived_s, was_oneway=command.is_oneway)

    def _answer(self, status: PutStatus, *, is_commit: bool) -> RemotingCommand:
        if status in STORED:
            return done(is_commit=is_commit)
        code, remark = FAILURES[status]
        if code is ResponseCode.MESSAGE_ILLEGAL and remark is None:
            remark = self._illegal
        return RemotingCommand.response(code, remark)

    # ------------------------------------------------------------------------------------------------------------ 323

    def resume(self, connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Request 323."""
        header = command.header(ResumeCheckHeader)
        log.info("half message is asked about again by request peer=%s msg_id=%s", connection.peer, header.msg_id)
        return self._resume(header)

    async def _resume(self, header: ResumeCheckHeader) -> RemotingCommand:
        try:
            _, _, physical_offset = decode_offset_id(header.msg_id)
        except ValueError:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_RAISED) from None
        status = await self._resumption.resume(physical_offset)
        if status is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_RAISED)
        if status not in STORED:
            raise RequestError(ResponseCode.SYSTEM_ERROR, PUT_BACK_FAILED)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK)


def _names(header: EndTransactionHeader, half: Half) -> bool:
    """Whether the ids that a request brings, if it brings any, are those of this half message: after a power cut that
    took the one that was meant, another may have come to lie in its place."""
    named = [one for one in (header.msg_id, header.transaction_id) if one]
    if not named or half.unique_key is None or half.unique_key in named:
        return True
    return any(_offset_of(one) == half.record.physical_offset for one in named)


def _offset_of(msg_id: str) -> int | None:
    """Where the message lies whose offset id this is, as some clients send it; None if it is none."""
    try:
        return decode_offset_id(msg_id)[2]
    except ValueError:
        return None


def done(*, is_commit: bool) -> RemotingCommand:
    """The answer to a transaction that is ended."""
    return RemotingCommand.response(remark=None if is_commit else NO_RESPONSE_REMARK)


def _done_header(*, is_commit: bool) -> bytes:
    """The JSON header of that answer, but for its opaque."""
    header = encode_header(done(is_commit=is_commit))
    before, opaque, behind = header.replace(b"%", b"%%").partition(b'"opaque":')
    return before + opaque + b"%d" + behind.removeprefix(b"0")


DONE: Final = {is_commit: _done_header(is_commit=is_commit) for is_commit in (True, False)}
