"""The offsets of a streaming query: where it begins, how far each batch goes, what came and what went meanwhile.

    begin()                     where a new query begins; asked once, told as often as Spark asks
    latest(start, most, now)    the end of the next batch, or the start as it was given: nothing to do
    fix_target()                AvailableNow: go as far as there is something now, and no further
    ranges(start, end)          what a batch reads, the same whenever it is planned again

A queue that appears joins when it has something, at its first offset. A queue whose broker is not registered, or does
not answer, is *away* and stays where it is; one that its registered broker does not have any more is *gone*: a loss. So
is what lies behind the end of a queue that has become shorter (its topic was made again); without failOnDataLoss such a
queue begins anew. Queues that the options do not mean any more are dropped without a word of loss.

What came with a batch has its start in the end of that batch (clients/spark/source/offsets.py), so a batch that is
planned again after a crash is the same, the first one too. Pure over `Queues`; the time comes as an argument.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from skylarkmq.clients.spark.source.bounds import Away, Queues, all_of, find_queues, settled, starts_of
from skylarkmq.clients.spark.source.data_loss import Loss, LossRule
from skylarkmq.clients.spark.source.limits import TriggerRule, backlog_of, shared
from skylarkmq.clients.spark.source.offsets import Offset, Positions
from skylarkmq.clients.spark.source.source_options import SourceOptions
from skylarkmq.clients.spark.source.splitting import Range, ranges_of
from skylarkmq.clients.spark.topic_names import is_meant
from skylarkmq.protocol.bodies.message_queue import MessageQueue

GONE: Final = "the queue does not exist any more"
SHRUNK: Final = "the queue ends before that: was its topic made again?"

log = logging.getLogger(__name__)


class PlanStatistics(msgspec.Struct, frozen=True):
    """A query so far: queues that are known, batches that were planned, offsets that waited when that was looked at."""

    queues: int
    batches: int
    backlog: int


class StreamPlan:
    """One query's offsets. `pause` waits before a doubtful answer is asked for again."""

    def __init__(
        self, options: SourceOptions, cluster: Queues, now_ms: int, pause: Callable[[], None] = lambda: None
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._pause = pause
        self._losses = LossRule(options.fail_on_data_loss)
        self._rule = TriggerRule(options.min_per_trigger, options.max_trigger_delay_ms, now_ms)
        self._begin: Offset | None = None
        self._target: Positions | None = None
        self._known: Positions = {}
        self._told: Positions = {}
        self._batches = self._backlog = 0

    def __repr__(self) -> str:
        return f"<StreamPlan {len(self._known)} queues target={self._target is not None}>"

    def statistics(self) -> PlanStatistics:
        """The plan's figures now."""
        return PlanStatistics(queues=len(self._known), batches=self._batches, backlog=self._backlog)

    def begin(self) -> dict[str, Any]:
        """Where a new query begins. Away, OptionError."""
        if self._begin is None:
            queues = find_queues(self._cluster, self._options)
            starts = starts_of(self._cluster, self._options, queues, "latest")
            self._begin = Offset(settled(self._cluster, starts))
            log.info("a new query begins queues=%d", len(queues))
        return self._begin.to_dict()

    def fix_target(self) -> None:
        """From now on nothing that comes later is read. Away if a broker does not tell where its queues end."""
        queues = find_queues(self._cluster, self._options)
        self._target = all_of(self._cluster.end_offsets(queues), queues)

    def latest(
        self, start: Mapping[str, Any], most: int | None, now_ms: int, *, is_all: bool = False
    ) -> dict[str, Any]:
        """The end of the next batch of at most so many offsets; `is_all`: and of no fewer than there are. DataLoss."""
        before = Offset.of(start).ends
        self.tell(before)
        stay, ends = self._look(before)
        came = self._came(stay, ends)
        starts = stay | came
        ends = stay | {queue: end for queue, end in ends.items() if queue in starts}
        backlog = backlog_of(starts, ends)
        self._backlog = sum(backlog.values())
        if self._target is None and not is_all and not self._rule.lets(self._backlog, now_ms):
            return dict(start)
        shares = shared(backlog, most) if most is not None else backlog
        upto = {queue: begin + shares.get(queue, 0) for queue, begin in starts.items()}
        if upto == before:
            return dict(start)
        self._batches += 1
        is_first = self._begin is not None and before == self._begin.ends
        return Offset(upto, starts if is_first else came).to_dict()

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
        """What lies between two offsets; nothing where the start is behind the end (a first batch, planned again)."""
        ends = Offset.of(end)
        starts = Offset.of(start).ends | ends.starts
        if unknown := sorted(ends.ends.keys() - starts.keys()):
            raise ValueError(f"the checkpoint does not tell where {', '.join(map(str, unknown))} begin")
        return ranges_of(starts, ends.ends)

    def reported(self) -> dict[str, Any] | None:
        """The ends of all queues as they were last seen."""
        return Offset(self._known).to_dict() if self._known else None

    def tell(self, positions: Mapping[MessageQueue, int]) -> None:
        """Publish progress to the option's group, as far as it has changed."""
        if self._options.group is None:
            return
        news = {queue: offset for queue, offset in positions.items() if self._told.get(queue) != offset}
        failed = self._cluster.commit(news) if news else []
        self._told |= {queue: offset for queue, offset in news.items() if queue not in failed}

    # ------------------------------------------------------------------------------------------- what there is to read

    def _look(self, before: Positions) -> tuple[Positions, Positions]:
        """The queues that go on, with where they stand, and the ends of all that can be told."""
        found = self._cluster.queues() if self._target is None else set(self._target)
        ends = self._cluster.end_offsets(found) if self._target is None else dict(self._target)
        lost = dict.fromkeys(self._gone(before, found, ends), GONE)
        lost |= dict.fromkeys(self._shrunk(before, ends), SHRUNK)
        for queue, why in lost.items():
            self._losses.note(Loss(queue, before[queue], None, why))
        self._losses.tell()
        self._known |= ends
        stay = {queue: begin for queue, begin in before.items() if queue not in lost and self._is_meant(queue)}
        return stay, ends

    def _came(self, stay: Positions, ends: Positions) -> Positions:
        """The starts of queues that were not there before, and have something."""
        fresh = {queue for queue, end in ends.items() if queue not in stay and end > 0}
        firsts = self._cluster.first_offsets(fresh) if fresh else {}
        if self._target is not None:
            all_of(firsts, fresh)
        came = {queue: first for queue, first in firsts.items() if first < ends[queue]}
        for queue, first in came.items():
            log.info("a queue was found queue=%s first=%d", queue, first)
        return came

    def _gone(self, before: Positions, found: set[MessageQueue], ends: Positions) -> set[MessageQueue]:
        """Queues that are meant, and that their brokers do not have any more, however often they are asked.

        Those that come back meanwhile have their ends added to `ends`.
        """
        missing = {queue for queue in before.keys() - found if self._is_meant(queue)}
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
            raise Away(f"brokers are not registered any more: {', '.join(sorted(away))}")
        for name in sorted(away):
            log.warning("broker is not registered, its queues wait broker=%s", name)
        return {queue for queue in missing if queue.broker_name in registered}

    def _shrunk(self, before: Positions, ends: Positions) -> set[MessageQueue]:
        """Queues that end before where they were read to."""
        short = {queue for queue, end in ends.items() if end < before.get(queue, 0)}
        for _ in range(self._options.lookup_retries if short else 0):
            self._pause()
            ends |= self._cluster.end_offsets(short)
            short = {queue for queue in short if ends[queue] < before[queue]}
        return short

    def _is_meant(self, queue: MessageQueue) -> bool:
        options = self._options
        if options.subscribe_pattern is not None:
            return is_meant(queue.topic, options.subscribe_pattern, ())
        return queue in options.assign if options.assign is not None else queue.topic in (options.subscribe or ())
