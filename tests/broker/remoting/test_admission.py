"""Admission: every limit of a pool at its edge; times are arguments, without a clock."""

from typing import cast

import msgspec
import pytest

from skylarkmq.broker.remoting.admission import (
    BARE_REQUEST_BYTES,
    OVERLOAD,
    DeferredRequest,
    Pool,
    PoolLimits,
    memory_of,
)
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.command import RemotingCommand

CONNECTION = cast(Connection, object())


def request(body: bytes = b"", opaque: int = 0) -> RemotingCommand:
    command = RemotingCommand.request(310, body=body)
    command.opaque = opaque
    return command


def pool(capacity: int = 3, max_bytes: int = 1_000_000, wait_ms: int | None = 200, stall_ms: int | None = None) -> Pool:
    return Pool("send", capacity, PoolLimits(max_bytes, wait_ms, stall_ms))


def admits(it: Pool) -> bool:
    """Return the result of the hot path's comparison."""
    return it.pending < it.admit_limit


def test_a_pool_admits_as_many_requests_as_its_capacity() -> None:
    """Capacity counts requests without a response; a released request makes space for another."""
    it = pool(capacity=3)
    for _ in range(2):
        it.take(10)
    assert admits(it)
    it.take(10)
    assert not admits(it)
    assert it.refusal() == OVERLOAD == "[OVERLOAD]system busy, start flow control for a while"
    it.release(10)
    assert admits(it)
    figures = it.statistics()
    assert (figures.pending, figures.bytes, figures.rejected, figures.rejected_by_requests) == (2, 20, 1, 1)


def test_a_pool_is_full_at_max_bytes() -> None:
    """Below `max_bytes` a request of any size is admitted; at `max_bytes`, none; the remark states the limit."""
    it = pool(max_bytes=100)
    it.take(99)
    assert admits(it)
    it.take(1)
    assert not admits(it)
    assert it.refusal() == f"{OVERLOAD}, waiting 100 bytes, limit 100"
    it.release(1)
    assert admits(it)
    assert it.statistics().rejected_by_bytes == 1


def test_an_empty_pool_admits_a_request_of_any_size() -> None:
    """No request is too large to be admitted at all."""
    it = pool(max_bytes=100)
    assert admits(it)
    it.take(5_000)
    assert not admits(it)
    it.release(5_000)
    assert admits(it)


@pytest.mark.parametrize(
    ("waited_ms", "cause"),
    [(199, None), (200, "TIMEOUT"), (999, "TIMEOUT"), (1_000, "PCBUSY"), (1_439, "PCBUSY")],
)
def test_requests_read_late_are_refused(waited_ms: int, cause: str | None) -> None:
    """From `wait_ms` on with the cause TIMEOUT, from `stall_ms` on with PCBUSY, in RocketMQ's words; for this read
    only."""
    it = pool(stall_ms=1_000)
    it.take(10)
    it.note_read_delay(waited_ms)
    assert admits(it) is (cause is None)
    if cause is not None:
        how = f"period in queue: {waited_ms}ms, size of queue: 1"
        assert it.refusal() == f"[{cause}_CLEAN_QUEUE]broker busy, start flow control for a while, {how}"
    it.note_read_delay(0)
    assert admits(it)
    assert it.statistics().rejected_by_wait == (cause is not None)


def test_the_maximum_wait_is_the_smaller_of_both_limits() -> None:
    """A stall limit below the wait limit applies."""
    it = pool(wait_ms=5_000, stall_ms=1_000)
    assert it.max_wait_ms == 1_000
    it.note_read_delay(1_000)
    assert "PCBUSY" in str(it.refusal())


def test_without_a_wait_limit_no_request_is_refused_for_waiting() -> None:
    """brokerFastFailureEnable=false."""
    it = pool(wait_ms=None)
    it.note_read_delay(1_000_000)
    assert admits(it)
    it.suspend(str)
    it.defer(CONNECTION, request(), 1.0)
    assert (it.max_wait_ms, it.due_s) == (None, None)
    assert it.take_overdue(1e9) == ([], "")


