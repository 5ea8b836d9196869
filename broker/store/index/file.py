"""One index file: a hash table with chains, which leads from `topic#key` to physical offsets.

A slot holds the number of the newest item of its chain, each item that of the one before it; items are numbered from 1
in the order of arrival and never change. Layout: protocol.disk.IndexLayout.

This is the one kind of file that is stored through its mapping: 2,048 keys go to as many places. What is stored into
has its blocks reserved first, the slots at once and the items in steps, so that a full disk is an OSError and not a
SIGBUS. The mapping is made for the file that is written to and given up once that is full; readers use the descriptor.
Syncing is `fdatasync`, which writes what the mapping changed and releases the GIL.

Many keys are put by the compiled leaf, or by NumPy: all old slot values, all items, all new slot values. Keys of one
batch that share a slot show by the slot not holding their number afterwards; their chain is made by a stable sort. Few
keys go one by one. Each way leaves the same bytes, those of RocketMQ: item 1 counts its seconds from the header's first
begin (the end of the file before), which it then replaces by its own time.

Source: docs/formats.md, "IndexFile".
"""

import mmap
import os
from struct import Struct
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from skylarkmq.broker.host import page_faults
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import LostBytesError
from skylarkmq.broker.store.index.entries import Entries
from skylarkmq.broker.store.index.hashing import Numbers
from skylarkmq.broker.store.index.preallocation import Ahead
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import INDEX_HEADER_SIZE, INDEX_ITEM, IndexHeader, IndexLayout

_leaf = compiled.load("index")
_put_items: Any = None if _leaf is None else _leaf.put_items

FEW_KEYS: Final = 24 if _leaf is None else 2  # below that NumPy's calls cost more than they save
MAX_SECONDS: Final = 2**31 - 1
RESERVED_ITEMS: Final = 1 << 19  # items whose blocks are reserved at a time: 10 MiB
_SLOT: Final = Struct(">i")
_ITEM_DTYPE: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])


class _Writing:
    """The mapping of a file that is written to, and what NumPy sees of it."""

    __slots__ = ("faults", "hashes", "map", "offsets", "previous", "seconds", "slots")

    def __init__(self, mapping: mmap.mmap, layout: IndexLayout) -> None:
        self.map = mapping
        self.faults = page_faults.Range(mapping)
        self.slots: NDArray[np.int32] = np.frombuffer(mapping, np.int32, layout.slots, INDEX_HEADER_SIZE)
        items: NDArray[Any] = np.frombuffer(mapping, _ITEM_DTYPE, layout.items, layout.item_at(0))
        self.hashes, self.offsets = items["hash"], items["offset"]
        self.seconds, self.previous = items["seconds"], items["previous"]

    def close(self) -> None:
        del self.slots, self.hashes, self.offsets, self.seconds, self.previous
        self.map.close()
        self.faults.forget()


