"""The state files of a restored store: written as the snapshot has them, then made to fit the restored log.

A committed offset beyond the end of its queue is cut to that end: a consumer would otherwise skip the next messages
that get these offsets. The same applies to the offsets of delay levels. A deletion of a topic counts up to the end of
the log, and an archive mark beyond it belongs to messages that this store does not have.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from isal.isal_zlib import crc32

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.manifest import LARGEST_STATE, QUEUES_FILE, Snapshot
from skylarkmq.broker.store.backup.source import LogEnd
from skylarkmq.broker.store.backup.state_snapshot import QueueEnds, queue_end
from skylarkmq.broker.store.files.disk import Disk, read_untrusted
from skylarkmq.broker.store.files.record_rules import may_have_queue
from skylarkmq.broker.store.fsck.offsets import OFFSETS_FILE
from skylarkmq.broker.store.fsck.segments import directories
from skylarkmq.broker.store.fsck.state import TOPICS_FILE, read_table
from skylarkmq.broker.store.queue.deleted_topics import DELETED_TOPICS_FILE
from skylarkmq.protocol.archive_mark import ARCHIVE_MARK_FILE, decode_mark
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from skylarkmq.protocol.codes import SystemTopic, is_internal_topic
from skylarkmq.protocol.disk import (
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILLER_UNIT,
    UNIT_SIZE,
    offset_file_name,
)

DELAY_OFFSETS_FILE: Final = "delayOffset.json"
_MAX_QUEUE_OFFSET: Final = (1 << 62) // UNIT_SIZE

T = TypeVar("T")


class RestoredState:
    """The state of one restore. `files`: content by name, {} without a snapshot."""

    def __init__(
        self, states: Path, snapshot: Snapshot | None, root: Path, end: LogEnd, disk: Disk, *, is_verified: bool
    ) -> None:
        """Read the snapshot. Raises BackupError if one of its files is missing or damaged."""
        self.snapshot = snapshot
        self._root = root
        self._end = end.offset
        self._disk = disk
        self.files: dict[str, bytes] = {}
        self.queue_ends: QueueEnds = {}
        self._states = states
        if snapshot is not None:
            self.files = _files_of(states / snapshot.directory, snapshot, is_verified=is_verified)
        self.queue_ends = self._decoded(QUEUES_FILE, _decode_queue_ends) or {}
        self.files.pop(QUEUES_FILE, None)

    def write(self) -> None:
        """Write the files to config/, readable by this user only, as some contain secrets."""
        self._limit_deletions()
        self._drop_later_archive_mark()
        for name, data in self.files.items():
            self._write(name, data)

    def _decoded(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the content of a file; None without the file. Raises BackupError if it is damaged."""
        data = self.files.get(name)
        if data is None:
            return None
        try:
            return decode(data)
        except (ValueError, RecursionError) as problem:
            raise BackupError(
                f"{name} in {self._states} is damaged ({problem}): restore an earlier state with --until"
            ) from None

    def _write(self, name: str, data: bytes) -> None:
        self._disk.write_private_file(f"{self._root}/{CONFIG_DIRECTORY}/{name}", data)

    def _limit_deletions(self) -> None:
        """Let deletions of topics count up to the end of the log, so that they do not cover later messages."""
        deleted = self._decoded(DELETED_TOPICS_FILE, msgspec.json.Decoder(dict[str, int]).decode)
        if deleted is not None:
            ends = {topic: min(end, self._end) for topic, end in deleted.items()}
            self.files[DELETED_TOPICS_FILE] = msgspec.json.encode(ends, order="sorted")

    def _drop_later_archive_mark(self) -> None:
        data = self.files.get(ARCHIVE_MARK_FILE)
        try:
            is_later = data is not None and decode_mark(data).low_water_mark > self._end
        except ValueError:
            is_later = True
        if is_later:
            del self.files[ARCHIVE_MARK_FILE]

    def cut_offsets(self) -> list[str]:
        """Cut offsets that lie beyond the ends of their queues. Return a line for each."""
        cut: list[str] = []
        committed = self._decoded(OFFSETS_FILE, ConsumerOffsets.decode)
        if committed is not None:
            for name, offsets in sorted(committed.offset_table.items()):
                topic, _, group = name.partition("@")
                cut += self._cut(f"group {group!r} had committed", topic, offsets, lambda queue_id: queue_id)
            if cut:
                self._write(OFFSETS_FILE, committed.encode())
        delayed = self._decoded(DELAY_OFFSETS_FILE, DelayOffsets.decode)
        if delayed is not None:
            of_levels = self._cut(
                "the delay levels had delivered", SystemTopic.SCHEDULE, delayed.offset_table, lambda level: level - 1
            )
            if of_levels:
                self._write(DELAY_OFFSETS_FILE, delayed.encode())
            cut += of_levels
        return cut

    def _cut(self, done: str, topic: str, offsets: dict[int, int], queue_of: Callable[[int], int]) -> list[str]:
        """Cut a table of one topic in place. Queues without files are ignored: their topic was deleted."""
        lines = []
        for key, offset in offsets.items():
            queue_id = queue_of(key)
            directory = f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}"
            if not (self._root / directory).is_dir():
                continue
            end = queue_end(self._root, directory)
            if offset > end:
                offsets[key] = end
                lines.append(f"{done} {offset} of {topic!r}-{queue_id}, which ends at {end}")
        return lines

    def missing(self) -> list[str]:
        """Return a line for the topics that have messages and no definition; [] without a snapshot."""
        if self.snapshot is None:
            return []
        table = read_table(self._root, TOPICS_FILE).get("topicConfigTable")
        known = set(table) if isinstance(table, dict) else set()
        new = [
            topic
            for topic in directories(self._root / CONSUME_QUEUE_DIRECTORY)
            if topic not in known and not is_internal_topic(topic)
        ]
        if not new:
            return []
        names = ", ".join(repr(topic) for topic in new[:20]) + (f" and {len(new) - 20} more" if len(new) > 20 else "")
        return [f"the definitions of {names}: the broker's start creates them with default settings"]


