"""The life of a segment: holders, deletion, and how long its bytes stay readable."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.mapped_file import MappedFile
from tests.harness.stores import TestDisk

SIZE = 4096


class Transfer:
    """A holder that records whether it was asked to abort."""

    def __init__(self, segment: MappedFile) -> None:
        self.segment = segment
        self.was_aborted = False
        segment.hold(self)

    def abort_transfer(self) -> None:
        self.was_aborted = True
        self.segment.release(self)


@pytest.fixture
def disk() -> TestDisk:
    return TestDisk()


@pytest.fixture
def segment(tmp_path: Path, disk: TestDisk) -> Iterator[MappedFile]:
    path = str(tmp_path / "00000000000000000000")
    segment = MappedFile(path, 0, SIZE, disk.create(path, SIZE), disk)
    segment.write(b"bytes", 0)
    yield segment
    segment.close()


def test_deletion_unlinks_at_once_and_holders_can_still_read(segment: MappedFile) -> None:
    """The name is removed at once; the bytes stay until the last holder has released them."""
    transfers = [Transfer(segment), Transfer(segment)]
    segment.delete()
    assert not os.path.exists(segment.path)
    for transfer in transfers:
        assert not segment.close_if_free()
        assert bytes(segment.view[:5]) == b"bytes"
        assert os.pread(segment.fd, 5, 0) == b"bytes"
        segment.release(transfer)
    assert segment.holders == 0
    assert segment.close_if_free()
    assert segment.close_if_free()  # a second call has no effect


def test_a_view_keeps_the_mapping(segment: MappedFile) -> None:
    """The mapping is not closed while a view of it exists."""
    view = segment.view[:5]
    segment.delete()
    assert not segment.close_if_free()
    assert bytes(view) == bytes(segment.view[:5]) == b"bytes"
    view.release()
    assert segment.close_if_free()


def test_revoke_asks_every_holder_to_abort(segment: MappedFile) -> None:
    """All holders abort, and the segment is free afterwards."""
    transfers = [Transfer(segment), Transfer(segment)]
    segment.revoke()
    assert [transfer.was_aborted for transfer in transfers] == [True, True]
    assert segment.close_if_free()


def test_a_release_without_a_hold_raises_an_error(segment: MappedFile) -> None:
    """Holds are counted: one release too many is a bug in the caller."""
    transfer = Transfer(segment)
    segment.release(transfer)
    with pytest.raises(ValueError, match="not in list"):
        segment.release(transfer)


def test_a_sync_of_a_deleted_segment_ignores_errors(segment: MappedFile, disk: TestDisk) -> None:
    """The flusher may sync a deleted segment, which needs no durability. For other segments an error is raised."""

    def refuse(call: str, path: str) -> None:
        if call == "fdatasync":
            raise OSError(errno.EIO, "no")

    disk.refuse = refuse
    with pytest.raises(OSError, match="no"):
        segment.sync()
    segment.is_deleted = True
    segment.sync()
    segment.close()
    segment.sync()


def test_a_segment_removed_by_another_process(segment: MappedFile, caplog: pytest.LogCaptureFixture) -> None:
    """The deletion of a file that does not exist logs a warning and succeeds."""
    os.unlink(segment.path)
    segment.delete()
    assert "segment file was already deleted" in caplog.text
    assert segment.close_if_free()
