"""Committed offsets: how far each group has consumed each queue; and, in memory only, how far it has pulled.

    `topic@group` -> queue id -> offset of the next message to consume

The table is stored in `config/consumerOffset.json`. It is saved every few seconds while offsets change, at once after
an operator has changed them, and at a stop. After a crash, messages whose commits were not saved are consumed twice. A
commit takes two dict operations. The encoder keeps the text of each row that has not changed since the last save, so a
save costs as much as the changed rows, plus one join.

An offset below 0 means that the client has no position; it is never stored. Offsets may decrease, because clients can
reset themselves. If an operator resets an offset, commits of the group are ignored until the group is notified by a
pull, which takes the reset. Source: docs/reference/disk.md, "State files"; docs/reference/wire.md, "Consumer offsets",
"Resetting offsets".
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import TRANSACTIONS_GROUP
from skylarkmq.protocol.errors import RequestError

log = logging.getLogger(__name__)

SEPARATOR: Final = "@"

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class OffsetsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How often offsets are saved."""

    flush_consumer_offset_interval: int = 5_000  # ms; a crash may lose the commits of this time


class OffsetsStatistics(msgspec.Struct, frozen=True):
    """The number of rows; `commits` since the start; `resets` of which the groups are not notified yet."""

    rows: int
    commits: int
    version: int
    resets: int = 0


