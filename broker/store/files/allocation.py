"""The allocator: creates segments ahead of need, in a thread of its own.

Reserving a gigabyte and syncing a directory take milliseconds, and no send should wait for them. The log requests its
next two segments early. `take` returns the file if it is ready, waits for it if it is being created, and creates it
at once if it was never requested. The thread only makes system calls, through the same `Disk` as the rest of the store.

A segment is reserved (fallocated), so that a full disk fails here. Under SYNC_FLUSH it is also *zero-filled* from end
to end: syncing blocks that were written before is cheaper than converting reserved blocks to written ones. But a log
that writes at full speed shares the disk with the zero fill and loses more than it gains (tests/bench/bench_sync.py).
So zeros are written in pieces, each synced at once, and the fill yields to appends: full speed while the log stands
still, one piece every 20 ms while it grows, none while it is busy. Under SYNC_FLUSH, where producers wait for each
sync, a log that grows at all is busy. A segment that is needed before its fill ends is handed out as it is; the rest of
it is only reserved.

Source: docs/reference/disk.md, "Mapped files".
"""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, Protocol

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import SegmentNotReadyError
from skylarkmq.broker.store.files.mapped_file import MappedFile

log = logging.getLogger(__name__)

WAIT_S: Final = 5.0  # the longest wait for a segment that is being created; RocketMQ's value
_ZEROS: Final = bytes(256 << 10)
_YIELD_S: Final = 0.02
BUSY_BYTES: Final = 320 << 10  # appended within 20 ms: 16 MiB/s


class SegmentFactory(Protocol):
    """Builds a segment over a new file: with a buffer, locked in memory, or plain."""

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """Return the segment over a new file."""

    def close(self) -> None:
        """Release resources. No append follows."""


class DirectSegmentFactory:
    """Builds segments that are written directly."""

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """Return the segment over a new file."""
        return MappedFile(path, start, size, fd, disk)

    def close(self) -> None:
        """Do nothing: there are no resources."""


class _Request:
    """A file to be created. `wanted` is set once a caller waits for the file."""

    __slots__ = ("made", "path", "size", "wanted")

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.made: Future[int] = Future()
        self.wanted = threading.Event()


class Allocator:
    """Creates files on request, in a thread, and segments over them. The path identifies a request.

    `piece_bytes`: bytes of the zero fill between two syncs; 0 disables it. `appended`: returns the end of the log. The
    log is busy if it has grown by `busy_bytes` within 20 ms.
    """

    def __init__(
        self,
        disk: Disk,
        kind: SegmentFactory | None = None,
        piece_bytes: int = 0,
        appended: Callable[[], int] = lambda: 0,
        busy_bytes: int = BUSY_BYTES,
    ) -> None:
        self._kind = kind or DirectSegmentFactory()
        self.piece_bytes = piece_bytes
        self.appended = appended
        self._busy_bytes = busy_bytes
        self._disk = disk
        self._waiting: SimpleQueue[_Request | None] = SimpleQueue()
        self._requests: dict[str, _Request] = {}  # not taken yet
        self._thread: threading.Thread | None = None

    def request(self, path: str, size: int) -> None:
        """Create `path` in the background. A repeated request has no effect."""
        if path in self._requests:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="skylark-allocator", daemon=True)
            self._thread.start()
        request = _Request(path, size)
        self._requests[path] = request
        self._waiting.put(request)

    def segment(self, path: str, start: int, size: int) -> MappedFile:
        """Return the segment that begins at `start` of its log, over the file of `take`. Raises OSError as `take`."""
        return self._kind.segment(path, start, size, self.take(path, size), self._disk)

    def take(self, path: str, size: int) -> int:
        """Return a descriptor of `path`, owned by the caller. Raises OSError, and SegmentNotReadyError after 5 s."""
        request = self._requests.pop(path, None)
        if request is not None:
            request.wanted.set()
            try:
                return request.made.result(timeout=WAIT_S)
            except TimeoutError:
                self._requests[path] = request  # it may still complete: the next roll takes it then
                raise SegmentNotReadyError(path, WAIT_S) from None
            except OSError as problem:
                log.info("segment creation retried path=%s error=%s", path, problem)
        request = _Request(path, size)
        request.wanted.set()
        return self._create(request)

    def is_made(self, path: str, size: int) -> bool:
        """Return whether `take` of `path` would not wait. A missing or failed request is sent (again)."""
        request = self._requests.get(path)
        if request is not None and request.made.done() and request.made.exception() is not None:
            del self._requests[path]
            request = None
        if request is None:
            self.request(path, size)
            return False
        return request.made.done()

    def close(self) -> None:
        """Do the same as `discard`, and release resources."""
        self._kind.close()
        self.discard()

    def discard(self) -> None:
        """Stop the thread. Remove files that were created and never taken."""
        for request in self._requests.values():
            request.wanted.set()  # stop its zero fill
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        made = [request for request in self._requests.values() if request.made.done() and not request.made.exception()]
        self._requests.clear()
        for request in made:
            os.close(request.made.result())
        try:
            for request in reversed(made):  # the last one first: a power cut in between must leave no gap
                self._disk.unlink(request.path)
        except OSError as problem:
            log.warning("unused segment not removed path=%s error=%s", request.path, problem)

    def _run(self) -> None:
        while (request := self._waiting.get()) is not None:
            try:
                request.made.set_result(self._create(request))
            except OSError as problem:
                log.warning("segment not created path=%s error=%s", request.path, problem)
                request.made.set_exception(problem)

    def _create(self, request: _Request) -> int:
        self._disk.make_directory(os.path.dirname(request.path))
        if not self.piece_bytes:
            return self._disk.create(request.path, request.size)
        return self._disk.create(request.path, request.size, lambda fd: self._write(fd, request))

    # zero fill

    def _write(self, fd: int, request: _Request) -> None:
        """Write zeros from the beginning, until a caller waits for the file."""
        appended = self.appended()
        for at in range(0, request.size, len(_ZEROS)):
            if at and at % self.piece_bytes < len(_ZEROS):
                self._disk.fdatasync(fd)
                appended = self._yield_to_appends(request, appended)
            if request.wanted.is_set():
                log.info("segment needed before its zero fill ended path=%s bytes=%d", request.path, at)
                return
            self._disk.pwrite(fd, _ZEROS[: request.size - at], at)

    def _yield_to_appends(self, request: _Request, before: int) -> int:
        """Wait while the log is busy. `before`: the log's end before the last piece. Return its end now."""
        now = self.appended()
        while now != before and not request.wanted.wait(_YIELD_S):
            before, now = now, self.appended()
            if now - before < self._busy_bytes:
                break
        return now

    def __repr__(self) -> str:
        return f"<Allocator ready={len(self._requests)}>"
