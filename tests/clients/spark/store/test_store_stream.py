"""A store as a stream, planned and read as Spark does it: parts without gap or double, and offsets for the broker."""

import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.source.offsets import FROM, LOG, FirstBatch, Offset
from skylarkmq.clients.spark.store.store_options import StoreSourceOptions
from skylarkmq.clients.spark.store.store_stream import StoreStreamReader
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.disk import CONSUME_QUEUE_DIRECTORY
from tests.clients.arrow.store.test_stored import fill
from tests.harness.spark_rows import rows_of
from tests.harness.stores import SEGMENT_BYTES, Opened, opened

PART = 20_000
Identity = tuple[str, int, int]


def reader(root: Path, broker: str | None = "a", **options: Any) -> StoreStreamReader:
    return StoreStreamReader(StoreSourceOptions(path=str(root), broker_name=broker, **options))


def rows(one: StoreStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Identity]:
    """The rows of a batch, from a copy of the reader that was pickled before it was used."""
    copy = pickle.dumps(one)
    partitions = pickle.loads(pickle.dumps(one.partitions(start, end)))
    found = [row for each in partitions for batch in pickle.loads(copy).read(each) for row in rows_of(batch)]
    assert {row["brokerName"] for row in found} <= {"a", "b"}
    return [(row["topic"], row["queueId"], row["queueOffset"]) for row in found]


def drain(root: Path, start: dict[str, Any] | None = None, **options: Any) -> tuple[list[list[Identity]], list[Offset]]:
    """The rows of each part and the offset after it; each part has a new reader, as after a restart."""
    start = reader(root, **options).initialOffset() if start is None else start
    parts, offsets = [], []
    while (end := reader(root, **options).next_end(start, PART)) != start:
        parts.append(rows(reader(root, **options), start, end))
        offsets.append(Offset.of(end))
        start = end
    return parts, offsets


@pytest.mark.parametrize("kind", ["clean", "crashed", "no queues", "topic", "pattern", "by queue"])
def test_parts_have_each_row_once_and_the_next_offset_of_each_queue(tmp_path: Path, kind: str) -> None:
    """After each part, the offset of a queue is the number of its messages up to there."""
    options: dict[str, dict[str, Any]] = {
        "topic": {"topics": ("T1",)},
        "pattern": {"topic_pattern": "T[02]"},
        "by queue": {"partition_by": "queue"},
    }
    with opened(tmp_path) as store:
        messages = fill(store, 250)
    if kind in {"crashed", "no queues"}:
        it = Opened(tmp_path)
        messages += fill(it, 150, seed=2)
        it.crash()
    if kind == "no queues":
        shutil.rmtree(tmp_path / CONSUME_QUEUE_DIRECTORY)
    selected = {"topic": {"T1"}, "pattern": {"T0", "T2"}}.get(kind, {"T0", "T1", "T2"})
    wanted = [one for one in messages if one[0] in selected]
    parts, offsets = drain(tmp_path, **options.get(kind, {}))
    assert len(parts) > 1
    assert sorted(one for part in parts for one in part) == sorted(wanted)
    if kind != "by queue":
        assert [one for part in parts for one in part] == wanted
    counts: Counter[MessageQueue] = Counter()
    for part, offset in zip(parts, offsets, strict=True):
        counts.update(MessageQueue(topic, "a", queue_id) for topic, queue_id, _ in part)
        assert {queue: end for queue, end in offset.ends.items() if end} == counts


def test_a_store_that_has_grown_continues(tmp_path: Path) -> None:
    """The new messages follow; a restart that finds nothing new returns the same text."""
    with opened(tmp_path) as store:
        messages = fill(store, 100)
    parts, offsets = drain(tmp_path)
    end = offsets[-1].to_dict()
    assert next(iter(end)) == LOG
    assert reader(tmp_path).next_end(end, None) == end
    with opened(tmp_path) as store:
        messages += fill(store, 100, seed=2)
    more, _ = drain(tmp_path, end)
    assert [one for part in parts + more for one in part] == messages


