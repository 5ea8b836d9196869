"""A store through several sessions: the common part of the trials of delayed messages, timers and transactions.

A session opens the store, runs random actions, and ends with a clean stop, a kill, or a power cut at a system call
chosen by the seed. After the last session the run completes all pending work and checks the result.

`StoreSessions` only has a store. `StoreSessionsWithOffsets` also has a file of delivery offsets, which a clean stop
saves.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.message_store import MessageStore
from tests.crash.power_cut import NESTED_CUTS
from tests.crash.trial import LogStep
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import Clock, config_of


class StoreSessions(ABC):
    """One run; the seed decides everything. `settings`: store settings besides the random sizes."""

    store: MessageStore

    def __init__(
        self, seed: int | str, scratch: Path, helpers: SteppedHelpers, log_step: LogStep, **settings: Any
    ) -> None:
        self.rng = rng = Random(seed)
        self.helpers = helpers
        self.log_step = log_step
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.root = scratch / "store"
        self.is_sync = rng.random() < 0.7
        self.config = config_of(self.root, sync=self.is_sync, **self.sizes(), **settings)
        self.may_repeat = False
        self.actions: dict[Callable[[], None], int] = {}  # with their weights
        log_step(f"seed={seed} sync={self.is_sync} segment={self.config.mapped_file_size_commit_log}")

    def run(self) -> None:
        """Run all sessions. Raises AssertionError, or an error of the store, if a check fails."""
        for _ in range(self.rng.randint(1, 4)):
            try:
                self.open()
                self._run_session()
            except PowerCut:
                self.end()
            self.between_lives()
        self.open_at_last()
        self.disk.cut_at = -1
        self.bring_to_an_end()
        self.check()
        self.close()

    def sizes(self) -> dict[str, Any]:
        """Return random small sizes."""
        return {
            "mapped_file_size_commit_log": self.rng.choice((2048, 4096, 8192)),
            "mapped_file_size_consume_queue": self.rng.choice((100, 200, 2000)),
            "max_hash_slot_num": 10,
            "max_index_num": 30,
            "queue_units_in_memory": self.rng.choice((0, 3, 1 << 19)),
        }

    @abstractmethod
    def open(self) -> None:
        """Begin a session: recover the store."""

    def between_lives(self) -> None:
        """Run between two sessions."""
        return

    def open_at_last(self) -> None:
        """Open the store for the last time; the power may be cut during the recovery."""
        for _ in range(NESTED_CUTS):
            try:
                self.open()
                break
            except PowerCut:
                self.end()

    @abstractmethod
    def settle(self) -> None:
        """Do what the daemon does every 100 ms."""

    @abstractmethod
    def note_owed(self, flushed: int) -> None:
        """Mark what was acknowledged, or is on disk, as owed; the log is flushed up to `flushed`."""

    @abstractmethod
    def stop(self) -> None:
        """Stop as the daemon does."""

    @abstractmethod
    def bring_to_an_end(self) -> None:
        """Complete everything that waits."""

    @abstractmethod
    def check(self) -> None:
        """Check the log at the end."""

    def close(self) -> None:
        """Close the store after the last session."""
        self.stop()

    def begin(self) -> int:
        """Choose whether and when the power is cut, and return the number of steps."""
        rng = self.rng
        if rng.random() < 0.8:
            self.disk.cut_at = self.disk.calls + rng.randint(1, 120)
        return rng.randint(5, 60)

    def _run_session(self) -> None:
        actions, weights = list(self.actions), list(self.actions.values())
        for _ in range(self.begin()):
            self.rng.choices(actions, weights)[0]()
        if self.rng.random() < 0.4:
            self.stop()
            self.log_step("stopped")
        else:
            raise PowerCut

    def end(self) -> None:
        """End the process; mostly cut the power too."""
        self.may_repeat = True
        self.forget()
        if self.rng.random() < 0.8:
            self.log_step("cut")
            self.disk.cut(self.rng)
        else:
            self.log_step("killed")
            self.disk.revive()

    def forget(self) -> None:
        """Release all objects of this session."""
        self.helpers.forget(self.store)

    def flush(self) -> None:
        """Run one flusher."""
        self.helpers.sync(self.rng.choice(self.helpers.flushers))
        self.settle()

    def flush_all(self) -> None:
        """Run all flushers."""
        for flusher in self.helpers.flushers:
            self.helpers.sync(flusher)
        self.settle()


class StoreSessionsWithOffsets(StoreSessions):
    """Sessions that also store delivery offsets."""

    file: StateFile
    """The file of the offsets."""

    @abstractmethod
    def encode(self) -> bytes:
        """Return the encoded delivery offsets."""

    def save(self) -> None:
        """Save the offsets."""
        self.file.save(self.encode())

    def stop(self) -> None:
        """Stop as the daemon does: deliveries end, the log is flushed, offsets are saved, the store is closed."""
        self.helpers.sync(self.helpers.flushers[0])
        self.settle()
        self.save()
        self.store.close()
        self.note_owed(self.store.max_physical_offset)
        self.helpers.forget(self.store)
