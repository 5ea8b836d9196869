"""One connection to one address, over a transport that records writes."""

import asyncio
import logging
from typing import Any

import pytest

from skylarkmq.clients.sdk.base.errors import ConnectionLost, RequestTimeout
from skylarkmq.clients.sdk.connection.connection import Connection, Handler
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command
from tests.clients.peer import until


class Transport(asyncio.Transport):
    """Records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = False
        self.unsent_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


class Line:
    """A connection, its transport, and the peer's end, which a test controls."""

    def __init__(self, handlers: dict[int, Handler] | None = None, max_in_flight: int = 8192) -> None:
        self.closed: list[Connection] = []
        self.connection = Connection("peer:1", handlers or {}, self.closed.append, max_in_flight)
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def invoke(self, code: int = 28, timeout_s: float = 3.0) -> "asyncio.Task[RemotingCommand]":
        return asyncio.create_task(self.connection.invoke(RemotingCommand.request(code), timeout_s))

    async def requests(self, count: int) -> list[RemotingCommand]:
        """Return the first `count` written frames."""
        await until(lambda: len(self._written()) >= count)
        return self._written()

    def _written(self) -> list[RemotingCommand]:
        frames = FrameDecoder().feed(memoryview(b"".join(self.transport.writes)))
        return [command for frame in frames if (command := decode_command(frame)) is not None]


def answer(request: RemotingCommand, **fields: Any) -> bytes:
    return encode_command(RemotingCommand.response(**fields).in_response_to(request))


@pytest.mark.parametrize("piece", [1, 7, 1 << 20], ids=["byte by byte", "in sevens", "whole"])
async def test_each_response_reaches_its_request(piece: int) -> None:
    """By the opaque, in any order and however the bytes are split."""
    line = Line()
    tasks = [line.invoke() for _ in range(5)]
    requests = await line.requests(5)
    stream = b"".join(answer(r, ext={"n": str(r.opaque)}, body=b"body %d" % r.opaque) for r in reversed(requests))
    for at in range(0, len(stream), piece):
        line.connection.data_received(stream[at : at + piece])
    for task, request in zip(tasks, requests, strict=True):
        got = await task
        assert (got.ext_fields(), bytes(got.body)) == ({"n": str(request.opaque)}, b"body %d" % request.opaque)


async def test_a_thousand_requests_leave_in_few_writes() -> None:
    """Requests of one event-loop iteration are written together, and none waits for the response to another."""
    line = Line()
    tasks = [line.invoke() for _ in range(1000)]
    requests = await line.requests(1000)
    assert len(line.transport.writes) <= 2
    assert line.connection.statistics().in_flight == 1000
    line.connection.data_received(b"".join(answer(request) for request in requests))
    assert {(await task).code for task in tasks} == {0}
    assert line.connection.statistics().in_flight == 0


async def test_a_request_without_a_response_fails_at_its_deadline() -> None:
    """Each at its own deadline. A late response is dropped."""
    line = Line()
    short, long = line.invoke(timeout_s=1.0), line.invoke(timeout_s=30.0)
    requests = await line.requests(2)
    now_s = asyncio.get_running_loop().time()
    line.connection.expire(now_s + 0.5)
    assert line.connection.statistics().in_flight == 2
    line.connection.expire(now_s + 1.5)
    with pytest.raises(RequestTimeout, match=r"no response from peer:1 to GET_BROKER_RUNTIME_INFO \(28\) within 1 s"):
        await short
    line.connection.data_received(b"".join(answer(request) for request in requests))
    assert (await long).code == 0


async def test_deadlines_are_checked_periodically() -> None:
    """While requests are in flight, without a call from outside."""
    line = Line()
    with pytest.raises(RequestTimeout):
        await line.invoke(timeout_s=0.01)


async def test_a_canceled_request_is_removed() -> None:
    """Its response is dropped, and it no longer counts as in flight."""
    line = Line()
    task = line.invoke()
    (request,) = await line.requests(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    line.connection.expire(0.0)
    assert line.connection.statistics().in_flight == 0
    line.connection.data_received(answer(request))


async def test_the_end_of_the_connection_fails_pending_requests() -> None:
    """Each error has the reason, the owner is notified once, and further requests are refused."""
    line = Line()
    tasks = [line.invoke() for _ in range(3)]
    await line.requests(3)
    line.connection.connection_lost(OSError("reset"))
    line.connection.close()
    for task in tasks:
        with pytest.raises(ConnectionLost, match="lost: reset"):
            await task
    assert line.closed == [line.connection]
    with pytest.raises(ConnectionLost):
        await line.connection.invoke(RemotingCommand.request(28), 1.0)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\x00\x00\x02\x00\x00\x00\x00", b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x06\x00\x00\x00\x02{]"],
)
async def test_garbage_ends_the_connection(garbage: bytes) -> None:
    """Valid responses before it are still delivered."""
    line = Line()
    good, lost = line.invoke(), line.invoke()
    request, _ = await line.requests(2)
    line.connection.data_received(answer(request) + garbage)
    assert (await good).code == 0
    with pytest.raises(ConnectionLost, match="could not be decoded"):
        await lost
    assert line.transport.aborted


async def test_requests_of_the_peer_are_served() -> None:
    """By the handler of the code. A oneway request gets no response, nor does one whose handler returns None."""
    heard: list[int] = []

    def handler(_: Connection, request: RemotingCommand) -> RemotingCommand | None:
        heard.append(request.opaque)
        return None if request.opaque == 3 else RemotingCommand.response(body=b"served")

    line = Line({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: handler})
    for opaque, oneway in ((1, False), (2, True), (3, False)):
        request = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=oneway)
        request.opaque = opaque
        line.connection.data_received(encode_command(request))
    (served,) = await line.requests(1)
    assert heard == [1, 2, 3]
    assert (served.opaque, served.is_response, bytes(served.body)) == (1, True, b"served")


async def test_unknown_and_failing_requests_of_the_peer_get_errors(caplog: pytest.LogCaptureFixture) -> None:
    """REQUEST_CODE_NOT_SUPPORTED (3) without a handler; SYSTEM_ERROR (1), and a traceback in the log, if it raises."""

    def handler(*_: object) -> None:
        raise ValueError("broken")

    line = Line({40: handler})
    with caplog.at_level(logging.ERROR):
        for code in (40, 41):
            line.connection.data_received(encode_command(RemotingCommand.request(code)))
    answers = await line.requests(2)
    assert [a.code for a in answers] == [ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    assert "ValueError: broken" in caplog.text


async def test_sends_wait_while_the_transport_is_full() -> None:
    """No request is written between pause_writing and resume_writing, and all are afterwards."""
    line = Line()
    line.connection.pause_writing()
    task = line.invoke()
    await asyncio.sleep(0)
    assert line.connection.busy
    assert not line.transport.writes
    line.connection.resume_writing()
    (request,) = await line.requests(1)
    line.connection.data_received(answer(request))
    await task


async def test_sends_wait_at_the_limit_of_requests_in_flight() -> None:
    """A response frees a slot for the next request; the end of the connection fails all that wait."""
    line = Line(max_in_flight=2)
    tasks = [line.invoke() for _ in range(4)]
    first, _ = await line.requests(2)
    line.connection.data_received(answer(first))
    await line.requests(3)
    line.connection.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, ConnectionLost) for result in results) == 3


async def test_a_large_output_is_written_within_the_iteration() -> None:
    """So the back-pressure of the transport applies while a burst is produced."""
    line = Line()
    line.connection.write(b"x" * 70_000)
    assert line.transport.writes == [b"x" * 70_000]
