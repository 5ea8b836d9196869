"""The state beside the log: topics, groups, offsets, timers. Read before the end of the log is determined.

All files of config/ are copied, each as its last complete save left it: they are replaced by a rename. Files that refer
to others are read first (committed offsets before topics), so that no reference is newer than its target. Backups
(`.bak`), which are older, are used in place of a damaged file only.

Queues are rebuilt from the log by a restore. The log does not contain the end of a queue whose messages have all
expired, so `queues.json` contains these: topic -> queue id -> end.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.backup.manifest import LARGEST_STATE
from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.record_rules import may_have_queue
from skylarkmq.broker.store.files.state_file import BACKUP_SUFFIX
from skylarkmq.broker.store.fsck.segments import directories, segment_files
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX, parse_queue_id
from skylarkmq.protocol.disk import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILLER_RECORD_SIZE,
    UNIT,
    UNIT_SIZE,
)
from skylarkmq.protocol.javajson import loads
from skylarkmq.protocol.timers import CHECK_FILE, TimerCheck

_FIRST: Final = ("consumerOffset.json", "delayOffset.json", CHECK_FILE)
_TABLE_SUFFIX: Final = ".json"
FOREIGN_DIRECTORIES: Final = (BATCH_CONSUME_QUEUE_DIRECTORY, "consumequeue_ext", "compaction")
"""Data of RocketMQ that this broker does not use and that a backup does not contain."""

QueueEnds = dict[str, dict[int, int]]


class State(msgspec.Struct, frozen=True):
    """Files of config/ by name, and the ends of queues that the log does not contain. `warnings`: for operators."""

    files: dict[str, bytes]
    queue_ends: QueueEnds
    warnings: list[str]

    @property
    def timer_check(self) -> TimerCheck | None:
        """The progress of the timers; None if the store never had a timer message."""
        data = self.files.get(CHECK_FILE)
        return None if data is None else TimerCheck.decode(data)


def read_state(root: Path) -> State:
    """Return the state of a store. Raises StoreError if a file and its backup are damaged."""
    warnings = [f"{name}/ is not part of a backup" for name in FOREIGN_DIRECTORIES if (root / name).is_dir()]
    if any(topic.startswith(LIGHT_QUEUE_PREFIX) for topic in directories(root / CONSUME_QUEUE_DIRECTORY)):
        warnings.append(f"light queues ({LIGHT_QUEUE_PREFIX}...) are not part of a backup")
    directory = root / CONFIG_DIRECTORY
    names = {
        name.removesuffix(BACKUP_SUFFIX)
        for name in (os.listdir(directory) if directory.is_dir() else ())
        if not name.endswith(TEMPORARY_SUFFIX) and (directory / name).is_file()
    }
    for name in sorted(name for name in names if not _is_text(name)):
        names.remove(name)
        warnings.append(f"{directory}/{name!a} is not part of a backup: its name is not UTF-8")
    files = {}
    for name in sorted(names, key=lambda name: (name not in _FIRST, name)):
        data = _read_file(directory / name, warnings)
        if data is not None:
            files[name] = data
    if sum(map(len, files.values())) > LARGEST_STATE:
        raise StoreError(f"the files in {directory} have more than {LARGEST_STATE} bytes: no restore reads so many")
    return State(files, _expired_queue_ends(root), warnings)


def _is_text(name: str) -> bool:
    """Return whether the manifest, which is JSON, can contain the name of a file."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_file(path: Path, warnings: list[str]) -> bytes | None:
    """Return the content of a file or of its backup; None if there is neither."""
    problem = ""
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        damage = _damage(data) if path.name.endswith(_TABLE_SUFFIX) else ""
        if not damage:
            if candidate != path:
                warnings.append(f"{path} is missing or damaged, its backup is used")
            return data
        problem = problem or f"{candidate} is damaged ({damage})"
    if problem:
        raise StoreError(f"{problem}, and it has no usable backup: no broker starts with it; restore or remove it")
    return None


def _damage(data: bytes) -> str:
    """Return why these bytes are no state file; "" if they are one."""
    if not data.strip():
        return "empty"
    try:
        loads(data, max_bytes=LARGEST_STATE)
    except ValueError as problem:
        return str(problem)
    return ""


def _expired_queue_ends(root: Path) -> QueueEnds:
    """Return the ends of all queues whose last unit refers to a record before the log, or to none."""
    log = segment_files(root, COMMIT_LOG_DIRECTORY)
    log_start = log[0].start if log else 0
    batch_topics = frozenset(directories(root / BATCH_CONSUME_QUEUE_DIRECTORY))
    ends: QueueEnds = {}
    for topic in directories(root / CONSUME_QUEUE_DIRECTORY):
        if topic.startswith(LIGHT_QUEUE_PREFIX) or topic in batch_topics:
            continue
        for name in directories(root / CONSUME_QUEUE_DIRECTORY / topic):
            queue_id = parse_queue_id(name)
            if queue_id is None or not may_have_queue(topic, queue_id):
                continue
            end = _end_without_record(root, f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{name}", log_start)
            if end:
                ends.setdefault(topic, {})[queue_id] = end
    return {topic: dict(sorted(queues.items())) for topic, queues in ends.items()}


def _end_without_record(root: Path, directory: str, log_start: int) -> int:
    """Return the end of a queue if its last unit has no record in the log; else 0."""
    end, offset, size = _last_unit(root, directory)
    has_record = size != FILLER_RECORD_SIZE and offset >= log_start
    return 0 if has_record else end


def queue_end(root: Path, directory: str) -> int:
    """Return the offset after the last unit of a queue; 0 without files. `directory` is relative to the root."""
    return _last_unit(root, directory)[0]


def _last_unit(root: Path, directory: str) -> tuple[int, int, int]:
    """Return the end of a queue, and physical offset and size in its last unit; zeros for an empty queue."""
    for segment in reversed(segment_files(root, directory)):
        try:
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # retention has deleted it
            break
        try:
            count = _unit_count(fd, segment.length // UNIT_SIZE)
            if count:
                return segment.start // UNIT_SIZE + count, *_unit(fd, count - 1)
        finally:
            os.close(fd)
    return 0, 0, 0


def _unit_count(fd: int, limit: int) -> int:
    """Return the number of units at the beginning of a queue file, which are followed by zeros."""
    low, high = 0, limit
    while low < high:
        middle = (low + high) // 2
        if _unit(fd, middle)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low


def _unit(fd: int, number: int) -> tuple[int, int]:
    data = os.pread(fd, UNIT_SIZE, number * UNIT_SIZE)
    offset, size, _ = UNIT.unpack(data) if len(data) == UNIT_SIZE else (0, 0, 0)
    return offset, size
