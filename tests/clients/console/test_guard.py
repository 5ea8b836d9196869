"""The checks of requests: hosts, headers, CSRF, origins, logins and roles."""

import re

import pytest

from skylarkmq.broker.in_process import InProcessBroker
from skylarkmq.clients.console import application as console_application
from skylarkmq.clients.console import sessions
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.guard import MAX_FORM_BYTES, host_name
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.sessions import Role, Sessions
from tests.clients.console.conftest import ORIGIN, Browser, notice_of, opened, opened_application

PASSWORDS = {"ada": "secret-1", "ben": "secret-2"}


class TwoAccounts:
    """`ada` may act, `ben` may read."""

    async def may_act(self, account: str, password: str) -> bool | None:
        return None if PASSWORDS.get(account) != password else account == "ada"


def with_accounts(broker: InProcessBroker) -> ConsoleOptions:
    return ConsoleOptions(Target(broker.namesrv), accounts=TwoAccounts())


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_application, "FAILED_LOGIN_S", 0.0)


async def test_every_response_has_the_security_headers(browser: Browser) -> None:
    """Pages, errors and files: scripts and styles of this address only, no framing, no storing of pages."""
    for path in ("/", "/nothing", "/static/console.css", "/static/htmx.min.js"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["referrer-policy"] == "same-origin"
    assert (await browser.get("/")).headers["cache-control"] == "no-store"


async def test_pages_have_no_inline_script_or_style(browser: Browser) -> None:
    """Nothing on a page needs more than the policy permits."""
    text = (await browser.get("/")).text
    assert re.findall(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", text) == []


async def test_the_session_cookie_is_strict(browser: Browser) -> None:
    """The cookie is HttpOnly and SameSite=Strict, is named by port, and is set once."""
    first = await browser.get("/")
    assert re.fullmatch(
        r"skylark_console_8086=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", first.headers["set-cookie"]
    )
    assert "set-cookie" not in (await browser.get("/")).headers


async def test_the_session_cookie_is_secure_with_tls(broker: InProcessBroker) -> None:
    """A console over TLS never gets its cookie back without TLS."""
    async with opened(ConsoleOptions(Target(broker.namesrv), is_secure=True)) as browser:
        assert (await browser.get("/")).headers["set-cookie"].endswith("; SameSite=Strict; Secure")


async def test_a_foreign_host_name_is_refused(browser: Browser) -> None:
    """A page of another site whose name resolves to this machine gets 421, also for files."""
    for path in ("/", "/static/htmx.min.js"):
        refused = await browser.get(path, host="rebound.example:8086")
        assert refused.status_code == 421
        assert "rebound.example" in refused.text
        assert "csrf" not in refused.text


@pytest.mark.parametrize("host", ["localhost:8086", "127.0.0.1:1", "[::1]:8086", "LOCALHOST"])
async def test_names_of_the_loopback_address_are_accepted(browser: Browser, host: str) -> None:
    """All names of the loopback address open the console."""
    assert (await browser.get("/", host=host)).status_code == 200


def test_an_invalid_host_is_no_name() -> None:
    """A Host header that is no host is not compared with anything."""
    assert [host_name(text) for text in ("", "[", "a@b:1", ":80", "x:y")] == ["", "", "b", "", "x"]


async def test_a_post_without_the_token_is_refused(browser: Browser) -> None:
    """No token, another session's token and a token in the address get 403."""
    await browser.get("/")
    own = browser.csrf
    for token in ("", "0" * 64, "é"):
        browser.csrf = token
        assert (await browser.post("/logout")).status_code == 403
        assert (await browser.http.post(f"/logout?csrf={own}", data={"a": "b"})).status_code == 403


async def test_a_post_from_another_origin_is_refused(browser: Browser) -> None:
    """The token alone is not enough: the page must be one of this console."""
    await browser.get("/")
    for name, value in (
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:9999"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
    ):
        refused = await browser.http.post("/logout", data={"csrf": browser.csrf}, headers={name: value})
        assert (refused.status_code, "another address" in refused.text) == (403, True)


async def test_odd_forms_are_refused_with_a_page(browser: Browser) -> None:
    """A form of another type, too large, or not in UTF-8 gets one line and no traceback."""
    await browser.get("/")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for data, headers, status in (
        (b'{"a": 1}', {"content-type": "application/json"}, 415),
        (b"a=" + b"b" * MAX_FORM_BYTES, kind, 413),
        (b"a=\xff", kind, 400),
        (b"&".join(b"a%d=1" % number for number in range(200)), kind, 400),
    ):
        refused = await browser.http.post("/logout", content=data, headers=headers)
        assert (refused.status_code, bool(notice_of(refused))) == (status, True)


async def test_a_read_only_console_refuses_every_post(broker: InProcessBroker) -> None:
    """`--read-only`: a POST with the token of its session gets 403."""
    options = ConsoleOptions(Target(broker.namesrv), is_read_only=True)
    app = console_application.application(options)
    async with opened_application(app) as browser:
        assert 'id="account">read-only' in (await browser.get("/")).text
        browser.csrf = app.state.console.sessions.of(browser.http.cookies["skylark_console_8086"]).csrf
        refused = await browser.post("/topics")
        assert (refused.status_code, "read-only" in notice_of(refused)) == (403, True)


async def test_a_page_without_a_login_leads_to_the_login(broker: InProcessBroker) -> None:
    """Pages redirect to the login, fragments make htmx do so, and forms do nothing."""
    async with opened(with_accounts(broker)) as browser:
        response = await browser.http.get("/topics?q=a")
        assert (response.status_code, response.headers["location"]) == (303, "/login?next=%2Ftopics")
        fragment = await browser.live("/")
        assert (fragment.status_code, fragment.headers["hx-redirect"]) == (401, "/login")
        page = await browser.get("/")
        assert "Log in" in page.text
        assert 'id="nav-overview"' not in page.text
        assert "login" in str((await browser.post("/topics")).url)


async def test_an_operator_logs_in_and_out(broker: InProcessBroker) -> None:
    """A login gets a new session and leads back; a logout ends it."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        before = browser.http.cookies["skylark_console_8086"]
        page = await browser.post("/login", account="ada", password=PASSWORDS["ada"], next="/?a=1")
        assert (page.status_code, str(page.url)) == (200, f"{ORIGIN}/?a=1")
        assert browser.http.cookies["skylark_console_8086"] != before
        assert "ada" in page.text
        assert PASSWORDS["ada"] not in page.text
        assert "logged out" in notice_of(await browser.post("/logout"))
        assert "login" in str((await browser.get("/")).url)


async def test_a_wrong_password_is_refused(broker: InProcessBroker) -> None:
    """Unknown accounts and wrong passwords get the same page, with 401."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        for account, password in (("ada", "wrong"), ("eve", "secret-1"), ("", ""), ("ada", "")):
            page = await browser.post("/login", account=account, password=password)
            assert (page.status_code, notice_of(page)) == (
                401,
                "Unknown account or wrong password. Use an account of the broker.",
            )


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "/\nx", ""])
async def test_a_login_leads_to_this_console_only(broker: InProcessBroker, target: str) -> None:
    """`next` is a path of this console."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        data = {"csrf": browser.csrf, "account": "ada", "password": PASSWORDS["ada"], "next": target}
        assert (await browser.http.post("/login", data=data)).headers["location"] == "/"


async def test_a_read_only_account_is_refused_each_post(broker: InProcessBroker) -> None:
    """An account that may not administer sees its role, and its forms get 403."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        page = await browser.post("/login", account="ben", password=PASSWORDS["ben"])
        assert "ben (read-only)" in page.text
        refused = await browser.post("/topics", topic="Created")
        assert refused.status_code == 403
        assert "read-only" in notice_of(refused)


def test_idle_logins_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login ends after IDLE_S without a request; the oldest ones end beyond MAX_LOGINS."""
    now_s = 0.0
    table = Sessions(lambda: now_s)
    login = sessions.Login("ada", Role.OPERATOR, None)  # type: ignore[arg-type]  # no cluster is needed
    session = table.log_in(login)
    assert table.of(session.id).login is login
    now_s = sessions.IDLE_S + 1
    assert table.of(session.id).login is None
    assert table.ended() == [login]
    monkeypatch.setattr(sessions, "MAX_LOGINS", 2)
    logins = [table.log_in(login) for _ in range(3)]
    assert table.ended() == [login]
    assert [table.of(session.id).login is not None for session in logins] == [False, True, True]


def test_notices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that never load a page do not use up memory."""
    monkeypatch.setattr(sessions, "MAX_NOTICES", 2)
    table = Sessions(lambda: 0.0)
    several = [table.of(None) for _ in range(3)]
    for session in several:
        table.notify(session, sessions.Notice(session.id))
    assert [table.take_notice(session) for session in several] == [
        None, *(sessions.Notice(session.id) for session in several[1:])
    ]  # fmt: skip
