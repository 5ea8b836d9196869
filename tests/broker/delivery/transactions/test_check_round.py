"""Rounds of questions: who is asked, who not yet, and who never again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.transactions.check_round import SLICE_MESSAGES, CheckRound
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.store.running_flags import RunningFlag
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.record import Record, parse
from tests.harness.stores import Opened, opened, records_of
from tests.harness.transacted import DISCARDED, HALF, HOST, OP, ROLLBACK, Transacted, questions


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path, mapped_file_size_consume_queue=20_000) as store:
        yield store


@pytest.fixture
async def parts(it: Opened) -> Transacted:
    return Transacted(it)


def record(question: RemotingCommand) -> Record:
    found = parse(memoryview(question.body))
    assert isinstance(found, Record)
    return found


def asked(parts: Transacted, *after_ms: int) -> list[int]:
    """How many questions each round brings; somebody is there to be asked."""
    parts.producer()
    counts = []
    for ms in after_ms:
        before = parts.totals.asked
        parts.it.clock.now_ms += ms
        parts.round()
        counts.append(parts.totals.asked - before)
    return counts


async def test_a_question_names_the_copy(parts: Transacted) -> None:
    """It is in the log by then; the body is the half message under its real topic, with flag and reconsume times."""
    half = parts.half(b"one", queue_id=3)
    half.reconsume_times = 2
    parts.it.put(half)
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.round()
    (question,) = questions(producer)
    header = question.header(CheckTransactionHeader)
    _, copy = records_of(parts.it.store.get(HALF, 0, 0, 9))
    assert question.is_oneway
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert header.msg_id == header.transaction_id == "Uone"
    assert header.offset_msg_id == f"{HOST.hex().upper()}{copy.physical_offset:016X}"
    assert (header.topic, header.bname) == (HALF, "b")
    body = record(question)
    assert (body.topic, body.queue_id, bytes(body.body)) == ("T", 3, b"one")
    assert (body.queue_offset, body.physical_offset) == (1, copy.physical_offset)
    assert (body.flag, body.reconsume_times, copy.flag, copy.reconsume_times) == (7, 2, 7, 2)
    properties = decode_properties(copy.properties.decode())
    shown = {name: value for name, value in properties.items() if name != "TRAN_PREPARED_QUEUE_OFFSET"}
    assert decode_properties(body.properties.decode()) == shown
    assert (properties["TRANSACTION_CHECK_TIMES"], properties["TRAN_PREPARED_QUEUE_OFFSET"]) == ("1", "0")
    assert parts.open_offsets() == [1]


@pytest.mark.parametrize("which", ["half", "copy"])
@pytest.mark.parametrize("decision", [8, ROLLBACK])
async def test_ends_by_either_name(parts: Transacted, which: str, decision: int) -> None:
    """A producer may name the half message that it sent or the copy that it was asked about: both are decided, once."""
    half = parts.send()
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.round()
    header = questions(producer)[0].header(CheckTransactionHeader)
    copy = {
        "tran_state_table_offset": header.tran_state_table_offset,
        "commit_log_offset": header.commit_log_offset,
        "from_transaction_check": "true",
    }
    for named in ({}, copy) if which == "half" else (copy, {}):
        assert parts.end(half, decision, **named).code == ResponseCode.SUCCESS
    assert len(parts.it.bodies()) == (decision == 8)
    for delivered in records_of(parts.it.store.get("T", 0, 0, 9)):
        assert b"TRAN_PREPARED_QUEUE_OFFSET" not in delivered.properties
    assert parts.it.bodies(OP) == [b"1", b"0"]
    assert parts.open_offsets() == []
    assert parts.transactions.statistics().open == {}


async def test_nobody_is_asked_too_early(parts: Transacted) -> None:
    """Not before transactionTimeOut after its birth; then once in each round."""
    parts.send()
    assert asked(parts, 0, 5_999, 1, 1, 30_000) == [0, 0, 1, 1, 1]


async def test_the_first_young_one_ends_the_round(parts: Transacted) -> None:
    """Those behind it are younger."""
    parts.send(b"old")
    parts.it.clock.now_ms += 5_000
    parts.send(b"young")
    assert asked(parts, 1_000, 5_000) == [1, 2]


async def test_immunity_of_its_own(parts: Transacted) -> None:
    """It is stored again meanwhile, without being asked, and holds nobody up; a count of questions does not grow."""
    parts.send(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    parts.send(b"usual")
    assert asked(parts, 30_000, 30_000, 30_000) == [1, 2, 2]
    assert parts.totals.kept == 1
    copies = [decode_properties(it.properties.decode()) for it in records_of(parts.it.store.get(HALF, 0, 2, 9))]
    assert [(it["UNIQ_KEY"], it["TRANSACTION_CHECK_TIMES"]) for it in copies[:2]] == [("Uimmune", "0"), ("Uusual", "1")]


async def test_a_kept_one_is_ended_by_its_first_name(parts: Transacted) -> None:
    """Its producer never heard of the copy."""
    half = parts.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    assert asked(parts, 30_000) == [0]
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert asked(parts, 60_000) == [0]
    assert len(parts.it.bodies()) == 1


async def test_a_clock_that_is_ahead(parts: Transacted) -> None:
    """Who was born in the future is asked, and does not hold up the others."""
    half = parts.half()
    half.born_timestamp += 3_600_000
    parts.it.put(half)
    assert asked(parts, 1_000) == [1]


async def test_who_was_asked_often_enough_is_discarded(it: Opened) -> None:
    """After transactionCheckMax questions, to a topic of its own, whole; its producer may still end it."""
    parts = Transacted(it, transaction_check_max=2)
    half = parts.send()
    assert asked(parts, 30_000, 30_000, 30_000, 30_000) == [1, 1, 0, 0]
    (discarded,) = records_of(it.store.get(DISCARDED, 0, 0, 9))
    assert (bytes(discarded.body), discarded.flag) == (b"half", 7)
    assert parts.open_offsets() == []
    assert parts.transactions.halves.state(0) is HalfState.DISCARDED
    assert parts.transactions.statistics().open == {}
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert len(it.bodies()) == 1


async def test_without_producers_the_questions_count(it: Opened) -> None:
    """As with RocketMQ: a group that is gone for good does not keep its half messages for ever."""
    parts = Transacted(it, transaction_check_max=1)
    parts.send()
    for _ in range(2):
        it.clock.now_ms += 30_000
        parts.round()
    assert (parts.totals.without_producer, parts.totals.discarded) == (1, 1)


async def test_what_is_as_old_as_messages_become_is_discarded(it: Opened) -> None:
    """fileReservedTime after its birth."""
    parts = Transacted(it, file_reserved_time=1)
    parts.send()
    assert asked(parts, 3_600_001) == [0]
    assert len(it.bodies(DISCARDED)) == 1


async def test_producers_take_turns(parts: Transacted) -> None:
    """Of the same group; one that is gone, or does not read, is passed over."""
    producers = [parts.producer(port=port) for port in (1, 2, 3)]
    producers[2].connection.paused = True
    for n in range(6):
        parts.send(b"%d" % n)
    parts.producer("other", 9)
    parts.it.clock.now_ms += 6_000
    parts.round()
    assert [len(questions(producer)) for producer in producers] == [3, 3, 0]


async def test_who_does_not_read_is_not_asked_more(it: Opened) -> None:
    """The half message is stored again, and the question that was not asked does not count."""
    parts = Transacted(it, transaction_check_max=1)
    parts.send()
    producer = parts.producer()
    producer.connection.paused = True
    for _ in range(3):
        it.clock.now_ms += 6_000
        parts.round()
    producer.connection.paused = False
    assert (parts.totals.kept, parts.totals.without_producer) == (3, 0)
    it.clock.now_ms += 6_000
    parts.round()
    assert len(questions(producer)) == 1


async def test_decided_ones_are_passed_over(parts: Transacted) -> None:
    """However many; of those between them each is asked about, in order."""
    halves = [parts.send(b"%d" % n) for n in range(5 * SLICE_MESSAGES)]
    for n, half in enumerate(halves):
        if n % 7:
            parts.end(half, ROLLBACK)
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.round()
    bodies = [bytes(record(question).body) for question in questions(producer)]
    assert bodies == [b"%d" % n for n in range(0, 5 * SLICE_MESSAGES, 7)]


async def test_half_messages_of_a_deleted_topic_are_dropped(parts: Transacted) -> None:
    """Nobody is asked; an op message says that they are done with."""
    parts.send()
    await parts.it.store.delete_topic("T", may_have_delayed=True)
    assert asked(parts, 30_000) == [0]
    assert parts.it.bodies(OP) == [b"0"]
    assert parts.open_offsets() == []


async def test_a_store_that_takes_nothing_ends_the_round(parts: Transacted) -> None:
    """Nobody is asked about what is not stored again; the next round does it."""
    parts.send()
    flags = parts.it.store._log.flags
    flags.set(RunningFlag.DISK_FULL)
    assert asked(parts, 6_000) == [0]
    flags.clear(RunningFlag.DISK_FULL)

    def refuse(call: str, _path: str) -> None:
        if call == "pwrite":
            raise OSError(5, "broken")

    parts.it.disk.refuse = refuse
    assert asked(parts, 1_000) == [0]
    parts.it.disk.refuse = lambda call, path: None
    assert parts.open_offsets() == [0]
    assert asked(parts, 1_000) == [1]


async def test_who_is_being_ended_is_left_alone(parts: Transacted) -> None:
    """Its end is under way."""
    half = parts.send()
    parts.transactions.under_way[0] = []
    assert asked(parts, 30_000) == [0]
    del parts.transactions.under_way[0]
    assert parts.end(half).code == ResponseCode.SUCCESS


async def test_a_copy_that_would_be_too_long_is_discarded(parts: Transacted) -> None:
    """There is no room for how often it was asked about: it must not hold up those behind it."""
    parts.send(b"long", filler="x" * 32_640)
    parts.send(b"short")
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.round()
    assert [bytes(record(question).body) for question in questions(producer)] == [b"short"]
    assert parts.it.bodies(DISCARDED) == [b"long"]


async def test_a_round_goes_in_slices(parts: Transacted) -> None:
    """Each asks about no more than SLICE_MESSAGES; what comes meanwhile is for the next round."""
    for n in range(3 * SLICE_MESSAGES):
        parts.send(b"%d" % n)
    parts.it.clock.now_ms += 30_000
    now_ms = parts.it.clock.now_ms
    one = CheckRound(parts.it.store, parts.transactions, parts.sessions.producers, parts.totals, now_ms)
    steps = 0
    while one.step(now_ms):
        steps += 1
        assert parts.totals.without_producer <= steps * SLICE_MESSAGES
    assert parts.totals.without_producer == 3 * SLICE_MESSAGES
    assert repr(one) == f"<CheckRound at={3 * SLICE_MESSAGES} end={3 * SLICE_MESSAGES}>"
