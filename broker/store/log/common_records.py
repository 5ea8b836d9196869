"""Checks records in the common layout many at a time: V1, IPv4 hosts, topic and properties in ASCII.

The compiled module `columns` checks the layout of a run of records, and extracts topics, tags and keys. NumPy compares
positions and checksums. `protocol.record.parse` and `protocol.disk.index_keys` give the same result, in several times
the CPU time.

    read_run   the records of a run, for `store verify`
    run_at     the run by columns: a follower judges its queues, and takes the records where one is not continued

A run ends before the first record that is damaged or has another layout. The caller checks that record by itself.
Without compiled modules every run is empty.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.broker.store.files.record_rules import INNER_BATCH
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.crc32 import slice_crcs
from skylarkmq.protocol.message import tags_code
from skylarkmq.protocol.record import COMMON_HEAD_SIZE, CRC_MASK, MAGIC_V1, Record
from skylarkmq.protocol.record_checksum import PREFIX as CHECKSUM_START
from skylarkmq.protocol.record_checksum import SIZE as CHECKSUM_SIZE

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue

RUN_BYTES: Final = 1 << 18
"""No run is longer."""
_TOPIC, _TAGS, _KEYS, _UNIQUE_KEY = 1, 2, 3, 4  # positions among the texts that `columns` returns
_ANY_BODY: Final = 1 << 18  # the bit for `columns` that includes records with compressed bodies
_TEXTS: Final = sum(1 << 10 + text for text in (_TOPIC, _TAGS, _KEYS, _UNIQUE_KEY))  # the bits for these texts
_NUMBERED: Final = 1 << 10 + _TOPIC | 1 << 10 + _TAGS
"""The bits for topics and tags as numbers of distinct values. The bits for tags mean that properties are checked,
too."""
_SPACE: Final = ord(" ")
_HEAD: Final = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp", ">i8"),
        ("born_host", "V8"), ("store_timestamp", ">i8"), ("store_host", "V8"), ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"), ("body_size", ">i4"),
    ]
)  # fmt: skip
"""All before the body, in the order of the record and of the fields of `Record`."""

Ints: TypeAlias = NDArray[np.int64]
Heads: TypeAlias = NDArray[Any]
Column: TypeAlias = tuple[bytes | None, bytes, Any]

_compiled: Final = compiled.load("columns")
_stored_appends: Final = compiled.load("stored_appends")


class CommonRecord(Record):
    """A record with its tags code and its keys."""

    known_tags_code: int
    known_keys: list[bytes]

    @property
    def tags_code(self) -> int:
        """The tags code of its unit."""
        return self.known_tags_code

    @property
    def keys(self) -> list[bytes]:
        """The record's index keys."""
        return self.known_keys


class QueueRun(NamedTuple):
    """The records of a run that belong to one queue: they have all offsets from `first` up to `end`, and the last one
    ends at byte `log_end` of the log."""

    topic: str
    queue_id: int
    first: int
    end: int
    log_end: int


class Run:
    """Consecutive records, by columns. `begins`: their positions in `view`. `topics`: the number of the topic of each
    record, and the topics; None if they are too many."""

    def __init__(
        self, view: memoryview, begins: Ints, heads: Heads, topics: tuple[NDArray[np.int32], list[bytes]] | None
    ) -> None:
        self._view = view
        self._begins = begins
        self._heads = heads
        self._topics = topics

    def __repr__(self) -> str:
        return f"<Run of {len(self)}>"

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def end(self) -> int:
        """Where the last record ends in the log. Not of an empty run."""
        return self._end_of(-1)

    def _end_of(self, number: int) -> int:
        head = self._heads[number]
        return int(head["physical_offset"]) + int(head["size"])

    def queues(self) -> tuple[Ints, list[QueueRun]] | None:
        """Return for each record the number of its queue, and the queues, if each record is one message without a
        transaction, and continues the one before it in its queue; otherwise None."""
        heads = self._heads
        if not self or self._topics is None or (heads["sys_flag"] & (SysFlag.TRANSACTION_MASK | INNER_BATCH)).any():
            return None
        topic_numbers, topics = self._topics
        queues = topic_numbers.astype(np.int64) << 32 | heads["queue_id"].astype(np.uint32)
        order = np.argsort(queues, kind="stable")
        ordered, offsets = queues[order], heads["queue_offset"][order].astype(np.int64)
        is_same = ordered[1:] == ordered[:-1]
        if (is_same & (offsets[1:] != offsets[:-1] + 1)).any():
            return None
        lasts = np.append(np.flatnonzero(~is_same), len(order) - 1)
        numbers = np.zeros(len(order), np.int64)
        numbers[order[1:]] = np.cumsum(~is_same)
        found = []
        begin = 0
        for last in lasts.tolist():
            row = int(order[last])
            topic = _topic_of(topics[topic_numbers[row]])
            queue_id, first, end = int(heads["queue_id"][row]), int(offsets[begin]), int(offsets[last]) + 1
            if end - first != last + 1 - begin:
                return None  # beyond the largest offset
            found.append(QueueRun(topic, queue_id, first, end, self._end_of(row)))
            begin = last + 1
        return numbers, found

    def records(self) -> list[CommonRecord]:
        """Return the records."""
        if not self:
            return []
        _, texts = _compiled.columns(self._view, self._begins, _ANY_BODY | _TEXTS)
        return _records(self._view, self._begins, self._heads, texts)

    def appends(self, numbers: Ints, queues: list["ConsumeQueue"]) -> list[Append]:
        """Return the records in the form that dispatch takes, with the keys but without bodies. `numbers`: the position
        in `queues` of each record's queue."""
        found: list[Append] = _stored_appends.appends(self._view, self._begins, queues, numbers, PutStatus.PENDING)
        return found


