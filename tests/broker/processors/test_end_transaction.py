"""END_TRANSACTION (37): every check in order, with RocketMQ's codes and remarks, and the resulting log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.delivery.transactions.messages import OP_PROPERTIES, OP_TAGS_CODE
from skylarkmq.broker.processors.end_transaction import NOT_FOUND, PUT_BACK_RAISED
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.headers.transactions import ResumeCheckHeader
from skylarkmq.protocol.message import decode_properties, encode_properties, tags_code
from skylarkmq.protocol.message_id import encode_offset_id
from skylarkmq.protocol.record import Record, encode
from tests.harness.copies import TestCopies
from tests.harness.some_rights import SomeRights
from tests.harness.stores import Opened, message, opened, records_of
from tests.harness.transacted import COMMIT, DISCARDED, HALF, HOST, OP, ROLLBACK, Transacted, received_checks

BODY_AT = 88  # in a record with IPv4 hosts


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[Opened]:
    with opened(tmp_path) as store:
        yield store


@pytest.fixture
async def parts(it: Opened) -> Transacted:
    return Transacted(it)


def records(it: Opened, topic: str = "T", queue_id: int = 0) -> list[Record]:
    return records_of(it.store.get(topic, queue_id, 0, 32))


async def test_a_half_message_is_stored_in_the_half_topic(parts: Transacted) -> None:
    """It is invisible to consumers; topic and transaction id are properties, and its transaction bits are cleared."""
    parts.send(b"one", queue_id=3)
    assert parts.it.bodies("T", 3) == []
    (half,) = records(parts.it, HALF)
    properties = decode_properties(half.properties.decode())
    assert (half.sys_flag, half.flag, bytes(half.body)) == (0, 7, b"one")
    assert properties["REAL_TOPIC"] == "T"
    assert properties["REAL_QID"] == "3"
    assert properties["__transactionId__"] == properties["UNIQ_KEY"] == "Uone"
    assert parts.transactions.statistics().open == {"T": 1}


async def test_a_commit_delivers_the_message(parts: Transacted) -> None:
    """It is stored in its queue, with its transaction bits and all its properties; an op message names the half
    message."""
    half = parts.send(b"one", queue_id=3)
    parts.it.clock.now_ms += 2_500
    response = parts.end(half)
    assert (response.code, response.remark) == (ResponseCode.SUCCESS, None)
    (final,) = records(parts.it, "T", 3)
    assert (final.sys_flag, final.flag, bytes(final.body)) == (8, 7, b"one")
    assert final.prepared_transaction_offset == half.physical_offset
    assert final.properties == half.properties
    assert final.born_timestamp == half.born_timestamp
    (op,) = records(parts.it, OP)
    assert (bytes(op.body), op.sys_flag, op.properties) == (b"0", 0, b"WAIT\x01true\x02TAGS\x01d\x02")
    assert parts.it.store.units(OP, 0, 0, 1)[0][2] == tags_code("d")
    now = parts.transactions.statistics()
    assert (now.open, now.committed, now.rolled_back) == ({}, {"T": 1}, {})
    finished = parts.transactions.finished["T"]
    assert (finished.count, finished.total) == (1, 2.5)
    assert [*parts.it.store.traffic()["T"].special] == ["transaction"]
    assert parts.transactions.halves.begin == 1


async def test_a_rollback_delivers_nothing(parts: Transacted) -> None:
    """Only an op message is stored."""
    response = parts.end(parts.send(), ROLLBACK)
    assert (response.code, response.remark) == (ResponseCode.SUCCESS, NO_RESPONSE_REMARK)
    assert parts.it.bodies() == []
    assert parts.it.bodies(OP) == [b"0"]
    assert parts.transactions.statistics().rolled_back == {"T": 1}


@pytest.mark.parametrize("decision", [0, 4, 7])
async def test_an_unknown_state_gets_no_response(parts: Transacted, decision: int) -> None:
    """Nothing is changed."""
    parts.peer.send(parts.request(parts.send(), decision))
    assert parts.peer.received == []
    assert parts.open_offsets() == [0]


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 5}, "Find prepared transaction message failed"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
        ({"producer_group": "other", "tran_state_table_offset": 9}, "The producer group wrong"),
        ({"tran_state_table_offset": 9}, "The transaction state table offset wrong"),
    ],
)
async def test_an_invalid_end_is_refused(parts: Transacted, fields: dict[str, Any], remark: str) -> None:
    """By the first failed check; nothing is stored."""
    half = parts.send()
    response = parts.end(half, **fields)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert parts.it.bodies(OP) == []


async def test_only_half_messages_are_ended(parts: Transacted) -> None:
    """Another message at that offset is no half message, whatever its properties say."""
    half = parts.send()
    parts.end(half)
    (final,) = records(parts.it)
    response = parts.end(half, commit_log_offset=final.physical_offset)
    assert response.remark == "Find prepared transaction message failed"


@pytest.mark.parametrize(("seconds", "code"), [("10", 604), ("60", 0), ("-1", 604), ("none", 604)])
async def test_an_end_after_the_immunity_time_is_refused(parts: Transacted, seconds: str, code: int) -> None:
    """Then only the response to a check ends it. -1 and values that are no number mean the broker's timeout."""
    half = parts.send(CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)
    parts.it.clock.now_ms += 20_000
    response = parts.end(half)
    assert response.code == code
    assert response.remark == (NO_RESPONSE_REMARK if code else None)
    assert parts.end(half, from_transaction_check="true").code == ResponseCode.SUCCESS
    assert len(parts.it.bodies()) == 1


