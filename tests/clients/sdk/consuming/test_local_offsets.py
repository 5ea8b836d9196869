"""Offsets of broadcasting consumers in a file."""

import asyncio
import sys
from pathlib import Path

import pytest

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.consuming.local_offsets import LocalOffsets, default_path
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def opened(path: Path) -> LocalOffsets:
    offsets = LocalOffsets(path)
    offsets.open()
    return offsets


QUEUES = [MessageQueue("T", "broker-a", n) for n in range(50)]


async def test_committed_offsets_are_read_back(tmp_path: Path) -> None:
    """Concurrent commits are all in the file, in the layout of RocketMQ's Java client."""
    path = tmp_path / "made" / "offsets.json"
    offsets = opened(path)
    await asyncio.gather(*(offsets.commit(queue, queue.queue_id * 10) for queue in QUEUES))
    await offsets.commit(QUEUES[0], 7)
    await offsets.close()
    again = opened(path)
    assert [await again.committed_offset(queue) for queue in QUEUES[:3]] == [7, 10, 20]
    assert await again.committed_offset(MessageQueue("U", "broker-a", 0)) is None
    assert path.read_bytes().startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7,')
    assert sorted(file.name for file in path.parent.iterdir()) == ["offsets.json", "offsets.json.lock"]
    await again.close()


async def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    """Without it all messages would be received again. The error names the remedy."""
    path = tmp_path / "offsets.json"
    path.write_bytes(b"\x00\x01")
    with pytest.raises(ClientError, match="Remove it"):
        opened(path)
    path.unlink()
    await opened(path).close()  # it is not locked


async def test_a_write_that_fails_raises(tmp_path: Path) -> None:
    """The next commit writes again."""
    offsets = opened(tmp_path / "there" / "offsets.json")
    (tmp_path / "there").rename(tmp_path / "elsewhere")
    (tmp_path / "there").write_bytes(b"a file")
    with pytest.raises(ClientError, match="cannot be written"):
        await offsets.commit(QUEUES[0], 1)
    (tmp_path / "there").unlink()
    await offsets.commit(QUEUES[0], 2)
    await offsets.close()
    again = opened(offsets.path)
    assert await again.committed_offset(QUEUES[0]) == 2
    await again.close()


@pytest.mark.daemon
async def test_a_file_belongs_to_one_member(tmp_path: Path) -> None:
    """A second member is rejected while the first one runs, in any process. The error names the remedy."""
    path = tmp_path / "offsets.json"
    first = opened(path)
    with pytest.raises(ClientError, match="instance_name="):
        opened(path)
    module = "tests.clients.sdk.consuming.test_local_offsets"
    program = f"import sys; from {module} import opened, Path; opened(Path(sys.argv[1]))"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stderr=asyncio.subprocess.PIPE
    )
    _, said = await other.communicate()
    assert other.returncode == 1
    assert b"belongs to another running member" in said
    await first.close()
    await opened(path).close()


async def test_a_directory_that_cannot_be_created_raises(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ClientError, match="cannot be created"):
        opened(tmp_path / "file" / "offsets.json")


def test_the_default_path_has_group_and_instance_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with RocketMQ's clients; bad names are rejected."""
    monkeypatch.setenv("HOME", str(tmp_path))
    places = {default_path(group, name) for group in ("g", "h") for name in ("DEFAULT", "left")}
    assert len(places) == 4
    assert default_path("g") in places
    assert all(path.is_relative_to(tmp_path) for path in places)
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="instance_name="):
            default_path("g", name)
