"""Chromium and a filled cluster, once for all tests of this package; a tab of its own for each test."""

import shutil
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.cluster import FilledCluster, filled_cluster
from tests.browser.hands import HANDS, Hand
from tests.browser.tab import Problems, Tab

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS: Final = 60_000
"""How long a page may take before its test fails: machines that run tests are busy."""
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 844)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledCluster]:
    with filled_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Yield the browser. Without one the test is skipped, which is a failure in CI."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("chromium is not installed (on Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(chromium: Browser) -> Iterator[OpenTab]:
    """Yield a function that opens a tab of a console. The test fails for the problems of its tabs."""
    tabs: list[Tab] = []

    def opened(console: str, size: tuple[int, int] = DESKTOP, *, has_script: bool = True) -> Tab:
        width, height = size
        context = chromium.new_context(
            base_url=console, viewport={"width": width, "height": height}, has_touch=size == PHONE,
            is_mobile=size == PHONE, java_script_enabled=has_script, locale="en-US", timezone_id="UTC",
        )  # fmt: skip
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        tabs.append(Tab(page, Problems(page, urlsplit(console).netloc)))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.page.context.close()
    assert [problem for tab in tabs for problem in tab.problems.found] == []


@pytest.fixture(params=HANDS)
def hand(request: pytest.FixtureRequest, open_tab: OpenTab, cluster: FilledCluster) -> Hand:
    """Return a tab that is used by mouse, by touch on a phone, or by keyboard."""
    kind: type[Hand] = request.param
    return kind(open_tab(cluster.console, PHONE if kind.is_phone else DESKTOP))