def read_run(view: memoryview, at: int, start: int) -> list[CommonRecord]:
    """Return the records of the run at byte `at` of `view`, which begins at byte `start` of the log."""
    begins, heads, texts = _layouts(view, at, start, _ANY_BODY | _TEXTS)
    count = _sound(view, begins, heads)
    return _records(view, begins[:count], heads[:count], texts) if count else []


def run_at(view: memoryview, at: int, start: int) -> Run:
    """Return the same run by columns."""
    begins, heads, texts = _layouts(view, at, start, _ANY_BODY | _NUMBERED, _NUMBERED)
    count = _sound(view, begins, heads)
    topics = None
    if count and isinstance(texts[_TOPIC][2], list):
        topics = np.frombuffer(texts[_TOPIC][1], np.int32, count), texts[_TOPIC][2]
    return Run(view, begins[:count], heads[:count], topics)


def end_of_run(view: memoryview, at: int, start: int) -> tuple[int, int]:
    """Return the end of this run, and the store time of its last record (ms); `(at, 0)` for an empty run.

    Here topics and properties need not be ASCII, and record checksums are not compared.
    """
    begins, heads, _ = _layouts(view, at, start, _ANY_BODY)
    count = _first(_body_differs(view, begins, heads))
    if not count:
        return at, 0
    return int(begins[count - 1]) + int(heads["size"][count - 1]), int(heads["store_timestamp"][count - 1])


def _layouts(
    view: memoryview, at: int, start: int, wanted: int, numbered: int = 0
) -> tuple[Ints, Heads, Sequence[Column]]:
    """Return begins, heads and wanted texts of the next records. They end before the first one with another layout or
    position. `numbered`: the texts that are wanted as numbers of distinct values."""
    nothing = np.zeros(0, np.int64), np.zeros(0, _HEAD), ()
    if _compiled is None:
        return nothing
    begins = np.frombuffer(_compiled.steps(view, at, min(at + RUN_BYTES, len(view))), np.int64)
    found = _compiled.columns(view, begins, wanted, None, numbered) if len(begins) else None
    if found is None:
        return nothing
    heads: Heads = _windows(view, begins, COMMON_HEAD_SIZE).view(_HEAD)
    count = _first((heads["magic"] != MAGIC_V1) | (heads["physical_offset"] != start + begins))
    return begins[:count], heads[:count], found[1]


def _windows(view: memoryview, begins: Ints, size: int) -> Heads:
    """Return copies of the `size` bytes from each of these positions on. Bytes without a structure are copied in a
    fraction of the time that the fields of a structure, or an index for each byte, would take."""
    return np.ndarray((max(0, len(view) - size + 1),), f"V{size}", view, strides=(1,))[begins]


def _sound(view: memoryview, begins: Ints, heads: Heads) -> int:
    """Return how many records are before the first one with a wrong checksum."""
    return min(_first(_checksum_differs(view, begins, heads)), _first(_body_differs(view, begins, heads)))


def _first(flags: NDArray[np.bool_]) -> int:
    """Return the position of the first set flag, or their number."""
    found = np.flatnonzero(flags)
    return int(found[0]) if len(found) else len(flags)


