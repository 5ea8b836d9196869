"""Outbound connections: shared, reopened on demand, closed if there is no response."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.outbound import Outbound, split_address
from skylarkmq.broker.remoting.tls import ServerTls, client_context
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.certificates import Certificates
from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.fake_server import FakeServer
from tests.harness.raw import frame

SECONDS = 10.0
REQUEST_CODE = 106


@pytest.fixture
async def outbound() -> AsyncIterator[Outbound]:
    outbound = Outbound(RemotingConfig())
    yield outbound
    await outbound.stop()


def request() -> RemotingCommand:
    return RemotingCommand.request(REQUEST_CODE)


async def lost(outbound: Outbound) -> asyncio.Future[str]:
    """Return the address of the next closed connection."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def note(address: str) -> None:
        if not future.done():
            future.set_result(address)

    outbound.on_close(note)
    return future


async def test_one_connection_serves_all_requests_to_an_address(outbound: Outbound) -> None:
    """Concurrent requests even share the connection attempt, and each gets its own response."""
    async with FakeServer() as server:
        responses = await asyncio.gather(*(outbound.invoke(server.address, request(), SECONDS) for _ in range(5)))
        assert [response.code for response in responses] == [0] * 5
        assert len({response.opaque for response in responses}) == 5
        assert server.connections == 1
        assert outbound.statistics().connections == 1


async def test_responses_arrive_in_any_order(outbound: Outbound) -> None:
    """They are matched by opaque."""
    async with FakeServer(responds=False) as server:
        tasks = [asyncio.ensure_future(outbound.invoke(server.address, request(), SECONDS)) for _ in range(2)]
        asked = [await server.next_request() for _ in range(2)]
        for each in reversed(asked):
            each.respond(body=str(each.header["opaque"] - asked[0].header["opaque"]).encode())
        assert [bytes((await task).body) for task in tasks] == [b"0", b"1"]


async def test_a_refused_connection_is_an_error_at_once(outbound: Outbound) -> None:
    """No request waits for a server that refuses connections."""
    async with FakeServer() as server:
        pass
    with pytest.raises(OSError, match="Errno 111"):
        await outbound.invoke(server.address, request(), SECONDS)


async def test_a_lost_connection_fails_waiting_requests_and_is_reopened(outbound: Outbound) -> None:
    """The waiting request fails, the next one opens a new connection."""
    gone = await lost(outbound)
    async with FakeServer(responds=False) as server:
        task = asyncio.ensure_future(outbound.invoke(server.address, request(), SECONDS))
        await server.next_request()
        server.disconnect()
        with pytest.raises(ConnectionError, match="lost"):
            await task
        assert await gone == server.address
        server.responds = True
        assert (await outbound.invoke(server.address, request(), SECONDS)).code == 0
        assert server.connections == 2


async def test_a_connection_without_a_response_is_closed(outbound: Outbound) -> None:
    """After a response timeout the next request uses a new connection."""
    gone = await lost(outbound)
    async with FakeServer(responds=False) as server:
        with pytest.raises(TimeoutError, match=f"no response from {server.address} within 0"):
            await outbound.invoke(server.address, request(), 0.01)
        assert await gone == server.address
        server.responds = True
        assert (await outbound.invoke(server.address, request(), SECONDS)).code == 0


async def test_connecting_has_a_timeout() -> None:
    """An address that does not respond is an error after the connect timeout."""
    outbound = Outbound(RemotingConfig(), connect_timeout_s=0)
    async with FakeServer() as server:
        with pytest.raises(TimeoutError, match="no connection to"):
            await outbound.connect(server.address)
    await outbound.stop()


async def test_a_cancelled_request_does_not_cancel_the_shared_attempt(outbound: Outbound) -> None:
    """Other callers still get the connection."""
    async with FakeServer() as server:
        first = asyncio.ensure_future(outbound.connect(server.address))
        second = asyncio.ensure_future(outbound.connect(server.address))
        await asyncio.sleep(0)
        first.cancel()
        assert not (await second).closed
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_requests_of_the_other_side_are_not_supported(outbound: Outbound) -> None:
    """They get REQUEST_CODE_NOT_SUPPORTED (3), as any unknown request does."""
    async with FakeServer() as server:
        await outbound.connect(server.address)
        await outbound.invoke(server.address, request(), SECONDS)
        await server.next_request()
        server.send(frame({"code": 40, "opaque": 7}))
        response = await server.next_request()
        assert (response.code, response.header["opaque"], response.header["flag"]) == (3, 7, 1)


