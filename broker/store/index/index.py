"""The index: the keys of messages, in a sequence of index files, oldest first. Only the newest file is written.

Keys are collected in memory: of each message UNIQ_KEY first, then the words of its KEYS. They are put into the file
when there are 1,024, before a search, or when a step of the store (ten a second) finds that no keys were put since the
last step. Putting a few keys takes nearly as long as putting many; with 40 puts a second it was half of the latency of
one single send in a hundred. The put runs after the event-loop iteration that brought the keys, when its responses are
written, because this delays producers least that have one message in flight or send every millisecond. A key never
waits for a disk for which the log would not have to wait: blocks are reserved before data is stored. If a file is full,
the remaining keys of a message go to the next one.

Each message is added once. Messages before the newest message in the files (`_newest`) add nothing, and that message
adds only the keys that are missing. So dispatching twice changes nothing, and recovery continues where the files end.

Full files go to the flusher (`take_full`). Once they are synced, the checkpoint may contain the end time of the newest.
After a clean shutdown, a start trusts all files. After a crash it trusts those that the checkpoint covers, because any
sector of the others may be missing. The log provides the missing entries (broker.store.index.builder).

If a file cannot be created, or the disk has no space for it, the attempt is repeated every second. After three
consecutive failures the store rejects messages until an attempt succeeds. Nothing is lost in the meantime: keys wait in
memory, and beyond the limit for these the log has them.

Source: docs/reference/disk.md, "IndexFile", "Dispatch".
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LostBytesError
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.index.entries import Indexed, IndexEntries
from skylarkmq.broker.store.index.file import RESERVED_ITEMS, IndexFile
from skylarkmq.broker.store.index.preallocation import IndexPreallocation
from skylarkmq.broker.store.index.search import Match, Read, SearchCriteria, Steps, search
from skylarkmq.broker.store.log.running_flags import RunningFlag, RunningFlags
from skylarkmq.protocol.disk import INDEX_DIRECTORY, IndexLayout, parse_index_file_name

log = logging.getLogger(__name__)

BATCH_KEYS: Final = 1_024
_PUT_AT_ONCE: Final = 8_192
_MOST_AWAITING: Final = 1 << 16  # keys that may wait for a file being created
_RETRY_MS: Final = 1_000
_FAILURES_TO_REFUSE: Final = 3
_ALL: Final = 1 << 30


class IndexStatistics(msgspec.Struct, frozen=True):
    """`keys` put since the start, `waiting` in memory; `end_offset` of the newest message; consecutive `failures`."""

    files: int
    keys: int
    waiting: int
    end_offset: int
    failures: int


class Index:
    """All index files of a store. Only the event loop's thread uses this class.

    Set by `IndexFeed`: `on_lost`, called when the newest file is lost, to add its keys again. The feed is made with the
    index, because it adds keys to it.
    """

    def __init__(
        self,
        root: Path,
        layout: IndexLayout,
        disk: Disk,
        now_ms: Callable[[], int],
        flags: RunningFlags,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self._directory = str(root / INDEX_DIRECTORY)
        self._layout = layout
        self._disk = disk
        self._now_ms = now_ms
        self._steady_ms = steady_ms or now_ms
        self._flags = flags
        self.files: list[IndexFile] = []
        self._full: list[IndexFile] = []  # not yet taken by the flusher
        self._preallocation: IndexPreallocation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Handle | None = None  # puts the collected keys
        self._put_before = 0  # the value of `_put` at the last step
        self._entries = IndexEntries()
        self._newest = -1
        self._newest_keys = 0  # the number of keys of that message in the files
        self._failures = 0
        self.failure: OSError | None = None  # of the last attempt to put
        self._next_attempt_ms = 0
        self._put = 0
        self.on_lost: Callable[[], None] = self.forget_waiting

    # load, start, close

    def load(self, *, trusted_to: int | None) -> bool:
        """Open the files of a clean shutdown or, with `trusted_to` (ms), those that the checkpoint's index time covers.

        Returns whether files were removed. The first untrusted file is removed with all after it, because the items
        must stay in log order. After a crash all files are synced again: the checkpoint may be older than a rebuild by
        a process that was killed before it synced its files.
        """
        is_cut = False
        names = sorted(name for name in _names_in(self._directory) if parse_index_file_name(name) is not None)
        for position, name in enumerate(names):
            path = f"{self._directory}/{name}"
            reason = self._open(path, trusted_to)
            if reason:
                for other in reversed(names[position:]):
                    self._disk.unlink(f"{self._directory}/{other}")
                log.warning(
                    "index files removed, to be rebuilt from=%s files=%d: %s", path, len(names[position:]), reason
                )
                is_cut = True
                break
        if trusted_to is not None:
            self._full += self.files
        self._find_newest()
        return is_cut

    def _open(self, path: str, trusted_to: int | None) -> str:
        """Open the next file. Returns the reason why it cannot be used, or an empty text."""
        length = os.path.getsize(path)
        if length != self._layout.size:
            return f"{length} bytes, the settings require {self._layout.size}"
        file = IndexFile.open(path, self._layout, self._disk)
        before = self.files[-1] if self.files else None
        end = file.header.end_timestamp
        reason = ""
        if not file.is_consistent:
            reason = "damaged or empty"
        elif before is not None and file.header.begin_offset < before.header.end_offset:
            reason = "begins before the end of the previous file"
        elif trusted_to is not None and not (file.is_full and 0 < end <= trusted_to):  # 0: a lost header
            reason = "possibly not synced completely"
        elif trusted_to is not None and before is not None and before.header.end_timestamp == trusted_to:
            reason = "ends in the same millisecond as a file that was synced"
        if reason:
            file.close()
        else:
            self.files.append(file)
        return reason

    def _find_newest(self) -> None:
        """Find the newest message of the files, and how many of its keys they contain."""
        self._newest, self._newest_keys = -1, 0
        if self.files:
            self._newest = self.files[-1].header.end_offset
        for file in reversed(self.files):
            number = file.header.next_item - 1
            while number and file.item(number)[1] == self._newest:
                self._newest_keys += 1
                number -= 1
            if number:
                return

    @property
    def newest(self) -> int:
        """Return the physical offset of the newest message in the files (keys of it may be missing); -1: none."""
        return self._newest

    def last_hash(self) -> int:
        """Return the hash of the last key in the files."""
        file = self.files[-1]
        return file.item(file.header.next_item - 1)[0]

    def drop_newest(self) -> None:
        """Remove the newest file, because it does not agree with the log."""
        file = self.files.pop()
        if file in self._full:
            self._full.remove(file)
        log.warning("index file removed, to be rebuilt path=%s end_offset=%d", file.path, file.header.end_offset)
        file.remove()
        self._find_newest()

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Put keys after the event-loop iteration that brings them; without a loop at once, and at every `step`."""
        self._loop = loop

    def preallocate_with(self, helper: Helper) -> None:
        """Have `helper` create each next file before it is needed."""
        root = os.path.dirname(self._directory)
        self._preallocation = IndexPreallocation(root, self._layout, RESERVED_ITEMS, self._disk, helper)
        self._prepare()

    def _prepare(self) -> None:
        """Have the next file created once the last one is half full."""
        items = self.files[-1].header.next_item if self.files else self._layout.items
        if self._preallocation is not None and items > self._layout.items // 2:
            self._preallocation.prepare()

    def close(self) -> None:
        """Close all files. Keys that still wait are lost to the files, not to the log."""
        if self._turn is not None:
            self._turn.cancel()
        self._turn = self._loop = None
        if self._preallocation is not None:
            self._preallocation.close()
            self._preallocation = None
        for file in self.files:
            file.close()
        self.files.clear()
        self._full.clear()

    # adding

    def add(self, messages: Sequence[Indexed]) -> None:
        """Collect the keys of messages, given in log order."""
        if not messages:
            return
        if messages[0].physical_offset <= self._newest:
            messages = [message for message in messages if message.physical_offset >= self._newest]
        if messages:
            self._entries.add(messages, self._newest_keys if messages[0].physical_offset == self._newest else 0)
            self._newest, self._newest_keys = messages[-1].physical_offset, _ALL
        if self._turn is not None or len(self._entries) < BATCH_KEYS:
            return
        if self._loop is None:
            self.put_waiting(at_once=False)
        else:
            self._turn = self._loop.call_soon(self._put_gathered)

    def _put_gathered(self) -> None:
        self._turn = None
        self.put_waiting(at_once=False)

    def put_waiting(self, *, at_once: bool = True) -> None:
        """Put the collected keys into the files, or register the failure.

        Without `at_once` nothing happens while the next file is being created."""
        if self._failures and self._steady_ms() < self._next_attempt_ms:
            return
        if not at_once and self._awaits_file():
            return
        try:
            if self._failures:
                self._writable_file().reserve()
            while len(self._entries):
                self._put_some()
        except LostBytesError as problem:
            log.error("index file lost, its keys are added again from the log error=%s", problem)
            self.drop_newest()
            self.on_lost()
        except OSError as problem:
            self._failures += 1
            self.failure = problem
            self._next_attempt_ms = self._steady_ms() + _RETRY_MS
            log.error("index not written failures=%d waiting=%d error=%s", self._failures, len(self._entries), problem)
            if self._failures >= _FAILURES_TO_REFUSE:
                self._flags.set(RunningFlag.INDEX_ERROR, problem)
        else:
            self._failures = 0
            self.failure = None
            self._flags.clear(RunningFlag.INDEX_ERROR)

    def _awaits_file(self) -> bool:
        is_making = self._preallocation is not None and self._preallocation.is_making
        return is_making and (not self.files or self.files[-1].is_full) and len(self._entries) < _MOST_AWAITING

    def _put_some(self) -> None:
        file = self._writable_file()
        count = file.put(self._entries.first(_PUT_AT_ONCE))
        self._entries.drop(count)
        self._put += count
        if file.is_full:
            file.stop_writing()
            self._full.append(file)
        self._prepare()

    def _writable_file(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        self._disk.make_directory_unsynced(self._directory)
        before = last.header if last is not None else None
        path = f"{self._directory}/{self._next_name()}"
        preallocated = self._preallocation.take(path) if self._preallocation is not None else None
        if preallocated is None:
            file = IndexFile.create(path, self._layout, before, self._disk)
        else:
            file = IndexFile.from_preallocated(path, self._layout, before, preallocated, self._disk)
        self.files.append(file)
        log.info("index file created path=%s", file.path)
        return file

    def _next_name(self) -> str:
        """Return a name from the local time, greater than the previous name even if the clock was set back."""
        now_ms = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        if not self.files:
            return name
        return max(name, f"{int(os.path.basename(self.files[-1].path)) + 1:017d}")

    def step(self) -> None:
        """Put keys that have waited since the last step; after a failure, try again."""
        is_late = self._put == self._put_before or self._loop is None
        if self._failures or (is_late and len(self._entries)):
            self.put_waiting(at_once=False)
        self._put_before = self._put

    # durability

    @property
    def is_failing(self) -> bool:
        """Return whether the last attempt to put failed."""
        return self._failures > 0

    @property
    def waiting(self) -> int:
        """Return the number of keys that are not in the files."""
        return len(self._entries)

    def forget_waiting(self) -> None:
        """Drop the keys that are not in the files: they will be added again."""
        self._entries.clear()
        self._find_newest()

    @property
    def full_timestamp(self) -> int:
        """Return the end (ms) of the newest full file, 0 without one: the checkpoint's index time after a sync."""
        return max((file.header.end_timestamp for file in self.files if file.is_full), default=0)

    def take_full(self, durable: int) -> list[IndexFile]:
        """Return the full files that were not yet taken for a sync, oldest first.

        Only those whose messages lie below byte `durable` of the log: a file must not outlive its messages.
        """
        full = [file for file in self._full if file.header.end_offset < durable]
        del self._full[: len(full)]
        return full

    def take_all(self, durable: int = sys.maxsize) -> list[IndexFile]:
        """Return the files that a shutdown must sync: those that this process wrote. `durable` as for `take_full`."""
        self.put_waiting()
        current = [file for file in self.files[-1:] if not file.is_full]
        return [*self.take_full(durable), *current]

    def take_before(self, physical_offset: int) -> list[IndexFile]:
        """Remove from the index the files whose messages the log no longer has, except for the last file.

        Returns them; the caller removes them from disk.
        """
        taken: list[IndexFile] = []
        while len(self.files) > 1 and self.files[0].header.end_offset < physical_offset:
            file = self.files.pop(0)
            file.is_removed = True
            taken.append(file)
        return taken

    # queries

    def search(self, criteria: SearchCriteria, read: Read, is_match: Match) -> Steps[list[int]]:
        """Return the physical offsets of matching messages, newest first."""
        self.put_waiting()
        return search(list(self.files), criteria, read, is_match)

    @property
    def last_update(self) -> tuple[int, int]:
        """Return store time (ms) and physical offset of the newest message that has a key; zeros without one."""
        header = self.files[-1].header if self.files else None
        return (0, 0) if header is None else (header.end_timestamp, header.end_offset)

    def statistics(self) -> IndexStatistics:
        """Return counts since the start."""
        return IndexStatistics(len(self.files), self._put, len(self._entries), self._newest, self._failures)

    def __repr__(self) -> str:
        return f"<Index files={len(self.files)} waiting={len(self._entries)}>"


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
