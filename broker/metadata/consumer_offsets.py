"""Committed offsets: how far each group has consumed each queue; and, in memory only, how far it has pulled.

    `topic@group` -> queue id -> offset of the next message to consume

It is content of `config/consumerOffset.json`, saved every few seconds while offsets move, at once when an operator has
moved them, and at stop: what a crash takes back is consumed twice. A commit costs two dict operations; encoding keeps
the text of every row that has not changed since the last save, so a save costs as much as has moved, plus one join.

An offset below 0 says that a client does not know its position; it never becomes one. Offsets may go backwards: that is
how a client resets itself. One that an operator has reset is held against commits of the group until the group has
heard of it: a pull takes the reset. Source: docs/formats.md, "State files", "Consumer offsets", "Resetting offsets".
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

    flush_consumer_offset_interval: int = 5_000  # ms of commits that a crash may take back


class OffsetsStatistics(msgspec.Struct, frozen=True):
    """The table at one moment; `commits` is a total since the start, `resets` those that groups have not heard of."""

    rows: int
    commits: int
    version: int
    resets: int = 0


class ConsumerOffsetTable:
    """Offsets by topic and group. `clock` gives Unix ms, for versions."""

    def __init__(self, config: OffsetsConfig, clock: Callable[[], int], limits: Limits | None = None) -> None:
        self._entries = 0  # of all rows
        self._limit = (limits or Limits()).offsets
        self._limit.used = lambda: self._entries
        self._interval_ms = config.flush_consumer_offset_interval
        self._clock = clock
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # by group, those with a row
        self._groups_of: dict[str, dict[str, None]] = {}  # by topic
        self._texts: dict[str, bytes] = {}  # rows as they stand in the file
        self._moved: set[str] = set()  # rows whose text is out of date
        self._listeners: list[Callable[[], None]] = []
        self._due_ms = 0
        self._unsaved = False
        self._commits = 0
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<ConsumerOffsetTable rows={len(self._committed)} commits={self._commits}>"

    def configure(self, config: OffsetsConfig) -> None:
        """Be saved by other settings from the next save on."""
        self._interval_ms = config.flush_consumer_offset_interval

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` from `step` when offsets have moved since it was last called."""
        self._listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Take the content of consumerOffset.json (None: a new store). BodyError."""
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
        """The next offset that the group will consume; None if it never said."""
        row = self._committed.get(topic + SEPARATOR + group)
        return None if row is None else row.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Note how far the group has consumed; an offset below 0 says nothing, and one of before a reset no more.

        Nothing is noted for the group whose offsets are the broker's own (`commit_own`). False: there are as many
        offsets as may be, and none of this group in this queue.
        """
        if offset < 0 or group == TRANSACTIONS_GROUP or self.is_reset(group, topic, queue_id):
            return True
        if self._entries >= self._limit.most and self.committed(group, topic, queue_id) is None:
            return False
        self._commits += 1
        self._move(topic + SEPARATOR + group, queue_id, offset)
        return True

    def refusal(self, group: str, topic: str, queue_id: int) -> RequestError:
        """Return the error for an offset that was not noted because there are too many, to be raised."""
        return self._limit.refusal(f"an offset of {group} in {topic} queue {queue_id} besides {self._entries}")

    def commit_own(self, topic: str, queue_id: int, offset: int) -> None:
        """Note how far the broker itself has read a topic of its transactions."""
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

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Have the group go on from `offset`, whatever it commits before it has heard of that. Only the offset itself
        survives a restart."""
        key = topic + SEPARATOR + group
        self._move(key, queue_id, offset)
        self._resets.setdefault(key, {})[queue_id] = offset

    @property
    def has_resets(self) -> bool:
        """Whether any group has been reset and has not heard of it."""
        return bool(self._resets)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group has been reset in a queue, and has not heard of it."""
        return bool(self._resets) and queue_id in self._resets.get(topic + SEPARATOR + group, ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group is to go on, for whoever tells it now; None if it was not reset, or knows."""
        key = topic + SEPARATOR + group
        row = self._resets.get(key)
        offset = None if row is None else row.pop(queue_id, None)
        if row is not None and not row:
            del self._resets[key]
        return offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group was last told to pull next."""
        row = self._pulled.get(topic + SEPARATOR + group)
        return None if row is None else row.get(queue_id)

    def note_pull(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note where the group will pull next; kept in memory only."""
        self.next_pulls(group, topic)[queue_id] = next_offset

    def next_pulls(self, group: str, topic: str) -> dict[int, int]:
        """Where the group will pull next, by queue id, to be noted there; until the topic or the group is deleted."""
        key = topic + SEPARATOR + group
        row = self._pulled.get(key)
        if row is None:
            row = self._pulled[key] = {}
        return row

    def table(self) -> Mapping[str, Mapping[int, int]]:
        """Committed offsets by `topic@group` and queue id, to look at."""
        return self._committed

    def topics_of(self, group: str) -> list[str]:
        """The topics that the group has committed offsets of."""
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed offsets of the topic."""
        return list(self._groups_of.get(topic, ()))

    def remove_topic(self, topic: str) -> None:
        """Forget what every group had committed and pulled of a deleted topic."""
        prefix = topic + SEPARATOR
        for table in (self._pulled, self._resets):
            for key in [key for key in table if key.startswith(prefix)]:
                del table[key]
        for group in self.groups_of(topic):
            self._remove(topic, group)

    def remove_group(self, group: str) -> None:
        """Forget what a deleted group had committed and pulled, of every topic."""
        suffix = SEPARATOR + group
        for table in (self._pulled, self._resets):
            for key in [key for key in table if key.endswith(suffix)]:
                del table[key]
        for topic in self.topics_of(group):
            self._remove(topic, group)

    def _enter(self, key: str) -> None:
        """A row is new."""
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
        """Have moved offsets saved, once per interval."""
        if self._unsaved and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self.save()

    def save(self) -> None:
        """Have moved offsets saved now."""
        if self._unsaved:
            self._unsaved = False
            for listener in self._listeners:
                listener()

    def encode_with_groups(self) -> bytes:
        """The same with `groupTopicMap`, the topics of each group: the answer to 43."""
        topics = {group: list(topics) for group, topics in self._topics_of.items()}
        return b'{"groupTopicMap":%b,%b' % (_encode(topics), self.encode()[1:])

    def encode(self) -> bytes:
        """The table as consumerOffset.json, under a new version if it has changed."""
        if self._moved:
            self.version = self.version.next(self._clock())
        for key in self._moved:
            row = ",".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(self._committed[key].items()))
            self._texts[key] = b"%b:{%b}" % (_encode(key), row.encode())
        self._moved.clear()
        rows = b",".join(self._texts.values())
        return b"".join((b'{"dataVersion":', _encode(self.version), b',"offsetTable":{', rows, b"}}"))

    def statistics(self) -> OffsetsStatistics:
        """The table's figures now."""
        return OffsetsStatistics(
            rows=len(self._committed),
            commits=self._commits,
            version=self.version.counter,
            resets=sum(map(len, self._resets.values())),
        )
