"""Plain batches as columns: what comes of them, to the byte, against messages taken apart and encoded alone."""

import random

import numpy as np
import pytest

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.fast_batches import FastPathBatches
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.store.index.entries import PythonIndexEntries
from skylarkmq.broker.store.log.append_columns import messages_in
from skylarkmq.broker.store.log.batch_columns import BatchColumns
from skylarkmq.broker.store.log.record_batch import PythonRecordBatch
from skylarkmq.broker.store.queue.tail import PythonQueueTail
from skylarkmq.protocol.disk import UNIT, index_keys
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import BatchRecord, decode_batch, decode_properties, encode_batch
from skylarkmq.protocol.record import encode

BATCHES = 1_500
BEGIN, FIRST, BORN, STORED = 4711, 7, 1_700_000_000_000, 1_700_000_000_123
ENTRIES = ["TAGS\x01TagA\x02", "WAIT\x01true\x02", "n\x01v\x02", "x\x01y\x02"]
ODD = ["DELAY\x013\x02", "CLUSTER\x01c\x02", "WAIT\x01false\x02", "é\x01ü\x02", "KEYS\x01ö\x02", "\x02"]
BATCH_LEVEL = ["", "WAIT\x01true\x02", "n\x01v\x02WAIT\x01true\x02", "KEYS\x01z\x02", "x\x01z\x02"]
HOSTS = [(born, store) for born in (bytes(range(8)), bytes(range(20))) for store in (bytes(8), bytes(20))]

completion = PropertyCompletion("Default", lambda: "NEW")
general = SendMessages(completion, 4 << 20, Deferral(()).defer, lambda: 0)
batches = FastPathBatches(completion.cluster_entry)


def some_batch(chance: random.Random) -> bytes:
    """Of one shape, mostly; at times a byte is another one."""
    keys = chance.choice(["", "KEYS\x01k{:03}\x02", "KEYS\x01a{:03} b{:03}  c\x02", "KEYS\x01same\x02"])
    others = chance.sample(ENTRIES + (ODD if chance.random() < 0.1 else []), chance.randint(0, 3))
    entries = [keys, "UNIQ_KEY\x01A{:03X}Z\x02", *others]
    chance.shuffle(entries)
    flag, size, is_closed = chance.choice((0, -1, 3)), chance.choice((0, 1, 700)), chance.random() < 0.7
    records = []
    for number in range(chance.randint(1, 12)):
        properties = "".join(entries).format(*[number] * 3).encode()
        records.append(BatchRecord(flag, chance.randbytes(size), properties[: None if is_closed else -1]))
    batch = bytearray(encode_batch(records))
    if chance.random() < 0.4:
        batch[chance.randrange(len(batch))] = chance.choice((0, 1, 2, 0x20, 0x41, 0xC3, 255))
    return bytes(batch)


def expected_of(
    batch: bytes, level: dict[str, str], hosts: tuple[bytes, bytes]
) -> list[tuple[bytes, list[bytes], int]]:
    """Record, keys and tags code of each message, put one by one."""
    at, stored = BEGIN, []
    for number, one in enumerate(decode_batch(batch)):
        append = general._batch_append(one, level, "T", 3, 1, BORN, hosts[0], 2)
        assert append.wait_flush
        record = encode(
            topic="T", body=one.body, properties=append.properties, queue_id=3, queue_offset=FIRST + number,
            physical_offset=at, born_timestamp=BORN, born_host=hosts[0], store_timestamp=STORED, store_host=hosts[1],
            flag=one.flag, sys_flag=1, reconsume_times=2,
        )  # fmt: skip
        stored.append((record, index_keys(append.properties), append.tags_code))
        at += len(record)
    return stored


def put(columns: BatchColumns, store_host: bytes) -> tuple[bytes, PythonQueueTail, PythonRecordBatch]:
    """Its records, and the queue that it went to."""
    queue = PythonQueueTail("T", 3)
    queue.next_offset = queue.pending_next = FIRST
    records = PythonRecordBatch({("T", 3): queue}, store_host, lambda _: None)  # type: ignore[dict-item]
    records.unchecked_size = 1 << 20
    records.open(BEGIN, 1 << 30, STORED)
    assert columns.find_queues({"T": {3: queue}})  # type: ignore[dict-item]
    assert records.put_columns(columns)
    with records.data() as view:
        return bytes(view), queue, records


@pytest.mark.parametrize("hosts", HOSTS)
def test_columns_come_to_the_same(hosts: tuple[bytes, bytes]) -> None:
    """Records, offsets, queue units and index entries; what is not known to be the same is no columns."""
    chance = random.Random(1)
    plain = 0
    for _ in range(BATCHES):
        batch, level = some_batch(chance), decode_properties(chance.choice(BATCH_LEVEL))
        shared = completion.shared(level)
        assert shared is not None
        columns = batches.columns(memoryview(batch), shared, "T", 3, 1, BORN, hosts[0], 2)
        if columns is None:
            continue
        plain += 1
        expected = expected_of(batch, level, hosts)
        data, queue, records = put(columns, hosts[1])
        assert data == b"".join(record for record, _, _ in expected)
        assert (records.at, queue.next_offset) == (BEGIN + len(data), FIRST + len(expected))
        assert columns.physical_offset + columns.size == records.at

        touched: list[PythonQueueTail] = []
        columns.gather_units(touched, pytest.fail)  # type: ignore[arg-type]
        assert (touched, queue.pending_next) == ([queue], queue.next_offset)
        offsets = columns.physical_offsets
        units = zip(offsets, (len(record) for record, _, _ in expected), (code for *_, code in expected), strict=True)
        assert queue.pending == b"".join(UNIT.pack(*unit) for unit in units)

        entries = PythonIndexEntries()
        entries.add([columns])  # type: ignore[list-item]
        assert columns.message_keys == [key for _, keys, _ in expected for key in keys]
        found = entries.first(1 << 20)
        of_keys = [at for at, (_, keys, _) in zip(offsets, expected, strict=True) for _ in keys]
        assert np.array_equal(found.offsets, of_keys)
    assert plain > BATCHES // 2


def test_what_is_no_batch() -> None:
    """Lengths that do not fit are never gone by; the general way says what is wrong."""
    chance = random.Random(2)
    for _ in range(BATCHES):
        batch = some_batch(chance)
        cut = batch[: chance.randrange(len(batch))]
        columns = batches.columns(cut, (), "T", 3, 0, BORN, bytes(8), 0)
        if columns is None:
            continue
        assert len(decode_batch(cut)) == len(columns)
    for damaged in (b"", bytes(21), bytes(19) + b"\xff" * 3, bytes(16) + b"\xff" * 40):
        assert batches.columns(damaged, (), "T", 3, 0, BORN, bytes(8), 0) is None
    with pytest.raises(RequestError, match="damaged"):
        decode_batch(bytes(16) + b"\xff" * 40)


def test_a_batch_is_taken_back_whole() -> None:
    """The offsets of its queue return; until then it counts as many messages."""
    batch = encode_batch(BatchRecord(0, b"body", b"UNIQ_KEY\x01A%d" % number) for number in range(5))
    columns = batches.columns(batch, (), "T", 3, 0, BORN, bytes(8), 0)
    assert columns is not None
    _, queue, _ = put(columns, bytes(8))
    assert (queue.next_offset, len(columns)) == (FIRST + 5, 5)
    assert messages_in([columns]) in (1, 5)  # compiled, nobody makes columns
    columns.take_back()
    assert queue.next_offset == FIRST
