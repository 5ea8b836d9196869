"""Sending: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

    checks -> appends -> store.put ... end of the read: store.commit -> answers

A send is checked, completed and put into the store's open batch at once; it is answered when the store has decided its
status: after the write at the end of this read, or under SYNC_FLUSH when the flush has passed it. So nothing is awaited
and no answer exists before the message does. Answers of a refused check carry region and trace switch, as those of
accepted sends do. While the disk is too far behind, those who send are not read from until it has caught up.

Most sends never come here one by one: `plain_sends.py` takes them in runs, and puts those together.

Source: docs/formats.md, "Send".
"""

from functools import partial
from typing import Final, cast

from skylarkmq.broker.delivery.message_type import special_type
from skylarkmq.broker.delivery.put_latency import PutLatency
from skylarkmq.broker.processors.send.checks import SendChecks
from skylarkmq.broker.processors.send.fast_path import PlainSends
from skylarkmq.broker.processors.send.messages import Batch, SendMessages, Waiting, first_of
from skylarkmq.broker.processors.send.response import SendAnswers
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor, RunProcessor
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.batch_columns import BatchColumns
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import Flag, RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageResponseHeader, SendMessageV2Header

UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {index:5.2f}], messages are put to the slave, message store has been "
    "shut down, etc."
)
NO_DESCRIPTORS_LEFT: Final = (
    "service not available now, the broker has no file descriptor left for its store; it goes on by itself when "
    "connections are closed"
)
RESULTS: Final[dict[PutStatus, tuple[ResponseCode, str | None]]] = {
    PutStatus.PUT_OK: (ResponseCode.SUCCESS, None),
    PutStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, None),
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, UNAVAILABLE),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, None),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, None),
    PutStatus.SYSTEM_BUSY: (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}
STORED: Final = {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT}
_TIMER: Final = SystemTopic.TIMER


