"""The console in this process, as a browser without JavaScript uses it, against the broker of this repository.

    async with opened(ConsoleOptions(Target(broker.namesrv))) as browser:
        page = await browser.get("/topics")
        assert page.status_code == 200

Each test module has its own broker.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette

from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.app.embedded import LOOPBACK_NAMES
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions

ORIGIN: Final = "http://localhost:8086"


class Browser:
    """Follows redirects, keeps cookies, and sends forms with the token of the last page."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Return the page at a path, after redirects."""
        return self._seen(await self.http.get(path, headers=headers, follow_redirects=True))

    async def live(self, path: str) -> httpx.Response:
        """Return the fragment of a page that refreshes, as htmx requests it."""
        separator = "&" if "?" in path else "?"
        return await self.http.get(f"{path}{separator}part=live", headers={"hx-request": "true"})

    async def post(self, path: str, **fields: object) -> httpx.Response:
        """Return the response to a form, after redirects."""
        data = {"csrf": self.csrf, **{name: str(value) for name, value in fields.items()}}
        return self._seen(await self.http.post(path, data=data, follow_redirects=True))

    async def act(self, path: str, **fields: object) -> httpx.Response:
        """Return the page after an action that was confirmed."""
        question = await self.post(path, **fields)
        assert question.status_code == 200, question.text
        assert 'name="confirmed"' in question.text, question.text
        shown = question.text.partition('<form id="confirm"')[2]
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', shown))
        chosen = dict(re.findall(r'<select id="[^"]*" name="([^"]*)">.*?<option value="([^"]*)" selected>', shown))
        sent = {unescape(name): unescape(value) for name, value in (hidden | chosen).items()}
        return await self.post(path, **sent)

    def _seen(self, page: httpx.Response) -> httpx.Response:
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
        self.csrf = self.csrf if token is None else token[1]
        return page


@asynccontextmanager
async def opened(options: ConsoleOptions) -> AsyncIterator[Browser]:
    """Yield a browser of a console with these options."""
    async with opened_application(application(options)) as browser:
        yield browser


@asynccontextmanager
async def opened_application(app: Starlette) -> AsyncIterator[Browser]:
    """Yield a browser of a running console."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
        yield Browser(http)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
async def browser(broker: InProcessBroker) -> AsyncIterator[Browser]:
    """Yield a browser of a console without accounts."""
    async with opened(ConsoleOptions(Target(broker.namesrv), hosts=LOOPBACK_NAMES)) as browser:
        yield browser


def notice_of(page: httpx.Response) -> str:
    """Return the notice of a page, or its problem."""
    found = re.search(r'<p id="(?:notice|problem)"[^>]*>(.*?)</p>', page.text, re.DOTALL)
    return unescape(found[1]) if found else ""


def text_of(page: httpx.Response) -> str:
    """Return the text of a page without its tags, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())
