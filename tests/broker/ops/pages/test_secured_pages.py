"""The pages over TLS: with the broker's certificate, client certificates as accounts, and limits for handshakes."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp

from skylarkmq.broker.access.accounts import Account, AccountTable
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.security_config import parse_mapping
from skylarkmq.broker.ops.pages.health import HealthServer
from skylarkmq.broker.ops.pages.page_auth import PageAccounts
from skylarkmq.broker.remoting.config import ClientAuth, TlsConfig
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.http_connections import MAX_CONNECTIONS
from tests.harness.certificates import Certificates
from tests.harness.limits import WAIT_LIMIT_S

LARGE = b"x" * 3_000_000
PERMITTED = PageAccounts(
    [AccountTable([Account("prometheus", "sesame"), Account("scraper")])],
    CertificateAccounts(parse_mapping("CN=scraper=scraper;CN=other=unknown")),
)


class Pages:
    """Running pages with an authority for certificates."""

    def __init__(self, directory: Path, need: ClientAuth = ClientAuth.OPTIONAL) -> None:
        self.made = Certificates(directory)
        own = self.made.issue("server")
        self.tls = ServerTls(
            TlsConfig(
                cert_path=own.cert,
                key_path=own.key,
                trust_cert_path=self.made.authority.cert,
                need_client_auth=need,
            )
        )
        self.port = 0

    @asynccontextmanager
    async def serving(self, page: ASGIApp, **options: Any) -> AsyncIterator["Pages"]:
        server = HealthServer("127.0.0.1", 0, {}, page, permitted=PERMITTED, tls=self.tls, **options)
        self.port = await server.start()
        try:
            yield self
        finally:
            await server.stop()

    async def get(self, path: str, context: ssl.SSLContext | None, headers: str = "") -> tuple[int, bytes]:
        """Return status and body of a page; 0 without a response. Raises OSError if the handshake fails."""
        return await asyncio.to_thread(self._get, path, context, headers)

    def _get(self, path: str, context: ssl.SSLContext | None, headers: str) -> tuple[int, bytes]:
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
        with connection, connection.makefile("rb") as file:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n".encode())
            head, _, body = file.read().partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head.startswith(b"HTTP/") else 0), body


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


async def test_pages_are_served_over_tls(pages: Pages) -> None:
    """With the certificate of the broker; a password works as without TLS, and plain clients get no response."""
    async with pages.serving(PlainTextResponse("up 1\n")):
        context = pages.made.client_context()
        assert (await pages.get("/healthz", context))[0] == 200
        assert (await pages.get("/metrics", context))[0] == 401
        authorization = "Authorization: Basic cHJvbWV0aGV1czpzZXNhbWU=\r\n"
        assert await pages.get("/metrics", context, authorization) == (200, b"up 1\n")
        assert (await pages.get("/healthz", None))[0] == 0
    assert (pages.tls.established, pages.tls.failed) == (3, 1)


@pytest.mark.parametrize(("name", "expected"), [("scraper", 200), ("other", 401), ("unmapped", 401)])
async def test_a_client_certificate_is_an_account(pages: Pages, name: str, expected: int) -> None:
    """If its subject has an account that exists."""
    own = pages.made.issue(name)
    async with pages.serving(PlainTextResponse("up 1\n")):
        assert (await pages.get("/metrics", pages.made.client_context(own)))[0] == expected


async def test_a_large_response_is_complete(pages: Pages) -> None:
    """It waits for a slow reader, and arrives unchanged."""

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(LARGE), 100_000):
            yield LARGE[at : at + 100_000]

    own = pages.made.issue("scraper")
    async with pages.serving(StreamingResponse(chunks(), headers={"content-length": str(len(LARGE))})):
        status, body = await pages.get("/metrics", pages.made.client_context(own))
    assert status == 200
    assert len(body) == len(LARGE)
    assert body == LARGE


async def test_a_required_certificate_is_required_for_every_page(tmp_path: Path) -> None:
    """The handshake fails without one, also for probes."""
    pages = Pages(tmp_path, ClientAuth.REQUIRE)
    own = pages.made.issue("any")
    async with pages.serving(PlainTextResponse("up 1\n")):
        assert (await pages.get("/healthz", pages.made.client_context(own)))[0] == 200
        with pytest.raises(OSError, match=r"."):
            await pages.get("/healthz", pages.made.client_context())


async def test_a_handshake_has_the_time_of_a_request(pages: Pages) -> None:
    """A peer that sends nothing, or half of a handshake, is closed."""
    async with pages.serving(PlainTextResponse("up 1\n"), request_s=0.05):
        for sent in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
            writer.write(sent)
            async with asyncio.timeout(WAIT_LIMIT_S):
                assert await reader.read() == b""
            writer.close()


async def test_connections_count_before_their_handshake(pages: Pages) -> None:
    """Beyond the limit the oldest one is closed, so that a new probe is served."""
    async with pages.serving(PlainTextResponse("up 1\n")):
        silent = [await asyncio.open_connection("127.0.0.1", pages.port) for _ in range(MAX_CONNECTIONS)]
        try:
            assert (await pages.get("/healthz", pages.made.client_context()))[0] == 200
            async with asyncio.timeout(WAIT_LIMIT_S):
                assert await silent[0][0].read() == b""
        finally:
            for _, writer in silent:
                writer.close()
