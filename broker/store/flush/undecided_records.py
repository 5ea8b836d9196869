"""The undecided records of a follower, across restarts: `config/undecidedRecords.json`, a list of offsets in the log.

A record is undecided until the next record of its queue comes (broker.store.recovery.queue_order). A recovery begins
long after such a record, and would decide differently without it. So the list is on disk before each checkpoint, and a
recovery judges these records first.

The list that is written with a checkpoint has the records that were undecided when its round began, and all that were
since the round of the last checkpoint that covers the queues. Each of them was decided, if at all, by a record whose
unit is synced with this checkpoint, or that a recovery from it reads. A clean stop writes the current list.

Source: docs/reference/disk.md, "Followers", "State files".
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.protocol.disk import CONFIG_DIRECTORY

UNDECIDED_RECORDS_FILE: Final = "undecidedRecords.json"
_DECODER: Final = msgspec.json.Decoder(list[int])


class UndecidedRecords:
    """The file, and what it has to contain next. `current` returns the offsets of the undecided records.

    Set by `HiddenTail.open`: `current`. It is of the dispatch of a follower, which recovery makes after it has read
    this file.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        self._file = StateFile(root / CONFIG_DIRECTORY / UNDECIDED_RECORDS_FILE, validate=_DECODER.decode, disk=disk)
        self.current: Callable[[], frozenset[int]] = frozenset
        self._saved: frozenset[int] = frozenset()
        self._noted: frozenset[int] = frozenset()
        self._kept: frozenset[int] = frozenset()  # since the last round that covers the queues

    def load(self) -> list[int]:
        """Return the offsets in the file, ascending. Raises StoreError if the file and its backup are damaged."""
        data = self._file.load()
        self._saved = self._noted = self._kept = frozenset(_DECODER.decode(data) if data else ())
        return sorted(self._saved)

    def clear(self) -> None:
        """Empty the file: a recovery has decided all records. Raises OSError."""
        if self._saved:
            self._saved = frozenset()
            self._file.save(b"[]")

    def note(self) -> None:
        """Begin a flush round."""
        self._noted = self.current()
        self._kept |= self._noted

    def take_write(self, *, is_stop: bool, covers_queues: bool) -> "UndecidedWrite | None":
        """Return the write that has to precede the checkpoint of this round; None if the file is up to date.

        `covers_queues`: the checkpoint covers the queues.
        """
        wanted = self._noted if is_stop else self._kept
        if covers_queues:
            self._kept = self._noted
        if wanted == self._saved:
            return None
        self._saved = wanted
        return UndecidedWrite(self._file, msgspec.json.encode(sorted(wanted)))

    def __repr__(self) -> str:
        return f"<UndecidedRecords {len(self._saved)}>"


class UndecidedWrite:
    """One content of the file, to be written before the checkpoint."""

    __slots__ = ("_data", "_file")

    def __init__(self, file: StateFile, data: bytes) -> None:
        self._file = file
        self._data = data

    def sync(self) -> None:
        """Write and sync the file."""
        self._file.save(self._data)
