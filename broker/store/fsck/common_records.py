"""Checks records in the common layout many at a time: V1, IPv4 hosts, topic and properties in ASCII.

The compiled module `columns` checks the layout of a run of records, and extracts topics, tags and keys. NumPy compares
the positions. The body CRCs take a call for each record. `protocol.record.parse` and `protocol.disk.index_keys` give
the same result, in several times the CPU time.

A run ends before the first record that is damaged or has another layout. The caller checks that record by itself.
Without compiled modules every run is empty.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from skylarkmq.protocol import compiled
from skylarkmq.protocol.message import tags_code
from skylarkmq.protocol.record import COMMON_HEAD, COMMON_HEAD_SIZE, CRC_MASK, MAGIC_V1, Record
from skylarkmq.protocol.record_checksum import PREFIX as CHECKSUM_START
from skylarkmq.protocol.record_checksum import SIZE as CHECKSUM_SIZE

RUN_BYTES: Final = 1 << 18
"""No run is longer."""
_MAGIC_AT, _CRC_AT, _PHYSICAL_OFFSET_AT, _BODY_SIZE_AT = 4, 8, 28, 84
_TOPIC, _TAGS, _KEYS, _UNIQUE_KEY = 1, 2, 3, 4  # positions among the texts that `columns` returns
_WANTED: Final = 1 << 18 | sum(1 << 10 + text for text in (_TOPIC, _TAGS, _KEYS, _UNIQUE_KEY))
"""The bits for `columns`: these texts, also of records with compressed bodies."""

Ints: TypeAlias = NDArray[np.int64]
Column: TypeAlias = tuple[bytes | None, bytes, bytes]

_NONE: Final[tuple[Ints, Sequence[Column]]] = (np.zeros(0, np.int64), ())

_compiled: Final = compiled.load("columns")


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


def read_run(view: memoryview, at: int, start: int) -> list[CommonRecord]:
    """Return the records of the run at byte `at` of `view`, which begins at byte `start` of the log."""
    begins, texts = _layouts(view, at, start)
    count = _count_valid_bodies(view, begins)
    if not count:
        return []
    columns = [_values(texts[text], count) for text in (_TOPIC, _TAGS, _UNIQUE_KEY, _KEYS)]
    return [_record(view, begin, *values) for begin, *values in zip(begins[:count].tolist(), *columns, strict=True)]


def _record(view: memoryview, begin: int, topic: bytes, tags: bytes, unique_key: bytes, keys: bytes) -> CommonRecord:
    head = COMMON_HEAD(view, begin)
    body_at = begin + COMMON_HEAD_SIZE
    properties_at = body_at + head[-1] + 1 + len(topic) + 2
    found = [unique_key] if unique_key else []
    if b" " in keys:
        found += filter(None, keys.split(b" "))
    elif keys:
        found.append(keys)
    fields = (*head[:-1], body_at, head[-1], _topic_of(topic), properties_at, _tags_code_of(tags), found)
    return CommonRecord(view, begin, *fields)


def _layouts(view: memoryview, at: int, start: int) -> tuple[Ints, Sequence[Column]]:
    """Return the begins and the texts of the next records.

    They end before the first one with another layout or position, or with a wrong record checksum. Bodies are not
    checked.
    """
    if _compiled is None:
        return _NONE
    begins = np.frombuffer(_compiled.steps(view, at, min(at + RUN_BYTES, len(view))), np.int64)
    found = _compiled.columns(view, begins, _WANTED) if len(begins) else None
    if found is None:
        return _NONE
    ends = begins + _int32(view, begins)
    offsets = np.ndarray((len(view) - 7,), ">i8", view, strides=(1,))[begins + _PHYSICAL_OFFSET_AT]
    is_other = (_int32(view, begins + _MAGIC_AT) != MAGIC_V1) | (offsets != start + begins)
    for number in _perhaps_with_checksum(view, ends):
        is_other[number] |= not record_checksum_matches(view, int(begins[number]), int(ends[number]))
    others = np.flatnonzero(is_other)
    return begins[: others[0]] if len(others) else begins, found[1]


def _perhaps_with_checksum(view: memoryview, ends: Ints) -> list[int]:
    """Return the numbers of the records whose last bytes have the name or the digits of a record checksum."""
    last_bytes = np.frombuffer(view, np.uint8)[(ends - CHECKSUM_SIZE)[:, None] + np.arange(CHECKSUM_SIZE)]
    digits = last_bytes[:, len(CHECKSUM_START) : -1]
    has_name = (last_bytes[:, : len(CHECKSUM_START)] == np.frombuffer(CHECKSUM_START, np.uint8)).all(axis=1)
    has_digits = ((digits >= ord("0")) & (digits <= ord("9"))).all(axis=1)
    found: list[int] = np.flatnonzero(has_name | has_digits).tolist()
    return found


def record_checksum_matches(view: memoryview, begin: int, end: int) -> bool:
    """Return whether the record checksum of [begin, end) matches; True without one. docs/formats.md, "CommitLog
    record"."""
    tail = bytes(view[end - CHECKSUM_SIZE : end])
    name, digits = tail[: len(CHECKSUM_START)], tail[len(CHECKSUM_START) : -1]
    agrees = digits.isdigit() and int(digits[::-1]) == crc32(view[begin : end - CHECKSUM_SIZE]) & CRC_MASK
    if name != CHECKSUM_START and not agrees:  # if the digits agree, they are a checksum with a damaged name
        return True
    return agrees and name == CHECKSUM_START and tail.endswith(b"\x02")


def _count_valid_bodies(view: memoryview, begins: Ints) -> int:
    """Return the number of records before the first one with a wrong body CRC."""
    if not len(begins):
        return 0
    bodies = begins + COMMON_HEAD_SIZE
    sizes = _int32(view, begins + _BODY_SIZE_AT)
    crcs = np.array(
        [crc32(view[at:end]) for at, end in zip(bodies.tolist(), (bodies + sizes).tolist(), strict=True)], np.int64
    )
    wrong = np.flatnonzero((crcs & CRC_MASK != _int32(view, begins + _CRC_AT)) & (sizes > 0))
    return int(wrong[0]) if len(wrong) else len(begins)


def _int32(view: memoryview, positions: Ints) -> Ints:
    return np.ndarray((len(view) - 3,), ">i4", view, strides=(1,))[positions].astype(np.int64)


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
