"""Queries by key after stops, crashes, damage and full disks: all messages in the log are found."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.index import BATCH_KEYS
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import INDEX_HEADER_SIZE, INDEX_ITEM_SIZE, IndexLayout
from skylarkmq.protocol.record import Record, iterate
from tests.harness.rounds import PART
from tests.harness.stores import INDEX_ITEMS, INDEX_SLOTS, Opened, TestDisk, message, opened
from tests.harness.waiting import until

COUNT = 600  # messages with three keys each: nine index files and a part


def keyed(number: int, **fields: Any) -> Append:
    properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01all k{number}\x02".encode()
    return message(b"%d" % number, properties=properties, **fields)


def found(it: Opened, key: str, most: int = 64) -> list[int]:
    """Return the numbers of the messages that a query finds."""
    it.store.commit()
    result = it.store._parts.key_query.run_now("T", key, most, 0, 1 << 62)
    return [int(bytes(it.body)) for it in iterate(b"".join(result.records)) if isinstance(it, Record)]


def fill(it: Opened, count: int = COUNT, first: int = 0) -> None:
    for number in range(first, first + count):
        it.clock.now_ms += 1
        it.put(keyed(number))


def checkpointed(root: Path) -> Opened:
    """Return an open store with COUNT messages, whose checkpoint covers the full index files."""
    it = Opened(root, flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    fill(it)
    it.store._durability.log._flusher.wait_idle()  # type: ignore[union-attr]
    it.store.step(it.clock.now_ms + 10_000_000)
    it.store._durability._queue_flusher.wait_idle()  # type: ignore[union-attr]
    return it


def assert_finds_all(it: Opened, count: int = COUNT) -> None:
    for number in {*range(0, count, PART), count - 1}:
        assert found(it, f"U{number}") == found(it, f"k{number}") == [number]
    newest = list(range(max(count - 64, 0), count))
    assert found(it, "all", 1000) == newest


def index_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


def test_the_index_is_kept_after_a_stop(tmp_path: Path) -> None:
    """Files are equal after a stop and a start, and continue to grow."""
    with opened(tmp_path) as it:
        fill(it)
        assert_finds_all(it)
    before = index_files(tmp_path)
    assert len(before) == 10
    with opened(tmp_path) as it:
        assert_finds_all(it)
    assert index_files(tmp_path) == before
    with opened(tmp_path) as it:
        fill(it, 10, COUNT)
        assert_finds_all(it, COUNT + 10)


def test_a_crash_loses_no_key(tmp_path: Path) -> None:
    """Also keys older than the start of the log's recovery, with the checkpoint of the last full file or without."""
    it = checkpointed(tmp_path)
    fill(it, 100, COUNT)
    it.crash()
    copy = tmp_path.with_name("copy")
    shutil.copytree(tmp_path, copy)
    (copy / "checkpoint").unlink()
    kept = [name for name, data in index_files(tmp_path).items()][:9]
    for root in (tmp_path, copy):
        with opened(root) as it:
            assert_finds_all(it, COUNT + 100)
        with opened(root) as it:
            assert_finds_all(it, COUNT + 100)
    assert list(index_files(tmp_path))[:9] == kept
    assert list(index_files(tmp_path).values()) == list(index_files(copy).values())


def test_a_torn_index_is_not_trusted(tmp_path: Path) -> None:
    """Any damage of a power cut to unsynced files is repaired."""
    it = Opened(tmp_path)
    fill(it)
    it.store.step(it.clock.now_ms)
    it.crash()
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(path.read_bytes()[:2_000].ljust(path.stat().st_size, b"\xa5"))
    with opened(tmp_path) as it:
        assert_finds_all(it)


