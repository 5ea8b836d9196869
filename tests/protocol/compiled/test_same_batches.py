"""The compiled module makes the same appends of a batch as the pure-Python version, or leaves the batch to it."""

import random
import struct
from typing import Any

import pytest

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.fast_batches import FastPathBatches
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import BatchRecord, decode_batch, decode_properties, encode_batch
from skylarkmq.protocol.message_id import encode_offset_ids
from tests.harness.rounds import rounds

module: Any = compiled.load("batch")
pytestmark = pytest.mark.skipif(module is None, reason="the module is not built, or switched off")

BATCHES = rounds(6_000)
UNIQUE = "UNIQ_KEY\x01A1B2\x02"
ENTRIES = [
    "KEYS\x01k1\x02", "KEYS\x01a b  c\x02", "TAGS\x01TagA\x02", "WAIT\x01true\x02", "n\x01v\x02", "TAGS\x01TagB\x02",
    "WAIT\x01false\x02", "DELAY\x013\x02", "CLUSTER\x01c\x02", "KEYS\x01\x02", "\x01v\x02", "\x02", "é\x01ü\x02",
]  # fmt: skip
BATCH_LEVEL = ["", "", "WAIT\x01true\x02", "UNIQ_KEY\x01Z\x02", "n\x01v\x02", "x\x01y\x02"]
NAMES = ("flag", "sys_flag", "properties", "tags_code", "topic", "queue_id", "wait_flush", "born_host", "status")


def some_batch(rng: random.Random) -> bytes:
    """Return a batch, mostly on the fast path, sometimes not, sometimes damaged."""
    usual = ENTRIES[:6] if rng.random() < 0.7 else ENTRIES
    records = []
    for _ in range(rng.randint(1, 6)):
        entries = [*rng.sample(usual, rng.randint(0, 4)), *([UNIQUE] if rng.random() < 0.97 else [])]
        rng.shuffle(entries)
        properties = "".join(entries).encode()
        body = rng.randbytes(rng.choice((0, 10, 5000)))
        flag = rng.randint(-(1 << 31), (1 << 31) - 1)
        records.append(BatchRecord(flag, body, properties[: -1 if rng.random() < 0.3 else None]))
    batch = bytearray(encode_batch(records))
    if rng.random() < 0.2:
        at = rng.randrange(len(batch))
        batch[at] = rng.randrange(256)
    if rng.random() < 0.1:
        del batch[rng.randrange(len(batch)) :]
    return bytes(batch)


def test_batches_give_the_same_appends() -> None:
    """All fields are equal; a damaged batch never takes the fast path."""
    completion = PropertyCompletion("Default", lambda: "NEW")
    fast = module.Batches(PutStatus.PENDING, completion.cluster_entry)
    slow = FastPathBatches(completion.cluster_entry)
    general = SendMessages(completion, 4 << 20, Deferral(()).defer, lambda: 0)
    rng = random.Random(1)
    plain = 0
    for _ in range(BATCHES):
        batch = some_batch(rng)
        batch_level = decode_properties(rng.choice(BATCH_LEVEL))
        shared = completion.shared(batch_level)
        assert shared is not None
        values = ("T", 3, 1, 1_700_000_000_000, bytes(8), 2)
        found = fast.appends(memoryview(batch), shared, *values)
        for appends in (found, slow.appends(batch, shared, *values) if found is not None else None):
            if appends is None:
                continue
            plain += 1
            expected = [general._batch_append(record, batch_level, *values) for record in decode_batch(batch)]
            assert [[getattr(one, name) for name in NAMES] for one in appends] == [
                [getattr(one, name) for name in NAMES] for one in expected
            ]
            assert [bytes(one.body) for one in appends] == [bytes(one.body) for one in expected]
            assert all(one.keys == index_keys(one.properties) for one in appends)
    assert plain > BATCHES // 2


def test_similar_messages_give_the_same_appends() -> None:
    """Each message has the result that it has alone, with another key or with a byte that changes its type."""
    completion = PropertyCompletion("Default", lambda: "NEW")
    fast = module.Batches(PutStatus.PENDING, completion.cluster_entry)
    shared = completion.shared({})
    values = ("T", 3, 1, 1_700_000_000_000, bytes(8), 2)
    rng = random.Random(3)
    plain = 0
    for _ in range(BATCHES):
        entries = [*rng.sample(ENTRIES[:6], rng.randint(0, 4)), UNIQUE]
        rng.shuffle(entries)
        first = "".join(entries).encode()[: -1 if rng.random() < 0.3 else None]
        second = bytearray(first)
        for _ in range(rng.choice((0, 1, 1, 2))):
            second[rng.randrange(len(second))] = rng.choice(b"kA1 \x01\x02\x1f\x7f\x80")
        alone = [
            fast.appends(encode_batch([BatchRecord(0, b"b", text)]), shared, *values) for text in (first, bytes(second))
        ]
        both = fast.appends(
            encode_batch([BatchRecord(0, b"b", first), BatchRecord(0, b"b", bytes(second))]), shared, *values
        )
        assert (both is None) == (None in alone)
        if both is not None:
            plain += 1
            expected = [*alone[0], *alone[1]]
            for names in (NAMES, ("keys",)):
                assert [[getattr(one, name) for name in names] for one in both] == [
                    [getattr(one, name) for name in names] for one in expected
                ]
    assert BATCHES // 10 < plain < BATCHES


@pytest.mark.parametrize("host", [bytes(range(200, 208)), bytes(range(100, 120))])
def test_offset_ids_are_equal(host: bytes) -> None:
    """The ids are equal to the digit, for both address families."""
    rng = random.Random(2)
    for count in (0, 1, 2, 100):
        offsets = [rng.choice((0, rng.getrandbits(63))) for _ in range(count)]
        appends = [Append("T", 0, b"", b"", 0, 0, 0, 0, bytes(8), 0, 0, True, physical_offset=at) for at in offsets]
        assert module.offset_ids(host, appends) == encode_offset_ids(host, offsets)


@pytest.mark.parametrize("damage", [b"", b"\0" * 19, struct.pack(">iiiii", 0, 0, 0, 0, -1) + bytes(9)])
def test_invalid_batches_are_left_to_the_python_version(damage: bytes) -> None:
    """Such bytes are left to the pure-Python version, which reports the error."""
    fast = module.Batches(PutStatus.PENDING, b"")
    found = fast.appends(damage, (), "T", 0, 0, 0, bytes(8), 0)
    assert not found
    if damage:
        with pytest.raises(RequestError, match="damaged"):
            decode_batch(damage)
