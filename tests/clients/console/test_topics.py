"""Pages and actions of topics."""

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console.cluster import Cluster, Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.paging import PAGE_ROWS
from skylarkmq.clients.sdk.blocking import Admin
from tests.clients.console.conftest import Browser, notice_of, opened, text_of
from tests.clients.console.fake_cluster import FakeAdmin, made_of

SCRIPT = "<script>alert(1)</script>"


async def created(browser: Browser, topic: str, queues: int = 4) -> None:
    await browser.get("/topic-form")
    page = await browser.act("/topics", topic=topic, read_queues=queues, write_queues=queues, perm=6)
    assert notice_of(page) == f"Topic {topic} is stored on all brokers."


async def test_a_topic_is_created_changed_and_deleted(browser: Browser, broker: InProcessBroker) -> None:
    """Each action asks, is done once, and reports its result."""
    await created(browser, "Orders")
    assert "Orders normal 4 4 RW- broker-a" in text_of(await browser.get("/topics?q=orders"))
    form = await browser.get("/topic-form?topic=Orders")
    assert 'value="4"' in form.text
    page = await browser.act(
        "/topics", topic="Orders", exists="yes", read_queues=6, write_queues=2, perm=4, broker="broker-a"
    )
    assert notice_of(page) == "Topic Orders is stored on broker broker-a."
    assert "broker-a 6 2 R--" in text_of(page)
    assert notice_of(await browser.act("/topics/Orders/delete")) == "Topic Orders is deleted."
    with Admin(namesrv=broker.namesrv) as admin:
        assert "Orders" not in admin.topics()


async def test_nothing_is_done_before_the_confirmation(browser: Browser, broker: InProcessBroker) -> None:
    """The question names the effect; only the confirmed form acts."""
    await created(browser, "Kept")
    question = await browser.post("/topics/Kept/delete")
    assert "Delete topic Kept?" in question.text
    assert "cannot be undone" in question.text
    with Admin(namesrv=broker.namesrv) as admin:
        assert "Kept" in admin.topics()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topic": ""}, "The name is empty"),
        ({"topic": "a b"}, "is not a valid topic name"),
        ({"topic": SCRIPT}, "is not a valid topic name"),
        ({"read_queues": "0"}, "Read queues is '0': use a whole number from 1 to 4,096."),
        ({"write_queues": "x"}, "Write queues is 'x'"),
        ({"perm": "9"}, "Permission is '9'"),
    ],
)
async def test_a_value_that_is_not_allowed_is_one_line(browser: Browser, changed: dict[str, str], reason: str) -> None:
    """The form's page shows the reason, escaped."""
    await browser.get("/topic-form")
    fields = {"topic": "Bad", "read_queues": "1", "write_queues": "1", "perm": "6"} | changed
    page = await browser.post("/topics", **fields)
    assert notice_of(page).startswith("Not done: ")
    assert reason in notice_of(page)
    assert SCRIPT not in page.text


async def test_an_unknown_broker_and_a_system_topic_are_refused(browser: Browser) -> None:
    """An error of the cluster is shown with its next step."""
    await browser.get("/topic-form")
    fields = {"read_queues": 1, "write_queues": 1, "perm": 6}
    page = await browser.act("/topics", topic="Bad", broker="none", **fields)
    assert "no master of broker none is registered. Registered: broker-a." in notice_of(page)
    page = await browser.act("/topics", topic="TBW102", **fields)
    assert "conflict with system topic" in notice_of(page)


async def test_a_test_message_is_stored(browser: Browser, broker: InProcessBroker) -> None:
    """The message has body, keys and tag of the form."""
    await created(browser, "Tests")
    assert 'name="body"' in (await browser.get("/topics/Tests/send")).text
    page = await browser.act("/topics/Tests/send", body="héllo\r\nworld", keys="k1 k2", tags="blue")
    assert "is stored in queue Tests@broker-a:" in notice_of(page)
    with Admin(namesrv=broker.namesrv) as admin:
        (message,) = admin.messages_of_key("Tests", "k2")
    assert (message.body.decode(), message.tags) == ("héllo\r\nworld", "blue")


async def test_a_large_test_message_is_refused(browser: Browser) -> None:
    """A body above the limit never reaches the broker."""
    await created(browser, "Large")
    page = await browser.post("/topics/Large/send", body="x" * (256 * 1024 + 1))
    assert "262,144 bytes" in notice_of(page)


async def test_a_topic_lists_its_queues_by_page(browser: Browser) -> None:
    """50 queues a page; the fragment that refreshes has the same page."""
    await created(browser, "Wide", 70)
    page = await browser.get("/topics/Wide?page=2")
    assert page.text.count('<td class="number"><a href="/messages?') == 20
    assert "Queues: 70, page 2 of 2" in text_of(page)
    assert 'hx-get="/topics/Wide?page=2&amp;part=live"' in page.text
    assert (await browser.live("/topics/Wide?page=2")).text.count('<td class="number"><a href="/messages?') == 20


async def test_an_unknown_topic_is_404(browser: Browser) -> None:
    """The page has the reason and the next step."""
    page = await browser.get("/topics/Missing")
    assert page.status_code == 404
    assert "Create it" in notice_of(page)


async def test_a_hundred_thousand_topics_are_pages_of_fifty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads one list and 50 routes, has less than 200 KB, and the next page reads no list again."""
    admin = FakeAdmin([f"topic-{number:06}" for number in range(100_000)], [])
    monkeypatch.setattr(Cluster, "at", made_of(admin))
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        page = await browser.get("/topics?page=2000")
        assert "topic-099950" in page.text
        assert "Topics: 100,000, page 2,000 of 2,000" in text_of(page)
        assert (admin.lists, len(admin.topic_config.routes)) == (1, PAGE_ROWS)
        assert len(page.content) < 200_000
        found = await browser.get("/topics?q=99999")
        assert "Topics: 1" in text_of(found)
        assert admin.lists == 1


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 40, "²", "3"])
async def test_a_page_that_does_not_exist_is_the_nearest_one(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers below 1 and other texts are the first page; those above are the last."""
    monkeypatch.setattr(Cluster, "at", made_of(FakeAdmin([f"t{n:03}" for n in range(60)], [])))
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        page = await browser.get(f"/topics?page={number}")
        assert ("t000" in page.text) is (number != "3")


async def test_names_are_escaped_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name from a hostile name server is text: in cells, in links and in the search field."""
    monkeypatch.setattr(Cluster, "at", made_of(FakeAdmin([SCRIPT, 'a"onclick=x', "nul\0", "a/b?c#d"], [SCRIPT])))
    async with opened(ConsoleOptions(Target("127.0.0.1:1"))) as browser:
        for page in (
            await browser.get("/topics"),
            await browser.get(f'/topics?q={SCRIPT}"'),
            await browser.get("/groups"),
        ):
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert "<i>broker" not in page.text
            assert '"onclick' not in page.text
            assert "\0" not in page.text
        assert 'href="/topics/a%2Fb%3Fc%23d"' in (await browser.get("/topics")).text
