"""State files: the newest complete content is loaded after any power cut or damage."""

import errno
import json
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile


def state_file(directory: Path, disk: Disk | None = None) -> StateFile:
    return StateFile(directory / "config" / "topics.json", validate=json.loads, disk=disk)


def test_a_missing_file_loads_as_none(tmp_path: Path) -> None:
    """Without a file there is no state."""
    assert state_file(tmp_path).load() is None


def test_save_and_load(tmp_path: Path) -> None:
    """The last content is loaded; the previous one is in the backup."""
    file = state_file(tmp_path)
    file.save(b"[1]")
    file.save(b"[2]")
    assert state_file(tmp_path).load() == b"[2]"
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == b"[1]"
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"[2", b"\0\0\0", None])
def test_a_damaged_file_is_replaced_by_its_backup(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty, truncated, zeroed or missing file is replaced by its backup, with a warning."""
    file = state_file(tmp_path)
    file.save(b"[1]")
    file.save(b"[2]")
    path = tmp_path / "config" / "topics.json"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    again = state_file(tmp_path)
    assert again.load() == b"[1]"
    assert "state file taken from backup" in caplog.text
    again.save(b"[1]")
    assert state_file(tmp_path).load() == b"[1]"


def test_two_damaged_files_raise_an_error(tmp_path: Path) -> None:
    """If both copies are damaged the load fails."""
    file = state_file(tmp_path)
    file.save(b"[1]")
    file.save(b"[2]")
    for path in (tmp_path / "config").iterdir():
        path.write_bytes(b"{")
    with pytest.raises(StoreError, match="damaged"):
        state_file(tmp_path).load()


def test_unchanged_content_is_not_written(tmp_path: Path) -> None:
    """Saving the current content does nothing."""
    file = state_file(tmp_path)
    file.save(b"[1]")
    before = (tmp_path / "config" / "topics.json").stat().st_ino
    file.save(b"[1]")
    assert (tmp_path / "config" / "topics.json").stat().st_ino == before


class CutDisk(Disk):
    """Every call after the first `calls` fails, as if the process had ended there."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise OSError(errno.EIO, "cut")

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        self._count()
        super().pwrite(fd, data, at)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def hard_link(self, source: str, target: str) -> None:
        self._count()
        super().hard_link(source, target)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


CALLS_AT_MOST = 8
"""Of a load and a save, with every call counted."""


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("calls", range(CALLS_AT_MOST + 1))
def test_a_cut_at_any_call(tmp_path: Path, calls: int, damaged: bool) -> None:
    """A save that is cut at any call leaves the old or the new content, and the next save succeeds."""
    file = state_file(tmp_path)
    file.save(b"[2]")
    file.save(b"[1]" if damaged else b"[9]")
    file.save(b"[2]")
    if damaged:
        (tmp_path / "config" / "topics.json.bak").write_bytes(b"[2]")
        (tmp_path / "config" / "topics.json").write_bytes(b"")
    cut = state_file(tmp_path, CutDisk(calls))
    assert cut.load() == b"[2]"
    try:
        cut.save(b"[3]")
    except OSError:
        assert calls < CALLS_AT_MOST
    assert state_file(tmp_path).load() in {b"[2]", b"[3]"}
    file = state_file(tmp_path)
    file.load()
    file.save(b"[4]")
    assert state_file(tmp_path).load() == b"[4]"


def secret_file(directory: Path) -> StateFile:
    return StateFile(directory / "config" / "users.json", validate=json.loads, is_secret=True)


def test_a_file_with_secrets_is_private_and_has_no_backup(tmp_path: Path) -> None:
    """Also if a temporary file of an earlier process, which others can read, is in the way."""
    (tmp_path / "config").mkdir()
    old = tmp_path / "config" / "users.json.tmp"
    old.write_bytes(b"old")
    old.chmod(0o644)
    file = secret_file(tmp_path)
    for content in (b"[1]", b"[2]"):
        file.save(content)
    path = tmp_path / "config" / "users.json"
    assert list((tmp_path / "config").iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret_file(tmp_path).load() == b"[2]"


def test_a_damaged_file_with_secrets_is_not_replaced(tmp_path: Path) -> None:
    """Not even by a file with the name of a backup: its rights may have been taken away since."""
    secret_file(tmp_path).save(b"[1]")
    path = tmp_path / "config" / "users.json"
    (tmp_path / "config" / "users.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(b"[1")
    with pytest.raises(StoreError, match=r"^state file is damaged: .*users\.json: "):
        secret_file(tmp_path).load()
