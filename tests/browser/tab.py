"""A tab of the browser, and the problems that it reports.

A tab fails its test for a message in the browser's console, a failed request, a status of 400 or more, and a request to
another host. Screenshots are in build/screenshots, or in the directory SKYLARK_SCREENSHOTS.
"""

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, Response

ROOT: Final = Path(__file__).resolve().parents[2]
SCREENSHOTS: Final = Path(os.environ.get("SKYLARK_SCREENSHOTS", ROOT / "build" / "screenshots"))
NO_PROBLEM: Final = "net::ERR_ABORTED"
"""A refresh that was under way when the tab left its page."""


class Problems:
    """The problems that a tab has reported."""

    def __init__(self, page: Page, host: str) -> None:
        self.found: list[str] = []
        self.expected_status = 0
        self._host = host
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.found.append(f"error of a script: {error}"))
        page.on("request", self._on_request)
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def __repr__(self) -> str:
        return f"<Problems {self.found}>"

    def _on_console(self, message: ConsoleMessage) -> None:
        is_expected = self.expected_status and f"status of {self.expected_status}" in message.text
        if message.type in {"error", "warning"} and not is_expected:
            self.found.append(f"console {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != self._host:
            self.found.append(f"request to another host: {request.url}")

    def _on_failed(self, request: Request) -> None:
        if request.failure != NO_PROBLEM:
            self.found.append(f"failed request: {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and response.status != self.expected_status:
            self.found.append(f"status {response.status}: {response.url}")


class Tab:
    """A page of the browser with cookies of its own."""

    def __init__(self, page: Page, problems: Problems) -> None:
        self.page = page
        self.problems = problems

    def __repr__(self) -> str:
        return f"<Tab {self.page.url}>"

    @property
    def notice(self) -> str:
        """The result of the last action."""
        return self.page.locator("#notice").inner_text()

    def shot(self, name: str) -> None:
        """Store a screenshot of the whole page as <name>-<width>.png."""
        self.page.wait_for_load_state()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        assert self.page.viewport_size is not None
        self.page.screenshot(path=SCREENSHOTS / f"{name}-{self.page.viewport_size['width']}.png", full_page=True)
