"""Pulling: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

    PullChecks -> store.get -> answer, or park in Arrivals -> (an arrival, the deadline) -> all of it again, answer

Most pulls of consumers that catch up never come here: `plain_pulls.py` takes them.

The stored records are the body of the answer: regions of the log go out as they are, behind a head made by filling in
numbers. Only a pull that found its queue at the end (19), said that it would wait, and runs for the first time is
parked, in the step that found the queue so. When it is resumed everything is checked anew, offsets are not committed
again, and it is answered whatever comes; if its client is gone, nothing happens.

A pull of what is not in memory raises ColdRead before it has changed anything, and is run again once that was fetched.

A group that an operator has reset is told so by its next pull of each queue (21), and commits nothing with it.

Source: docs/formats.md, "Pull", "Long polling", "Resetting offsets".
"""

from functools import partial
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.delivery.arrivals import Arrivals, ParkedPull
from skylarkmq.broker.delivery.delivery_counters import DeliveryCounters
from skylarkmq.broker.delivery.fall_behind import FallBehind
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.cold_read_retry import patient
from skylarkmq.broker.processors.pull.checks import AdmittedPull, PullChecks, PullConfig, PullForbidden
from skylarkmq.broker.processors.pull.fast_path import PlainPulls
from skylarkmq.broker.processors.pull.response import broker_to_ask, pull_answer_head
from skylarkmq.broker.remoting.admission import memory_of
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor, error_response
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.broker.store.read.property_filters import PropertyTest
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader

