"""The disk of a broker process, observed and disturbed from outside of the process.

    disk = ObservedDisk(directory)
    command = disk.command(MQBROKER)        # with a preloaded library (observed_disk.c)
    disk.slow(3.0)                          # each sync takes 3 s longer
    disk.fail()                             # each sync returns EIO
    disk.heal()
    synced = SyncedBytes(disk.journal)      # also after the process was killed
    synced.has(begin, end, at_ns)           # whether these bytes of the log were on the disk at that time

A byte is on the disk once a sync that began after its last write has ended. The library sees the calls of the process,
so a broker cannot acknowledge a sync that did not happen without this being found. Times are CLOCK_MONOTONIC, which all
processes of a machine share.

A failing sync does not reach the kernel: the bytes stay dirty, and the next sync that succeeds writes them.
"""

import shutil
import struct
import subprocess
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("observed_disk.c")
ENTRY: Final = struct.Struct("<6q")
WRITE: Final = 1
NEVER: Final = 1 << 62
PAGE_BYTES: Final = 1 << 14


def can_observe() -> bool:
    """Return whether the library can be built here."""
    return shutil.which("gcc") is not None


def build_library(directory: Path) -> Path:
    """Return the compiled library."""
    library = directory / "observed_disk.so"
    command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


class ObservedDisk:
    """`directory` has the journal and the orders for the library."""

    def __init__(self, directory: Path, library: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._library = library

    def __repr__(self) -> str:
        return f"<ObservedDisk {self._directory}>"

    @property
    def journal(self) -> Path:
        """Return the file of all writes and syncs."""
        return self._directory / "journal"

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs with the library, in the same process."""
        return ["env", f"LD_PRELOAD={self._library}", f"OBSERVED_DISK={self._directory}", *command]

    def slow(self, seconds: float) -> None:
        """Make each sync that begins from now on take longer."""
        self._order(f"slow {int(seconds * 1000)}")

    def fail(self) -> None:
        """Make each sync that begins from now on fail with EIO."""
        self._order("fail")

    def fail_log(self) -> None:
        """Make each sync of a segment of the log that begins from now on fail with EIO."""
        self._order("fail-log")

    def heal(self) -> None:
        """Disturb no further sync."""
        self._order("")

    def _order(self, text: str) -> None:
        new = self._directory / "order.new"
        new.write_text(text)
        new.rename(self._directory / "order")


class Write(NamedTuple):
    """A write of bytes [begin, end) of the log; `synced_ns` is when a sync of them had ended."""

    begin: int
    end: int
    written_ns: int
    synced_ns: int


class SyncedBytes:
    """What one node has written and synced, from its journal."""

    def __init__(self, journal: Path) -> None:
        self.syncs = 0
        self._by_page: defaultdict[int, list[Write]] = defaultdict(list)
        for write in self._writes(journal):
            for page in range(write.begin // PAGE_BYTES, (write.end - 1) // PAGE_BYTES + 1):
                self._by_page[page].append(write)
        for writes in self._by_page.values():
            writes.sort(key=attrgetter("written_ns"))

    def __repr__(self) -> str:
        return f"<SyncedBytes syncs={self.syncs} pages={len(self._by_page)}>"

    def has(self, begin: int, end: int, at_ns: int) -> bool:
        """Return whether the last writes of all these bytes before `at_ns` were synced by then."""
        return all(
            self._page_has(page, max(begin, page * PAGE_BYTES), min(end, (page + 1) * PAGE_BYTES), at_ns)
            for page in range(begin // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)
        )

    def _page_has(self, page: int, begin: int, end: int, at_ns: int) -> bool:
        writes = self._by_page.get(page, [])
        count = bisect_right(writes, at_ns, key=attrgetter("written_ns"))
        missing = [(begin, end)]
        for write in reversed(writes[:count]):
            rest = [part for wanted in missing for part in _without(wanted, write)]
            if rest != missing and write.synced_ns > at_ns:
                return False
            missing = rest
            if not missing:
                return True
        return False

    def _writes(self, journal: Path) -> Iterator[Write]:
        """Yield all writes. A sync covers those of its segment that had ended when it began."""
        data = journal.read_bytes() if journal.exists() else b""
        entries = sorted(ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]), key=lambda entry: entry[2])
        dirty: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for kind, begin_ns, end_ns, segment, at, size in entries:
            if kind == WRITE:
                dirty[segment].append((segment + at, segment + at + size, end_ns))
                continue
            self.syncs += 1
            later = []
            for begin, end, written_ns in dirty[segment]:
                if written_ns <= begin_ns:
                    yield Write(begin, end, written_ns, end_ns)
                else:
                    later.append((begin, end, written_ns))
            dirty[segment] = later
        for writes in dirty.values():
            for begin, end, written_ns in writes:
                yield Write(begin, end, written_ns, NEVER)


def _without(part: tuple[int, int], write: Write) -> Iterator[tuple[int, int]]:
    """Yield what a write leaves of a range."""
    begin, end = part
    if write.end <= begin or end <= write.begin:
        yield part
        return
    if begin < write.begin:
        yield begin, write.begin
    if write.end < end:
        yield write.end, end
