"""Stores of ours read as rows: crashes, deletions, damage, what is no store, and filters."""

import os
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from skylarkmq.clients.spark.options import OptionError, parse
from skylarkmq.clients.spark.store import extent, reading
from skylarkmq.clients.spark.store.errors import StoreUnreadable
from skylarkmq.clients.spark.store.selection import Selection
from skylarkmq.clients.spark.store.store_filters import push
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS, StoreOptions
from skylarkmq.clients.spark.store.store_source import FilteredStoreReader, StoreReader
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY
from tests.clients.spark.store.stored_rows import GOLDEN_INDEX, everything, place, read, tasks_of
from tests.harness.stores import SEGMENT_BYTES, Opened, message, opened

SMALL = {"max_partition_bytes": 10_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fill(store: Opened, count: int, *, seed: int = 1, topics: int = 3, queues: int = 3) -> list[tuple[str, int, int]]:
    """Messages of several topics, sizes and times; what a row of each will be told by, in order."""
    chance = random.Random(seed)
    places = []
    for number in range(count):
        store.clock.now_ms += chance.randrange(50)
        one = message(
            chance.randbytes(chance.randrange(800)),
            f"T{chance.randrange(topics)}",
            chance.randrange(queues),
            properties=b"KEYS\x01k%d all\x02UNIQ_KEY\x01U%d-%d\x02" % (number % 7, seed, number),
        )
        store.put(one)
        places.append((one.topic, one.queue_id, one.queue_offset))
    return places


def places_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [place(row) for row in rows]


def write_over(root: Path, offset: int, data: bytes) -> None:
    """Damage at a byte of the log."""
    start = offset - offset % SEGMENT_BYTES
    with open(root / "commitlog" / f"{start:020d}", "r+b") as file:
        file.seek(offset - start)
        file.write(data)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int, int]]]:
    """A store that was stopped cleanly, over several segments."""
    root = tmp_path_factory.mktemp("original")
    with opened(root) as store:
        return root, fill(store, 600)


@pytest.fixture
def filled(
    original: tuple[Path, list[tuple[str, int, int]]], tmp_path: Path
) -> tuple[Path, list[tuple[str, int, int]]]:
    """A copy of it."""
    root, places = original
    return shutil.copytree(root, tmp_path / "copy"), places


@pytest.mark.parametrize("kept", ["all", "no checkpoint", "no queues", "no index"])
def test_a_store_whose_writer_was_killed_is_read_whole(tmp_path: Path, kept: str) -> None:
    """What was written before and after the last clean stop, in order, whatever of queues and checkpoint is left."""
    with opened(tmp_path) as store:
        places = fill(store, 300)
    it = Opened(tmp_path)
    places += fill(it, 200, seed=2)
    it.crash()
    if kept == "no checkpoint":
        (tmp_path / "checkpoint").unlink()
    if kept in {"no queues", "no index"}:
        directory = CONSUME_QUEUE_DIRECTORY if kept == "no queues" else INDEX_DIRECTORY
        (tmp_path / directory).rename(tmp_path / "away")
    assert places_of(read(tmp_path)) == places
    assert places_of(read(tmp_path, **SMALL)) == places
    assert sorted(places_of(read(tmp_path, partition_by="queue"))) == sorted(places)
    of_key = sorted(places_of(read(tmp_path, key="all", topics=("T1",), **GOLDEN_INDEX)))
    assert of_key == sorted(one for one in places if one[0] == "T1")


def test_behind_the_first_torn_record_of_a_crashed_store_nothing_counts(tmp_path: Path) -> None:
    """A record whose end was not written ends the log, though sound ones may follow."""
    it = Opened(tmp_path)
    places = fill(it, 40)
    it.crash()
    torn = everything(tmp_path)[30]
    write_over(tmp_path, torn.physical_offset + torn.size - 60, bytes(60))
    assert places_of(read(tmp_path)) == places[:30]
    assert sorted(places_of(read(tmp_path, partition_by="queue"))) == sorted(places[:30])


