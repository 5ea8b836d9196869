"""All consume queues by (topic, queue id).

A queue object takes a few hundred bytes and owns no descriptor. It is created at the first message, or at startup from
the directories consumequeue/<topic>/<queue id>. Directories of light queues (%LMQ%) are RocketMQ's: they are served
unchanged if they are readable, and never truncated, cleared or removed. A topic in batchconsumequeue/ has another queue
type. Recovery creates no consume queue for it, because RocketMQ would reject such a store.

A directory whose name is neither a topic nor a queue id is skipped with one warning. Nothing in it is ever read,
written or deleted (broker.store.queue.paths).

Source: docs/reference/disk.md, "Store directory".
"""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from sys import intern

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.mapped_file_queue import gaps
from skylarkmq.broker.store.files.record_rules import has_unit, may_have_queue
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX, parse_queue_id
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic, note_units
from skylarkmq.protocol.disk import BATCH_CONSUME_QUEUE_DIRECTORY, CONSUME_QUEUE_DIRECTORY, parse_offset_file_name
from skylarkmq.protocol.message import MAX_STORED_TOPIC_LENGTH, is_storable_topic
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)


class QueueTable:
    """All queues. The hot path reads `by_key` and `by_topic`; only this class adds or removes entries."""

    def __init__(self, root: Path, files: QueueFiles, disk: Disk) -> None:
        self._root = str(root / CONSUME_QUEUE_DIRECTORY)
        self._batch_root = str(root / BATCH_CONSUME_QUEUE_DIRECTORY)
        self._files = files
        self._disk = disk
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.batch_topics: frozenset[str] = frozenset()
        self.traffic: dict[str, TopicTraffic] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue; None if it never had a message."""
        return self.by_key.get((topic, queue_id))

    def topics(self) -> list[str]:
        """Return the topics that ever had a message and are not deleted."""
        return list(self.by_topic)

    def ids_of(self, topic: str) -> list[int]:
        """Return the queues of a topic that ever had a message."""
        return list(self.by_topic.get(topic, ()))

    def make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, created if it does not exist. Its files are created with its first unit.

        Raises ValueError if the topic or the queue id is invalid; no path is built from such a name.
        """
        queue = self.by_key.get((topic, queue_id))
        if queue is None and not may_have_queue(topic, queue_id):
            raise ValueError(f"invalid topic or queue id: {topic[:MAX_STORED_TOPIC_LENGTH]!r}/{queue_id}")
        return queue or self._make(topic, queue_id)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            topic = intern(topic)  # one object for all queues, so that comparing equal topics is an identity check
            queue = ConsumeQueue(topic, queue_id, f"{self._root}/{topic}/{queue_id}", self._files)
            self.by_key[topic, queue_id] = self.by_topic.setdefault(topic, {})[queue_id] = queue
            queue.traffic = self._traffic_of(topic).sizes
        return queue

    def _traffic_of(self, topic: str) -> TopicTraffic:
        traffic = self.traffic.get(topic)
        if traffic is None:
            traffic = self.traffic[topic] = TopicTraffic()
        return traffic

    def topic_traffic(self, topic: str) -> TopicTraffic:
        """Return the traffic of a topic that has queues, with the sizes of all records received so far."""
        for queue in self.by_topic[topic].values():
            note_units(queue)
        return self.traffic[topic]

    def messages_into(self, topics: Iterable[str]) -> int:
        """Return how many messages these topics received since the start. Queues of other topics are not read."""
        return sum(self.topic_traffic(topic).sizes.count for topic in topics if topic in self.traffic)

    def note_message_type(self, topic: str, message_type: str, size: int) -> None:
        """Count a put message of a type other than normal, unless its topic was removed."""
        traffic = self.traffic.get(topic)
        if traffic is not None:
            traffic.note_message_type(message_type, size)

    def begin_traffic(self) -> None:
        """Start counting; records that recovery dispatched do not count, they were received before the start."""
        self.traffic.clear()
        for queue in self.by_key.values():
            queue.traffic = self._traffic_of(queue.topic).sizes

    def load(self, deleted: DeletedTopics | None = None, check_stop: Callable[[], None] = lambda: None) -> int:
        """Open all queue directories. Returns how many queues were removed instead.

        A removed queue is one that a power cut restored after its topic was deleted. Raises StoreError as
        ConsumeQueue.load does; `check_stop` may raise to end the load early.
        """
        removed = 0
        self.batch_topics = frozenset(_directories(self._batch_root))
        foreign: list[str] = []
        for topic in _directories(self._root):
            is_light = topic.startswith(LIGHT_QUEUE_PREFIX)
            if not is_light and not is_storable_topic(topic):
                foreign.append(topic)
                continue
            for name in _directories(f"{self._root}/{topic}"):
                check_stop()
                directory, queue_id = f"{self._root}/{topic}/{name}", parse_queue_id(name)
                if queue_id is None:
                    foreign.append(f"{topic}/{name}")
                elif is_light and not self._is_whole(directory):
                    log.info("light queue skipped, it cannot be read unchanged topic=%s queue_id=%s", topic, name)
                else:
                    removed += self._load_queue(topic, queue_id, directory, deleted)
        if foreign:
            log.warning("directories that are not queues skipped count=%d first=%r", len(foreign), foreign[0])
        if removed:
            log.warning("queues of deleted topics removed queues=%d", removed)
        return removed

    def _load_queue(self, topic: str, queue_id: int, directory: str, deleted: DeletedTopics | None) -> bool:
        """Open a queue, or remove it if it is stale. Returns whether it was removed.

        Raises StoreError also if a symbolic link leads elsewhere.
        """
        try:
            self._files.paths.check_directory(directory)
        except PermissionError as problem:
            raise StoreError(str(problem)) from problem
        if deleted is not None and deleted.is_stale(topic, directory):
            self._files.remove_all(directory)
            return True
        self._make(topic, queue_id).load(self._disk)
        return False

    def _is_whole(self, directory: str) -> bool:
        """Return whether a queue is readable without a cleanup."""
        size = self._files.file_size
        names = os.listdir(directory)
        starts = sorted(start for start in map(parse_offset_file_name, names) if start is not None)
        is_full = all(os.path.getsize(f"{directory}/{name}") == size for name in names)
        return len(starts) == len(names) and is_full and not any(gaps(starts, size))

    def gives_unit(self, record: Record, deleted: DeletedTopics) -> bool:
        """Return whether a record belongs to a queue of this store: by its flags and topic, if that was not deleted."""
        is_ours = has_unit(record.sys_flag) and record.topic not in self.batch_topics
        return is_ours and not deleted.covers(record.topic, record.physical_offset)

    def sync(self) -> None:
        """Sync all writes to queues. Raises OSError."""
        for item in self._files.take_dirty(0):
            item.sync()

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic has queues that may be removed."""
        return not topic.startswith(LIGHT_QUEUE_PREFIX) and topic in self.by_topic

    def queues_needed(self) -> dict[str, int]:
        """Return the number of queues that each topic needs: one more than its highest queue id with messages."""
        needed: dict[str, int] = {}
        for queue in self.truncatable():
            if queue.end > queue.min_offset:
                needed[queue.topic] = max(needed.get(queue.topic, 0), queue.queue_id + 1)
        return needed

    def truncatable(self) -> Iterable[ConsumeQueue]:
        """Return all queues that this broker writes; light queues are not among them."""
        return (queue for queue in self.by_key.values() if not queue.topic.startswith(LIGHT_QUEUE_PREFIX))

    def next_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset of the next message for each queue of a topic."""
        return {queue_id: queue.next_offset for queue_id, queue in self.by_topic.get(topic, {}).items()}

    def has_unit_from(self, topic: str, log_offset: int) -> bool:
        """Return whether a queue of a topic has the unit of a record at or after byte `log_offset` of the log.

        Reads the last unit of each queue. Raises OSError."""
        queues = [queue for queue in self.by_topic.get(topic, {}).values() if queue.end > queue.min_offset]
        return any(unit[0] >= log_offset for queue in queues if (unit := queue.unit(queue.end - 1)) is not None)

    def remove_topic(self, topic: str) -> int:
        """Remove the queues of a topic, from the table and from disk. Returns the number of queues."""
        queues = self.by_topic.pop(topic, {})
        for queue_id in queues:
            self.by_key.pop((topic, queue_id)).remove()
        self.traffic.pop(topic, None)
        directory = f"{self._root}/{topic}"
        if queues and os.path.isdir(directory):
            for name in _directories(directory):  # directories without files, remains of a power cut
                if parse_queue_id(name) is not None:
                    self._files.remove_all(f"{directory}/{name}")
            self._files.remove_directory(directory)
        return len(queues)

    def __repr__(self) -> str:
        return f"<QueueTable queues={len(self.by_key)}>"


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
