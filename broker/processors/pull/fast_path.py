"""Fast path for the pulls of consumers that read a backlog.

A consumer with a backlog pulls the next messages of a queue again and again; only the offset changes. For such pulls a
PullStream caches what their responses have in common, the counters that they update, and the next units of the queue,
located for many pulls at once (`MessageStore.read_ahead`). A pull with a stream takes its records and fills numbers
into the prepared head. The PullProcessor serves every other pull: near the end of a queue, with a filter, of data that
is not in memory, or of a group that was reset.

Streams are dropped when topics, groups or settings change (`invalidate`). The located units are valid for a short time
only, since the memory that holds them may be released. A stream locates twice as many each time they were used up.

Source: docs/reference/wire.md, "Pull".
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.broker.counters.delivery_counters import DeliveryCounters, DeliveryCounts
from skylarkmq.broker.counters.fall_behind import FallBehind
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.pull.checks import AdmittedPull, PullChecks, PullConfig
from skylarkmq.broker.processors.pull.response import (
    Pieces,
    found_head,
    found_pieces,
    pull_response_head,
    suggested_broker_id,
)
from skylarkmq.broker.remoting.dispatch import RunProcessor
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus, ReadAhead, as_piece
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import Flag, PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.msgpack_header import PackedCommand
from skylarkmq.protocol.pull_command import PullCommand
from skylarkmq.protocol.unit_runs import Records

BACKLOG_FACTOR: Final = 4
"""The fast path serves a pull if its queue has at least this many times as many messages as it requests."""
MAX_UNITS_AHEAD: Final = 2048
"""Maximum number of units that are located at once: 40 KiB."""
MAX_STREAMS: Final = 512
RUN_RESPONSE_BYTES: Final = 128 << 10
"""Response bytes of a run, after which the write limits of its source are checked."""

_compiled_pull: Final = compiled.load("pull")
_DECODED: Final = frozenset({PullCommand, PackedCommand} if _compiled_pull is None else {_compiled_pull.Pull})
"""Commands whose header was decoded together with the frame."""
_FOUND: Final = GetStatus.FOUND
_PULL: Final = RequestCode.PULL_MESSAGE
_SUCCESS: Final = ResponseCode.SUCCESS
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION
_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET
_ONEWAY: Final = Flag.ONEWAY

Key = tuple[str, str, int, int, str | None, str | None]
"""Group, topic, queue id, flags, subscription and its type."""

log = logging.getLogger(__name__)


class PullStream(msgspec.Struct):
    """Values that the pulls of a group from a queue have in common. `count`: how many units to locate next."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    suggested_broker: int
    pieces: Pieces
    next_pulls: dict[int, int]
    fall_behind: dict[tuple[str, int], int] | None
    delivered: DeliveryCounts
    count: int
    ahead: ReadAhead | None = None


