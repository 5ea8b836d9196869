"""The daemon on stores written by RocketMQ 4.9.8: their open transactions are checked and ended here."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.record import Record, iterate
from tests.harness.daemon import MQBROKER, running
from tests.harness.golden_stores import golden_store
from tests.harness.raw import RawClient

pytestmark = pytest.mark.daemon

SETTINGS: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
GROUP: Final = "fixture-tx"
HOURS_OF_A_CENTURY: Final = 876_000
SUBSCRIPTION_IN_REQUEST: Final = 4


def beat(client: RawClient) -> None:
    """Register the client as a producer of the group."""
    body = {"clientID": "c", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
    assert client.call(RequestCode.HEART_BEAT, body=json.dumps(body).encode()).code == 0


def question(client: RawClient) -> tuple[dict[str, Any], bytes]:
    """Return ext fields and body of the broker's next transaction check."""
    while True:
        header, body = client._read_frame()
        if header["code"] == RequestCode.CHECK_TRANSACTION_STATE:
            return header["extFields"], body


def end(client: RawClient, asked: dict[str, Any], decision: int) -> int:
    fields = {name: asked[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId", "transactionId")}
    more = {"producerGroup": GROUP, "commitOrRollback": decision, "fromTransactionCheck": True}
    return client.call(RequestCode.END_TRANSACTION, fields | more).code


def messages(client: RawClient, topic: str, queue_id: int, offset: int) -> list[Record]:
    who = {"consumerGroup": "golden-reader", "topic": topic, "queueId": queue_id, "subscription": "*", "subVersion": 0}
    how = {"maxMsgNums": 32, "sysFlag": SUBSCRIPTION_IN_REQUEST, "commitOffset": 0, "suspendTimeoutMillis": 0}
    response = client.call(RequestCode.PULL_MESSAGE, {**who, **how, "queueOffset": offset})
    return [record for record in iterate(bytes(response.body)) if isinstance(record, Record)]


@pytest.mark.parametrize("decision", [8, 12])
@pytest.mark.parametrize(("name", "count"), [("clean", 1), ("crashed", 2)])
def test_open_transactions_are_checked_and_ended(name: str, count: int, decision: int, tmp_path: Path) -> None:
    """Each is checked with its last copy, and its check count continues; committed it is delivered once, rolled back
    never; after another start no check is sent."""
    golden = golden_store("4.9.8", name, tmp_path / "store")
    last = {record["uniqKey"]: record for record in golden.records if record["topic"] == SystemTopic.TRANSACTION_HALF}
    settings = {name: golden.manifest["settings"][name] for name in SETTINGS} | {
        "storePathRootDir": golden.root,
        "transactionCheckInterval": 500,
        "fileReservedTime": HOURS_OF_A_CENTURY,
    }
    ended: dict[str, int] = {}
    with running(MQBROKER, tmp_path, settings) as daemon, RawClient("127.0.0.1", daemon.broker_port, 20.0) as client:
        beat(client)
        while len(ended) < count:
            asked, body = question(client)
            if asked["msgId"] in ended:
                continue
            (record,) = iterate(body)
            assert isinstance(record, Record)
            real = last[asked["msgId"]]["otherProperties"]
            assert (record.topic, str(record.queue_id)) == (real["REAL_TOPIC"], real["REAL_QID"])
            checks = int(decode_properties(record.properties.decode())["TRANSACTION_CHECK_TIMES"])
            assert checks > int(real.get("TRANSACTION_CHECK_TIMES", 0))
            place = {"topic": record.topic, "queueId": record.queue_id}
            before = int(client.call(RequestCode.GET_MAX_OFFSET, place).ext["offset"])
            assert end(client, asked, decision) == 0
            came = messages(client, record.topic, record.queue_id, before)
            assert [bytes(it.body) for it in came] == ([bytes(record.body)] if decision == 8 else [])
            ended[asked["msgId"]] = int(asked["tranStateTableOffset"])
        assert daemon.stop() == 0
    with running(MQBROKER, tmp_path, settings) as daemon, RawClient("127.0.0.1", daemon.broker_port, 2.0) as client:
        beat(client)
        with pytest.raises(TimeoutError):
            question(client)
        table = ConsumerOffsets.decode((golden.root / "config" / "consumerOffset.json").read_bytes()).offset_table
        saved = table[f"{SystemTopic.TRANSACTION_HALF}@CID_RMQ_SYS_TRANS"][0]
        assert saved > max(ended.values())
