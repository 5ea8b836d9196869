"""What a node has on its own disk: its promise, its committed mark, its log (rule 1).

A promise counts in two steps. From the moment it is made the node refuses lower epochs; the action that the promise is
made for happens only after it is on the disk. At most one action waits: a later promise replaces it, because the link
or campaign of the earlier one has ended by then.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import Effect, HaState, KeepEpochs, StoreState

Action = Callable[[], None]


class Log(NamedTuple):
    """The recovered log: the offset of its first byte, its end, and its epochs.

    `epochs` come from the log, and for bytes that retention removed from `epochFileCheckpoint`.
    """

    start: int
    end: int
    epochs: EpochHistory


class Local:
    """`effects`: the list that each step of the node fills."""

    def __init__(self, state: HaState, log: Log, effects: list[Effect]) -> None:
        self.effects: Final = effects
        self.epochs = log.epochs
        self.start = log.start
        self.written = self.synced = log.end
        self.committed = state.committed
        self._stored = self._last = state
        self._after_promise: tuple[int, Action] | None = None

    @property
    def store_id(self) -> str:
        """The id of this store."""
        return self._stored.store_id

    @property
    def promised(self) -> int:
        """The highest epoch that was promised, on the disk or about to be: lower ones are refused."""
        return self._last.promised

    def promise(self, epoch: int, then: Action) -> None:
        """Promise an epoch, and act once the promise is on the disk."""
        if epoch <= self._stored.promised:
            then()
            return
        self._after_promise = (epoch, then)
        if epoch > self._last.promised:
            self._store(epoch)

    def keep_committed_mark(self) -> None:
        """Write the committed mark to the disk, if it has moved and no write is under way."""
        if self._stored == self._last and min(self.committed, self.synced) > self._last.committed:
            self._store(self._last.promised)

    def stored(self, state: HaState) -> None:
        """`haState` is on the disk: carry out what waited for its promise."""
        self._stored = state
        if self._after_promise and self._after_promise[0] <= state.promised:
            _, action = self._after_promise
            self._after_promise = None
            action()

    def extended(self, end: int, epochs: tuple[Epoch, ...]) -> None:
        """The log was extended."""
        self.written = end
        if epochs:
            self.keep_epochs(self.epochs.appended(epochs))

    def synced_to(self, end: int) -> None:
        """The log is on the disk up to `end`."""
        self.synced = max(end, self.synced)

    def copied(self, end: int) -> None:
        """The log was extended to `end`, without a new epoch, and is on the disk."""
        self.written = self.synced = end

    def end_set(self, end: int) -> None:
        """The log was truncated, or begins at another offset."""
        self.start = min(self.start, end) if self.written >= end else end
        self.written = self.synced = end
        self.epochs = self.epochs.truncated(end)

    def begins_at(self, start: int) -> None:
        """Retention removed the bytes before `start`."""
        self.start = max(start, self.start)

    def keep_epochs(self, epochs: EpochHistory) -> None:
        """The log has this history. Its bytes do not show all of it, or no longer once retention has removed them."""
        if epochs != self.epochs:
            self.epochs = epochs
            self.effects.append(KeepEpochs(epochs))

    def _store(self, promised: int) -> None:
        mark = max(self._last.committed, min(self.committed, self.synced))
        self._last = HaState(promised, self._last.store_id, mark)
        self.effects.append(StoreState(self._last))
