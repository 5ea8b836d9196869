"""RECALL_MESSAGE (370): valid and invalid handles."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.recall import RecallMessageHeader
from skylarkmq.protocol.recall_handle import RecallHandle
from tests.harness.broker_parts import TOPIC
from tests.harness.sending_parts import SendingParts

TIMER = "rmq_sys_wheel_timer"
INVALID = "recall handle is invalid"
WRONG_TIME = "recall failed, timestamp invalid"


class Recalls(SendingParts):
    """Parts of a broker with recalls."""

    async def recall(self, deliver_ms: str, unique_key: str = "K", topic: str = TOPIC) -> RemotingCommand:
        handle = RecallHandle(topic, "b", deliver_ms, unique_key).encode()
        header = RecallMessageHeader(topic=topic, recall_handle=handle, producer_group="PG")
        return await self.peer().call_and_wait(RemotingCommand.request(RequestCode.RECALL_MESSAGE, header))


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Recalls]:
    it = Recalls(tmp_path)
    yield it
    it.store.close()


async def test_a_recall_stores_a_timer_message(parts: Recalls) -> None:
    """It deletes the recalled message when both are due."""
    response = await parts.recall(str(parts.clock.now_ms + 5_000))
    assert (response.code, response.ext_fields()["msgId"]) == (0, "K")
    assert parts.store.max_offset(TIMER, 0) == 1


@pytest.mark.parametrize("deliver_ms", ["9" * 5_000, "٣", "-1", "", "1e12", str(2**63)])
async def test_an_invalid_time_is_refused(parts: Recalls, deliver_ms: str) -> None:
    """Like a time outside of the window."""
    response = await parts.recall(deliver_ms)
    assert (response.code, response.remark) == (604, WRONG_TIME)
    assert parts.store.max_physical_offset == 0


@pytest.mark.parametrize("unique_key", ["K\x02REAL_TOPIC\x01other", "\x01", "a\x02"])
async def test_a_key_with_separators_is_refused(parts: Recalls, unique_key: str) -> None:
    """A separator of properties makes the handle invalid."""
    response = await parts.recall(str(parts.clock.now_ms + 5_000), unique_key)
    assert (response.code, response.remark) == (604, INVALID)
    assert parts.store.max_physical_offset == 0


@pytest.mark.parametrize("topic", [TIMER, "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"])
async def test_a_recall_in_the_broker_s_own_topics_is_refused(parts: Recalls, topic: str) -> None:
    """Like a send."""
    response = await parts.recall(str(parts.clock.now_ms + 5_000), topic=topic)
    assert (response.code, response.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")
    assert parts.store.max_physical_offset == 0
