"""Files with secrets: which modes are exposed, and what follows."""

import os
import stat
from pathlib import Path

import pytest

from skylarkmq.broker.access.secret_files import CHECK_MS, SecretFiles, is_exposed
from skylarkmq.broker.base.errors import StartError


def status(mode: int, owner: int = 1000) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, 1000, 10, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o600, False), (0o400, False), (0o700, False), (0o640, True), (0o604, True), (0o622, False)]
)
def test_a_file_is_exposed_if_others_can_read_it(mode: int, expected: bool) -> None:
    """By the read bits of group and others."""
    assert is_exposed(Path("/etc/skylark/accounts.json"), status(mode)) is expected


@pytest.mark.parametrize(
    ("path", "mode", "owner", "expected"),
    [
        ("/run/secrets/accounts", 0o444, 0, False),
        ("/run/secrets/accounts", 0o644, 0, False),
        ("/run/secrets/broker/accounts", 0o440, 0, False),
        ("/var/run/secrets/accounts", 0o444, 0, False),
        ("/run/secrets/accounts", 0o444, 1000, True),
        ("/run/secrets/accounts", 0o664, 0, True),
        ("/run/secrets/accounts", 0o646, 0, True),
        ("/run/secrets/../accounts", 0o444, 0, True),
        ("/run/secretsx/accounts", 0o444, 0, True),
    ],
)
def test_the_modes_of_container_secrets_are_accepted(path: str, mode: int, owner: int, expected: bool) -> None:
    """Files of root below /run/secrets or /var/run/secrets, unless others can write them."""
    assert is_exposed(Path(path), status(mode, owner)) is expected


def test_an_exposed_file_is_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The count follows the files: it is 0 as soon as the modes are right."""
    open_file, closed, missing = tmp_path / "open", tmp_path / "closed", tmp_path / "missing"
    for path, mode in ((open_file, 0o644), (closed, 0o600)):
        path.write_text("geheim")
        path.chmod(mode)
    files = SecretFiles([open_file, closed, None, missing, open_file], is_strict=False)
    assert caplog.messages == [f"other users can read a file with secrets file={open_file}"]
    assert files.exposed() == [open_file]
    open_file.chmod(0o600)
    assert files.exposed() == []


def test_files_that_appear_later_are_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Within CHECK_MS, once each; again if a file was protected in between."""
    folder = tmp_path / "acl"
    folder.mkdir()
    files = SecretFiles([], lambda: sorted(folder.iterdir()), is_strict=False)
    later = folder / "team.yml"
    later.write_text("accounts: []")
    later.chmod(0o644)
    assert files.exposed() == [later]
    line = f"other users can read a file with secrets file={later}"
    for now_ms, lines in ((0, 1), (CHECK_MS - 1, 1), (CHECK_MS, 1)):
        files.step(now_ms)
        assert caplog.messages == [line] * lines
    for mode, now_ms in ((0o600, 2 * CHECK_MS), (0o640, 3 * CHECK_MS)):
        later.chmod(mode)
        files.step(now_ms)
    assert caplog.messages == [line, line]


def test_an_exposed_file_stops_a_strict_start(tmp_path: Path) -> None:
    """The error names file and setting."""
    path = tmp_path / "accounts.json"
    path.write_text("[]")
    path.chmod(0o640)
    with pytest.raises(StartError) as caught:
        SecretFiles([path], is_strict=True)
    assert str(caught.value) == f"{path}: other users can read this file with secrets (strictSecretFiles=true)"
    path.chmod(0o600)
    SecretFiles([path], is_strict=True)
