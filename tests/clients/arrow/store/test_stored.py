"""Stores of our broker, read as rows: crashes, deletions, damage, and invalid directories."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.arrow.store import extent, reading
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY
from tests.clients.arrow.store.stored_rows import GOLDEN_INDEX, everything, identity, read, tasks_of
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened

SMALL = {"max_partition_bytes": 10_000}


def fill(store: Opened, count: int, *, seed: int = 1, topics: int = 3, queues: int = 3) -> list[tuple[str, int, int]]:
    """Store messages of several topics, sizes and times; return what identifies the row of each, in order."""
    chance = random.Random(seed)
    messages = []
    for number in range(count):
        store.clock.now_ms += chance.randrange(50)
        one = message(
            chance.randbytes(chance.randrange(800)),
            f"T{chance.randrange(topics)}",
            chance.randrange(queues),
            properties=b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d-%d\x02" % (number % 7, seed, number),
        )
        store.put(one)
        messages.append((one.topic, one.queue_id, one.queue_offset))
    return messages


def identities_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [identity(row) for row in rows]


def write_over(root: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes at an offset of the log."""
    start = offset - offset % SEGMENT_BYTES
    with open(root / "commitlog" / f"{start:020d}", "r+b") as file:
        file.seek(offset - start)
        file.write(data)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int, int]]]:
    """A store over several segments, after a clean stop."""
    root = tmp_path_factory.mktemp("original")
    with opened(root) as store:
        return root, fill(store, 600)


@pytest.fixture
def filled(
    original: tuple[Path, list[tuple[str, int, int]]], tmp_path: Path
) -> tuple[Path, list[tuple[str, int, int]]]:
    """A copy of the original store."""
    root, messages = original
    return shutil.copytree(root, tmp_path / "copy"), messages


@pytest.mark.parametrize("kept", ["all", "no checkpoint", "no queues", "no index"])
def test_a_store_after_a_kill_is_read_completely(tmp_path: Path, kept: str) -> None:
    """Messages before and after the last clean stop, in order, whatever queues and checkpoint contain."""
    with opened(tmp_path) as store:
        messages = fill(store, 300)
    it = Opened(tmp_path)
    messages += fill(it, 200, seed=2)
    it.crash()
    if kept == "no checkpoint":
        (tmp_path / "checkpoint").unlink()
    if kept in {"no queues", "no index"}:
        directory = CONSUME_QUEUE_DIRECTORY if kept == "no queues" else INDEX_DIRECTORY
        (tmp_path / directory).rename(tmp_path / "away")
    assert identities_of(read(tmp_path)) == messages
    assert identities_of(read(tmp_path, **SMALL)) == messages
    assert sorted(identities_of(read(tmp_path, partition_by="queue"))) == sorted(messages)
    of_key = sorted(identities_of(read(tmp_path, key="all", topics=("T1",), **GOLDEN_INDEX)))
    assert of_key == sorted(one for one in messages if one[0] == "T1")


def test_the_first_torn_record_ends_the_log_after_a_crash(tmp_path: Path) -> None:
    """The log ends at a record whose end was not written, even if valid records follow."""
    it = Opened(tmp_path)
    messages = fill(it, 40)
    it.crash()
    torn = everything(tmp_path)[30]
    write_over(tmp_path, torn.physical_offset + torn.size - 60, bytes(60))
    assert identities_of(read(tmp_path)) == messages[:30]
    assert sorted(identities_of(read(tmp_path, partition_by="queue"))) == sorted(messages[:30])


