"""The compiled modules write the same bytes as the pure-Python versions: into the log, queues and index files."""

import random
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skylarkmq.broker.store.dispatch.dispatch import python_gather_units
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.index.entries import Entries, PythonIndexEntries
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.log.append import PutStatus, PythonAppend
from skylarkmq.broker.store.log.record_batch import PythonRecordBatch
from skylarkmq.broker.store.queue.tail import PythonQueueTail
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import IndexLayout, index_keys
from skylarkmq.protocol.record import Record, iterate
from tests.harness.rounds import rounds

module: Any = compiled.load("record")
tails: Any = compiled.load("queue_tail")
dispatch: Any = compiled.load("dispatch")
index_module: Any = compiled.load("index")
pytestmark = pytest.mark.skipif(module is None, reason="the module is not built, or switched off")

SEEDS = range(rounds(200))
MESSAGES = 550
"""More than 100,000 in all rounds."""

TOPICS = ["T", "TopicTest", "%RETRY%group", "x" * 127, "y" * 128, "%RETRY%" + "z" * 248, "主题", "SCHEDULE_TOPIC_XXXX"]
HOSTS = [bytes(8), bytes(range(8)), bytes(range(20))]
CHARACTERS = string.ascii_letters + string.digits + "-_ \x00\x7fé订单😀"
SEGMENT_END = 1 << 40


def some_text(rng: random.Random, longest: int) -> str:
    return "".join(rng.choices(CHARACTERS, k=rng.randint(0, longest)))


def fields_of(rng: random.Random) -> tuple[dict[str, Any], list[bytes] | None]:
    """Return the fields of a message, and its keys if they are set in advance."""
    keys, unique = some_text(rng, 30), some_text(rng, 40).replace(" ", "")
    properties = f"TAGS\x01a\x02UNIQ_KEY\x01{unique}\x02KEYS\x01{keys}\x02".encode()
    body: Any = rng.randbytes(rng.choice((0, 1, 7, rng.randint(0, 300), rng.randint(0, 3000))))
    fields: dict[str, Any] = {
        "topic": rng.choice(TOPICS),
        "queue_id": rng.randint(0, 3),
        "body": rng.choice((bytes, bytearray, memoryview))(body),
        "properties": rng.choice((properties, b"", properties[:-1])),
        "tags_code": rng.choice((0, -(1 << 31), (1 << 31) - 1, rng.randint(-(1 << 63), (1 << 63) - 1))),
        "flag": rng.randint(-(1 << 31), (1 << 31) - 1),
        "sys_flag": rng.choice((0, 1, 2, 4, 8, 12, 0x301, 0x30, rng.randint(0, 0x7FF))),
        "born_timestamp": rng.choice((0, 1_700_000_000_000, rng.randint(-(1 << 63), (1 << 63) - 1))),
        "born_host": rng.choice(HOSTS),
        "reconsume_times": rng.randint(-1, 20),
        "prepared_transaction_offset": rng.randint(0, 1 << 40),
        "wait_flush": rng.random() < 0.9,
    }
    return fields, index_keys(fields["properties"]) if rng.random() < 0.7 else None


