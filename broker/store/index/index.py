"""The index: which messages have a key, in a row of index files, oldest first; only the newest is written to.

Keys gather in memory, UNIQ_KEY of a message first, then the pieces of its KEYS, and are put when there are 1,024, or
when somebody asks, or when a step of the store (ten a second) finds that none were put since the last one. To put few
takes nearly as long as to put many; done forty times a second it was half of what one lone send in a hundred waited
for. And it is done behind the turn that brought them, when its answers have left: then who sends one by one, or every
millisecond, has to wait least. A key never waits for a disk that the log would not have to wait for: files are reserved
before they are stored into. The rest of a message's keys goes to the next file when one is full.

A message comes once: what lies before the newest message that is in (`_newest`), or is that message, adds only the
keys that are not in yet. So dispatching twice changes nothing, and a recovery goes on exactly where the files end.

Full files are handed to the flusher (`take_full`); once they are synced the checkpoint may name the end of the newest.
Which files a start trusts: after a clean stop all, else those the checkpoint speaks of, since of the others any sector
may be missing. What they lack comes from the log again (broker.store.index.builder).

A file that cannot be made, or has no room on the disk, is tried again every second; after three failures in a row the
store refuses messages until one attempt succeeds. Nothing is lost meanwhile: keys wait in memory, and what goes beyond
that is in the log.

Source: docs/formats.md, "IndexFile", "Dispatch".
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

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import LostBytesError
from skylarkmq.broker.store.index.entries import Indexed, IndexEntries
from skylarkmq.broker.store.index.file import RESERVED_ITEMS, IndexFile
from skylarkmq.broker.store.index.preallocation import IndexAhead
from skylarkmq.broker.store.index.search import Read, Steps, Wanted, search
from skylarkmq.broker.store.io_thread import Helper
from skylarkmq.broker.store.running_flags import RunningFlag, RunningFlags
from skylarkmq.protocol.disk import INDEX_DIRECTORY, IndexLayout, parse_index_file_name

log = logging.getLogger(__name__)

BATCH_KEYS: Final = 1_024
_PUT_AT_ONCE: Final = 8_192
_MOST_AWAITING: Final = 1 << 16  # keys, while their file is being made
_RETRY_MS: Final = 1_000
_FAILURES_TO_REFUSE: Final = 3
_ALL: Final = 1 << 30


class IndexStatistics(msgspec.Struct, frozen=True):
    """`keys` put since the start, `waiting` in memory; `end_offset`: of the newest message; `failures` in a row."""

    files: int
    keys: int
    waiting: int
    end_offset: int
    failures: int


class Index:
    """All index files of a store. Only the event loop's thread comes in here."""

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
        self._full: list[IndexFile] = []  # that no flusher has taken yet
        self._ahead: IndexAhead | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Handle | None = None  # in which what has gathered is put
        self._put_before = 0  # the last step
        self._entries = IndexEntries()
        self._newest = -1
        self._newest_keys = 0  # how many keys of that message are in
        self._failures = 0
        self._next_attempt_ms = 0
        self._put = 0
        self.on_lost: Callable[[], None] = self.forget_waiting  # the newest file is gone: what it had has to come again

    # life

    def load(self, *, trusted_to: int | None) -> bool:
        """Open the files of a clean stop, or (`trusted_to`, ms) those that the checkpoint's index time covers; returns
        whether files were removed.

        The first file that is not to be trusted goes, with all behind it: items must stay in the order of the log.
        After a crash all files are synced again: the checkpoint may be older than a rebuild by a process that was
        killed before it synced its files.
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
        """Open one more file; why it cannot be used, or an empty text."""
        length = os.path.getsize(path)
        if length != self._layout.size:
            return f"{length} bytes, the settings say {self._layout.size}"
        file = IndexFile.open(path, self._layout, self._disk)
        before = self.files[-1] if self.files else None
        end = file.header.end_timestamp
        reason = ""
        if not file.is_sound:
            reason = "damaged or empty"
        elif before is not None and file.header.begin_offset < before.header.end_offset:
            reason = "begins before the one before it ends"
        elif trusted_to is not None and not (file.is_full and 0 < end <= trusted_to):  # 0: a head that was lost
            reason = "not known to be on disk whole"
        elif trusted_to is not None and before is not None and before.header.end_timestamp == trusted_to:
            reason = "ends in the same millisecond as one that is known to be on disk"
        if reason:
            file.close()
        else:
            self.files.append(file)
        return reason

    def _find_newest(self) -> None:
        """The newest message of the files, and how many of its keys they have."""
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
        """Where the newest message begins that is in the files; -1 for none. It may lack some of its keys."""
        return self._newest

    def last_hash(self) -> int:
        """The hash of the last key in the files."""
        file = self.files[-1]
        return file.item(file.header.next_item - 1)[0]

    def drop_newest(self) -> None:
        """Remove the newest file: it does not agree with the log."""
        file = self.files.pop()
        if file in self._full:
            self._full.remove(file)
        log.warning("index file removed, to be rebuilt path=%s end_offset=%d", file.path, file.header.end_offset)
        file.remove()
        self._find_newest()

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Put keys behind the turn that brings them; without a loop at once, and at every `step`."""
        self._loop = loop

    def make_ahead(self, helper: Helper) -> None:
        """Have `helper` make the next file before it is needed, from now on."""
        self._ahead = IndexAhead(os.path.dirname(self._directory), self._layout, RESERVED_ITEMS, self._disk, helper)
        self._prepare()

    def _prepare(self) -> None:
        """Have the next file made once the last one is half full."""
        items = self.files[-1].header.next_item if self.files else self._layout.items
        if self._ahead is not None and items > self._layout.items // 2:
            self._ahead.prepare()

    def close(self) -> None:
        """Close every file; keys that were not put are lost to the files, not to the log."""
        if self._turn is not None:
            self._turn.cancel()
        self._turn = self._loop = None
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        for file in self.files:
            file.close()
        self.files.clear()
        self._full.clear()

    # adding

    def add(self, messages: Sequence[Indexed]) -> None:
        """Take the keys of messages, given in log order."""
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
        """Put what has gathered into the files, or find out that this is impossible at present. Not `at_once`: unless
        the file that they go to is just being made."""
        if self._failures and self._steady_ms() < self._next_attempt_ms:
            return
        if not at_once and self._awaits_file():
            return
        try:
            if self._failures:
                self._file_with_room().make_room()
            while len(self._entries):
                self._put_some()
        except LostBytesError as problem:
            log.error("index file lost, its keys are added again from the log error=%s", problem)
            self.drop_newest()
            self.on_lost()
        except OSError as problem:
            self._failures += 1
            self._next_attempt_ms = self._steady_ms() + _RETRY_MS
            log.error("index not written failures=%d waiting=%d error=%s", self._failures, len(self._entries), problem)
            if self._failures >= _FAILURES_TO_REFUSE:
                self._flags.set(RunningFlag.INDEX_ERROR, problem)
        else:
            self._failures = 0
            self._flags.clear(RunningFlag.INDEX_ERROR)

    def _awaits_file(self) -> bool:
        is_making = self._ahead is not None and self._ahead.is_making
        return is_making and (not self.files or self.files[-1].is_full) and len(self._entries) < _MOST_AWAITING

    def _put_some(self) -> None:
        file = self._file_with_room()
        count = file.put(self._entries.first(_PUT_AT_ONCE))
        self._entries.drop(count)
        self._put += count
        if file.is_full:
            file.stop_writing()
            self._full.append(file)
        self._prepare()

    def _file_with_room(self) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        self._disk.make_directory_unsynced(self._directory)
        before = last.header if last is not None else None
        path = f"{self._directory}/{self._next_name()}"
        ahead = self._ahead.take(path) if self._ahead is not None else None
        if ahead is None:
            file = IndexFile.create(path, self._layout, before, self._disk)
        else:
            file = IndexFile.of_ahead(path, self._layout, before, ahead, self._disk)
        self.files.append(file)
        log.info("index file made path=%s", file.path)
        return file

    def _next_name(self) -> str:
        """The local time, and behind the name before, whatever the clock did."""
        now_ms = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        if not self.files:
            return name
        return max(name, f"{int(os.path.basename(self.files[-1].path)) + 1:017d}")

    def step(self) -> None:
        """Put what has waited for company in vain, and after a failure find out whether that is possible again."""
        is_late = self._put == self._put_before or self._loop is None
        if self._failures or (is_late and len(self._entries)):
            self.put_waiting(at_once=False)
        self._put_before = self._put

    # durability

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to put was in vain."""
        return self._failures > 0

    @property
    def waiting(self) -> int:
        """Keys that are not in the files yet."""
        return len(self._entries)

    def forget_waiting(self) -> None:
        """Take back what was added since the files were written to: it will be added again."""
        self._entries.clear()
        self._find_newest()

    @property
    def full_timestamp(self) -> int:
        """End (ms) of the newest full file, 0 without one: what a checkpoint may say when all of them are synced."""
        return max((file.header.end_timestamp for file in self.files if file.is_full), default=0)

    def take_full(self, durable: int) -> list[IndexFile]:
        """The full files that nobody has taken to be synced yet, oldest first.

        Only those whose messages lie below byte `durable` of the log: a file that outlives its messages tells lies.
        """
        full = [file for file in self._full if file.header.end_offset < durable]
        del self._full[: len(full)]
        return full

    def take_all(self, durable: int = sys.maxsize) -> list[IndexFile]:
        """What a stop must sync: the files that this process wrote to. `durable` as above."""
        self.put_waiting()
        current = [file for file in self.files[-1:] if not file.is_full]
        return [*self.take_full(durable), *current]

    def take_before(self, physical_offset: int) -> list[IndexFile]:
        """Files of which the log has no message any more, but never the last; they belong to the caller, who removes
        them."""
        taken: list[IndexFile] = []
        while len(self.files) > 1 and self.files[0].header.end_offset < physical_offset:
            file = self.files.pop(0)
            file.is_removed = True
            taken.append(file)
        return taken

    # asking

    def search(self, wanted: Wanted, read: Read) -> Steps[list[int]]:
        """Physical offsets of what is wanted, newest first."""
        self.put_waiting()
        return search(list(self.files), wanted, read)

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time (ms) and physical offset of the newest message that has a key; zeros without one."""
        header = self.files[-1].header if self.files else None
        return (0, 0) if header is None else (header.end_timestamp, header.end_offset)

    def statistics(self) -> IndexStatistics:
        """Counts since the start."""
        return IndexStatistics(len(self.files), self._put, len(self._entries), self._newest, self._failures)

    def __repr__(self) -> str:
        return f"<Index files={len(self.files)} waiting={len(self._entries)}>"


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
