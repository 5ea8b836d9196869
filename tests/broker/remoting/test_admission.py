"""Admission: every bound of a pool at its edge; no clock but the times that are told."""

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

SOMEBODY = cast(Connection, object())


def request(body: bytes = b"", opaque: int = 0) -> RemotingCommand:
    command = RemotingCommand.request(310, body=body)
    command.opaque = opaque
    return command


def pool(capacity: int = 3, max_bytes: int = 1_000_000, wait_ms: int | None = 200, stall_ms: int | None = None) -> Pool:
    return Pool("send", capacity, PoolLimits(max_bytes, wait_ms, stall_ms))


def admits(it: Pool) -> bool:
    """The hot path's comparison."""
    return it.pending < it.admit_limit


def test_the_last_place_is_taken_and_not_one_more() -> None:
    """Capacity counts those who wait for an answer; a place given back is free again."""
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


def test_the_byte_that_fills_a_pool_is_its_last() -> None:
    """Below `max_bytes` a request of any size comes in; at it, none; as the remark says."""
    it = pool(max_bytes=100)
    it.take(99)
    assert admits(it)
    it.take(1)
    assert not admits(it)
    assert it.refusal() == f"{OVERLOAD}, waiting 100 bytes, limit 100"
    it.release(1)
    assert admits(it)
    assert it.statistics().rejected_by_bytes == 1


def test_a_pool_without_waiting_requests_takes_one_of_any_size() -> None:
    """Nothing is too large to be asked at all."""
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
def test_what_was_read_late_is_refused(waited_ms: int, cause: str | None) -> None:
    """From `wait_ms` on by time, from `stall_ms` on because of the disk, in RocketMQ's words; for this read only."""
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


def test_a_stall_counts_where_waiting_does_not() -> None:
    """The smaller of both limits is what requests may wait."""
    it = pool(wait_ms=5_000, stall_ms=1_000)
    assert it.max_wait_ms == 1_000
    it.note_read_delay(1_000)
    assert "PCBUSY" in str(it.refusal())


def test_without_a_limit_nobody_waits_too_long() -> None:
    """brokerFastFailureEnable=false."""
    it = pool(wait_ms=None)
    it.note_read_delay(1_000_000)
    assert admits(it)
    it.suspend(str)
    it.defer(SOMEBODY, request(), 1.0)
    assert (it.max_wait_ms, it.due_s) == (None, None)
    assert it.take_overdue(1e9) == ([], "")


def test_a_shut_pool_keeps_what_comes_and_gives_it_back_in_order() -> None:
    """Those kept hold admit_limit and memory until it opens."""
    it = pool()
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    assert not admits(it)
    assert it.refusal() is None
    assert it.is_suspended
    first, second = request(b"a" * 100, 1), request(b"b", 2)
    for command in (first, second):
        it.defer(SOMEBODY, command, 1.0)
    figures = it.statistics(1.125)
    assert (figures.pending, figures.bytes, figures.head_wait_ms) == (2, memory_of(first) + memory_of(second), 125)
    assert [kept.command.opaque for kept in it.resume()] == [1, 2]
    assert (it.pending, it.statistics().bytes, admits(it), it.is_suspended) == (0, 0, True, False)


def test_who_waited_too_long_is_refused_at_the_limit() -> None:
    """Not a moment before; the rest waits on, and the remark is made once for all."""
    it = pool(wait_ms=200)
    asked: list[None] = []

    def why() -> str:
        asked.append(None)
        return "flush behind 7 bytes, limit 5"

    it.suspend(why)
    for opaque, since_s in enumerate((1.0, 1.0, 1.125)):
        it.defer(SOMEBODY, request(opaque=opaque), since_s)
    assert it.due_s == 1.2
    assert it.take_overdue(1.199) == ([], "")
    overdue, remark = it.take_overdue(1.2)
    assert [kept.command.opaque for kept in overdue] == [0, 1]
    assert remark == f"{OVERLOAD}, flush behind 7 bytes, limit 5"
    assert (it.pending, it.statistics().rejected_by_wait, len(asked)) == (1, 2, 1)
    assert it.due_s == 1.325
    assert [kept.command.opaque for kept in it.resume()] == [2]
    assert it.due_s is None


def test_a_shut_pool_is_bounded_as_well() -> None:
    """By requests and by memory; then the remark says why nothing moves."""
    it = pool(capacity=2, max_bytes=3 * BARE_REQUEST_BYTES)
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    it.defer(SOMEBODY, request(), 1.0)
    assert it.refusal() is None
    it.defer(SOMEBODY, request(), 1.0)
    assert it.refusal() == OVERLOAD
    assert len(list(it.resume())) == 2
    it.suspend(lambda: "flush behind 7 bytes, limit 5")
    it.defer(SOMEBODY, request(b"x" * (2 * BARE_REQUEST_BYTES)), 1.0)
    assert it.refusal() == f"{OVERLOAD}, flush behind 7 bytes, limit 5"
    assert it.statistics().rejected_by_bytes == 1


def test_a_pool_that_opens_stays_full_if_it_is() -> None:
    """Each reason to keep out ends by itself."""
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


def test_kept_requests_have_memory_of_their_own() -> None:
    """The receive buffer is used again meanwhile."""
    it = pool()
    it.suspend(str)
    buffer = bytearray(b"body")
    it.defer(SOMEBODY, RemotingCommand(code=310, body=memoryview(buffer)), 1.0)
    buffer[:] = b"else"
    (kept,) = it.resume()
    assert isinstance(kept, DeferredRequest)
    assert kept.command.body == b"body"


def test_memory_counts_fields_and_body() -> None:
    """Fields twice: as they came, and decoded."""
    plain = RemotingCommand(code=11, raw_ext=msgspec.Raw(b'{"a":"b"}'), body=b"12345")
    assert memory_of(plain) == BARE_REQUEST_BYTES + 18 + 5
    assert memory_of(RemotingCommand(code=11, ext={"a": "1234"})) == BARE_REQUEST_BYTES + 8
