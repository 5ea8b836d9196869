"""Plain pulls: those of consumers that catch up, with one look at each.

A consumer that is behind asks a queue for the next messages again and again, and nothing is different each time but an
offset. Such pulls have a lane: what their answers have in common, where their books are, and the next units of the
queue, found for many pulls at once (`MessageStore.ahead`). With it a pull is plain: its records are taken, its head is
filled in, and that is all. Whatever is not so the `PullProcessor` serves like any request: who has nearly caught up,
wants some messages only, reads what is not in memory, or has been reset.

Lanes last until something is changed of topics, groups or settings (`look_again`). What they have of a queue is
believed for a moment only, since memory may go away, and looked for anew: twice as much each time that it was used up.

Source: docs/formats.md, "Pull".
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.broker.delivery.delivery_counters import DeliveryCounters, DeliveryCounts
from skylarkmq.broker.delivery.fall_behind import FallBehind
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.pull.checks import AdmittedPull, PullChecks, PullConfig
from skylarkmq.broker.processors.pull.response import Pieces, broker_to_ask, found_head, found_pieces, pull_answer_head
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import RunProcessor
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.queue_reads import Ahead, GetResult, GetStatus, piece_of
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

FAR_BEHIND: Final = 4
"""Times as many messages as are wanted: who has less before him is served like any request."""
MOST_AHEAD: Final = 2048
"""Units of a queue that are found at once: 40 KiB."""
MOST_LANES: Final = 512
RUN_BYTES: Final = 128 << 10
"""Of answers, after which somebody looks whether the peer takes them."""

_leaf: Final = compiled.load("pull")
_PLAIN: Final = frozenset({PullCommand, PackedCommand} if _leaf is None else {_leaf.Pull})
"""Whose headers were decoded on the way in."""
_FOUND: Final = GetStatus.FOUND
_PULL: Final = RequestCode.PULL_MESSAGE
_SUCCESS: Final = ResponseCode.SUCCESS
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION
_COMMIT_OFFSET: Final = PullSysFlag.COMMIT_OFFSET
_ONEWAY: Final = Flag.ONEWAY

Key = tuple[str, str, int, int, str | None, str | None]
"""Group, topic, queue id, flags, subscription and its type."""

log = logging.getLogger(__name__)


class Lane(msgspec.Struct):
    """What the pulls of a group from a queue have in common. `count` units are looked for when `ahead` is used up."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    ask_next: int
    pieces: Pieces
    next_pulls: dict[int, int]
    fall_behind: dict[tuple[str, int], int] | None
    delivered: DeliveryCounts
    count: int
    ahead: Ahead | None = None


