"""Offsets in a file."""

import asyncio
import sys
from pathlib import Path

import pytest

from skylarkmq.clients.consuming.local_offsets import LocalOffsets, default_path
from skylarkmq.clients.errors import ClientError
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def opened(path: Path) -> LocalOffsets:
    offsets = LocalOffsets(path)
    offsets.open()
    return offsets


QUEUES = [MessageQueue("T", "broker-a", n) for n in range(50)]


async def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    """Many commits at a time end up in the file, in RocketMQ's layout; queues without one have none."""
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


async def test_a_file_that_is_none_stops_the_start(tmp_path: Path) -> None:
    """Going on would deliver everything again; the error says what to do."""
    path = tmp_path / "offsets.json"
    path.write_bytes(b"\x00\x01")
    with pytest.raises(ClientError, match="Remove it"):
        opened(path)
    path.unlink()
    await opened(path).close()  # nobody holds it


async def test_a_write_that_fails_is_told(tmp_path: Path) -> None:
    """And the next one is tried."""
    offsets = opened(tmp_path / "there" / "offsets.json")
    (tmp_path / "there").rename(tmp_path / "elsewhere")
    (tmp_path / "there").write_bytes(b"in the way")
    with pytest.raises(ClientError, match="cannot be written"):
        await offsets.commit(QUEUES[0], 1)
    (tmp_path / "there").unlink()
    await offsets.commit(QUEUES[0], 2)
    await offsets.close()
    again = opened(offsets.path)
    assert await again.committed_offset(QUEUES[0]) == 2
    await again.close()


async def test_a_file_is_one_members(tmp_path: Path) -> None:
    """A second one is refused while the first runs, wherever on the host it is; the error says what to do."""
    path = tmp_path / "offsets.json"
    first = opened(path)
    with pytest.raises(ClientError, match="instance_name="):
        opened(path)
    module = "tests.clients.consuming.test_local_offsets"
    program = f"import sys; from {module} import opened, Path; opened(Path(sys.argv[1]))"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stderr=asyncio.subprocess.PIPE
    )
    _, said = await other.communicate()
    assert other.returncode == 1
    assert b"belongs to another running member" in said
    await first.close()
    await opened(path).close()


async def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ClientError, match="cannot be created"):
        opened(tmp_path / "file" / "offsets.json")


def test_members_of_one_host_have_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A place each, by group and instance, as with RocketMQ's clients."""
    monkeypatch.setenv("HOME", str(tmp_path))
    places = {default_path(group, name) for group in ("g", "h") for name in ("DEFAULT", "left")}
    assert len(places) == 4
    assert default_path("g") in places
    assert all(path.is_relative_to(tmp_path) for path in places)
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="instance_name="):
            default_path("g", name)
