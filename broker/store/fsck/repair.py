"""Rebuilds queues and index from the log, beside the old ones, and then replaces those.

    1  take the lock: no broker may run
    2  build below <root>/repair/ the unit and the index items of each record, with the queues and the index of a broker
    3  sync all of it
    4  consumequeue -> consumequeue.before-repair-<time>, repair/consumequeue -> consumequeue; the index likewise

Recovery's rule decides which records get a unit (broker.store.recovery.queue_order); the old queues are its evidence.

The log is only read: damage in it stays, and valid records after it keep their units. Data that the log does not
contain is copied: units of messages that retention deleted, which determine a queue's offsets; light queues; queues
under batchconsumequeue/. A power cut between two renames leaves a store without queues or index; the next start
rebuilds them.

Source: docs/reference/disk.md, "Dispatch", "ConsumeQueue", "IndexFile".
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.record_rules import has_unit, may_have_queue
from skylarkmq.broker.store.fsck.directory import deleted_topics
from skylarkmq.broker.store.fsck.findings import Finding, Findings, OnProgress, Severity, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.queue_files import QueueOnDisk
from skylarkmq.broker.store.fsck.queues import unit_tags_code
from skylarkmq.broker.store.fsck.segments import directories
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.broker.store.fsck.state import is_crashed
from skylarkmq.broker.store.index.index import Index
from skylarkmq.broker.store.log.running_flags import RunningFlags
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX, parse_queue_id
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.queue.tail import pack_units
from skylarkmq.broker.store.recovery.lock_and_abort import RunningFiles
from skylarkmq.broker.store.recovery.queue_evidence import QueueEvidence
from skylarkmq.broker.store.recovery.queue_order import Key, QueueOrder
from skylarkmq.protocol.disk import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILLER_RECORD_SIZE,
    INDEX_DIRECTORY,
    UNIT_SIZE,
    offset_file_name,
)
from skylarkmq.protocol.record import Record
from skylarkmq.protocol.unit_search import UNIT_DTYPE

STAGING_DIRECTORY: Final = "repair"
_KEPT_SUFFIX: Final = ".before-repair-"
_OPEN_QUEUE_FILES: Final = 512
_PENDING_UNITS: Final = 1 << 16  # units collected before they are written


class Repaired(msgspec.Struct, frozen=True):
    """Result of a repair. `kept`: the replaced directories. `damage`: findings in the log, which are not repaired."""

    records: int
    queues: int
    index_files: int
    kept: list[str]
    damage: list[Finding]


def repair(
    root: Path,
    sizes: Sizes,
    *,
    delay_levels: Sequence[int],
    now_ms: int,
    disk: Disk | None = None,
    progress: OnProgress = no_progress,
) -> Repaired:
    """Rebuild queues and index of `root`. Raises StoreLockedError if a broker runs. OSError: nothing was replaced."""
    disk = disk or Disk()
    running = RunningFiles(root, disk)
    running.lock()
    try:
        return rebuild(root, sizes, delay_levels=delay_levels, now_ms=now_ms, disk=disk, progress=progress)
    finally:
        running.unlock()


def rebuild(
    root: Path,
    sizes: Sizes,
    *,
    delay_levels: Sequence[int],
    now_ms: int,
    disk: Disk,
    progress: OnProgress = no_progress,
) -> Repaired:
    """Do the same for a caller that has the lock."""
    staging = root / STAGING_DIRECTORY
    try:
        shutil.rmtree(staging, ignore_errors=True)
        found = Findings()
        log = LogCheck(root, sizes.commit_log, found, crashed=is_crashed(root), progress=progress)
        build = _Build(root, staging, sizes, log, disk, delay_levels, now_ms)
        build.copy_old_units()
        for records in log.records():
            build.add(records)
        build.finish()
        damage = [finding for finding in (*found.take(), *found.summaries()) if finding.severity is Severity.DAMAGE]
        kept = _replace(root, staging, now_ms, disk)
        disk.remove_directory(str(staging))
        return Repaired(log.records_read, build.queues, build.index_files, kept, damage)
    except (Exception, KeyboardInterrupt):
        shutil.rmtree(staging, ignore_errors=True)
        raise


class _Units:
    """Units of one queue that are not written yet; the last of them has offset `next` - 1."""

    __slots__ = ("fields", "next", "queue")

    def __init__(self, queue: ConsumeQueue, first: int) -> None:
        self.queue = queue
        self.next = first
        self.fields: list[int] = []

    def write(self) -> None:
        """Write the units. Raises OSError."""
        fields, self.fields = self.fields, []
        if fields:
            self.queue.write_units(self.next - len(fields) // 3, pack_units(fields))


class _Build:
    """Builds queues and index in `staging`, which has the layout of a store root."""

    def __init__(
        self,
        root: Path,
        staging: Path,
        sizes: Sizes,
        log: LogCheck,
        disk: Disk,
        delay_levels: Sequence[int],
        now_ms: int,
    ) -> None:
        self._root = root
        self._staging = staging
        self._sizes = sizes
        self._log = log
        self._disk = disk
        self._deleted = deleted_topics(root)
        self._batch_topics = frozenset(directories(root / BATCH_CONSUME_QUEUE_DIRECTORY))
        self._files = QueueFiles(str(staging / CONSUME_QUEUE_DIRECTORY), sizes.consume_queue, _OPEN_QUEUE_FILES, disk)
        self._table = QueueTable(staging, self._files, disk)
        self._delay_levels = delay_levels
        self._index = Index(staging, sizes.index, disk, lambda: now_ms, RunningFlags(lambda: None))
        self._old_queues: dict[Key, QueueOnDisk] = {}  # the queues that will be replaced
        self._units: dict[Key, _Units] = {}
        self._pending = 0
        evidence = QueueEvidence(self._old_queues.get, lambda _: None, lambda _: False, log.start)
        evidence.start = log.start
        self._order = QueueOrder(evidence, self._accept, lambda _record, _reason: None)
        self._damages = 0
        self.queues = 0
        self.index_files = 0

    def copy_old_units(self) -> None:
        """Copy data that the log does not contain: foreign queues, and units of messages that retention deleted."""
        self._disk.make_directory(str(self._staging / CONSUME_QUEUE_DIRECTORY))
        for topic in directories(self._root / CONSUME_QUEUE_DIRECTORY):
            source = self._root / CONSUME_QUEUE_DIRECTORY / topic
            if topic.startswith(LIGHT_QUEUE_PREFIX) or topic in self._batch_topics:
                shutil.copytree(source, self._staging / CONSUME_QUEUE_DIRECTORY / topic)
                continue
            for name in directories(source):
                queue_id = parse_queue_id(name)
                if queue_id is not None and may_have_queue(topic, queue_id):
                    self._copy_expired_units(topic, queue_id)
        self._table.load()

    def _copy_expired_units(self, topic: str, queue_id: int) -> None:
        queue = QueueOnDisk(self._root, topic, queue_id, self._sizes.consume_queue)
        queue.check(Findings(), Severity.NOTE)
        self._old_queues[topic, queue_id] = queue
        per_file = self._sizes.consume_queue // UNIT_SIZE
        offset = queue.begin
        while offset < queue.end:
            data = queue.read(offset, per_file - offset % per_file)
            count = _expired(data, self._log.start)
            if count:
                start = offset * UNIT_SIZE
                directory = self._staging / CONSUME_QUEUE_DIRECTORY / topic / str(queue_id)
                path = f"{directory}/{offset_file_name(start)}"
                self._files.create(path)
                self._files.write(path, data[: count * UNIT_SIZE], 0)
            if count * UNIT_SIZE < len(data) or not data:
                break
            offset += count

    def add(self, records: Sequence[Record]) -> None:
        """Add the next records of the log."""
        wanted = records
        if self._deleted:
            wanted = [record for record in records if record.physical_offset >= self._deleted.get(record.topic, 0)]
        if self._log.damages != self._damages:
            self._damages = self._log.damages
            self._order.pass_gap()
        for record in wanted:
            if has_unit(record.sys_flag) and record.topic not in self._batch_topics:
                self._order.add(record)
        if self._pending >= _PENDING_UNITS:
            self._write_units()
        self._index.add(wanted)
        self._check_index()

    def _accept(self, record: Record, _gap_begin: int) -> None:
        key = record.topic, record.queue_id
        units = self._units.get(key)
        if units is None:
            units = self._units[key] = _Units(self._table.make(*key), record.queue_offset)
        elif record.queue_offset != units.next:
            units.write()
            units.next = record.queue_offset
        units.fields += (record.physical_offset, record.size, unit_tags_code(record, self._delay_levels))
        units.next += 1
        self._pending += 1

    def _write_units(self) -> None:
        for units in self._units.values():
            units.write()
        self._pending = 0

    def _check_index(self) -> None:
        if self._index.failure is not None:
            raise self._index.failure

    def finish(self) -> None:
        """Sync and close all files."""
        self._order.finish()
        self._write_units()
        for index_file in self._index.take_all():
            index_file.sync()
        self._check_index()
        self.index_files = len(self._index.files)
        self.queues = len(self._table.by_key)
        self._index.close()
        for item in self._files.take_dirty(0):
            item.sync()
        self._files.close()
        for directory in (INDEX_DIRECTORY, CONSUME_QUEUE_DIRECTORY):
            if (self._staging / directory).is_dir():
                self._disk.sync_directory(str(self._staging / directory))


def _expired(data: bytes, log_start: int) -> int:
    """Return how many units at the front are fillers, or of records before byte `log_start` of the log."""
    units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
    offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    is_expired = (sizes == FILLER_RECORD_SIZE) | ((sizes > 0) & (offsets >= 0) & (offsets + sizes <= log_start))
    others = np.flatnonzero(~is_expired)
    return int(others[0]) if len(others) else len(units)


def _replace(root: Path, staging: Path, now_ms: int, disk: Disk) -> list[str]:
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
    kept = []
    for directory in (CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY):
        if (root / directory).is_dir():
            kept.append(f"{directory}{_KEPT_SUFFIX}{stamp}")
            disk.rename(str(root / directory), str(root / kept[-1]))
        if (staging / directory).is_dir():
            disk.rename(str(staging / directory), str(root / directory))
        disk.sync_directory(str(root))
    return kept