class PlainPulls:
    """Takes pulls before the PullProcessor does, and keeps the same books."""

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
        self._lanes: dict[Key, Lane] = {}
        self.found = 0
        self.messages = 0
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<PlainPulls lanes={len(self._lanes)} found={self.found}>"

    def configure(self, config: PullConfig) -> None:
        """Serve by these settings from now on."""
        self._config = config
        self.look_again()

    def look_again(self) -> None:
        """Something was changed on which answers depend."""
        self._lanes.clear()

    def handlers(self) -> dict[RequestCode, RunProcessor]:
        """What runs are made of."""
        return {RequestCode.PULL_MESSAGE: self.serve}

    def serve(self, connection: Connection, commands: Sequence[RemotingCommand], at: int) -> int:
        """Answer the plain pulls that stand at `at` and behind it; returns how many they are."""
        if self._offsets.has_resets:
            return 0
        number, end, limit = at, len(commands), self.bytes + RUN_BYTES
        try:
            while number < end and self.bytes < limit and self._answer(connection, commands[number]):
                number += 1
        except (RequestError, ProtocolError):
            pass  # the PullProcessor will meet the same with that command, and answer it
        except Exception:  # and this
            log.exception("a plain pull failed peer=%s", connection.peer)
        if number > at:
            self._latencies.note(_PULL, _SUCCESS, connection.arrived_s, number - at)
        return number - at

    def _answer(self, connection: Connection, command: RemotingCommand) -> bool:
        """Answer a pull, if it is a plain one."""
        if type(command) not in _PLAIN or command.flag & _ONEWAY:
            return False
        asked = command.header(PullMessageHeader)
        group, topic, queue_id, flags = asked.consumer_group, asked.topic, asked.queue_id, asked.sys_flag
        key = group, topic, queue_id, flags, asked.subscription, asked.expression_type
        lane = self._lanes.get(key) or self._begin(connection, command, asked, key)
        if lane is None or not (flags & _SUBSCRIPTION or self._admitted(connection, command, asked)):
            return False
        records, ahead = self._take(lane, asked, connection.arrived_s), lane.ahead
        if records is None or ahead is None:
            self._lanes.pop(key, None)
            return False
        queue, next_offset, size = ahead.queue, asked.queue_offset + records.count, records.size
        if command.dialect == JSON:
            head = found_head(lane.pieces, queue.end, queue.min_offset, next_offset, command.opaque, size)
        else:
            result = GetResult(_FOUND, next_offset, queue.min_offset, queue.end, total_bytes=size)
            head = pull_answer_head(command, _SUCCESS, result, lane.topic, lane.group, lane.ask_next)
        connection.write_regions((piece_of(records, ahead.units),), head)
        if flags & _COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, asked.commit_offset)
        lane.next_pulls[queue_id] = next_offset
        if lane.fall_behind is not None:
            lane.fall_behind[group, queue_id] = self._store.max_physical_offset - records.last
        self._count(lane.delivered, records.count, size)
        return True

    def _count(self, row: DeliveryCounts, count: int, size: int) -> None:
        row.messages += count
        row.bytes += size
        row.pulls += 1
        self.found += 1
        self.messages += count
        self.bytes += size

    def _begin(
        self, connection: Connection, command: RemotingCommand, asked: PullMessageHeader, key: Key
    ) -> Lane | None:
        """A lane for a pull from far behind that wants every message."""
        group, topic, wanted = asked.consumer_group, asked.topic, asked.max_msg_nums
        if wanted < 1 or self._store.messages_from(topic, asked.queue_id, asked.queue_offset) < FAR_BEHIND * wanted:
            return None
        admitted = self._admitted(connection, command, asked)
        if admitted is None:
            return None
        if len(self._lanes) >= MOST_LANES:
            self._lanes.clear()
        config, found = self._config, (admitted.topic, admitted.group)
        ask_next = broker_to_ask(config, admitted.group, behind_memory=False)
        lane = self._lanes[key] = Lane(
            *found,
            ask_next,
            found_pieces(*found, ask_next),
            self._offsets.next_pulls(group, topic),
            self._fall_behind.figures(topic) if config.disk_fall_recorded else None,
            self._deliveries.row(topic, group),
            min(FAR_BEHIND * wanted, MOST_AHEAD),
        )
        return lane

    def _admitted(
        self, connection: Connection, command: RemotingCommand, asked: PullMessageHeader
    ) -> AdmittedPull | None:
        """The pull, if it wants every message; RequestError if it may not be served."""
        admitted = self._checks.admit(connection, command, asked)
        return admitted if admitted.matches is None else None

    def _take(self, lane: Lane, asked: PullMessageHeader, now_s: float) -> Records | None:
        """The next messages of the lane, which is made longer if it has not as many."""
        offset, wanted, ahead = asked.queue_offset, asked.max_msg_nums, lane.ahead
        if ahead is not None and now_s < ahead.until_s and not ahead.queue.is_removed:
            records = ahead.units.take(offset, min(wanted, ahead.most), ahead.most_bytes)
            if records is not None:
                return records
            lane.count = min(2 * lane.count, MOST_AHEAD)
        lane.ahead = ahead = self._store.ahead(asked.topic, asked.queue_id, offset, lane.count)
        return None if ahead is None else ahead.units.take(offset, min(wanted, ahead.most), ahead.most_bytes)
