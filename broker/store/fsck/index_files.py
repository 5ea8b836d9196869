"""One index file on disk: its header, its chains, and its items in the order of the log.

Chains are checked without following them: an item's predecessor must be the item before it in the same slot, and a slot
must contain the newest of its items. So every chain descends and ends, and every item is in the chain of its hash.
Items are processed some hundred thousand at a time, with one number per slot.

Source: docs/reference/disk.md, "IndexFile".
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.broker.store.fsck.segments import written
from skylarkmq.protocol.disk import INDEX_DIRECTORY, INDEX_HEADER_SIZE, IndexHeader, IndexLayout

ITEM_DTYPE: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_BATCH: Final = 1 << 18

Items = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]


class IndexOnDisk:
    """An index file of the correct length. Items are numbered from 1."""

    def __init__(self, root: Path, name: str, layout: IndexLayout) -> None:
        self.name = f"{INDEX_DIRECTORY}/{name}"
        self.layout = layout
        self._path = root / INDEX_DIRECTORY / name
        with self._path.open("rb") as file:
            self.header = IndexHeader.decode(file.read(INDEX_HEADER_SIZE))
        self.count = min(self.header.next_item, layout.items) - 1
        item_bytes = layout.item_at(0)
        self._items = np.memmap(self._path, ITEM_DTYPE, "r", item_bytes, shape=(layout.items,))
        self._slots = np.memmap(self._path, ">i4", "r", INDEX_HEADER_SIZE, shape=(layout.slots,))
        self._order: Numbers | None = None  # item numbers in log order, if the file is not in that order
        self._taken = 1
        self.first_time: int | None = None  # store times of the first and last item's messages, once known
        self.last_time: int | None = None

    def items(self, begin: int, end: int) -> Items:
        """Return items [begin, end)."""
        return self._items[begin:end]

    def offset_of(self, item: int) -> int:
        """Return the byte at which an item begins."""
        return self.layout.item_at(item)

    def check(self, found: Findings, severity: Severity) -> None:
        """Check header, chains, and the zeros after the last item."""
        header = self.header
        if header.next_item > self.layout.items:
            what = f"the header counts {header.next_item - 1} items, the file has space for {self.layout.items - 1}"
            self._add(found, "count", severity, 36, what, "queries by key may find nothing in this file")
        newest = self._check_chains(found, severity)
        wrong = np.flatnonzero(np.asarray(self._slots) != newest)
        for slot in wrong.tolist():
            what = f"slot {slot} contains {self._slots[slot]}, the newest item of its chain is {newest[slot]}"
            self._add(found, "slot", severity, self.layout.slot_at(slot), what, "queries by key miss messages")
        used = int(np.count_nonzero(newest))
        if header.used_slots != used:
            what = f"the header counts {header.used_slots} slots in use, there are {used}"
            self._add(found, "used", Severity.WARNING, 32, what, "the number is not used")
        rest = written(str(self._path), self.offset_of(self.count + 1), self.layout.size)
        if rest is not None:
            what = f"{rest[1]} bytes after the last item, number {self.count}, are not zero"
            self._add(
                found, "rest", severity, rest[0], what, "items are missing from the count, or were partly rolled back"
            )

    def _check_chains(self, found: Findings, severity: Severity) -> npt.NDArray[np.int32]:
        """Check all chains. Return the newest item of each slot."""
        newest = np.zeros(self.layout.slots, np.int32)
        last_offset = -1
        for begin, items in self._pieces():
            offsets = items["offset"].astype(np.int64)
            if self._order is None and (offsets[0] < last_offset or np.any(offsets[1:] < offsets[:-1])):
                self._sort()
            last_offset = int(offsets[-1])
            self._check_previous(begin, items, newest, found, severity)
        return newest

    def _check_previous(
        self, begin: int, items: Items, newest: npt.NDArray[np.int32], found: Findings, severity: Severity
    ) -> None:
        hashes = items["hash"].astype(np.int64)
        slots = np.abs(hashes) % self.layout.slots
        order = np.argsort(slots, kind="stable")
        in_order = slots[order]
        is_first = np.ones(len(items), bool)
        is_first[1:] = in_order[1:] != in_order[:-1]
        previous = np.empty(len(items), np.int64)
        previous[order[1:]] = order[:-1] + begin
        firsts = order[is_first]
        previous[firsts] = newest[slots[firsts]]
        is_last = np.ones(len(items), bool)
        is_last[:-1] = is_first[1:]
        newest[in_order[is_last]] = order[is_last] + begin
        for number in np.flatnonzero((items["previous"] != previous) | (hashes < 0)).tolist():
            link = f"links to {items['previous'][number]}, expected {previous[number]}"
            what = f"item {begin + number} of hash {hashes[number]} {link}"
            follows = "queries by key miss messages, or never end"
            self._add(found, "chain", severity, self.offset_of(begin + number), what, follows)

    def _pieces(self) -> Iterator[tuple[int, Items]]:
        for begin in range(1, self.count + 1, _BATCH):
            yield begin, self.items(begin, min(begin + _BATCH, self.count + 1))

    def _sort(self) -> None:
        """Sort the item numbers by log offset, for a damaged file only."""
        self._order = np.argsort(self._items["offset"][1 : self.count + 1].astype(np.int64), kind="stable") + 1

    def take_up_to(self, physical_offset: int) -> tuple[Numbers, Items]:
        """Return numbers and items not yet taken whose record begins before this byte of the log."""
        begin = self._taken
        numbers = []
        while self._taken <= self.count:
            piece = self._numbers(self._taken, min(self._taken + _BATCH, self.count + 1))
            inside = int(np.searchsorted(self._items["offset"][piece].astype(np.int64), physical_offset, "left"))
            numbers.append(piece[:inside])
            self._taken += inside
            if inside < len(piece):
                break
        if self._taken == begin:
            return np.empty(0, np.int64), self._items[:0]
        taken = np.concatenate(numbers)
        return taken, self._items[taken]

    def _numbers(self, begin: int, end: int) -> Numbers:
        return np.arange(begin, end) if self._order is None else self._order[begin - 1 : end - 1]

    def _add(self, found: Findings, kind: str, severity: Severity, offset: int, what: str, follows: str) -> None:
        found.add(kind, Finding(severity, self.name, offset, what, follows))

    def __repr__(self) -> str:
        return f"<IndexOnDisk {self.name} items={self.count}>"
