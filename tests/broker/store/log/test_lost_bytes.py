"""Lost bytes of the log: reads of them fail, the log and all other reads continue."""

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.base import page_faults
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LostBytesError, StoreError
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.index.entries import Entries
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.index.hashing import int64_array
from skylarkmq.protocol.disk import IndexLayout
from tests.harness.stores import Opened, message, opened

PAGE = 4096
needs_handler = pytest.mark.skipif(page_faults.Range is page_faults.Unwatched, reason="no compiled modules here")


@pytest.fixture(autouse=True)
def handler() -> None:
    page_faults.install()


def log_of(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def test_bytes_around_a_truncation_are_readable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A truncated file that grows again has a hole. Bytes before and after it are readable; the loss is logged once."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(*(message(b"x" * 1_000) for _ in range(20)))
        os.truncate(log_of(tmp_path), 2 * PAGE)
        it.put(message(b"later"))
        assert it.store.get("T", 0, 0, 7).message_count == 7
        assert it.store.get("T", 0, 20, 1).message_count == 1
        for offset in (8, 12, 19):
            with pytest.raises(LostBytesError, match=rf"file truncated, bytes from {2 * PAGE} on are lost"):
                it.store.get("T", 0, offset, 1)
        with pytest.raises(LostBytesError):
            it.store.record_at(3 * PAGE)
        assert it.store.reader.record_of_size_at(3 * PAGE, 1_100) is None
        assert it.store.read_ahead("T", 0, 12, 4) is None
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.getMessage().endswith(f"file={log_of(tmp_path)} at={2 * PAGE} reason=file truncated")


def test_a_step_detects_lost_bytes_without_a_read(tmp_path: Path) -> None:
    """The loss appears in the statistics within a second."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(message())
        it.store.step(it.clock.now_ms)
        assert it.store.statistics().log.damaged_segments == 0
        os.truncate(log_of(tmp_path), 0)
        it.store.step(it.clock.now_ms + 1_000)
        assert it.store.statistics().log.damaged_segments == 1


def test_a_failing_disk_fails_only_cold_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of bytes that are not in memory get the disk's error, puts continue, and later reads succeed."""
    with opened(tmp_path) as it:
        it.put(*(message(b"before") for _ in range(3)))
    with opened(tmp_path) as it:

        def refuse(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as failing:
            failing.setattr("skylarkmq.broker.store.files.cold_reads.os.preadv", refuse)
            with pytest.raises(OSError, match="Input/output error"):
                it.store.get("T", 0, 0, 3)
            it.put(message(b"later"))
        assert it.bodies() == [b"before"] * 3 + [b"later"]


@needs_handler
def test_an_unreadable_page_is_not_the_end_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery that meets a fault changes nothing: the start fails and names the file, and the log stays complete."""
    it = Opened(tmp_path)
    it.put(*(message(b"x" * 1_000) for _ in range(20)))
    it.crash()
    whole = log_of(tmp_path).read_bytes()
    opening = MappedFile.open.__func__  # type: ignore[attr-defined]

    def open_damaged(cls: type[MappedFile], path: str, start: int, size: int, disk: Disk) -> MappedFile:
        segment: MappedFile = opening(cls, path, start, size, disk)
        os.truncate(path, 3 * PAGE)
        segment._faults.touch(4 * PAGE)
        os.truncate(path, size)
        return segment

    monkeypatch.setattr(MappedFile, "open", classmethod(open_damaged))
    with pytest.raises(StoreError, match=rf"cannot be read, bytes from {4 * PAGE} on are lost.*{'0' * 20}"):
        Opened(tmp_path)
    assert log_of(tmp_path).read_bytes() == whole[: 3 * PAGE] + bytes(len(whole) - 3 * PAGE)


def entries(offsets: Sequence[int]) -> Entries:
    return Entries(int64_array([7] * len(offsets)), int64_array(list(offsets)), int64_array([1] * len(offsets)))


def test_a_truncated_index_file_is_not_written(tmp_path: Path) -> None:
    """The put fails before it writes to the file."""
    layout = IndexLayout(1_000, 2_000)
    file = IndexFile.create(str(tmp_path / "file"), layout, None, Disk())
    assert file.put(entries(range(30))) == 30
    os.truncate(file.path, 100)
    with pytest.raises(LostBytesError, match="bytes from 100 on are lost"):
        file.put(entries(range(30)))
    file.close()


@needs_handler
def test_an_index_file_truncated_during_a_write_raises_an_error(tmp_path: Path) -> None:
    """Its stores are discarded, and the next put raises LostBytesError."""
    layout = IndexLayout(10_000, 20_000)
    file: Any = IndexFile.create(str(tmp_path / "file"), layout, None, Disk())
    file.put(entries(range(3)))
    os.truncate(file.path, PAGE)
    file._put_one(9_999, 1, 1)
    os.truncate(file.path, layout.size)
    with pytest.raises(LostBytesError, match="cannot be read or written"):
        file.put(entries(range(30)))
    file.close()


async def test_a_lost_index_file_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    """No message is refused meanwhile."""
    with opened(tmp_path) as it:
        it.put(*(message(properties=b"UNIQ_KEY\x01A%d\x02" % number) for number in range(5)))
        assert len((await it.store.query_by_key("T", "A3", 9, 0, 1 << 62)).records) == 1
        (path,) = (tmp_path / "index").iterdir()
        os.truncate(path, 50)
        it.put(message(properties=b"UNIQ_KEY\x01A5\x02"))
        for _ in range(3):
            it.store.step(it.clock.now_ms)
        assert it.store.is_writable
        for key in ("A0", "A3", "A5"):
            assert len((await it.store.query_by_key("T", key, 9, 0, 1 << 62)).records) == 1, key
