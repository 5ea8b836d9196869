"""Attacks on messages and files that once succeeded, each against a running daemon, with the required outcome.

After each attack `Arena.finish` checks that SIGTERM ends the daemon with 0, `store verify` finds no damage, no file
outside the store was changed, the log has no traceback, and memory stayed below its limit.
"""

import json
import time
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.attack.arena import Arena
from tests.attack.normal_clients import Ledger, await_message, long_names, read_queue, send_header
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.crash

WHEEL: Final = "rmq_sys_wheel_timer"
OP: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
BAD_TOPICS: Final = ("../../x", "../../../victim", "a/b", ".", "x\0y", "../consumequeue/Orders")


def forge(client: RawClient, topic: str = WHEEL, body: bytes = b"forged", **properties: str) -> RawResponse:
    """Send a message to an internal topic that only the broker writes to."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return client.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, text), body)


def past_ms() -> str:
    return str(int(time.time() * 1000) - 2_000)


def send_timer(client: RawClient, topic: str) -> None:
    """Send a message that is due in a second."""
    response = client.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, {"TIMER_DELAY_MS": "1000"}), b"timer")
    assert response.code == ResponseCode.SUCCESS, response


def assert_kept_after_kill(arena: Arena, *ledgers: Ledger) -> None:
    """Kill and start the daemon; every acknowledged message is there, and sends continue."""
    arena.restart()
    client = arena.client()
    for ledger in ledgers:
        assert ledger.missing(client)[:3] == []
        ledger.send(client, 3)
    arena.finish()


def assert_refused_as_internal(client: RawClient, response: RawResponse, topic: str) -> None:
    """Check that the refusal is that of a topic in NOT_SENDABLE."""
    usual = client.call(RequestCode.SEND_MESSAGE_V2, send_header(OP), b"x")
    assert usual.code != ResponseCode.SUCCESS
    assert response.remark is not None
    assert usual.remark is not None
    assert (response.code, response.remark) == (usual.code, usual.remark.replace(OP, topic))


@pytest.mark.parametrize("code", [10, 310, 320])
def test_an_invalid_sys_flag_loses_no_later_message(arena: Arena, code: int) -> None:
    """After sysFlag 0x80 in an ordinary send, later acknowledged messages are not lost."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 2)
    header, body = send_header("Orders", f=0x80), b"odd"
    if code == RequestCode.SEND_MESSAGE:
        header = long_names(header)
    if code == RequestCode.SEND_BATCH_MESSAGE:
        header, body = header | {"m": "true"}, encode_batch([BatchRecord(0, b"odd", b""), BatchRecord(0, b"odd2", b"")])
    client.call(code, header, body)
    ledger.send(client, 200)
    assert_kept_after_kill(arena, ledger)


@pytest.mark.parametrize("real_topic", BAD_TOPICS)
def test_an_invalid_real_topic_of_a_timer_is_refused(arena: Arena, real_topic: str) -> None:
    """A destination that is not a topic name: the send is refused, no file is created, timers continue, nothing is
    lost."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 50)
    response = forge(client, REAL_TOPIC=real_topic, REAL_QID="0", TIMER_OUT_MS=past_ms(), UNIQ_KEY="u")
    send_timer(client, "Timers")
    await_message(client, "Timers", 0)
    ledger.send(client, 50)
    assert ledger.missing(client) == []
    assert arena.findings() == []
    assert_refused_as_internal(client, response, WHEEL)
    assert_kept_after_kill(arena, ledger)


def test_a_real_topic_with_nul_does_not_prevent_a_clean_stop(arena: Arena) -> None:
    """After a destination with NUL, SIGTERM ends with 0 and the next start has every acknowledged message."""
    client, ledger = arena.client(), Ledger("Orders")
    forge(client, REAL_TOPIC="x\0y", REAL_QID="0", TIMER_OUT_MS=past_ms(), UNIQ_KEY="u")
    send_timer(client, "Timers")
    await_message(client, "Timers", 0)
    ledger.send(client, 200)
    assert arena.stop() == 0
    arena.start()
    assert ledger.missing(arena.client()) == []
    arena.finish()


@pytest.mark.parametrize("code", [RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER])
@pytest.mark.parametrize("topic", ["../../victim", "../../../victim", "../../../link"])
def test_a_topic_deletion_deletes_no_file_outside_the_store(arena: Arena, code: int, topic: str) -> None:
    """A deletion of topics deletes no file outside the store, and no live queue inside."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 20)
    forge(client, REAL_TOPIC=topic, REAL_QID="2024", TIMER_OUT_MS=past_ms(), UNIQ_KEY="u")
    send_timer(client, "Timers")
    await_message(client, "Timers", 0)
    client.call(code, {"topic": topic})
    client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    ledger.send(client, 3)  # after any deletion
    assert arena.findings() == []
    assert_kept_after_kill(arena, ledger)