class ConsumerOffsetTable:
    """Offsets by topic and group. `clock` returns Unix ms, for versions."""

    def __init__(self, config: OffsetsConfig, clock: Callable[[], int], limits: Limits | None = None) -> None:
        self._entries = 0  # offsets in all rows
        self._limit = (limits or Limits()).offsets
        self._limit.used = lambda: self._entries
        self._interval_ms = config.flush_consumer_offset_interval
        self._clock = clock
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # by group, the topics with a row
        self._groups_of: dict[str, dict[str, None]] = {}  # by topic
        self._texts: dict[str, bytes] = {}  # rows as encoded in the file
        self._moved: set[str] = set()  # rows whose text is outdated
        self._listeners: list[Callable[[], None]] = []
        self._due_ms = 0
        self._unsaved = False
        self._commits = 0
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<ConsumerOffsetTable rows={len(self._committed)} commits={self._commits}>"

    def configure(self, config: OffsetsConfig) -> None:
        """Apply these settings from the next save on."""
        self._interval_ms = config.flush_consumer_offset_interval

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `step` call `listener` after offsets have changed."""
        self._listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load consumerOffset.json (None: a new store). Raises BodyError."""
        if data is not None:
            body = ConsumerOffsets.decode(data)
            self._committed = body.offset_table
            for key in self._committed:
                self._enter(key)
            self._entries = sum(map(len, self._committed.values()))
            self.version = body.data_version or DataVersion()
            self._moved.update(self._committed)
        log.info("consumer offsets loaded rows=%d", len(self._committed))

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next offset that the group will consume; None if it never committed one."""
        row = self._committed.get(topic + SEPARATOR + group)
        return None if row is None else row.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store how far the group has consumed, and return True.

        Nothing is stored, also with the result True, for an offset below 0, for a queue with a pending reset, and for
        the group whose offsets are the broker's own (`commit_own`). Returns False if the number of offsets is at its
        limit and the group has none in this queue.
        """
        if offset < 0 or group == TRANSACTIONS_GROUP or self.is_reset(group, topic, queue_id):
            return True
        if self._entries >= self._limit.most and self.committed(group, topic, queue_id) is None:
            return False
        self._commits += 1
        self._move(topic + SEPARATOR + group, queue_id, offset)
        return True

    def refusal(self, group: str, topic: str, queue_id: int) -> RequestError:
        """Return the error to raise for an offset that was not stored because of the limit."""
        return self._limit.refusal(f"an offset of {group} in {topic} queue {queue_id} besides {self._entries}")

    def commit_own(self, topic: str, queue_id: int, offset: int) -> None:
        """Store how far the broker itself has read a topic of its transactions."""
        self._commits += 1
        self._move(topic + SEPARATOR + TRANSACTIONS_GROUP, queue_id, offset)

    def _move(self, key: str, queue_id: int, offset: int) -> None:
        row = self._committed.get(key)
        if row is None:
            row = self._committed[key] = {}
            self._enter(key)
        known = row.get(queue_id)
        if known != offset:
            self._entries += known is None
            row[queue_id] = offset
            self._moved.add(key)
            self._unsaved = True

    def follow(self, master: Mapping[str, Mapping[int, int]], before: Mapping[str, Mapping[int, int]]) -> None:
        """Take over the offsets of a master, by `topic@group` and queue id.

        The larger offset of both stays: consumers commit here while the master is away. But an offset below that in
        `before`, the master's offsets a moment ago, was reset there, so it is taken over. No limit applies.
        """
        for key, row in master.items():
            own, row_before = self._committed.get(key, {}), before.get(key, {})
            for queue_id, offset in row.items():
                if offset > own.get(queue_id, -1) or offset < row_before.get(queue_id, offset):
                    self._move(key, queue_id, offset)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset of the group, and ignore its commits until `take_reset`. A restart keeps only the offset."""
        key = topic + SEPARATOR + group
        self._move(key, queue_id, offset)
        self._resets.setdefault(key, {})[queue_id] = offset

    @property
    def has_resets(self) -> bool:
        """Return whether there are resets that no group has taken."""
        return bool(self._resets)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset of the group in this queue is pending."""
        return bool(self._resets) and queue_id in self._resets.get(topic + SEPARATOR + group, ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove a pending reset and return its offset for the response to the group, or None."""
        key = topic + SEPARATOR + group
        row = self._resets.get(key)
        offset = None if row is None else row.pop(queue_id, None)
        if row is not None and not row:
            del self._resets[key]
        return offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next pull offset in the last response to the group."""
        row = self._pulled.get(topic + SEPARATOR + group)
        return None if row is None else row.get(queue_id)

    def note_pull(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Store the next pull offset of the group, in memory only."""
        self.next_pulls(group, topic)[queue_id] = next_offset

    def next_pulls(self, group: str, topic: str) -> dict[int, int]:
        """Return the next pull offsets by queue id, for updates; valid until the topic or the group is deleted."""
        key = topic + SEPARATOR + group
        row = self._pulled.get(key)
        if row is None:
            row = self._pulled[key] = {}
        return row

    def table(self) -> Mapping[str, Mapping[int, int]]:
        """Return committed offsets by `topic@group` and queue id; do not change them."""
        return self._committed

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which the group has committed offsets."""
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets in the topic."""
        return list(self._groups_of.get(topic, ()))

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets of a deleted topic."""
        prefix = topic + SEPARATOR
        for table in (self._pulled, self._resets):
            for key in [key for key in table if key.startswith(prefix)]:
                del table[key]
        for group in self.groups_of(topic):
            self._remove(topic, group)

    def remove_group(self, group: str) -> None:
        """Remove all offsets of a deleted group."""
        suffix = SEPARATOR + group
        for table in (self._pulled, self._resets):
            for key in [key for key in table if key.endswith(suffix)]:
                del table[key]
        for topic in self.topics_of(group):
            self._remove(topic, group)

    def _enter(self, key: str) -> None:
        """Register a new row."""
        topic, _, group = key.rpartition(SEPARATOR)
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, {})[group] = None

    def _remove(self, topic: str, group: str) -> None:
        key = topic + SEPARATOR + group
        self._entries -= len(self._committed.pop(key, ()))
        self._texts.pop(key, None)
        self._moved.discard(key)
        self._unsaved = True
        for table, name, other in ((self._topics_of, group, topic), (self._groups_of, topic, group)):
            del table[name][other]
            if not table[name]:
                del table[name]

    def step(self, now_ms: int) -> None:
        """Have changed offsets saved, once per interval."""
        if self._unsaved and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self.save()

    def save(self) -> None:
        """Have changed offsets saved now."""
        if self._unsaved:
            self._unsaved = False
            for listener in self._listeners:
                listener()

    def encode_with_groups(self) -> bytes:
        """Return `encode` with `groupTopicMap`, the topics of each group: for GET_ALL_CONSUMER_OFFSET (43)."""
        topics = {group: list(topics) for group, topics in self._topics_of.items()}
        return b'{"groupTopicMap":%b,%b' % (_encode(topics), self.encode()[1:])

    def encode(self) -> bytes:
        """Return the table as consumerOffset.json, under a new version if it has changed."""
        if self._moved:
            self.version = self.version.next(self._clock())
        for key in self._moved:
            row = ",".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(self._committed[key].items()))
            self._texts[key] = b"%b:{%b}" % (_encode(key), row.encode())
        self._moved.clear()
        rows = b",".join(self._texts.values())
        return b"".join((b'{"dataVersion":', _encode(self.version), b',"offsetTable":{', rows, b"}}"))

    def statistics(self) -> OffsetsStatistics:
        """Return the current figures."""
        return OffsetsStatistics(
            rows=len(self._committed),
            commits=self._commits,
            version=self.version.counter,
            resets=sum(map(len, self._resets.values())),
        )
