"""Changes of offsets by an operator survive SIGKILL right after the response."""

import json
import signal
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.protocol.codes import RequestCode
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

pytestmark = pytest.mark.crash

GROUP: Final = "moved"
TOPIC: Final = "Moved"
MESSAGES: Final = 5
SEND: Final = {"a": "PG", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "m": False, "i": ""}


def committed(client: RawClient) -> int:
    """Return the committed offset; 0 for a group without one."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    return int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"])


def call_and_kill(daemon: Daemon, code: int, ext: dict[str, object], messages: int = 0) -> None:
    """Send messages, make the operator's request, and kill the daemon after its response."""
    with RawClient(LOOPBACK, daemon.broker_port) as client:
        body = json.dumps({"groupName": GROUP}).encode()
        assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
        for _ in range(messages):
            assert client.call(RequestCode.SEND_MESSAGE_V2, SEND, b"x").code == 0
        assert client.call(code, ext).code == 0
        daemon.stop(signal.SIGKILL)


def test_offsets_moved_by_an_operator_survive_a_kill(tmp_path: Path) -> None:
    """Holds for a reset to the end, and for a deletion of all offsets of a group."""
    # With this interval the table is never saved periodically.
    settings = {"flushConsumerOffsetInterval": 3_600_000, "flushDiskType": "SYNC_FLUSH"}
    reset = {"group": GROUP, "topic": TOPIC, "timestamp": -1, "isForce": True}
    with running(directory=tmp_path, settings=settings) as daemon:
        call_and_kill(daemon, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset, MESSAGES)
    with running(directory=tmp_path, settings=settings) as daemon:
        with RawClient(LOOPBACK, daemon.broker_port) as client:
            assert committed(client) == MESSAGES
        call_and_kill(daemon, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP, "cleanOffset": True})
    with running(directory=tmp_path, settings=settings) as daemon, RawClient(LOOPBACK, daemon.broker_port) as client:
        assert committed(client) == 0