async def test_a_repeated_end_changes_nothing(parts: Transacted) -> None:
    """In one read and later: one message, one op message, and success each time."""
    half = parts.send()
    parts.peer.send(parts.request(half), parts.request(half))
    await asyncio.gather(*parts.dispatcher._tasks)
    parts.peer.take()
    assert [response.code for response in parts.peer.received] == [0, 0]
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert parts.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    assert (len(parts.it.bodies()), parts.it.bodies(OP)) == (1, [b"0"])


async def test_a_rolled_back_message_is_never_delivered(parts: Transacted) -> None:
    """A later commit changes nothing."""
    half = parts.send()
    parts.end(half, ROLLBACK)
    parts.end(half)
    assert parts.it.bodies() == []


async def test_a_delay_begins_with_the_commit(parts: Transacted) -> None:
    """A half message with a delay level is stored in the half topic; once committed, it is delayed."""
    half = parts.send(b"late", DELAY="2")
    assert parts.it.bodies("SCHEDULE_TOPIC_XXXX", 1) == []
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert parts.it.bodies() == []
    (waiting,) = records(parts.it, "SCHEDULE_TOPIC_XXXX", 1)
    assert (waiting.sys_flag, bytes(waiting.body)) == (8, b"late")


async def test_a_timer_without_a_timer_service_is_refused(parts: Transacted) -> None:
    """The half message stays open."""
    half = parts.send(TIMER_DELAY_MS="2000")
    assert parts.end(half).code == ResponseCode.MESSAGE_ILLEGAL
    assert parts.open_offsets() == [0]
    assert parts.end(half, ROLLBACK).code == ResponseCode.SUCCESS


async def test_half_messages_can_be_refused(it: Opened) -> None:
    """rejectTransactionMessage, with RocketMQ's remark."""
    parts = Transacted(it, reject_transaction_message=True)
    with pytest.raises(Exception, match=r"the broker\[10.0.0.1\] sending transaction message is forbidden"):
        parts.send()


