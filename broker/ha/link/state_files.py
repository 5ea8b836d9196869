"""The files of a node of a group, in the root of its store:

    haState                promise, store id and committed mark, JSON
    epochFileCheckpoint    the epochs of the log, in RocketMQ's form: their number, a CRC-32, a line `epoch-start` each
    haSynced               up to where the log is known to be synced; only on a leader (broker/ha/link/copies.py)
    haRecord               the record of the group, JSON; only on the node that leads without a store of decisions
    haRecord.former        the record of a node that led and now follows another leader; it is not read again

Each is replaced as a whole: written beside, synced, renamed, and the directory synced. There is no backup: an older
promise or record would break the rules of the group. A damaged file keeps the node from starting: the daemon ends with
the next step of the operator, because a restart would end in the same way.

Source: docs/reference/wire.md, "Replication link".
"""

from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import HaState
from skylarkmq.broker.ha.link.static_decisions import decode_revised
from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.protocol.disk import HA_STATE_FILE

STATE: Final = HA_STATE_FILE
EPOCHS: Final = "epochFileCheckpoint"
RECORD: Final = "haRecord"
SYNCED: Final = "haSynced"
FORMER: Final = ".former"
CRC_MASK: Final = 0x7FFFFFFF
UNCHECKED: Final = 0

_decode_state: Final = msgspec.json.Decoder(HaState).decode


class ReplacedFile:
    """One file."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def __repr__(self) -> str:
        return f"<ReplacedFile {self.path}>"

    def load(self) -> bytes | None:
        """Return the content, which is durable then; None without a file. Raises OSError.

        A process that was killed during `save` may have left a new name that a power cut takes back.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        self._disk.sync_directory(str(self.path.parent))
        return content

    def save(self, data: bytes) -> None:
        """Replace the content. Blocks for two syncs. An OSError may leave the old content or the new one."""
        temporary = f"{self.path}{TEMPORARY_SUFFIX}"
        self._disk.write_file(temporary, data)
        self._disk.rename(temporary, str(self.path))
        self._disk.sync_directory(str(self.path.parent))

    def remove(self) -> None:
        """Remove the file, durably, if there is one. Raises OSError."""
        if self.load() is not None:
            self._disk.unlink(str(self.path))
            self._disk.sync_directory(str(self.path.parent))

    def give_up(self) -> None:
        """Rename the file, durably, so that it is not read again. Raises OSError."""
        self._disk.rename(str(self.path), f"{self.path}{FORMER}")
        self._disk.sync_directory(str(self.path.parent))


class StateFiles:
    """The files of one store."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        disk = disk or Disk()
        self._state = ReplacedFile(root / STATE, disk)
        self._epochs = ReplacedFile(root / EPOCHS, disk)
        self._synced = ReplacedFile(root / SYNCED, disk)
        self.record = ReplacedFile(root / RECORD, disk)

    def __repr__(self) -> str:
        return f"<StateFiles {self._state.path.parent}>"

    def state(self) -> HaState | None:
        """Return `haState`; None for a store that was not part of a group. Raises DaemonEnded if damaged."""
        content = self._state.load()
        try:
            return None if content is None else _decode_state(content)
        except msgspec.MsgspecError as error:
            advice = "restore it, or start this node with an empty directory"
            raise DaemonEnded(f"{self._state.path} is damaged ({error}): {advice}", may_restart=False) from None

    def keep_state(self, state: HaState) -> None:
        """Replace `haState`. Raises OSError."""
        self._state.save(msgspec.json.encode(state, order="sorted") + b"\n")

    def synced(self) -> int:
        """Return `haSynced`; 0 without a file. Raises DaemonEnded if it is damaged."""
        content = self._synced.load()
        if content is None:
            return 0
        try:
            return int(content)
        except ValueError:
            advice = "start this node with an empty directory"
            raise DaemonEnded(f"{self._synced.path} is damaged: {advice}", may_restart=False) from None

    def keep_synced(self, end: int) -> None:
        """Replace `haSynced`. Raises OSError."""
        self._synced.save(b"%d\n" % end)

    def forget_synced(self) -> None:
        """Remove `haSynced`, durably. Raises OSError."""
        self._synced.remove()

    def epochs(self) -> EpochHistory:
        """Return the epochs of the file; none without a file. Raises DaemonEnded if it is damaged."""
        content = self._epochs.load()
        try:
            return EpochHistory() if content is None else decode_epochs(content.decode())
        except ValueError as error:
            advice = "restore it, or start this node with an empty directory"
            raise DaemonEnded(f"{self._epochs.path} is damaged ({error}): {advice}", may_restart=False) from None

    def keep_epochs(self, epochs: EpochHistory) -> None:
        """Replace `epochFileCheckpoint`. Raises OSError."""
        self._epochs.save(encode_epochs(epochs).encode())


class FollowerFiles(StateFiles):
    """The files of a node that follows.

    Once it promises an epoch of another leader, its own record is not the newest any more: it is given up first.
    """

    def keep_state(self, state: HaState) -> None:
        """Replace `haState`. Raises OSError."""
        content = self.record.load()
        if content is not None and _epoch_of(content) < state.promised:
            self.record.give_up()
        super().keep_state(state)


def _epoch_of(record: bytes) -> int:
    """Return the epoch of the content of `haRecord`; 0 if it is damaged."""
    try:
        return decode_revised(record).record.epoch
    except msgspec.MsgspecError:
        return 0


def encode_epochs(epochs: EpochHistory) -> str:
    """Return the content of `epochFileCheckpoint`."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs.entries)
    return f"{len(epochs.entries)}\n{crc32(lines.encode()) & CRC_MASK}\n{lines}"


def decode_epochs(text: str) -> EpochHistory:
    """Return the epochs of a file. Raises ValueError."""
    count, crc, *lines = text.splitlines()
    content = "".join(f"{line}\n" for line in lines)
    if int(crc) not in (UNCHECKED, crc32(content.encode()) & CRC_MASK):
        raise ValueError("its checksum differs")
    entries = (line.partition("-") for line in lines)
    history = EpochHistory(tuple(Epoch(int(epoch), int(start)) for epoch, _, start in entries))
    if len(lines) != int(count) or not history.is_ordered:
        raise ValueError("its epochs are not in order")
    return history
