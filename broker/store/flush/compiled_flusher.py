"""The flusher of a SYNC_FLUSH log in a compiled module: it needs no interpreter while the log grows in one segment.

    submit ─▶ compiled: fdatasync, done, announce ─▶ submit ...      one segment, no Python in the thread
    submit of another segment ─▶ Python: sync every file of the target, as in Flusher ─▶ compiled, with the new segment

A thread that needs the interpreter for each step waits for the event loop at each step, and the loop waits for the
thread. Under load that takes longer than the sync. The invariants of Flusher hold here too: the target is read before
the sync, and after a failed sync no target becomes durable. `done` is the state that the loop has acknowledged.

Only for a real disk, where a sync is an fdatasync and nothing else. Source: docs/reference/disk.md, "Flush".
"""

import os
from collections.abc import Sequence
from typing import Final

from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.flush.flusher import Flusher, Syncable, Target
from skylarkmq.protocol import compiled

_compiled = compiled.load("syncs")
is_available: Final = _compiled is not None

_SEVERAL: Final = -1
_NONE: Final = -2


class CompiledFlusher(Flusher):
    """An eager flusher of segments, whose thread runs compiled code."""

    def __init__(self, name: str, durable: int = 0) -> None:
        super().__init__(name, durable)
        self._compiled_syncs = _compiled.Syncs(self._wake_fd, self.event_fd, durable)
        self._syncs_here = 0

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted is durable."""
        return self.done.end >= self._submitted.end

    def submit(self, target: Target) -> None:
        """Request a sync of this target. It replaces a target that the thread has not taken yet."""
        self._submitted = target
        self._compiled_syncs.submit(target.end, target.timestamp, _descriptor(target.files))

    def sync_here(self, target: Target) -> bool:
        """Sync this target in the caller's thread, as in Flusher. Compiled code does not see it."""
        is_synced = super().sync_here(target)
        self._syncs_here += is_synced
        return is_synced

    def keep_spinning(self, limit_us: int) -> None:
        """Spin for the next target, as in Flusher."""
        self._compiled_syncs.keep_spinning(limit_us)

    def acknowledge(self) -> None:
        """Take over the results of the announced syncs."""
        super().acknowledge()
        end, timestamp, syncs, took_ns = self._compiled_syncs.done()
        self._syncs = syncs + self._syncs_here
        if end > self.done.end:
            self.done = Target(end, timestamp, ())
            self.sync_s = took_ns / 1e9

    def stop(self) -> None:
        """Sync everything submitted and end the thread. `done` and `failure` are final afterwards."""
        self._stopping = True
        self._compiled_syncs.interrupt()
        super().stop()
        self.acknowledge()

    # the thread

    def _run_eagerly(self) -> None:
        syncs = self._compiled_syncs
        while self.failure is None:
            stopping = self._stopping
            target = self._submitted
            fd = _descriptor(target.files)
            is_done = target.end <= syncs.done()[0]
            if not is_done and (stopping or fd < 0):
                self._sync(target)
            elif stopping:
                return
            else:
                self._run_compiled(target, fd)

    def _run_compiled(self, target: Target, fd: int) -> None:
        """Sync file `fd` in compiled code until another file is submitted. Without a file, wait for any submit."""
        self._compiled_syncs.set_file(fd if fd >= 0 else _NONE)
        newest = self._submitted  # compiled code sees every later submit
        if self._stopping or self.failure is not None:
            return
        if newest is not target and (fd < 0 or _descriptor(newest.files) != fd):
            return
        problem = self._compiled_syncs.run()
        if not problem:
            return
        if all(file.is_deleted for file in newest.files if isinstance(file, MappedFile)):
            self._sync(self._submitted)  # a deleted segment needs no durability
        else:
            self._fail(OSError(problem, os.strerror(problem)))

    def _fail(self, problem: OSError) -> None:
        super()._fail(problem)
        self._compiled_syncs.interrupt()  # the caller may be `sync_here`, while the thread sleeps

    def _publish(self, target: Target) -> None:
        self._compiled_syncs.mark_synced(target.end, target.timestamp)


def _descriptor(files: Sequence[Syncable]) -> int:
    """Return the descriptor of the only segment to be synced; a negative number if there is not exactly one."""
    if len(files) == 1 and isinstance(files[0], MappedFile):
        return files[0].fd
    return _SEVERAL
