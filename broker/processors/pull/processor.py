"""Pulls: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

    PullChecks -> store.get -> response, or park in Arrivals -> (an arrival, the deadline) -> all of it again, response

`fast_path.py` serves most pulls of consumers that read a backlog; this module serves all others.

The stored records are the body of the response: regions of the log are sent unchanged, after a head from a template. A
pull is parked only if it found its queue at the end (PULL_NOT_FOUND, 19), allows suspension, and runs for the first
time; it is parked in the same synchronous step. A resumed pull runs all checks again, does not commit offsets again,
and gets a response in any case. If its client has disconnected, it is dropped.

A pull of data that is not in memory raises ColdRead before it has changed anything, and is run again once the data has
been fetched.

After an operator has reset a group, its next pull of each queue gets PULL_OFFSET_MOVED (21), and commits nothing.

Source: docs/reference/wire.md, "Pull", "Long polling", "Resetting offsets".
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.fall_behind import FallBehind
from skylarkmq.broker.delivery.arrivals import Arrivals, ParkedPull
from skylarkmq.broker.delivery.cold_read_retry import serve_cold_reads
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.pull.checks import AdmittedPull, PullChecks, PullConfig, PullForbidden
from skylarkmq.broker.processors.pull.fast_path import FastPathPulls
from skylarkmq.broker.processors.pull.on_slave import SlaveResult, on_slave, refused
from skylarkmq.broker.processors.pull.response import pull_response_head, suggested_broker_id
from skylarkmq.broker.remoting.admission import memory_of
from skylarkmq.broker.remoting.dispatch import Processor, RunProcessor, error_response
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore
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
"""For an empty queue only offset 0 is valid: a pull from another offset gets PULL_OFFSET_MOVED."""

_FOUND: Final = GetStatus.FOUND
_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET


class PullStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: pulls with and without messages, what they delivered, and the longest queue read."""

    found: int
    missed: int
    messages: int
    bytes: int
    longest_get_ms: int