async def test_a_stop_closes_connections_and_attempts() -> None:
    """Nothing stays open, not even an attempt."""
    outbound = Outbound(RemotingConfig())
    gone = await lost(outbound)
    async with FakeServer() as server:
        connection = await outbound.connect(server.address)
        attempt = asyncio.ensure_future(outbound.connect("127.0.0.1:1"))
        await asyncio.sleep(0)
        await outbound.stop()
        assert await gone == server.address
        assert connection.closed
        with pytest.raises((asyncio.CancelledError, OSError)):
            await attempt
    assert repr(outbound) == "<Outbound 0 connections>"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1:9876", ("10.0.0.1", 9876)),
        (" namesrv.example:1 ", ("namesrv.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses_are_parsed(address: str, expected: tuple[str, int]) -> None:
    """Names, IPv4 and IPv6 addresses."""
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["", "host", "host:", ":9876", "host:x", "host:0", "host:65536", "host:-1", "h:٣"])
def test_invalid_addresses_are_rejected(address: str) -> None:
    """The error contains the expected format."""
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


# ------------------------------------------------------------------------------------------------------------------ TLS


async def response_over_tls(config: OutboundTlsConfig, tls: ServerTls) -> bytes:
    """Return the response of a server with this TLS configuration."""
    outbound = Outbound(RemotingConfig(), client_context(config, TlsMode.PERMISSIVE))
    try:
        async with EchoServer(tls=tls) as server:
            echo = RemotingCommand.request(ECHO, body=b"hello")
            return bytes((await outbound.invoke(f"127.0.0.1:{server.port}", echo, SECONDS)).body)
    finally:
        await outbound.stop()


async def test_outbound_connections_use_tls(tmp_path: Path) -> None:
    """With a trusted authority or without verification, and with our own certificate if the server requires one."""
    made = Certificates(tmp_path)
    server, ours = made.issue("server"), made.issue("ours")
    tls = ServerTls(
        TlsConfig(
            mode=TlsMode.ENFORCING,
            cert_path=server.cert,
            key_path=server.key,
            need_client_auth=ClientAuth.REQUIRE,
            trust_cert_path=made.authority.cert,
        )
    )
    config = OutboundTlsConfig(enable=True, cert_path=ours.cert, key_path=ours.key)
    for trust in (made.authority.cert, None):
        assert await response_over_tls(msgspec.structs.replace(config, trust_cert_path=trust), tls) == b"hello"
    assert tls.established == 2
    with pytest.raises(OSError, match=r"connection|no TLS"):
        await response_over_tls(OutboundTlsConfig(enable=True), tls)


async def test_an_untrusted_server_is_an_error(tmp_path: Path) -> None:
    """The error contains the address and the reason, and is an OSError like every failure to connect."""
    trust = Certificates(tmp_path).authority.cert
    with pytest.raises(OSError, match=r"no TLS with 127\.0\.0\.1:\d+: certificate refused: self-signed"):
        await response_over_tls(OutboundTlsConfig(enable=True, trust_cert_path=trust), ServerTls(TlsConfig()))


async def test_a_server_without_tls_is_an_error() -> None:
    """The server closes the connection."""
    with pytest.raises(OSError, match=r"no TLS with .*: ConnectionResetError"):
        await response_over_tls(OutboundTlsConfig(enable=True), ServerTls(TlsConfig(mode=TlsMode.DISABLED)))


async def test_our_new_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    """The files are checked whenever a connection is opened."""
    made = Certificates(tmp_path)
    ours = made.issue("ours")
    context = client_context(OutboundTlsConfig(enable=True, cert_path=ours.cert, key_path=ours.key), TlsMode.PERMISSIVE)
    assert context is not None
    before = context.latest()
    assert context.latest() is before
    made.issue("ours")
    assert context.latest() is not before
    assert context.reloads == 1
