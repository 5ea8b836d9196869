"""The DATA frame that followers at the same place share."""

import mmap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.ha.core.messages import Data
from skylarkmq.broker.ha.link.feed import LastFrame
from skylarkmq.broker.ha.link.frames import lone_data
from tests.broker.ha.link.group import FileLog


class MappedLog(FileLog):
    """A log that is read through a mapping."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(path)
        self.write(0, content)
        self.mapping = mmap.mmap(self.fd, len(content), access=mmap.ACCESS_READ)
        self.views = 0

    def view(self, offset: int, size: int) -> memoryview:
        self.views += 1
        return memoryview(self.mapping)[offset : offset + size]


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[MappedLog]:  # async: `write` needs the loop
    mapped = MappedLog(tmp_path / "log", bytes(range(100)))
    yield mapped
    mapped.close()


def sent(frame: LastFrame, epoch: int, offset: int, end: int, committed: int) -> Data | None:
    return lone_data(memoryview(b"".join(frame.parts(epoch, offset, end, committed))))


async def test_followers_at_one_place_share_view_and_checksum(log: MappedLog) -> None:
    """Followers at another place, or of another epoch, do not. The committed end is that of each call."""
    frame = LastFrame(log)
    head, payload = frame.parts(3, 10, 30, 5)
    again = frame.parts(3, 10, 30, 5)
    assert again[0] is head
    assert again[1] is payload
    assert sent(frame, 3, 10, 30, 9) == Data(3, 10, 9, bytes(range(10, 30)))
    assert log.views == 1
    assert sent(frame, 3, 10, 31, 9) == Data(3, 10, 9, bytes(range(10, 31)))
    assert sent(frame, 3, 11, 31, 9) == Data(3, 11, 9, bytes(range(11, 31)))
    assert sent(frame, 4, 11, 31, 9) == Data(4, 11, 9, bytes(range(11, 31)))
    assert log.views == 4


async def test_a_forgotten_frame_keeps_no_segment(log: MappedLog) -> None:
    """A mapping with a view cannot be closed, and retention removes segments. The next frame has a new view."""
    frame = LastFrame(log)
    assert sent(frame, 3, 10, 30, 5) == Data(3, 10, 5, bytes(range(10, 30)))
    with pytest.raises(BufferError):
        log.mapping.close()
    frame.forget()
    assert sent(frame, 3, 10, 30, 5) == Data(3, 10, 5, bytes(range(10, 30)))
    frame.forget()
    log.mapping.close()
