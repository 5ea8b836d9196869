"""The configuration file: changed as a whole or not at all, with its mode, its backup and its links kept."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.config.file import ConfigFile
from skylarkmq.broker.errors import StartError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text("# mine\na=1\n")
    return path


def test_a_change_keeps_the_old_content_beside_it(path: Path) -> None:
    """The new content has the name, the one before is `.bak`, nothing else is left behind."""
    file = ConfigFile(path)
    file.change({"a": "2"})
    file.change({"b": "3"})
    assert path.read_text() == "# mine\na=2\nb=3\n"
    assert path.with_name("broker.conf.bak").read_text() == "# mine\na=2\n"
    assert sorted(os.listdir(path.parent)) == ["broker.conf", "broker.conf.bak"]


def test_a_file_that_others_may_not_read_stays_so(path: Path) -> None:
    """It may hold passwords."""
    path.chmod(0o600)
    ConfigFile(path).change({"a": "2"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    """What it points at changes."""
    link = tmp_path / "link.conf"
    link.symlink_to(path)
    ConfigFile(link).change({"a": "2"})
    assert link.is_symlink()
    assert path.read_text() == "# mine\na=2\n"


def test_what_cannot_be_written_stays_as_it_was(path: Path) -> None:
    """A missing directory, a file that no longer is one of properties: an error, and nothing has changed."""
    with pytest.raises(OSError, match="No such file"):
        ConfigFile(path.parent / "none" / "broker.conf").change({"a": "2"})
    path.write_text("a=\\u12\n")
    with pytest.raises(StartError):
        ConfigFile(path).change({"a": "2"})
    assert path.read_text() == "a=\\u12\n"


def test_the_same_values_write_nothing(path: Path) -> None:
    """No new file, no backup."""
    before = path.stat().st_ino
    ConfigFile(path).change({"a": "1"})
    assert path.stat().st_ino == before
    assert os.listdir(path.parent) == ["broker.conf"]