class SendProcessor:
    """Stores messages, and answers when the store has decided."""

    def __init__(
        self,
        checks: SendChecks,
        messages: SendMessages,
        store: MessageStore,
        answers: SendAnswers,
        pool: Pool,
        times: PutLatency,
    ) -> None:
        self._topic_for = checks.topic_for
        self._messages = messages
        self._store = store
        self._answers = answers
        self._pool = pool
        self._times = times
        self._turn: list[Waiting] = []
        self._plain = PlainSends(checks.queues, messages, store, answers, pool, times, self.answer_all)

    def __repr__(self) -> str:
        return f"<SendProcessor turn={len(self._turn)} {self._pool!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
        }

    def run_handlers(self) -> dict[RequestCode, RunProcessor]:
        """What is served in runs, as far as it is plain."""
        return self._plain.handlers()

    def send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Request 10."""
        return self._send(connection, command, command.header(SendMessageHeader))

    def send_v2(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Requests 310 and 320: what is a batch is said by the header's flag alone."""
        return self._send(connection, command, command.header(SendMessageV2Header))

    def _send(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader
    ) -> RemotingCommand | None:
        try:
            topic = self._topic_for(connection, command, header)
            if is_true(header.batch):
                self._turn.append(self._put_batch(connection, command, header, topic))
            else:
                append, unique_key, queue_id = self._messages.single(connection, command, header, topic)
                if append.status is PutStatus.PENDING:
                    self._store.put(append)
                self._turn.append((connection, command, append, unique_key, queue_id, None))
        except RequestError as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, self._answers.ext)
        return None

    def _put_batch(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> Waiting:
        columns, unique_key = self._messages.batch_columns(connection, command, header, topic)
        if columns is not None and self._store.put_columns(columns):
            return connection, command, cast(Append, columns), unique_key, columns.queue_id, columns
        appends, unique_key = self._messages.batch(connection, command, header, topic)
        self._store.put_alike(appends)
        return connection, command, appends[-1], unique_key, appends[0].queue_id, appends

    def end_run(self) -> None:
        """See PlainSends."""
        self._plain.end_run()

    # --------------------------------------------------------------------------------------------------------- answers

    def finish_turn(self) -> None:
        """Write what this read brought, and answer what is decided by that."""
        self._plain.finish_turn()
        turn = self._turn
        if not turn:
            return
        self._turn = []
        arrived_s = turn[0][0].arrived_s
        self._store.commit()
        if self._store.is_flush_behind:
            for waiting in turn:
                waiting[0].pause_reads()
        pending = [waiting for waiting in turn if waiting[2].status is PutStatus.PENDING]
        if pending:
            turn = [waiting for waiting in turn if waiting[2].status is not PutStatus.PENDING]
            self._pool.pending += len(pending)
            _let_go_of_bodies(pending)
            self._store.when_settled(partial(self._answer_flushed, pending, arrived_s))
        self.answer_all(turn, arrived_s)

    def run_after_responses(self) -> None:
        """Do what nobody's answer waits for."""
        self._store.show()
        self._plain.run_after_responses()

    def _answer_flushed(self, waiting: list[Waiting], arrived_s: float) -> None:
        self._pool.pending -= len(waiting)
        self.answer_all(waiting, arrived_s)

    def answer_all(self, waiting: list[Waiting], arrived_s: float) -> None:
        """Answer sends that the store has decided; they came at `arrived_s`."""
        stored, ok, oneway = self._answers.stored, PutStatus.PUT_OK, Flag.ONEWAY
        for connection, command, append, unique_key, queue_id, batch in waiting:
            if command.flag & oneway:
                continue
            if append.status is ok:
                if batch is not None:
                    frame = self._answers.stored_batch(command, batch, unique_key)
                else:
                    handle = self._answers.recall_handle(append) if append.topic == _TIMER else None
                    offsets = append.physical_offset, queue_id, append.queue_offset
                    frame = stored(command, *offsets, unique_key, handle)
                if frame is not None:
                    connection.write(frame)
                    continue
            if append.status in STORED:
                sent = [append] if batch is None else batch
                connection.write(self._stored_frame(command, append.status, sent, unique_key, queue_id))
            else:
                connection.answer(command, self._refusal(append.status))
        if waiting:
            self._note_kinds(waiting)
            self._note_times(waiting, arrived_s)

    def _note_kinds(self, waiting: list[Waiting]) -> None:
        """Have messages of special kinds counted as such, behind the count of all; runs have none."""
        for _, _, last, _, _, batch in waiting:
            if isinstance(batch, BatchColumns) or (batch is not None and last.keys is not None):
                continue  # a plain batch
            for append in batch or (last,):
                kind = special_type(append.properties)
                if kind is not None and append.status in STORED:
                    self._store.note_special(append.topic, kind, append.size)

    def _note_times(self, waiting: list[Waiting], arrived_s: float) -> None:
        """Tell how long these took; nearly always all of them asked for the same and got it."""
        note = self._times.note
        first, ok = waiting[0][1], PutStatus.PUT_OK
        codes = [command.code for _, command, append, *_ in waiting if append.status is ok]
        if codes.count(first.code) == len(waiting) and not first.flag & Flag.ONEWAY:
            note(first.code, ResponseCode.SUCCESS, arrived_s, len(waiting))
            return
        for _, command, append, *_ in waiting:
            note(command.code, RESULTS[append.status][0], arrived_s, was_oneway=command.is_oneway)

    def _stored_frame(
        self, command: RemotingCommand, status: PutStatus, batch: Batch, unique_key: str, queue_id: int
    ) -> bytes:
        """The answer to a send that is stored, in any dialect."""
        first = first_of(batch)
        code, remark = RESULTS[status]
        header = SendMessageResponseHeader(
            msg_id=self._answers.message_ids(batch),
            queue_id=queue_id,
            queue_offset=first.queue_offset,
            transaction_id=unique_key or None,
            recall_handle=self._answers.recall_handle(first) if first.topic == _TIMER else None,
        )
        return self._answers.stored_general(command, code, remark, header)

    def _refusal(self, status: PutStatus) -> RemotingCommand:
        code, remark = RESULTS[status]
        if code is ResponseCode.MESSAGE_ILLEGAL:
            remark = self._messages.illegal
        elif remark is UNAVAILABLE and self._store.lacks_descriptors:
            remark = NO_DESCRIPTORS_LEFT
        elif remark is UNAVAILABLE:
            usage = self._store.disk_usage()
            remark = UNAVAILABLE.format(log=usage.log / 100, queues=usage.queues / 100, index=usage.index / 100)
        return RemotingCommand.response(code, remark, self._answers.ext)


def _let_go_of_bodies(pending: list[Waiting]) -> None:
    """What is written need not stay in memory until it is flushed: a body may be large, and a frame of its own."""
    for _, command, append, _, _, batch in pending:
        command.let_go()
        if isinstance(batch, BatchColumns):
            continue  # it has let go already
        for each in batch or (append,):
            each.body = b""
