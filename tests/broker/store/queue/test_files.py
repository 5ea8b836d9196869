"""Files of queues: what is created and deleted, and what never is."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.queue.files import QueueFiles
from tests.harness.stores import TestDisk

SIZE = 400
FIRST, SECOND = f"{0:020}", f"{SIZE:020}"


@pytest.fixture
def disk() -> TestDisk:
    return TestDisk()


@pytest.fixture
def files(tmp_path: Path, disk: TestDisk) -> Iterator[QueueFiles]:
    files = QueueFiles(f"{tmp_path}/consumequeue", SIZE, 8, disk)
    yield files
    files.close()


@pytest.fixture
def queue(tmp_path: Path, files: QueueFiles) -> Path:
    queue = tmp_path / "consumequeue" / "T" / "0"
    for name in (FIRST, SECOND):
        files.create(f"{queue}/{name}")
    return queue


def test_an_existing_file_is_not_created_again(files: QueueFiles, queue: Path) -> None:
    """It may belong to a live queue: it keeps its bytes."""
    files.write(f"{queue}/{FIRST}", b"unit", 0)
    with pytest.raises(FileExistsError):
        files.create(f"{queue}/{FIRST}")
    assert (queue / FIRST).read_bytes() == b"unit".ljust(SIZE, b"\0")
    assert files.read(f"{queue}/{FIRST}", 0, 4) == b"unit"


def test_creation_does_not_follow_a_link(files: QueueFiles, queue: Path, tmp_path: Path) -> None:
    """The target of the link is not created."""
    (queue / f"{2 * SIZE:020}").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="File exists"):
        files.create(f"{queue}/{2 * SIZE:020}")
    assert not (tmp_path / "outside").exists()


def test_a_file_that_could_not_be_resized_is_removed(
    files: QueueFiles, queue: Path, disk: TestDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the next attempt can create it."""

    def full(_fd: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = f"{queue}/{2 * SIZE:020}"
    with monkeypatch.context() as patched:
        patched.setattr(disk, "resize", full)
        with pytest.raises(OSError, match="full"):
            files.create(path)
    assert not Path(path).exists()
    files.create(path)


def test_removing_a_queue_removes_its_directory(files: QueueFiles, queue: Path) -> None:
    """The directory is removed if it contains nothing else."""
    files.remove_all(str(queue))
    assert not queue.exists()


def test_only_segments_are_deleted(files: QueueFiles, queue: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All other files, directories and links stay, with the directory, whatever their names."""
    others = ["backup.tar", f"{FIRST}.tmp", "1", f"{2 * SIZE:020}", f"{3 * SIZE:020}"]
    (queue / others[0]).write_bytes(b"mine")
    (queue / others[1]).write_bytes(b"mine")
    (queue / others[2]).write_bytes(b"mine")
    (queue / others[3]).mkdir()
    (queue / others[4]).symlink_to(queue / others[0])
    files.remove_all(str(queue))
    assert sorted(path.name for path in queue.iterdir()) == sorted(others)
    assert (queue / "backup.tar").read_bytes() == b"mine"
    assert [record.message.split(" first=")[0] for record in caplog.records] == [
        f"directory kept: it holds other files path={queue} files=5"
    ]


@pytest.mark.parametrize("name", ["2024", "T/../../outside/0", "outside/0"])
def test_nothing_outside_consumequeue_is_created_or_deleted(
    tmp_path: Path, files: QueueFiles, queue: Path, name: str
) -> None:
    """Neither by its path nor through a link."""
    outside = tmp_path / "outside" / "0"
    outside.mkdir(parents=True)
    (outside / FIRST).write_bytes(b"mine")
    (queue.parent.parent / "outside").symlink_to(outside.parent)
    with pytest.raises(PermissionError):
        files.remove_all(f"{queue.parent.parent}/{name}")
    with pytest.raises(PermissionError):
        files.remove(f"{queue.parent.parent}/{name}/{FIRST}")
    with pytest.raises(PermissionError):
        files.create(f"{queue.parent.parent}/{name}/{SECOND}")
    assert [path.name for path in outside.iterdir()] == [FIRST]


def test_remains_of_a_failed_deletion_are_removed_before_a_new_segment(
    files: QueueFiles, queue: Path, disk: TestDisk
) -> None:
    """If the topic was created again in the meantime, its first unit does not meet old files."""

    def refuse(call: str, path: str) -> None:
        if call == "unlink" and path.endswith(FIRST):
            raise OSError(errno.EIO, "injected", path)

    files.write(f"{queue}/{FIRST}", b"old", 0)
    disk.refuse = refuse
    with pytest.raises(OSError, match="injected"):
        files.remove_all(str(queue))
    with pytest.raises(OSError, match="injected"):
        files.create(f"{queue}/{FIRST}")
    disk.refuse = lambda call, path: None
    files.create(f"{queue}/{FIRST}")
    assert (queue / FIRST).read_bytes() == bytes(SIZE)
    with pytest.raises(FileExistsError):
        files.create(f"{queue}/{FIRST}")
