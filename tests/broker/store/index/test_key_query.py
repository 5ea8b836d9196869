"""Messages by key: the index finds hashes, and only messages with the topic and the key are returned."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.index import key_query, search
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import index_hash
from skylarkmq.protocol.record import Record, parse
from tests.harness.stores import message, opened

ALL_TIMES = (0, 1 << 62)


def keyed(topic: str, keys: str, unique: str = "") -> Append:
    """Return a message with these keys, whose body names them."""
    properties = f"KEYS\x01{keys}\x02" + (f"UNIQ_KEY\x01{unique}\x02" if unique else "")
    return message(f"{topic} {keys} {unique}".encode(), topic, properties=properties.encode())


def parsed(record: bytes) -> Record:
    found = parse(memoryview(record))
    assert isinstance(found, Record)
    return found


async def bodies(store: MessageStore, topic: str, key: str, most: int = 64) -> list[str]:
    found = await store.query_by_key(topic, key, most, *ALL_TIMES)
    return [bytes(record.body).decode() for record in map(parsed, found.records)]


@pytest.mark.parametrize(
    ("topic", "keys", "unique"),
    [
        ("orders-BB", "k1", ""),  # another topic
        ("orders-Aa", "k1", ""),  # another topic with the same hash of `topic#key`, if the query is for orders-BB
        ("orders", "Aa", ""),
        ("orders", "x BB", ""),
        ("orders", "x", "BB"),
        ("orders", "bb", ""),
        ("orders", "BBB", ""),
    ],
)
async def test_only_messages_with_the_key_are_returned(tmp_path: Path, topic: str, keys: str, unique: str) -> None:
    """Also if others have the same 32 bits: `Aa` and `BB` do, in a topic and in a key."""
    assert index_hash("orders-Aa#k1") == index_hash("orders-BB#k1")
    assert index_hash("orders#Aa") == index_hash("orders#BB")
    stored = [(topic, keys, unique), ("orders-Aa", "k1", ""), ("orders", "Aa", ""), ("orders", "BB", "")]
    with opened(tmp_path) as it:
        for each in stored:
            it.put(keyed(*each))
        for wanted in (("orders-BB", "k1"), ("orders-Aa", "k1"), ("orders", "Aa"), ("orders", "BB")):
            own = [
                " ".join(each)
                for each in stored
                if (each[0], True) == (wanted[0], wanted[1] in f"{each[1]} {each[2]}".split())
            ]
            assert await bodies(it.store, *wanted) == own


async def test_other_messages_with_the_hash_do_not_use_up_the_limit(tmp_path: Path) -> None:
    """A producer of another topic, or of other keys, cannot hide a message."""
    with opened(tmp_path) as it:
        it.put(keyed("orders-Aa", "k1"))
        it.put(*(keyed("orders-BB", "k1") for _ in range(200)))
        it.put(keyed("orders", "Aa"))
        it.put(*(keyed("orders", "BB") for _ in range(200)))
        assert await bodies(it.store, "orders-Aa", "k1", most=1) == ["orders-Aa k1 "]
        assert await bodies(it.store, "orders", "Aa", most=1) == ["orders Aa "]
        assert len(await bodies(it.store, "orders", "BB")) == 64


async def test_a_query_reads_a_limited_number_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the search ends with what it has found; one message less, and it continues."""
    monkeypatch.setattr(search, "MOST_READ", 10)
    with opened(tmp_path) as it:
        it.put(keyed("orders", "Aa"))
        it.put(*(keyed("orders", "BB") for _ in range(9)))
        assert await bodies(it.store, "orders", "Aa") == ["orders Aa "]
        it.put(keyed("orders", "BB"))
        assert await bodies(it.store, "orders", "Aa") == []


async def test_other_work_runs_after_each_large_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large messages with the hash of a key do not stop the event loop for longer than one of them takes."""
    monkeypatch.setattr(key_query, "SLICE_BYTES", 1_000)
    with opened(tmp_path) as it:
        for size in (1_000, 1_000, 1, 1_000):
            it.put(message(bytes(size), "orders", properties=b"KEYS\x01BB\x02"))
        steps = it.store._parts.key_query._steps("orders", "Aa", 64, *ALL_TIMES)
        assert list(steps) == [None] * 3
