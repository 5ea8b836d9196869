"""One index file: a hash table with chains, from `topic#key` to physical offsets.

A slot contains the number of the newest item of its chain, and each item the number of the previous one. Items are
numbered from 1 in the order of arrival and never change. Layout: protocol.disk.IndexLayout.

Only this kind of file is written through its mapping, because 2,048 keys go to as many positions. Blocks are reserved
before data is stored, for the slots at once and for the items in steps, so that a full disk raises OSError instead of
SIGBUS. The file being written is mapped until it is full; readers use the descriptor. `fdatasync` writes the changes of
the mapping and releases the GIL.

The compiled module or NumPy puts many keys in one call: it reads all old slot values, then writes all items and all new
slot values. If two keys of a batch share a slot, the slot does not contain the number of the first one afterwards; a
stable sort then builds their chain. A few keys are put one by one. Each method writes the same bytes as RocketMQ does:
the seconds of item 1 count from the begin time that the header has initially (the end of the previous file), and the
time of item 1 replaces that begin time afterwards.

Source: docs/reference/disk.md, "IndexFile".
"""

import mmap
import os
from struct import Struct
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from skylarkmq.broker.base import page_faults
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LostBytesError
from skylarkmq.broker.store.index.entries import Entries
from skylarkmq.broker.store.index.hashing import Numbers
from skylarkmq.broker.store.index.preallocation import Preallocated
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import INDEX_HEADER_SIZE, INDEX_ITEM, IndexHeader, IndexLayout

_compiled = compiled.load("index")
_put_items: Any = None if _compiled is None else _compiled.put_items

FEW_KEYS: Final = 24 if _compiled is None else 2  # for fewer keys a batch call costs more than it saves
MAX_SECONDS: Final = 2**31 - 1
RESERVED_ITEMS: Final = 1 << 19  # items whose blocks are reserved at a time: 10 MiB
_SLOT: Final = Struct(">i")
_ITEM_DTYPE: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])


class _Writing:
    """The mapping of the file being written, and NumPy's views of it."""

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
    """One file. `header` is its decoded first 40 bytes. Readers and the flusher use only `fd`."""

    __slots__ = ("_disk", "_readers", "_reserved", "_writing", "fd", "header", "is_removed", "layout", "path")

    def __init__(self, path: str, layout: IndexLayout, fd: int, header: IndexHeader, disk: Disk) -> None:
        self.path = path
        self.layout = layout
        self.fd = fd
        self.header = header
        self.is_removed = False
        self._disk = disk
        self._writing: _Writing | None = None
        self._reserved = 0  # items with a lower number have blocks
        self._readers = 0

    @classmethod
    def create(cls, path: str, layout: IndexLayout, before: IndexHeader | None, disk: Disk) -> Self:
        """Create a file after the one with header `before`. After an OSError there is no new file."""
        file = cls(path, layout, disk.create_sparse(path, layout.size), _initial_header(before), disk)
        return file._reserved_or_removed()

    @classmethod
    def from_preallocated(
        cls, path: str, layout: IndexLayout, before: IndexHeader | None, preallocated: Preallocated, disk: Disk
    ) -> Self:
        """Turn a preallocated file into the file after the one with header `before`."""
        file = cls(path, layout, preallocated.fd, _initial_header(before), disk)
        file._reserved = preallocated.items
        return file._reserved_or_removed()

    def _reserved_or_removed(self) -> Self:
        """Reserve blocks for this new file; remove it on OSError."""
        try:
            self.reserve()
        except OSError:
            self.close()
            self._disk.unlink(self.path)
            raise
        return self

    @classmethod
    def open(cls, path: str, layout: IndexLayout, disk: Disk) -> Self:
        """Open an existing file. The caller has checked its length."""
        fd = disk.open(path)
        return cls(path, layout, fd, IndexHeader.decode(os.pread(fd, INDEX_HEADER_SIZE, 0)), disk)

    @property
    def is_full(self) -> bool:
        """Return whether the next key needs another file."""
        return self.header.next_item >= self.layout.items

    @property
    def is_consistent(self) -> bool:
        """Return whether the header is valid and agrees with the first and the last item.

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
        """Return key hash, physical offset, seconds, and previous item of one item."""
        found: tuple[int, int, int, int] = INDEX_ITEM.unpack(
            os.pread(self.fd, INDEX_ITEM.size, self.layout.item_at(number))
        )
        return found

    # writing

    def reserve(self, count: int = 1) -> None:
        """Reserve blocks for `count` more items, and map the file. Raises OSError if the disk is full."""
        if self.header.next_item + count > self._reserved:
            self._reserve_items(self.header.next_item + count)
        if self._writing is None:
            os.posix_fadvise(self.fd, 0, self.layout.item_at(0), os.POSIX_FADV_WILLNEED)
            self._writing = _Writing(self._disk.map(self.fd, self.layout.size), self.layout)

    def _reserve_items(self, items: int) -> None:
        wanted = min(items - items % RESERVED_ITEMS + RESERVED_ITEMS, self.layout.items)
        self._disk.reserve(self.fd, self.layout.item_at(wanted))
        self._reserved = wanted

    def put(self, entries: Entries) -> int:
        """Put as many of the entries as fit. Returns how many.

        Raises OSError if none was put; LostBytesError if the file was truncated or its disk fails, and the file is
        unusable."""
        count = min(len(entries.hashes), self.layout.items - self.header.next_item)
        if os.lseek(self.fd, 0, os.SEEK_END) < self.layout.size:
            raise LostBytesError(self.path, os.lseek(self.fd, 0, os.SEEK_END), "file truncated")
        self.reserve(count)
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
        writing.slots[at] = swapped  # of several items with the same slot the last one stays
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
        """Sync everything put so far, and the directory entry. The flusher's thread calls this."""
        try:
            self._disk.fdatasync(self.fd)
            self._disk.sync_directory(os.path.dirname(self.path))
        except OSError:
            if not self.is_removed:  # a removed file needs no sync
                raise

    def stop_writing(self) -> None:
        """Release the mapping."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def hold(self) -> None:
        """Keep the descriptor open until the reader calls `release`."""
        self._readers += 1

    def release(self) -> None:
        """End a reader's `hold`; close the descriptor of a removed file after the last one."""
        self._readers -= 1
        if self._readers == 0 and self.is_removed:
            self._close_fd()

    def remove(self) -> None:
        """Unlink the file; a reader that holds it may finish. This may take long, so a helper thread calls it."""
        self.is_removed = True
        self.close()
        self._disk.unlink(self.path)

    def close(self) -> None:
        """Release the mapping and, unless a removed file still has readers, the descriptor."""
        self.stop_writing()
        if not (self.is_removed and self._readers):
            self._close_fd()

    def _close_fd(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<IndexFile {self.path} items={self.header.next_item - 1}/{self.layout.items - 1}>"


def _initial_header(before: IndexHeader | None) -> IndexHeader:
    """Return the header of a file without keys."""
    seed = IndexHeader()
    if before is not None:
        seed.begin_timestamp = seed.end_timestamp = before.end_timestamp
        seed.begin_offset = seed.end_offset = before.end_offset
    return seed


def _chain_within(slots: Numbers, numbers: NDArray[np.int32], previous: NDArray[np.int32]) -> None:
    """Link items of one batch that share a slot: the later item to the earlier one."""
    order = np.argsort(slots, kind="stable")
    same = slots[order[1:]] == slots[order[:-1]]
    previous[order[1:][same]] = numbers[order[:-1][same]]
