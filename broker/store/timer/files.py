"""The timer files together: the order of their writes, and their recovery at startup.

A round (`step`, every `timerFlushIntervalMs` while anything changes) copies the changes of one moment and waits until
the commit log is flushed up to its end at that moment. So the timer files on disk never refer to a message that a power
cut could take, nor a slot to a unit that is not in the log (`flush_round.py`).

If the disk refuses a write, because it is full for example, rounds and units are tried again every RETRY_MS. After a
failed sync there is no further round: the check file describes the last synced state, and a restart uses that. In both
cases `problem` is set, and the broker must reject new timer messages.

At startup, units after the check are put on the wheel again, up to the last unit that a slot refers to, which is surely
on disk. Later units are cut off; their messages are read from the timer topic again. So no message is on the wheel
twice. If slots are inconsistent, the whole wheel is rebuilt from the log. If the time of the check is further ahead
than any slot may be (a damaged file, a clock that was wrong), the timers do not wait for it: the time is ignored, and
messages may be delivered again.

No file is created before the first message. Source: docs/reference/disk.md, "Timer files".
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.flush.flusher import Flusher, Syncable, Target
from skylarkmq.broker.store.queue.files import DirtyDirectory
from skylarkmq.broker.store.timer.flush_round import CheckWrite, RoundWrite, WriteRefused
from skylarkmq.broker.store.timer.timer_log import TimerLog
from skylarkmq.broker.store.timer.wheel import EMPTY, Slot, TimerWheel, WheelWrite
from skylarkmq.protocol.decimals import INT32_MAX
from skylarkmq.protocol.disk import CONFIG_DIRECTORY
from skylarkmq.protocol.timers import (
    CHECK_FILE,
    CHECK_SIZE,
    DELETE,
    LOG_DIRECTORY,
    NO_POSITION,
    RESERVED_SLOTS,
    SLOTS,
    UNIT_SIZE,
    WHEEL_FILE,
    TimerCheck,
    TimerUnit,
)

REMOVE_INTERVAL_MS: Final = 30_000
RETRY_MS: Final = 1_000
STOP_CHECK_ITEMS: Final = 1_024
NOT_WRITTEN: Final = "timer files cannot be written"
NOT_SYNCED: Final = "a sync of the timer files failed, a restart will determine what is on the disk"

log = logging.getLogger(__name__)

T = TypeVar("T")


class Messages(Protocol):
    """The properties of the commit log that the timer files need."""

    @property
    def min_physical_offset(self) -> int:
        """Return the offset of its first byte."""

    @property
    def max_physical_offset(self) -> int:
        """Return the offset one past its last record."""

    @property
    def flushed_offset(self) -> int:
        """Return the offset up to which it is on disk."""


class TimerFilesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in ms."""

    root: Path
    precision_ms: int = 1_000
    log_file_size: int = 100 << 20
    slots: int = SLOTS
    flush_interval_ms: int = 1_000


class TimerFilesStatistics(msgspec.Struct, frozen=True):
    """Positions in the timer log; `checked` is the check on disk. `refusals`: writes that the disk refused since the
    start."""

    log_begin: int
    log_end: int
    waiting: int
    checked: TimerCheck
    failed: bool
    refusals: int = 0


class _Round(msgspec.Struct, frozen=True):
    """The writes that may start once the commit log is on disk up to byte `log_end`."""

    log_end: int
    check: TimerCheck
    write: RoundWrite
    wheel: WheelWrite | None
    figures: Syncable | None