def test_half_and_rolled_back_messages_are_no_rows(tmp_path: Path) -> None:
    """Of a transaction only the committed message is one."""
    with opened(tmp_path) as store:
        for flags in (0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            store.put(message(b"%d" % flags, sys_flag=flags))
        store.put(message(b"half", "RMQ_SYS_TRANS_HALF_TOPIC"))
    assert [row["body"] for row in read(tmp_path)] == [b"0", b"8"]
    assert [row["body"] for row in read(tmp_path, topics=("RMQ_SYS_TRANS_HALF_TOPIC",))] == [b"half"]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_deleted_topic_has_no_rows_and_a_new_one_only_its_own(tmp_path: Path, crashed: bool) -> None:
    """Records of before the deletion stay in the log, but no unit leads to them."""
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


def test_a_queue_that_begins_late_is_read_from_there(tmp_path: Path) -> None:
    """Units of nobody in front of a queue's first message are passed over, and so are queues without any file."""
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
    """A window grows for what does not fit into it."""
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
    "place": (28, bytes(8)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("options", [{}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}], ids=str)
def test_damage_is_told_or_passed_over(
    filled: tuple[Path, list[tuple[str, int, int]]], damage: str, options: dict[str, Any]
) -> None:
    """A task fails with the byte of the log; with failOnDataLoss=false only the damaged message is missing."""
    root, places = filled
    at, data = DAMAGES[damage]
    damaged = everything(root)[100]
    write_over(root, damaged.physical_offset + at, data)
    with pytest.raises(StoreUnreadable, match=rf"byte {damaged.physical_offset} of the log.*failOnDataLoss=false"):
        read(root, **options)
    left = [one for one in places if one != (damaged.topic, damaged.queue_id, damaged.queue_offset)]
    assert sorted(places_of(read(root, fail_on_data_loss=False, **options))) == sorted(left)


def test_checksums_are_compared_when_asked_for(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """A flipped bit in a body is seen with checkCrc=true only."""
    root, places = filled
    damaged = next(one for one in everything(root)[50:] if one.body_size)
    write_over(root, damaged.physical_offset + 88, bytes([damaged.body[0] ^ 1]))
    assert places_of(read(root)) == places
    with pytest.raises(StoreUnreadable, match=rf"record at byte {damaged.physical_offset} .* another checksum"):
        read(root, check_crc=True)
    assert len(read(root, check_crc=True, fail_on_data_loss=False)) == len(places) - 1


def test_a_segment_missing_in_the_middle_is_told(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """The gap and its file are named; forceGap=true reads the rest."""
    root, places = filled
    lost = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    is_lost = [SEGMENT_BYTES <= one.physical_offset < 2 * SEGMENT_BYTES for one in everything(root)]
    lost.unlink()
    with pytest.raises(StoreUnreadable, match=rf"{SEGMENT_BYTES} bytes of the log are missing before .*forceGap"):
        read(root)
    left = [one for one, lost_too in zip(places, is_lost, strict=True) if not lost_too]
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}):
        rows = read(root, force_gap=True, fail_on_data_loss=False, **options)
        assert sorted(places_of(rows)) == sorted(left)


def test_a_log_in_several_directories_is_one(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """Segments by turns in two disks, as RocketMQ lays them out; one disk alone is told, by its gap or its end."""
    root, places = filled
    disks = [root.parent / "disk0" / "log", root.parent / "disk1" / "log"]
    for disk in disks:
        disk.mkdir(parents=True)
    for number, segment in enumerate(sorted((root / "commitlog").iterdir())):
        segment.rename(disks[number % 2] / segment.name)
    (root / "commitlog").rmdir()
    both = tuple(map(str, disks))
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}, SMALL):
        assert sorted(places_of(read(root, commit_log_paths=both, **options))) == sorted(places)
    with pytest.raises(StoreUnreadable, match=r"has no commitlog/.*named by storePathCommitLog"):
        read(root)
    with pytest.raises(StoreUnreadable, match=r"are missing before .*other directories \(storePathCommitLog\)"):
        read(root, commit_log_paths=both[:1])
    with pytest.raises(StoreUnreadable, match="are the same bytes of the log"):
        read(root, commit_log_paths=both * 2)


