"""Search for messages by key: the newest index file first, and each chain from its newest item.

A search may take long, because of long chains from a hostile producer or a cold disk. It is therefore a generator. It
yields None after every `SLICE_ITEMS` items, so that other work can run, and yields a ColdRead if bytes must be fetched
into memory first. `run_now` runs a search without pauses, before requests are served.

The item numbers of a chain only decrease. A chain with an increasing number is damaged and ends there, so a search
always ends. The search compares hashes and times in seconds; `is_match` compares topic and key in the message itself.
Producers choose their keys, so many keys may have one hash. A search therefore reads at most `MOST_READ` messages.

Source: docs/reference/disk.md, "Index queries".
"""

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Final, TypeAlias, TypeVar

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.protocol.disk import INDEX_ITEM, INDEX_ITEM_SIZE, INDEX_SLOT_SIZE

SLICE_ITEMS: Final = 256  # takes about 0.5 ms
SLICE_READS: Final = 32
MOST_READ: Final = 16_384
"""Messages that one search reads, those with another key included."""
_SLOT: Final = Struct(">i")

T = TypeVar("T")
Steps: TypeAlias = Generator[ColdRead | None, None, T]
Read: TypeAlias = Callable[[int, str, int, int], bytes | bytearray]
"""`(descriptor, path, at, size)`, as `ColdReads.read` takes them."""
Match: TypeAlias = Callable[[int], Steps[bool]]
"""`(physical offset)`: whether the message there counts as found."""


class SearchCriteria(msgspec.Struct, frozen=True):
    """The newest `limit` matching items with this key hash, of messages stored in [begin, end] (ms)."""

    key_hash: int
    limit: int
    begin: int
    end: int


class Matches:
    """The physical offsets that a search has found, newest first. A message with a key twice is found twice."""

    def __init__(self, is_match: Match, limit: int) -> None:
        self.offsets: list[int] = []
        self._is_match = is_match
        self._limit = limit
        self._read = 0

    @property
    def is_complete(self) -> bool:
        """Whether no further message is wanted, or none may be read."""
        return len(self.offsets) >= self._limit or self._read >= MOST_READ

    def add(self, offset: int) -> Steps[None]:
        """Add the message at an offset if it matches."""
        self._read += 1
        if (yield from self._is_match(offset)):
            self.offsets.append(offset)
        if self._read % SLICE_READS == 0:
            yield None


def search(files: Sequence[IndexFile], criteria: SearchCriteria, read: Read, is_match: Match) -> Steps[list[int]]:
    """Return the physical offsets of matching messages, newest first. `files` are in order, oldest first."""
    found = Matches(is_match, criteria.limit)
    for file in reversed(files):
        header = file.header
        if header.begin_timestamp <= criteria.end and header.end_timestamp >= criteria.begin and not file.is_removed:
            file.hold()
            try:
                yield from _search_file(file, criteria, read, found)
            finally:
                file.release()
        if header.begin_timestamp < criteria.begin or found.is_complete:
            break
    return found.offsets


def _search_file(file: IndexFile, criteria: SearchCriteria, read: Read, found: Matches) -> Steps[None]:
    layout, begin_timestamp = file.layout, file.header.begin_timestamp
    slot_at = layout.slot_at(criteria.key_hash % layout.slots)
    (number,) = _SLOT.unpack((yield from with_cold_read_retry(read, file.fd, file.path, slot_at, INDEX_SLOT_SIZE)))
    above = file.header.next_item
    steps = 0
    while 0 < number < above and not found.is_complete:
        item_at = layout.item_at(number)
        data = yield from with_cold_read_retry(read, file.fd, file.path, item_at, INDEX_ITEM_SIZE)
        key_hash, offset, seconds, previous = INDEX_ITEM.unpack(data)
        timestamp = begin_timestamp + seconds * 1000
        if key_hash == criteria.key_hash and criteria.begin <= timestamp <= criteria.end:
            yield from found.add(offset)
        if seconds < 0 or timestamp < criteria.begin:
            return
        above, number = number, previous
        steps += 1
        if steps % SLICE_ITEMS == 0:
            yield None


def with_cold_read_retry(call: Callable[..., T], *arguments: object) -> Steps[T]:
    """Return the result of `call`; yield each ColdRead that it raises, and call it again."""
    while True:
        try:
            return call(*arguments)
        except ColdRead as cold:
            yield cold


def run_now(steps: Steps[T]) -> T:
    """Return the result of a search, run without pauses. Reads wait for the disk."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
