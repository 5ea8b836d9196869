"""After a start: the log determines which half messages are open, whatever was saved and whichever broker wrote it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.message import decode_properties, encode_properties
from tests.harness.stores import Opened, message, opened
from tests.harness.transacted import HALF, OP, ROLLBACK, Transacted, received_checks


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path) as store:
        yield store


def saved(it: Opened, half: int, op: int) -> ConsumerOffsetTable:
    """Return the offsets that an earlier process has saved."""
    table = ConsumerOffsetTable(OffsetsConfig(), it.clock)
    table.commit_own(HALF, 0, half)
    table.commit_own(OP, 0, op)
    return table


def op(body: bytes) -> Append:
    return message(body, OP, tag="d")


def foreign_copy(half: Append, checks: int = 1) -> Append:
    """Return a copy as RocketMQ makes it, without the offset of its root."""
    properties = decode_properties(half.properties.decode()) | {"TRANSACTION_CHECK_TIMES": str(checks)}
    return message(bytes(half.body), HALF, tag="tag", properties=encode_properties(properties).encode())


async def test_an_empty_store_has_no_open_half_messages(it: Opened) -> None:
    """The first half message will be open."""
    parts = Transacted(it)
    assert parts.transactions.loaded.is_set()
    parts.send()
    assert parts.open_offsets() == [0]


async def test_decided_half_messages_are_not_open(it: Opened) -> None:
    """Op messages alone decide, nothing was saved; the counts of open ones agree with the log."""
    before = Transacted(it)
    halves = [before.send(b"%d" % n, topic="TU"[n % 2]) for n in range(6)]
    before.end(halves[0])
    before.end(halves[3], ROLLBACK)
    parts = Transacted(it)
    assert parts.open_offsets() == [1, 2, 4, 5]
    assert parts.transactions.halves.begin == 1
    assert parts.transactions.statistics().open == {"T": 2, "U": 2}
    assert parts.end(halves[3]).code == 0
    assert it.bodies("U") == []


@pytest.mark.parametrize("body", [b"1,2,", b"1,2", b"2,1,1,"])
async def test_op_messages_of_both_brokers_are_read(it: Opened, body: bytes) -> None:
    """Those of RocketMQ 5.3 contain several offsets, each followed by a comma; any other text is dropped."""
    before = Transacted(it)
    for n in range(4):
        before.send(b"%d" % n)
    bad = (b"", b"abc,", b"-1", b" 3", b"99999999999999999999,", b"3" * 5_000, b"3,x")
    it.put(op(b"0"), op(body), *map(op, bad))
    assert Transacted(it).open_offsets() == [3]


async def test_decisions_about_a_removed_queue_do_not_count(it: Opened) -> None:
    """RocketMQ 4.9 removes the half queue when a topic is deleted, and its offsets begin at 0 again."""
    it.put(op(b"0,1,2"))
    before = Transacted(it)
    halves = [before.send(b"%d" % n) for n in range(3)]
    it.put(op(b"1"))
    parts = Transacted(it)
    assert parts.open_offsets() == [0, 2]
    assert parts.end(halves[2]).code == 0
    assert it.bodies("T") == [b"2"]


@pytest.mark.parametrize("half", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("saved_op", [0, 1, 9])
async def test_saved_offsets_may_be_outdated(it: Opened, half: int, saved_op: int) -> None:
    """Any pair of offsets that was ever valid leads to the same state."""
    before = Transacted(it)
    halves = [before.send(b"%d" % n) for n in range(3)]
    before.end(halves[0])
    expected = [offset for offset in (0, 1, 2) if offset >= half and (offset or saved_op)]
    if half <= 1:
        assert Transacted(it, saved(it, half, saved_op)).open_offsets() == expected


async def test_offsets_after_the_queues_are_corrected(it: Opened) -> None:
    """Offsets of another store, or of one that lost its end: the ends of the queues count."""
    Transacted(it).send()
    parts = Transacted(it, saved(it, 5, 5))
    parts.send(b"new")
    assert parts.open_offsets() == [1]


async def test_only_the_last_copy_is_open(it: Opened) -> None:
    """Of a half message and its copies only the last is open; the producer may still refer to the first."""
    before = Transacted(it)
    half = before.send()
    for _ in range(3):
        it.clock.now_ms += 30_000
        before.check_round()
    for half_offset in (2, 3):
        assert Transacted(it, saved(it, half_offset, 0)).open_offsets() == [3]
    parts = Transacted(it)
    assert parts.open_offsets() == [3]
    assert parts.transactions.statistics().open == {"T": 1}
    assert parts.end(half).code == 0
    assert parts.open_offsets() == []
    for table in (None, saved(it, 2, 0), saved(it, 3, 0)):
        assert Transacted(it, table).open_offsets() == []


async def test_only_one_of_two_op_messages_is_stored(it: Opened) -> None:
    """After a kill in between: the copy is decided, and the root is checked once more."""
    before = Transacted(it)
    before.send()
    it.clock.now_ms += 30_000
    before.check_round()
    it.put(op(b"1"))
    assert Transacted(it, saved(it, 1, 0)).open_offsets() == []


async def test_a_copy_whose_root_was_decided_is_decided(it: Opened) -> None:
    """Its own op message is not needed, even if that of the root is before the saved offset."""
    before = Transacted(it)
    before.send()
    it.clock.now_ms += 30_000
    before.check_round()
    it.put(op(b"0"))
    for half in (0, 1):
        assert Transacted(it, saved(it, half, 0)).open_offsets() == []


async def test_copies_of_rocketmq_are_half_messages_of_their_own(it: Opened) -> None:
    """They do not contain their root; either offset ends one."""
    before = Transacted(it)
    half = before.send()
    it.put(foreign_copy(half))
    parts = Transacted(it, saved(it, 1, 0))
    assert parts.open_offsets() == [1]
    producer = parts.producer()
    it.clock.now_ms += 30_000
    parts.check_round()
    assert len(received_checks(producer)) == 1
    assert parts.end(half).code == 0, "before the recorded offsets: as with RocketMQ"
    assert len(it.bodies()) == 1


async def test_a_copy_of_rocketmq_supersedes_the_previous_one(it: Opened) -> None:
    """By the unique key, if it was checked: a message that was sent twice is two half messages."""
    before = Transacted(it)
    half = before.send(b"one")
    it.put(foreign_copy(half), foreign_copy(half, 2))
    before.send(b"two")
    before.send(b"two")
    parts = Transacted(it)
    assert parts.open_offsets() == [2, 3, 4]
    assert parts.transactions.statistics().open == {"T": 3}


async def test_invalid_records_are_skipped(it: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """Any other records in the topic."""
    it.put(message(b"no half message", HALF))
    Transacted(it).send()
    assert Transacted(it).open_offsets() == [1]
    assert "half message dropped total=1 offset=0 reason=" in caplog.text


async def test_committed_offsets_give_the_same_state(it: Opened) -> None:
    """A start with saved offsets gives the same state as a start without."""
    parts = Transacted(it)
    halves = [parts.send(b"%d" % n) for n in range(8)]
    for half in halves[:5]:
        parts.end(half)
    parts.save()
    parts.end(halves[6])
    parts.save()
    offsets = parts.offsets
    assert offsets.committed("CID_RMQ_SYS_TRANS", HALF, 0) == 5
    assert offsets.committed("CID_RMQ_SYS_TRANS", OP, 0) == 0
    again = Transacted(it, offsets)
    assert again.open_offsets()[-2:] == [5, 7]
    again.end(halves[5])
    again.end(halves[7])
    again.save()
    assert offsets.committed("CID_RMQ_SYS_TRANS", HALF, 0) == 8
    assert offsets.committed("CID_RMQ_SYS_TRANS", OP, 0) == 8
