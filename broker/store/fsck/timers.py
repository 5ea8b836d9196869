"""Checks the timer files: the check file, the log of units, the wheel, and the links between them.

    timercheck ─▶ up to where log and wheel are reliable
    slot       ─▶ last unit ─▶ previous unit ... ─▶ first unit, all of the slot's time
    unit       ─▶ record in the commit log, of the unit's size

Only units that the check file covers are examined: a start puts later units on the wheel again, or truncates them.
Slots whose time is over contain stale data. The duration of a wheel step is derived from the files: a unit contains its
time in ms, its slot the time in steps.

Source: docs/reference/disk.md, "Timer files".
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.broker.store.fsck.segments import SegmentFile, check_segments, segment_files
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, CONFIG_DIRECTORY
from skylarkmq.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from skylarkmq.protocol.timers import (
    CHECK_FILE,
    CHECK_SIZE,
    DELETE,
    LOG_BLANK_SIZE,
    LOG_DIRECTORY,
    NO_POSITION,
    SLOT,
    SLOT_SIZE,
    UNIT_SIZE,
    WHEEL_FILE,
    TimerCheck,
    TimerUnit,
)

USUAL_STEP_MS: Final = 1_000
_PIECE_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = PHYSICAL_OFFSET_AT + 8
_WHEEL_REBUILT: Final = "a start rebuilds the wheel from the timer log"


class TimerFilesCheck:
    """The check of the timer files of a store, against its commit log. Problems are added to `found`."""

    def __init__(self, root: Path, found: Findings) -> None:
        self._root = root
        self._found = found
        self._log = segment_files(root, COMMIT_LOG_DIRECTORY)
        self._files = segment_files(root, LOG_DIRECTORY)
        self._size = max((file.length for file in self._files), default=0)
        self._check = TimerCheck()
        self._descriptors: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<TimerFilesCheck {self._root} files={len(self._files)}>"

    def run(self) -> None:
        """Run all checks; none if the store never had a timer message."""
        try:
            if self._read_check():
                check_segments(self._files, self._size, self._found)
                self._check_units()
                self._check_wheel()
        finally:
            for fd in self._descriptors.values():
                os.close(fd)
            self._descriptors.clear()

    def _add(self, severity: Severity, file: str, at: int | None, what: str, follows: str) -> None:
        self._found.add("timers", Finding(severity, file, at, what, follows))

    def _read_check(self) -> bool:
        file = f"{CONFIG_DIRECTORY}/{CHECK_FILE}"
        path = self._root / file
        if not path.exists():
            if self._files:
                self._add(Severity.NOTE, LOG_DIRECTORY, None, f"no {file}", "all timers are put on the wheel again")
            return False
        data = path.read_bytes()
        if len(data) != CHECK_SIZE:
            what = f"{len(data)} bytes instead of {CHECK_SIZE}"
            self._add(Severity.WARNING, file, 0, what, "missing fields count as zero: timers may be redelivered")
        self._check = check = TimerCheck.decode(data)
        end = self._files[-1].start + self._size if self._files else 0
        if check.log_position > end or check.log_position < 0:
            what = f"covers the timer log up to {check.log_position}, which ends at {end}"
            self._add(Severity.WARNING, file, 8, what, "a start reads pending timers from the existing log")
        return True

    # ------------------------------------------------------------------------------------------------ units

    def _check_units(self) -> None:
        """Check the units that the check file covers: each is valid, and its record exists."""
        end = self._check.log_position
        for file in self._files:
            last = file.start + self._size - UNIT_SIZE - LOG_BLANK_SIZE
            for position, data, at in self._positions(file, min(end, last + 1)):
                unit = TimerUnit.decode(data, at)
                if unit is None or unit.previous >= position:
                    follows = "timers with earlier units in the same slot are not delivered"
                    self._add(Severity.DAMAGE, file.name, position - file.start, "not a timer log unit", follows)
                elif (problem := self._problem_of(unit)) is not None:
                    self._add(Severity.DAMAGE, file.name, position - file.start, problem, "this timer is dropped")

    def _positions(self, file: SegmentFile, end: int) -> Iterator[tuple[int, bytes, int]]:
        """Yield the positions before `end` at which a file has units, with the bytes read and the index in them."""
        with open(file.path, "rb") as stream:
            position = file.start
            while position < end and (data := stream.read(_PIECE_BYTES // UNIT_SIZE * UNIT_SIZE)):
                for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
                    if position >= end:
                        return
                    yield position, data, at
                    position += UNIT_SIZE

    def _problem_of(self, unit: TimerUnit) -> str | None:
        """Return the problem of the message that a unit refers to; None if it is valid or its record has expired."""
        offset = unit.physical_offset
        if self._log and offset < self._log[0].start:
            return None
        segment = next((one for one in reversed(self._log) if one.start <= offset), None)
        if segment is None or offset + unit.size > segment.start + segment.length:
            return f"its message at byte {offset} is not in the log"
        head = os.pread(self._fd(segment.path), _HEAD_BYTES, offset - segment.start)
        size, magic = BLANK.unpack_from(head.ljust(_HEAD_BYTES, b"\0"))
        own_offset = int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big")
        if magic not in {MAGIC_V1, MAGIC_V2} or (size, own_offset) != (unit.size, offset):
            return f"no message of {unit.size} bytes at byte {offset} of the log"
        return None

    def _fd(self, path: str) -> int:
        fd = self._descriptors.get(path)
        if fd is None:
            fd = self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    # ------------------------------------------------------------------------------------------------ wheel

    def _check_wheel(self) -> None:
        path = self._root / WHEEL_FILE
        if not path.exists():
            if self._check.log_position:
                self._add(Severity.WARNING, WHEEL_FILE, None, "no wheel", _WHEEL_REBUILT)
            return
        length = path.stat().st_size
        if not length or length % SLOT_SIZE:
            self._add(Severity.WARNING, WHEEL_FILE, 0, f"{length} bytes, not a whole number of slots", _WHEEL_REBUILT)
            return
        step_ms = 0
        for number, time, first, last, count in _stored_slots(path):
            if time % (length // SLOT_SIZE) != number or last < 0:
                continue
            unit = self._unit(last)
            if not step_ms and unit is not None and unit.slot_ms % time == 0:
                step_ms = unit.slot_ms // time
            if time * (step_ms or USUAL_STEP_MS) >= self._check.read_ms and last < self._check.log_position:
                self._check_chain(number * SLOT_SIZE, time * (step_ms or USUAL_STEP_MS), first, last, count)

    def _check_chain(self, at: int, slot_ms: int, first: int, last: int, count: int) -> None:
        position, before, messages = last, NO_POSITION, 0
        while position != NO_POSITION:
            unit = self._unit(position)
            if unit is None or unit.slot_ms != slot_ms or unit.previous >= position:
                what = f"its chain leads to position {position}, where there is no unit of its time"
                self._add(Severity.WARNING, WHEEL_FILE, at, what, _WHEEL_REBUILT)
                return
            messages += -1 if unit.magic & DELETE else 1
            position, before = unit.previous, position
        if before != first or messages != count:
            what = f"its chain begins at {before} and counts {messages}, the slot states {first} and {count}"
            self._add(Severity.NOTE, WHEEL_FILE, at, what, "only used for statistics")

    def _unit(self, position: int) -> TimerUnit | None:
        file = next((one for one in reversed(self._files) if one.start <= position), None)
        if file is None or position + UNIT_SIZE > file.start + file.length:
            return None
        data = os.pread(self._fd(file.path), UNIT_SIZE, position - file.start)
        return TimerUnit.decode(data) if len(data) == UNIT_SIZE else None


def _stored_slots(path: Path) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, time, first and last position, and count of every slot that was ever used."""
    piece_bytes = _PIECE_BYTES // SLOT_SIZE * SLOT_SIZE
    with path.open("rb") as stream:
        at = 0
        while data := stream.read(piece_bytes):
            if any(data):
                for number, fields in enumerate(_slots_of(data), at // SLOT_SIZE):
                    if fields[0]:
                        yield number, *fields[:4]
            at += len(data)


def _slots_of(data: bytes) -> Sequence[tuple[int, int, int, int, int]]:
    return list(SLOT.iter_unpack(data[: len(data) // SLOT_SIZE * SLOT_SIZE]))
