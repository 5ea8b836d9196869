"""Search for messages by key: the newest index file first, and each chain from its newest item.

A search may take long, because of long chains from a hostile producer or a cold disk. It is therefore a generator. It
yields None after every `SLICE_ITEMS` items, so that other work can run, and yields a ColdRead if bytes must be fetched
into memory first. `run_now` runs a search without pauses, before requests are served.

The item numbers of a chain only decrease. A chain with an increasing number is damaged and ends there, so a search
always ends. The search compares hashes and times in seconds only; the caller compares keys.

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
_SLOT: Final = Struct(">i")

T = TypeVar("T")
Steps: TypeAlias = Generator[ColdRead | None, None, T]
Read: TypeAlias = Callable[[int, str, int, int], bytes | bytearray]
"""`(descriptor, path, at, size)`, as `ColdReads.read` takes them."""


class SearchCriteria(msgspec.Struct, frozen=True):
    """The newest `limit` items with this key hash, of messages stored in [begin, end] (ms)."""

    key_hash: int
    limit: int
    begin: int
    end: int


def search(files: Sequence[IndexFile], criteria: SearchCriteria, read: Read) -> Steps[list[int]]:
    """Return physical offsets, newest first. `files` are in order, oldest first."""
    found: list[int] = []
    for file in reversed(files):
        header = file.header
        if header.begin_timestamp <= criteria.end and header.end_timestamp >= criteria.begin and not file.is_removed:
            file.hold()
            try:
                yield from _search_file(file, criteria, read, found)
            finally:
                file.release()
        if header.begin_timestamp < criteria.begin or len(found) >= criteria.limit:
            break
    return found


def _search_file(file: IndexFile, criteria: SearchCriteria, read: Read, found: list[int]) -> Steps[None]:
    layout, begin_timestamp = file.layout, file.header.begin_timestamp
    slot_at = layout.slot_at(criteria.key_hash % layout.slots)
    (number,) = _SLOT.unpack((yield from with_cold_read_retry(read, file.fd, file.path, slot_at, INDEX_SLOT_SIZE)))
    above = file.header.next_item
    steps = 0
    while 0 < number < above and len(found) < criteria.limit:
        item_at = layout.item_at(number)
        data = yield from with_cold_read_retry(read, file.fd, file.path, item_at, INDEX_ITEM_SIZE)
        key_hash, offset, seconds, previous = INDEX_ITEM.unpack(data)
        timestamp = begin_timestamp + seconds * 1000
        if key_hash == criteria.key_hash and criteria.begin <= timestamp <= criteria.end:
            found.append(offset)
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
