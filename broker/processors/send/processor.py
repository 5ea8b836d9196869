"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

    checks -> appends -> store.put ... end of the read: store.commit -> responses

A send is checked, completed and put into the store's open batch at once. Its response is written when the store has
decided its status: after the write at the end of this read, after the flush that covers it (SYNC_FLUSH), or once it is
copied (SYNC_MASTER). So a send needs no coroutine, and no response is built before its message is written. Refusals
carry region and trace switch like the responses to accepted sends. While the flush is too far behind, the broker does
not read from producers.

`fast_path.py` serves most sends in runs, which it also gathers; this module serves all others.

Source: docs/reference/wire.md, "Send".
"""

from functools import partial
from typing import Final

from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.delivery.internal_puts import STORED
from skylarkmq.broker.delivery.message_type import special_type
from skylarkmq.broker.processors.send.checks import SendChecks
from skylarkmq.broker.processors.send.fast_path import FastPathSends
from skylarkmq.broker.processors.send.messages import Batch, SendMessages, Waiting
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Processor, RunProcessor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.log.append import PutStatus
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
    PutStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, None),
    PutStatus.SLAVE_NOT_AVAILABLE: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
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
_TIMER: Final = SystemTopic.TIMER


class SendProcessor:
    """Stores messages, and responds when the store has decided their status."""

    def __init__(
        self,
        checks: SendChecks,
        messages: SendMessages,
        store: MessageStore,
        responses: SendResponses,
        pool: Pool,
        times: PutLatency,
    ) -> None:
        self._topic_for = checks.topic_for
        self._messages = messages
        self._store = store
        self._responses = responses
        self._pool = pool
        self._times = times
        self._waiting: list[Waiting] = []
        self._fast_path = FastPathSends(checks.queues, messages, store, responses, pool, times, self.respond_all)

    def __repr__(self) -> str:
        return f"<SendProcessor waiting={len(self._waiting)} {self._pool!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
        }

    def run_handlers(self) -> dict[RequestCode, RunProcessor]:
        """Return the handlers of runs, which serve fast-path sends."""
        return self._fast_path.handlers()

    def send(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        """Serve SEND_MESSAGE (10)."""
        return self._send(source, command, command.header(SendMessageHeader))

    def send_v2(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        """Serve SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): only the header's flag marks a batch."""
        return self._send(source, command, command.header(SendMessageV2Header))

    def _send(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader
    ) -> RemotingCommand | None:
        try:
            topic = self._topic_for(source, command, header)
            if is_true(header.batch):
                self._waiting.append(self._put_batch(source, command, header, topic))
            else:
                append, unique_key, queue_id = self._messages.single(source, command, header, topic)
                if append.status is PutStatus.PENDING:
                    self._store.put(append)
                self._waiting.append((source, command, append, unique_key, queue_id, None))
        except RequestError as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, self._responses.ext)
        return None

    def _put_batch(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> Waiting:
        appends, unique_key = self._messages.batch(source, command, header, topic)
        self._store.put_alike(appends)
        return source, command, appends[-1], unique_key, appends[0].queue_id, appends

    def end_run(self) -> None:
        """Put the sends that the fast path has gathered."""
        self._fast_path.end_run()

    # ------------------------------------------------------------------------------------------------------ responses

    def finish_iteration(self) -> None:
        """Write the sends of this read, and respond to those whose status the write decided."""
        self._fast_path.finish_iteration()
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = []
        arrived_s = waiting[0][0].arrived_s
        self._store.commit()
        if self._store.flush.is_behind:
            for send in waiting:
                send[0].pause_reads()
        pending = [send for send in waiting if send[2].status is PutStatus.PENDING]
        if pending:
            waiting = [send for send in waiting if send[2].status is not PutStatus.PENDING]
            self._pool.pending += len(pending)
            _release_bodies(pending)
            self._store.flush.when_settled(partial(self._respond_after_flush, pending, arrived_s))
        self.respond_all(waiting, arrived_s)

    def run_after_responses(self) -> None:
        """Dispatch the messages and count the sends, after the responses have been written."""
        self._store.make_visible()
        self._fast_path.run_after_responses()

    def _respond_after_flush(self, waiting: list[Waiting], arrived_s: float) -> None:
        self._pool.pending -= len(waiting)
        self.respond_all(waiting, arrived_s)

    def respond_all(self, waiting: list[Waiting], arrived_s: float) -> None:
        """Respond to sends whose status the store has decided; they arrived at `arrived_s`."""
        stored, ok, oneway = self._responses.stored, PutStatus.PUT_OK, Flag.ONEWAY
        for source, command, append, unique_key, queue_id, batch in waiting:
            if command.flag & oneway:
                continue
            if append.status is ok:
                if batch is not None:
                    frame = self._responses.stored_batch(command, batch, unique_key)
                else:
                    handle = self._responses.recall_handle(append) if append.topic == _TIMER else None
                    offsets = append.physical_offset, queue_id, append.queue_offset
                    frame = stored(command, *offsets, unique_key, handle)
                if frame is not None:
                    source.write(frame)
                    continue
            if append.status in STORED:
                sent = [append] if batch is None else batch
                source.write(self._stored_frame(command, append.status, sent, unique_key, queue_id))
            else:
                source.respond(command, self.refusal(append.status))
        if waiting:
            self._count_special_types(waiting)
            self._note_latencies(waiting, arrived_s)

    def _count_special_types(self, waiting: list[Waiting]) -> None:
        """Count delayed, transactional and other special messages by type; the fast path has none."""
        for _, _, last, _, _, batch in waiting:
            if batch is not None and last.keys is not None:
                continue  # a fast-path batch
            for append in batch or (last,):
                kind = special_type(append.properties)
                if kind is not None and append.status in STORED:
                    self._store.queues.note_message_type(append.topic, kind, append.size)

    def _note_latencies(self, waiting: list[Waiting], arrived_s: float) -> None:
        """Note the latencies. The first case covers nearly all calls: one code, and all stored."""
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
        """Return the response to a stored send, in any dialect."""
        first = batch[0]
        code, remark = RESULTS[status]
        header = SendMessageResponseHeader(
            msg_id=self._responses.message_ids(batch),
            queue_id=queue_id,
            queue_offset=first.queue_offset,
            transaction_id=unique_key or None,
            recall_handle=self._responses.recall_handle(first) if first.topic == _TIMER else None,
        )
        return self._responses.stored_general(command, code, remark, header)

    def refusal(self, status: PutStatus) -> RemotingCommand:
        """Return the response to a send that the store has refused with this status."""
        code, remark = RESULTS[status]
        if code is ResponseCode.MESSAGE_ILLEGAL:
            remark = self._messages.illegal
        elif remark is UNAVAILABLE and self._store.flags.lacks_descriptors:
            remark = NO_DESCRIPTORS_LEFT
        elif remark is UNAVAILABLE:
            usage = self._store.disk_usage()
            remark = UNAVAILABLE.format(log=usage.log / 100, queues=usage.queues / 100, index=usage.index / 100)
        return RemotingCommand.response(code, remark, self._responses.ext)


def _release_bodies(pending: list[Waiting]) -> None:
    """Release the bodies of written sends, which need no memory until they are flushed: a body may be a large frame of
    its own."""
    for _, command, append, _, _, batch in pending:
        command.drop_payload()
        for each in batch or (append,):
            each.body = b""