class Variant:
    """One way to put, dispatch and index messages."""

    def __init__(self, append: Any, tail: Any, batch: Any, gather: Any, entries: Any, store_host: bytes) -> None:
        self.unusual: list[Any] = []
        self.make = append
        self.queues = {(topic, number): tail(topic, number) for topic in TOPICS for number in range(3)}
        self.batch = batch(self.queues, store_host, self.unusual.append)
        self.gather = gather
        self.entries = entries

    def run(self, messages: list[tuple[dict[str, Any], list[bytes] | None]], start: int) -> dict[str, Any]:
        """Return all visible results of one batch."""
        self.batch.unchecked_size = 2500
        self.batch.open(start, SEGMENT_END, 1_700_000_000_123)
        for fields, keys in messages:
            self.batch.put(self.make(**fields, keys=keys))
        with self.batch.data() as view:
            data = bytes(view)
        appends = self.batch.close()
        jumped: list[str] = []
        touched = self.gather(
            appends, lambda append: append.store_timestamp + 7, lambda queue: jumped.append(queue.topic)
        )
        turns = [(queue.topic, queue.queue_id, queue.take_new_tags_codes()) for queue in touched]
        self.entries.add(appends, 1)
        unusual = [(append.topic, append.queue_id, append.size) for append in self.unusual]
        self.unusual.clear()
        return {
            "data": data,
            "at": self.batch.at,
            "unusual": unusual,
            "turns": turns,
            "jumped": jumped,
            "pending": [
                (bytes(queue.pending), queue.next_offset, queue.pending_next) for queue in self.queues.values()
            ],
            "places": [(one.physical_offset, one.queue_offset, one.size, one.store_timestamp) for one in appends],
            "states": [(one.status, one.tags_code, one.queue is None) for one in appends],
            "waiting": len(self.entries),
        }


def variants(store_host: bytes) -> tuple[Variant, Variant]:
    plain = Variant(
        PythonAppend, PythonQueueTail, PythonRecordBatch, python_gather_units, PythonIndexEntries(), store_host
    )
    return plain, Variant(
        module.Append,
        tails.QueueTail,
        module.RecordBatch,
        dispatch.gather_units,
        index_module.IndexEntries(index_keys),
        store_host,
    )


def columns(entries: Any) -> list[list[int]]:
    if isinstance(entries, PythonIndexEntries):
        return [column.tolist() for column in entries.first(1 << 20)]
    return [np.frombuffer(column, np.int64).tolist() for column in entries.columns(1 << 20)]


@pytest.mark.parametrize("first", SEEDS[::20])
def test_records_units_and_entries(first: int) -> None:
    """Both variants write the same bytes for all messages, and the records read back."""
    module.set_initial_status(PutStatus.PENDING)
    for seed in SEEDS[first : first + 20]:
        rng = random.Random(seed)
        plain, fast = variants(HOSTS[1 + seed % 2])
        at = rng.randint(0, 1 << 39)
        expected: dict[str, Any] = {}
        for count in (1, MESSAGES - 1):
            messages = [fields_of(rng) for _ in range(count)]
            expected, found = plain.run(messages, at), fast.run(messages, at)
            assert found == expected
            at = expected["at"]
        records = [one for one in iterate(expected["data"]) if isinstance(one, Record)]
        assert [(one.physical_offset, one.size) for one in records] == [place[0::2] for place in expected["places"]]
        assert columns(fast.entries) == columns(plain.entries)


@pytest.mark.parametrize("sys_flag", [0, 4, 8])
def test_messages_in_runs_give_the_same_bytes(sys_flag: int) -> None:
    """Messages that differ only in body, properties and flag give the same bytes, one by one and together, in both
    variants."""
    module.set_initial_status(PutStatus.PENDING)
    rng = random.Random(sys_flag)
    for _ in range(rounds(60)):
        common = fields_of(rng)[0] | {"topic": "T", "queue_id": 1, "sys_flag": sys_flag}
        messages = []
        for _ in range(rng.randint(1, 9)):
            own, keys = fields_of(rng)
            messages.append((common | {name: own[name] for name in ("body", "properties", "flag")}, keys))
        results: list[Any] = []
        for variant in (*variants(HOSTS[1]), *variants(HOSTS[1])):
            appends = [variant.make(**fields, keys=keys) for fields, keys in messages]
            variant.batch.unchecked_size = 1 << 30
            variant.batch.open(4711, SEGMENT_END, 1_700_000_000_123)
            assert variant.batch.total_size_alike(appends) == variant.batch.total_size(appends)
            if len(results) < 2:
                variant.batch.put_alike(appends)
            else:
                variant.batch.put_run(appends, True)
            with variant.batch.data() as view:
                data = bytes(view)
            assert variant.batch.at == 4711 + len(data)
            queue = variant.queues["T", 1]
            assert {one.queue for one in appends} == {None if sys_flag == 4 else queue}
            places = [(one.physical_offset, one.queue_offset, one.size, one.store_timestamp) for one in appends]
            results.append((data, queue.next_offset, places, len(variant.batch.close())))
        assert results[1:] == results[:1] * 3


