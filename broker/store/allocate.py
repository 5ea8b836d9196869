"""Segments made ahead of need, by a thread of its own.

Reserving a gigabyte and syncing a directory take milliseconds that no send should wait for. The log asks for its next
segment early; `take` then finds it ready, waits for it if it is being made, or makes it on the spot if nobody asked.
The thread only makes system calls, through the same `Disk` as everyone.
"""

import logging
import os
import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final

from broker.store.disk import Disk

log = logging.getLogger(__name__)

WAIT_S: Final = 5.0  # the longest that a roll waits for a segment under way; RocketMQ's figure


class Allocator:
    """Makes files on request; `path` is the key of a request."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._requests: SimpleQueue[tuple[str, int, Future[int]] | None] = SimpleQueue()
        self._made: dict[str, Future[int]] = {}
        self._thread: threading.Thread | None = None

    def request(self, path: str, size: int) -> None:
        """Have `path` made in the background; asking twice is asking once."""
        if path in self._made:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="skylark-allocator", daemon=True)
            self._thread.start()
        future: Future[int] = Future()
        self._made[path] = future
        self._requests.put((path, size, future))

    def take(self, path: str, size: int) -> int:
        """The descriptor of `path`; the caller owns it. OSError (TimeoutError after 5 s) when there is none."""
        future = self._made.pop(path, None)
        if future is not None:
            try:
                return future.result(timeout=WAIT_S)
            except TimeoutError:
                self._made[path] = future  # it may still arrive: the next roll takes it then
                raise
            except OSError as problem:
                log.info("segment tried again path=%s error=%s", path, problem)
        return self._create(path, size)

    def close(self) -> None:
        """Stop the thread; what was made and never taken is removed."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._thread = None
        for path, future in self._made.items():
            if future.done() and future.exception() is None:
                os.close(future.result())
                self._disk.unlink(path)
        self._made.clear()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            path, size, future = request
            try:
                future.set_result(self._create(path, size))
            except OSError as problem:
                log.warning("segment not made path=%s error=%s", path, problem)
                future.set_exception(problem)

    def _create(self, path: str, size: int) -> int:
        self._disk.make_directory(os.path.dirname(path))
        return self._disk.create(path, size)

    def __repr__(self) -> str:
        return f"<Allocator ready={len(self._made)}>"
