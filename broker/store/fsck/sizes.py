"""Infers the sizes that a store was written with from its files.

The names of consecutive segments differ by the segment size. An index file's length fits many pairs of slots and items.
Its header determines where the last item must be and how many slots are in use, and only the correct pair matches both.
If there are too few files, a file counts as complete: its length is the size.

Source: docs/reference/disk.md, "Store directory", "IndexFile".
"""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np

from skylarkmq.broker.store.fsck.segments import SegmentFile, directories, segment_files
from skylarkmq.protocol.disk import (
    COMMIT_LOG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    INDEX_DIRECTORY,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_SIZE,
    IndexHeader,
    IndexLayout,
    parse_index_file_name,
)

DEFAULT_LOG_BYTES: Final = 1 << 30
DEFAULT_QUEUE_BYTES: Final = 6_000_000
DEFAULT_INDEX: Final = IndexLayout(5_000_000, 20_000_000)
_SAMPLED_QUEUES: Final = 1_000  # all queues of a store have the same segment size


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """mappedFileSizeCommitLog and mappedFileSizeConsumeQueue in bytes; maxHashSlotNum and maxIndexNum."""

    commit_log: int = DEFAULT_LOG_BYTES
    consume_queue: int = DEFAULT_QUEUE_BYTES
    index: IndexLayout = DEFAULT_INDEX

    @classmethod
    def of(cls, root: Path) -> Self:
        """Return the sizes inferred from the files of `root`; the defaults without files."""
        return cls(
            commit_log=_segment_size([segment_files(root, COMMIT_LOG_DIRECTORY)]) or DEFAULT_LOG_BYTES,
            consume_queue=_segment_size(_queues(root)) or DEFAULT_QUEUE_BYTES,
            index=_index_layout(root),
        )


def _queues(root: Path) -> list[list[SegmentFile]]:
    found: list[list[SegmentFile]] = []
    for topic in directories(root / CONSUME_QUEUE_DIRECTORY):
        for queue in directories(root / CONSUME_QUEUE_DIRECTORY / topic):
            found.append(segment_files(root, f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue}"))
            if len(found) == _SAMPLED_QUEUES:
                return found
    return found


def _segment_size(families: list[list[SegmentFile]]) -> int:
    """Return the most frequent length of files or distance of neighbors; 0 without files."""
    votes = Counter(later.start - earlier.start for segments in families for earlier, later in pairwise(segments))
    votes.update(segment.length for segments in families for segment in segments if segment.length)
    return votes.most_common(1)[0][0] if votes else 0


def _index_layout(root: Path) -> IndexLayout:
    directory = root / INDEX_DIRECTORY
    names = sorted(filter(parse_index_file_name, os.listdir(directory))) if directory.is_dir() else []
    paths = [directory / name for name in names if (directory / name).is_file()]
    lengths = Counter(path.stat().st_size for path in paths)
    for length, _ in lengths.most_common():
        if length == DEFAULT_INDEX.size:
            return DEFAULT_INDEX
        for path in paths:
            if path.stat().st_size == length and (layout := _layout_of(path, length)) is not None:
                return layout
    # No evidence: use RocketMQ's ratio of slots to items.
    length = lengths.most_common(1)[0][0] if lengths else DEFAULT_INDEX.size
    slots = max((length - INDEX_HEADER_SIZE) // 84, 1)
    return IndexLayout(slots, max((length - INDEX_HEADER_SIZE - 4 * slots) // INDEX_ITEM_SIZE, 1))


def _layout_of(path: Path, length: int) -> IndexLayout | None:
    """Return the only pair that fits the file; None if none fits or the file has no items."""
    with path.open("rb") as file:
        header = IndexHeader.decode(file.read(INDEX_HEADER_SIZE).ljust(INDEX_HEADER_SIZE, b"\0"))
    if header.next_item <= 1 or length % 4:
        return None
    numbers = np.memmap(path, ">i4", "r")
    for layout in _pairs(length, header, numbers):
        slots = numbers[INDEX_HEADER_SIZE // 4 : INDEX_HEADER_SIZE // 4 + layout.slots]
        last = layout.item_at(header.next_item - 1) // 4
        used = int(np.count_nonzero(slots))
        if used == header.used_slots and slots[int(numbers[last]) % layout.slots] == header.next_item - 1:
            return layout
    return None


def _pairs(
    length: int, header: IndexHeader, numbers: "np.memmap[tuple[int], np.dtype[np.int32]]"
) -> Iterator[IndexLayout]:
    """Yield the pairs of this length whose last item points at the header's end offset."""
    first = (length - INDEX_HEADER_SIZE) // 4 % 5 or 5
    last = header.next_item - 1
    low_half = IndexLayout(first, 0).item_at(last) // 4 + 2  # of the last item's offset; 5 further for each pair
    low = np.array([header.end_offset & 0xFFFF_FFFF], np.uint32).view(np.int32)[0]
    fitting = np.flatnonzero(numbers[low_half::5] == low)
    for slots in (first + 5 * fitting).tolist():
        layout = IndexLayout(slots, (length - INDEX_HEADER_SIZE - 4 * slots) // INDEX_ITEM_SIZE)
        if header.next_item <= layout.items:
            yield layout
