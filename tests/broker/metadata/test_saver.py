"""Savers: changes are written to disk automatically and together, and waiting tasks get the result."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from skylarkmq.broker.metadata.saver import Saver
from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile


class Number:
    """A table of one number."""

    def __init__(self) -> None:
        self.value = 0
        self._listener: Callable[[], None] = lambda: None

    def load(self, data: bytes | None) -> None:
        self.value = 0 if data is None else int(data)

    def encode(self) -> bytes:
        return str(self.value).encode()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def set(self, value: int) -> None:
        self.value = value
        self._listener()


class FullDisk(Disk):
    """A disk that writes nothing while `is_full`."""

    is_full = False

    def write_file(self, path: str, data: Data) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().write_file(path, data)


async def test_saved_returns_after_the_change_is_on_disk(tmp_path: Path) -> None:
    """The file contains the change; a new saver loads it."""
    table = Number()
    saver = Saver.open(table, tmp_path / "n.json", int)
    table.set(5)
    await saver.saved()
    assert (tmp_path / "n.json").read_bytes() == b"5"
    again = Number()
    Saver.open(again, tmp_path / "n.json", int)
    assert again.value == 5


async def test_changes_of_one_iteration_are_one_save(tmp_path: Path) -> None:
    """A thousand changes in a row take one save; changes during a save are part of the next one."""
    table = Number()
    saver = Saver.open(table, tmp_path / "n.json", int)
    for value in range(1000):
        table.set(value)
    await saver.saved()
    assert (saver.statistics().saves, (tmp_path / "n.json").read_bytes()) == (1, b"999")
    table.set(1)
    first = asyncio.ensure_future(saver.saved())
    await asyncio.sleep(0)
    table.set(2)
    await asyncio.gather(first, saver.saved())
    assert (saver.statistics().saves, (tmp_path / "n.json").read_bytes()) == (3, b"2")
    assert not saver.statistics().is_behind


async def test_saved_returns_at_once_without_a_change(tmp_path: Path) -> None:
    """Nothing is written."""
    saver = Saver.open(Number(), tmp_path / "n.json", int)
    await saver.saved()
    assert not (tmp_path / "n.json").exists()


async def test_close_saves_the_table_in_any_case(tmp_path: Path) -> None:
    """A stop writes the table even without a change."""
    table = Number()
    saver = Saver.open(table, tmp_path / "n.json", int)
    table.value = 7
    await saver.close()
    assert (tmp_path / "n.json").read_bytes() == b"7"


async def test_a_failed_save_raises_in_waiting_tasks_and_is_caught_up(tmp_path: Path) -> None:
    """The old file stays; waiting tasks get the error; a later change writes everything to disk."""
    table, disk = Number(), FullDisk()
    saver = Saver(StateFile(tmp_path / "n.json", validate=int, disk=disk), table.encode)
    table.on_change(saver.changed)
    disk.is_full = True
    table.set(1)
    with pytest.raises(OSError, match="No space left"):
        await saver.saved()
    assert (saver.statistics().failures, saver.statistics().is_behind) == (1, True)
    disk.is_full = False
    table.set(2)
    await saver.saved()
    assert (tmp_path / "n.json").read_bytes() == b"2"
    await saver.close()


async def test_a_failed_save_is_repeated_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a further change."""
    monkeypatch.setattr("skylarkmq.broker.metadata.saver.RETRY_S", 0.0)
    table, disk = Number(), FullDisk()
    saver = Saver(StateFile(tmp_path / "n.json", validate=int, disk=disk), table.encode)
    table.on_change(saver.changed)
    disk.is_full = True
    table.set(1)
    with pytest.raises(OSError, match="No space left"):
        await saver.saved()
    disk.is_full = False
    await saver.saved()
    assert (tmp_path / "n.json").read_bytes() == b"1"
    await saver.close()


async def test_a_damaged_file_without_a_backup_stops_the_start(tmp_path: Path) -> None:
    """The error contains the file."""
    (tmp_path / "n.json").write_bytes(b"no number")
    with pytest.raises(StoreError, match=r"n\.json"):
        Saver.open(Number(), tmp_path / "n.json", int)
