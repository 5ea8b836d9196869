"""Offsets in a file."""

import asyncio
from pathlib import Path

import pytest

from clients.errors import ClientError
from clients.local_offsets import LocalOffsets
from protocol.bodies.message_queue import MessageQueue

QUEUES = [MessageQueue("T", "broker-a", n) for n in range(50)]


async def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    """Many commits at a time end up in the file, in RocketMQ's layout; queues without one have none."""
    path = tmp_path / "made" / "offsets.json"
    offsets = LocalOffsets(path)
    await asyncio.gather(*(offsets.commit(queue, queue.queue_id * 10) for queue in QUEUES))
    await offsets.commit(QUEUES[0], 7)
    again = LocalOffsets(path)
    assert [await again.committed_offset(queue) for queue in QUEUES[:3]] == [7, 10, 20]
    assert await again.committed_offset(MessageQueue("U", "broker-a", 0)) is None
    assert path.read_bytes().startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7,')
    assert [file.name for file in path.parent.iterdir()] == ["offsets.json"]


async def test_a_file_that_is_none_stops_the_start(tmp_path: Path) -> None:
    """Going on would deliver everything again; the error says what to do."""
    path = tmp_path / "offsets.json"
    path.write_bytes(b"\x00\x01")
    with pytest.raises(ClientError, match="Remove it"):
        LocalOffsets(path)


async def test_a_write_that_fails_is_told(tmp_path: Path) -> None:
    """And the next one is tried."""
    (tmp_path / "file").write_bytes(b"")
    offsets = LocalOffsets(tmp_path / "there" / "offsets.json")
    (tmp_path / "there").write_bytes(b"in the way")
    with pytest.raises(ClientError, match="cannot be written"):
        await offsets.commit(QUEUES[0], 1)
    (tmp_path / "there").unlink()
    await offsets.commit(QUEUES[0], 2)
    assert await LocalOffsets(offsets.path).committed_offset(QUEUES[0]) == 2
