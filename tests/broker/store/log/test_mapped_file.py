"""A segment's life: holders, deletion, and what its bytes outlive."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.log.mapped_file import MappedFile
from tests.harness.stores import TestDisk

SIZE = 4096


class Transfer:
    """A holder that notes when it is told to let go."""

    def __init__(self, segment: MappedFile) -> None:
        self.segment = segment
        self.was_told = False
        segment.hold(self)

    def abort_transfer(self) -> None:
        self.was_told = True
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


def test_deletion_unlinks_at_once_and_a_holder_reads_on(segment: MappedFile) -> None:
    """The name is gone, the bytes stay until the last holder has released them."""
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
    assert segment.close_if_free()  # and again is nothing


def test_a_view_keeps_the_mapping_by_itself(segment: MappedFile) -> None:
    """What a turn still looks at is never unmapped from under it."""
    view = segment.view[:5]
    segment.delete()
    assert not segment.close_if_free()
    assert bytes(view) == bytes(segment.view[:5]) == b"bytes"
    view.release()
    assert segment.close_if_free()


def test_revoke_has_every_holder_let_go(segment: MappedFile) -> None:
    """Holders are told one by one, and the segment is free behind the last of them."""
    transfers = [Transfer(segment), Transfer(segment)]
    segment.revoke()
    assert [transfer.was_told for transfer in transfers] == [True, True]
    assert segment.close_if_free()


def test_a_release_without_a_hold_is_an_error(segment: MappedFile) -> None:
    """Holds are counted: one release too many is somebody's bug."""
    transfer = Transfer(segment)
    segment.release(transfer)
    with pytest.raises(ValueError, match="not in list"):
        segment.release(transfer)


def test_a_sync_of_a_deleted_segment_is_nothing(segment: MappedFile, disk: TestDisk) -> None:
    """The flusher may come late: of a deleted segment nothing needs to last; of any other an error is one."""

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


def test_a_segment_that_somebody_else_removed(segment: MappedFile, caplog: pytest.LogCaptureFixture) -> None:
    """A deletion of what is gone is a warning, and done."""
    os.unlink(segment.path)
    segment.delete()
    assert "segment was gone before its deletion" in caplog.text
    assert segment.close_if_free()
