"""The daemon on stores written by RocketMQ 4.9.8: their delayed messages are delivered as by 4.9.8.

All of them were due long ago. Messages that 4.9.8 had delivered are not delivered again.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.record import Record, iterate
from tests.harness.daemon import MQBROKER, running
from tests.harness.golden_stores import Golden, described, golden_store
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import RawClient

pytestmark = pytest.mark.daemon

SETTINGS: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
SUSPEND_WITH_SUBSCRIPTION: Final = 6
KEPT: Final = (
    "tags", "keys", "uniqKey", "flag", "sysFlag", "bodyLength", "bodySha1", "bodyCRC", "bornTimestamp", "bornHost",
    "reconsumeTimes", "otherProperties",
)  # fmt: skip


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_pending_messages_are_delivered(name: str, tmp_path: Path) -> None:
    """Each once, to its topic and queue, unchanged, including retries; then GET_ALL_DELAY_OFFSET (45) returns the new
    offsets."""
    golden = golden_store("4.9.8", name, tmp_path / "store")
    pending = list(pending_of(golden))
    assert len(pending) == {"clean": 4, "crashed": 5}[name]
    settings = {name: golden.manifest["settings"][name] for name in SETTINGS}
    with (
        running(MQBROKER, tmp_path, settings | {"storePathRootDir": golden.root}) as daemon,
        RawClient("127.0.0.1", daemon.broker_port) as client,
    ):
        before = {(it["topic"], it["queueId"]): it["maxOffset"] for it in golden.manifest["consumeQueues"]}
        wanted: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for record in pending:
            real = record["otherProperties"]
            wanted.setdefault((real["REAL_TOPIC"], int(real["REAL_QID"])), []).append(record)
        for (topic, queue_id), records in wanted.items():
            came = [
                described(found, records[0])
                for found in pulled(client, topic, queue_id, before[topic, queue_id], len(records))
            ]
            key = "keys"
            for sent, got in zip(sorted(records, key=by(key)), sorted(came, key=by(key)), strict=True):
                assert {name: got[name] for name in KEPT} == {name: sent[name] for name in KEPT}
                assert (got["topic"], got["queueId"]) == (topic, queue_id)
        offsets = DelayOffsets.decode(client.call(RequestCode.GET_ALL_DELAY_OFFSET, {}).body).offset_table
        ends = {queue_id + 1: end for (topic, queue_id), end in before.items() if topic == SystemTopic.SCHEDULE}
        assert offsets == ends


def by(name: str) -> Any:
    return lambda record: record[name] or ""


def pending_of(golden: Golden) -> Iterator[dict[str, Any]]:
    """Yield the records of the schedule topic that 4.9.8 had not delivered."""
    delivered = golden.manifest["config"]["delayOffset.json"]["offsetTable"]
    for record in golden.records:
        is_delivered = record["queueOffset"] < delivered.get(str(record["queueId"] + 1), 0)
        if record["topic"] == SystemTopic.SCHEDULE and not is_delivered:
            yield record


def pulled(client: RawClient, topic: str, queue_id: int, offset: int, count: int) -> list[Record]:
    """Wait for `count` messages of a queue, and return them; check that there are no more."""
    found: list[Record] = []
    deadline = time.monotonic() + WAIT_LIMIT_S
    who = {"consumerGroup": "golden-reader", "topic": topic, "queueId": queue_id, "subscription": "*", "subVersion": 0}
    how = {"maxMsgNums": 32, "sysFlag": SUSPEND_WITH_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 1_000}
    while len(found) < count and time.monotonic() < deadline:
        response = client.call(RequestCode.PULL_MESSAGE, {**who, **how, "queueOffset": offset})
        found += [record for record in iterate(bytes(response.body)) if isinstance(record, Record)]
        assert "nextBeginOffset" in response.ext, response
        offset = int(response.ext["nextBeginOffset"])
    assert client.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}).ext["offset"] == str(offset)
    return found
