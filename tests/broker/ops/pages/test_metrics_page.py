"""/metrics as an application: the limit of concurrent scrapes, and aborted ones."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from skylarkmq.broker.ops.pages import metrics_page
from skylarkmq.broker.ops.pages.metrics_page import MetricsPage
from skylarkmq.broker.ops.steps import Step, Value
from tests.broker.ops.test_scrape import SUMMED, scrape_of

SCOPE = {"type": "http", "method": "GET", "path": "/metrics", "headers": []}


def values() -> Iterator[Step]:
    return iter([Value(SUMMED, ("t",), 1)])


async def nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request"}


class Scraper:
    """Reads when the test allows it."""

    def __init__(self) -> None:
        self.messages: list[MutableMapping[str, Any]] = []
        self.began = asyncio.Event()
        self.reads = asyncio.Event()

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)
        self.began.set()
        await self.reads.wait()

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status


async def started(page: MetricsPage, scraper: Scraper) -> asyncio.Task[None]:
    task = asyncio.create_task(page(dict(SCOPE), nothing, scraper))
    await scraper.began.wait()
    return task


async def test_scrapes_beyond_the_limit_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of texts kept for slow scrapers is limited; when one has read its text, another scrape is accepted."""
    monkeypatch.setattr(metrics_page, "MAX_CONCURRENT_SCRAPES", 2)
    page = MetricsPage(scrape_of(values))
    slow = [Scraper(), Scraper()]
    tasks = [await started(page, scraper) for scraper in slow]
    assert "in_progress=2" in repr(page)
    refused, later = Scraper(), Scraper()
    refused.reads.set()
    await page(dict(SCOPE), nothing, refused)
    assert (slow[0].status, refused.status) == (200, 503)
    slow[0].reads.set()
    await tasks[0]
    later.reads.set()
    await page(dict(SCOPE), nothing, later)
    assert later.status == 200
    slow[1].reads.set()
    await tasks[1]
    assert "in_progress=0" in repr(page)


async def test_no_metrics_are_read_while_the_store_is_loaded() -> None:
    """A thread changes the tables then: scrapes get 503 with the reason, and metrics afterwards."""
    reasons: list[str | None] = ["the store is being opened, recovering 37 %", None]
    page = MetricsPage(scrape_of(values), lambda: reasons.pop(0))
    early, later = Scraper(), Scraper()
    early.reads.set()
    later.reads.set()
    await page(dict(SCOPE), nothing, early)
    await page(dict(SCOPE), nothing, later)
    assert (early.status, early.messages[1]["body"], later.status) == (
        503,
        b"the store is being opened, recovering 37 %\n",
        200,
    )


async def test_an_aborted_scrape_frees_its_slot() -> None:
    """A broken connection ends its scrape."""
    page = MetricsPage(scrape_of(values))

    async def broken(_message: MutableMapping[str, Any]) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await page(dict(SCOPE), nothing, broken)
    assert "in_progress=0" in repr(page)
