"""Topics that clients may write to, and names that they may create."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.broker.processors.send.test_processor import Sends

BLANK_GROUP = "The specified group is blank."
CODES = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
INTERNAL = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_C",
    "rmq_sys_anything",
    "rmq_sys_",
    "rmq_sys_TRACE_DATA",
]
WRITABLE = [
    "RMQ_SYS_TRACE_TOPIC",
    "rmq_sys_TRACE_DATA_region",
    "TBW102",
    "BenchmarkTest",
    "%RETRY%g",
    "%DLQ%g",
    "C_REPLY_TOPIC",
    "C",  # the cluster's name
    "b",  # the broker's name
    "T",
    "RMQ_SYS_own",
    "Rmq_sys_own",
]


@pytest.fixture
async def sends(tmp_path: Path) -> AsyncIterator[Sends]:
    sends = Sends(tmp_path)
    yield sends
    sends.store.close()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("topic", INTERNAL)
async def test_no_client_writes_to_the_broker_s_own_topics(sends: Sends, topic: str, code: int) -> None:
    """By no request code, whether the topic exists or not; nor by the fast path after a first attempt."""
    body = encode_batch([BatchRecord(0, b"x", b"")])
    for _ in range(2):
        response = sends.call(body, code=code, topic=topic, batch="true" if code == 320 else None)
        assert (response.code, response.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")
    assert sends.store.max_physical_offset == 0
    assert not sends.store.queues.ids_of(topic)


@pytest.mark.parametrize("topic", WRITABLE)
async def test_official_clients_and_tools_can_write_to_their_topics(sends: Sends, topic: str) -> None:
    """Some have reserved names, but the broker reads nothing back from them."""
    for _ in range(2):
        assert (sends.call(topic=topic).code, sends.store.queues.ids_of(topic)) == (0, [0])


@pytest.mark.parametrize("topic", ["%RETRY%", "%DLQ%", "%RETRY% ", "%RETRY%g/../..", "%DLQ%a\nb", "../x", ".", "a\0b"])
async def test_a_refused_name_creates_no_topic(sends: Sends, topic: str) -> None:
    """It creates no group, either."""
    before = [each.topic_name for each in sends.topics]
    response = sends.call(topic=topic)
    assert response.code == 29
    assert response.remark is not None
    assert response.remark == BLANK_GROUP or "illegal characters" in response.remark
    assert [each.topic_name for each in sends.topics] == before
    assert sends.store.max_physical_offset == 0