def test_numbers_out_of_range_are_rejected_alike() -> None:
    """A message with a number too large for its field cannot be made, or is left to the log, which rejects it."""
    for variant in variants(HOSTS[1]):
        fields, _ = fields_of(random.Random(1))
        fields |= {"topic": "T", "queue_id": 0, "body": b"", "sys_flag": 0}
        variant.batch.unchecked_size = 2500
        variant.batch.open(0, SEGMENT_END, 1)
        if variant.make is PythonAppend:
            bad = variant.make(**fields | {"flag": 1 << 40})
            variant.batch.put(bad)
            assert variant.unusual == [bad]
        else:
            with pytest.raises(OverflowError):
                variant.make(**fields | {"flag": 1 << 40})
        assert (variant.batch.at, variant.batch.appends, variant.queues["T", 0].next_offset) == (0, [], 0)
        variant.batch.put(variant.make(**fields))
        assert variant.queues["T", 0].next_offset == 1


def test_a_batch_grows_and_restarts() -> None:
    """A body larger than all earlier ones fits, and nothing of it remains afterward."""
    module.set_initial_status(PutStatus.PENDING)
    _, fast = variants(HOSTS[1])
    fields, _ = fields_of(random.Random(2))
    fields |= {"topic": "T", "queue_id": 0}
    for size in (10, 12 << 20, 10):
        fast.batch.open(0, SEGMENT_END, 1)
        fast.batch.put(fast.make(**fields | {"body": bytes(size)}), True)
        with fast.batch.data() as view:
            (record,) = iterate(view)
            assert isinstance(record, Record)
            assert record.body_size == size
            record.source.release()
        fast.batch.close()


@pytest.mark.parametrize("slots", [7, 1000])
def test_index_files_are_equal(tmp_path: Path, slots: int) -> None:
    """Many keys, few keys, garbage in slots: both variants write the same file."""
    layout = IndexLayout(slots, 5000)
    rng = np.random.default_rng(slots)
    files = [IndexFile.create(str(tmp_path / name), layout, None, Disk()) for name in ("plain", "compiled")]
    for count in (1, 2, 500, 30, 4000):
        entries = Entries(
            rng.integers(0, 1 << 31, count),
            rng.integers(0, 1 << 40, count),
            1_700_000_000_000 + rng.integers(0, 1 << 43, count),
        )
        for file, put_many in zip(files, (IndexFile._put_many, IndexFile._put_compiled), strict=True):
            one_first = 1 if file.header.next_item <= 1 else 0
            for column in zip(*(column.tolist() for column in entries.part(0, one_first)), strict=True):
                file.reserve(1)
                file._put_one(*column)
            if one_first < count:
                file.reserve(count)
                put_many(file, *entries.part(one_first))
            file._close_put(7, 9)
        assert files[0].header == files[1].header
        (garbage,) = rng.integers(-5, 5000, 1).tolist()
        for name in ("plain", "compiled"):
            with (tmp_path / name).open("r+b") as image:
                image.seek(layout.slot_at(count % slots))
                image.write(garbage.to_bytes(4, "big", signed=True))
    for file in files:
        file.close()
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "compiled").read_bytes()


def test_items_beyond_the_mapping_are_rejected() -> None:
    """Nothing is written beyond the end of the mapping."""
    numbers = np.ones(3, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        index_module.put_items(bytearray(40 + 4 * 5 + 20 * 3), 5, 1, 0, numbers, numbers, numbers)
