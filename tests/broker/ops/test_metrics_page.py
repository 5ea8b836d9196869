"""/metrics as an application: how many scrapes at once, and what is left when one breaks off."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from skylarkmq.broker.ops import metrics_page
from skylarkmq.broker.ops.metrics_page import MetricsPage
from skylarkmq.broker.ops.steps import Step, Value
from tests.broker.ops.test_scrape import SUMMED, scrape_of

SCOPE = {"type": "http", "method": "GET", "path": "/metrics", "headers": []}


def told() -> Iterator[Step]:
    return iter([Value(SUMMED, ("t",), 1)])


async def nothing() -> MutableMapping[str, Any]:
    return {"type": "http.request"}


class Scraper:
    """Reads when it is let."""

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


async def test_scrapes_beyond_the_limit_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many texts are kept for scrapers that do not read, and no more; when one has read, another may come."""
    monkeypatch.setattr(metrics_page, "MAX_CONCURRENT_SCRAPES", 2)
    page = MetricsPage(scrape_of(told))
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


async def test_nothing_is_read_while_the_store_is_loaded() -> None:
    """A thread changes the tables then: scrapes get the reason, and figures once it has ended."""
    reasons: list[str | None] = ["the store is being opened, recovering 37 %", None]
    page = MetricsPage(scrape_of(told), lambda: reasons.pop(0))
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


async def test_a_scraper_that_goes_away_gives_up_its_place() -> None:
    """A broken connection ends its scrape."""
    page = MetricsPage(scrape_of(told))

    async def broken(_message: MutableMapping[str, Any]) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await page(dict(SCOPE), nothing, broken)
    assert "in_progress=0" in repr(page)