class IndexFile:
    """One file; `header` is what its first 40 bytes say. Readers and the flusher use `fd` only."""

    __slots__ = ("_disk", "_readers", "_reserved", "_writing", "fd", "header", "is_removed", "layout", "path")

    def __init__(self, path: str, layout: IndexLayout, fd: int, header: IndexHeader, disk: Disk) -> None:
        self.path = path
        self.layout = layout
        self.fd = fd
        self.header = header
        self.is_removed = False
        self._disk = disk
        self._writing: _Writing | None = None
        self._reserved = 0  # items below that have blocks
        self._readers = 0

    @classmethod
    def create(cls, path: str, layout: IndexLayout, before: IndexHeader | None, disk: Disk) -> Self:
        """A new file behind the one with header `before`. OSError: there is none."""
        return cls(path, layout, disk.create_sparse(path, layout.size), _seed(before), disk)._with_room()

    @classmethod
    def of_ahead(cls, path: str, layout: IndexLayout, before: IndexHeader | None, ahead: Ahead, disk: Disk) -> Self:
        """The same over a file that was made ahead of need."""
        file = cls(path, layout, ahead.fd, _seed(before), disk)
        file._reserved = ahead.items
        return file._with_room()

    def _with_room(self) -> Self:
        """This new file, or OSError and none."""
        try:
            self.make_room()
        except OSError:
            self.close()
            self._disk.unlink(self.path)
            raise
        return self

    @classmethod
    def open(cls, path: str, layout: IndexLayout, disk: Disk) -> Self:
        """A file that exists; its length was checked by the caller."""
        fd = disk.open(path)
        return cls(path, layout, fd, IndexHeader.decode(os.pread(fd, INDEX_HEADER_SIZE, 0)), disk)

    @property
    def is_full(self) -> bool:
        """Whether the next key needs another file."""
        return self.header.next_item >= self.layout.items

    @property
    def is_sound(self) -> bool:
        """Whether the header can be one that was written, and the first and the last item are those that it tells of.

        After a power cut some fields of the header may be older than others.
        """
        header = self.header
        return (
            1 < header.next_item <= self.layout.items
            and 0 <= header.used_slots <= min(header.next_item - 1, self.layout.slots)
            and 0 <= header.begin_offset <= header.end_offset
            and self.item(1)[1] == header.begin_offset
            and self.item(header.next_item - 1)[1] == header.end_offset
        )

    def item(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, physical offset, seconds, previous item."""
        found: tuple[int, int, int, int] = INDEX_ITEM.unpack(
            os.pread(self.fd, INDEX_ITEM.size, self.layout.item_at(number))
        )
        return found

    # writing

    def make_room(self, count: int = 1) -> None:
        """Have blocks for that many more items, and a mapping. OSError when the disk refuses."""
        if self.header.next_item + count > self._reserved:
            self._reserve(self.header.next_item + count)
        if self._writing is None:
            os.posix_fadvise(self.fd, 0, self.layout.item_at(0), os.POSIX_FADV_WILLNEED)
            self._writing = _Writing(self._disk.map(self.fd, self.layout.size), self.layout)

    def _reserve(self, items: int) -> None:
        wanted = min(items - items % RESERVED_ITEMS + RESERVED_ITEMS, self.layout.items)
        self._disk.reserve(self.fd, self.layout.item_at(wanted))
        self._reserved = wanted

    def put(self, entries: Entries) -> int:
        """Put entries, as many as fit; returns how many. OSError: none of them. LostBytesError: the file is of no use
        any more, because it was truncated or its disk fails."""
        count = min(len(entries.hashes), self.layout.items - self.header.next_item)
        if os.lseek(self.fd, 0, os.SEEK_END) < self.layout.size:
            raise LostBytesError(self.path, os.lseek(self.fd, 0, os.SEEK_END), "file truncated")
        self.make_room(count)
        begin = 0
        if self.header.next_item <= 1 or count < FEW_KEYS:
            begin = count if count < FEW_KEYS else 1
            columns = (column.tolist() for column in entries.part(0, begin))
            for key_hash, offset, timestamp in zip(*columns, strict=True):
                self._put_one(key_hash, offset, timestamp)
        if begin < count:
            put_many = self._put_many if _put_items is None else self._put_compiled
            put_many(*entries.part(begin, count))
        self._close_put(int(entries.offsets[count - 1]), int(entries.timestamps[count - 1]))
        self._check_faults()
        return count

    def _check_faults(self) -> None:
        assert self._writing is not None
        first, behind = self._writing.faults.lost
        if behind:
            raise LostBytesError(self.path, first, "cannot be read or written")

    def _close_put(self, offset: int, timestamp: int) -> None:
        assert self._writing is not None
        header = self.header
        header.end_offset = offset
        header.end_timestamp = timestamp
        self._writing.map[:INDEX_HEADER_SIZE] = header.encode()

    def _put_one(self, key_hash: int, offset: int, timestamp: int) -> None:
        assert self._writing is not None
        mapping, header, layout = self._writing.map, self.header, self.layout
        number = header.next_item
        slot_at = layout.slot_at(key_hash % layout.slots)
        (old,) = _SLOT.unpack_from(mapping, slot_at)
        if not 0 < old <= number:
            old = 0
            header.used_slots += 1
        begin = header.begin_timestamp
        seconds = min(max((timestamp - begin) // 1000, 0), MAX_SECONDS) if begin > 0 else 0
        INDEX_ITEM.pack_into(mapping, layout.item_at(number), key_hash, offset, seconds, old)
        _SLOT.pack_into(mapping, slot_at, number)
        if number == 1:
            header.begin_offset = offset
            header.begin_timestamp = timestamp
        header.next_item = number + 1

    def _put_compiled(self, hashes: Numbers, offsets: Numbers, timestamps: Numbers) -> None:
        assert self._writing is not None
        header, slots = self.header, self.layout.slots
        first, begin = header.next_item, header.begin_timestamp
        header.used_slots += _put_items(self._writing.map, slots, first, begin, hashes, offsets, timestamps)
        header.next_item = first + len(hashes)

    def _put_many(self, hashes: Numbers, offsets: Numbers, timestamps: Numbers) -> None:
        assert self._writing is not None
        writing, header = self._writing, self.header
        first = header.next_item
        end = first + len(hashes)
        numbers = np.arange(first, end, dtype=np.int32)
        swapped = numbers.byteswap()
        at = hashes % self.layout.slots
        previous = writing.slots[at].byteswap()
        previous[(previous < 0) | (previous > numbers)] = 0
        writing.slots[at] = swapped  # of several with one slot the last one stays
        if (writing.slots[at] != swapped).any():
            _chain_within(at, numbers, previous)
        writing.hashes[first:end] = hashes
        writing.offsets[first:end] = offsets
        if header.begin_timestamp > 0:
            writing.seconds[first:end] = np.clip((timestamps - header.begin_timestamp) // 1000, 0, MAX_SECONDS)
        else:
            writing.seconds[first:end] = 0
        writing.previous[first:end] = previous
        header.used_slots += len(hashes) - int(np.count_nonzero(previous))
        header.next_item = end

    # the end

    def sync(self) -> None:
        """Everything put so far is on disk afterwards, and found there. Called by the flusher's thread."""
        try:
            self._disk.fdatasync(self.fd)
            self._disk.sync_directory(os.path.dirname(self.path))
        except OSError:
            if not self.is_removed:  # nothing of a removed file needs to last
                raise

    def stop_writing(self) -> None:
        """Give up the mapping."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def hold(self) -> None:
        """A reader begins: the descriptor stays open until its `release`."""
        self._readers += 1

    def release(self) -> None:
        """A reader ends."""
        self._readers -= 1
        if self._readers == 0 and self.is_removed:
            self._close_fd()

    def remove(self) -> None:
        """Unlink the file; a reader that holds it may finish. It may take long: a serving store has a helper do it."""
        self.is_removed = True
        self.close()
        self._disk.unlink(self.path)

    def close(self) -> None:
        """Give up mapping and, unless somebody reads a removed file, descriptor."""
        self.stop_writing()
        if not (self.is_removed and self._readers):
            self._close_fd()

    def _close_fd(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<IndexFile {self.path} items={self.header.next_item - 1}/{self.layout.items - 1}>"


def _seed(before: IndexHeader | None) -> IndexHeader:
    """What the header of a file says that has no keys yet."""
    seed = IndexHeader()
    if before is not None:
        seed.begin_timestamp = seed.end_timestamp = before.end_timestamp
        seed.begin_offset = seed.end_offset = before.end_offset
    return seed


def _chain_within(slots: Numbers, numbers: NDArray[np.int32], previous: NDArray[np.int32]) -> None:
    """Items of one batch that share a slot lead to one another, the later to the earlier."""
    order = np.argsort(slots, kind="stable")
    same = slots[order[1:]] == slots[order[:-1]]
    previous[order[1:][same]] = numbers[order[:-1][same]]
