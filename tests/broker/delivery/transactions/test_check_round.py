"""Check rounds: which half messages are checked, which not yet, and which never again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.transactions.check_round import SLICE_MESSAGES, CheckRound
from skylarkmq.broker.delivery.transactions.open_halves import HalfState
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.record import Record, parse
from tests.harness.stores import Opened, opened, records_of
from tests.harness.transacted import DISCARDED, HALF, HOST, OP, ROLLBACK, Transacted, received_checks


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path, mapped_file_size_consume_queue=20_000) as store:
        yield store


@pytest.fixture
async def parts(it: Opened) -> Transacted:
    return Transacted(it)


def record(request: RemotingCommand) -> Record:
    found = parse(memoryview(request.body))
    assert isinstance(found, Record)
    return found


def checks_per_round(parts: Transacted, *after_ms: int) -> list[int]:
    """Return the number of check requests in each round; there is a producer."""
    parts.producer()
    counts = []
    for ms in after_ms:
        before = parts.totals.asked
        parts.it.clock.now_ms += ms
        parts.check_round()
        counts.append(parts.totals.asked - before)
    return counts


async def test_a_check_request_refers_to_the_copy(parts: Transacted) -> None:
    """It is in the log by then; the body is the half message under its real topic, with flag and reconsume times."""
    half = parts.half(b"one", queue_id=3)
    half.reconsume_times = 2
    parts.it.put(half)
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.check_round()
    (request,) = received_checks(producer)
    header = request.header(CheckTransactionHeader)
    _, copy = records_of(parts.it.store.get(HALF, 0, 0, 9))
    assert request.is_oneway
    assert (header.tran_state_table_offset, header.commit_log_offset) == (1, copy.physical_offset)
    assert header.msg_id == header.transaction_id == "Uone"
    assert header.offset_msg_id == f"{HOST.hex().upper()}{copy.physical_offset:016X}"
    assert (header.topic, header.bname) == (HALF, "b")
    body = record(request)
    assert (body.topic, body.queue_id, bytes(body.body)) == ("T", 3, b"one")
    assert (body.queue_offset, body.physical_offset) == (1, copy.physical_offset)
    assert (body.flag, body.reconsume_times, copy.flag, copy.reconsume_times) == (7, 2, 7, 2)
    properties = decode_properties(copy.properties.decode())
    shown = {name: value for name, value in properties.items() if name != "TRAN_PREPARED_HALF_OFFSET"}
    assert decode_properties(body.properties.decode()) == shown
    assert (properties["TRANSACTION_CHECK_TIMES"], properties["TRAN_PREPARED_HALF_OFFSET"]) == ("1", "0")
    assert parts.open_offsets() == [1]


@pytest.mark.parametrize("which", ["half", "copy"])
@pytest.mark.parametrize("decision", [8, ROLLBACK])
async def test_an_end_may_refer_to_the_half_message_or_its_copy(parts: Transacted, which: str, decision: int) -> None:
    """A producer may refer to the half message that it sent or to the checked copy: both are decided, once."""
    half = parts.send()
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.check_round()
    header = received_checks(producer)[0].header(CheckTransactionHeader)
    copy = {
        "tran_state_table_offset": header.tran_state_table_offset,
        "commit_log_offset": header.commit_log_offset,
        "from_transaction_check": "true",
    }
    for named in ({}, copy) if which == "half" else (copy, {}):
        assert parts.end(half, decision, **named).code == ResponseCode.SUCCESS
    assert len(parts.it.bodies()) == (decision == 8)
    for delivered in records_of(parts.it.store.get("T", 0, 0, 9)):
        assert b"TRAN_PREPARED" not in delivered.properties
    assert parts.it.bodies(OP) == [b"1", b"0"]
    assert parts.open_offsets() == []
    assert parts.transactions.statistics().open == {}


async def test_no_check_is_too_early(parts: Transacted) -> None:
    """Not before transactionTimeOut after its birth; then once in each round."""
    parts.send()
    assert checks_per_round(parts, 0, 5_999, 1, 1, 30_000) == [0, 0, 1, 1, 1]


async def test_the_first_young_half_message_ends_the_round(parts: Transacted) -> None:
    """Those after it are younger."""
    parts.send(b"old")
    parts.it.clock.now_ms += 5_000
    parts.send(b"young")
    assert checks_per_round(parts, 1_000, 5_000) == [1, 2]


async def test_a_half_message_may_have_its_own_immunity(parts: Transacted) -> None:
    """It is stored again without a check, and does not block others. That counts as a check, as in RocketMQ."""
    parts.send(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    parts.send(b"usual")
    assert checks_per_round(parts, 30_000, 30_000, 30_000) == [1, 2, 2]
    assert parts.totals.kept == 1
    copies = [decode_properties(it.properties.decode()) for it in records_of(parts.it.store.get(HALF, 0, 2, 9))]
    assert [(it["UNIQ_KEY"], it["TRANSACTION_CHECK_TIMES"]) for it in copies[:2]] == [("Uimmune", "1"), ("Uusual", "1")]


async def test_a_half_message_that_is_immune_for_too_long_is_discarded(it: Opened) -> None:
    """As by RocketMQ, after transactionCheckMax rounds without a check; its producer may still end it."""
    parts = Transacted(it, transaction_check_max=2)
    half = parts.send(CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    assert checks_per_round(parts, 30_000, 30_000, 30_000) == [0, 0, 0]
    assert (parts.totals.kept, parts.totals.discarded) == (2, 1)
    assert it.bodies(DISCARDED) == [b"half"]
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert len(it.bodies()) == 1


async def test_a_half_message_kept_for_its_immunity_is_delivered_with_its_first_offset(parts: Transacted) -> None:
    """As by RocketMQ 5.3.3: TRAN_PREPARED_QUEUE_OFFSET is in the check and in the committed message."""
    parts.send(b"other")
    half = parts.send(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    producer = parts.producer()
    for _ in range(3):
        parts.it.clock.now_ms += 30_000
        parts.check_round()
    check = next(it for it in reversed(received_checks(producer)) if it.ext_fields()["msgId"] == "Uimmune")
    assert decode_properties(record(check).properties.decode())["TRAN_PREPARED_QUEUE_OFFSET"] == "1"
    header = check.header(CheckTransactionHeader)
    ended = parts.end(
        half,
        tran_state_table_offset=header.tran_state_table_offset,
        commit_log_offset=header.commit_log_offset,
        from_transaction_check="true",
    )
    assert ended.code == ResponseCode.SUCCESS
    (delivered,) = records_of(parts.it.store.get("T", 0, 0, 9))
    assert decode_properties(delivered.properties.decode())["TRAN_PREPARED_QUEUE_OFFSET"] == "1"


async def test_a_kept_half_message_is_ended_by_its_first_offset(parts: Transacted) -> None:
    """Its producer was never notified of the copy."""
    half = parts.send(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    assert checks_per_round(parts, 30_000) == [0]
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert checks_per_round(parts, 60_000) == [0]
    assert len(parts.it.bodies()) == 1


async def test_a_half_message_born_in_the_future_is_checked(parts: Transacted) -> None:
    """It does not block others."""
    half = parts.half()
    half.born_timestamp += 3_600_000
    parts.it.put(half)
    assert checks_per_round(parts, 1_000) == [1]


async def test_a_half_message_is_discarded_after_the_maximum_of_checks(it: Opened) -> None:
    """After transactionCheckMax checks it moves to a topic of its own, complete; its producer may still end it."""
    parts = Transacted(it, transaction_check_max=2)
    half = parts.send()
    assert checks_per_round(parts, 30_000, 30_000, 30_000, 30_000) == [1, 1, 0, 0]
    (discarded,) = records_of(it.store.get(DISCARDED, 0, 0, 9))
    assert (bytes(discarded.body), discarded.flag) == (b"half", 7)
    assert parts.open_offsets() == []
    assert parts.transactions.halves.state(0) is HalfState.DISCARDED
    assert parts.transactions.statistics().open == {}
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert len(it.bodies()) == 1


async def test_without_producers_the_checks_count(it: Opened) -> None:
    """As with RocketMQ: a group that is gone for good does not keep its half messages forever."""
    parts = Transacted(it, transaction_check_max=1)
    parts.send()
    for _ in range(2):
        it.clock.now_ms += 30_000
        parts.check_round()
    assert (parts.totals.without_producer, parts.totals.discarded) == (1, 1)


async def test_a_half_message_is_discarded_after_the_reserved_time(it: Opened) -> None:
    """fileReservedTime after its birth."""
    parts = Transacted(it, file_reserved_time=1)
    parts.send()
    assert checks_per_round(parts, 3_600_001) == [0]
    assert len(it.bodies(DISCARDED)) == 1


async def test_producers_of_a_group_are_checked_in_turn(parts: Transacted) -> None:
    """A producer that is disconnected or does not read is skipped."""
    producers = [parts.producer(port=port) for port in (1, 2, 3)]
    producers[2].connection.paused = True
    for n in range(6):
        parts.send(b"%d" % n)
    parts.producer("other", 9)
    parts.it.clock.now_ms += 6_000
    parts.check_round()
    assert [len(received_checks(producer)) for producer in producers] == [3, 3, 0]


async def test_only_producers_that_may_send_to_the_topic_are_checked(parts: Transacted) -> None:
    """A check contains the message. Without such a producer the check counts, as without any."""
    parts.send(b"one", topic="T")
    parts.send(b"two", topic="U")
    parts.send(b"three", topic="V")
    allowed, other = parts.producer(port=1, topics={"T"}), parts.producer(port=2, topics={"U"})
    for _ in range(4):
        parts.it.clock.now_ms += 30_000
        parts.check_round()
    assert {bytes(record(request).body) for request in received_checks(allowed)} == {b"one"}
    assert {bytes(record(request).body) for request in received_checks(other)} == {b"two"}
    assert (parts.totals.asked, parts.totals.without_producer) == (8, 4)


async def test_a_producer_that_does_not_read_gets_no_more_checks(it: Opened) -> None:
    """The half message is stored again, and a check that was not sent does not count."""
    parts = Transacted(it, transaction_check_max=1)
    parts.send()
    producer = parts.producer()
    producer.connection.paused = True
    for _ in range(3):
        it.clock.now_ms += 6_000
        parts.check_round()
    producer.connection.paused = False
    assert (parts.totals.kept, parts.totals.without_producer) == (3, 0)
    it.clock.now_ms += 6_000
    parts.check_round()
    assert len(received_checks(producer)) == 1


async def test_decided_half_messages_are_skipped(parts: Transacted) -> None:
    """Any number of them; each open one between them is checked, in order."""
    halves = [parts.send(b"%d" % n) for n in range(5 * SLICE_MESSAGES)]
    for n, half in enumerate(halves):
        if n % 7:
            parts.end(half, ROLLBACK)
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.check_round()
    bodies = [bytes(record(request).body) for request in received_checks(producer)]
    assert bodies == [b"%d" % n for n in range(0, 5 * SLICE_MESSAGES, 7)]


async def test_half_messages_of_a_deleted_topic_are_dropped(parts: Transacted) -> None:
    """They are not checked; an op message marks them as decided."""
    parts.send()
    await parts.it.store.delete_topic("T", may_have_delayed=True)
    assert checks_per_round(parts, 30_000) == [0]
    assert parts.it.bodies(OP) == [b"0"]
    assert parts.open_offsets() == []


async def test_a_store_that_rejects_puts_ends_the_round(parts: Transacted) -> None:
    """A half message that is not stored again is not checked; the next round checks it."""
    parts.send()
    flags = parts.it.store._log.flags
    flags.set(RunningFlag.DISK_FULL)
    assert checks_per_round(parts, 6_000) == [0]
    flags.clear(RunningFlag.DISK_FULL)

    def refuse(call: str, _path: str) -> None:
        if call == "pwrite":
            raise OSError(5, "broken")

    parts.it.disk.refuse = refuse
    assert checks_per_round(parts, 1_000) == [0]
    parts.it.disk.refuse = lambda call, path: None
    assert parts.open_offsets() == [0]
    assert checks_per_round(parts, 1_000) == [1]


async def test_a_half_message_that_is_being_ended_is_not_checked(parts: Transacted) -> None:
    """Its end is in progress."""
    half = parts.send()
    parts.transactions.under_way[0] = []
    assert checks_per_round(parts, 30_000) == [0]
    del parts.transactions.under_way[0]
    assert parts.end(half).code == ResponseCode.SUCCESS


async def test_a_half_message_whose_copy_would_be_too_long_is_discarded(parts: Transacted) -> None:
    """Its properties have no space for the number of checks, and it must not block others."""
    parts.send(b"long", filler="x" * 32_640)
    parts.send(b"short")
    producer = parts.producer()
    parts.it.clock.now_ms += 6_000
    parts.check_round()
    assert [bytes(record(request).body) for request in received_checks(producer)] == [b"short"]
    assert parts.it.bodies(DISCARDED) == [b"long"]


async def test_a_round_runs_in_slices(parts: Transacted) -> None:
    """Each checks at most SLICE_MESSAGES; messages that arrive meanwhile are left for the next round."""
    for n in range(3 * SLICE_MESSAGES):
        parts.send(b"%d" % n)
    parts.it.clock.now_ms += 30_000
    now_ms = parts.it.clock.now_ms
    one = CheckRound(parts.it.store, parts.transactions, parts.sessions.producers_to, parts.totals, now_ms)
    steps = 0
    while one.step(now_ms):
        steps += 1
        assert parts.totals.without_producer <= steps * SLICE_MESSAGES
    assert parts.totals.without_producer == 3 * SLICE_MESSAGES
    assert repr(one) == f"<CheckRound at={3 * SLICE_MESSAGES} end={3 * SLICE_MESSAGES}>"
