"""The configuration file: changed completely or not at all; its mode, its backup and its links are kept."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.file import ConfigFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("# mine\na=1\n")
    return path


def test_a_change_keeps_the_old_content_as_backup(path: Path) -> None:
    """The file has the new content, `.bak` the previous one, and no other file is left behind."""
    file = ConfigFile(path)
    file.change({"a": "2"})
    file.change({"b": "3"})
    assert path.read_text() == "# mine\na=2\nb=3\n"
    assert path.with_name("broker.conf.bak").read_text() == "# mine\na=2\n"
    assert sorted(os.listdir(path.parent)) == ["broker.conf", "broker.conf.bak"]


def test_the_mode_of_the_file_is_kept(path: Path) -> None:
    """The file may contain passwords."""
    path.chmod(0o600)
    ConfigFile(path).change({"a": "2"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    """Its target is changed."""
    link = tmp_path / "link.conf"
    link.symlink_to(path)
    ConfigFile(link).change({"a": "2"})
    assert link.is_symlink()
    assert path.read_text() == "# mine\na=2\n"


def test_a_failed_change_leaves_the_file_unchanged(path: Path) -> None:
    """A missing directory, or a file that is no longer a valid properties file, is an error."""
    with pytest.raises(OSError, match="No such file"):
        ConfigFile(path.parent / "none" / "broker.conf").change({"a": "2"})
    path.write_text("a=\\u12\n")
    with pytest.raises(StartError):
        ConfigFile(path).change({"a": "2"})
    assert path.read_text() == "a=\\u12\n"


def test_unchanged_values_write_nothing(path: Path) -> None:
    """No new file and no backup is written."""
    before = path.stat().st_ino
    ConfigFile(path).change({"a": "1"})
    assert path.stat().st_ino == before
    assert os.listdir(path.parent) == ["broker.conf"]
