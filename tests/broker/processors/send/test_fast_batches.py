"""Fast-path batches, compared byte by byte with messages that are decoded and encoded one by one."""

import random

import pytest

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.fast_batches import FastPathBatches
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.record_batch import PythonRecordBatch
from skylarkmq.broker.store.queue.tail import PythonQueueTail
from skylarkmq.protocol.disk import index_keys
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


@pytest.mark.parametrize("hosts", HOSTS)
def test_a_fast_path_batch_has_the_records_of_single_messages(hosts: tuple[bytes, bytes]) -> None:
    """Records, keys and tags codes are those of messages converted one by one. Other batches return None."""
    chance = random.Random(1)
    fast = 0
    for _ in range(BATCHES):
        batch, level = some_batch(chance), decode_properties(chance.choice(BATCH_LEVEL))
        shared = completion.shared(level)
        assert shared is not None
        try:
            appends = batches.appends(memoryview(batch), shared, "T", 3, 1, BORN, hosts[0], 2)
        except RequestError:
            with pytest.raises(RequestError):
                decode_batch(batch)
            continue
        if appends is None:
            continue
        fast += 1
        expected = expected_of(batch, level, hosts)
        assert [append.keys for append in appends] == [keys for _, keys, _ in expected]
        assert [append.tags_code for append in appends] == [code for *_, code in expected]
        assert recorded(appends, hosts[1]) == b"".join(record for record, _, _ in expected)
    assert fast > BATCHES // 2


def recorded(appends: list[Append], store_host: bytes) -> bytes:
    """Return the records of the appends, put into an open batch of the log."""
    queue = PythonQueueTail("T", 3)
    queue.next_offset = queue.pending_next = FIRST
    records = PythonRecordBatch({("T", 3): queue}, store_host, lambda _: None)  # type: ignore[dict-item]
    records.unchecked_size = 1 << 20
    records.open(BEGIN, 1 << 30, STORED)
    records.put_run(appends)
    assert queue.next_offset == FIRST + len(appends)
    with records.data() as view:
        return bytes(view)


def test_a_cut_or_damaged_batch_is_refused_or_whole() -> None:
    """Lengths that exceed the batch are refused; a cut between two messages leaves a valid batch."""
    chance = random.Random(2)
    for _ in range(BATCHES):
        batch = some_batch(chance)
        cut = batch[: chance.randrange(len(batch))]
        try:
            appends = batches.appends(cut, (), "T", 3, 0, BORN, bytes(8), 0)
        except RequestError:
            continue
        assert appends is None or len(decode_batch(cut)) == len(appends)
    with pytest.raises(RequestError, match="damaged"):
        batches.appends(bytes(16) + b"\xff" * 40, (), "T", 3, 0, BORN, bytes(8), 0)
