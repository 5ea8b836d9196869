"""Rules that every page keeps: no inline code, labels, unique ids, size, roles."""

import re
from collections import Counter

import pytest
from starlette.routing import Route

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.sdk import Client, Message, Producer
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.message import PropertyName
from tests.clients.console.conftest import Browser, opened, opened_application, text_of

PATHS = (
    "/", "/topics", "/topics?kind=all", "/topics/Seen", "/topic-form", "/topic-form?topic=Seen", "/topics/Seen/send",
    "/groups", "/group-form", "/group-form?group=TOOLS_CONSUMER", "/groups/TOOLS_CONSUMER", "/messages",
    "/messages?topic=Seen&by=time", "/messages?topic=Seen&by=key&key=k", "/dead-letters", "/dead-letters/seen",
    "/delayed", "/transactions", "/connections", "/replication", "/settings", "/missing",
    "/topics/Missing",
)  # fmt: skip
ACTIONS = [
    route.path.format(topic="Seen", group="seen")
    for route in application(ConsoleOptions(Target("127.0.0.1:1"))).routes
    if isinstance(route, Route) and "POST" in (route.methods or ()) and route.path not in {"/login", "/logout"}
]


@pytest.fixture
async def filled(broker: InProcessBroker) -> None:
    """Store a topic, a message and a dead letter."""
    async with (
        Client(broker.namesrv) as client,
        Admin(client=client) as admin,
        Producer("p", client=client) as producer,
    ):
        for topic in ("Seen", "%DLQ%seen"):
            await admin.create_topic(topic, queues=2)
        await producer.send(Message("Seen", b"body", keys="k"))
        await producer.send(Message("%DLQ%seen", b"letter", properties={PropertyName.RETRY_TOPIC: "Seen"}))


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("path", PATHS)
async def test_every_page_keeps_the_rules(browser: Browser, path: str) -> None:
    """No inline script or style, every field has a label, ids are unique, one h1, at most 200 KB."""
    page = await browser.get(path)
    text = page.text
    assert re.findall(r"<script(?! src=)|<style|\sstyle=|\son\w+=\"|javascript:", text) == []
    ids = Counter(re.findall(r'\sid="([^"]*)"', text))
    assert [name for name, count in ids.items() if count > 1] == []
    labels = set(re.findall(r'<label[^>]* for="([^"]*)"', text))
    fields = re.findall(r'<(?:input|select|textarea)(?![^>]*type="hidden")[^>]*>', text)
    unlabeled = [field for field in fields if re.search(r'id="([^"]*)"', field)[1] not in labels]  # type: ignore[index]
    assert unlabeled == []
    assert text.count("<h1>") == 1
    assert len(page.content) < 200_000
    assert text.count("<form ") == len(re.findall(r'<form [^>]*method="(?:get|post)" action="/', text))
    posts = re.findall(r'<form [^>]*method="post".*?</form>', text, re.DOTALL)
    assert all('name="csrf"' in form for form in posts)


ODD = {
    "slash": "a%2Fb", "parent": "..%2f..%2fetc%2fpasswd", "nul": "%00", "escape": "a%1b[2J",
    "line": "%0d%0aset-cookie:x=y",
    "long": "x" * 5_000, "digits": "9" * 5_000, "bytes": "%ff", "script": "%3Cscript%3E", "page": "9999999999999999",
}  # fmt: skip
PLACES = (
    *(f"/{where}/{{}}" for where in ("topics", "groups", "messages", "dead-letters", "static")),
    "/topics/{}/send", "/topic-form?topic={}", "/group-form?group={}", "/topics?q={0}&page={0}", "/topics?kind={}",
    "/messages?topic={}", "/messages?topic=Seen&key={}", "/messages?topic=Seen&by=time&since={}",
    "/messages?topic=Seen&by=offset&broker={0}&queue=0&offset=0", "/messages?topic=Seen&by=offset&queue={0}&offset={0}",
    "/settings?broker={}", "/dead-letters/seen?text={0}&until={0}", "/connections?page={0}&groups={0}&members={0}",
)  # fmt: skip


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("odd", ODD)
async def test_odd_names_and_numbers_get_a_page(browser: Browser, odd: str) -> None:
    """Each page has status 200, or one with its reason (503: no such broker), and no value is markup, a header or a
    path of a file. Control characters stay in values of form fields only, which must come back unchanged."""
    for place in PLACES:
        page = await browser.get(place.format(ODD[odd]))
        assert page.status_code in {200, 400, 404, 503}, place
        assert "x" not in page.cookies
        assert not re.search(r"<script>|[\0\x1b]|root:", re.sub(r' value="[^"]*"', "", page.text)), place
        if page.status_code != 200 and not place.startswith("/static"):
            assert '<p id="problem"' in page.text, place
    await browser.get("/topic-form")
    for path in ACTIONS:
        page = await browser.post(path.replace("Seen", ODD[odd]).replace("seen", ODD[odd]), confirmed="yes")
        assert page.status_code in {200, 400, 404}, path


