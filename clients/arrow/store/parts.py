"""A store in parts, one after the other: for readers that come back, and for the hand-over to the broker.

    [begin, end) of the log --tasks--> the rows of the part
                            --ends---> the next offset of each queue after it

Parts have no common records and leave none out, so a reader that keeps the end of its last part continues there, even
after a restart. After any part, the next offsets are the position from which the broker's queues continue: the messages
before it are in this part or in an earlier one, all others are not.

A part is planned again after a failure, so the store must not change below `end`: it is a backup, or its broker is
stopped. A broker that runs only adds records after it, and may delete old segments.
"""

from collections.abc import Mapping
from pathlib import Path

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.clients.arrow.store.tasks import Task

QueueEnds = Mapping[tuple[str, int], int]
"""The next offset of queues, by topic and queue id."""


class StoreParts:
    """The parts of a store, as it was when this object was created. Raises StoreUnreadable."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._plan = Plan(options, options.selection)
        self.extent = self._plan.extent

    @property
    def begin(self) -> int:
        """The position of the first record."""
        return self.extent.begin

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.extent.end

    def check(self, begin: int) -> None:
        """Raises StoreUnreadable unless a part can begin there: the store has no gap after the last part."""
        root = Path(self._options.path)
        if begin < self.begin:
            raise StoreUnreadable(
                f"{root}: the log begins at byte {self.begin}, and the last part ended at byte {begin}; the "
                "segments in between were deleted: restore them, or start over"
            )
        if begin > self.end:
            raise StoreUnreadable(
                f"{root}: the log ends at byte {self.end}, and the last part ended at byte {begin}; this is an older "
                "copy, or the store of another broker"
            )

    def part_end(self, begin: int, size: int) -> int:
        """Return the end of a part of about `size` bytes; `begin` itself at the end of the log."""
        return self._plan.part_end(begin, size)

    def tasks(self, begin: int, end: int) -> list[Task]:
        """Return the tasks that read a part."""
        return self._plan.tasks_between(begin, end) if begin < end else []

    def queue_ends(self, begin: int, end: int, before: QueueEnds) -> QueueEnds:
        """Return the next offsets after a part; `before`: those after the part before it."""
        ends = {**before, **self._plan.queue_ends(end)}
        rows = StoreRows(self._options, self._options.selection, self.extent)
        for task in self.tasks(max(begin, self.extent.loose), end):
            for batch in rows.read(task):
                columns = (batch.column(name).to_pylist() for name in ("topic", "queueId", "queueOffset"))
                for topic, queue, offset in zip(*columns, strict=True):
                    ends[topic, queue] = max(offset + 1, ends.get((topic, queue), 0))
        return ends

    def __repr__(self) -> str:
        return f"<StoreParts {self._options.path} [{self.begin}, {self.end})>"
