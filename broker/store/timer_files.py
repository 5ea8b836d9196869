"""The files of timers together: what is written in which order, and how they are found again.

    commit log flushed ─▶ timer log synced ─▶ wheel written and synced ─▶ timercheck replaced

A round (`step`, every `timerFlushIntervalMs` while anything changes) takes a copy of what has changed in one moment,
and waits until the commit log is on disk as far as it went then; so nothing that is on disk of the timers speaks of a
message that a cut could take, and no slot of a unit that is not in the log. A failed round is the last one: the files
keep what the check vouches for.

Opening: units behind the check are put on the wheel again, up to the last one that a slot points to, which is on disk
for sure; what stands behind that is cut off, and its messages come from the timer topic once more. So no message is on
the wheel twice. Slots that make no sense have the whole wheel made again from the log.

No file is made before the first message. Source: docs/formats.md, "Timer files".
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from broker.store.cold_reads import ColdReads
from broker.store.disk import TEMPORARY_SUFFIX, Disk
from broker.store.flush import Flusher, Syncable, Target
from broker.store.queue_files import DirtyDirectory
from broker.store.timer_log import TimerLog
from broker.store.timer_wheel import EMPTY, Slot, TimerWheel
from protocol.disk import CONFIG_DIRECTORY
from protocol.timers import (
    CHECK_FILE,
    CHECK_SIZE,
    DELETE,
    KEPT_BACK_SLOTS,
    LOG_DIRECTORY,
    NO_POSITION,
    SLOTS,
    UNIT_SIZE,
    WHEEL_FILE,
    TimerCheck,
    TimerUnit,
)

REMOVE_INTERVAL_MS: Final = 30_000

log = logging.getLogger(__name__)


class Messages(Protocol):
    """What is asked of the commit log."""

    @property
    def min_physical_offset(self) -> int:
        """Its first byte."""

    @property
    def max_physical_offset(self) -> int:
        """The byte behind its last record."""

    @property
    def flushed_offset(self) -> int:
        """It is on disk up to that byte."""


class TimerFilesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in ms."""

    root: Path
    precision_ms: int = 1_000
    log_file_size: int = 100 << 20
    slots: int = SLOTS
    flush_interval_ms: int = 1_000


class TimerFilesStatistics(msgspec.Struct, frozen=True):
    """Positions in the timer log; `checked` is what the check on disk says."""

    log_begin: int
    log_end: int
    waiting: int
    checked: TimerCheck
    failed: bool


class _Round(msgspec.Struct, frozen=True):
    """What is to be written, once the commit log is on disk up to byte `log_end`."""

    log_end: int
    check: TimerCheck
    files: Sequence[Syncable]


class CheckWrite:
    """The check on its way to disk: replaced as a whole."""

    def __init__(self, path: str, check: TimerCheck, disk: Disk) -> None:
        self._path = path
        self.check = check
        self._disk = disk

    def sync(self) -> None:
        """Write and sync it. Called by the flusher's thread."""
        directory = os.path.dirname(self._path)
        self._disk.make_directory(directory)
        self._disk.write_file(self._path + TEMPORARY_SUFFIX, self.check.encode())
        self._disk.rename(self._path + TEMPORARY_SUFFIX, self._path)
        self._disk.sync_directory(directory)