async def test_a_read_only_store_refuses_an_end(parts: Transacted) -> None:
    """With RocketMQ's remarks; the half message stays open, and can be ended later."""
    half = parts.send()

    def refuse(call: str, _path: str) -> None:
        if call == "pwrite":
            raise OSError(28, "full")

    parts.it.disk.refuse = refuse
    response = parts.end(half)
    assert (response.code, response.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    response = parts.end(half)
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    parts.it.disk.refuse = lambda call, path: None
    parts.it.clock.now_ms += 5_000
    parts.it.store.step(parts.it.clock.now_ms)
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert len(parts.it.bodies()) == 1


async def test_an_end_with_too_long_a_message_is_refused(tmp_path: Path) -> None:
    """It exceeds the current limit, and stays open: no op message is stored without the final one."""
    with opened(tmp_path) as it:
        half = Transacted(it).send(b"x" * 200)
    with opened(tmp_path, max_message_size=100) as it:
        parts = Transacted(it)
        response = parts.end(half)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert response.remark is not None
        assert response.remark.startswith("The message is illegal, maybe msg body or properties length not matched.")
        assert (it.bodies(OP), parts.open_offsets()) == ([], [0])


async def test_under_sync_flush_the_response_waits_for_the_flush(tmp_path: Path) -> None:
    """Another end of the same half message waits for it, too."""
    loop = asyncio.get_running_loop()
    with opened(tmp_path, sync=True, loop=loop) as it:
        parts = Transacted(it)
        half = parts.half()
        await parts.puts.put(half)
        it.disk.syncs.clear()
        parts.peer.send(parts.request(half), parts.request(half, ROLLBACK))
        assert (parts.peer.received, parts.pool.pending) == ([], 2)
        it.disk.syncs.set()
        await asyncio.gather(*parts.dispatcher._tasks)
        parts.peer.take()
        assert [response.code for response in parts.peer.received] == [0, 0]
        assert len(it.bodies()) == 1
        assert (it.bodies(OP), parts.pool.pending) == ([b"0"], 0)


@pytest.mark.parametrize("refusal", [None, PutStatus.SLAVE_NOT_AVAILABLE])
async def test_an_end_without_a_copy_succeeds(parts: Transacted, refusal: PutStatus | None) -> None:
    """As in RocketMQ: the message is stored. The response waits for its copy, at most `slaveTimeout`."""
    half, copies = parts.send(), TestCopies()
    copies.refusal = refusal
    parts.it.store.flush.replicate(copies)
    parts.peer.send(parts.request(half))
    assert len(parts.peer.received) == (0 if refusal is None else 1)
    assert parts.it.bodies() == [b"half"]
    parts.it.store.step(parts.it.clock.now_ms + copies.timeout_ms)
    parts.peer.take()
    assert [response.code for response in parts.peer.received] == [ResponseCode.SUCCESS]
    assert (parts.transactions.statistics().committed, parts.pool.pending) == ({"T": 1}, 0)


async def test_on_a_link_an_overdue_end_is_refused(parts: Transacted) -> None:
    """With SERVICE_NOT_AVAILABLE (14). The half message stays open, so that its end can be sent again."""
    half, copies = parts.send(), TestCopies(is_visible_first=False)
    parts.it.store.flush.replicate(copies)
    parts.peer.send(parts.request(half))
    parts.it.store.step(parts.it.clock.now_ms + copies.timeout_ms)
    (response,) = parts.peer.take()
    assert (response.code, response.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    assert (parts.it.bodies(), parts.open_offsets()) == ([], [0])
    copies.move(1 << 62)


async def test_a_oneway_end_gets_no_response(parts: Transacted) -> None:
    """Java clients end transactions by oneway requests."""
    request = parts.request(parts.send())
    request.flag = 2
    parts.peer.send(request)
    assert parts.peer.received == []
    assert len(parts.it.bodies()) == 1


async def test_an_end_waits_until_half_messages_are_loaded(it: Opened) -> None:
    """After a start."""
    parts = Transacted(it, is_loaded=False)
    half = parts.send()
    parts.peer.send(parts.request(half))
    await asyncio.sleep(0)
    assert parts.it.bodies(OP) == []
    parts.load()
    await asyncio.gather(*parts.dispatcher._tasks)
    assert [response.code for response in parts.peer.take()] == [0]


async def test_a_half_message_of_a_deleted_topic_is_dropped(parts: Transacted) -> None:
    """Its end succeeds and stores an op message, but creates no queue."""
    half = parts.send()
    await parts.it.store.delete_topic("T", may_have_delayed=True)
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert parts.it.store.queues.ids_of("T") == []
    assert parts.it.bodies(OP) == [b"0"]


# --- RESUME_CHECK_HALF_MESSAGE (323)


def resume(physical_offset: int) -> RemotingCommand:
    header = ResumeCheckHeader(msg_id=encode_offset_id(HOST, physical_offset))
    return RemotingCommand.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


async def test_a_discarded_half_message_is_checked_again(it: Opened) -> None:
    """It is restored from the topic of discarded messages with no checks counted; both copies end together."""
    parts = Transacted(it, transaction_check_max=1)
    half = parts.send()
    for _ in range(2):
        it.clock.now_ms += 30_000
        parts.check_round()
    (discarded,) = records(it, DISCARDED)
    assert parts.open_offsets() == []
    response = await parts.peer.call_and_wait(resume(discarded.physical_offset))
    assert (response.code, response.remark) == (ResponseCode.SUCCESS, NO_RESPONSE_REMARK)
    producer = parts.producer()
    it.clock.now_ms += 30_000
    parts.check_round()
    assert len(received_checks(producer)) == 1
    assert parts.end(half).code == ResponseCode.SUCCESS
    assert parts.open_offsets() == []
    assert len(it.bodies()) == 1


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_discarded", [False, True])
async def test_a_decided_transaction_is_not_reopened(it: Opened, decision: int, is_discarded: bool) -> None:
    """Neither by the id of its half message nor by the id of its discarded copy, however often a caller asks."""
    parts = Transacted(it, transaction_check_max=1)
    half = parts.send()
    places = [half.physical_offset]
    if is_discarded:
        for _ in range(2):
            it.clock.now_ms += 30_000
            parts.check_round()
        places += [record.physical_offset for record in records(it, DISCARDED)]
    assert parts.end(half, commit_or_rollback=decision).code == ResponseCode.SUCCESS
    end = it.store.max_physical_offset
    for place in places:
        response = await parts.peer.call_and_wait(resume(place))
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, PUT_BACK_RAISED)
    assert it.store.max_physical_offset == end
    assert parts.open_offsets() == []


@pytest.mark.parametrize(
    ("topic", "action", "is_permitted"),
    [("T", Action.UPDATE, True), ("T", Action.PUB, False), ("Other", Action.UPDATE, False)],
)
async def test_resuming_needs_the_right_to_the_topic_of_the_half_message(
    it: Opened, topic: str, action: Action, is_permitted: bool
) -> None:
    """UPDATE on the topic that the producer sent it to, whatever the request names."""
    parts = Transacted(it, rights=SomeRights((topic, action)))
    half = parts.send()
    response = await parts.peer.call_and_wait(resume(half.physical_offset))
    assert (response.code == ResponseCode.SUCCESS) is is_permitted


@pytest.mark.parametrize("msg_id", ["", "XYZ", encode_offset_id(HOST, 77), encode_offset_id(HOST, 1 << 40)])
async def test_resuming_an_unknown_message_fails(parts: Transacted, msg_id: str) -> None:
    """RocketMQ's remark."""
    parts.it.put(message())
    command = RemotingCommand.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHeader(msg_id=msg_id))
    response = await parts.peer.call_and_wait(command)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


