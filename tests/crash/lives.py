"""A store that lives a few times: what the trials of delayed messages and of transactions share.

A life opens the store, does what chance says, and ends by a clean stop, a kill, or a power cut at a system call that
the seed chose. Behind the last one everything is brought to its end, and checked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from broker.store.message_store import MessageStore
from broker.store.state_file import StateFile
from tests.crash.power_cut import NESTED_CUTS
from tests.crash.trial import Tell
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import Clock, config_of


class Lives(ABC):
    """Everything that one seed decides. `settings`: of the store, besides the small sizes that are chosen here."""

    store: MessageStore
    file: StateFile
    """Where the offsets of delivery are kept."""

    def __init__(self, seed: str, scratch: Path, helpers: SteppedHelpers, tell: Tell, **settings: Any) -> None:
        self.rng = rng = Random(seed)
        self.helpers = helpers
        self.tell = tell
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.root = scratch / "store"
        self.is_sync = rng.random() < 0.7
        self.config = config_of(
            self.root,
            sync=self.is_sync,
            mapped_file_size_commit_log=rng.choice((2048, 4096, 8192)),
            mapped_file_size_consume_queue=rng.choice((100, 200, 2000)),
            max_hash_slot_num=10,
            max_index_num=30,
            queue_units_in_memory=rng.choice((0, 3, 1 << 19)),
            **settings,
        )
        self.may_repeat = False
        self.actions: dict[Callable[[], None], int] = {}  # and how often each
        tell(f"seed={seed} sync={self.is_sync} segment={self.config.mapped_file_size_commit_log}")

    def run(self) -> None:
        """AssertionError, or whatever the store raises, if something does not hold."""
        for _ in range(self.rng.randint(1, 4)):
            try:
                self.open()
                self._live()
            except PowerCut:
                self._end()
        for _ in range(NESTED_CUTS):
            try:
                self.open()
                break
            except PowerCut:
                self._end()
        self.disk.cut_at = -1
        self.bring_to_an_end()
        self.check()
        self._stop()

    @abstractmethod
    def open(self) -> None:
        """Begin a life: recover."""

    @abstractmethod
    def settle(self) -> None:
        """What the daemon does every 100 ms."""

    @abstractmethod
    def note_owed(self, flushed: int) -> None:
        """What was acknowledged, or is on the disk, must not be lost; the log is flushed up to there."""

    @abstractmethod
    def encode(self) -> bytes:
        """The offsets of delivery."""

    @abstractmethod
    def bring_to_an_end(self) -> None:
        """Nothing waits any more."""

    @abstractmethod
    def check(self) -> None:
        """What must hold of the log then."""

    def _live(self) -> None:
        rng = self.rng
        if rng.random() < 0.8:
            self.disk.cut_at = self.disk.calls + rng.randint(1, 120)
        actions, weights = list(self.actions), list(self.actions.values())
        for _ in range(rng.randint(5, 60)):
            rng.choices(actions, weights)[0]()
        if rng.random() < 0.4:
            self._stop()
            self.tell("stopped")
        else:
            raise PowerCut

    def _stop(self) -> None:
        """As the daemon does: deliveries end, the log is flushed, offsets are saved, the store is closed."""
        self.helpers.sync(self.helpers.flushers[0])
        self.settle()
        self.save()
        self.store.close()
        self.note_owed(self.store.max_physical_offset)
        self.helpers.forget(self.store)

    def _end(self) -> None:
        """The process is gone; mostly the power too."""
        self.may_repeat = True
        self.helpers.forget(self.store)
        if self.rng.random() < 0.8:
            self.tell("cut")
            self.disk.cut(self.rng)
        else:
            self.tell("killed")
            self.disk.revive()

    def flush(self) -> None:
        """One flusher comes by."""
        self.helpers.sync(self.rng.choice(self.helpers.flushers))
        self.settle()

    def flush_all(self) -> None:
        """All of them do."""
        for flusher in self.helpers.flushers:
            self.helpers.sync(flusher)
        self.settle()

    def save(self) -> None:
        """The offsets go to their file."""
        self.file.save(self.encode())
