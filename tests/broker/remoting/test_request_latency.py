"""How long requests take, by what they asked and how they ended."""

from pathlib import Path
from time import monotonic

import pytest

from skylarkmq.broker.remoting.request_latency import UNKNOWN_CODE, Latencies, Outcome
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import broker_parts, heartbeat, pull

PULL = RequestCode.PULL_MESSAGE


def test_a_turn_of_equal_requests_is_one_note() -> None:
    """They came together and are answered together; what they took is counted for each."""
    latencies = Latencies()
    latencies.note(310, 0, monotonic() - 0.05, 128)
    row = latencies.rows[Outcome(310, 0)]
    assert row.counts[5] == row.count == 128  # above 10 ms, up to 100
    assert row.total >= 128 * 50
    assert latencies.statistics().requests == 128
    assert "rows=1" in repr(latencies)


async def test_whoever_answers_notes_it(tmp_path: Path) -> None:
    """Answers by returned response, by the processor itself, and of errors are told apart by their codes."""
    with broker_parts(tmp_path) as parts:
        parts.put(b"a")
        peer = parts.peer()
        peer.ask(heartbeat())
        peer.ask(pull())
        peer.ask(pull(topic="unknown"))
        rows = parts.dispatcher.latencies.rows
        assert {outcome: row.count for outcome, row in rows.items()} == {
            Outcome(RequestCode.HEART_BEAT, ResponseCode.SUCCESS): 1,
            Outcome(PULL, ResponseCode.SUCCESS): 1,
            Outcome(PULL, ResponseCode.TOPIC_NOT_EXIST): 1,
        }


async def test_codes_that_nobody_serves_share_one_row(tmp_path: Path) -> None:
    """A peer cannot fill memory by asking for ever other numbers."""
    with broker_parts(tmp_path) as parts:
        peer = parts.peer()
        for code in (7_001, 7_002):
            peer.ask(RemotingCommand.request(code))
        (outcome,) = parts.dispatcher.latencies.rows
        assert outcome == (UNKNOWN_CODE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, False, False)


async def test_a_parked_pull_took_as_long_as_it_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time runs from its arrival, not from the message's, and it is known as one that was parked."""
    with broker_parts(tmp_path) as parts:
        peer = parts.peer()
        peer.send(pull(suspend_ms=60_000))
        monkeypatch.setattr("skylarkmq.broker.remoting.request_latency.monotonic", lambda: monotonic() + 30)
        peer.connection.arrived_s += 30  # the client has said something else meanwhile
        parts.put(b"a")
        row = parts.dispatcher.latencies.rows[Outcome(PULL, ResponseCode.SUCCESS, was_parked=True)]
        assert row.count == 1
        assert row.total >= 30_000
