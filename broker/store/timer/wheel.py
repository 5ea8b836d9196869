"""The timer wheel: for each time step the chain of messages that are due then, given by its ends in the timer log.

The wheel is kept in memory, in pages of 128 slots; pages without pending messages are not kept. The flusher writes
changed pages (`take_changed`) after the log units that they refer to. A thousand pages may change in a second, so a
page is not copied when the flusher takes it, only when it changes again. The file may contain slots of past times, or
of another revolution of the wheel; the time in the slot identifies them, and they are ignored.

Source: docs/reference/disk.md, "Timer files".
"""

import heapq
import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.timer.flush_round import WriteRefused
from skylarkmq.protocol.timers import NO_POSITION, SLOT, SLOT_SIZE, SLOTS

PAGE_SLOTS: Final = 128
PAGE_BYTES: Final = PAGE_SLOTS * SLOT_SIZE


class Slot(NamedTuple):
    """The chain of one time: positions in the timer log, and a message count (a deletion counts -1)."""

    first: int = NO_POSITION
    last: int = NO_POSITION
    messages: int = 0


EMPTY: Final = Slot()


class WheelWrite:
    """Pages that the flusher writes; they do not change any more."""

    def __init__(self, path: str, pages: Mapping[int, bytearray], disk: Disk) -> None:
        self._path = path
        self.pages = pages
        self._disk = disk

    def sync(self) -> None:
        """Write and sync the pages. The flusher's thread calls this. Raises WriteRefused if a write failed."""
        if not self.pages and not os.path.exists(self._path):
            return
        fd = self._disk.open(self._path)
        try:
            for number, page in self.pages.items():
                try:
                    self._disk.pwrite(fd, page, number * PAGE_BYTES)
                except OSError as problem:
                    raise WriteRefused(problem) from problem
            self._disk.fdatasync(fd)
        finally:
            os.close(fd)


class TimerWheel:
    """The wheel of one store with `slots` slots. Times are Unix ms, multiples of `precision_ms`."""

    def __init__(self, path: str, precision_ms: int, disk: Disk, slots: int = SLOTS) -> None:
        self.path = path
        self._precision_ms = precision_ms
        self._disk = disk
        self._slots = slots
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._lent: set[int] = set()  # pages that `take_changed` returned and that have not changed since
        self._times: list[int] = []  # a heap of the numbers of non-empty slots
        self.waiting = 0
        """The sum of the counts of all slots."""

    def __repr__(self) -> str:
        return f"<TimerWheel slots={len(self._times)} waiting={self.waiting}>"

    # ------------------------------------------------------------------------------------------------ opening

    def load(self, from_ms: int) -> None:
        """Load the slots of `from_ms` and later; without a file the wheel is empty."""
        self.clear()
        begin = from_ms // self._precision_ms
        for number, data in _stored_pages(self.path):
            slots = [
                (at, time)
                for at, (time, _, last, _, _) in enumerate(SLOT.iter_unpack(data))
                if begin <= time < begin + self._slots and time % self._slots == number * PAGE_SLOTS + at and last >= 0
            ]
            if slots:
                page = self._pages[number] = bytearray(PAGE_BYTES)
                for at, time in slots:
                    page[at * SLOT_SIZE : (at + 1) * SLOT_SIZE] = data[at * SLOT_SIZE : (at + 1) * SLOT_SIZE]
                    self._times.append(time)
                    self.waiting += SLOT.unpack_from(data, at * SLOT_SIZE)[3]
        heapq.heapify(self._times)

    def clear(self) -> None:
        """Remove everything from memory."""
        self._pages.clear()
        self._changed.clear()
        self._lent.clear()
        self._times.clear()
        self.waiting = 0

    def make_file(self) -> None:
        """Create the file if it does not exist. Raises OSError."""
        if not os.path.exists(self.path):
            os.close(self._disk.create_sparse(self.path, self._slots * SLOT_SIZE))

    # ------------------------------------------------------------------------------------------------ slots

    def slot(self, time_ms: int) -> Slot:
        """Return the slot of a time."""
        time = time_ms // self._precision_ms
        page = self._pages.get(time % self._slots // PAGE_SLOTS)
        if page is None:
            return EMPTY
        stored, first, last, count, _ = SLOT.unpack_from(page, self._at(time))
        return Slot(first, last, count) if stored == time and last >= 0 else EMPTY

    def put(self, time_ms: int, slot: Slot) -> None:
        """Set the slot of a time."""
        time = time_ms // self._precision_ms
        before = self.slot(time_ms)
        if before is EMPTY:
            heapq.heappush(self._times, time)
        number = time % self._slots // PAGE_SLOTS
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE_BYTES)
            self._lent.discard(number)
        elif number in self._lent:
            page = self._pages[number] = page.copy()
            self._lent.discard(number)
        SLOT.pack_into(page, self._at(time), time, *slot, 0)
        self._changed.add(number)
        self.waiting += slot.messages - before.messages

    def _at(self, time: int) -> int:
        return time % self._slots % PAGE_SLOTS * SLOT_SIZE

    def first_ms(self) -> int | None:
        """Return the earliest time of a non-empty slot; None if all are empty."""
        return self._times[0] * self._precision_ms if self._times else None

    def remove_first(self, time_ms: int) -> None:
        """Remove the earliest slot, whose messages are delivered; the file keeps it until the page is written again."""
        time = time_ms // self._precision_ms
        if not self._times or self._times[0] != time:
            return
        self.waiting -= self.slot(time_ms).messages
        while self._times and self._times[0] == time:
            heapq.heappop(self._times)
        number = time % self._slots // PAGE_SLOTS
        is_last_of_page = not self._times or self._times[0] // PAGE_SLOTS != time // PAGE_SLOTS
        if is_last_of_page and number not in self._changed:
            self._pages.pop(number, None)

    def slots(self) -> Iterator[tuple[int, Slot]]:
        """Yield the time and the slot of all non-empty slots, in no order."""
        for time in set(self._times):
            time_ms = time * self._precision_ms
            yield time_ms, self.slot(time_ms)

    # ------------------------------------------------------------------------------------------------ writing

    @property
    def is_changed(self) -> bool:
        """Return whether there are pages to write."""
        return bool(self._changed)

    def take_changed(self) -> WheelWrite:
        """Return the pages that changed since the last call, as they are now."""
        pages = {number: self._pages[number] for number in sorted(self._changed)}
        self._lent |= self._changed
        self._changed.clear()
        return WheelWrite(self.path, pages, self._disk)

    def mark_changed(self, write: WheelWrite) -> None:
        """Mark the pages of a failed write as changed again."""
        self._changed.update(number for number in write.pages if number in self._pages)


def _stored_pages(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the pages of the file that are not all zeros, by number."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(fd).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:  # ENXIO: only holes from here on
                return
            end = os.lseek(fd, at, os.SEEK_HOLE)
            for number in range(at // PAGE_BYTES, -(-end // PAGE_BYTES)):
                data = os.pread(fd, PAGE_BYTES, number * PAGE_BYTES)
                if len(data) == PAGE_BYTES and any(data):
                    yield number, data
            at = max(end, at + 1)
    finally:
        os.close(fd)