async def test_resuming_fails_if_the_store_refuses_the_put(parts: Transacted) -> None:
    """RocketMQ's other remark."""
    half = parts.send()
    parts.it.store._log.flags.set(RunningFlag.DISK_FULL)
    response = await parts.peer.call_and_wait(resume(half.physical_offset))
    assert response.remark == "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
    parts.it.store._log.flags.clear(RunningFlag.DISK_FULL)


async def test_the_end_of_another_half_message_is_refused(parts: Transacted) -> None:
    """After a power cut another half message may be at the offset: the unique key differs."""
    half = parts.send(b"there")
    before = parts.it.store.max_physical_offset
    elsewhere = encode_offset_id(HOST, half.physical_offset + 1)
    others: list[dict[str, Any]] = [
        {"msg_id": "Ugone"},
        {"msg_id": "", "transaction_id": "Ugone"},
        {"msg_id": elsewhere},
    ]
    for fields in others:
        response = parts.end(half, **fields)
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, NOT_FOUND)
    assert (parts.it.store.max_physical_offset, parts.open_offsets()) == (before, [0])


@pytest.mark.parametrize(
    "fields", [{"msg_id": ""}, {"msg_id": "x", "transaction_id": "Uthere"}, {"msg_id": "Uthere", "transaction_id": "x"}]
)
async def test_a_client_may_identify_the_half_message_in_several_ways(
    parts: Transacted, fields: dict[str, Any]
) -> None:
    """By either of two fields, by its offset id, or not at all."""
    assert parts.end(parts.send(b"there"), **fields).code == ResponseCode.SUCCESS
    half = parts.send(b"there")
    assert parts.end(half, msg_id=encode_offset_id(HOST, half.physical_offset)).code == ResponseCode.SUCCESS


