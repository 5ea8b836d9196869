"""How long requests take, by request code and response code."""

from pathlib import Path
from time import monotonic

import pytest

from skylarkmq.broker.remoting.request_latency import UNKNOWN_CODE, Latencies, Outcome
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import broker_parts, heartbeat, pull

PULL = RequestCode.PULL_MESSAGE


def test_equal_requests_of_a_batch_are_recorded_in_one_call() -> None:
    """They arrived together and get their responses together; the latency is counted for each."""
    latencies = Latencies()
    latencies.note(310, 0, monotonic() - 0.05, 128)
    row = latencies.rows[Outcome(310, 0)]
    assert row.counts[5] == row.count == 128  # above 10 ms, up to 100
    assert row.total >= 128 * 50
    assert latencies.statistics().requests == 128
    assert "rows=1" in repr(latencies)


async def test_every_kind_of_response_is_recorded(tmp_path: Path) -> None:
    """Returned responses, responses written by the processor, and errors are separate rows by their codes."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a")
        peer = parts.peer()
        peer.call(heartbeat())
        peer.call(pull())
        peer.call(pull(topic="unknown"))
        rows = parts.dispatcher.latencies.rows
        assert {outcome: row.count for outcome, row in rows.items()} == {
            Outcome(RequestCode.HEART_BEAT, ResponseCode.SUCCESS): 1,
            Outcome(PULL, ResponseCode.SUCCESS): 1,
            Outcome(PULL, ResponseCode.TOPIC_NOT_EXIST): 1,
        }


async def test_unknown_codes_share_one_row(tmp_path: Path) -> None:
    """A peer cannot fill the memory with new request codes."""
    with broker_parts(tmp_path) as parts:
        peer = parts.peer()
        for code in (7_001, 7_002):
            peer.call(RemotingCommand.request(code))
        (outcome,) = parts.dispatcher.latencies.rows
        assert outcome == (UNKNOWN_CODE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, False, False)


async def test_the_latency_of_a_parked_pull_includes_its_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts from the pull's arrival, not from the message's, and has the row of parked pulls."""
    with broker_parts(tmp_path) as parts:
        peer = parts.peer()
        peer.send(pull(suspend_ms=60_000))
        monkeypatch.setattr("skylarkmq.broker.remoting.request_latency.monotonic", lambda: monotonic() + 30)
        peer.connection.arrived_s += 30  # another request of the client arrived meanwhile
        parts.put(b"a")
        row = parts.dispatcher.latencies.rows[Outcome(PULL, ResponseCode.SUCCESS, was_parked=True)]
        assert row.count == 1
        assert row.total >= 30_000
