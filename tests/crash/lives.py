"""A store that lives a few times: what the trials of delayed messages, of timers and of transactions share.

A life opens the store, does what chance says, and ends by a clean stop, a kill, or a power cut at a system call that
the seed chose. Behind the last one everything is brought to its end, and checked.

`Lives` knows of a store and of nothing else; `LivesWithOffsets` also has a file for the offsets of delivery, which a
clean stop saves.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.state_file import StateFile
from tests.crash.power_cut import NESTED_CUTS
from tests.crash.trial import Tell
from tests.harness.simulated_disk import PowerCut, SimulatedDisk
from tests.harness.stepped_helpers import SteppedHelpers
from tests.harness.stores import Clock, config_of


class Lives(ABC):
    """Everything that one seed decides. `settings`: of the store, besides the sizes that are chosen here."""

    store: MessageStore

    def __init__(self, seed: int | str, scratch: Path, helpers: SteppedHelpers, tell: Tell, **settings: Any) -> None:
        self.rng = rng = Random(seed)
        self.helpers = helpers
        self.tell = tell
        self.clock = Clock()
        self.disk = SimulatedDisk(scratch)
        self.root = scratch / "store"
        self.is_sync = rng.random() < 0.7
        self.config = config_of(self.root, sync=self.is_sync, **self.sizes(), **settings)
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
                self.end()
            self.between_lives()
        self.open_at_last()
        self.disk.cut_at = -1
        self.bring_to_an_end()
        self.check()
        self.close()

    def sizes(self) -> dict[str, Any]:
        """Small ones, by chance."""
        return {
            "mapped_file_size_commit_log": self.rng.choice((2048, 4096, 8192)),
            "mapped_file_size_consume_queue": self.rng.choice((100, 200, 2000)),
            "max_hash_slot_num": 10,
            "max_index_num": 30,
            "queue_units_in_memory": self.rng.choice((0, 3, 1 << 19)),
        }

    @abstractmethod
    def open(self) -> None:
        """Begin a life: recover."""

    def between_lives(self) -> None:
        """What happens while nobody is there."""
        return

    def open_at_last(self) -> None:
        """Once more; the power may go while it recovers."""
        for _ in range(NESTED_CUTS):
            try:
                self.open()
                break
            except PowerCut:
                self.end()

    @abstractmethod
    def settle(self) -> None:
        """What the daemon does every 100 ms."""

    @abstractmethod
    def note_owed(self, flushed: int) -> None:
        """What was acknowledged, or is on the disk, must not be lost; the log is flushed up to there."""

    @abstractmethod
    def stop(self) -> None:
        """As the daemon does."""

    @abstractmethod
    def bring_to_an_end(self) -> None:
        """Nothing waits any more."""

    @abstractmethod
    def check(self) -> None:
        """What must hold of the log then."""

    def close(self) -> None:
        """It was the last life."""
        self.stop()

    def begin(self) -> int:
        """Choose when the power goes, if it does, and how many steps there are."""
        rng = self.rng
        if rng.random() < 0.8:
            self.disk.cut_at = self.disk.calls + rng.randint(1, 120)
        return rng.randint(5, 60)

    def _live(self) -> None:
        actions, weights = list(self.actions), list(self.actions.values())
        for _ in range(self.begin()):
            self.rng.choices(actions, weights)[0]()
        if self.rng.random() < 0.4:
            self.stop()
            self.tell("stopped")
        else:
            raise PowerCut

    def end(self) -> None:
        """The process is gone; mostly the power too."""
        self.may_repeat = True
        self.forget()
        if self.rng.random() < 0.8:
            self.tell("cut")
            self.disk.cut(self.rng)
        else:
            self.tell("killed")
            self.disk.revive()

    def forget(self) -> None:
        """Nobody holds anything of this life any more."""
        self.helpers.forget(self.store)

    def flush(self) -> None:
        """One flusher comes by."""
        self.helpers.sync(self.rng.choice(self.helpers.flushers))
        self.settle()

    def flush_all(self) -> None:
        """All of them do."""
        for flusher in self.helpers.flushers:
            self.helpers.sync(flusher)
        self.settle()


class LivesWithOffsets(Lives):
    """Whose deliveries keep offsets."""

    file: StateFile
    """Where these are kept."""

    @abstractmethod
    def encode(self) -> bytes:
        """The offsets of delivery."""

    def save(self) -> None:
        """The offsets go to their file."""
        self.file.save(self.encode())

    def stop(self) -> None:
        """As the daemon does: deliveries end, the log is flushed, offsets are saved, the store is closed."""
        self.helpers.sync(self.helpers.flushers[0])
        self.settle()
        self.save()
        self.store.close()
        self.note_owed(self.store.max_physical_offset)
        self.helpers.forget(self.store)
