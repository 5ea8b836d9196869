"""After a start: what is open is what the log says, whatever was saved, and whoever wrote it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.message import decode_properties, encode_properties
from tests.harness.stores import Opened, message, opened
from tests.harness.transacted import HALF, OP, ROLLBACK, Transacted, questions


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path) as store:
        yield store


def saved(it: Opened, half: int, op: int) -> ConsumerOffsetTable:
    """Offsets that an earlier process has left."""
    table = ConsumerOffsetTable(OffsetsConfig(), it.clock)
    table.commit_own(HALF, 0, half)
    table.commit_own(OP, 0, op)
    return table


def op(body: bytes) -> Append:
    return message(body, OP, tag="d")


def foreign_copy(half: Append, checks: int = 1) -> Append:
    """A copy as RocketMQ makes it: it does not say whose."""
    properties = decode_properties(half.properties.decode()) | {"TRANSACTION_CHECK_TIMES": str(checks)}
    return message(bytes(half.body), HALF, tag="tag", properties=encode_properties(properties).encode())


async def test_an_empty_store(it: Opened) -> None:
    """Nothing is open, and the first half message will be."""
    parts = Transacted(it)
    assert parts.transactions.loaded.is_set()
    parts.send()
    assert parts.open_offsets() == [0]


async def test_decided_ones_are_not_open(it: Opened) -> None:
    """By op messages alone: nothing was saved; counts of open ones are those of the log."""
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
async def test_op_messages_of_either_kind(it: Opened, body: bytes) -> None:
    """RocketMQ 5.3 names several half messages in one, with a comma behind each; any other text is dropped."""
    before = Transacted(it)
    for n in range(4):
        before.send(b"%d" % n)
    bad = (b"", b"abc,", b"-1", b" 3", b"99999999999999999999,", b"3" * 5_000, b"3,x")
    it.put(op(b"0"), op(body), *map(op, bad))
    assert Transacted(it).open_offsets() == [3]


@pytest.mark.parametrize("half", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("saved_op", [0, 1, 9])
async def test_saved_offsets_may_be_old_or_wrong(it: Opened, half: int, saved_op: int) -> None:
    """Between what is safe and what is there, any pair that was ever right leads to the same."""
    before = Transacted(it)
    halves = [before.send(b"%d" % n) for n in range(3)]
    before.end(halves[0])
    expected = [offset for offset in (0, 1, 2) if offset >= half and (offset or saved_op)]
    if half <= 1:
        assert Transacted(it, saved(it, half, saved_op)).open_offsets() == expected


async def test_offsets_beyond_the_queues(it: Opened) -> None:
    """Of another store, or of one that lost its end: the queues' ends count."""
    Transacted(it).send()
    parts = Transacted(it, saved(it, 5, 5))
    parts.send(b"new")
    assert parts.open_offsets() == [1]


async def test_copies_go_on(it: Opened) -> None:
    """Of a half message and its copies only the last is open; the producer may still name the first."""
    before = Transacted(it)
    half = before.send()
    for _ in range(3):
        it.clock.now_ms += 30_000
        before.round()
    for half_offset in (2, 3):
        assert Transacted(it, saved(it, half_offset, 0)).open_offsets() == [3]
    parts = Transacted(it)
    assert parts.open_offsets() == [3]
    assert parts.transactions.statistics().open == {"T": 1}
    assert parts.end(half).code == 0
    assert parts.open_offsets() == []
    for table in (None, saved(it, 2, 0), saved(it, 3, 0)):
        assert Transacted(it, table).open_offsets() == []


async def test_a_process_that_was_killed_between_the_op_messages(it: Opened) -> None:
    """The copy's is there, the root's is not: the copy is decided, and of the root another question is asked."""
    before = Transacted(it)
    before.send()
    it.clock.now_ms += 30_000
    before.round()
    it.put(op(b"1"))
    assert Transacted(it, saved(it, 1, 0)).open_offsets() == []


async def test_a_copy_whose_root_was_decided_is_decided(it: Opened) -> None:
    """Its own op message is not needed, even if the root's is of before the saved offset."""
    before = Transacted(it)
    before.send()
    it.clock.now_ms += 30_000
    before.round()
    it.put(op(b"0"))
    for half in (0, 1):
        assert Transacted(it, saved(it, half, 0)).open_offsets() == []


async def test_half_messages_of_rocketmq(it: Opened) -> None:
    """Copies that do not say whose they are are half messages of their own; either name ends one."""
    before = Transacted(it)
    half = before.send()
    it.put(foreign_copy(half))
    parts = Transacted(it, saved(it, 1, 0))
    assert parts.open_offsets() == [1]
    producer = parts.producer()
    it.clock.now_ms += 30_000
    parts.round()
    assert len(questions(producer)) == 1
    assert parts.end(half).code == 0, "below what is known: as with RocketMQ"
    assert len(it.bodies()) == 1


async def test_a_copy_of_rocketmq_supersedes_what_it_copies(it: Opened) -> None:
    """By the unique key, if it was asked about: a message that was sent twice is two half messages."""
    before = Transacted(it)
    half = before.send(b"one")
    it.put(foreign_copy(half), foreign_copy(half, 2))
    before.send(b"two")
    before.send(b"two")
    parts = Transacted(it)
    assert parts.open_offsets() == [2, 3, 4]
    assert parts.transactions.statistics().open == {"T": 3}


async def test_what_cannot_be_read_is_passed_over(it: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever somebody has put into the topic."""
    it.put(message(b"no half message", HALF))
    Transacted(it).send()
    assert Transacted(it).open_offsets() == [1]
    assert "half message dropped total=1 offset=0 reason=" in caplog.text


async def test_what_was_committed_is_saved_late(it: Opened) -> None:
    """Saved offsets and a start give the same as a start alone."""
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
