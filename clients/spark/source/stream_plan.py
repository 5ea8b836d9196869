"""The offsets of a streaming query: its start, the end of each batch, and queues that appear or disappear.

    begin()                     where a new query begins; determined once, returned as often as Spark asks
    position()                  where the next batch begins, for versions of Spark that do not pass the start
    latest(start, most, now)    the end of the next batch, or `start` itself: no batch
    fix_target()                AvailableNow: read up to the current ends, and no further
    ranges(start, end)          the ranges of a batch, the same whenever it is planned again

A new queue is added once it has messages, at its first offset. A queue whose broker is not registered or does not
respond is *unreachable* and keeps its offset. A queue that its registered broker no longer has is *gone*, which counts
as a loss. A queue that has become shorter (its topic was recreated) counts as a loss, too; without failOnDataLoss,
reading starts again at its first offset. Queues that the options no longer select are dropped; that is not a loss.

The position is the end that the plan returned last. After a restart it is the end in the checkpoint: Spark then
requests the ranges of the last batch, or an empty range at its end, before it requests the next end. Without either,
the query is new. So `ranges` records the end, also of a batch that is planned again.

The end of a batch contains the starts of the queues that were added in it (clients/spark/source/offsets.py), so a batch
that is planned again after a crash is the same; this includes the first one. Pure logic over `Queues`; the time is an
argument.

With the option `firstBatch`, a new query begins where the checkpoint of another one ended, and its first batch may be
that query's last one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from skylarkmq.clients.arrow.topic.bounds import Queues, Unreachable, find_queues, require_all, resolved, starts_of
from skylarkmq.clients.arrow.topic.data_loss import Loss, LossRule
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.arrow.topic.splitting import Range, ranges_of
from skylarkmq.clients.arrow.topic.topic_names import is_selected
from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.source.limits import TriggerRule, backlog_of, shares_of
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.protocol.bodies.message_queue import MessageQueue

GONE: Final = "the queue no longer exists"
SHRUNK: Final = "the queue ends before that: was the topic recreated?"

log = logging.getLogger(__name__)


class PlanStatistics(msgspec.Struct, frozen=True):
    """Figures of a query: known queues, planned batches, and unread offsets as of the last check."""

    queues: int
    batches: int
    backlog: int


class StreamPlan:
    """One query's offsets. `pause` waits before a doubtful result is requested again."""

    def __init__(
        self, options: SourceOptions, cluster: Queues, now_ms: int, pause: Callable[[], None] = lambda: None
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._pause = pause
        self._losses = LossRule(options.fail_on_data_loss)
        self._rule = TriggerRule(options.min_per_trigger, options.max_trigger_delay_ms, now_ms)
        self._begin: Offset | None = None
        self._position: dict[str, Any] | None = None
        self._target: Positions | None = None
        self._known: Positions = {}
        self._committed: Positions = {}
        self._batches = self._backlog = 0

    def __repr__(self) -> str:
        return f"<StreamPlan {len(self._known)} queues target={self._target is not None}>"

    def statistics(self) -> PlanStatistics:
        """Return the plan's figures now."""
        return PlanStatistics(queues=len(self._known), batches=self._batches, backlog=self._backlog)

    def begin(self) -> dict[str, Any]:
        """Return where a new query begins. Raises Unreachable, InvalidBounds."""
        if self._begin is None and self._options.first_batch is not None:
            self._begin = Offset.of(self._options.first_batch.start)
        if self._begin is None:
            queues = find_queues(self._cluster, self._options)
            starts = starts_of(self._cluster, self._options, queues, "latest")
            self._begin = Offset(resolved(self._cluster, starts))
            log.info("new query queues=%d", len(queues))
        return self._begin.to_dict()

    def position(self) -> dict[str, Any]:
        """Return where the next batch begins. Raises Unreachable, OptionError."""
        return self.begin() if self._position is None else self._position

    def fix_target(self) -> None:
        """Exclude messages that arrive from now on. Raises Unreachable if the end of a queue is unknown."""
        queues = find_queues(self._cluster, self._options)
        self._target = require_all(self._cluster.end_offsets(queues), queues)

    def latest(
        self, start: Mapping[str, Any], most: int | None, now_ms: int, *, is_all: bool = False
    ) -> dict[str, Any]:
        """Return the end of the next batch of at most `most` offsets. Raises DataLoss.

        `is_all`: do not wait for a minimum.
        """
        first = self._options.first_batch
        end = None if first is None else first.end_after(start)
        self._position = self._end(start, most, now_ms, is_all=is_all) if end is None else end
        return self._position

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """Return the ranges between two offsets; none if the start is after the end (a repeated first batch)."""
        self._position = dict(end)
        if start == end:
            return []
        before, ends = Offset.of(start), Offset.of(end)
        if ends.logs:
            raise OptionError(
                "rocketmq: the last batch reads the store of a broker and has not finished: first read that store to "
                "its end"
            )
        starts = before.ends | ends.starts
        if unknown := sorted(ends.ends.keys() - starts.keys()):
            raise ValueError(f"the checkpoint has no start of {', '.join(map(str, unknown))}")
        return ranges_of(starts, ends.ends)

    def reported(self) -> dict[str, Any] | None:
        """Return the ends of all queues as of the last check."""
        return Offset(self._known).to_dict() if self._known else None

    def commit(self, positions: Mapping[MessageQueue, int]) -> None:
        """Commit the changed positions for the group of the options."""
        if self._options.group is None:
            return
        changed = {queue: offset for queue, offset in positions.items() if self._committed.get(queue) != offset}
        failed = self._cluster.commit(changed) if changed else []
        self._committed |= {queue: offset for queue, offset in changed.items() if queue not in failed}

    # ----------------------------------------------------------------------------------------------- offsets and queues

    def _end(self, start: Mapping[str, Any], most: int | None, now_ms: int, *, is_all: bool) -> dict[str, Any]:
        offset = Offset.of(start)
        self._require_brokers(offset.logs)
        before = offset.ends
        self.commit(before)
        stay, ends = self._current_state(before)
        added = self._new_queues(stay, ends)
        starts = stay | added
        ends = stay | {queue: end for queue, end in ends.items() if queue in starts}
        backlog = backlog_of(starts, ends)
        self._backlog = sum(backlog.values())
        if self._target is None and not is_all and not self._rule.allows(self._backlog, now_ms):
            return dict(start)
        shares = shares_of(backlog, most) if most is not None else backlog
        upto = {queue: begin + shares.get(queue, 0) for queue, begin in starts.items()}
        if upto == before:
            return dict(start)
        self._batches += 1
        is_first = self._begin is not None and before == self._begin.ends
        return Offset(upto, starts if is_first else added).to_dict()

    def _require_brokers(self, names: Iterable[str]) -> None:
        """Raises Unreachable unless the brokers whose stores were read are registered: the offsets are theirs."""
        missing = sorted(set(names) - self._cluster.brokers()) if names else []
        if missing:
            raise Unreachable(
                f"the checkpoint continues the store of broker {missing[0]}, which is not registered: start it, or "
                "read the store again with the right brokerName, a new checkpoint and a new table"
            )

    def _current_state(self, before: Positions) -> tuple[Positions, Positions]:
        """Return the queues that remain, with their offsets, and the ends of all reachable queues."""
        found = self._cluster.queues() if self._target is None else set(self._target)
        ends = self._cluster.end_offsets(found) if self._target is None else dict(self._target)
        lost = dict.fromkeys(self._gone(before, found, ends), GONE)
        lost |= dict.fromkeys(self._shrunk(before, ends), SHRUNK)
        for queue, why in lost.items():
            self._losses.record(Loss(queue, before[queue], None, why))
        self._losses.log_losses()
        self._known |= ends
        stay = {queue: begin for queue, begin in before.items() if queue not in lost and self._is_selected(queue)}
        return stay, ends

    def _new_queues(self, stay: Positions, ends: Positions) -> Positions:
        """Return the starts of new queues that have messages."""
        fresh = {queue for queue, end in ends.items() if queue not in stay and end > 0}
        firsts = self._cluster.first_offsets(fresh) if fresh else {}
        if self._target is not None:
            require_all(firsts, fresh)
        added = {queue: first for queue, first in firsts.items() if first < ends[queue]}
        for queue, first in added.items():
            log.info("new queue queue=%s first=%d", queue, first)
        return added

    def _gone(self, before: Positions, found: set[MessageQueue], ends: Positions) -> set[MessageQueue]:
        """Return the selected queues that their brokers no longer have, after all retries.

        The ends of queues that reappear during the retries are added to `ends`.
        """
        missing = {queue for queue in before.keys() - found if self._is_selected(queue)}
        if not missing:
            return set()
        back: set[MessageQueue] = set()
        for _ in range(self._options.lookup_retries):
            self._pause()
            back |= missing & self._cluster.queues()
        ends |= self._cluster.end_offsets(back)
        missing -= back
        registered = self._cluster.brokers() if missing else set()
        away = {queue.broker_name for queue in missing} - registered
        if away and self._target is not None:
            raise Unreachable(f"brokers are no longer registered: {', '.join(sorted(away))}")
        for name in sorted(away):
            log.warning("broker is not registered, its queues keep their offsets broker=%s", name)
        return {queue for queue in missing if queue.broker_name in registered}

    def _shrunk(self, before: Positions, ends: Positions) -> set[MessageQueue]:
        """Return the queues that end before the offset up to which they were read."""
        short = {queue for queue, end in ends.items() if end < before.get(queue, 0)}
        for _ in range(self._options.lookup_retries if short else 0):
            self._pause()
            ends |= self._cluster.end_offsets(short)
            short = {queue for queue in short if ends[queue] < before[queue]}
        return short

    def _is_selected(self, queue: MessageQueue) -> bool:
        options = self._options
        if options.subscribe_pattern is not None:
            return is_selected(queue.topic, options.subscribe_pattern, ())
        return queue in options.assign if options.assign is not None else queue.topic in (options.subscribe or ())