def test_a_torn_header_with_an_older_end_is_not_trusted(tmp_path: Path) -> None:
    """The checkpoint covers files that end before its time; the time of a file must be that of its last message."""
    it = checkpointed(tmp_path)
    fill(it, 400, COUNT)
    it.crash()
    *older, torn = sorted((tmp_path / "index").iterdir())[:10]  # `torn` is after the checkpoint, and full by now
    end_at = 8
    head = older[0].read_bytes()[:INDEX_HEADER_SIZE]
    for path in older:
        path.unlink()
    with torn.open("r+b") as file:
        file.seek(end_at)
        file.write(head[end_at : end_at + 8])
        file.seek(IndexLayout(INDEX_SLOTS, INDEX_ITEMS).item_at(INDEX_ITEMS // 2))
        file.write(bytes(INDEX_ITEM_SIZE))
    with opened(tmp_path) as it:
        assert_finds_all(it, COUNT + 400)


@pytest.mark.parametrize("missing", ["all", "last", "middle"])
def test_a_missing_file_is_rebuilt(tmp_path: Path, missing: str) -> None:
    """Also after a clean stop."""
    with opened(tmp_path) as it:
        fill(it)
    paths = sorted((tmp_path / "index").iterdir())
    for path in {"all": paths, "last": paths[-1:], "middle": paths[4:5]}[missing]:
        path.unlink()
    with opened(tmp_path) as it:
        assert_finds_all(it)


def test_another_file_size_rebuilds_the_index(tmp_path: Path) -> None:
    """Files of another size cannot be read; the log can."""
    with opened(tmp_path) as it:
        fill(it)
    with opened(tmp_path, max_index_num=500) as it:
        assert_finds_all(it)
    assert len(index_files(tmp_path)) == 4


def test_messages_stored_without_an_index_are_added_later(tmp_path: Path) -> None:
    """With messageIndexEnable off nothing is found and nothing written; turned on again, the gap is filled."""
    with opened(tmp_path) as it:
        fill(it)
    before = index_files(tmp_path)
    with opened(tmp_path, message_index_enable=False) as it:
        fill(it, 50, COUNT)
        assert found(it, "all") == []
    assert index_files(tmp_path) == before
    with opened(tmp_path) as it:
        assert_finds_all(it, COUNT + 50)


def test_the_index_of_another_log_is_removed(tmp_path: Path) -> None:
    """Files with messages that this log does not have are removed."""
    with opened(tmp_path) as it:
        fill(it)
    shutil.rmtree(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as it:
        assert found(it, "all") == []
        fill(it, 5)
        assert_finds_all(it, 5)


def test_damage_in_the_log_skips_the_rest_of_its_segment(tmp_path: Path) -> None:
    """A rebuild of the index skips the rest of a damaged segment and finds later messages; the log loses nothing."""
    with opened(tmp_path) as it:
        fill(it, 100)
        at = it.store.max_physical_offset
        fill(it, COUNT - 100, 100)
    shutil.rmtree(tmp_path / "index")
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at + 4)  # the magic
        file.write(b"\0\0\0\0")
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        assert found(it, "U50") == [50]
        assert found(it, "U300") == []
        assert found(it, "U599") == [599]
        assert it.store.max_offset("T", 0) == COUNT


def test_a_log_without_keys_has_no_index(tmp_path: Path) -> None:
    """No start reads such a log to build one."""
    with opened(tmp_path) as it:
        it.put(*(message() for _ in range(10)))
    with opened(tmp_path) as it:
        assert it.store._parts.index is not None
        assert it.store._parts.index._steps is None
    assert not (tmp_path / "index").exists()


def test_under_sync_flush_only_flushed_messages_are_found(tmp_path: Path) -> None:
    """A message that a power cut could take is not found."""
    with opened(tmp_path, sync=True) as it:
        it.disk.syncs.clear()
        it.put(keyed(1))
        assert found(it, "U1") == []
        it.disk.syncs.set()
        flusher = it.store._durability.log._flusher
        assert flusher is not None
        flusher.wait_idle()
        it.store.step(it.clock.now_ms)
        assert found(it, "U1") == [1]


def test_prepared_messages_are_found_and_rolled_back_ones_are_not(tmp_path: Path) -> None:
    """Prepared messages have no queue and are found; both live and after a rebuild."""
    with opened(tmp_path) as it:
        it.put(
            keyed(1, sys_flag=SysFlag.TRANSACTION_PREPARED), keyed(2, sys_flag=SysFlag.TRANSACTION_ROLLBACK), keyed(3)
        )
        assert [found(it, f"U{number}") for number in (1, 2, 3)] == [[1], [], [3]]
    before = index_files(tmp_path)
    shutil.rmtree(tmp_path / "index")
    with opened(tmp_path) as it:
        assert [found(it, f"U{number}") for number in (1, 2, 3)] == [[1], [], [3]]
    assert list(index_files(tmp_path).values()) == list(before.values())


def test_the_store_starts_with_a_full_disk(tmp_path: Path) -> None:
    """The store serves, rejects messages after three attempts, and completes the index once the disk has space."""
    with opened(tmp_path) as it:
        fill(it)
    shutil.rmtree(tmp_path / "index")
    disk = TestDisk()

    def refuse(call: str, path: str) -> None:
        if "/index/" in path:
            raise OSError(28, "No space left on device")

    disk.refuse = refuse
    with opened(tmp_path, disk=disk) as it:
        assert len(it.bodies()) == COUNT
        for _ in range(3):
            it.clock.now_ms += 1_000
            it.store.step(it.clock.now_ms)
        assert it.put(keyed(COUNT))[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        disk.refuse = lambda call, path: None
        it.clock.now_ms += 1_000
        for _ in range(5):
            it.store.step(it.clock.now_ms)
        assert it.put(keyed(COUNT))[0].status is PutStatus.PUT_OK
        assert_finds_all(it, COUNT + 1)


async def test_a_large_index_is_rebuilt_while_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the log is read in slices; messages that arrive in the meantime are indexed as well."""
    with opened(tmp_path) as it:
        fill(it)
    shutil.rmtree(tmp_path / "index")
    monkeypatch.setattr("skylarkmq.broker.store.flush.durability.UNSAFE_CATCH_UP_BYTES", 1_000)
    loop = asyncio.get_running_loop()
    with opened(tmp_path, loop=loop) as it:
        index = it.store._parts.index
        assert isinstance(index, IndexFeed)
        assert index._steps is not None
        fill(it, 10, COUNT)
        it.store.step(it.clock.now_ms)
        await until(lambda: index._steps is None)
        assert_finds_all(it, COUNT + 10)
    with opened(tmp_path) as it:
        assert it.store._parts.index is not None


async def test_few_keys_are_put_at_the_next_step(tmp_path: Path) -> None:
    """They do not wait for a complete batch."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        assert it.store._parts.index is not None
        index = it.store._parts.index.index
        fill(it, 3)
        assert index.waiting == 9
        await until(lambda: not index._awaits_file())  # a thread creates it
        it.store.step(it.clock.now_ms)
        assert index.waiting == 0
        assert_finds_all(it, 3)


async def test_many_keys_are_put_in_the_next_iteration(tmp_path: Path) -> None:
    """A thousand keys do not delay the responses of their iteration."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        fill(it, BATCH_KEYS // 3 + 1)
        index = it.store._parts.index
        assert index is not None
        assert index.index.waiting > BATCH_KEYS
        await asyncio.sleep(0)
        assert index.index.waiting == 0
        assert_finds_all(it, BATCH_KEYS // 3 + 1)


async def test_a_step_leaves_keys_that_are_newer_than_the_last_batch(tmp_path: Path) -> None:
    """Keys newer than a batch that was put since the last step wait for the next step."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        fill(it, BATCH_KEYS // 3 + 1)
        await asyncio.sleep(0)
        fill(it, 3, BATCH_KEYS // 3 + 1)
        assert it.store._parts.index is not None
        for waiting in (9, 0):
            it.store.step(it.clock.now_ms)
            assert it.store._parts.index.index.waiting == waiting


def test_files_are_removed_with_the_log(tmp_path: Path) -> None:
    """Deleted messages are not found, and files with these only are removed; a running search completes."""
    with opened(tmp_path) as it:
        fill(it)
        index = it.store._parts.index
        assert index is not None
        assert found(it, "U0") == [0]
        first = index.index.files[0]
        for file in index.index.files[:3]:
            file.hold()
        index.follow(first.header.end_offset + 1, 0)
        it.store._parts._helper.shutdown()
        assert len(index_files(tmp_path)) == 9
        assert found(it, "U0") == []
        assert first.item(1)[1] == 0
        first.release()
        assert first.fd == -1
        assert found(it, "U599") == [599]
        it.must_be_consistent = False