def test_half_and_rolled_back_messages_have_no_rows(tmp_path: Path) -> None:
    """Only the committed message of a transaction is a row."""
    with opened(tmp_path) as store:
        for flags in (0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            store.put(message(b"%d" % flags, sys_flag=flags))
        store.put(message(b"half", "RMQ_SYS_TRANS_HALF_TOPIC"))
    assert [row["body"] for row in read(tmp_path)] == [b"0", b"8"]
    assert [row["body"] for row in read(tmp_path, topics=("RMQ_SYS_TRANS_HALF_TOPIC",))] == [b"half"]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_recreated_topic_has_only_new_rows(tmp_path: Path, crashed: bool) -> None:
    """Records from before the deletion remain in the log, but no unit refers to them."""
    it = Opened(tmp_path)
    for body in (b"old 0", b"old 1"):
        it.put(message(body, "Gone"), message(body, "Again"), message(body, "Stays"))
    it.store.close()
    end = sum(record.size for record in everything(tmp_path))
    for topic in ("Gone", "Again"):
        for path in sorted((tmp_path / CONSUME_QUEUE_DIRECTORY / topic).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / CONSUME_QUEUE_DIRECTORY / topic).rmdir()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "deletedTopics.json").write_text(f'{{"Gone":{end},"Again":{end}}}')
    it = Opened(tmp_path)
    it.put(message(b"new 0", "Again"))
    it.crash() if crashed else it.store.close()
    wanted = [b"old 0", b"old 1", b"new 0"]
    assert [row["body"] for row in read(tmp_path)] == wanted
    assert sorted(row["body"] for row in read(tmp_path, partition_by="queue")) == sorted(wanted)
    assert read(tmp_path, topics=("Gone",)) == []
    assert [row["body"] for row in read(tmp_path, topics=("Again",))] == [b"new 0"]


def test_a_queue_is_read_from_its_first_message(tmp_path: Path) -> None:
    """Padding units before the first message are skipped, and so are queues without files."""
    with opened(tmp_path) as store:
        for topic in ("A", "B"):
            store.store.put(message(topic=topic))
        store.store.commit()
    (tmp_path / CONSUME_QUEUE_DIRECTORY / "C" / "0").mkdir(parents=True)
    filler = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    path = tmp_path / CONSUME_QUEUE_DIRECTORY / "A" / "0" / f"{0:020d}"
    path.write_bytes(filler * 3 + path.read_bytes()[:-60])
    for options in ({}, {"partition_by": "queue"}, {"topics": ("A", "B", "C")}):
        assert sorted(row["topic"] for row in read(tmp_path, **options)) == ["A", "B"]


