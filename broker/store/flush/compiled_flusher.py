"""The flusher of a SYNC_FLUSH log as a compiled leaf runs it: without the interpreter, as long as one segment grows.

    submit ─▶ leaf: fdatasync, done, announced ─▶ submit ...      one segment, no Python in the thread
    submit of another segment ─▶ the thread: every file of the target, as any flusher ─▶ leaf, with the new one

A thread that needs the interpreter for each step waits for the event loop at each of them, and the event loop for it:
under load that takes longer than the sync. What holds of a flusher holds here too: the target is taken before the
sync, and after a failed sync nothing is done any more. `done` is what the loop has taken note of.

Only for a real disk, a sync of which is an fdatasync and nothing else. Source: docs/formats.md, "Flush".
"""

import os
from collections.abc import Sequence
from typing import Final

from skylarkmq.broker.store.flush.flusher import Flusher, Syncable, Target
from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.protocol import compiled

_leaf = compiled.load("syncs")
is_available: Final = _leaf is not None

_SEVERAL: Final = -1
_NONE: Final = -2


class BareFlusher(Flusher):
    """An eager flusher of segments."""

    def __init__(self, name: str, durable: int = 0) -> None:
        super().__init__(name, durable)
        self._leaf = _leaf.Syncs(self._wake_fd, self.event_fd, durable)

    @property
    def is_idle(self) -> bool:
        """Everything submitted is durable."""
        return self.done.end >= self._submitted.end

    def submit(self, target: Target) -> None:
        """Make this durable; it replaces a target that the thread has not taken yet."""
        self._submitted = target
        self._leaf.submit(target.end, target.timestamp, _descriptor(target.files))

    def stay_awake(self, limit_us: int) -> None:
        """As Flusher's."""
        self._leaf.stay_awake(limit_us)

    def acknowledge(self) -> None:
        """Take note of the announcement."""
        super().acknowledge()
        end, timestamp, self._syncs, took_ns = self._leaf.done()
        if end > self.done.end:
            self.done = Target(end, timestamp, ())
            self.sync_s = took_ns / 1e9

    def stop(self) -> None:
        """Sync what was submitted and end the thread; `done` and `failure` are final then."""
        self._stopping = True
        self._leaf.leave()
        super().stop()
        self.acknowledge()

    # the thread

    def _run_eagerly(self) -> None:
        leaf = self._leaf
        while self.failure is None:
            stopping = self._stopping
            target = self._submitted
            fd = _descriptor(target.files)
            is_done = target.end <= leaf.done()[0]
            if not is_done and (stopping or fd < 0):
                self._sync(target)
            elif stopping:
                return
            else:
                self._run_leaf(target, fd)

    def _run_leaf(self, target: Target, fd: int) -> None:
        """Until something else than that file is to be synced; without one, until anything is."""
        self._leaf.turn_to(fd if fd >= 0 else _NONE)
        newest = self._submitted  # what is submitted from here on, the leaf sees
        if self._stopping or (newest is not target and (fd < 0 or _descriptor(newest.files) != fd)):
            return
        problem = self._leaf.run()
        if not problem:
            return
        if all(file.is_deleted for file in newest.files if isinstance(file, MappedFile)):
            self._sync(self._submitted)  # of a deleted segment nothing needs to last
        else:
            self._fail(OSError(problem, os.strerror(problem)))

    def _publish(self, target: Target) -> None:
        self._leaf.synced(target.end, target.timestamp)


def _descriptor(files: Sequence[Syncable]) -> int:
    """Of the one segment that must be synced; less than 0 if it is not one."""
    if len(files) == 1 and isinstance(files[0], MappedFile):
        return files[0].fd
    return _SEVERAL
