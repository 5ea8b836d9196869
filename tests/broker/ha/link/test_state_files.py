"""The files of a node: haState, epochFileCheckpoint, haRecord."""

from pathlib import Path

import pytest

from skylarkmq.broker.ha.core.epochs import FOUNDED, Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import HaState
from skylarkmq.broker.ha.link.state_files import ReplacedFile, StateFiles, decode_epochs, encode_epochs
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import StoreError

STATE = HaState(7, "a1b2", 1 << 40)
EPOCHS = EpochHistory((FOUNDED, Epoch(1, 4096), Epoch(7, 1 << 40)))


def test_files_are_read_back(tmp_path: Path) -> None:
    """By another process; without files a store was not part of a group."""
    files = StateFiles(tmp_path)
    assert (files.state(), files.epochs(), files.record.load()) == (None, EpochHistory(), None)
    files.keep_state(HaState(1, "a1b2", 0))
    files.keep_state(STATE)
    files.keep_epochs(EPOCHS)
    files.record.save(b"{}")
    files = StateFiles(tmp_path)
    assert (files.state(), files.epochs(), files.record.load()) == (STATE, EPOCHS, b"{}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["epochFileCheckpoint", "haRecord", "haState"]


def test_a_file_that_is_replaced_is_synced_before_it_gets_its_name(tmp_path: Path) -> None:
    """And its directory after that: a power cut leaves the old content or the new one."""
    calls = []

    class TracedDisk(Disk):
        def fsync(self, fd: int) -> None:
            calls.append("fsync")
            super().fsync(fd)

        def rename(self, source: str, target: str) -> None:
            calls.append("rename")
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            calls.append("sync_directory")
            super().sync_directory(path)

    ReplacedFile(tmp_path / "haState", TracedDisk()).save(b"x")
    assert calls == ["fsync", "rename", "sync_directory"]


def test_epochs_have_the_form_of_rocketmq() -> None:
    """The number of entries, a CRC-32 of their lines, a line for each."""
    assert encode_epochs(EpochHistory((Epoch(7, 7000), Epoch(8, 8000)))) == "2\n773307083\n7-7000\n8-8000\n"
    assert decode_epochs("1\n0\n7-7000\n") == EpochHistory((Epoch(7, 7000),))


@pytest.mark.parametrize("text", ["", "1\n0\n", "1\n1\n7-7000\n", "2\n0\n8-8000\n7-9000\n", "1\n0\nx\n", "x\n0\n"])
def test_damaged_files_stop_the_start(tmp_path: Path, text: str) -> None:
    """The line says what to do."""
    (tmp_path / "epochFileCheckpoint").write_text(text)
    (tmp_path / "haState").write_text(text)
    for load in (StateFiles(tmp_path).epochs, StateFiles(tmp_path).state):
        with pytest.raises(StoreError, match="start this node with an empty directory"):
            load()
