"""The timer files of a restored store: the copied timer log, and a wheel that is rebuilt from it.

The wheel gets all units of the timer log whose slot was not delivered at the time of the snapshot. The broker's start
reads the messages of the timer topic that have no unit, as after a crash. If the snapshot is later than the
log, units of messages that the log does not contain are dropped, and the slots from the log's last store time on count
as not delivered.
"""

import os
from pathlib import Path

import msgspec

from skylarkmq.broker.store.backup.copied_files import check_checksum, opened
from skylarkmq.broker.store.backup.copying import Copier
from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.manifest import LOG_ROOT, Manifest
from skylarkmq.broker.store.backup.restored_state import RestoredState
from skylarkmq.broker.store.backup.source import LogEnd
from skylarkmq.broker.store.backup.state_snapshot import queue_end
from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.config import SMALLEST_TIMER_LOG_FILE
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.timer.files import slot_with_unit
from skylarkmq.broker.store.timer.timer_log import TimerLog
from skylarkmq.broker.store.timer.wheel import EMPTY, TimerWheel
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.disk import CONFIG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, offset_file_name
from skylarkmq.protocol.timers import CHECK_FILE, LOG_DIRECTORY, NO_POSITION, WHEEL_FILE, TimerCheck


class RestoredTimers:
    """The timers of one restore."""

    def __init__(
        self,
        source: Path,
        root: Path,
        manifest: Manifest,
        state: RestoredState,
        end: LogEnd,
        disk: Disk,
        *,
        is_verified: bool,
    ) -> None:
        self._files = source / LOG_ROOT / LOG_DIRECTORY
        self._root = root
        self._manifest = manifest
        self._snapshot = state.snapshot
        self._end = end
        self._disk = disk
        self._is_verified = is_verified
        data = state.files.get(CHECK_FILE)
        self._check = TimerCheck.decode(data) if data is not None else None

    def restore(self, precision_ms: int, slots: int) -> list[str]:
        """Copy the timer log, and rebuild the wheel. Call it before the queues exist. Return what is missing."""
        check, snapshot = self._check, self._snapshot
        if check is None or snapshot is None:
            return []
        if snapshot.timer_end < check.log_position:
            self._disk.unlink(f"{self._root}/{CONFIG_DIRECTORY}/{CHECK_FILE}")
            self._check = None
            return ["the timer log of this state: timer messages in the log are delivered again"]
        end = check.log_position
        if snapshot.log_end > self._end.offset:
            check = msgspec.structs.replace(check, read_ms=min(check.read_ms, self._end.store_time))
        if self._copy_log(end):
            end = self._build_wheel(check, end, precision_ms, slots)
        self._check = msgspec.structs.replace(check, log_position=end)
        return []

    def _copy_log(self, end: int) -> bool:
        """Copy the timer log up to position `end`. Return whether there is any."""
        size = self._manifest.timer_segment_size
        copied = [segment for segment in self._manifest.timer_log if segment.start < end]
        if copied and size < SMALLEST_TIMER_LOG_FILE:
            raise BackupError(f"{self._files} has files of {size} bytes: use another backup")
        for segment in copied:
            name = offset_file_name(segment.start)
            length = min(end - segment.start, size)
            if segment.length < length:
                raise BackupError(f"{self._files}/{name} is incomplete: repeat the backup, or restore with --until")
            self._disk.make_directory(f"{self._root}/{LOG_DIRECTORY}")
            fd = self._disk.create_sparse(f"{self._root}/{LOG_DIRECTORY}/{name}", size)
            try:
                with opened(self._files / name, length) as source:
                    crc = Copier(self._disk, 0).copy(source, fd, 0, length)
                self._disk.fsync(fd)
            finally:
                os.close(fd)
            if self._is_verified:
                check_checksum(self._files / name, segment, length, crc)
        return bool(copied)

    def _build_wheel(self, check: TimerCheck, end: int, precision_ms: int, slots: int) -> int:
        """Write the wheel, and cut the log at the first unit whose message the log lacks. Return the log's end."""
        reads = ColdReads(1)
        log = TimerLog(f"{self._root}/{LOG_DIRECTORY}", self._manifest.timer_segment_size, self._disk, reads)
        wheel = TimerWheel(f"{self._root}/{WHEEL_FILE}", precision_ms, self._disk, slots)
        try:
            log.load()
            read_ms = check.read_ms // precision_ms * precision_ms
            for position, unit in log.scan(log.begin):
                if position >= end:
                    break
                if unit.physical_offset + unit.size > self._end.offset:
                    end = position
                    break
                if unit.slot_ms >= read_ms:
                    before = EMPTY if unit.previous == NO_POSITION else wheel.slot(unit.slot_ms)
                    wheel.put(unit.slot_ms, slot_with_unit(before, position, unit.magic))
            log.cut(end)
            for file in log.take_unsynced():
                file.sync()
            wheel.make_file()
            wheel.take_changed().sync()
        finally:
            log.close()
            reads.close()
        return end

    def write_check(self) -> None:
        """Write the check file. Call it when the queues are rebuilt: it refers to the timer topic's queue."""
        if self._check is None:
            return
        directory = f"{CONSUME_QUEUE_DIRECTORY}/{SystemTopic.TIMER}/0"
        queue_offset = min(self._check.queue_offset, queue_end(self._root, directory))
        check = msgspec.structs.replace(self._check, queue_offset=queue_offset, master_queue_offset=queue_offset)
        self._disk.write_file(f"{self._root}/{CONFIG_DIRECTORY}/{CHECK_FILE}", check.encode())
