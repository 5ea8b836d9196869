"""The store of a stopped broker as a stream, which the broker's own stream continues.

    spark.readStream.format("rocketmq-store").option("brokerName", "broker-a").load("/data/store")

Batches are parts of the log of about `maxBytesPerTrigger`, from its first record to the last one that exists when the
query starts. An offset has the position in the log, and the next offsets of the queues after it:

    {"@log": {"broker-a": 5368709120}, "Orders": {"broker-a": {"0": 17, "1": 4}}}

So a query of format("rocketmq") with the same checkpoint continues at exactly these offsets: no message is missing, and
none is read twice. A query that reads the store of another broker with the same checkpoint adds that broker's part.
Once the stream of the brokers has begun, the checkpoint has no positions in logs, and a store is refused.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from skylarkmq.clients.arrow.store.parts import QueueEnds, StoreParts
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.source.offsets import Offset
from skylarkmq.clients.spark.store.store_options import StoreSourceOptions
from skylarkmq.clients.spark.store.store_reader import StorePartition
from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)


class StoreStreamReader(DataSourceStreamReader):
    """Plans parts on the driver; its copies read in the executors. For PySpark without read limits (before 4.2).

    The names of most methods are Spark's. Raises OptionError, StoreUnreadable.
    """

    def __init__(self, options: StoreSourceOptions) -> None:
        if options.broker_name is None:
            raise OptionError("rocketmq-store: a stream needs brokerName, the name of the broker whose store it is")
        if options.key is not None:
            raise OptionError("rocketmq-store: key is an option of batch reads")
        self._options = options
        self._broker = options.broker_name
        self._parts: StoreParts | None = None
        self._position: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the options: executors need nothing else."""
        return {"_options": self._options, "_broker": self._broker, "_parts": None, "_position": None}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.path} of {self._broker}>"

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the position of the first record, or the start of the option `firstBatch`."""
        if self._options.first_batch is not None:
            return dict(self._options.first_batch.start)
        return Offset({}, logs={self._broker: self._store().begin}).to_dict()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return the end of the next part; its start at the end of the log."""
        start = self.initialOffset() if self._position is None else self._position
        return self.next_end(start, self._options.max_bytes_per_trigger)

    def next_end(self, start: Mapping[str, Any], size: int | None) -> dict[str, Any]:
        """Return the offset after the next part of about `size` bytes (None: after the last part), or `start`."""
        store, before = self._store(), Offset.of(start)
        begin = self._begin(before)
        store.check(begin)
        first = self._options.first_batch
        if first is not None and (given := first.end_after(start)) is not None:
            self._position = given
            return given
        end = store.end if size is None else store.part_end(begin, size)
        self._position = dict(start)
        if end > begin:
            ends = self._named(store.queue_ends(begin, end, self._own(before)))
            logs = before.logs | {self._broker: end}
            self._position = Offset(before.ends | ends, logs=logs).to_dict()
            log.info("next part broker=%s begin=%d end=%d of=%d", self._broker, begin, end, store.end)
        return self._position

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the tasks of a part."""
        store, before, after = self._store(), Offset.of(start), Offset.of(end)
        others = sorted(name for name, at in after.logs.items() if name != self._broker and at != before.logs.get(name))
        if others:
            raise OptionError(
                f"rocketmq-store: the last batch reads the store of {others[0]} and has not finished: first read that "
                "store to its end"
            )
        self._position = dict(end)
        begin, stop = self._begin(before), self._begin(after)
        if begin == stop:
            return []
        store.check(begin)
        selection = self._options.selection
        return [StorePartition(store.extent, selection, task) for task in store.tasks(begin, stop)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; nothing for the empty partition that Spark adds if there are no tasks."""
        if isinstance(partition, StorePartition):
            yield from StoreRows(self._options, partition.selection, partition.extent).read(partition.task)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: a store has no groups."""

    def remaining(self) -> dict[str, Any]:
        """Return the position of the end of the log."""
        return Offset({}, logs={self._broker: self._store().end}).to_dict()

    def _store(self) -> StoreParts:
        if self._parts is None:
            self._parts = StoreParts(self._options)
        return self._parts

    def _begin(self, offset: Offset) -> int:
        if offset.ends and not offset.logs:
            raise OptionError(
                "rocketmq-store: the checkpoint belongs to a stream that already reads from brokers; a store can only "
                "come before it: use a new checkpoint and a new table"
            )
        return offset.logs.get(self._broker, self._store().begin)

    def _own(self, offset: Offset) -> QueueEnds:
        ends = offset.ends.items()
        return {(queue.topic, queue.queue_id): end for queue, end in ends if queue.broker_name == self._broker}

    def _named(self, ends: QueueEnds) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, self._broker, queue_id): end for (topic, queue_id), end in ends.items()}
