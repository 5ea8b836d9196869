"""Requests that a slave refuses: each with RocketMQ's code, and without a change."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.processors.slave_refusals import SENDS, SlaveRefusals
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.sending_parts import SendingParts


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[SendingParts]:
    parts = SendingParts(tmp_path)
    refused = RemotingCommand.response(ResponseCode.SERVICE_NOT_AVAILABLE, "not available")
    parts.serve(SlaveRefusals(lambda _status: refused).handlers())
    yield parts
    parts.store.close()


@pytest.mark.parametrize("code", SENDS)
async def test_sends_get_the_response_of_a_store_that_refuses(parts: SendingParts, code: RequestCode) -> None:
    """No header is read, so no topic is created."""
    topics = parts.topics.version
    response = parts.peer().call(RemotingCommand.request(code, body=b"x"))
    assert (response.code, response.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "not available")
    assert parts.topics.version == topics


@pytest.mark.parametrize(
    ("code", "expected", "remark"),
    [
        (36, 1, "SERVICE_NOT_AVAILABLE"),
        (37, 11, "not set any response code"),
        (222, 1, "Can not reset offset in slave broker"),
        (370, 11, "recall failed, broker service not available"),
    ],
)
async def test_changes_get_rocketmqs_codes(parts: SendingParts, code: int, expected: int, remark: str) -> None:
    """As 4.9 (36) and 5.3 (the others) respond."""
    response = parts.peer().call(RemotingCommand.request(code))
    assert (response.code, response.remark) == (expected, remark)