def test_stores_of_several_brokers_follow_each_other(tmp_path: Path) -> None:
    """The offset keeps the positions of all logs and the offsets of all queues."""
    for name in ("a", "b"):
        with opened(tmp_path / name) as store:
            fill(store, 40, seed=ord(name), topics=1, queues=1)
    end = drain(tmp_path / "a")[1][-1].to_dict()
    _, (*_, last) = drain(tmp_path / "b", end, broker="b")
    assert last.ends == {MessageQueue("T0", "a", 0): 40, MessageQueue("T0", "b", 0): 40}
    assert last.logs.keys() == {"a", "b"}
    assert drain(tmp_path / "a", last.to_dict()) == ([], [])
    unfinished = reader(tmp_path / "b", "b").next_end(end, PART)
    with pytest.raises(OptionError, match="the last batch reads the store of b and has not finished"):
        reader(tmp_path / "a").partitions(end, unfinished)


def test_a_reader_without_the_start_keeps_its_position(tmp_path: Path) -> None:
    """PySpark before 4.2 requests the end of a batch without its start, after the ranges of the last batch."""
    with opened(tmp_path) as store:
        messages = fill(store, 200)
    one = reader(tmp_path, max_bytes_per_trigger=PART)
    start, found = one.initialOffset(), []
    for _ in range(2):
        end = one.latestOffset()
        found += rows(one, start, end)
        start = end
    one = reader(tmp_path, max_bytes_per_trigger=PART)
    assert one.partitions(start, start) == []
    while (end := one.latestOffset()) != start:
        found += rows(one, start, end)
        start = end
    assert found == messages
    assert one.remaining()[LOG] == end[LOG]


def test_a_new_query_repeats_the_last_part_of_another_one_and_continues(tmp_path: Path) -> None:
    """From offsets that a table kept; an empty start is the first record."""
    with opened(tmp_path) as store:
        messages = fill(store, 200)
    parts, ends = drain(tmp_path)
    starts: list[dict[str, Any]] = [{}, *(end.to_dict() for end in ends)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
        first = FirstBatch(start, end.to_dict())
        one = reader(tmp_path, first_batch=first)
        assert one.initialOffset() == start
        assert one.latestOffset() == one.next_end(start, None) == end.to_dict()
        found = rows(one, start, end.to_dict())
        assert found == parts[number]
        more, _ = drain(tmp_path, end.to_dict(), first_batch=first)
        assert [*found, *(row for part in more for row in part)] == messages[-len(found) - sum(map(len, more)) :]
    last = reader(tmp_path, first_batch=FirstBatch(starts[-1]))
    assert last.next_end(last.initialOffset(), None) == starts[-1]


def test_a_store_after_the_stream_has_begun_is_refused(tmp_path: Path) -> None:
    """The checkpoint then has offsets of queues, and no positions in logs."""
    with opened(tmp_path) as store:
        fill(store, 20)
    begun = Offset({MessageQueue("T0", "a", 0): 3}).to_dict()
    with pytest.raises(OptionError, match="use a new checkpoint and a new table"):
        reader(tmp_path).next_end(begun, None)
    with pytest.raises(OptionError, match="use a new checkpoint and a new table"):
        reader(tmp_path).partitions(reader(tmp_path).initialOffset(), begun)


def test_a_store_that_does_not_follow_the_last_part_is_refused(tmp_path: Path) -> None:
    """Segments are missing in between, or the store is an older copy."""
    with opened(tmp_path) as store:
        fill(store, 400)
    end = reader(tmp_path).next_end(reader(tmp_path).initialOffset(), PART)
    late = Offset({}, logs={"a": 1 << 40}).to_dict()
    with pytest.raises(StoreUnreadable, match="this is an older copy"):
        reader(tmp_path).next_end(late, PART)
    assert end[LOG]["a"] < SEGMENT_BYTES
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(StoreUnreadable, match="segments in between were deleted"):
        reader(tmp_path).next_end(end, PART)


def test_a_stream_needs_the_name_of_the_broker(tmp_path: Path) -> None:
    """Offsets belong to it; a search for a key is a batch read."""
    with pytest.raises(OptionError, match="a stream needs brokerName"):
        reader(tmp_path, None)
    with pytest.raises(OptionError, match="key is an option of batch reads"):
        reader(tmp_path, key="k")


def test_offsets_keep_positions_in_logs() -> None:
    """Beside the starts and ends of queues, with ordered keys."""
    queue = MessageQueue("T", "a", 0)
    offset = Offset({queue: 3}, {queue: 1}, {"b": 2, "a": 1})
    value = offset.to_dict()
    assert list(value) == [FROM, LOG, "T"]
    assert list(value[LOG]) == ["a", "b"]
    assert Offset.of(value) == offset
