"""Finding messages by key: the chains of the index files, newest file first, each chain from its newest item.

A search may be long: chains that a hostile producer grew, a cold disk. So it is a generator that pauses after every
`SLICE_ITEMS` items, giving None (others may have their turn), and where bytes are not in memory, giving the ColdRead
that is to be fetched. `run_now` goes through the pauses in place, where nobody else is served yet.

A chain's numbers only ever go down; one that does not is damaged and ends there, so a search always ends. Only hashes
are compared and times are cut to seconds: whoever asked compares keys.

Source: docs/formats.md, "Index queries".
"""

from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Final, TypeAlias, TypeVar

import msgspec

from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.protocol.disk import INDEX_ITEM, INDEX_ITEM_SIZE, INDEX_SLOT_SIZE

SLICE_ITEMS: Final = 256  # about half a millisecond
_SLOT: Final = Struct(">i")

T = TypeVar("T")
Steps: TypeAlias = Generator[ColdRead | None, None, T]
Read: TypeAlias = Callable[[int, str, int, int], bytes | bytearray]
"""`(descriptor, path, at, size)`, as ColdReads.read"""


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for: items of this key hash stored in [begin, end] (ms), the newest `limit` of them."""

    key_hash: int
    limit: int
    begin: int
    end: int


def search(files: Sequence[IndexFile], wanted: Wanted, read: Read) -> Steps[list[int]]:
    """Physical offsets, newest first. `files` are given oldest first."""
    found: list[int] = []
    for file in reversed(files):
        header = file.header
        if header.begin_timestamp <= wanted.end and header.end_timestamp >= wanted.begin and not file.is_removed:
            file.hold()
            try:
                yield from _search_file(file, wanted, read, found)
            finally:
                file.release()
        if header.begin_timestamp < wanted.begin or len(found) >= wanted.limit:
            break
    return found


def _search_file(file: IndexFile, wanted: Wanted, read: Read, found: list[int]) -> Steps[None]:
    layout, begin_timestamp = file.layout, file.header.begin_timestamp
    slot_at = layout.slot_at(wanted.key_hash % layout.slots)
    (number,) = _SLOT.unpack((yield from patiently(read, file.fd, file.path, slot_at, INDEX_SLOT_SIZE)))
    above = file.header.next_item
    steps = 0
    while 0 < number < above and len(found) < wanted.limit:
        data = yield from patiently(read, file.fd, file.path, layout.item_at(number), INDEX_ITEM_SIZE)
        key_hash, offset, seconds, previous = INDEX_ITEM.unpack(data)
        timestamp = begin_timestamp + seconds * 1000
        if key_hash == wanted.key_hash and wanted.begin <= timestamp <= wanted.end:
            found.append(offset)
        if seconds < 0 or timestamp < wanted.begin:
            return
        above, number = number, previous
        steps += 1
        if steps % SLICE_ITEMS == 0:
            yield None


def patiently(ask: Callable[..., T], *arguments: object) -> Steps[T]:
    """Ask until everything that it takes is in memory."""
    while True:
        try:
            return ask(*arguments)
        except ColdRead as cold:
            yield cold


def run_now(steps: Steps[T]) -> T:
    """Go through the pauses without one, waiting for disks in place."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