def test_records_longer_than_a_window_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window grows for a record that does not fit."""
    with opened(tmp_path) as store:
        for size in (10, 20_000, 5, 30_000, 0):
            store.put(message(bytes(size)))
    for module in (extent, reading):
        monkeypatch.setattr(module, "WINDOW_BYTES", 4_096)
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T",)}):
        assert [len(row["body"]) for row in read(tmp_path, **options)] == [10, 20_000, 5, 30_000, 0]


DAMAGES = {
    "magic": (4, bytes(4)),
    "size": (0, b"\x7f\xff\xff\xff"),
    "body length": (84, b"\x00\x00\x7f\xff"),
    "position": (28, bytes(8)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("options", [{}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}], ids=str)
def test_damage_fails_the_task_or_is_skipped(
    filled: tuple[Path, list[tuple[str, int, int]]], damage: str, options: dict[str, Any]
) -> None:
    """The error contains the offset; with failOnDataLoss=false only the damaged message is missing."""
    root, messages = filled
    at, data = DAMAGES[damage]
    damaged = everything(root)[100]
    write_over(root, damaged.physical_offset + at, data)
    with pytest.raises(StoreUnreadable, match=rf"byte {damaged.physical_offset} of the log.*failOnDataLoss=false"):
        read(root, **options)
    left = [one for one in messages if one != (damaged.topic, damaged.queue_id, damaged.queue_offset)]
    assert sorted(identities_of(read(root, fail_on_data_loss=False, **options))) == sorted(left)


def test_checksums_are_verified_with_check_crc(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """A flipped bit in a body is detected only with checkCrc=true."""
    root, messages = filled
    damaged = next(one for one in everything(root)[50:] if one.body_size)
    write_over(root, damaged.physical_offset + 88, bytes([damaged.body[0] ^ 1]))
    assert identities_of(read(root)) == messages
    with pytest.raises(
        StoreUnreadable, match=rf"record at byte {damaged.physical_offset} .* does not match its checksum"
    ):
        read(root, check_crc=True)
    assert len(read(root, check_crc=True, fail_on_data_loss=False)) == len(messages) - 1


def test_a_missing_segment_is_reported(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """The error contains the gap and its file; forceGap=true reads the rest."""
    root, messages = filled
    lost = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    is_lost = [SEGMENT_BYTES <= one.physical_offset < 2 * SEGMENT_BYTES for one in everything(root)]
    lost.unlink()
    with pytest.raises(StoreUnreadable, match=rf"{SEGMENT_BYTES} bytes of the log are missing before .*forceGap"):
        read(root)
    left = [one for one, lost_too in zip(messages, is_lost, strict=True) if not lost_too]
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}):
        rows = read(root, force_gap=True, fail_on_data_loss=False, **options)
        assert sorted(identities_of(rows)) == sorted(left)


def test_a_log_in_several_directories_is_read_as_one(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """Segments alternate between two disks, as in RocketMQ; with one disk alone, the gap or the end is reported."""
    root, messages = filled
    disks = [root.parent / "disk0" / "log", root.parent / "disk1" / "log"]
    for disk in disks:
        disk.mkdir(parents=True)
    for number, segment in enumerate(sorted((root / "commitlog").iterdir())):
        segment.rename(disks[number % 2] / segment.name)
    (root / "commitlog").rmdir()
    both = tuple(map(str, disks))
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}, SMALL):
        assert sorted(identities_of(read(root, commit_log_paths=both, **options))) == sorted(messages)
    with pytest.raises(StoreUnreadable, match=r"has no commitlog/.*Set storePathCommitLog"):
        read(root)
    with pytest.raises(StoreUnreadable, match=r"are missing before .*other directories \(storePathCommitLog\)"):
        read(root, commit_log_paths=both[:1])
    with pytest.raises(StoreUnreadable, match="cover the same bytes of the log"):
        read(root, commit_log_paths=both * 2)


def test_a_log_that_ends_before_its_queues_is_reported(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """The last segments are in another directory, or were not copied."""
    root, messages = filled
    is_left = [one.physical_offset < SEGMENT_BYTES for one in everything(root)]
    for segment in sorted((root / "commitlog").iterdir())[1:]:
        segment.unlink()
    told = rf"queue units refer to byte \d+ of the log, whose last segment ends at byte {SEGMENT_BYTES}; restore"
    with pytest.raises(StoreUnreadable, match=told):
        read(root)
    left = [one for one, there in zip(messages, is_left, strict=True) if there]
    assert identities_of(read(root, fail_on_data_loss=False)) == left


def test_expired_segments_are_no_loss(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """Messages that are no longer in the log are not read, although queues still have their units."""
    root, messages = filled
    is_left = [one.physical_offset >= SEGMENT_BYTES for one in everything(root)]
    (root / "commitlog" / f"{0:020d}").unlink()
    left = [one for one, there in zip(messages, is_left, strict=True) if there]
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}):
        assert sorted(identities_of(read(root, **options))) == sorted(left)
    assert len(read(root, key="all", **GOLDEN_INDEX)) == len(left)


def test_a_segment_deleted_during_the_read_is_reported(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """A running broker may delete planned segments: no silent gap."""
    root, _ = filled
    for topics in (None, ("T0",)):
        options = StoreOptions(path=str(root), topics=topics)
        plan = Plan(options, options.selection)
        tasks = plan.tasks()
        first = root / "commitlog" / f"{0:020d}"
        first.rename(root / "away")
        with pytest.raises(StoreUnreadable, match="of the log"):
            list(StoreRows(options, options.selection, plan.extent).read(tasks[0]))
        (root / "away").rename(first)


def test_an_invalid_store_is_reported(tmp_path: Path) -> None:
    """A wrong path, an incomplete segment, an index of another layout: each error contains the remedy."""
    with pytest.raises(StoreUnreadable, match=r"is not a store: it has no commitlog/; set path to"):
        read(tmp_path / "nowhere")
    with opened(tmp_path) as store:
        fill(store, 300)
    with pytest.raises(StoreUnreadable, match=r"of maxHashSlotNum=5000000 maxIndexNum=20000000: set both"):
        read(tmp_path, key="k1")
    os.truncate(tmp_path / "commitlog" / f"{0:020d}", 1000)
    with pytest.raises(StoreUnreadable, match=r"has 1000 bytes, its neighbours have 65536: the copy is incomplete"):
        read(tmp_path)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    """No task is planned for a store without messages."""
    with opened(tmp_path):
        pass
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T",)}):
        assert read(tmp_path, **options) == []


def test_pieces_begin_at_records(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """Many small tasks read the same as few large ones; none is empty."""
    root, messages = filled
    tasks = tasks_of(StoreOptions(path=str(root), max_partition_bytes=5_000))
    assert len(tasks) > 20
    assert all(tasks)
    assert [identity(row) for task in tasks for row in task] == messages