def test_a_log_that_ends_before_its_queues_is_told(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """The last segments are in another directory, or were not copied."""
    root, places = filled
    is_left = [one.physical_offset < SEGMENT_BYTES for one in everything(root)]
    for segment in sorted((root / "commitlog").iterdir())[1:]:
        segment.unlink()
    told = rf"queues lead to byte \d+ of the log, whose last segment ends at byte {SEGMENT_BYTES}; bring"
    with pytest.raises(StoreUnreadable, match=told):
        read(root)
    left = [one for one, there in zip(places, is_left, strict=True) if there]
    assert places_of(read(root, fail_on_data_loss=False)) == left


def test_expired_segments_are_no_loss(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """What is no more in the log is not looked for, though queues still have its units."""
    root, places = filled
    is_left = [one.physical_offset >= SEGMENT_BYTES for one in everything(root)]
    (root / "commitlog" / f"{0:020d}").unlink()
    left = [one for one, there in zip(places, is_left, strict=True) if there]
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T0", "T1", "T2")}):
        assert sorted(places_of(read(root, **options))) == sorted(left)
    assert len(read(root, key="all", **GOLDEN_INDEX)) == len(left)


def test_a_segment_that_goes_while_it_is_read_is_told(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """A broker that runs on the store may delete what was planned: no silent gap."""
    root, _ = filled
    for topics in (None, ("T0",)):
        reader = StoreReader(StoreOptions(path=str(root), topics=topics))
        partitions = reader.partitions()
        first = root / "commitlog" / f"{0:020d}"
        first.rename(root / "away")
        with pytest.raises(StoreUnreadable, match="of the log"):
            list(reader.read(partitions[0]))
        (root / "away").rename(first)


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    """A wrong path, files of another length, an index of another layout: each with what to do."""
    with pytest.raises(StoreUnreadable, match=r"is no store: it has no commitlog/; path has to name"):
        read(tmp_path / "nowhere")
    with opened(tmp_path) as store:
        fill(store, 300)
    with pytest.raises(StoreUnreadable, match=r"fit maxHashSlotNum=5000000 maxIndexNum=20000000: set both"):
        read(tmp_path, key="k1")
    os.truncate(tmp_path / "commitlog" / f"{0:020d}", 1000)
    with pytest.raises(StoreUnreadable, match=r"has 1000 bytes, its neighbours have 65536: the copy is not complete"):
        read(tmp_path)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    """Without a message there is nothing to plan."""
    with opened(tmp_path):
        pass
    for options in ({}, {"partition_by": "queue"}, {"topics": ("T",)}):
        assert read(tmp_path, **options) == []


def test_pieces_are_cut_where_records_begin(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """Many small tasks read what few large ones do, none of them nothing."""
    root, places = filled
    tasks = tasks_of(StoreReader(StoreOptions(path=str(root), max_partition_bytes=5_000)))
    assert len(tasks) > 20
    assert all(tasks)
    assert [place(row) for task in tasks for row in task] == places


# --- filters and options --------------------------------------------------------------------------


def test_filters_narrow_what_is_read() -> None:
    """Topics, times and a key are taken; a key's filter stays Spark's, too, and so does everything else."""
    at = EPOCH + timedelta(milliseconds=1_500)
    after = at + timedelta(microseconds=1)
    selection, left = push(
        Selection(topics=frozenset({"A", "B"})),
        [In(("topic",), ("B", "C")), GreaterThan(("storeTimestamp",), at), LessThan(("storeTimestamp",), after)],
    )
    assert (selection, left) == (Selection(frozenset({"B"}), None, 1_501, 1_501), [])
    whole: list[Filter] = [GreaterThanOrEqual(("storeTimestamp",), after), LessThanOrEqual(("storeTimestamp",), at)]
    assert push(Selection(), whole) == (Selection(None, None, 1_501, 1_501), [])
    assert push(Selection(), [EqualTo(("storeTimestamp",), at)])[0] == Selection(None, None, 1_500, 1_501)
    others: list[Filter] = [EqualTo(("key",), "k"), IsNotNull(("topic",)), EqualTo(("queueId",), 1)]
    assert push(Selection(), others) == (Selection(key="k"), others)


def test_a_reader_with_filters_reads_what_they_leave(filled: tuple[Path, list[tuple[str, int, int]]]) -> None:
    """The rows of a topic within a time, as if options had said so."""
    root, _ = filled
    rows = read(root, topics=("T1",))
    middle = rows[len(rows) // 2]["storeTimestamp"]
    reader = FilteredStoreReader(StoreOptions(path=str(root)))
    assert reader.pushFilters([EqualTo(("topic",), "T1"), LessThan(("storeTimestamp",), middle)]) == []
    found = [row for task in tasks_of(reader) for row in task]
    assert found == [row for row in rows if row["storeTimestamp"] < middle]


def test_options_are_read_by_their_names() -> None:
    """The table's rows lead into the struct; a wrong word is told."""
    options = parse(STORE_OPTIONS, {"PATH": "/data", "topic": "B, A", "partitionby": "QUEUE", "maxIndexNum": "10"})
    assert (options.path, options.topics, options.partition_by, options.index_items) == (
        "/data",
        ("A", "B"),
        "queue",
        10,
    )
    assert parse(STORE_OPTIONS, {"path": "file:///data/store"}).path == "/data/store"
    assert options.log_directories == (Path("/data/commitlog"),)
    spread = parse(STORE_OPTIONS, {"path": "/data", "storePathCommitLog": "/a/log, /b/log"})
    assert spread.log_directories == (Path("/a/log"), Path("/b/log"))
    with pytest.raises(OptionError, match="path must be a directory that every executor has mounted"):
        parse(STORE_OPTIONS, {"path": "hdfs://host/store"})
    with pytest.raises(OptionError, match="path is required"):
        parse(STORE_OPTIONS, {})
    with pytest.raises(OptionError, match="partitionBy must be one of segment, queue"):
        parse(STORE_OPTIONS, {"path": "/data", "partitionBy": "topic"})
    with pytest.raises(OptionError, match="did you mean startingTimestamp"):
        parse(STORE_OPTIONS, {"path": "/data", "startingTimestmp": "1"})