def test_a_suspended_pool_defers_requests_and_yields_them_in_order() -> None:
    """Deferred requests count as pending, with their memory, until the pool resumes."""
    it = pool()
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    assert not admits(it)
    assert it.refusal() is None
    assert it.is_suspended
    first, second = request(b"a" * 100, 1), request(b"b", 2)
    for command in (first, second):
        it.defer(CONNECTION, command, 1.0)
    figures = it.statistics(1.125)
    assert (figures.pending, figures.bytes, figures.head_wait_ms) == (2, memory_of(first) + memory_of(second), 125)
    assert [kept.command.opaque for kept in it.resume()] == [1, 2]
    assert (it.pending, it.statistics().bytes, admits(it), it.is_suspended) == (0, 0, True, False)


def test_deferred_requests_are_refused_at_the_wait_limit() -> None:
    """Not earlier; the others continue to wait, and the remark is made once for all."""
    it = pool(wait_ms=200)
    asked: list[None] = []

    def why() -> str:
        asked.append(None)
        return "flush behind 7 bytes, limit 5"

    it.suspend(why)
    for opaque, since_s in enumerate((1.0, 1.0, 1.125)):
        it.defer(CONNECTION, request(opaque=opaque), since_s)
    assert it.due_s == 1.2
    assert it.take_overdue(1.199) == ([], "")
    overdue, remark = it.take_overdue(1.2)
    assert [kept.command.opaque for kept in overdue] == [0, 1]
    assert remark == f"{OVERLOAD}, flush behind 7 bytes, limit 5"
    assert (it.pending, it.statistics().rejected_by_wait, len(asked)) == (1, 2, 1)
    assert it.due_s == 1.325
    assert [kept.command.opaque for kept in it.resume()] == [2]
    assert it.due_s is None


def test_a_suspended_pool_has_the_same_limits() -> None:
    """By requests and by memory; the remark then gives the reason of the suspension."""
    it = pool(capacity=2, max_bytes=3 * BARE_REQUEST_BYTES)
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    it.defer(CONNECTION, request(), 1.0)
    assert it.refusal() is None
    it.defer(CONNECTION, request(), 1.0)
    assert it.refusal() == OVERLOAD
    assert len(list(it.resume())) == 2
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    it.defer(CONNECTION, request(b"x" * (2 * BARE_REQUEST_BYTES)), 1.0)
    assert it.refusal() == f"{OVERLOAD}, flush behind 7 bytes, limit 5"
    assert it.statistics().rejected_by_bytes == 1


def test_a_resumed_pool_admits_nothing_while_another_limit_is_reached() -> None:
    """Each reason for refusals ends independently."""
    it = pool(max_bytes=100)
    it.suspend(str)
    it.take(100)
    it.note_read_delay(500)
    assert list(it.resume()) == []
    assert not admits(it)
    it.note_read_delay(0)
    assert not admits(it)
    it.release(100)
    assert admits(it)


def test_deferred_requests_have_their_own_memory() -> None:
    """The receive buffer is reused meanwhile."""
    it = pool()
    it.suspend(str)
    buffer = bytearray(b"body")
    it.defer(CONNECTION, RemotingCommand(code=310, body=memoryview(buffer)), 1.0)
    buffer[:] = b"else"
    (kept,) = it.resume()
    assert isinstance(kept, DeferredRequest)
    assert kept.command.body == b"body"


def test_memory_counts_fields_and_body() -> None:
    """Fields count twice: raw and decoded."""
    plain = RemotingCommand(code=11, raw_ext=msgspec.Raw(b'{"a":"b"}'), body=b"12345")
    assert memory_of(plain) == BARE_REQUEST_BYTES + 18 + 5
    assert memory_of(RemotingCommand(code=11, ext={"a": "1234"})) == BARE_REQUEST_BYTES + 8
