"""The daemon on stores written by RocketMQ 4.9.8: its responses equal those of 4.9.8.

Where 5.3.3 responds differently (offsets by time, minimum offsets of trimmed queues and what follows from them), the
response of 5.3.3 is expected.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.record import Record, iterate
from tests.harness.daemon import MQBROKER, running
from tests.harness.golden_stores import GOLDEN_STORES, Golden, golden_store
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.daemon

WITH_SUBSCRIPTION: Final = 4
SETTINGS: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
NAMES: Final = [name for version, name in GOLDEN_STORES if version == "4.9.8"]


class GoldenBroker(NamedTuple):
    """A daemon that serves the store, and the responses of 4.9.8."""

    golden: Golden
    client: RawClient

    @property
    def responses(self) -> dict[str, Any]:
        responses: dict[str, Any] = self.golden.manifest["expected"]
        return responses


@pytest.fixture(scope="module", params=NAMES)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenBroker]:
    directory = tmp_path_factory.mktemp("golden")
    golden = golden_store("4.9.8", request.param, Path(directory, "store"))
    deliver_nothing(golden)
    settings = {name: golden.manifest["settings"][name] for name in SETTINGS}
    with (
        running(MQBROKER, directory, settings | {"storePathRootDir": golden.root}) as daemon,
        RawClient("127.0.0.1", daemon.broker_port) as client,
    ):
        yield GoldenBroker(golden, client)


def deliver_nothing(golden: Golden) -> None:
    """Mark all delayed messages as delivered: they are due by now, and would change the tested queues."""
    queues = [queue for queue in golden.manifest["consumeQueues"] if queue["topic"] == SystemTopic.SCHEDULE]
    rows = ",".join(f"{queue['queueId'] + 1}:{queue['maxOffset'] + 1}" for queue in queues)
    Path(golden.root, "config", "delayOffset.json").write_text(f'{{"offsetTable":{{{rows}}}}}')


def test_offsets(asked: GoldenBroker) -> None:
    """Requests 31, 30 and 32 for every queue; an unknown queue or topic has offsets 0 and time -1."""
    by_queue = {(entry["topic"], entry["queueId"]): entry for entry in asked.responses["offsets"]}
    by_queue |= {(entry["topic"], entry["queueId"]): entry for entry in asked.golden.expected["offsets"]}
    for (topic, queue_id), entry in by_queue.items():
        ext = {"topic": topic, "queueId": queue_id}
        assert asked.client.call(RequestCode.GET_MIN_OFFSET, ext).ext == {"offset": str(entry["min"])}
        assert asked.client.call(RequestCode.GET_MAX_OFFSET, ext).ext == {"offset": str(entry["max"])}
        earliest = asked.client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, ext)
        assert earliest.ext == {"timestamp": str(entry["earliestStoreTime"])}


def test_offsets_by_time(asked: GoldenBroker) -> None:
    """SEARCH_OFFSET_BY_TIMESTAMP (29), for both boundaries."""
    for entry in asked.golden.expected["offsetByTime"]:
        for timestamp, *offsets in entry["answers"]:
            for boundary, offset in zip(("LOWER", "UPPER"), offsets, strict=True):
                ext = {"topic": entry["topic"], "queueId": entry["queueId"], "timestamp": timestamp}
                response = asked.client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**ext, "boundaryType": boundary})
                assert response.ext == {"offset": str(offset)}, (ext, boundary)


def test_views(asked: GoldenBroker) -> None:
    """VIEW_MESSAGE_BY_ID (33) returns the bytes of the record, and the remark if there is none."""
    for entry in asked.responses["viewById"]:
        response = asked.client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": entry["offset"]})
        assert response.code == entry["code"], entry
        assert sha1(response) == entry["sha1"]
        assert "remark" not in entry or response.remark == entry["remark"]


def test_queries(asked: GoldenBroker) -> None:
    """QUERY_MESSAGE (12): code, the messages found, and the end of the index."""
    for entry in asked.responses["queryByKey"]:
        names = ("topic", "key", "maxNum", "beginTimestamp", "endTimestamp", "_UNIQUE_KEY_QUERY")
        response = asked.client.call(RequestCode.QUERY_MESSAGE, {name: entry[name] for name in names if name in entry})
        found = [record.physical_offset for record in iterate(response.body) if isinstance(record, Record)]
        received = {"code": response.code, "offsets": found} | {
            name: int(value) for name, value in response.ext.items()
        }
        assert received == {name: entry[name] for name in received}, entry
        assert len(received) == 4


def test_pulls(asked: GoldenBroker) -> None:
    """PULL_MESSAGE (11): code, remark, offsets and the bytes of the records, by tags (SQL92 is not served here)."""
    for entry in expected_pulls(asked):
        response = pull(asked.client, entry)
        received = {name: int(response.ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")}
        received |= {"suggestWhichBrokerId": int(response.ext["suggestWhichBrokerId"])}
        found = [record.physical_offset for record in iterate(response.body) if isinstance(record, Record)]
        all_received = {
            "code": response.code,
            "remark": response.remark,
            **received,
            "offsets": found,
            "sha1": sha1(response),
        }
        assert all_received == {name: entry[name] for name in all_received}, entry


def expected_pulls(asked: GoldenBroker) -> Iterator[dict[str, Any]]:
    """Yield the responses of 4.9.8; where 5.3.3 begins the queue later, all requested offsets are out of range."""
    where = ("topic", "queueId", "queueOffset", "maxMsgNums")
    by_newer = {tuple(entry[name] for name in where): entry for entry in asked.golden.expected["getMessage"]}
    for entry in [*asked.responses["pull"], *asked.responses.get("pullMoved", [])]:
        newer = by_newer.get(tuple(entry[name] for name in where))
        if newer is not None and newer["minOffset"] != entry["minOffset"]:
            yield entry | newer | {"code": ResponseCode.PULL_OFFSET_MOVED, "remark": newer["status"]}
        elif entry["expressionType"] == "TAG":
            yield entry


def pull(client: RawClient, entry: dict[str, Any]) -> RawResponse:
    who = {"consumerGroup": "golden-reader", "subVersion": 0, "expressionType": entry["expressionType"]}
    where = {name: entry[name] for name in ("topic", "queueId", "queueOffset", "maxMsgNums", "subscription")}
    how = {"sysFlag": WITH_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0}
    return client.call(RequestCode.PULL_MESSAGE, {**who, **where, **how})


def test_committed_offsets(asked: GoldenBroker) -> None:
    """QUERY_CONSUMER_OFFSET (14) returns the committed offsets; 22 instead of 4.9.8's 0 for a queue without
    messages."""
    for entry in asked.responses["committedOffsets"]:
        ext = {"consumerGroup": entry["group"], "topic": entry["topic"], "queueId": entry["queueId"]}
        response = asked.client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        assert (response.code, response.ext) == (ResponseCode.SUCCESS, {"offset": str(entry["offset"])}), entry


def sha1(response: RawResponse) -> str | None:
    return hashlib.sha1(response.body).hexdigest() if response.body else None
