"""Fuzzers of the modules for the log: from messages to records, units and index entries."""

from functools import partial
from random import Random
from typing import Any, Final

import numpy as np

from skylarkmq.broker.base.histogram import python_count_up
from skylarkmq.broker.store.dispatch.dispatch import python_gather_units, python_publish
from skylarkmq.broker.store.index.entries import PythonIndexEntries
from skylarkmq.broker.store.index.hashing import Numbers
from skylarkmq.broker.store.log.append import PutStatus, PythonAppend
from skylarkmq.broker.store.queue.tail import PythonQueueTail
from skylarkmq.broker.store.queue.topic_traffic import python_note_units
from skylarkmq.broker.store.queue.unit_writes import FULL_BYTES
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import INDEX_ITEM, IndexLayout, index_keys
from skylarkmq.protocol.record_checksum import with_checksum_space
from tests.fuzz.cases.frames import ENTRIES
from tests.fuzz.cases.memory import number
from tests.protocol.compiled import test_same_publish, test_same_records

_record: Final[Any] = compiled.load("record")
_tails: Final[Any] = compiled.load("queue_tail")
_dispatch: Final[Any] = compiled.load("dispatch")
_counts: Final[Any] = compiled.load("counts")
_index: Final[Any] = compiled.load("index")
_batches: Final[Any] = compiled.load("batch")


def record(rng: Random) -> None:
    """Messages become records, alone and together, in batches; both versions write the same bytes."""
    _record.set_initial_status(PutStatus.PENDING)
    plain, fast = test_same_records.variants(test_same_records.HOSTS[1 + rng.randrange(2)])
    at = rng.choice((0, rng.getrandbits(39)))
    for _ in range(rng.randint(1, 3)):
        messages = [test_same_records.fields_of(rng) for _ in range(rng.randint(1, 20))]
        expected, found = plain.run(messages, at), fast.run(messages, at)
        assert found == expected
        at = expected["at"]
    assert test_same_records.columns(fast.entries) == test_same_records.columns(plain.entries)


def queue_tail(rng: Random) -> None:
    """Units are added in batches of every length, taken and dropped; pending bytes and tags codes are equal."""
    topic = rng.choice(test_same_records.TOPICS)
    plain: Any = PythonQueueTail(topic, 3)
    fast = _tails.QueueTail(topic, 3)
    assert (fast.topic_field, fast.magic, fast.is_schedule) == (plain.topic_field, plain.magic, plain.is_schedule)
    is_taken = True
    for _ in range(rng.randint(1, 6)):
        units = [(number(rng), rng.getrandbits(31), number(rng)) for _ in range(rng.choice((1, 7, 8, 90)))]
        variants: tuple[Any, ...] = (
            (_record.Append, fast, _dispatch.gather_units),
            (PythonAppend, plain, python_gather_units),
        )
        for make, queue, gather in variants:
            appends = [
                make("T", 0, b"", b"", code, 0, 0, 0, bytes(8), physical_offset=at, queue=queue, size=size,
                     queue_offset=queue.pending_next + n)
                for n, (at, size, code) in enumerate(units)
            ]  # fmt: skip
            assert gather(appends, lambda append: append.tags_code, lambda queue: None) == [queue] * is_taken
        if is_taken := rng.random() < 0.7:
            assert fast.take_new_tags_codes() == plain.take_new_tags_codes()
        assert bytes(fast.pending) == bytes(plain.pending)
        if rng.random() < 0.3:
            is_taken = True
            fast.drop_pending()
            plain.drop_pending()


def dispatch(rng: Random) -> None:
    """Batches of appends over several queues: the same is published, announced, left over and counted."""
    seed = rng.getrandbits(32)
    topics = rng.choice((None, {"T"}, ()))
    _record.set_initial_status(PutStatus.PENDING)
    publish = partial(_dispatch.publish, FULL_BYTES)
    results_of = test_same_publish.results_of
    expected = results_of(
        PythonAppend, PythonQueueTail, python_gather_units, python_publish, python_note_units, seed, topics
    )
    fast = _record.Append, _tails.QueueTail, _dispatch.gather_units, publish, _counts.note_units
    assert results_of(*fast, seed, topics) == expected


