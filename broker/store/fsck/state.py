"""Checks the small files of a store: checkpoint, abort, lock, and the JSON tables under config/.

Only their form is checked, so that the parts that load a table find one. Binary tables and those without an extension
are checked by the parts that read them.

Source: docs/reference/disk.md, "Checkpoint", "abort and lock", "State files".
"""

import os
from pathlib import Path
from typing import Any, Final

from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX
from skylarkmq.broker.store.files.state_file import BACKUP_SUFFIX
from skylarkmq.broker.store.flush.undecided_records import UNDECIDED_RECORDS_FILE
from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.broker.store.fsck.segments import written
from skylarkmq.protocol.disk import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    CHECKPOINT_SIZE,
    CONFIG_DIRECTORY,
    HA_STATE_FILE,
    LOCK_FILE,
    Checkpoint,
)
from skylarkmq.protocol.javajson import loads

TABLE_SUFFIX: Final = ".json"
TOPICS_FILE: Final = "topics.json"
LISTS: Final = frozenset({UNDECIDED_RECORDS_FILE})
"""Files with a list, not a table."""
_LARGEST_TABLE: Final = 1 << 30
_CHECKPOINT_FIELDS_SIZE: Final = 40
_LOCK_SIZE: Final = 4


def is_crashed(root: Path) -> bool:
    """Return whether the last broker here did not stop cleanly, or still runs."""
    return (root / ABORT_FILE).exists()


def uncommitted_from(root: Path) -> int | None:
    """Return the offset from which on records of a node of a link may lack units and index items: the committed mark.

    None for other stores, and after a clean stop: then the whole log was visible.
    """
    mark = _parse(root / HA_STATE_FILE)[0].get("committed")
    return mark if isinstance(mark, int) and is_crashed(root) else None


def read_table(root: Path, name: str) -> dict[str, Any]:
    """Return a table under config/, or its backup; {} if neither can be read."""
    for path in (root / CONFIG_DIRECTORY / name, root / CONFIG_DIRECTORY / (name + BACKUP_SUFFIX)):
        table, problem = _parse(path)
        if not problem:
            return table
    return {}


def _parse(path: Path) -> tuple[dict[str, Any], str]:
    """Return the content and "", or {} and the problem."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return {}, error.strerror or str(error)
    if not data.strip():
        return {}, "empty"
    try:
        table = loads(data, max_bytes=_LARGEST_TABLE)
    except ValueError as error:
        return {}, str(error)
    if path.name.removesuffix(BACKUP_SUFFIX) in LISTS:
        return {}, "" if isinstance(table, list) else "no JSON list"
    return (table, "") if isinstance(table, dict) else ({}, "no JSON object")


def check_small_files(root: Path, found: Findings) -> None:
    """Check what can be checked without the log."""
    if is_crashed(root):
        what = "the last broker here was not stopped cleanly, or still runs"
        _add(found, Severity.NOTE, ABORT_FILE, None, what, "the next start recovers from the checkpoint")
    lock = root / LOCK_FILE
    if lock.exists() and lock.stat().st_size != _LOCK_SIZE:  # opening it here could release a broker's lock
        _add(found, Severity.NOTE, LOCK_FILE, None, f"{lock.stat().st_size} bytes instead of 4", "they are not used")
    _check_tables(root, found)


def _check_tables(root: Path, found: Findings) -> None:
    directory = root / CONFIG_DIRECTORY
    for name in sorted(os.listdir(directory)) if directory.is_dir() else []:
        file = f"{CONFIG_DIRECTORY}/{name}"
        if name.endswith(TEMPORARY_SUFFIX):
            _add(found, Severity.NOTE, file, None, "left over by an interrupted save", "the next save replaces it")
        elif name.endswith(TABLE_SUFFIX + BACKUP_SUFFIX):
            problem = _parse(directory / name)[1]
            if problem:
                _add(found, Severity.WARNING, file, 0, problem, "there is no backup to fall back to")
        elif name.endswith(TABLE_SUFFIX):
            _check_table(root, file, found)


def _check_table(root: Path, file: str, found: Findings) -> None:
    problem = _parse(root / file)[1]
    if not problem:
        return
    has_backup = not _parse(root / (file + BACKUP_SUFFIX))[1]
    follows = "a start uses the backup, which may be older" if has_backup else "no broker starts on this store"
    _add(found, Severity.DAMAGE, file, 0, problem, follows)


def check_checkpoint(root: Path, newest: int, newest_index: int, has_log: bool, found: Findings) -> None:
    """Check that the checkpoint covers no more than the data: store times (ms) of log and index."""
    path = root / CHECKPOINT_FILE
    if not path.exists():
        if has_log:
            _add(found, Severity.NOTE, CHECKPOINT_FILE, None, "no checkpoint", "recovery reads the whole log")
        return
    data = path.read_bytes()
    if len(data) != CHECKPOINT_SIZE:
        what = f"{len(data)} bytes instead of {CHECKPOINT_SIZE}"
        _add(found, Severity.DAMAGE, CHECKPOINT_FILE, 0, what, "missing fields count as zero: recovery begins earlier")
    rest = written(str(path), _CHECKPOINT_FIELDS_SIZE, CHECKPOINT_SIZE)
    if rest is not None:
        _add(
            found, Severity.NOTE, CHECKPOINT_FILE, rest[0], f"{rest[1]} unknown bytes are not zero", "they are not used"
        )
    checkpoint = Checkpoint.decode(data)
    for name, at, said, limit, severity in (
        ("log", 0, checkpoint.physic_timestamp, newest, Severity.DAMAGE),
        ("queues", 8, checkpoint.logics_timestamp, newest, Severity.WARNING),
        ("index", 16, checkpoint.index_timestamp, max(newest_index, newest), Severity.WARNING),
    ):
        if said > limit or said < 0:
            what = f"covers the {name} up to {said}, but its last message was stored at {limit}"
            _add(found, severity, CHECKPOINT_FILE, at, what, "recovery may begin too late and miss messages")


def _add(found: Findings, severity: Severity, file: str, offset: int | None, what: str, follows: str) -> None:
    found.add("state", Finding(severity, file, offset, what, follows))
