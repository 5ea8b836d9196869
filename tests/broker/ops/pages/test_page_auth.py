"""/metrics with accounts, over a real socket."""

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse

from skylarkmq.broker.access.accounts import Account, AccountTable
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.ops.pages.health import HealthServer
from skylarkmq.broker.ops.pages.page_auth import PageAccounts, credentials_in

SECRET = "sesame: öffne dich"


async def get(port: int, path: str, authorization: str | None = None) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body of a page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    header = "" if authorization is None else f"Authorization: {authorization}\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def basic(account: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{account}:{password}".encode()).decode()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of health pages with a metrics page that needs an account."""
    accounts = AccountTable([Account("prometheus", SECRET), Account("certified")])
    permitted = PageAccounts([AccountTable([]), accounts], CertificateAccounts([]))
    server = HealthServer("127.0.0.1", 0, {}, PlainTextResponse("up 1\n"), permitted=permitted)
    yield await server.start()
    await server.stop()


async def test_an_account_reads_the_metrics(port: int) -> None:
    """Account and password in UTF-8; a password may contain a colon."""
    status, _, body = await get(port, "/metrics", basic("prometheus", SECRET))
    assert (status, body) == (200, "up 1\n")
    assert (await get(port, "/metrics", basic("prometheus", SECRET).replace("Basic", "bAsIc")))[0] == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic",
        "Basic ?",
        "Basic /w==",
        "Bearer " + SECRET[:6],
        basic("prometheus", ""),
        basic("prometheus", SECRET[:-1]),
        basic("unknown", SECRET),
        basic("certified", ""),
        basic("", ""),
    ],
)
async def test_all_others_get_the_same_response(port: int, authorization: str | None) -> None:
    """401 with the challenge, and nothing that tells an unknown account from a wrong password."""
    ascii_only = None if authorization is None else authorization.encode("ascii", "ignore").decode()
    status, headers, body = await get(port, "/metrics", ascii_only)
    assert (status, body) == (401, "an account is needed\n")
    assert headers["www-authenticate"] == 'basic realm="skylark", charset="utf-8"'
    assert headers["cache-control"] == "no-store"


async def test_probes_need_no_account(port: int) -> None:
    """/healthz and /readyz stay open."""
    assert (await get(port, "/healthz"))[0] == 200
    assert (await get(port, "/readyz"))[0] == 200


async def test_a_refusal_is_logged_without_the_password(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """One line per second, with the account; scrapes without any account are not logged."""
    await get(port, "/metrics")
    for _ in range(3):
        await get(port, "/metrics", basic("prometheus", "geheim"))
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("page_auth")]
    assert messages == ["page refused path=/metrics peer=127.0.0.1 account='prometheus'"]
    assert "geheim" not in caplog.text


def test_credentials_are_read_like_a_browser_writes_them() -> None:
    """The first colon ends the account."""
    assert credentials_in(basic("a", "b:c")) == ("a", "b:c")
    assert credentials_in("Basic " + base64.b64encode(b"a").decode()) == ("a", "")