class FastPathPulls:
    """Serves pulls before the PullProcessor does, and updates the same counters."""

    def __init__(
        self,
        checks: PullChecks,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        latencies: Latencies,
        fall_behind: FallBehind,
        deliveries: DeliveryCounters,
    ) -> None:
        self._checks = checks
        self._store = store
        self._offsets = offsets
        self._latencies = latencies
        self._fall_behind = fall_behind
        self._deliveries = deliveries
        self._streams: dict[Key, PullStream] = {}
        self.found = 0
        self.messages = 0
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<FastPathPulls streams={len(self._streams)} found={self.found}>"

    def configure(self, config: PullConfig) -> None:
        """Apply new settings to the pulls that follow."""
        self._config = config
        self.invalidate()

    def invalidate(self) -> None:
        """Drop all streams, because topics, groups or settings have changed."""
        self._streams.clear()

    def handlers(self) -> dict[RequestCode, RunProcessor]:
        """Return the handler of runs for each request code."""
        return {RequestCode.PULL_MESSAGE: self.serve}

    def serve(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> int:
        """Serve the fast-path pulls in `commands` from `at` on, and return how many were served."""
        if self._offsets.has_resets:
            return 0
        number, end, limit = at, len(commands), self.bytes + RUN_RESPONSE_BYTES
        try:
            while number < end and self.bytes < limit and self._serve_one(source, commands[number]):
                number += 1
        except (RequestError, ProtocolError):
            pass  # the PullProcessor raises the same for that command, and responds
        except Exception:  # likewise
            log.exception("fast-path pull failed peer=%s", source.peer)
        if number > at:
            self._latencies.note(_PULL, _SUCCESS, source.arrived_s, number - at)
        return number - at

    def _serve_one(self, source: RequestSource, command: RemotingCommand) -> bool:
        """Serve one pull and return True, or return False if it does not qualify for the fast path."""
        if type(command) not in _DECODED or command.flag & _ONEWAY:
            return False
        header = command.header(PullMessageHeader)
        group, topic, queue_id, flags = header.consumer_group, header.topic, header.queue_id, header.sys_flag
        key = group, topic, queue_id, flags, header.subscription, header.expression_type
        stream = self._streams.get(key) or self._open_stream(source, command, header, key)
        if stream is None or not (flags & _SUBSCRIPTION or self._admitted(source, command, header)):
            return False
        records, ahead = self._take(stream, header, source.arrived_s), stream.ahead
        if records is None or ahead is None:
            self._streams.pop(key, None)
            return False
        queue, next_offset, size = ahead.queue, header.queue_offset + records.count, records.size
        if command.dialect == JSON:
            head = found_head(stream.pieces, queue.end, queue.min_offset, next_offset, command.opaque, size)
        else:
            result = GetResult(_FOUND, next_offset, queue.min_offset, queue.end, total_bytes=size)
            head = pull_response_head(command, _SUCCESS, result, stream.topic, stream.group, stream.suggested_broker)
        source.write_regions((as_piece(records, ahead.units),), head)
        if flags & _COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)
        stream.next_pulls[queue_id] = next_offset
        if stream.fall_behind is not None:
            stream.fall_behind[group, queue_id] = self._store.max_physical_offset - records.last
        self._count(stream.delivered, records.count, size)
        return True

    def _count(self, row: DeliveryCounts, count: int, size: int) -> None:
        row.messages += count
        row.bytes += size
        row.pulls += 1
        self.found += 1
        self.messages += count
        self.bytes += size

    def _open_stream(
        self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader, key: Key
    ) -> PullStream | None:
        """Return a new stream if the pull has a long backlog and no filter; otherwise None."""
        group, topic, wanted = header.consumer_group, header.topic, header.max_msg_nums
        if (
            wanted < 1
            or self._store.messages_from(topic, header.queue_id, header.queue_offset) < BACKLOG_FACTOR * wanted
        ):
            return None
        admitted = self._admitted(source, command, header)
        if admitted is None:
            return None
        if len(self._streams) >= MAX_STREAMS:
            self._streams.clear()
        config, found = self._config, (admitted.topic, admitted.group)
        suggested_broker = suggested_broker_id(config, admitted.group, behind_memory=False)
        stream = self._streams[key] = PullStream(
            *found,
            suggested_broker,
            found_pieces(*found, suggested_broker),
            self._offsets.next_pulls(group, topic),
            self._fall_behind.figures(topic) if config.disk_fall_recorded else None,
            self._deliveries.row(topic, group),
            min(BACKLOG_FACTOR * wanted, MAX_UNITS_AHEAD),
        )
        return stream

    def _admitted(
        self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader
    ) -> AdmittedPull | None:
        """Return the checked pull if it has no filter, otherwise None. Raises RequestError if it may not be served."""
        admitted = self._checks.admit(source, command, header)
        return admitted if admitted.matches is None else None

    def _take(self, stream: PullStream, header: PullMessageHeader, now_s: float) -> Records | None:
        """Return the next records of the stream, locating more units if needed; None if they are not available in
        memory."""
        offset, wanted, ahead = header.queue_offset, header.max_msg_nums, stream.ahead
        if ahead is not None and now_s < ahead.until_s and not ahead.queue.is_removed:
            records = ahead.units.take(offset, min(wanted, ahead.most), ahead.most_bytes)
            if records is not None:
                return records
            stream.count = min(2 * stream.count, MAX_UNITS_AHEAD)
        stream.ahead = ahead = self._store.read_ahead(header.topic, header.queue_id, offset, stream.count)
        return None if ahead is None else ahead.units.take(offset, min(wanted, ahead.most), ahead.most_bytes)