class TimerFiles:
    """The timer files of one store. `figures(now_ms)` returns what else a round must write."""

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
        self._taken = TimerCheck()  # the check of the newest round
        self._round: _Round | None = None  # to be submitted
        self._submitted: _Round | None = None
        self._figures_left: Syncable | None = None  # not written by a refused round
        self._refused_round: OSError | None = None
        self._refused_units: OSError | None = None
        self._refusals = 0
        self._flusher: Flusher | None = None
        self._is_given_up = False
        self._is_wheel_synced = False  # covers the writes of an earlier process
        self._next_round_ms = 0
        self._next_remove_ms = 0

    def __repr__(self) -> str:
        return f"<TimerFiles {self.log!r} {self.wheel!r}>"

    def statistics(self) -> TimerFilesStatistics:
        """Return the current figures."""
        return TimerFilesStatistics(
            self.log.begin,
            self.log.end,
            self.wheel.waiting,
            self._checked,
            failed=self._is_given_up,
            refusals=self._refusals,
        )

    @property
    def problem(self) -> str:
        """Return why messages on the wheel might be lost, for operators; "" if there is no problem."""
        if self._is_given_up and self._flusher is not None:
            return f"{NOT_SYNCED} ({self._flusher.failure})"
        refused = self._refused_units or self._refused_round
        return "" if refused is None else f"{NOT_WRITTEN} ({refused})"

    # ------------------------------------------------------------------------------------------------ opening

    def load(
        self, now_ms: int, offset_of: Callable[[int], int | None], check_stop: Callable[[], None] = lambda: None
    ) -> TimerCheck:
        """Make the files consistent. Returns the check to continue with. Raises StoreError, OSError.

        `offset_of` returns the offset in the timer topic of the message at a byte of the commit log, None if there is
        none. `check_stop` is called at intervals and may raise to end the load, because rebuilding the wheel from a
        long log takes a while.
        """
        check = self._load_check()
        precision = self._config.precision_ms
        read_ms = max(check.read_ms // precision * precision, self.oldest_ms(now_ms))
        if read_ms > now_ms + self._config.slots // 2 * precision:
            log.warning("timer check has a future time, slots are checked again read_ms=%d", check.read_ms)
            read_ms = self.oldest_ms(now_ms)
        self.log.load()
        self.wheel.load(read_ms)
        units = list(_with_stops(self._consistent_units(check.log_position), check_stop))
        end = self._restore(units, check.log_position, read_ms, check_stop)
        if end is None:
            log.warning("timer wheel is inconsistent with its log, rebuilt from it path=%s", self.wheel.path)
            units = list(_with_stops(self._consistent_units(self.log.begin), check_stop))
            end = units[-1][0] + UNIT_SIZE if units else self.log.begin
            self.wheel.clear()
            self._replay(units, end, read_ms, check_stop)
        self.log.cut(end)
        queue_offset = self._queue_offset(check, [unit for position, unit in units if position < end], offset_of)
        self._checked = self._taken = msgspec.structs.replace(check, read_ms=read_ms, log_position=end)
        if check != TimerCheck() or units:
            log.info("timers loaded waiting=%d log_end=%d replayed=%d", self.wheel.waiting, end, len(units))
        return msgspec.structs.replace(self._taken, queue_offset=queue_offset)

    def oldest_ms(self, now_ms: int) -> int:
        """Return the earliest slot that may take a message at `now_ms`.

        An older slot would share its position on the wheel with a future slot, and its age would not fit into a unit.
        """
        precision = self._config.precision_ms
        slots = min(self._config.slots // 2 - RESERVED_SLOTS, INT32_MAX // precision)
        return (now_ms // precision - slots) * precision

    def _load_check(self) -> TimerCheck:
        try:
            with open(self._check_path, "rb") as file:
                return TimerCheck.decode(file.read(CHECK_SIZE))
        except FileNotFoundError:
            return TimerCheck()

    def _consistent_units(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield units from a position on, up to the first whose message would exceed the commit log."""
        for found in self.log.scan(position):
            if found[1].physical_offset + found[1].size > self._messages.max_physical_offset:
                return
            yield found

    def _restore(
        self, units: "Sequence[tuple[int, TimerUnit]]", position: int, read_ms: int, check_stop: Callable[[], None]
    ) -> int | None:
        """Put the units on the wheel up to the last one that is surely on disk: a slot or the check refers to it.

        Returns the end of that unit; None if the wheel is inconsistent.
        """
        present, torn = [max(min(position, self.log.end), self.log.begin) - UNIT_SIZE], []
        for time_ms, slot in _with_stops(self.wheel.slots(), check_stop):
            unit = self.log.unit(slot.last)
            if unit is not None and unit.slot_ms == time_ms:
                present.append(slot.last)
            else:
                torn.append(time_ms)
        before = {unit.slot_ms: unit.previous for _, unit in reversed(units)}
        for time_ms in torn:  # a power cut interrupted its write: its first unit after the check has its old value
            if time_ms not in before:
                return None
            self.wheel.put(time_ms, Slot(before[time_ms], before[time_ms]))
        end = max(present) + UNIT_SIZE
        self._replay(units, end, read_ms, check_stop)
        return end

    def _replay(
        self, units: "Sequence[tuple[int, TimerUnit]]", end: int, read_ms: int, check_stop: Callable[[], None]
    ) -> None:
        """Put units before `end` on the wheel, except those already there."""
        for position, unit in _with_stops(units, check_stop):
            if position >= end or unit.slot_ms < read_ms:
                continue
            before = self.wheel.slot(unit.slot_ms)
            if before.last < position:
                first_in_slot = unit.previous == NO_POSITION
                self.wheel.put(unit.slot_ms, slot_with_unit(EMPTY if first_in_slot else before, position, unit.magic))

    def _queue_offset(
        self, check: TimerCheck, units: "Sequence[TimerUnit]", offset_of: Callable[[int], int | None]
    ) -> int:
        """Return the offset of the first message in the timer topic that has no unit."""
        found = offset_of(units[-1].physical_offset) if units else None
        return check.queue_offset if found is None else max(check.queue_offset, found + 1)

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, units: Sequence[bytes], positions: Sequence[int]) -> None:
        """Append units to the log; create the files at the first call. After WriteRefused none of them counts."""
        begin = self.log.end
        try:
            self.wheel.make_file()
            self.log.append(units, positions)
        except OSError as problem:
            self.log.roll_back(begin)
            self._refused_units = self._note_refusal(problem, self._refused_units)
            raise WriteRefused(problem) from problem
        self._note_written(self._refused_units)
        self._refused_units = None

    def _note_refusal(self, problem: OSError, before: OSError | None) -> OSError:
        self._refusals += 1
        if before is None:
            log.error("timer messages are refused reason=%s error=%s", NOT_WRITTEN, problem)
        return problem

    def _note_written(self, before: OSError | None) -> None:
        if before is not None:
            log.info("timer files are written again after=%s", before)

    def step(self, now_ms: int, check: TimerCheck) -> None:
        """Begin a round if one is due, or continue the current one. `now_ms` is from a steady clock.

        `check` contains the progress of the timers and the current Unix time.
        """
        flusher = self._flusher
        if flusher is not None and flusher.failure is not None and not self._is_given_up:
            self._is_given_up = True
            log.critical("timer files not synced, a restart uses their last synced state error=%s", flusher.failure)
        if self._is_given_up:
            return
        if self._submitted is not None and (flusher is None or flusher.is_idle):
            self._conclude(self._submitted, now_ms)
            self._submitted = None
        if self._round is None and now_ms >= self._next_round_ms and (flusher is None or flusher.is_idle):
            self._next_round_ms = now_ms + self._config.flush_interval_ms
            self._begin_round(now_ms, check)
        if self._round is not None and self._messages.flushed_offset >= self._round.log_end:
            self._submit(self._round)
            self._round = None

    def stamped(self, check: TimerCheck) -> TimerCheck:
        """Return the progress with the end of the log of units and the version of the newest check.

        A slave puts the messages before `master_queue_offset` on its own wheel.
        """
        return msgspec.structs.replace(
            check,
            log_position=self.log.end,
            master_queue_offset=check.queue_offset,
            state_version=self._taken.state_version,
            counter=self._taken.counter,
        )

    def _begin_round(self, now_ms: int, check: TimerCheck) -> None:
        figures = self._figures(now_ms) or self._figures_left
        is_changed = self.log.is_changed or self.wheel.is_changed or self._refused_round is not None
        if not is_changed and figures is None and check.read_ms <= self._taken.read_ms:
            return
        files: list[Syncable] = self.log.take_unsynced()
        check = msgspec.structs.replace(self.stamped(check), counter=self._taken.counter + 1)
        wheel = None
        if self.wheel.is_changed or not self._is_wheel_synced:
            self._is_wheel_synced = True
            wheel = self.wheel.take_changed()
            files += wheel, DirtyDirectory(str(self._config.root), self._disk)
        self._figures_left = None
        if figures is not None:
            files.append(figures)
        self._taken = check
        files.append(CheckWrite(self._check_path, check, self._disk))
        self._round = _Round(self._messages.max_physical_offset, check, RoundWrite(files), wheel, figures)

    def _submit(self, taken: _Round) -> None:
        if self._flusher is None:
            self._flusher = Flusher("timer-flusher")
            self._flusher.start()
        self._submitted = taken
        self._flusher.submit(Target(taken.check.counter, taken.check.timestamp, (taken.write,)))

    def _conclude(self, taken: _Round, now_ms: int) -> None:
        """Process a finished round: it is on disk, or the next round repeats it."""
        refused = taken.write.refused
        if refused is None:
            self._checked = taken.check
            self._note_written(self._refused_round)
            self._refused_round = None
            return
        self._refused_round = self._note_refusal(refused, self._refused_round)
        if taken.wheel is not None:
            self.wheel.mark_changed(taken.wheel)
        self._figures_left = taken.figures
        self._next_round_ms = now_ms + RETRY_MS

    def remove_old(self, now_ms: int) -> None:
        """At intervals, drop log files whose messages the commit log no longer has. Raises OSError, ColdRead."""
        if now_ms >= self._next_remove_ms:
            self._next_remove_ms = now_ms + REMOVE_INTERVAL_MS
            self.log.remove_before(self._messages.min_physical_offset)

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self, now_ms: int, check: TimerCheck) -> None:
        """Write everything, provided that the commit log is on disk, and stop the thread."""
        self._next_round_ms = 0
        for _ in range(3):  # completes the current round, makes a last one, and processes its result
            if self._flusher is not None:
                self._flusher.wait_idle()
            self._next_round_ms = 0
            self.step(now_ms, check)
        self.close()

    def close(self) -> None:
        """Stop the thread and close descriptors; nothing more is written."""
        if self._flusher is not None:
            self._flusher.close()
            self._flusher = None
        self.reads.close()
        self.log.close()


def slot_with_unit(slot: Slot, position: int, magic: int) -> Slot:
    """Return a slot with one more unit."""
    first = position if slot.first == NO_POSITION else slot.first
    return Slot(first, position, slot.messages - 1 if magic & DELETE else slot.messages + 1)


def _with_stops(items: Iterable[T], check_stop: Callable[[], None]) -> Iterator[T]:
    """Yield the items; call `check_stop` before every STOP_CHECK_ITEMS of them."""
    for count, item in enumerate(items):
        if not count % STOP_CHECK_ITEMS:
            check_stop()
        yield item
