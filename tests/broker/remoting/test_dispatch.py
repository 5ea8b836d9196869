"""Dispatch: every way in which a request can end, over loopback with raw frames."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from tests.harness.echo_server import DEFER, ECHO, FAIL, GATHER, REFUSE, UNKNOWN, WAIT, EchoServer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

ONEWAY = 2


@pytest.fixture
async def server() -> AsyncIterator[EchoServer]:
    async with EchoServer(capacity=3) as server:
        yield server


@pytest.fixture
async def peer(server: EchoServer) -> AsyncIterator[RawPeer]:
    async with await RawPeer.connect(server.port) as peer:
        yield peer


async def test_a_response_has_the_opaque_of_its_request(peer: RawPeer) -> None:
    """Ext values of a response are strings, and only the response bit is set."""
    response = await peer.call(ECHO, {"a": "1", "b": "ü"}, b"body")
    assert (response.code, response.remark, response.ext, response.body) == (0, None, {"a": "1", "b": "ü"}, b"body")
    assert response.header["flag"] == 1
    assert response.header["version"] == 479


@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1, -(2**31)])
async def test_every_opaque_is_returned(peer: RawPeer, opaque: int) -> None:
    """It is a signed number chosen by the client."""
    peer.send(frame({"code": ECHO, "opaque": opaque}))
    assert (await peer.receive()).header["opaque"] == opaque


async def test_an_unknown_code_is_not_supported(peer: RawPeer) -> None:
    """REQUEST_CODE_NOT_SUPPORTED (3), with RocketMQ's exact remark."""
    response = await peer.call(UNKNOWN)
    assert (response.code, response.remark) == (3, f" request type {UNKNOWN} not supported")


async def test_a_request_error_becomes_a_response(peer: RawPeer, caplog: pytest.LogCaptureFixture) -> None:
    """It is the client's error, so nothing is logged."""
    response = await peer.call(REFUSE)
    assert (response.code, response.remark) == (16, "not you")
    assert caplog.text == ""


async def test_a_failure_becomes_a_response_and_is_logged(peer: RawPeer, caplog: pytest.LogCaptureFixture) -> None:
    """SYSTEM_ERROR (1) with the error for the client, a traceback in the log, and the connection continues."""
    response = await peer.call(FAIL)
    assert (response.code, response.remark) == (1, "KeyError: 'lost'")
    assert "request failed code=1004" in caplog.text
    assert "Traceback" in caplog.text
    assert "in _fail" in caplog.text
    assert (await peer.call(ECHO)).code == 0


