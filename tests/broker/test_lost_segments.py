"""A log segment that is truncated under a running daemon: only its lost messages cannot be read."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.record import decode
from tests.broker.test_failures import PULL, SEND
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse

pytestmark = pytest.mark.daemon

KEPT_BYTES: Final = 64 << 10
BODY: Final = b"b" * 8_000
MESSAGES: Final = 100
KEPT_MESSAGES: Final = 7  # messages before the cut


def call(daemon: Daemon, code: int, ext: Mapping[str, object], body: bytes = b"") -> RawResponse:
    with RawClient(LOOPBACK, daemon.broker_port) as client:
        return client.call(code, ext, body)


def send(daemon: Daemon, topic: str, body: bytes = BODY) -> None:
    assert call(daemon, RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic}, body).code == ResponseCode.SUCCESS


def pull(daemon: Daemon, topic: str, offset: int) -> RawResponse:
    ext = PULL | {"topic": topic, "queueOffset": offset, "maxMsgNums": 4}
    return call(daemon, RequestCode.PULL_MESSAGE, ext)


@pytest.mark.crash
@pytest.mark.parametrize("compiled", ["1", "0"])
def test_a_truncated_segment_fails_only_its_own_reads(
    tmp_path: Path, compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulls of lost messages get SYSTEM_ERROR with file and offset; everything else continues."""
    command = ("env", f"SKYLARK_COMPILED={compiled}", sys.executable, "-m", "skylarkmq.broker")
    with running(command, tmp_path, must_be_consistent=False) as daemon:
        for _ in range(MESSAGES):
            send(daemon, "Lost")
        assert pull(daemon, "Lost", 50).code == ResponseCode.SUCCESS
        segment = tmp_path / "store" / "commitlog" / ("0" * 20)
        os.truncate(segment, KEPT_BYTES)
        for offset in (KEPT_MESSAGES + 1, 50, MESSAGES - 4):
            response = pull(daemon, "Lost", offset)
            assert response.code == ResponseCode.SYSTEM_ERROR, response
            assert f"bytes from {KEPT_BYTES} on are lost: '{segment.relative_to(tmp_path)}'" in (response.remark or "")
        send(daemon, "Other", b"later")
        send(daemon, "Lost", b"later")
        response = pull(daemon, "Lost", 50)
        assert response.code == ResponseCode.SYSTEM_ERROR, response
        there = (("Other", 0, [b"later"]), ("Lost", MESSAGES, [b"later"]), ("Lost", 0, [BODY] * 4))
        for topic, offset, bodies in there:
            response = pull(daemon, topic, offset)
            assert response.code == ResponseCode.SUCCESS, response
            assert [message.body for message in decode(response.body)] == bodies
        assert daemon.stop() == 0
    line = f"log segment has lost bytes, reads of them fail file={segment.relative_to(tmp_path)} at={KEPT_BYTES}"
    assert daemon.output.count(line) == 1
    assert "Traceback" not in daemon.output
