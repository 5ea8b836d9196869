"""`mqbroker store backup` and `mqbroker store restore`: their output, their exit codes, and docs/run/backup.md."""

import errno
import json
import logging
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from skylarkmq.broker.app.cli import mqbroker
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from tests.harness.golden_stores import Golden, golden_store
from tests.harness.stores import opened

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "run" / "backup.md").read_text()


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return golden_store("4.9.8", "clean", tmp_path / "store")


def run(*arguments: object) -> Result:
    environment = {"COLUMNS": "200", "TERM": "dumb", "TZ": "UTC"}
    return CliRunner().invoke(mqbroker, ["store", *map(str, arguments)], env=environment)


def stored_at(golden: Golden) -> int:
    newest: int = golden.records[-1]["storeTimestamp"]
    return newest


def test_a_backup_prints_what_was_copied(golden: Golden, tmp_path: Path) -> None:
    """As text, then as JSON for an unchanged store; nothing on stderr."""
    done = run("backup", tmp_path / "backup", "--store", golden.root)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/backup: log 0 to {golden.end}, ")
    assert done.stdout.splitlines()[1].endswith("; 1 states to restore")
    again = run("backup", tmp_path / "backup", "--store", golden.root, "--json")
    values = json.loads(again.stdout)
    assert (values["logEnd"], values["copiedBytes"], values["sharedBytes"]) == (golden.end, 0, 0)
    assert (values["lastStoreTime"], values["damage"], values["warnings"]) == (stored_at(golden), [], [])


def test_the_store_and_the_rate_come_from_the_configuration(golden: Golden, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={golden.root}\nbackupMaxRate=100000000\n")
    assert run("backup", tmp_path / "backup", "-c", config).exit_code == 0
    config.write_text(f"storePathRootDir={golden.root}\nbackupMaxRate=fast\n")
    refused = run("backup", tmp_path / "other", "-c", config)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"mqbroker store backup: {config}:2: backupMaxRate=fast: expected ")
    assert StoreConfig(store_path_root_dir=tmp_path).backup_max_rate >= 200_000_000


def test_a_restore_prints_what_is_missing(golden: Golden, tmp_path: Path) -> None:
    """Up to a time: text and JSON have the same lines; the restored store is clean."""
    assert run("backup", tmp_path / "backup", "--store", golden.root).exit_code == 0
    until = "2026-11-21T01:08:30Z"
    done = run("restore", tmp_path / "backup", "--to", tmp_path / "new", "--until", until)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{tmp_path}/new: log 0 to ")
    assert [line.partition(":")[0] for line in lines[2:]] == ["missing", "missing"]
    assert "--later-state uses it" in lines[2]
    again = run("restore", tmp_path / "backup", "--to", tmp_path / "json", "--until", until, "--json")
    values = json.loads(again.stdout)
    assert [f"missing: {line}" for line in values["missing"]] == lines[2:]
    assert values["snapshotEnd"] is None
    verified = run("verify", tmp_path / "new")
    assert (verified.exit_code, verified.stderr) == (0, f"{tmp_path}/new: clean\n")


def test_damage_is_exit_code_1(golden: Golden, tmp_path: Path) -> None:
    """The backup and the restore are done, and name the damaged record."""
    path = golden.root / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    done = run("backup", tmp_path / "backup", "--store", golden.root)
    restored = run("restore", tmp_path / "backup", "--to", tmp_path / "new")
    for result in (done, restored):
        assert result.exit_code == 1
        assert result.stdout.splitlines()[-1].startswith("damage  commitlog/00000000000000000000:0  no valid record")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["backup", "b", "--store", "none"], "backup: none is not a store: it has no commitlog/"),
        (["backup", "b"], "backup: store is not a store: it has no commitlog/"),
        (["restore", "none", "--to", "new"], "restore: none is not a backup: it has no backup.json"),
        (["restore", "none", "--to", "new", "--until", "noon"], "restore: --until: 'noon' is not a time such as "),
        (["restore", "none", "--to", "new", "-c", "none.conf"], "restore: [Errno 2] No such file or directory"),
    ],
)
def test_what_is_not_done_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mqbroker store {problem}")
    assert done.stderr.count("\n") == 1


def test_a_disk_that_is_full_for_the_index_is_one_line(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index logs its failure, too; a command shows no log."""

    def reserve(_disk: Disk, fd: int, size: int) -> None:
        if "/index/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "no space left on device")
        os.posix_fallocate(fd, 0, size)

    assert run("backup", tmp_path / "backup", "--store", golden.root).exit_code == 0
    monkeypatch.setattr(Disk, "reserve", reserve)
    monkeypatch.setattr(logging.root, "handlers", [])
    done = run("restore", tmp_path / "backup", "--to", tmp_path / "new")
    problem = f"the disk of {tmp_path}/new is full: free some space, then repeat the command"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"mqbroker store restore: {problem}\n")


def test_the_document_lists_the_options() -> None:
    """Each option of the commands is in docs/run/backup.md, and each option there exists."""
    helps = run("backup", "--help").stdout + run("restore", "--help").stdout
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", helps)) - {"--help", "--config", "--verify"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", DOCUMENT)) == options


def test_the_examples_of_the_document_run(golden: Golden, tmp_path: Path) -> None:
    """In their order, with other paths and a time of the store."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL))
    examples = re.findall(r"^mqbroker store .*$", blocks, re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        command = re.sub(r"/(?:data|backup)(?=/)", str(tmp_path), example.replace("2026-03-01T12:30:00", "2099-01-01"))
        done = run(*shlex.split(command)[2:])
        assert done.exit_code == 0, done.stderr
    with opened(tmp_path / "restored", mapped_file_size_commit_log=65_536) as it:
        assert it.store.max_physical_offset == golden.end
