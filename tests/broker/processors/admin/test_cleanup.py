"""Cleanup on request: queues without a topic are removed, and retention is started."""

from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import TOPIC, broker_parts
from tests.harness.stores import message, opened


async def test_queues_without_a_topic_are_removed(tmp_path: Path) -> None:
    """Queues of topics and of system topics stay, whether or not the latter are in the topic table."""
    with broker_parts(tmp_path) as parts:
        for topic in (TOPIC, "Stray", "rmq_sys_wheel_timer"):
            parts.put(b"x", topic=topic)
        response = await parts.peer().call_and_wait(RemotingCommand.request(RequestCode.CLEAN_UNUSED_TOPIC))
        assert response.code == 0
        assert parts.store.manual_cleanup.topics() == {TOPIC, "rmq_sys_wheel_timer"}


async def test_a_slave_removes_no_queues_by_request(tmp_path: Path) -> None:
    """Its master may have created the topic after the tables were copied."""
    with opened(tmp_path / "master") as it:
        (append,) = it.put(message(b"x", "New"))
        record = it.store.record_at(append.physical_offset)
    with broker_parts(tmp_path / "slave", is_follower=True) as parts:
        replica = parts.store.replica
        assert replica is not None
        assert record is not None
        replica.append(0, record)
        replica.show(replica.end)
        response = await parts.peer().call_and_wait(RemotingCommand.request(RequestCode.CLEAN_UNUSED_TOPIC))
        assert response.code == 0
        assert parts.store.manual_cleanup.topics() == {"New"}


@pytest.mark.parametrize("code", [RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG])
async def test_cleanup_is_started_by_request(tmp_path: Path, code: RequestCode) -> None:
    """The response does not wait for the cleanup."""
    with broker_parts(tmp_path) as parts:
        assert parts.peer().call(RemotingCommand.request(code)).code == 0