CODE_OF_STATUS: Final = {
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
EMPTY_QUEUE: Final = frozenset((GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE))
"""Of an empty queue a consumer can only want offset 0: any other has moved."""

_FOUND: Final = GetStatus.FOUND
_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET


class PullStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: pulls answered with messages and without, what they were answered with, and how long the
    longest look into a queue took."""

    found: int
    missed: int
    messages: int
    bytes: int
    longest_get_ms: int


class PullProcessor:
    """Reads queues for consumers."""

    def __init__(
        self,
        config: PullConfig,
        checks: PullChecks,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        arrivals: Arrivals,
        latencies: Latencies,
    ) -> None:
        self._checks = checks
        self._store = store
        self._offsets = offsets
        self._arrivals = arrivals
        self._latencies = latencies
        self.fall_behind = FallBehind()
        self.deliveries = DeliveryCounters()
        self._plain = PlainPulls(checks, store, offsets, latencies, self.fall_behind, self.deliveries)
        self.run_handlers = self._plain.handlers
        self.look_again = self._plain.look_again
        self._found = 0
        self._missed = 0
        self._messages = 0
        self._bytes = 0
        self._longest_get_s = 0.0
        self.configure(config)

    def configure(self, config: PullConfig) -> None:
        """Serve by these settings from now on; what is parked stays so for as long as it was told."""
        self._checks.configure(config)
        self._plain.configure(config)
        self._config = config
        self._short_wait_ms = None if config.long_polling_enable else config.short_polling_time_mills

    def __repr__(self) -> str:
        return f"<PullProcessor found={self._found} missed={self._missed}>"

    def statistics(self) -> PullStatistics:
        """The figures now."""
        return PullStatistics(
            found=self._found + self._plain.found,
            missed=self._missed,
            messages=self._messages + self._plain.messages,
            bytes=self._bytes + self._plain.bytes,
            longest_get_ms=int(self._longest_get_s * 1000),
        )

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        pull = patient(self._store, self.pull)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Requests 11 and 361. ColdRead: to be run again."""
        header = command.header(PullMessageHeader)
        return self._pull(connection, command, header, header.queue_offset, is_first=True)

    def _pull(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageHeader,
        offset: int,
        *,
        is_first: bool,
    ) -> RemotingCommand | None:
        """Answer a pull from `offset`, where it asked or where it has got to since, or have it wait."""
        try:
            admitted = self._checks.admit(connection, command, header)
        except PullForbidden as refusal:
            kind = refusal.forbidden_type
            ext = None if kind is None else {"forbiddenType": str(kind)}
            return RemotingCommand.response(refusal.code, refusal.remark, ext)
        topic, queue_id = header.topic, header.queue_id
        if self._offsets.is_reset(header.consumer_group, topic, queue_id):
            result = self._reset(header)
        else:
            result = self._get(header, offset, admitted, is_first=is_first)
        code = _SUCCESS if result.status is _FOUND else _code_of(result.status, offset)
        if is_first and code is _NOT_FOUND and self._park(connection, command, header, admitted):
            return None
        is_oneway = command.is_oneway
        if not is_oneway:
            self._answer(connection, command, code, result, admitted)
        self._note(header, result)
        self._latencies.note(command.code, code, connection.arrived_s, was_parked=not is_first, was_oneway=is_oneway)
        return None

    def _note(self, header: PullMessageHeader, result: GetResult) -> None:
        """Keep the books of a pull that was served."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pull(group, topic, queue_id, result.next_begin_offset)
        if self._config.disk_fall_recorded and result.fall_behind_bytes >= 0:
            self.fall_behind.note(group, topic, queue_id, result.fall_behind_bytes)
        if result.status is _FOUND:
            self.deliveries.note(topic, group, result.message_count, result.total_bytes)

    def _get(self, header: PullMessageHeader, offset: int, admitted: AdmittedPull, *, is_first: bool) -> GetResult:
        """What the queue has; ColdRead before anything is changed."""
        topic, queue_id = header.topic, header.queue_id
        began_s = monotonic()
        result = self._store.get(topic, queue_id, offset, max(header.max_msg_nums, 1), admitted.matches)
        took_s = monotonic() - began_s
        if took_s > self._longest_get_s:
            self._longest_get_s = took_s
        if is_first and header.sys_flag & _COMMIT_OFFSET:
            self._offsets.commit(header.consumer_group, topic, queue_id, header.commit_offset)
        return result

    def _reset(self, header: PullMessageHeader) -> GetResult:
        """Where an operator has moved the group, told once."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        first, end = self._store.min_offset(topic, queue_id) or 0, self._store.max_offset(topic, queue_id) or 0
        offset = self._offsets.take_reset(group, topic, queue_id) or 0
        return GetResult(GetStatus.OFFSET_RESET, offset, first, end)

    def _park(
        self, connection: Connection, command: RemotingCommand, header: PullMessageHeader, admitted: AdmittedPull
    ) -> bool:
        """Let the pull wait, if its client agreed to it."""
        wait_ms = header.suspend_timeout_millis if self._short_wait_ms is None else self._short_wait_ms
        if not header.sys_flag & PullSysFlag.SUSPEND or wait_ms <= 0 or self._arrivals.is_closed:
            return False
        command, matches = command.detached(), admitted.matches
        if matches is not None and not callable(matches):
            pull = self._looking(connection, command, header, matches)
        else:
            resume = partial(self._resume, connection, command, header, header.queue_offset, connection.arrived_s)
            queue = (header.topic, header.queue_id, header.queue_offset)
            pull = ParkedPull(connection, *queue, matches, resume, memory_of(command))
        pull.group = header.consumer_group
        self._arrivals.park(pull, wait_ms)
        return True

    def _looking(
        self, connection: Connection, command: RemotingCommand, header: PullMessageHeader, test: PropertyTest
    ) -> ParkedPull:
        """A pull that chooses by properties: what it did not want when it arrived is not looked at again."""
        arrived_s = connection.arrived_s

        def resume() -> None:
            self._resume(connection, command, header, pull.queue_offset, arrived_s)

        looks = partial(self._store.has_wanted, header.topic, header.queue_id, test)
        queue = (header.topic, header.queue_id, header.queue_offset)
        pull = ParkedPull(connection, *queue, None, resume, memory_of(command), looks)
        return pull

    def _resume(
        self, connection: Connection, command: RemotingCommand, header: PullMessageHeader, offset: int, arrived_s: float
    ) -> None:
        if connection.closed:
            return
        connection.arrived_s = arrived_s
        try:
            response = self._pull(connection, command, header, offset, is_first=False)
        except ColdRead as cold:
            again = partial(self._resume, connection, command, header, offset, arrived_s)
            self._store.fetch(cold).add_done_callback(lambda _fetched: again())
            return
        except Exception as error:  # noqa: BLE001 (answered, and logged there)
            response = error_response(command, connection.peer, error)
        if response is not None:
            connection.answer(command, response)
            self._latencies.note(command.code, response.code, arrived_s, was_parked=True)

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        code: ResponseCode,
        result: GetResult,
        admitted: AdmittedPull,
    ) -> None:
        group = admitted.group
        ask_next = broker_to_ask(self._config, group, behind_memory=result.behind_memory)
        head = pull_answer_head(command, code, result, admitted.topic, group, ask_next)
        connection.write_regions(result.regions, head)
        if result.status is _FOUND:
            self._found += 1
            self._messages += result.message_count
            self._bytes += result.total_bytes
        else:
            self._missed += 1


def _code_of(status: GetStatus, asked: int) -> ResponseCode:
    """The answer to a pull of offset `asked` that found nothing."""
    return ResponseCode.PULL_OFFSET_MOVED if asked and status in EMPTY_QUEUE else CODE_OF_STATUS[status]
