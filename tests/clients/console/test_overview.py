"""The first page: brokers, rates, and a cluster that cannot be reached."""

from skylarkmq.broker.app.in_process import free_ports
from skylarkmq.clients.console.charts import line_chart
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.console.rates import INTERVAL_S, Counters, RateHistory
from tests.clients.console.conftest import Browser, notice_of, opened, text_of


async def test_the_overview_lists_the_brokers(browser: Browser) -> None:
    """Each broker has its address, version and rates."""
    page = await browser.get("/")
    assert page.status_code == 200
    assert "DefaultCluster broker-a 0 127.0.0.1:" in text_of(page)
    assert 'id="chart-stored"' in page.text


async def test_a_refresh_is_a_fragment(browser: Browser) -> None:
    """htmx gets only the part that changes; the same address without htmx is the whole page."""
    fragment = await browser.live("/")
    assert fragment.status_code == 200
    assert "broker-a" in fragment.text
    assert "<html" not in fragment.text
    assert "<html" in (await browser.get("/?part=live")).text


async def test_an_unreachable_name_server_is_a_page() -> None:
    """Status 503 with the cause and the next step; also for the fragment."""
    (port,) = free_ports(1)
    async with opened(ConsoleOptions(Target(f"127.0.0.1:{port}"))) as browser:
        page = await browser.get("/")
        assert page.status_code == 503
        assert f"127.0.0.1:{port}" in notice_of(page)
        assert "Traceback" not in page.text
        fragment = await browser.live("/")
        assert (fragment.status_code, "<html" in fragment.text) == (503, False)


async def test_an_unknown_page_is_404(browser: Browser) -> None:
    """The page names the navigation."""
    page = await browser.get("/nothing")
    assert (page.status_code, notice_of(page)) == (
        404,
        "There is no page at this address. The navigation lists all pages.",
    )


def test_rates_are_differences_of_counters() -> None:
    """A sample is the difference per second over all brokers; a restarted broker and samples too close add nothing."""
    history = RateHistory()
    history.add(0.0, {"a": Counters(100, 50), "b": Counters(10, 10)})
    history.add(INTERVAL_S / 2, {"a": Counters(999, 999)})
    assert list(history.rates) == []
    history.add(10.0, {"a": Counters(200, 70), "b": Counters(0, 0), "c": Counters(5, 5)})
    assert [rate[1:] for rate in history.rates] == [(10.0, 2.0)]


def test_a_chart_describes_itself() -> None:
    """The label has the latest value, for readers that do not see the plot."""
    chart = line_chart("c", "<Stored>", [60.0, 0.0], [1.0, 1234.5])
    assert 'aria-label="&lt;Stored&gt;: 1,234.5 per second now"' in chart
    assert "52.0," in chart
    assert "no sample yet" in line_chart("c", "t", [], [])
