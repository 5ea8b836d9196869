"""Messages on their way into the log as columns: what is done for each Append is done for all of them.

Among the appends of a batch such columns stand for their messages, one behind the other in the log. They are PENDING,
written, and decided as a whole. `physical_offset`, `size` and `store_timestamp` are those of the last message.

Their makers know that all is plain with them (broker.processors.send.fast_path); what is unusual for the store it finds
before anything is changed, and the messages are put one by one then. Only the interpreted store takes columns:
compiled, each message costs less than its part of them.

Source: docs/formats.md, "CommitLog record".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import attrgetter, getitem
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.record_rules import RECORD_FLAGS
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import UNIT
from skylarkmq.protocol.record import CRC_MASK, LAYOUTS, LENGTH_PREFIX, Buffer, Layout

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue

_is_schedule: Final = attrgetter("is_schedule")


class AppendColumns:
    """Messages; `ending` closes the properties of each, `keys` are what they are found by, `keys_each` of them for each
    message."""

    __slots__ = (
        "_body_sizes",
        "_next_offsets",
        "_properties_sizes",
        "_topic_fields",
        "bodies",
        "born_host",
        "born_timestamps",
        "ending",
        "flag",
        "keys_each",
        "message_keys",
        "physical_offset",
        "physical_offsets",
        "properties",
        "queue_ids",
        "queue_offsets",
        "queues",
        "reconsume_times",
        "size",
        "sizes",
        "status",
        "store_timestamp",
        "sys_flag",
        "tags_codes",
        "topics",
    )

    wait_flush: Final = True
    queue: Final = None  # there are many, and
    keys: Final = None  # many keys: whoever meets that looks closer

    def __init__(
        self,
        topics: list[str],
        queue_ids: list[int],
        bodies: Sequence[Buffer],
        properties: list[bytes],
        ending: bytes,
        tags_codes: list[int],
        flag: int,
        sys_flag: int,
        born_timestamps: list[int],
        born_host: bytes,
        reconsume_times: int,
        message_keys: Sequence[bytes],
    ) -> None:
        self.topics = topics
        self.queue_ids = queue_ids
        self.bodies = bodies
        self.properties = properties
        self.ending = ending
        self.tags_codes = tags_codes
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamps = born_timestamps
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.message_keys = message_keys
        self.keys_each = len(message_keys) // len(queue_ids)
        self.status = PutStatus.PENDING
        self.physical_offset = -1
        self.size = 0
        self.store_timestamp = 0
        self.queues: list[ConsumeQueue] = []  # of each message
        self.physical_offsets: list[int] = []
        self.queue_offsets: list[int] = []
        self.sizes: list[int] = []
        self._body_sizes: list[int] = []
        self._next_offsets: list[int] = []  # behind those of `queue_offsets`: the queues have these very objects
        self._properties_sizes: list[int] = []
        self._topic_fields: list[bytes] = []

    def __len__(self) -> int:
        return len(self.queue_ids)

    def __repr__(self) -> str:
        return f"<AppendColumns {self.topics[0]} messages={len(self)} {self.status.name}>"

    # into the log

    def find_queues(self, by_topic: Mapping[str, Mapping[int, "ConsumeQueue"]]) -> bool:
        """Look for the messages' queues; False: one is missing, or wants a look at each message."""
        if self.sys_flag & SysFlag.TRANSACTION_MASK:
            return False
        try:
            self.queues = list(map(getitem, map(by_topic.__getitem__, self.topics), self.queue_ids))
        except KeyError:
            return False
        return not any(map(_is_schedule, self.queues))

    def measure(self, store_host: bytes) -> None:
        """Compute the sizes of the records."""
        around = LAYOUTS[len(self.born_host), len(store_host)].fixed_size + len(self.ending)
        self._body_sizes = list(map(len, self.bodies))
        self._properties_sizes = list(map(len, self.properties))
        self._topic_fields = [queue.topic_field for queue in self.queues]
        parts = zip(self._body_sizes, self._properties_sizes, map(len, self._topic_fields), strict=True)
        self.sizes = [around + body + properties + topic for body, properties, topic in parts]

    def put(self, at: int, timestamp: int, store_host: bytes) -> list[Buffer]:
        """Take the next offsets of the queues for records that go to `at` and on; the records' parts."""
        *self.physical_offsets, _ = accumulate(self.sizes, initial=at)
        self.physical_offset, self.size = self.physical_offsets[-1], self.sizes[-1]
        self.store_timestamp = timestamp
        offsets: list[int] = []
        following: list[int] = []
        self.queue_offsets, self._next_offsets = offsets, following
        for queue in self.queues:
            offset = queue.next_offset
            offsets.append(offset)
            queue.next_offset = next_offset = offset + 1
            following.append(next_offset)
        try:
            return self._parts(LAYOUTS[len(self.born_host), len(store_host)], timestamp.to_bytes(8, "big") + store_host)
        except BaseException:
            self.take_back()
            raise

    def _parts(self, layout: Layout, stamp: bytes) -> list[Buffer]:
        more, sizes = len(self.ending), self._properties_sizes
        parts: list[Buffer] = [self.ending] * (6 * len(self))
        parts[::6] = self._heads(layout, stamp)
        parts[1::6] = self.bodies
        parts[2::6] = self._topic_fields
        lengths = {size: LENGTH_PREFIX[size + more] for size in set(sizes)}
        parts[3::6] = map(lengths.__getitem__, sizes)
        parts[4::6] = self.properties
        return parts

    def _heads(self, layout: Layout, stamp: bytes) -> Iterable[bytes]:
        return map(
            layout.head.pack,
            self.sizes,
            [queue.magic for queue in self.queues],
            [crc32(body) & CRC_MASK for body in self.bodies],
            self.queue_ids,
            repeat(self.flag),
            self.queue_offsets,
            self.physical_offsets,
            repeat(self.sys_flag & RECORD_FLAGS | layout.host_flags),
            self.born_timestamps,
            repeat(self.born_host),
            repeat(stamp),
            repeat(self.reconsume_times),
            repeat(0),
            self._body_sizes,
        )

    def take_back(self) -> None:
        """The offsets of the queues return."""
        for queue in self.queues:
            queue.next_offset -= 1

    # dispatch

    def gather_units(self, touched: list["ConsumeQueue"], jumped: Callable[["ConsumeQueue"], None]) -> None:
        """As broker.store.reput.python_gather_units does with appends."""
        units = map(UNIT.pack, self.physical_offsets, self.sizes, self.tags_codes)
        rows = zip(self.queues, self.queue_offsets, self._next_offsets, units, strict=True)
        for queue, offset, next_offset, unit in rows:
            if offset != queue.pending_next:
                jumped(queue)
            if not queue.turn:
                touched.append(queue)
            queue.turn += 1
            queue.pending_next = next_offset
            queue.pending += unit

    def let_go(self) -> None:
        """What is written need not stay in memory until it is flushed."""
        self.bodies = ()

    # apart

    def append(self, at: int) -> Append:
        """One of the messages, by itself."""
        each = self.keys_each
        append = Append(
            self.topics[at],
            self.queue_ids[at],
            self.bodies[at] if self.bodies else b"",
            self.properties[at] + self.ending,
            self.tags_codes[at],
            self.flag,
            self.sys_flag,
            self.born_timestamps[at],
            self.born_host,
            self.reconsume_times,
        )
        append.status = self.status
        append.keys = list(self.message_keys[at * each : at * each + each])
        if self.physical_offsets:
            append.physical_offset = self.physical_offsets[at]
            append.queue_offset = self.queue_offsets[at]
            append.size = self.sizes[at]
            append.store_timestamp = self.store_timestamp
        return append


def as_columns(append: object) -> AppendColumns | None:
    """What stands among appends, if it is no append."""
    return append if isinstance(append, AppendColumns) else None


def _count(appends: Sequence[object]) -> int:
    count = len(appends)
    for each in appends:
        if isinstance(each, AppendColumns):
            count += len(each) - 1
    return count


messages_in: Callable[[Sequence[object]], int] = len if compiled.load("record") is not None else _count
"""How many messages these are."""