@pytest.mark.usefixtures("filled")
async def test_live_pages_refresh_a_fragment(browser: Browser) -> None:
    """A page with live figures names the address of its fragment, which is part of the page."""
    live = [path for path in PATHS if "data-live" in (await browser.get(path)).text]
    assert live == ["/", "/topics/Seen", "/groups/TOOLS_CONSUMER", "/connections", "/replication"]
    for path in live:
        fragment = await browser.live(path)
        assert (fragment.status_code, "<table" in fragment.text, "<html" in fragment.text) == (200, True, False)


@pytest.mark.usefixtures("filled")
async def test_a_read_only_console_shows_no_action(broker: InProcessBroker) -> None:
    """Pages have no form that changes anything, and no link to one."""
    async with opened(ConsoleOptions(Target(broker.namesrv), is_read_only=True)) as browser:
        for path in PATHS:
            page = await browser.get(path)
            assert 'method="post"' not in page.text, path
            assert re.findall(r'href="[^"]*[-/](?:form|send)\b', page.text) == [], path
            is_form = path.startswith(("/topic-form", "/group-form", "/topics/Seen/send"))
            assert (page.status_code == 403) is is_form


@pytest.mark.parametrize("path", ACTIONS)
async def test_each_action_of_a_read_only_console_is_refused(broker: InProcessBroker, path: str) -> None:
    """Also a confirmed form with the token of its session gets 403."""
    app = application(ConsoleOptions(Target(broker.namesrv), is_read_only=True))
    async with opened_application(app) as browser:
        await browser.get("/")
        browser.csrf = app.state.console.sessions.of(browser.http.cookies["skylark_console_8086"]).csrf
        assert (await browser.post(path, confirmed="yes")).status_code == 403


@pytest.mark.parametrize("path", ACTIONS)
async def test_each_action_without_the_token_is_refused(browser: Browser, path: str) -> None:
    """A confirmed form without the token gets 403."""
    await browser.get("/")
    browser.csrf = ""
    assert (await browser.post(path, confirmed="yes")).status_code == 403


def test_there_are_actions() -> None:
    """The list of actions is the list of routes with POST."""
    assert len(ACTIONS) == 10


async def test_the_navigation_marks_the_page(browser: Browser) -> None:
    """One entry is the current one; all entries lead to pages."""
    page = await browser.get("/groups")
    assert re.findall(r'id="nav-([\w-]+)" href="[^"]*" aria-current="page"', page.text) == ["groups"]
    for target in re.findall(r'id="nav-[\w-]+" href="([^"]*)"', page.text):
        assert (await browser.get(target)).status_code == 200
    assert "Skip to the content" in text_of(page)


def luminance(color: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_texts_have_enough_contrast(browser: Browser) -> None:
    """Each pair of text and background has 4.5 to 1 or more (WCAG AA), in both color schemes."""
    style = (await browser.get("/static/console.css")).text
    schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in style.split("@media (prefers")[:2]]
    pairs = [
        *((text, back) for text in ("text", "quiet", "link") for back in ("back", "panel")),
        *(("text", back) for back in ("good-back", "bad-back")),
        ("on-accent", "accent"),
        ("on-danger", "danger"),
    ]
    for scheme in schemes:
        for text, back in pairs:
            low, high = sorted((luminance(scheme[text]), luminance(scheme[back])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, back)