class TimerFiles:
    """Those of one store. `figures(now_ms)`: what else is to be written with a round."""

    def __init__(
        self,
        config: TimerFilesConfig,
        messages: Messages,
        disk: Disk | None = None,
        figures: Callable[[int], Syncable | None] = lambda _now_ms: None,
    ) -> None:
        self._config = config
        self._messages = messages
        self._disk = disk = disk or Disk()
        self._figures = figures
        self.reads = ColdReads(1)
        self.wheel = TimerWheel(str(config.root / WHEEL_FILE), config.precision_ms, disk, config.slots)
        self.log = TimerLog(str(config.root / LOG_DIRECTORY), config.log_file_size, disk, self.reads)
        self._check_path = str(config.root / CONFIG_DIRECTORY / CHECK_FILE)
        self._checked = TimerCheck()
        self._taken = TimerCheck()  # what the newest round says
        self._round: _Round | None = None
        self._flusher: Flusher | None = None
        self._is_given_up = False
        self._is_wheel_synced = False  # whatever an earlier process has written of it
        self._next_round_ms = 0
        self._next_remove_ms = 0

    def __repr__(self) -> str:
        return f"<TimerFiles {self.log!r} {self.wheel!r}>"

    def statistics(self) -> TimerFilesStatistics:
        """The figures now."""
        return TimerFilesStatistics(
            self.log.begin, self.log.end, self.wheel.waiting, self._checked, failed=self._is_given_up
        )

    # ------------------------------------------------------------------------------------------------ opening

    def load(self, now_ms: int, offset_of: Callable[[int], int | None]) -> TimerCheck:
        """Bring the files into agreement; where to go on. StoreError, OSError.

        `offset_of`: the offset in the timer topic of the message at a byte of the commit log, None if none is there.
        """
        check = self._load_check()
        precision = self._config.precision_ms
        oldest_ms = (now_ms // precision - self._config.slots // 2 + KEPT_BACK_SLOTS) * precision
        read_ms = max(check.read_ms // precision * precision, oldest_ms)
        self.log.load()
        self.wheel.load(read_ms)
        units = list(self._sound_units(check.log_position))
        end = self._restore(units, check.log_position, read_ms)
        if end is None:
            log.warning("timer wheel does not fit its log, made again from it path=%s", self.wheel.path)
            units = list(self._sound_units(self.log.begin))
            end = units[-1][0] + UNIT_SIZE if units else self.log.begin
            self.wheel.clear()
            self._replay(units, end, read_ms)
        self.log.cut(end)
        queue_offset = self._queue_offset(check, [unit for position, unit in units if position < end], offset_of)
        self._checked = self._taken = msgspec.structs.replace(check, read_ms=read_ms, log_position=end)
        if check != TimerCheck() or units:
            log.info("timers loaded waiting=%d log_end=%d replayed=%d", self.wheel.waiting, end, len(units))
        return msgspec.structs.replace(self._taken, queue_offset=queue_offset)

    def _load_check(self) -> TimerCheck:
        try:
            with open(self._check_path, "rb") as file:
                return TimerCheck.decode(file.read(CHECK_SIZE))
        except FileNotFoundError:
            return TimerCheck()

    def _sound_units(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """Units from a position on, up to the first whose message cannot stand in the commit log."""
        for found in self.log.scan(position):
            if found[1].physical_offset + found[1].size > self._messages.max_physical_offset:
                return
            yield found

    def _restore(self, units: "Sequence[tuple[int, TimerUnit]]", position: int, read_ms: int) -> int | None:
        """Bring the wheel up to the last unit that is on disk for sure: a slot points to it, or the check vouches for
        it. Returns where that ends; None: the wheel makes no sense."""
        sound, torn = [max(min(position, self.log.end), self.log.begin) - UNIT_SIZE], []
        for time_ms, slot in self.wheel.slots():
            unit = self.log.unit(slot.last)
            if unit is not None and unit.slot_ms == time_ms:
                sound.append(slot.last)
            else:
                torn.append(time_ms)
        before = {unit.slot_ms: unit.previous for _, unit in reversed(units)}
        for time_ms in torn:  # written when the power went: its first unit behind the check knows what it said
            if time_ms not in before:
                return None
            self.wheel.put(time_ms, Slot(before[time_ms], before[time_ms]))
        end = max(sound) + UNIT_SIZE
        self._replay(units, end, read_ms)
        return end

    def _replay(self, units: "Sequence[tuple[int, TimerUnit]]", end: int, read_ms: int) -> None:
        """Put units before `end` on the wheel, except those that are."""
        for position, unit in units:
            if position >= end or unit.slot_ms < read_ms:
                continue
            before = self.wheel.slot(unit.slot_ms)
            if before.last < position:
                self.wheel.put(
                    unit.slot_ms, behind(EMPTY if unit.previous == NO_POSITION else before, position, unit.magic)
                )

    def _queue_offset(
        self, check: TimerCheck, units: "Sequence[TimerUnit]", offset_of: Callable[[int], int | None]
    ) -> int:
        """The first message of the timer topic that has no unit."""
        found = offset_of(units[-1].physical_offset) if units else None
        return check.queue_offset if found is None else max(check.queue_offset, found + 1)

    # ------------------------------------------------------------------------------------------------ writing

    def make(self) -> None:
        """Have the files that the first message needs. OSError."""
        self.wheel.make_file()

    def step(self, now_ms: int, check: TimerCheck) -> None:
        """Begin a round if one is due, or go on with it; `check` says how far the timers are by now."""
        flusher = self._flusher
        if flusher is not None and flusher.failure is not None and not self._is_given_up:
            self._is_given_up = True
            log.critical("timer files not synced, a restart goes by their last state error=%s", flusher.failure)
        if self._is_given_up:
            return
        if self._round is None and now_ms >= self._next_round_ms and (flusher is None or flusher.is_idle):
            self._next_round_ms = now_ms + self._config.flush_interval_ms
            self._begin_round(now_ms, check)
        if self._round is not None and self._messages.flushed_offset >= self._round.log_end:
            self._submit(self._round)
            self._round = None

    def _begin_round(self, now_ms: int, check: TimerCheck) -> None:
        figures = self._figures(now_ms)
        is_changed = self.log.is_changed or self.wheel.is_changed
        if not is_changed and figures is None and check.read_ms <= self._taken.read_ms:
            return
        files: list[Syncable] = self.log.take_unsynced()
        check = msgspec.structs.replace(
            check,
            log_position=self.log.end,
            master_queue_offset=check.queue_offset,
            state_version=self._taken.state_version,
            timestamp=now_ms,
            counter=self._taken.counter + 1,
        )
        if self.wheel.is_changed or not self._is_wheel_synced:
            self._is_wheel_synced = True
            files += self.wheel.take_changed(), DirtyDirectory(str(self._config.root), self._disk)
        if figures is not None:
            files.append(figures)
        self._taken = check
        files.append(CheckWrite(self._check_path, check, self._disk))
        self._round = _Round(self._messages.max_physical_offset, check, files)

    def _submit(self, taken: _Round) -> None:
        if self._flusher is None:
            self._flusher = Flusher("timer-flusher")
            self._flusher.start()
        self._checked = taken.check
        self._flusher.submit(Target(taken.check.counter, taken.check.timestamp, taken.files))

    def remove_old(self, now_ms: int) -> None:
        """Let go of log files whose messages the commit log no longer has, now and then. OSError, ColdRead."""
        if now_ms >= self._next_remove_ms:
            self._next_remove_ms = now_ms + REMOVE_INTERVAL_MS
            self.log.remove_before(self._messages.min_physical_offset)

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self, now_ms: int, check: TimerCheck) -> None:
        """Write everything, if the commit log is on disk, and end the thread."""
        self._next_round_ms = 0
        for _ in range(2):  # the round under way, and one that says all
            if self._flusher is not None:
                self._flusher.wait_idle()
            self.step(now_ms, check)
        self.close()

    def close(self) -> None:
        """End the thread and give up descriptors; nothing more is written."""
        if self._flusher is not None:
            self._flusher.close()
            self._flusher = None
        self.reads.close()
        self.log.close()


def behind(slot: Slot, position: int, magic: int) -> Slot:
    """A slot with one unit more."""
    first = position if slot.first == NO_POSITION else slot.first
    return Slot(first, position, slot.messages - 1 if magic & DELETE else slot.messages + 1)
