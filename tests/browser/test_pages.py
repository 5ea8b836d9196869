"""Each page of the console in Chromium, on a desktop and on a phone, light and dark.

A page opens without an error, is no wider than its window, and axe-core (MPL-2.0, tests/browser/axe-core) finds no
serious problem of accessibility in it. Screenshots: build/screenshots/<page>-<width>.png, <page>-dark-1280.png.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.cluster import FilledCluster
from tests.browser.conftest import DESKTOP, PHONE, OpenTab
from tests.browser.tab import Tab

pytestmark = pytest.mark.browser

AXE: Final = (Path(__file__).parent / "axe-core" / "axe.min.js").read_text()
RUN_AXE: Final = """rules => axe.run({runOnly: rules, resultTypes: ["violations"]}).then(result => result.violations)"""
ALL_RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
MAX_PAGE_BYTES: Final = 200_000
TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth;
  return [document.documentElement.scrollWidth - width, document.body.scrollWidth - width];
}"""
TRANSFERRED: Final = """() => ["navigation", "resource"]
  .flatMap(type => performance.getEntriesByType(type))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""

Address = Callable[[FilledCluster], str]
ORDERS: Final = "/messages?topic=Orders&by="
PAGES: Final[dict[str, str | Address]] = {
    "overview": "/",
    "topics": "/topics",
    "topics-search": "/topics?q=longest",
    "topic": "/topics/Orders",
    "topic-new": "/topic-form",
    "topic-change": "/topic-form?topic=Orders",
    "topic-send": "/topics/Orders/send",
    "groups": "/groups",
    "group": "/groups/billing",
    "group-offline": "/groups/shipping",
    "group-new": "/group-form",
    "group-change": "/group-form?group=billing",
    "messages": "/messages",
    "messages-by-key": f"{ORDERS}key&key=order-4711",
    "messages-by-time": f"{ORDERS}time",
    "messages-by-offset": f"{ORDERS}offset&broker=broker-a&queue=0&offset=10",
    "message-json": lambda cluster: f"/messages/{cluster.content.order.offset_msg_id}",
    "message-hex": lambda cluster: f"/messages/{cluster.content.binary.offset_msg_id}?as=hex",
    "message-trace": lambda cluster: f"/messages/{cluster.content.order.offset_msg_id}?show=trace",
    "message-groups": lambda cluster: f"/messages/{cluster.content.order.offset_msg_id}?show=groups",
    "dead-letters": "/dead-letters",
    "letters": "/dead-letters/returns",
    "letters-none": "/dead-letters/billing",
    "delayed": "/delayed",
    "transactions": "/transactions",
    "connections": "/connections",
    "replication": "/replication",
    "settings": "/settings",
    "settings-search": "/settings?q=authen",
    "not-found": "/topics/Missing",
}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound(open_tab: OpenTab, cluster: FilledCluster, name: str, size: tuple[int, int]) -> None:
    """It opens, fits, has at most 200 KB with its files, and axe-core has no serious finding, light and dark."""
    tab = open_tab(cluster.console, size)
    tab.problems.expected_status = 404 if name == "not-found" else 0
    address = PAGES[name]
    response = tab.page.goto(address if isinstance(address, str) else address(cluster))
    assert response is not None
    assert response.status == (tab.problems.expected_status or 200)
    assert tab.page.evaluate(TOO_WIDE) == [0, 0]
    assert tab.page.evaluate(TRANSFERRED) <= MAX_PAGE_BYTES
    tab.shot(name)
    assert findings(tab, ALL_RULES) == []
    if size == DESKTOP:
        tab.page.emulate_media(color_scheme="dark")
        tab.shot(f"{name}-dark")
        assert findings(tab, ["cat.color"]) == []


def findings(tab: Tab, rules: list[str]) -> list[str]:
    """Return the serious and critical findings of axe-core, one line each."""
    if not tab.page.evaluate("() => 'axe' in window"):
        tab.page.evaluate(AXE)
    found: list[dict[str, Any]] = tab.page.evaluate(RUN_AXE, rules)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]