def _files_of(directory: Path, snapshot: Snapshot, *, is_verified: bool) -> dict[str, bytes]:
    files = {}
    left = LARGEST_STATE
    for name, crc in snapshot.files.items():
        path = directory / name
        try:
            data = read_untrusted(path, left)
        except OSError as problem:
            raise BackupError(
                f"{path} is missing or damaged ({problem.strerror}): restore an earlier state with --until"
            ) from problem
        if is_verified and crc32(data) != crc:
            raise BackupError(f"{path} is missing or damaged (checksum): restore an earlier state with --until")
        files[name] = data
        left -= len(data)
    return files


def _decode_queue_ends(data: bytes) -> QueueEnds:
    ends = msgspec.json.decode(data, type=QueueEnds)
    for topic, queues in ends.items():
        for queue_id, end in queues.items():
            if not may_have_queue(topic, queue_id) or not 0 < end <= _MAX_QUEUE_OFFSET:
                raise ValueError(f"{topic!r}-{queue_id} ends at {end}")
    return ends


def fill_queues(root: Path, ends: QueueEnds, segment_size: int, disk: Disk) -> None:
    """Give queues that have no record in the log their end, by filler units in one file."""
    for topic, queues in ends.items():
        for queue_id, end in queues.items():
            directory = f"{root}/{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}"
            if os.path.isdir(directory):
                continue
            start = (end * UNIT_SIZE - 1) // segment_size * segment_size
            disk.make_directory(directory)
            fd = disk.create_sparse(f"{directory}/{offset_file_name(start)}", segment_size)
            try:
                disk.pwrite(fd, FILLER_UNIT * (end - start // UNIT_SIZE), 0)
                disk.fsync(fd)
            finally:
                os.close(fd)
            disk.sync_directory(directory)
