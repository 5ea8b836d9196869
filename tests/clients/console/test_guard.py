"""The checks of requests: hosts, headers, CSRF, origins, logins and roles."""

import asyncio
import re
from typing import Never

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console import guard, sessions, state
from skylarkmq.clients.console.app import application as console_application
from skylarkmq.clients.console.app.embedded import LOOPBACK_NAMES
from skylarkmq.clients.console.cluster import Cluster, Target
from skylarkmq.clients.console.guard import MAX_FORM_BYTES, host_name
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.sessions import Role, Sessions
from tests.clients.console.conftest import ORIGIN, Browser, notice_of, opened, opened_application
from tests.clients.console.fake_cluster import FakeAdmin, made_of

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
    for other in ("localhost.", "localhost.evil.example", "[::2]:8086", "evil.example#@localhost", "x" * 5_000):
        assert host_name(other) not in LOOPBACK_NAMES


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


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "///evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\nx",
        "/\t/x",
        " //x",
        "",
    ],
)
async def test_a_login_leads_to_this_console_only(broker: InProcessBroker, target: str) -> None:
    """`next` is a path of this console."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        data = {"csrf": browser.csrf, "account": "ada", "password": PASSWORDS["ada"], "next": target}
        assert (await browser.http.post("/login", data=data)).headers["location"] == "/"


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/%2Fevil.example", "/%2Fevil.example"),
        ("/topics/日本", "/topics/%E6%97%A5%E6%9C%AC"),
        ("/a\\b?c=d", "/a%5Cb?c=d"),
        ("/" + "x" * 5_000, "/" + "x" * 5_000),
    ],
)
async def test_an_odd_path_after_a_login_stays_a_path(broker: InProcessBroker, target: str, location: str) -> None:
    """An encoded path stays encoded, and other characters are encoded."""
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        data = {"csrf": browser.csrf, "account": "ada", "password": PASSWORDS["ada"], "next": target}
        response = await browser.http.post("/login", data=data)
        assert (response.status_code, response.headers["location"]) == (303, location)


async def test_a_login_ends_the_earlier_login_of_its_session(broker: InProcessBroker) -> None:
    """One browser has one login, so repeated logins do not end those of other browsers."""
    app = console_application.application(with_accounts(broker))
    async with opened_application(app) as browser:
        ids = []
        for account in ("ada", "ben", "ada"):
            await browser.get("/topics")
            await browser.post("/login", account=account, password=PASSWORDS[account])
            ids.append(browser.http.cookies["skylark_console_8086"])
        table = app.state.console.sessions
        assert [table.of(session_id).login is not None for session_id in ids] == [False, False, True]


async def test_refused_logins_are_logged_once_per_second(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of wrong passwords does not fill the log, and no line has a password."""
    monkeypatch.setattr(state, "LOG_INTERVAL_S", 3_600.0)
    async with opened(with_accounts(broker)) as browser:
        await browser.get("/")
        for _ in range(20):
            await browser.post("/login", account="ada\n\x1b[2J", password="wrong-secret")
    lines = [record.getMessage() for record in caplog.records if "login refused" in record.getMessage()]
    assert len(lines) == 1
    assert r"account='ada\n\x1b[2J'" in lines[0]
    assert "wrong-secret" not in caplog.text


async def test_a_login_is_not_part_of_a_repr(broker: InProcessBroker) -> None:
    """Passwords do not appear in the text of any object of the console."""
    app = console_application.application(with_accounts(broker))
    async with opened_application(app) as browser:
        await browser.get("/")
        await browser.post("/login", account="ada", password=PASSWORDS["ada"])
        console = app.state.console
        session = console.sessions.of(browser.http.cookies["skylark_console_8086"])
        assert session.login is not None
        shown = (console, console.options, console.sessions, session, session.login.cluster, session.login.cluster.jobs)
        assert PASSWORDS["ada"] not in "".join(repr(each) for each in shown)


@pytest.mark.parametrize("path", ["/topics", "/groups", "/topics?q=a", "/topic-form"])
async def test_a_page_of_a_cluster_that_never_responds_is_bounded(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has status 503 with the next step."""

    async def never(*_arguments: object) -> Never:
        await asyncio.Event().wait()
        raise AssertionError

    admin = FakeAdmin([], [])
    for call in ("topics", "groups", "masters"):
        monkeypatch.setattr(admin, call, never, raising=False)
    monkeypatch.setattr(Cluster, "at", made_of(admin))
    monkeypatch.setattr(guard, "PAGE_S", 0.02)
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        page = await browser.get(path)
        assert (page.status_code, "Check the brokers and the network" in notice_of(page)) == (503, True)


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


def test_an_open_page_does_not_keep_a_login_forever() -> None:
    """A login that is used all the time ends after LONGEST_S."""
    now_s = 0.0
    table = Sessions(lambda: now_s)
    login = sessions.Login("ada", Role.OPERATOR, None)  # type: ignore[arg-type]  # no cluster is needed
    session = table.log_in(login)
    while now_s + sessions.IDLE_S <= sessions.LONGEST_S:
        now_s += sessions.IDLE_S
        assert table.of(session.id).login is login
    now_s = sessions.LONGEST_S + 1
    assert table.of(session.id).login is None
    assert table.ended() == [login]


def test_requests_without_a_cookie_use_no_memory() -> None:
    """A session without a login is not stored; its token is derived from its id."""
    table = Sessions(lambda: 0.0)
    tables = {name: len(value) for name, value in vars(table).items() if hasattr(value, "__len__")}
    first = table.of(None)
    assert len({table.of(None).id for _ in range(1_000)}) == 1_000
    assert {name: len(value) for name, value in vars(table).items() if hasattr(value, "__len__")} == tables
    assert table.of(first.id).csrf == first.csrf
    assert [table.of(odd).is_new for odd in ("", "x" * 42, "x" * 44, "é" * 43, "../" * 15)] == [True] * 5


def test_a_long_notice_is_cut() -> None:
    """A notice that repeats a large field of a form does not use up memory."""
    table = Sessions(lambda: 0.0)
    session = table.of(None)
    table.notify(session, sessions.Notice("x" * 1_000_000, is_error=True))
    assert table.take_notice(session) == sessions.Notice("x" * sessions.MAX_NOTICE_LENGTH, is_error=True)


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
