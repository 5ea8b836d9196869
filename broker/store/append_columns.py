"""Messages of one topic on their way into the log as columns: what is done for each Append is done for all of them.

Among the appends of a batch such columns stand for their messages, one behind the other in the log. They are PENDING,
written, and decided as a whole. `physical_offset`, `size` and `store_timestamp` are those of the last message.

Their makers know that all is plain with them (broker.processors.plain_sends); what is unusual for the store it finds
before anything is changed, and the messages are put one by one then. Only the interpreted store takes columns:
compiled, each message costs less than its part of them.

Source: docs/formats.md, "CommitLog record".
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from broker.store.append import Append, PutStatus
from protocol import compiled
from protocol.codes import SysFlag
from protocol.record import CRC_MASK, HOST_FLAGS, LAYOUTS, LENGTH_PREFIX, Buffer, Layout

if TYPE_CHECKING:
    from broker.store.consume_queue import ConsumeQueue


class AppendColumns:
    """Messages; `ending` closes the properties of each, `keys` are what they are found by, `keys_each` of them for each
    message."""

    __slots__ = (
        "_body_sizes",
        "_properties_sizes",
        "bodies",
        "born_host",
        "born_timestamps",
        "end_offsets",
        "ending",
        "first_offsets",
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
        "topic",
    )

    wait_flush: Final = True
    queue: Final = None  # there are many, and
    keys: Final = None  # many keys: whoever meets that looks closer

    def __init__(
        self,
        topic: str,
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
        self.topic = topic
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
        self.queues: dict[int, ConsumeQueue] = {}
        self.first_offsets: dict[int, int] = {}  # in each queue
        self.end_offsets: dict[int, int] = {}
        self.physical_offsets: list[int] = []
        self.queue_offsets: list[int] = []
        self.sizes: list[int] = []
        self._body_sizes: list[int] = []
        self._properties_sizes: list[int] = []

    def __len__(self) -> int:
        return len(self.queue_ids)

    def __repr__(self) -> str:
        return f"<AppendColumns {self.topic} messages={len(self)} {self.status.name}>"

    # into the log

    def find_queues(self, find: Callable[[tuple[str, int]], "ConsumeQueue | None"]) -> bool:
        """Look for the messages' queues; False: one is missing, or wants a look at each message."""
        if self.sys_flag & SysFlag.TRANSACTION_MASK:
            return False
        for queue_id in set(self.queue_ids):
            queue = find((self.topic, queue_id))
            if queue is None or queue.is_schedule:
                return False
            self.queues[queue_id] = queue
        return True

    def measure(self, store_host: bytes) -> None:
        """Compute the sizes of the records."""
        topic_size = len(next(iter(self.queues.values())).topic_field)
        around = LAYOUTS[len(self.born_host), len(store_host)].fixed_size + topic_size + len(self.ending)
        self._body_sizes = list(map(len, self.bodies))
        self._properties_sizes = list(map(len, self.properties))
        both = zip(self._body_sizes, self._properties_sizes, strict=True)
        self.sizes = [around + body + properties for body, properties in both]

    def put(self, at: int, timestamp: int, store_host: bytes) -> list[Buffer]:
        """Take the next offsets of the queues for records that go to `at` and on; the records' parts."""
        *self.physical_offsets, _ = accumulate(self.sizes, initial=at)
        self.first_offsets = {queue_id: queue.next_offset for queue_id, queue in self.queues.items()}
        next_offsets = self.end_offsets = self.first_offsets.copy()
        offsets = self.queue_offsets = []
        for queue_id in self.queue_ids:
            offset = next_offsets[queue_id]
            offsets.append(offset)
            next_offsets[queue_id] = offset + 1
        self.physical_offset, self.size = self.physical_offsets[-1], self.sizes[-1]
        self.store_timestamp = timestamp
        parts = self._parts(LAYOUTS[len(self.born_host), len(store_host)], timestamp.to_bytes(8, "big") + store_host)
        for queue_id, queue in self.queues.items():
            queue.next_offset = next_offsets[queue_id]
        return parts

    def _parts(self, layout: Layout, stamp: bytes) -> list[Buffer]:
        topic_field, more, sizes = self.queues[self.queue_ids[0]].topic_field, len(self.ending), self._properties_sizes
        parts: list[Buffer] = [self.ending] * (5 * len(self))
        parts[::5] = self._heads(layout, stamp)
        parts[1::5] = self.bodies
        between = {size: topic_field + LENGTH_PREFIX[size + more] for size in set(sizes)}
        parts[2::5] = map(between.__getitem__, sizes)
        parts[3::5] = self.properties
        return parts

    def _heads(self, layout: Layout, stamp: bytes) -> Iterable[bytes]:
        return map(
            layout.head.pack,
            self.sizes,
            repeat(self.queues[self.queue_ids[0]].magic),
            [crc32(body) & CRC_MASK for body in self.bodies],
            self.queue_ids,
            repeat(self.flag),
            self.queue_offsets,
            self.physical_offsets,
            repeat(self.sys_flag & ~HOST_FLAGS | layout.host_flags),
            self.born_timestamps,
            repeat(self.born_host),
            repeat(stamp),
            repeat(self.reconsume_times),
            repeat(0),
            self._body_sizes,
        )

    def take_back(self) -> None:
        """The offsets of the queues return."""
        for queue_id, queue in self.queues.items():
            queue.next_offset = self.first_offsets[queue_id]

    # dispatch

    def gather_units(self, touched: list["ConsumeQueue"], jumped: Callable[["ConsumeQueue"], None]) -> None:
        """As broker.store.reput.plain_gather_units does with appends."""
        fields = {}
        for queue_id, queue in self.queues.items():
            if self.first_offsets[queue_id] != queue.pending_next:
                jumped(queue)
            if not queue._fields:
                touched.append(queue)
            queue.pending_next = self.end_offsets[queue_id]
            fields[queue_id] = queue._fields
        units = zip(self.physical_offsets, self.sizes, self.tags_codes, strict=True)
        for queue_id, unit in zip(self.queue_ids, units, strict=True):
            fields[queue_id] += unit

    def let_go(self) -> None:
        """What is written need not stay in memory until it is flushed."""
        self.bodies = ()

    # apart

    def append(self, at: int) -> Append:
        """One of the messages, by itself."""
        each = self.keys_each
        append = Append(
            self.topic,
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
    return len(appends) + sum(len(columns) - 1 for columns in appends if isinstance(columns, AppendColumns))


messages_in: Callable[[Sequence[object]], int] = len if compiled.load("record") is not None else _count
"""How many messages these are."""
