"""The KV configuration: acknowledged changes are in the file, and a damaged file has a backup."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.namesrv.kv_config import KVConfig
from skylarkmq.protocol.errors import RequestError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def loaded(path: Path) -> KVConfig:
    kv = KVConfig(path)
    kv.load()
    return kv


async def test_a_change_is_in_the_file_when_it_is_acknowledged(path: Path) -> None:
    """The file is one line as in RocketMQ, and a new name server reads the same table from it."""
    kv = loaded(path)
    await kv.put("ORDER_TOPIC_CONFIG", "T", "a:8;b:8")
    assert path.read_bytes() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:8;b:8"}}}'
    assert loaded(path).get("ORDER_TOPIC_CONFIG", "T") == "a:8;b:8"


async def test_new_directories_are_synced_into_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the first acknowledgment keeps the path of the file, outermost directory first."""
    synced: list[str] = []
    sync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "a" / "b" / "kvConfig.json"
    kv = loaded(path)
    await kv.put("n", "k", "1")
    assert synced == [str(each) for each in (tmp_path, tmp_path / "a", f"{path}.tmp", path.parent)]
    synced.clear()
    await kv.put("n", "k", "2")
    assert synced == [f"{path}.tmp", str(path.parent)]


async def test_the_previous_content_is_kept_as_backup(path: Path) -> None:
    """An operator can undo one change by hand."""
    kv = loaded(path)
    await kv.put("n", "k", "1")
    assert not path.with_name("kvConfig.json.bak").exists()
    await kv.put("n", "k", "2")
    assert path.with_name("kvConfig.json.bak").read_bytes() == b'{"configTable":{"n":{"k":"1"}}}'
    assert {entry.name for entry in path.parent.iterdir()} == {"kvConfig.json", "kvConfig.json.bak"}


async def test_a_deletion_keeps_the_namespace(path: Path) -> None:
    """An emptied namespace stays; deleting a missing key is not an error and writes nothing."""
    kv = loaded(path)
    await kv.put("n", "k", "1")
    await kv.delete("n", "k")
    await kv.delete("n", "k")
    await kv.delete("m", "k")
    assert (kv.namespace("n"), kv.namespace("m"), kv.get("n", "k")) == ({}, None, None)
    assert kv.statistics().saved == 2
    assert loaded(path).namespace("n") == {}


@pytest.mark.parametrize("damage", [b"", b'{"configTable":{"n"', b"\0\0\0\0"])
async def test_a_damaged_file_falls_back_to_its_backup(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The state before the last change is served, with a warning; it stays the backup until a valid file is written."""
    kv = loaded(path)
    await kv.put("n", "k", "1")
    await kv.put("n", "k", "2")
    path.write_bytes(damage)
    kv = loaded(path)
    assert kv.get("n", "k") == "1"
    assert "taken from backup" in caplog.text
    await kv.put("n", "k", "3")
    assert loaded(path.with_name("kvConfig.json.bak")).get("n", "k") == "1"
    assert loaded(path).get("n", "k") == "3"


async def test_two_damaged_files_stop_the_start(path: Path) -> None:
    """An empty start would lose the operator's configuration."""
    path.parent.mkdir()
    for name in ("kvConfig.json", "kvConfig.json.bak"):
        path.with_name(name).write_bytes(b"{")
    with pytest.raises(StartError, match="damaged"):
        loaded(path)


async def test_an_unreadable_file_stops_the_start(path: Path) -> None:
    """A file that cannot be read is not treated as missing."""
    path.mkdir(parents=True)
    with pytest.raises(StartError, match="cannot be read"):
        loaded(path)


async def test_a_file_written_by_rocketmq_is_read(path: Path) -> None:
    """Unknown members and nulls are ignored."""
    path.parent.mkdir()
    path.write_bytes(b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:8"}},"other":null}\n')
    assert loaded(path).namespace("ORDER_TOPIC_CONFIG") == {"T": "a:8"}


async def test_a_change_that_cannot_be_written_has_no_effect(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets an error, and the table is unchanged."""
    kv = loaded(path)
    await kv.put("n", "k", "1")
    os.mkdir(path.with_name("kvConfig.json.tmp"))
    with pytest.raises(RequestError, match="cannot be saved"):
        await kv.put("n", "k", "2")
    assert kv.get("n", "k") == "1"
    assert "not written" in caplog.text
    path.with_name("kvConfig.json.tmp").rmdir()
    await kv.put("n", "k", "3")
    assert loaded(path).get("n", "k") == "3"
