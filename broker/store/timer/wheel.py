"""The timer wheel: for each time step the chain of what comes due then, by its ends in the timer log.

The wheel is kept in memory, in pages of 128 slots, and only those that hold something to come. Changed pages are lent
out (`take_changed`) and written by the flusher behind the log units that they point to: a thousand may have changed in
a second, so each is copied only when it changes again. What stands in the file of a time that is over, or of another
turn of the wheel, is told by the slot's own time and counts for nothing.

Source: docs/formats.md, "Timer files".
"""

import heapq
import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.timer.flush_round import WriteRefused
from skylarkmq.protocol.timers import NO_POSITION, SLOT, SLOT_SIZE, SLOTS

PAGE_SLOTS: Final = 128
PAGE_BYTES: Final = PAGE_SLOTS * SLOT_SIZE


class Slot(NamedTuple):
    """The chain of one time: positions in the timer log, and how many messages it counts (deletions count -1)."""

    first: int = NO_POSITION
    last: int = NO_POSITION
    messages: int = 0


EMPTY: Final = Slot()


class WheelWrite:
    """Pages on their way to disk; nobody changes them any more."""

    def __init__(self, path: str, pages: Mapping[int, bytearray], disk: Disk) -> None:
        self._path = path
        self.pages = pages
        self._disk = disk

    def sync(self) -> None:
        """Write and sync them. Called by the flusher's thread. WriteRefused: they are to be written again."""
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
    """The wheel of one store, of so many `slots`; times in Unix ms, each a multiple of `precision_ms`."""

    def __init__(self, path: str, precision_ms: int, disk: Disk, slots: int = SLOTS) -> None:
        self.path = path
        self._precision_ms = precision_ms
        self._disk = disk
        self._slots = slots
        self._pages: dict[int, bytearray] = {}
        self._changed: set[int] = set()
        self._lent: set[int] = set()  # pages that are being written, or were
        self._times: list[int] = []  # a heap: the numbers of slots that hold something
        self.waiting = 0
        """The counts of all slots together."""

    def __repr__(self) -> str:
        return f"<TimerWheel slots={len(self._times)} waiting={self.waiting}>"

    # ------------------------------------------------------------------------------------------------ opening

    def load(self, from_ms: int) -> None:
        """Take what the file holds for `from_ms` and later; without a file there is nothing."""
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
        """Hold nothing."""
        self._pages.clear()
        self._changed.clear()
        self._lent.clear()
        self._times.clear()
        self.waiting = 0

    def make_file(self) -> None:
        """Have a file. OSError."""
        if not os.path.exists(self.path):
            os.close(self._disk.create_sparse(self.path, self._slots * SLOT_SIZE))

    # ------------------------------------------------------------------------------------------------ slots

    def slot(self, time_ms: int) -> Slot:
        """What comes due at a time."""
        time = time_ms // self._precision_ms
        page = self._pages.get(time % self._slots // PAGE_SLOTS)
        if page is None:
            return EMPTY
        stored, first, last, count, _ = SLOT.unpack_from(page, self._at(time))
        return Slot(first, last, count) if stored == time and last >= 0 else EMPTY

    def put(self, time_ms: int, slot: Slot) -> None:
        """What comes due at a time, from now on."""
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
        """The earliest time at which something comes due; None if nothing does."""
        return self._times[0] * self._precision_ms if self._times else None

    def pass_over(self, time_ms: int) -> None:
        """What came due at the earliest time is dealt with; it stays in the file until that is written again."""
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
        """Every time at which something comes due, in no order, with its slot."""
        for time in set(self._times):
            time_ms = time * self._precision_ms
            yield time_ms, self.slot(time_ms)

    # ------------------------------------------------------------------------------------------------ writing

    @property
    def is_changed(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._changed)

    def take_changed(self) -> WheelWrite:
        """What has changed since this was called last, as it is now."""
        pages = {number: self._pages[number] for number in sorted(self._changed)}
        self._lent |= self._changed
        self._changed.clear()
        return WheelWrite(self.path, pages, self._disk)

    def take_back(self, write: WheelWrite) -> None:
        """What was taken has not been written: it has changed still."""
        self._changed.update(number for number in write.pages if number in self._pages)


def _stored_pages(path: str) -> Iterator[tuple[int, bytes]]:
    """Pages of the file that were ever written, by number."""
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
