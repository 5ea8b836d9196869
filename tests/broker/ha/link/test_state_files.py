"""The files of a node: haState, epochFileCheckpoint, haRecord."""

from pathlib import Path
from random import Random

import pytest

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.events import HaState
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.link.state_files import (
    FollowerFiles,
    ReplacedFile,
    StateFiles,
    decode_epochs,
    encode_epochs,
)
from skylarkmq.broker.ha.link.static_decisions import Revised, encode_revised
from skylarkmq.broker.store.files.disk import Disk
from tests.harness.simulated_disk import PowerCut, SimulatedDisk

FOUNDED = founded("a")

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


def test_a_new_name_that_a_killed_process_left_is_durable_once_it_is_read(tmp_path: Path) -> None:
    """Otherwise a power cut would take back a promise on which the next process has acted."""
    disk = SimulatedDisk(tmp_path)
    files = StateFiles(tmp_path, disk)
    files.keep_state(HaState(1, "a1b2", 0))
    disk.before_call = lambda call, _: setattr(disk, "cut_at", disk.calls + 1) if call == "sync_directory" else None
    with pytest.raises(PowerCut):
        files.keep_state(STATE)
    disk.before_call = lambda call, path: None
    disk.revive()
    assert files.state() == STATE
    for seed in range(20):
        disk.cut(Random(seed))
        assert files.state() == STATE


def test_a_damaged_mark_of_synced_bytes_needs_an_operator(tmp_path: Path) -> None:
    """The file is a number; without it nothing is known to be synced."""
    files = StateFiles(tmp_path)
    assert files.synced() == 0
    files.keep_synced(4_711)
    assert files.synced() == 4_711
    (tmp_path / "haSynced").write_bytes(b"?")
    with pytest.raises(DaemonEnded, match=r"haSynced is damaged: start this node with an empty directory"):
        files.synced()
    files.forget_synced()
    assert files.synced() == 0


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


def test_a_follower_gives_up_its_record_before_a_later_epoch(tmp_path: Path) -> None:
    """Another node leads. The old record must not let this node lead again, even if its power fails now."""
    calls: list[str] = []

    class TracedDisk(Disk):
        def rename(self, source: str, target: str) -> None:
            calls.append(Path(target).name)
            super().rename(source, target)

    files = FollowerFiles(tmp_path, TracedDisk())
    record = GroupRecord(epoch=7, leader="n1", in_sync=("a1b2",), members={}, min=1)
    (tmp_path / "haRecord").write_bytes(encode_revised(Revised(3, record)))
    files.keep_state(STATE)
    assert calls == ["haState"]
    files.keep_state(HaState(8, "a1b2", 0))
    files.keep_state(HaState(9, "a1b2", 0))
    assert calls == ["haState", "haRecord.former", "haState", "haState"]
    (tmp_path / "haRecord").write_bytes(b"damaged")
    files.keep_state(HaState(9, "a1b2", 0))
    assert files.record.load() is None


@pytest.mark.parametrize("text", ["", "1\n0\n", "1\n1\n7-7000\n", "2\n0\n8-8000\n7-9000\n", "1\n0\nx\n", "x\n0\n"])
def test_damaged_files_stop_the_start(tmp_path: Path, text: str) -> None:
    """The line says what to do."""
    (tmp_path / "epochFileCheckpoint").write_text(text)
    (tmp_path / "haState").write_text(text)
    for load in (StateFiles(tmp_path).epochs, StateFiles(tmp_path).state):
        with pytest.raises(DaemonEnded, match="start this node with an empty directory") as ended:
            load()
        assert not ended.value.may_restart


@pytest.mark.parametrize("promised", [-1, (1 << 61) + 1])
def test_a_promise_that_no_group_reaches_stops_the_start(tmp_path: Path, promised: int) -> None:
    """The other nodes could not read the next term."""
    StateFiles(tmp_path).keep_state(HaState(promised, "a1b2", 0))
    with pytest.raises(DaemonEnded, match=r"haState is damaged \(Expected `int` [<>]= .*`\$.promised`\)"):
        StateFiles(tmp_path).state()
