"""Stores that RocketMQ wrote, read as rows: exactly the messages that RocketMQ would serve."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.arrow.schema import message_columns
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.selection import INNER_BATCH
from skylarkmq.protocol.codes import is_reserved_topic
from skylarkmq.protocol.disk import BATCH_CONSUME_QUEUE_DIRECTORY, CONSUME_QUEUE_DIRECTORY
from skylarkmq.protocol.record import Record, to_message
from tests.clients.arrow.store.stored_rows import GOLDEN_INDEX, everything, expected, identity, read
from tests.harness.golden_stores import SOME_GOLDEN_STORES, Golden, golden_store
from tests.harness.rounds import PART

LIGHT = "%LMQ%"
EACH_KEY = 20 * PART
"""One key of this number is looked up."""


@pytest.fixture(params=SOME_GOLDEN_STORES, ids="-".join, scope="module")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Return an unpacked store, which all tests read and none changes."""
    version, name = request.param
    return golden_store(version, name, tmp_path_factory.mktemp(f"{version}-{name}"))


def read_rest(root: Path, **options: Any) -> list[dict[str, Any]]:
    """Read all topics but those with batch queues, which some of these stores have."""
    return read(root, fail_on_data_loss=False, **options)


def served(golden: Golden) -> list[Record]:
    """Return the records that RocketMQ serves after its own recovery, determined by the ends of its queues."""
    bounds = {
        (queue["topic"], queue["queueId"]): range(queue["min"], queue["max"])
        for queue in golden.expected["offsets"]
        if not is_reserved_topic(queue["topic"]) and not queue["topic"].startswith(LIGHT)
        if not (golden.root / BATCH_CONSUME_QUEUE_DIRECTORY / queue["topic"]).exists()
    }
    newest: dict[tuple[str, int, int], Record] = {}
    for record in everything(golden.root):
        transaction = record.sys_flag & 0xC
        if transaction in {0, 8} and record.queue_offset in bounds.get((record.topic, record.queue_id), ()):
            newest[record.topic, record.queue_id, record.queue_offset] = record
    assert len(newest) == sum(map(len, bounds.values()))
    return sorted(newest.values(), key=lambda record: record.physical_offset)


def test_rows_by_segment_are_what_rocketmq_serves(golden: Golden) -> None:
    """Every message of every queue, in the order of the log; no half, rolled back or system message."""
    wanted = expected(served(golden), include_properties=True)
    columns = message_columns(include_properties=True)
    assert read_rest(golden.root, columns=columns) == wanted
    assert read_rest(golden.root, columns=columns, max_partition_bytes=5_000, check_crc=True) == wanted


def test_rows_by_queue_are_the_same(golden: Golden) -> None:
    """Queue by queue, each in its order."""
    rows = read_rest(golden.root, partition_by="queue")
    assert sorted(rows, key=identity) == sorted(expected(served(golden)), key=identity)
    assert [identity(row) for row in rows] == sorted(map(identity, rows))


def test_a_topic_is_read_through_its_queues(golden: Golden) -> None:
    """The rows equal the topic's part of the whole log; several topics are read together in the log's order."""
    records = served(golden)
    topics = sorted({record.topic for record in records})
    for chosen in [*[[topic] for topic in topics[::3]], topics[::2]]:
        wanted = expected([record for record in records if record.topic in chosen])
        assert read(golden.root, topics=tuple(chosen), max_partition_bytes=3_000) == wanted
        by_queue = read(golden.root, topics=tuple(chosen), partition_by="queue")
        assert sorted(by_queue, key=identity) == sorted(wanted, key=identity)


def test_reserved_topics_are_read_by_name_only(golden: Golden) -> None:
    """System topics are read only if the options name them."""
    records = [record for record in everything(golden.root) if record.topic == "SCHEDULE_TOPIC_XXXX"]
    rows = read(golden.root, topics=("SCHEDULE_TOPIC_XXXX",))
    assert [identity(row) for row in rows] == [(one.topic, one.queue_id, one.queue_offset) for one in records]


def test_times_select_messages(golden: Golden) -> None:
    """Rows from a time, before a time and between two times equal those selected by store timestamp."""
    records = served(golden)
    times = sorted({record.store_timestamp for record in records})
    middle = times[len(times) // 2]
    for begin, end in [(0, middle), (middle, None), (times[3], middle + 1), (times[-1], None), (middle, times[0])]:
        wanted = [one for one in records if begin <= one.store_timestamp < (end or 1 << 62)]
        options: dict[str, Any] = {"starting_timestamp": begin, "ending_timestamp": end, "max_partition_bytes": 9_000}
        assert read_rest(golden.root, **options) == expected(wanted)
        rows = read_rest(golden.root, partition_by="queue", **options)
        assert sorted(rows, key=identity) == sorted(expected(wanted), key=identity)


def test_keys_are_found_with_and_without_the_index(golden: Golden) -> None:
    """A key or unique key: the messages that have it, of all topics or one."""
    records = served(golden)
    by_key: dict[str, list[Record]] = {}
    for record in records:
        message = to_message(record)
        for key in {message.uniq_key, *message.properties.get("KEYS", "").split(" ")} - {""}:
            by_key.setdefault(key, []).append(record)
    for key, found in sorted(by_key.items())[::EACH_KEY]:
        rows = read_rest(golden.root, key=key, **GOLDEN_INDEX)
        assert sorted(rows, key=identity) == sorted(expected(found), key=identity), key
        assert read_rest(golden.root, key=key, use_index=False) == expected(found)
        topic = found[0].topic
        of_topic = read(golden.root, key=key, topics=(topic,), **GOLDEN_INDEX)
        assert sorted(map(identity, of_topic)) == sorted(
            map(identity, expected([x for x in found if x.topic == topic]))
        )
    assert read_rest(golden.root, key="no such key", **GOLDEN_INDEX) == []


def test_topics_with_batch_queues_are_reported(tmp_path: Path) -> None:
    """An error if such a topic is selected; other topics are read, and the rest with failOnDataLoss=false."""
    golden = golden_store("5.3.3", "clean", tmp_path)
    with pytest.raises(StoreUnreadable, match="topic FixtureBatchCQ has batch queues"):
        read(golden.root, topics=("FixtureBatchCQ",))
    with pytest.raises(StoreUnreadable, match=r"FixtureBatchCQ has .*name the topics .*, or set failOnDataLoss=false"):
        read(golden.root)
    assert {row["topic"] for row in read(golden.root, topics=("FixtureOrders",))} == {"FixtureOrders"}


def test_batch_records_of_a_log_without_queues_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The gap must not be silent if only the record itself shows that it has many messages."""
    golden = golden_store("5.3.3", "clean", tmp_path)
    batches = [one for one in everything(golden.root) if one.sys_flag & INNER_BATCH == INNER_BATCH]
    assert batches
    for directory in (BATCH_CONSUME_QUEUE_DIRECTORY, CONSUME_QUEUE_DIRECTORY):
        shutil.rmtree(golden.root / directory)
    with pytest.raises(
        StoreUnreadable, match=rf"BatchCQ\), the first at byte {batches[0].physical_offset} .*subscribe"
    ):
        read(golden.root)
    assert read(golden.root, topics=("FixtureOrders",))
    assert read(golden.root, ending_timestamp=batches[0].store_timestamp)
    assert read_rest(golden.root)
    assert "3 records with many messages each" in caplog.text