class PullProcessor:
    """Serves pulls from the store.

    `deliveries` counts the messages of the responses. `has_master`, for a slave: returns whether its master is known.
    """

    def __init__(
        self,
        config: PullConfig,
        checks: PullChecks,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        arrivals: Arrivals,
        latencies: Latencies,
        deliveries: DeliveryCounters,
        has_master: Callable[[], bool],
    ) -> None:
        self._checks = checks
        self._store = store
        self._offsets = offsets
        self._arrivals = arrivals
        self._latencies = latencies
        self.fall_behind = FallBehind()
        self.deliveries = deliveries
        self._fast_path = FastPathPulls(checks, store, offsets, latencies, self.fall_behind, deliveries)
        self._has_master = has_master
        self.invalidate = self._fast_path.invalidate
        self._found = 0
        self._missed = 0
        self._messages = 0
        self._bytes = 0
        self._longest_get_s = 0.0
        self.configure(config)

    def configure(self, config: PullConfig) -> None:
        """Apply new settings to the pulls that follow; parked pulls keep their deadline."""
        self._checks.configure(config)
        self._fast_path.configure(config)
        self._config = config
        self._short_wait_ms = None if config.long_polling_enable else config.short_polling_time_mills

    def __repr__(self) -> str:
        return f"<PullProcessor found={self._found} missed={self._missed}>"

    def statistics(self) -> PullStatistics:
        """Return the current totals."""
        return PullStatistics(
            found=self._found + self._fast_path.found,
            missed=self._missed,
            messages=self._messages + self._fast_path.messages,
            bytes=self._bytes + self._fast_path.bytes,
            longest_get_ms=int(self._longest_get_s * 1000),
        )

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        pull = serve_cold_reads(self._store, self.pull)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def run_handlers(self) -> dict[RequestCode, RunProcessor]:
        """Return the handlers of runs, which serve fast-path pulls; a slave has none."""
        return {} if self._config.is_slave else self._fast_path.handlers()

    def pull(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        """Serve PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Raises ColdRead to be run again."""
        header = command.header(PullMessageHeader)
        return self._pull(source, command, header, header.queue_offset, is_first=True)

    def _pull(
        self,
        source: RequestSource,
        command: RemotingCommand,
        header: PullMessageHeader,
        offset: int,
        *,
        is_first: bool,
    ) -> RemotingCommand | None:
        """Respond to a pull from `offset` (the requested one, or the one it has reached since), or park it."""
        config = self._config
        if config.is_slave and not config.slave_read_enable:
            raise refused()
        try:
            admitted = self._checks.admit(source, command, header)
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
        suggested_broker = suggested_broker_id(config, admitted.group, behind_memory=result.behind_memory)
        if config.is_slave:
            answer = SlaveResult(code, result, suggested_broker)
            code, result, suggested_broker = on_slave(answer, offset, admitted.group, has_master=self._has_master())
        if is_first and code is _NOT_FOUND and self._park(source, command, header, admitted):
            return None
        is_oneway = command.is_oneway
        if not is_oneway:
            self._respond(source, command, code, result, admitted, suggested_broker)
        self._note(header, result)
        self._latencies.note(command.code, code, source.arrived_s, was_parked=not is_first, was_oneway=is_oneway)
        return None

    def _note(self, header: PullMessageHeader, result: GetResult) -> None:
        """Update the counters for a pull that was served."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pull(group, topic, queue_id, result.next_begin_offset)
        if self._config.disk_fall_recorded and result.fall_behind_bytes >= 0:
            self.fall_behind.note(group, topic, queue_id, result.fall_behind_bytes)
        if result.status is _FOUND:
            self.deliveries.note(topic, group, result.message_count, result.total_bytes)

    def _get(self, header: PullMessageHeader, offset: int, admitted: AdmittedPull, *, is_first: bool) -> GetResult:
        """Read the queue, and commit the pull's offset. Raises ColdRead before anything is changed."""
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
        """Return the result for a group that was reset: the new offset. It is returned once per queue."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        first, end = self._store.min_offset(topic, queue_id) or 0, self._store.max_offset(topic, queue_id) or 0
        offset = self._offsets.take_reset(group, topic, queue_id) or 0
        return GetResult(GetStatus.OFFSET_RESET, offset, first, end)

    def _park(
        self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader, admitted: AdmittedPull
    ) -> bool:
        """Park the pull and return True, if its client allows that."""
        wait_ms = header.suspend_timeout_millis if self._short_wait_ms is None else self._short_wait_ms
        if not header.sys_flag & PullSysFlag.SUSPEND or wait_ms <= 0 or self._arrivals.is_closed:
            return False
        command, matches = command.detached(), admitted.matches
        if matches is not None and not callable(matches):
            pull = self._park_with_filter(source, command, header, matches)
        else:
            resume = partial(self._resume, source, command, header, header.queue_offset, source.arrived_s)
            queue = (header.topic, header.queue_id, header.queue_offset)
            pull = ParkedPull(source, *queue, matches, resume, memory_of(command))
        pull.group = header.consumer_group
        self._arrivals.park(pull, wait_ms)
        return True

    def _park_with_filter(
        self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader, test: PropertyTest
    ) -> ParkedPull:
        """Return a parked pull with a property filter. It does not test messages again that it has rejected."""
        arrived_s = source.arrived_s

        def resume() -> None:
            self._resume(source, command, header, pull.queue_offset, arrived_s)

        has_wanted = partial(self._store.has_wanted, header.topic, header.queue_id, test)
        queue = (header.topic, header.queue_id, header.queue_offset)
        pull = ParkedPull(source, *queue, None, resume, memory_of(command), has_wanted)
        return pull

    def _resume(
        self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader, offset: int, arrived_s: float
    ) -> None:
        if source.closed:
            return
        source.arrived_s = arrived_s
        try:
            response = self._pull(source, command, header, offset, is_first=False)
        except ColdRead as cold:
            again = partial(self._resume, source, command, header, offset, arrived_s)
            self._store.reader.fetch(cold).add_done_callback(lambda _fetched: again())
            return
        except Exception as error:  # noqa: BLE001 (the response carries it, and it is logged there)
            response = error_response(command, source.peer, error)
        if response is not None:
            source.respond(command, response)
            self._latencies.note(command.code, response.code, arrived_s, was_parked=True)

    def _respond(
        self,
        source: RequestSource,
        command: RemotingCommand,
        code: ResponseCode,
        result: GetResult,
        admitted: AdmittedPull,
        suggested_broker: int,
    ) -> None:
        head = pull_response_head(command, code, result, admitted.topic, admitted.group, suggested_broker)
        source.write_regions(result.regions, head)
        if result.status is _FOUND:
            self._found += 1
            self._messages += result.message_count
            self._bytes += result.total_bytes
        else:
            self._missed += 1


def _code_of(status: GetStatus, offset: int) -> ResponseCode:
    """Return the response code of a pull from `offset` that found nothing."""
    return ResponseCode.PULL_OFFSET_MOVED if offset and status in EMPTY_QUEUE else CODE_OF_STATUS[status]