async def test_a_half_message_inside_a_body_is_ignored(parts: Transacted) -> None:
    """Otherwise, bytes of a body that look like a half message could end the transaction of another producer."""
    victim = parts.send(b"victim")
    place = parts.it.store.max_physical_offset + BODY_AT
    properties = encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "PG", "UNIQ_KEY": "forged"}).encode()
    forged = encode(
        topic=HALF, body=b"", properties=properties, queue_id=0, queue_offset=victim.queue_offset,
        physical_offset=place, born_timestamp=1, born_host=HOST, store_timestamp=2, store_host=HOST,
    )  # fmt: skip
    (carrier,) = parts.it.put(message(forged, "Other"))
    assert parts.it.store.record_at(place) is not None
    offset = victim.queue_offset
    response = parts.end(carrier, commit_log_offset=place, tran_state_table_offset=offset, msg_id="forged")
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, NOT_FOUND)
    assert await parts.recheck.resume(place, lambda _topic: True) is None
    assert parts.end(victim).code == ResponseCode.SUCCESS
    assert parts.it.bodies("T") == [b"victim"]


async def test_a_forged_root_offset_is_ignored(parts: Transacted) -> None:
    """Another producer's transaction stays open, and the table of half messages does not grow to a forged offset."""
    victim = parts.send(b"victim")
    for root in ("0", "999999999999999999"):
        mine = parts.send(b"mine", TRAN_PREPARED_QUEUE_OFFSET=root, TRANSACTION_CHECK_TIMES="15")
        assert parts.end(mine, ROLLBACK).code == ResponseCode.SUCCESS
    assert parts.open_offsets() == [0]
    assert parts.end(victim).code == ResponseCode.SUCCESS
    assert parts.it.bodies("T") == [b"victim"]


@pytest.mark.parametrize(
    "more",
    [
        {"REAL_TOPIC": "../../x"},
        {"REAL_TOPIC": OP},
        {"REAL_QID": "9" * 5_000},
        {"REAL_QID": "2147483648"},
        {"TRAN_PREPARED_QUEUE_OFFSET": "999999999999999999"},
        {"TRANSACTION_CHECK_TIMES": "9" * 5_000},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 5_000},
    ],
)
async def test_invalid_entries_of_an_older_store_are_skipped(it: Opened, more: dict[str, str]) -> None:
    """Half and op messages that another version accepted: loading, checks and commits skip them."""
    before = Transacted(it)
    first = before.send(b"first")
    known = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "bad", "REAL_TOPIC": "T", "REAL_QID": "0"}
    it.put(message(b"bad", HALF, properties=encode_properties(known | more).encode()))
    forged = OP_PROPERTIES + b"REAL_TOPIC\x01" + OP.encode() + b"\x02"
    for body, properties in ((b"9" * 5_000, OP_PROPERTIES), (b"0", forged), (b"0", b""), (b"", OP_PROPERTIES)):
        it.put(message(body, OP, properties=properties, tags_code=OP_TAGS_CODE if properties else 0))
    last = before.send(b"last")
    parts = Transacted(it)
    assert {0, 2} <= set(parts.open_offsets())
    assert parts.transactions.dropped_ops.count == 4
    parts.producer()
    it.clock.now_ms += 30_000
    parts.check_round()
    assert [parts.end(half).code for half in (first, last)] == [ResponseCode.SUCCESS] * 2
    assert it.bodies("T")[:2] == [b"first", b"last"]
    again = Transacted(it)
    assert not {0, 2} & set(again.open_offsets())