def counts(rng: Random) -> None:
    """Values of every size, from zero to too many bounds."""
    bounds = tuple(sorted(number(rng) for _ in range(rng.randrange(18))))
    values = [rng.getrandbits(56) - (1 << 55) for _ in range(rng.randrange(40))]
    tallies = [0] * (len(bounds) + 1)
    if len(bounds) > 15:
        assert raises(lambda: _counts.count_up(values, bounds, tallies))
        return
    expected = [0] * (len(bounds) + 1)
    assert _counts.count_up(values, bounds, tallies) == python_count_up(values, bounds, expected)
    assert tallies == expected
    if bounds:
        assert raises(lambda: _counts.count_up(values, bounds, tallies[:-1]))


def index(rng: Random) -> None:
    """Messages with keys at known positions, in lists, or only in properties; then index items, some slots garbage."""
    fast, plain = _index.IndexEntries(index_keys), PythonIndexEntries()
    for _ in range(rng.randint(1, 4)):
        messages = some_messages(rng)
        passed = rng.choice((0, 0, 1, 3))
        fast.add(messages, passed)
        plain.add(messages, passed)
        if rng.random() < 0.2:
            messages = messages * 300
            fast.add(messages)
            plain.add(messages)
        assert test_same_records.columns(fast) == test_same_records.columns(plain)
        dropped = rng.randrange(len(plain) + 2) if rng.random() < 0.5 else 0
        plain.first(1 << 20)
        fast.drop(dropped)
        plain.drop(dropped)
        assert len(fast) == len(plain)
    put_items(rng, *(np.array(column, np.int64) for column in test_same_records.columns(fast)))


def some_messages(rng: Random) -> list[Any]:
    """Return appends as the batch module makes them, as the store makes them, and with replaced properties."""
    made: list[Any] = []
    for _ in range(rng.randint(1, 8)):
        fields, keys = test_same_records.fields_of(rng)
        append = _record.Append(**fields, keys=keys)
        if rng.random() < 0.6:
            properties = "".join(rng.choices(ENTRIES, k=4)).encode()
            body = bytes(12) + rng.randbytes(4) + bytes(4) + len(properties).to_bytes(2, "big") + properties
            found = _batches.Batches(PutStatus.PENDING, b"").appends(body, (), "T", 0, 0, 0, bytes(8), 0)
            append = found[0] if found else append
            if rng.random() < 0.5:
                append.properties = with_checksum_space(append.properties)
            if rng.random() < 0.1:
                append.properties = b""
        append.physical_offset, append.store_timestamp = number(rng), number(rng)
        made.append(append)
    return made


def put_items(rng: Random, hashes: Numbers, offsets: Numbers, timestamps: Numbers) -> None:
    """Write items into memory of exactly the file's size; compare with `put_one`."""
    count, slots, first = len(hashes), rng.choice((1, 7, 100)), rng.randint(1, 9)
    layout = IndexLayout(slots, first + count)
    image = np.frombuffer(rng.randbytes(layout.size), np.uint8).copy()
    expected = bytearray(image)
    begin = rng.choice((0, 1_700_000_000_000))
    begun = _index.put_items(image, slots, first, begin, hashes, offsets, timestamps)
    for at in range(count):
        begun -= put_one(expected, layout, first + at, (int(hashes[at]), int(offsets[at]), int(timestamps[at])), begin)
    assert begun == 0
    assert bytes(image) == bytes(expected)
    assert raises(lambda: _index.put_items(image[:-1], slots, first + 1, begin, hashes, offsets, timestamps))


def put_one(image: bytearray, layout: IndexLayout, number: int, entry: tuple[int, int, int], begin: int) -> int:
    """Write one item, by the layout; return 1 if it begins its chain."""
    key_hash, offset, timestamp = entry
    slot_at = layout.slot_at(key_hash % layout.slots)
    old = int.from_bytes(image[slot_at : slot_at + 4], "big", signed=True)
    if not 0 <= old <= number:
        old = 0
    seconds = min((timestamp - begin) // 1000, 2**31 - 1) if 0 < begin < timestamp else 0
    INDEX_ITEM.pack_into(image, layout.item_at(number), key_hash, offset, seconds, old)
    image[slot_at : slot_at + 4] = number.to_bytes(4, "big")
    return old == 0


def raises(call: Any) -> bool:
    """Return whether the call raises an error."""
    try:
        call()
    except ValueError:
        return True
    return False
