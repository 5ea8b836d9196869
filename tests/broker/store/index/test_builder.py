"""Queries by key through stops, crashes, damage and full disks: what the log has is found."""

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
from tests.harness.stores import INDEX_ITEMS, INDEX_SLOTS, Opened, TestDisk, message, opened
from tests.harness.waiting import until

COUNT = 600  # messages, of three keys each: nine index files and a bit


def keyed(number: int, **fields: Any) -> Append:
    properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01all k{number}\x02".encode()
    return message(b"%d" % number, properties=properties, **fields)


def found(it: Opened, key: str, most: int = 64) -> list[int]:
    """The numbers of the messages that a query answers."""
    it.store.commit()
    answer = it.store._key_query.run_now("T", key, most, 0, 1 << 62)
    return [int(bytes(it.body)) for it in iterate(b"".join(answer.records)) if isinstance(it, Record)]


def fill(it: Opened, count: int = COUNT, first: int = 0) -> None:
    for number in range(first, first + count):
        it.clock.now_ms += 1
        it.put(keyed(number))


def checkpointed(root: Path) -> Opened:
    """An open store with COUNT messages, whose checkpoint covers the full index files."""
    it = Opened(root, flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    fill(it)
    it.store._durability.log._flusher.wait_idle()  # type: ignore[union-attr]
    it.store.step(it.clock.now_ms + 10_000_000)
    it.store._durability._queue_flusher.wait_idle()  # type: ignore[union-attr]
    return it


def assert_finds_all(it: Opened, count: int = COUNT) -> None:
    for number in range(count):
        assert found(it, f"U{number}") == found(it, f"k{number}") == [number]
    newest = list(range(max(count - 64, 0), count))
    assert found(it, "all", 1000) == newest


def index_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


def test_a_stop_keeps_the_index(tmp_path: Path) -> None:
    """Files are the same after a stop and a start, and go on growing."""
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
    """Also those older than where the log's recovery begins, with the checkpoint of the last full file or none."""
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
    """Whatever a power cut made of files that were not synced does not matter."""
    it = Opened(tmp_path)
    fill(it)
    it.store.step(it.clock.now_ms)
    it.crash()
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(path.read_bytes()[:2_000].ljust(path.stat().st_size, b"\xa5"))
    with opened(tmp_path) as it:
        assert_finds_all(it)


def test_a_torn_head_with_an_older_end(tmp_path: Path) -> None:
    """The checkpoint vouches for files that end before its time; that time is the one of the last message."""
    it = checkpointed(tmp_path)
    fill(it, 400, COUNT)
    it.crash()
    *older, torn = sorted((tmp_path / "index").iterdir())[:10]  # behind the checkpoint, and full by now
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
def test_a_missing_file_is_made_again(tmp_path: Path, missing: str) -> None:
    """After a clean stop too."""
    with opened(tmp_path) as it:
        fill(it)
    paths = sorted((tmp_path / "index").iterdir())
    for path in {"all": paths, "last": paths[-1:], "middle": paths[4:5]}[missing]:
        path.unlink()
    with opened(tmp_path) as it:
        assert_finds_all(it)


def test_another_size_makes_all_again(tmp_path: Path) -> None:
    """Files of other settings cannot be read; the log can."""
    with opened(tmp_path) as it:
        fill(it)
    with opened(tmp_path, max_index_num=500) as it:
        assert_finds_all(it)
    assert len(index_files(tmp_path)) == 4


def test_a_time_without_index(tmp_path: Path) -> None:
    """With messageIndexEnable off nothing is found and nothing written; turned on again the gap is filled."""
    with opened(tmp_path) as it:
        fill(it)
    before = index_files(tmp_path)
    with opened(tmp_path, message_index_enable=False) as it:
        fill(it, 50, COUNT)
        assert found(it, "all") == []
    assert index_files(tmp_path) == before
    with opened(tmp_path) as it:
        assert_finds_all(it, COUNT + 50)


def test_an_index_of_another_log(tmp_path: Path) -> None:
    """Files that name messages which this log does not have go."""
    with opened(tmp_path) as it:
        fill(it)
    shutil.rmtree(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as it:
        assert found(it, "all") == []
        fill(it, 5)
        assert_finds_all(it, 5)


def test_damage_in_the_log_cuts_nothing(tmp_path: Path) -> None:
    """Making the index again passes over the rest of a damaged segment; what is behind it is found, and none goes."""
    with opened(tmp_path) as it:
        fill(it, 100)
        at = it.store.max_physical_offset
        fill(it, COUNT - 100, 100)
    shutil.rmtree(tmp_path / "index")
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at + 4)  # the magic
        file.write(b"\0\0\0\0")
    with opened(tmp_path) as it:
        it.must_be_sound = False
        assert found(it, "U50") == [50]
        assert found(it, "U300") == []
        assert found(it, "U599") == [599]
        assert it.store.max_offset("T", 0) == COUNT


def test_messages_without_keys(tmp_path: Path) -> None:
    """A log whose messages have no keys has no index, and no start looks for one."""
    with opened(tmp_path) as it:
        it.put(*(message() for _ in range(10)))
    with opened(tmp_path) as it:
        assert it.store._index is not None
        assert it.store._index._steps is None
    assert not (tmp_path / "index").exists()


def test_under_sync_flush_only_what_is_flushed(tmp_path: Path) -> None:
    """A message that a power cut could take back is not found."""
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


def test_transactions(tmp_path: Path) -> None:
    """Prepared messages have no queue and are found; rolled back ones are not; live and made again."""
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


def test_a_full_disk_at_the_start(tmp_path: Path) -> None:
    """The store serves, takes no messages after three attempts, and has everything in the index once there is room."""
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


async def test_a_large_index_is_made_while_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a limit the rest is read in slices; messages that come meanwhile are not forgotten."""
    with opened(tmp_path) as it:
        fill(it)
    shutil.rmtree(tmp_path / "index")
    monkeypatch.setattr("skylarkmq.broker.store.flush.durability.UNSAFE_CATCH_UP_BYTES", 1_000)
    loop = asyncio.get_running_loop()
    with opened(tmp_path, loop=loop) as it:
        index = it.store._index
        assert isinstance(index, IndexFeed)
        assert index._steps is not None
        fill(it, 10, COUNT)
        it.store.step(it.clock.now_ms)
        await until(lambda: index._steps is None)
        assert_finds_all(it, COUNT + 10)
    with opened(tmp_path) as it:
        assert it.store._index is not None


async def test_keys_do_not_wait_for_more(tmp_path: Path) -> None:
    """A few keys are put at the next step."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        assert it.store._index is not None
        fill(it, 3)
        assert it.store._index.index.waiting == 9
        it.store.step(it.clock.now_ms)
        assert it.store._index.index.waiting == 0
        assert_finds_all(it, 3)


async def test_many_keys_are_put_behind_their_turn(tmp_path: Path) -> None:
    """A thousand keys do not hold up who brought them: they are put in the next turn of the loop."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        fill(it, BATCH_KEYS // 3 + 1)
        index = it.store._index
        assert index is not None
        assert index.index.waiting > BATCH_KEYS
        await asyncio.sleep(0)
        assert index.index.waiting == 0
        assert_finds_all(it, BATCH_KEYS // 3 + 1)


async def test_a_step_leaves_keys_that_have_company(tmp_path: Path) -> None:
    """Keys younger than a batch that was put since the last step wait for the next one."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        fill(it, BATCH_KEYS // 3 + 1)
        await asyncio.sleep(0)
        fill(it, 3, BATCH_KEYS // 3 + 1)
        assert it.store._index is not None
        for waiting in (9, 0):
            it.store.step(it.clock.now_ms)
            assert it.store._index.index.waiting == waiting


def test_files_follow_the_log(tmp_path: Path) -> None:
    """What the log gave up is not found, and the files that only spoke of it go; a search under way finds its end."""
    with opened(tmp_path) as it:
        fill(it)
        index = it.store._index
        assert index is not None
        assert found(it, "U0") == [0]
        first = index.index.files[0]
        for file in index.index.files[:3]:
            file.hold()
        index.follow(first.header.end_offset + 1, 0)
        it.store._helper.shutdown()
        assert len(index_files(tmp_path)) == 9
        assert found(it, "U0") == []
        assert first.item(1)[1] == 0
        first.release()
        assert first.fd == -1
        assert found(it, "U599") == [599]
        it.must_be_sound = False