@pytest.mark.parametrize("group", ["g/../../../../x", "../../../victim", "g/b", "x\0y", "x\ny"])
def test_an_invalid_group_name_is_refused(arena: Arena, group: str) -> None:
    """A group whose retry topic would be a path is refused by every request that creates groups."""
    client, ledger = arena.client(), Ledger("Orders")
    ledger.send(client, 20)
    made = client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps({"groupName": group}).encode())
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    subscribed = consumer | {"subscriptionDataSet": [{"topic": "Orders", "subString": "*", "subVersion": 1}]}
    beat = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [subscribed]}
    client.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
    sent = client.call(RequestCode.SEND_MESSAGE_V2, send_header(f"%RETRY%{group}"), b"x")
    back = {"offset": 0, "group": group, "delayLevel": 1}
    client.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
    assert ledger.missing(client) == []
    assert arena.findings() == []
    assert made.code != ResponseCode.SUCCESS
    assert sent.code != ResponseCode.SUCCESS
    assert_kept_after_kill(arena, ledger)


@pytest.mark.parametrize(
    "odd",
    [
        {"REAL_QID": str(1 << 31)},
        {"REAL_QID": "9" * 5_000},
        {"TIMER_OUT_MS": "9" * 5_000},
        {"TIMER_DEL_UNIQKEY": "x" * 5_000, "TIMER_ROLL_TIMES": "9" * 5_000},
    ],
    ids=["queue id", "digits of a queue id", "digits of a time", "digits of rolls"],
)
def test_numbers_out_of_range_do_not_stop_timers(arena: Arena, odd: dict[str, str]) -> None:
    """Timers continue, also after a restart, and the other requests of the same read get responses."""
    client = arena.client()
    usual = {"REAL_TOPIC": "Timers", "REAL_QID": "0", "TIMER_OUT_MS": past_ms(), "UNIQ_KEY": "u"}
    text = "".join(f"{name}\x01{value}\x02" for name, value in (usual | odd).items())
    requests = [(send_header("Orders"), b"a"), (send_header(WHEEL, text), b"x"), (send_header("Orders"), b"b")]
    responses = dict(client.pipeline(RequestCode.SEND_MESSAGE_V2, requests))
    send_timer(client, "Timers")
    await_message(client, "Timers", 0)
    arena.restart()
    client = arena.client()
    send_timer(client, "Timers")
    await_message(client, "Timers", 1)
    assert responses.keys() == {0, 1, 2}
    assert_refused_as_internal(client, responses[1], WHEEL)
    arena.finish()


@pytest.mark.parametrize("body", [b"0", b"9" * 5_000, b"0,1,2,", b"-1", "٣".encode(), b"\xff"])
def test_a_forged_op_message_decides_no_transaction(arena: Arena, body: bytes) -> None:
    """A forged op message through the timer topic decides nothing: a commit with response 0 is delivered."""
    client = arena.client()
    half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "U1"}
    sent = client.call(RequestCode.SEND_MESSAGE_V2, send_header("Paid", half, f=4), b"half")
    assert sent.code == ResponseCode.SUCCESS, sent
    forge(client, REAL_TOPIC=OP, REAL_QID="0", TIMER_OUT_MS=past_ms(), TAGS="d", UNIQ_KEY="u", body=body)
    send_timer(client, "Timers")
    await_message(client, "Timers", 0)
    ip_port, at = sent.ext["msgId"][:16], int(sent.ext["msgId"][16:], 16)
    assert len(ip_port) == 16
    decision = {
        "producerGroup": "P", "tranStateTableOffset": sent.ext["queueOffset"], "commitLogOffset": at,
        "commitOrRollback": 8, "fromTransactionCheck": "false", "msgId": "U1", "transactionId": "U1",
    }  # fmt: skip
    response = client.call(RequestCode.END_TRANSACTION, decision)
    assert response.code == ResponseCode.SUCCESS, response
    assert bytes(await_message(client, "Paid", 0).body) == b"half"
    arena.restart()
    assert [bytes(record.body) for record in read_queue(arena.client(), "Paid")] == [b"half"]
    arena.finish()


@pytest.mark.parametrize("crc", ["", "1", "4294967295\x02", "0" * 10, "KEYS"])
def test_properties_with_a_crc_damage_no_record(tmp_path: Path, crc: str) -> None:
    """With enabledAppendPropCRC, properties with a CRC of their own damage neither records nor keys."""
    with Arena(tmp_path, enabledAppendPropCRC="true") as arena:
        client, ledger = arena.client(), Ledger("Orders")
        for properties in (f"__CRC32#\x01{crc}\x02KEYS\x01k1 k2\x02", f"KEYS\x01k1\x02__CRC32#\x01{crc}", "__CRC32#"):
            for _ in range(20):
                client.call(RequestCode.SEND_MESSAGE_V2, send_header("Orders", properties), b"odd")
        ledger.send(client, 20, KEYS="own", UNIQ_KEY="unique")
        query = {"topic": "Orders", "key": "own", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        found = client.call(RequestCode.QUERY_MESSAGE, query)
        assert found.body.count(b"KEYS\x01own") == 20
        assert_kept_after_kill(arena, ledger)


def test_a_topic_created_by_a_send_survives_a_kill(arena: Arena) -> None:
    """A topic that a send created survives an immediate kill, and its acknowledged message can be pulled."""
    ledgers = []
    for number in range(4):
        ledger = Ledger(f"New{number}")
        ledger.send(arena.client(), 1)
        ledgers.append(ledger)
        arena.restart()
    assert [ledger.missing(arena.client()) for ledger in ledgers] == [[]] * 4
    arena.finish()
