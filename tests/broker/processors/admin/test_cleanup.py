"""Cleanup on request: queues without a topic are removed, and retention is started."""

from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import TOPIC, broker_parts


async def test_queues_without_a_topic_are_removed(tmp_path: Path) -> None:
    """Queues of topics and of system topics stay, whether or not the latter are in the topic table."""
    with broker_parts(tmp_path) as parts:
        for topic in (TOPIC, "Stray", "rmq_sys_wheel_timer"):
            parts.put(b"x", topic=topic)
        response = await parts.peer().call_and_wait(RemotingCommand.request(RequestCode.CLEAN_UNUSED_TOPIC))
        assert response.code == 0
        assert parts.store.manual_cleanup.topics() == {TOPIC, "rmq_sys_wheel_timer"}


@pytest.mark.parametrize("code", [RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG])
async def test_cleanup_is_started_by_request(tmp_path: Path, code: RequestCode) -> None:
    """The response does not wait for the cleanup."""
    with broker_parts(tmp_path) as parts:
        assert parts.peer().call(RemotingCommand.request(code)).code == 0