async def test_a_failure_of_an_awaitable_becomes_a_response_and_is_logged(
    server: EchoServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """An awaitable fails like a callable, and the pool releases the request."""
    server.go_on.set()
    response = await peer.call(WAIT, body=b"fail")
    assert (response.code, response.remark) == (1, "KeyError: 'lost later'")
    assert "Traceback" in caplog.text
    assert server.pool.pending == 0


@pytest.mark.parametrize("code", [ECHO, UNKNOWN, REFUSE, FAIL, WAIT, GATHER])
async def test_a_oneway_request_gets_no_response(server: EchoServer, peer: RawPeer, code: int) -> None:
    """Neither its result nor its error nor an unknown code gives a response; but the request is handled."""
    server.go_on.set()
    peer.send_request(code, body=b"fail", flag=ONEWAY)
    await peer.call(ECHO)
    await until(lambda: not server.dispatcher.waiting)
    await peer.call(ECHO)
    assert server.handled == (2 if code == UNKNOWN else 3)


async def test_a_full_pool_refuses(server: EchoServer, peer: RawPeer) -> None:
    """Waiting requests fill the pool; the next request is refused before anything was done for it."""
    for number in range(3):
        peer.send_request(WAIT, body=b"%d" % number)
    refused = await peer.call(ECHO)
    assert (refused.code, refused.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")
    assert (server.pool.pending, server.pool.statistics().rejected) == (3, 1)
    peer.send_request(ECHO, flag=ONEWAY)
    assert (await peer.call(ECHO)).code == 2
    server.go_on.set()
    assert sorted([(await peer.receive()).body for _ in range(3)]) == [b"0", b"1", b"2"]
    assert (await peer.call(ECHO)).code == 0
    assert server.pool.pending == 0
    assert server.handled == 4


async def test_a_suspended_pool_defers_requests_until_it_resumes(server: EchoServer, peer: RawPeer) -> None:
    """In order, once; connections without requests for the pool are not affected."""
    await peer.call(ECHO)
    server.pool.suspend(lambda: "closed for a while")
    peer.send_request(ECHO, body=b"first")
    peer.send_request(ECHO, body=b"second", flag=ONEWAY)
    peer.send_request(ECHO, body=b"third")
    await until(lambda: server.pool.pending)
    assert server.selector.registry.is_read_paused(server.connection)
    async with await RawPeer.connect(server.port) as other:
        assert (await other.call(UNKNOWN)).code == 3
    server.dispatcher.reopen(server.pool)
    server.selector.registry.resume_paused_reads()
    assert [(await peer.receive()).body for _ in range(2)] == [b"first", b"third"]
    assert (server.pool.pending, server.handled) == (0, 4)


async def test_deferred_requests_are_refused_by_a_timer() -> None:
    """The requests were not handled, and the remark states the reason; no other request is needed as a trigger."""
    async with EchoServer(wait_ms=1) as server, await RawPeer.connect(server.port) as peer:
        server.pool.suspend(lambda: "closed for a while")
        for _ in range(3):
            peer.send_request(ECHO)
        responses = [await peer.receive() for _ in range(3)]
        remark = "[OVERLOAD]system busy, start flow control for a while, closed for a while"
        assert {(response.code, response.remark) for response in responses} == {(2, remark)}
        assert (server.pool.pending, server.handled, server.pool.statistics().rejected_by_wait) == (0, 0, 3)
        server.dispatcher.reopen(server.pool)
        server.selector.registry.resume_paused_reads()
        assert (await peer.call(ECHO)).code == 0


async def test_an_invalid_deferred_request_closes_its_connection(
    server: EchoServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """It closes the connection when it is dispatched; other requests of the pool are served."""
    server.pool.suspend(str)
    peer.send(frame({"code": ECHO, "opaque": 1, "extFields": [1]}))
    await until(lambda: server.pool.pending)
    async with await RawPeer.connect(server.port) as other:
        other.send_request(ECHO)
        await until(lambda: server.pool.pending == 2)
        server.dispatcher.reopen(server.pool)
        server.selector.registry.resume_paused_reads()
        assert (await other.receive()).code == 0
    assert await peer.rest() == b""
    assert "ext fields must be an object" in caplog.text


async def test_a_waiting_request_keeps_its_body(server: EchoServer, peer: RawPeer) -> None:
    """The receive buffer is reused while a request waits; the request has its own copy by then."""
    first = peer.send_request(WAIT, body=b"first" * 100)
    for _ in range(3):
        await peer.call(ECHO, body=b"other" * 1000)
    server.go_on.set()
    response = await peer.receive()
    assert (response.header["opaque"], response.body) == (first, b"first" * 100)


async def test_the_requests_of_a_read_end_in_one_batch(server: EchoServer, peer: RawPeer) -> None:
    """Work collected during a read is finished once, before the responses of the read leave."""
    requests = [frame({"code": GATHER, "opaque": n}, b"%d" % n) for n in range(5)]
    peer.send(b"".join(requests) + frame({"code": ECHO, "opaque": 5}))
    responses = [await peer.receive() for _ in range(6)]
    assert [response.header["opaque"] for response in responses] == [5, 0, 1, 2, 3, 4]
    assert sum(server.gathered_sizes) == 5
    assert len(server.gathered_sizes) == 1


async def test_a_response_can_be_written_later(server: EchoServer, peer: RawPeer) -> None:
    """None from a processor means that it writes the response itself; other requests overtake."""
    opaque = peer.send_request(DEFER, body=b"later")
    await peer.call(ECHO)
    ((connection, command),) = server.deferred
    connection.respond(command, command.response(body=command.body))
    response = await peer.receive()
    assert (response.header["opaque"], response.body) == (opaque, b"later")


async def test_a_response_for_a_closed_connection_is_dropped(server: EchoServer, peer: RawPeer) -> None:
    """A parked request may get its response after its connection was lost."""
    other = await RawPeer.connect(server.port)
    other.send_request(DEFER)
    await other.call(ECHO)
    gone = asyncio.Event()
    server.selector.registry.on_close(lambda _: gone.set())
    await other.close()
    await asyncio.wait_for(gone.wait(), 10)
    ((connection, command),) = server.deferred
    connection.respond(command, command.response())
    assert connection.closed
    assert (await peer.call(ECHO)).code == 0


def binary(code: int, opaque: int, flag: int = 0, body: bytes = b"") -> bytes:
    """Return a request with a binary header and the ext field k=v."""
    ext = struct.pack(">h1si1s", 1, b"k", 1, b"v")
    header = struct.pack(">hBhiii", code, 0, 479, opaque, flag, 0) + struct.pack(">i", len(ext)) + ext
    return struct.pack(">iI", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


@pytest.mark.parametrize(("code", "expected"), [(ECHO, 0), (UNKNOWN, 3), (FAIL, 1), (WAIT, 0)])
async def test_a_response_has_the_dialect_of_its_request(
    server: EchoServer, peer: RawPeer, code: int, expected: int
) -> None:
    """Even on one connection, and for errors: C++ and ali-ons clients read only JSON, Java may use binary headers."""
    server.go_on.set()
    peer.send(binary(code, 77, body=b"x"))
    raw = await peer.receive_raw()
    assert raw[4] == 1
    response_code, _language, version, opaque, flag = struct.unpack_from(">hBhii", raw, 8)
    assert (response_code, version, opaque, flag) == (expected, 479, 77, 1)
    if code == ECHO:
        assert raw.endswith(struct.pack(">h1si1s", 1, b"k", 1, b"v") + b"x")
    assert (await peer.call(ECHO)).dialect == 0


async def test_a_header_that_is_an_array_is_ignored(server: EchoServer, peer: RawPeer) -> None:
    """As in RocketMQ."""
    peer.send(struct.pack(">iI", 6, 2) + b"[]")
    assert (await peer.call(ECHO)).code == 0
    assert server.handled == 1


async def test_invalid_ext_fields_close_the_connection(
    server: EchoServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """A list is not a set of fields; earlier requests get their responses first."""
    peer.send(frame({"code": ECHO, "opaque": 1}) + frame({"code": ECHO, "opaque": 2, "extFields": [1]}))
    assert (await peer.receive()).header["opaque"] == 1
    assert await peer.rest() == b""
    assert "ext fields must be an object" in caplog.text


def test_the_dispatcher_lists_its_pools() -> None:
    """Every pool once, however many codes it serves."""
    server = EchoServer()
    assert server.dispatcher.pools() == [server.pool]
    assert repr(server.pool) == "<Pool test 0/1000>"
    assert repr(server.dispatcher) == "<Dispatcher 7 codes, 0 waiting>"
