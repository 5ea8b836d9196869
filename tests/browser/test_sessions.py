"""Refreshes, accounts and roles in Chromium, and the console without JavaScript."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.sdk import Message
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from tests.browser.cluster import FilledCluster, served_broker
from tests.browser.conftest import PHONE, OpenTab
from tests.browser.tab import Tab
from tests.browser.test_pages import ALL_RULES, findings

pytestmark = pytest.mark.browser

REFRESH_MS: Final = 5_000
ACTIONS: Final = "main form[method=post], main a[href*=-form], main a[href$='/send']"
"""Forms that change something, and links to forms."""
SECRET: Final = "secret-of-root"
USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"}),
}
PAGES: Final = (
    "/", "/topics", "/topics/Seen", "/groups", "/groups/readers", "/messages?topic=Seen&by=time", "/dead-letters",
    "/dead-letters/readers", "/delayed", "/transactions", "/connections", "/replication", "/settings",
)  # fmt: skip


def test_a_page_refreshes_while_it_is_visible(open_tab: OpenTab, cluster: FilledCluster) -> None:
    """New figures appear without a reload, and wait while a link inside the table has the focus."""
    topic = "Topic-07"
    tab = open_tab(cluster.console)
    tab.page.clock.install()
    tab.page.goto(f"/topics/{topic}")
    figures = tab.page.locator("#live dd")
    assert figures.nth(1).inner_text() == "0"
    cluster.run(cluster.producer.send(Message(topic, b"x")))
    with tab.page.expect_response(lambda response: "part=live" in response.url):
        tab.page.clock.fast_forward(REFRESH_MS)
    tab.page.locator("#live dd", has_text="1").first.wait_for()
    tab.page.locator("#queues a").first.focus()
    requests: list[str] = []
    tab.page.on("request", lambda request: requests.append(request.url))
    tab.page.clock.fast_forward(REFRESH_MS)
    tab.page.evaluate("document.activeElement.blur()")
    with tab.page.expect_response(lambda response: "part=live" in response.url):
        tab.page.clock.fast_forward(REFRESH_MS)
    assert len(requests) == 1


def test_the_console_works_without_javascript(open_tab: OpenTab, cluster: FilledCluster) -> None:
    """Forms, questions and results are plain HTML."""
    tab = open_tab(cluster.console, has_script=False)
    tab.page.goto("/topic-form")
    tab.page.fill("#topic", "Made-without-script")
    tab.page.click("#topic-form button")
    tab.page.click("#confirm-button")
    assert tab.notice == "Topic Made-without-script is stored on all brokers."


def test_a_form_without_its_token_is_refused(open_tab: OpenTab, cluster: FilledCluster) -> None:
    """The page names the cause, and the topic stays."""
    tab = open_tab(cluster.console)
    tab.problems.expected_status = 403
    tab.page.goto("/topics/Orders")
    tab.page.evaluate("document.querySelector('#delete-topic input').value = '0'")
    tab.page.click("#delete-topic button")
    assert "the form is too old" in tab.page.locator("#problem").inner_text()
    tab.shot("refused-token")
    assert "Orders" in cluster.run(cluster.admin.topics())


def test_scripts_of_others_do_not_run(open_tab: OpenTab, cluster: FilledCluster) -> None:
    """A message with a script in its body is text, and the policy blocks inline scripts."""
    script = b"<script>document.title = 'stolen'</script><img src=x onerror=\"document.title = 'stolen'\">"
    sent = cluster.run(cluster.producer.send(Message("Returns", script)))
    tab = open_tab(cluster.console)
    for path in (f"/messages/{sent.offset_msg_id}", "/messages?topic=Returns&by=time"):
        tab.page.goto(path)
        assert "stolen" not in tab.page.title()
        assert "<script>" in tab.page.locator("main").inner_text()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, cluster: FilledCluster) -> Iterator[str]:
    """Yield the console of a broker with access control, and the account ben, which may only read."""
    with served_broker(tmp_path_factory.mktemp("guarded"), **USERS) as (broker, console):
        cluster.run(create_ben(broker))
        yield console


async def create_ben(broker: InProcessBroker) -> None:
    async with Admin(namesrv=broker.namesrv, credentials=Credentials("root", SECRET)) as admin:
        await admin.create_topic("Seen", queues=1)
        await admin.create_group(SubscriptionGroupConfig("readers"))
        await admin.access.create_user(broker.address, UserInfo("ben", "secret-of-ben"))
        everything = [
            PolicyEntryInfo(f"{kind}:*", ["List", "Get", "Sub"], None, "Allow")
            for kind in ("Cluster", "Topic", "Group")
        ]
        policy = AclInfo("User:ben", [PolicyInfo("Custom", everything)])
        await admin.access.create_acl(broker.address, policy)


def log_in(tab: Tab, account: str, password: str) -> None:
    tab.page.fill("#account-name", account)
    tab.page.fill("#password", password)
    tab.page.click("#login button")


@pytest.mark.parametrize("size", [(1280, 800), PHONE], ids=["desktop", "phone"])
def test_an_account_logs_in_and_out(open_tab: OpenTab, guarded: str, size: tuple[int, int]) -> None:
    """A wrong password is one line; the right one leads to the page that was asked for."""
    tab = open_tab(guarded, size)
    tab.problems.expected_status = 401
    tab.page.goto("/topics")
    tab.shot("login")
    assert findings(tab, ALL_RULES) == []
    log_in(tab, "root", "wrong")
    assert "wrong password" in tab.page.locator("#problem").inner_text()
    tab.shot("login-refused")
    log_in(tab, "root", SECRET)
    tab.page.locator("#new-topic").wait_for()
    assert tab.page.url.endswith("/topics")
    assert tab.page.locator("#account").inner_text() == "root"
    tab.page.click("#logout button")
    assert tab.notice == "You are logged out."
    tab.page.goto("/settings")
    assert tab.page.url.endswith("/login?next=%2Fsettings")


def test_a_read_only_account_sees_no_action(open_tab: OpenTab, guarded: str) -> None:
    """All pages open without a form or a link that changes something, and forms are refused."""
    tab = open_tab(guarded)
    tab.page.goto("/")
    log_in(tab, "ben", "secret-of-ben")
    assert tab.page.locator("#account").inner_text() == "ben (read-only)"
    for path in PAGES:
        tab.page.goto(path)
        assert tab.page.locator(ACTIONS).count() == 0, path
    tab.shot("read-only")
    tab.problems.expected_status = 403
    for path in ("/topic-form", "/group-form", "/topics/Seen/send"):
        tab.page.goto(path)
        assert "read-only" in tab.page.locator("#problem").inner_text()
