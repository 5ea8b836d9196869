"""Pages that are rendered beside other work of the same event loop."""

import asyncio
from collections.abc import Iterator, MutableMapping
from itertools import pairwise
from typing import Any

import jinja2
import pytest

from skylarkmq.clients.console.app.application import application
from skylarkmq.clients.console.cluster import SLICE, Target, containing
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.rendering import SLICE_PIECES, Page, _templates
from tests.clients.console.conftest import opened_application

ROWS = 10_000


async def test_other_tasks_run_between_the_slices_of_a_page() -> None:
    """No iteration of the event loop renders more than SLICE_PIECES values, and the body has its length."""
    rendered = 0

    def rows() -> Iterator[int]:
        nonlocal rendered
        for row in range(ROWS):
            rendered += 1
            yield row

    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("a page reads nothing")

    template = jinja2.Template("{% for row in rows %}{{ row }} {% endfor %}")
    page = asyncio.create_task(Page(template, {"rows": rows()}, 200)({"type": "http"}, receive, send))
    seen = [0]
    while not page.done():
        await asyncio.sleep(0)
        seen.append(rendered)
    assert rendered == ROWS
    assert max(after - before for before, after in pairwise(seen)) <= SLICE_PIECES
    start, body = sent
    assert body["body"].decode().split() == [str(row) for row in range(ROWS)]
    assert (b"content-length", str(len(body["body"])).encode()) in start["headers"]


async def test_other_tasks_run_between_the_slices_of_a_search() -> None:
    """No iteration of the event loop compares more than SLICE names."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def lower(self) -> str:
            nonlocal compared
            compared += 1
            return super().lower()

    search = asyncio.create_task(containing([Name(f"T{number}") for number in range(ROWS)], "t1"))
    seen = [0]
    while not search.done():
        await asyncio.sleep(0)
        seen.append(compared)
    assert max(after - before for before, after in pairwise(seen)) <= SLICE
    assert (compared, len(search.result())) == (ROWS, 1111)


async def test_no_template_is_compiled_by_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A console has compiled all its templates before it serves a page."""
    assert _templates.cache is not None
    _templates.cache.clear()
    app = application(ConsoleOptions(Target("127.0.0.1:1")))

    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("a template is compiled")

    monkeypatch.setattr(jinja2.Environment, "compile", compiled)
    async with opened_application(app) as browser:
        assert (await browser.get("/messages")).status_code == 200
    for name in _templates.list_templates():
        _templates.get_template(name)
