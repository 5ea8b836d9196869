"""A restore of a backup that was damaged or forged: one line and exit code 2, and no file outside of the target."""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from skylarkmq.broker.app.cli import mqbroker
from skylarkmq.broker.store.backup.manifest import LARGEST_STATE
from skylarkmq.protocol.disk import offset_file_name
from tests.broker.store.backup.backups import back_up, put
from tests.harness.stores import SEGMENT_BYTES, opened

MANIFEST: Final = "backup.json"
LOG: Final = f"log/commitlog/{offset_file_name(0)}"
OFFSETS: Final = "consumerOffset.json"
LONG: Final = "9" * 5_000

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a backup with a state file and two segments."""
    base = tmp_path_factory.mktemp("whole")
    with opened(base / "store") as it:
        put(it, 80)
        (it.root / "config").mkdir(exist_ok=True)
        (it.root / "config" / OFFSETS).write_text('{"offsetTable":{}}')
        back_up(it.root, base / "backup")
    return base / "backup"


@pytest.fixture
def backup(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "base" / "backup")
    return tmp_path / "base" / "backup"


def restore(backup: Path, *options: str) -> Result:
    """Restore to the directory `new` beside the backup."""
    arguments = ["store", "restore", str(backup), "--to", str(backup.parent / "new"), *options]
    return CliRunner().invoke(mqbroker, arguments, env={"COLUMNS": "200", "TERM": "dumb"})


def assert_refused(done: Result, backup: Path, problem: str) -> None:
    """One line without control characters, and nothing beside the backup but the target, which has no log."""
    assert (done.exit_code, done.stdout) == (2, ""), (done.stderr, done.exception)
    assert done.stderr.startswith("mqbroker store restore: ")
    assert done.stderr.endswith("\n")
    assert done.stderr[:-1].isprintable()
    assert problem in done.stderr
    assert set(os.listdir(backup.parent)) <= {"backup", "new"}
    assert os.listdir(backup.parent.parent) == ["base"]
    assert not (backup.parent / "new" / "commitlog").exists()


def edit(backup: Path, change: Change) -> None:
    path = backup / MANIFEST
    manifest = json.loads(path.read_bytes())
    change(manifest)
    path.write_text(json.dumps(manifest))


def state(backup: Path) -> Path:
    (directory,) = (backup / "state").iterdir()
    return directory


def forge(backup: Path, name: str, data: bytes) -> None:
    """Replace a state file, with the checksum that belongs to it."""
    (state(backup) / name).write_bytes(data)
    edit(backup, lambda manifest: manifest["snapshots"][0]["files"].update({name: zlib.crc32(data)}))


@pytest.mark.parametrize("name", ["../out", "../../out", "../../../out", "/out", "a/b", "..", ".", "", "a\0b"])
@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_names_are_no_paths(backup: Path, name: str, options: tuple[str, ...]) -> None:
    """Of state files, and of the directory of a snapshot. The files that the names lead to exist."""
    for depth in (backup / "state", backup):
        (depth / "out").write_bytes(b"{}")
    names = {name: zlib.crc32(b"{}")}
    edit(backup, lambda manifest: manifest["snapshots"][0].update(files=names))
    assert_refused(restore(backup, *options), backup, "backup.json is damaged")
    edit(backup, lambda manifest: manifest["snapshots"][0].update(files={}, directory=name))
    assert_refused(restore(backup, *options), backup, "backup.json is damaged")


@pytest.mark.parametrize("number", ["-1", "1e400", str(1 << 63), LONG, "{}"])
def test_numbers_have_limits(backup: Path, number: str) -> None:
    """Each number of the manifest, with one that cannot be meant."""
    original = (backup / MANIFEST).read_text()
    manifest = json.loads(original)
    places: list[Change] = [
        *(lambda one, key=key: one.update({key: "HERE"}) for key, value in manifest.items() if isinstance(value, int)),
        *(lambda one, key=key: one["log"][0].update({key: "HERE"}) for key in ("start", "length", "verified")),
        *(
            lambda one, key=key: one["snapshots"][0].update({key: "HERE"})
            for key in ("takenAt", "logStart", "logEnd", "timerEnd")
        ),
    ]
    for place in places:
        (backup / MANIFEST).write_text(original)
        edit(backup, place)
        (backup / MANIFEST).write_text((backup / MANIFEST).read_text().replace('"HERE"', number))
        assert_refused(restore(backup), backup, "backup.json")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b"{", b"[" * 100_000, b'{"version":1}', b'{"a":' * 100_000],
)
def test_a_manifest_that_is_no_manifest_is_one_line(backup: Path, content: bytes) -> None:
    (backup / MANIFEST).write_bytes(content)
    assert_refused(restore(backup), backup, "backup.json is damaged")


def test_a_version_of_later_programs_is_named(backup: Path) -> None:
    edit(backup, lambda manifest: manifest.update(version=2))
    assert_refused(restore(backup), backup, "has version 2")


def grow(manifest: dict[str, Any]) -> None:
    manifest["log"][-1]["length"] = manifest["segmentSize"]
    manifest["snapshots"][0]["logEnd"] = 1 << 50


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (grow, "bytes of the log before 1125899906842624 are missing"),
        (lambda manifest: manifest.update(segmentSize=1 << 40), "are missing"),
        (lambda manifest: manifest["log"].reverse(), "are missing"),
        (lambda manifest: manifest["log"].append(manifest["log"][0]), "are missing"),
        (lambda manifest: manifest["log"][0].update(start=5), "No such file"),
        (lambda manifest: manifest["log"][0].update(length=5), "are missing"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_a_log_that_is_not_there_is_missed(
    backup: Path, change: Change, problem: str, options: tuple[str, ...]
) -> None:
    """The manifest lists bytes that no file has."""
    edit(backup, change)
    assert_refused(restore(backup, *options), backup, problem)


@pytest.mark.parametrize("options", [(), ("--no-verify",)])
def test_a_short_file_is_named(backup: Path, options: tuple[str, ...]) -> None:
    os.truncate(backup / LOG, 1_000)
    assert_refused(restore(backup, *options), backup, f"{LOG} has 1000 of {SEGMENT_BYTES} bytes")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("replace", [pipe, link, directory])
@pytest.mark.parametrize("name", [MANIFEST, "lock", LOG, OFFSETS, "queues.json"])
def test_only_regular_files_are_read(backup: Path, replace: Callable[[Path], None], name: str) -> None:
    """Neither a pipe, which would be waited for, nor a link, which leads to files of others."""
    path = state(backup) / name if name in {OFFSETS, "queues.json"} else backup / name
    path.unlink()
    replace(path)
    assert_refused(restore(backup, "--no-verify"), backup, name)


def test_a_link_in_place_of_the_work_directory_is_not_followed(backup: Path) -> None:
    """A restore removes the directory `restoring` of an earlier one."""
    new = backup.parent / "new"
    new.mkdir()
    (new / "restoring").symlink_to(backup)
    assert_refused(restore(backup), backup, "is not empty (it contains restoring)")
    assert (backup / LOG).exists()


@pytest.mark.parametrize("name", [MANIFEST, OFFSETS])
def test_files_of_gigabytes_are_not_read(backup: Path, name: str) -> None:
    path = state(backup) / name if name == OFFSETS else backup / name
    os.truncate(path, LARGEST_STATE + 1)
    assert_refused(restore(backup), backup, name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            (name, data)
            for name in ("queues.json", "deletedTopics.json")
            for data in (b"", b"[]", b"\xff", b"[" * 9_999)
        ),
        *((OFFSETS, data) for data in (b"[]", b'{"offsetTable":{"a@b":{"x":1}}}', b"[" * 100_000)),
        ("delayOffset.json", b'{"offsetTable":[]}'),
        ("deletedTopics.json", b'{"T":"\x1b[2J"}'),
        ("deletedTopics.json", b'{"T":' + LONG.encode() + b"}"),
        ("queues.json", b'{"T":{"0":' + LONG.encode() + b"}}"),
    ],
)
def test_state_that_is_no_state_is_one_line(backup: Path, name: str, content: bytes) -> None:
    """The checksum belongs to it."""
    forge(backup, name, content)
    assert_refused(restore(backup), backup, name)


@pytest.mark.parametrize(
    "ends",
    [
        {"../../../out": {"0": 1}},
        {"/out": {"0": 1}},
        {"..": {"0": 1}},
        {"": {"0": 1}},
        {"a\0b": {"0": 1}},
        {"\x1b[2J": {"0": 1}},
        {"T" * 300: {"0": 1}},
        {"T": {"-1": 1}},
        {"T": {str(1 << 31): 1}},
        {"T": {"0": 0}},
        {"T": {"0": -5}},
        {"T": {"0": 1 << 62}},
    ],
)
def test_ends_of_queues_are_those_of_queues(backup: Path, ends: Mapping[str, Mapping[str, int]]) -> None:
    """Directories are made of their names."""
    forge(backup, "queues.json", json.dumps(ends).encode())
    assert_refused(restore(backup), backup, "queues.json")


def test_times_outside_of_the_calendar_are_digits(backup: Path) -> None:
    edit(backup, lambda manifest: manifest["snapshots"][0].update(lastStoreTime=-(1 << 63), takenAt=1 << 62))
    done = restore(backup)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:3] == [
        f"last record stored at {-(1 << 63)} ms",
        f"topics, groups and offsets as of {1 << 62} ms",
    ]


@pytest.mark.parametrize("rate", ["inf", "1e308", "1e400"])
def test_a_rate_is_a_number(backup: Path, rate: str) -> None:
    assert_refused(restore(backup, "--rate", rate), backup, "expected a number of MB per second")


@pytest.mark.parametrize("until", [LONG, "9" * 20, "-1", "\x1b[2J", "a\0b", "1e9", "١", "0001-01-01T00:00:00+23:59"])
def test_an_end_that_is_no_end_is_one_line(backup: Path, until: str) -> None:
    assert_refused(restore(backup, "--until", until), backup, "--until: ")


@pytest.mark.parametrize("until", ["9" * 19, "0", "9999-12-31T23:59:59", "0001-01-02"])
def test_an_end_outside_of_the_log_is_one_line_or_the_end(backup: Path, until: str) -> None:
    done = restore(backup, "--until", until)
    if until.startswith("9999-"):
        assert done.exit_code == 0
    else:
        assert_refused(done, backup, "--until: the backup ")
