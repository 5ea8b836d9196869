"""Segments made ahead of need, by a thread of its own.

Reserving a gigabyte and syncing a directory take milliseconds that no send should wait for. The log asks for its next
two segments early; `take` then finds one ready, or waits for it if it is being made, or makes it on the spot if nobody
asked. The thread only makes system calls, through the same `Disk` as everyone.

A segment is reserved (fallocated), so that a full disk shows here. Under SYNC_FLUSH it is also *written beforehand*,
zeros from end to end: syncing bytes that were on disk before is cheaper than turning reserved blocks into written ones.
But the disk is the same for both, and a log that writes as fast as it can loses more by the zeros than it gains by
them (tests/bench/bench_sync.py). So zeros are written in pieces, each synced at once, and give way: full speed while
nobody appends, a piece every 20 ms beside a log that moves, nothing beside one in a hurry; under SYNC_FLUSH, where
somebody waits for each sync, every log that moves is. A segment that is needed before it is done is handed out as far
as it has come; the rest of it is reserved only.

Source: docs/formats.md, "Mapped files".
"""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, Protocol

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.log.mapped_file import MappedFile

log = logging.getLogger(__name__)

WAIT_S: Final = 5.0  # the longest that a roll waits for a segment under way; RocketMQ's figure
_ZEROS: Final = bytes(256 << 10)
_GIVE_WAY_S: Final = 0.02
HURRY_BYTES: Final = 320 << 10  # appended within that time: 16 MiB/s


class SegmentKind(Protocol):
    """What a new segment is besides its file: with a buffer, locked in memory, or nothing special."""

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """The segment over a new file."""

    def close(self) -> None:
        """Nothing is appended any more."""


class PlainSegments:
    """Files that are written to where they are."""

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """The segment over a new file."""
        return MappedFile(path, start, size, fd, disk)

    def close(self) -> None:
        """There is nothing to give back."""


class _Request:
    """A file to be made; `wanted` once somebody waits for it."""

    __slots__ = ("made", "path", "size", "wanted")

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.made: Future[int] = Future()
        self.wanted = threading.Event()


class Allocator:
    """Makes files on request, `path` is the key of a request; and segments of some kind over them.

    `piece_bytes`: how much is written beforehand between two syncs, 0: nothing is. `appended`: where the log ends;
    it is in a hurry if it has grown by `hurry_bytes` within 20 ms.
    """

    def __init__(
        self,
        disk: Disk,
        kind: SegmentKind | None = None,
        piece_bytes: int = 0,
        appended: Callable[[], int] = lambda: 0,
        hurry_bytes: int = HURRY_BYTES,
    ) -> None:
        self._kind = kind or PlainSegments()
        self.piece_bytes = piece_bytes
        self.appended = appended
        self._hurry_bytes = hurry_bytes
        self._disk = disk
        self._waiting: SimpleQueue[_Request | None] = SimpleQueue()
        self._requests: dict[str, _Request] = {}  # not taken yet
        self._thread: threading.Thread | None = None

    def request(self, path: str, size: int) -> None:
        """Have `path` made in the background; asking twice is asking once."""
        if path in self._requests:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="skylark-allocator", daemon=True)
            self._thread.start()
        request = _Request(path, size)
        self._requests[path] = request
        self._waiting.put(request)

    def segment(self, path: str, start: int, size: int) -> MappedFile:
        """The segment that begins at `start` of its log, over a file of `take`. OSError as there."""
        return self._kind.segment(path, start, size, self.take(path, size), self._disk)

    def take(self, path: str, size: int) -> int:
        """The descriptor of `path`; the caller owns it. OSError (TimeoutError after 5 s) when there is none."""
        request = self._requests.pop(path, None)
        if request is not None:
            request.wanted.set()
            try:
                return request.made.result(timeout=WAIT_S)
            except TimeoutError:
                self._requests[path] = request  # it may still arrive: the next roll takes it then
                raise
            except OSError as problem:
                log.info("segment tried again path=%s error=%s", path, problem)
        request = _Request(path, size)
        request.wanted.set()
        return self._create(request)

    def is_made(self, path: str, size: int) -> bool:
        """Whether `path` may be taken without waiting; if it could not be made, it is asked for again."""
        request = self._requests.get(path)
        if request is not None and request.made.done() and request.made.exception() is not None:
            del self._requests[path]
            request = None
        if request is None:
            self.request(path, size)
            return False
        return request.made.done()

    def close(self) -> None:
        """Stop the thread; what was made and never taken is removed."""
        self._kind.close()
        for request in self._requests.values():
            request.wanted.set()  # not worth writing any more
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        made = [request for request in self._requests.values() if request.made.done() and not request.made.exception()]
        self._requests.clear()
        for request in made:
            os.close(request.made.result())
        try:
            for request in reversed(made):  # the last first: a cut in between must leave no gap
                self._disk.unlink(request.path)
        except OSError as problem:
            log.warning("segment made ahead not removed path=%s error=%s", request.path, problem)

    def _run(self) -> None:
        while (request := self._waiting.get()) is not None:
            try:
                request.made.set_result(self._create(request))
            except OSError as problem:
                log.warning("segment not made path=%s error=%s", request.path, problem)
                request.made.set_exception(problem)

    def _create(self, request: _Request) -> int:
        self._disk.make_directory(os.path.dirname(request.path))
        if not self.piece_bytes:
            return self._disk.create(request.path, request.size)
        return self._disk.create(request.path, request.size, lambda fd: self._write(fd, request))

    # written beforehand

    def _write(self, fd: int, request: _Request) -> None:
        """Zeros from the beginning, until somebody waits for the file."""
        appended = self.appended()
        for at in range(0, request.size, len(_ZEROS)):
            if at and at % self.piece_bytes < len(_ZEROS):
                self._disk.fdatasync(fd)
                appended = self._give_way(request, appended)
            if request.wanted.is_set():
                log.info("segment needed before it was written path=%s bytes=%d", request.path, at)
                return
            self._disk.pwrite(fd, _ZEROS[: request.size - at], at)

    def _give_way(self, request: _Request, before: int) -> int:
        """Wait while the log, which was at `before` a piece ago, is in a hurry; returns where it is now."""
        now = self.appended()
        while now != before and not request.wanted.wait(_GIVE_WAY_S):
            before, now = now, self.appended()
            if now - before < self._hurry_bytes:
                break
        return now

    def __repr__(self) -> str:
        return f"<Allocator ready={len(self._requests)}>"
