"""Lookup of a key in the index files of a store.

The index compares only hashes, so the results are candidates. The index is incomplete: after a crash, a file is valid
only up to the checkpoint, a few records may be missing between two files, and the newest file ends before the log does.
`Found.unknown` contains the ranges of the log that must be read in addition.

Source: docs/reference/disk.md, "IndexFile", "Index queries", "Recovery".
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import Extent, checkpoint_of
from skylarkmq.protocol.disk import (
    INDEX_DIRECTORY,
    INDEX_HEADER_SIZE,
    INDEX_ITEM,
    INDEX_ITEM_SIZE,
    INDEX_SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    index_hash,
    parse_index_file_name,
)

_SLOT: Final = Struct(">i")


class Found(NamedTuple):
    """Bytes of the log: positions of records that may have the key, and ranges that the index does not cover."""

    offsets: list[int]
    unknown: list[tuple[int, int]]


def find_key(root: Path, layout: IndexLayout, topics: Iterable[str], key: str, extent: Extent) -> Found:
    """Return the candidates for a key in these topics.

    Raises StoreUnreadable if the index files have another layout.
    """
    hashes = [index_hash(f"{topic}#{key}") for topic in topics]
    trusted_ms = checkpoint_of(root).index_timestamp if extent.crashed else None
    offsets: set[int] = set()
    known: list[tuple[int, int]] = []
    for path in _paths(root):
        with open(path, "rb", buffering=0) as file:
            header = _header_of(path, file.fileno(), layout)
            if header.next_item > 1 and (trusted_ms is None or header.end_timestamp <= trusted_ms):
                known.append((header.begin_offset, header.end_offset))
                for key_hash in hashes:
                    offsets.update(_chain(file.fileno(), layout, header, key_hash))
    unknown = list(_between(sorted(known), extent))
    is_unknown = (any(begin <= offset < end for begin, end in unknown) for offset in sorted(offsets))
    return Found([offset for offset, read in zip(sorted(offsets), is_unknown, strict=True) if not read], unknown)


def _paths(root: Path) -> list[Path]:
    directory = root / INDEX_DIRECTORY
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if parse_index_file_name(path.name) is not None)


def _header_of(path: Path, fd: int, layout: IndexLayout) -> IndexHeader:
    length = os.fstat(fd).st_size
    if length != layout.size:
        what = f"{path}: {length} bytes, not {layout.size} of maxHashSlotNum={layout.slots} maxIndexNum={layout.items}"
        raise StoreUnreadable(f"{what}: set both options to the broker's values, or useIndex=false")
    return IndexHeader.decode(os.pread(fd, INDEX_HEADER_SIZE, 0))


def _chain(fd: int, layout: IndexLayout, header: IndexHeader, key_hash: int) -> Iterator[int]:
    """Yield the offsets with that hash. Item numbers must decrease along a chain; a damaged chain ends the search."""
    (number,) = _SLOT.unpack(os.pread(fd, INDEX_SLOT_SIZE, layout.slot_at(key_hash % layout.slots)))
    above = header.next_item
    while 0 < number < above:
        found, offset, _, previous = INDEX_ITEM.unpack(os.pread(fd, INDEX_ITEM_SIZE, layout.item_at(number)))
        if found == key_hash:
            yield offset
        above, number = number, previous


def _between(known: list[tuple[int, int]], extent: Extent) -> Iterator[tuple[int, int]]:
    """Yield the parts of the log outside these ranges.

    The keys of a range's last record may be in the next file, or missing.
    """
    at = extent.begin
    for begin, end in known:
        if begin > at:
            yield at, min(begin, extent.end)
        at = max(at, end)
    if at < extent.end:
        yield at, extent.end