def _body_differs(view: memoryview, begins: Ints, heads: Heads) -> NDArray[np.bool_]:
    """Return for each record whether its body has another CRC than its head says."""
    if _compiled is None:
        return np.zeros(len(begins), bool)
    bodies = begins + COMMON_HEAD_SIZE
    crcs = slice_crcs(view, bodies, bodies + heads["body_size"])
    differs: NDArray[np.bool_] = (crcs != heads["body_crc"]) & (heads["body_size"] > 0)
    return differs


def _checksum_differs(view: memoryview, begins: Ints, heads: Heads) -> NDArray[np.bool_]:
    """Return for each record whether its record checksum is wrong; False without one."""
    ends = begins + heads["size"]
    differs = np.zeros(len(begins), bool)
    for number in _perhaps_with_checksum(view, ends):
        differs[number] = not record_checksum_matches(view, int(begins[number]), int(ends[number]))
    return differs


def _records(view: memoryview, begins: Ints, heads: Heads, texts: Sequence[Column]) -> list[CommonRecord]:
    count = len(begins)
    topics, tags, unique_keys, keys = (_values(texts[text], count) for text in (_TOPIC, _TAGS, _UNIQUE_KEY, _KEYS))
    *fields, body_sizes = (heads[name].tolist() for name in _HEAD.names or ())
    bodies = begins + COMMON_HEAD_SIZE
    topic_lengths = np.fromiter(map(len, topics), np.int64, count)
    columns = (
        begins.tolist(),
        *fields,
        bodies.tolist(),
        body_sizes,
        map(_topic_of, topics),
        (bodies + heads["body_size"] + 1 + topic_lengths + 2).tolist(),
        map(_tags_code_of, tags),
        map(_keys_of, unique_keys, keys),
    )
    return list(map(CommonRecord, repeat(view), *columns))


def _perhaps_with_checksum(view: memoryview, ends: Ints) -> list[int]:
    """Return the numbers of the records whose last bytes have the name or the digits of a record checksum."""
    last_bytes = _windows(view, ends - CHECKSUM_SIZE, CHECKSUM_SIZE).view(np.uint8).reshape(-1, CHECKSUM_SIZE)
    begins_like_name = last_bytes[:, 0] == CHECKSUM_START[0]
    first_and_last = last_bytes[:, [len(CHECKSUM_START), -2]]
    candidates = np.flatnonzero(begins_like_name | _are_digits(first_and_last))
    last_bytes = last_bytes[candidates]
    has_name = (last_bytes[:, : len(CHECKSUM_START)] == np.frombuffer(CHECKSUM_START, np.uint8)).all(axis=1)
    found: list[int] = candidates[has_name | _are_digits(last_bytes[:, len(CHECKSUM_START) : -1])].tolist()
    return found


def _are_digits(texts: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each row whether all its bytes are digits."""
    digits: NDArray[np.bool_] = np.logical_and.reduce((texts >= ord("0")) & (texts <= ord("9")), axis=1)
    return digits


def record_checksum_matches(view: memoryview, begin: int, end: int) -> bool:
    """Return whether the record checksum of [begin, end) matches; True without one. docs/reference/disk.md, "CommitLog
    record"."""
    tail = bytes(view[end - CHECKSUM_SIZE : end])
    name, digits = tail[: len(CHECKSUM_START)], tail[len(CHECKSUM_START) : -1]
    agrees = digits.isdigit() and int(digits[::-1]) == crc32(view[begin : end - CHECKSUM_SIZE]) & CRC_MASK
    if name != CHECKSUM_START and not agrees:  # if the digits agree, they are a checksum with a damaged name
        return True
    return agrees and name == CHECKSUM_START and tail.endswith(b"\x02")


def _values(column: Column, count: int) -> Sequence[bytes]:
    """Return the first `count` texts of a column; empty for a missing one."""
    _, offsets, values = column
    ends = np.frombuffer(offsets, np.int32, count + 1).tolist()
    return [values[begin:end] for begin, end in pairwise(ends)]


@lru_cache(1024)
def _topic_of(topic: bytes) -> str:
    return topic.decode()


@lru_cache(1024)
def _tags_code_of(tags: bytes) -> int:
    return tags_code(tags.decode())


def _keys_of(unique_key: bytes, keys: bytes) -> list[bytes]:
    """Return the index keys, as `protocol.disk.index_keys` does."""
    found = [unique_key] if unique_key else []
    if _SPACE in keys:  # a search for b" " takes ten times as long
        found += filter(None, keys.split(b" "))
    elif keys:
        found.append(keys)
    return found
