"""The end of a run that writes the existing messages, for PySpark without read limits (before 4.2).

There, Spark reads all existing messages in one batch with Trigger.AvailableNow, whatever their number. So the queries
run without that trigger, in batches of `--max-rows`, and are stopped once they have read up to the target: the ends
that the queues had when the run began. Messages that arrive meanwhile may be written, too.

A query is complete when its batches have reached the target and Spark has requested the next batch, because the reader
commits the group's offsets at that moment. A query that does not advance for `timeout_s` is stalled: a broker is
unreachable, or a topic was deleted. A query that continues without its checkpoint may have nothing to read, and then
has no batch at all; `begin_at` passes its start.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from skylarkmq.clients.arrow.topic.bounds import Unreachable, find_queues, require_all
from skylarkmq.clients.arrow.topic.cluster import Cluster
from skylarkmq.clients.arrow.topic.cluster_retries import with_cluster_retries
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.pipeline.progress import end_offsets
from skylarkmq.clients.spark.source.source_options import SourceOptions


class Stalled(Exception):
    """A query does not advance, and has not reached its target."""


class Target:
    """The ends up to which the queries read, and how far each of them has come."""

    def __init__(self, ends: Positions, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ends = ends
        self._timeout_s = timeout_s
        self._clock = clock
        self._reached: dict[str, int] = {}  # query: the batch that reached the target
        self._begins: Mapping[str, Positions] = {}  # query: where it continues without its checkpoint
        self._advanced: dict[str, tuple[Mapping[Any, int], float]] = {}  # query: its last ends, and their time

    def __repr__(self) -> str:
        return f"<Target of {len(self._ends)} queues, reached by {sorted(self._reached)}>"

    def begin_at(self, begins: Mapping[str, Positions]) -> None:
        """Set the offsets at which queries continue whose checkpoint was lost."""
        self._begins = begins

    def is_complete(self, query: str, progress: Mapping[str, Any] | None, *, has_data: bool) -> bool:
        """Return whether a query has read everything. Raises Stalled.

        `progress` is the progress of the last batch; `has_data`: whether Spark has planned another batch since then.
        """
        now = self._clock()
        begin = self._begins.get(query)
        ends = (begin or {}) | (end_offsets(progress) if progress is not None else {})
        has_begun = progress is not None or begin is not None
        if has_begun and all(ends.get(queue, 0) >= end for queue, end in self._ends.items() if end):
            batch = int((progress or {}).get("batchId", 0))
            return not has_data or batch > self._reached.setdefault(query, batch)
        before, since = self._advanced.setdefault(query, (ends, now))
        if ends != before:
            self._advanced[query] = (ends, now)
        elif not has_data and now - since > self._timeout_s:
            short = sorted(queue for queue, end in self._ends.items() if ends.get(queue, 0) < end)
            raise Stalled(
                f"{query} does not advance in {', '.join(map(str, short))}: check that the broker can be reached"
            )
        return False


def target_of(options: SourceOptions) -> Target:
    """Return the target: the present ends of the selected queues. Raises NotStarted, ClientError."""
    cluster = Cluster(options)

    def ends() -> Positions:
        queues = find_queues(cluster, options)
        return require_all(cluster.end_offsets(queues), queues)

    try:
        return Target(with_cluster_retries(options.broker_timeout_ms, ends), options.broker_timeout_ms / 1000)
    except Unreachable as error:
        raise NotStarted(str(error)) from error
    finally:
        cluster.close()
