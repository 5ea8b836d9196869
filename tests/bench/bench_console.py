"""The console in Chromium: time to the first render and size of each page, and its cost to the broker's p99.

    python -m tests.bench.bench_console                      # 1,000 topics, 5 loads of a page, 3 rounds of 10 s
    python -m tests.bench.bench_console --topics 100000 --rounds 0

An `mqbroker` with `consolePort` is pinned to processor 0; `mqbench` and Chromium share processor 1, where Chromium has
the lowest priority. A first render is Chromium's first contentful paint after the start of the navigation, with a warm
cache. Rounds alternate: `mqbench` sends at a fixed rate with no page open, and with two pages open, which refresh every
5 s. Budgets: 300 ms, 200 KB, a p99 within 15 %. Needs chromium and two processors.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright

from skylarkmq.clients import Client
from skylarkmq.clients.admin.admin import Admin
from skylarkmq.clients.console.rendering import NAVIGATION
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK, free_ports

MQBROKER: Final = (sys.executable, "-c", "from skylarkmq.commands import mqbroker; mqbroker()")
MQBENCH: Final = (sys.executable, "-c", "from skylarkmq.commands import mqbench; mqbench()")
MANY: Final = {"maxTopics": 1_000_000, "maxSubscriptionGroups": 1_000_000}
BROKER_CPU: Final = 0
CLIENT_CPU: Final = 1
LOWEST_PRIORITY: Final = 19
CREATED_AT_ONCE: Final = 1_000
FIRST_RENDER: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
BYTES: Final = """() => ["navigation", "resource"]
  .flatMap(type => performance.getEntriesByType(type))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
REFRESHING: Final = ("/", "/topics/topic-00000")


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--loads", type=int, default=5, help="of each page")
    parser.add_argument("--rounds", type=int, default=3, help="with the console, and as many without")
    parser.add_argument("--seconds", type=float, default=10, help="length of a round")
    parser.add_argument("--rate", type=float, default=2_000, help="messages per second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-console-") as directory, broker_with_console(directory) as served:
        daemon, console = served
        asyncio.run(create(daemon.namesrv, options.topics))
        os.sched_setaffinity(0, {CLIENT_CPU})
        with chromium() as browser:
            page = browser.new_page(base_url=console)
            paths = [*(path for _, path, _ in NAVIGATION), "/topics/topic-00000", "/groups/group-00000"]
            print(f"{'page':24} first render ms (median, worst)    bytes with files")
            for path in paths:
                times, size = first_renders(page, path, options.loads)
                print(f"{path:24} {median(times):8.0f} {max(times):8.0f} {size:27,}", flush=True)
            page.close()
            compare_p99(browser, console, daemon, options)


@contextmanager
def broker_with_console(directory: str) -> Iterator[tuple[Daemon, str]]:
    """Yield a broker on its own processor, and the address of its console."""
    (port,) = free_ports(1)
    settings = {"consolePort": port, "mappedFileSizeCommitLog": 1 << 28, "brokerFastFailureEnable": "false", **MANY}
    with running(MQBROKER, Path(directory), settings, must_be_consistent=False) as daemon:
        for thread in Path(f"/proc/{daemon.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {BROKER_CPU})
        yield daemon, f"http://{LOOPBACK}:{port}"


async def create(namesrv: str, topics: int) -> None:
    """Create topics, and a group for every tenth of them."""
    async with Client(namesrv) as client, Admin(client=client) as admin:
        (address,) = (await admin.masters()).values()
        names = [f"topic-{number:05}" for number in range(topics)]
        for at in range(0, topics, CREATED_AT_ONCE):
            configs = [TopicConfig(name, 4, 4) for name in names[at : at + CREATED_AT_ONCE]]
            await admin.topic_config.put_all(address, configs)
        for number in range(0, topics, 10):
            await admin.create_group(SubscriptionGroupConfig(f"group-{number:05}"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield Debian's Chromium with the lowest priority."""
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is not installed (on Debian: apt-get install chromium)")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        os.setpriority(os.PRIO_PROCESS, 0, before)
        yield browser
        browser.close()


def first_renders(page: Page, path: str, loads: int) -> tuple[list[float], int]:
    """Return the times to the first render in ms, and the bytes of the page with its files."""
    page.goto(path)
    times = []
    for _ in range(loads):
        page.goto(path)
        page.wait_for_function(FIRST_RENDER)
        times.append(float(page.evaluate(FIRST_RENDER)))
    return times, int(page.evaluate(BYTES))


def compare_p99(browser: Browser, console: str, daemon: Daemon, options: argparse.Namespace) -> None:
    """Print the p99 of sends without the console, and with two pages of it."""
    without: list[float] = []
    opened: list[float] = []
    for number in range(options.rounds):
        without.append(p99_us(daemon, options))
        pages = [browser.new_page(base_url=console) for _ in REFRESHING]
        for page, path in zip(pages, REFRESHING, strict=True):
            page.goto(path)
        opened.append(p99_us(daemon, options))
        for page in pages:
            page.close()
        print(
            f"round {number + 1}: p99 {without[-1]:,.0f} us without, {opened[-1]:,.0f} us with the console", flush=True
        )
    if opened:
        print(f"p99 of {options.rate:,.0f} sends/s, median: {shown(without)} without, {shown(opened)} with the console")
        print(f"ratio of the medians: {median(opened) / median(without):.2f}")


def shown(values: Sequence[float]) -> str:
    """Return the median, and the range."""
    return f"{median(values):,.0f} us ({min(values):,.0f} to {max(values):,.0f})"


def p99_us(daemon: Daemon, options: argparse.Namespace) -> float:
    """Return the p99 of the sends of one run of mqbench, in us."""
    address = f"{LOOPBACK}:{daemon.broker_port}"
    load = ["--rate", str(options.rate), "--seconds", str(options.seconds), "--json"]
    done = subprocess.run([*MQBENCH, "produce", address, *load], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"mqbench failed: {done.stderr}")
    return float(json.loads(done.stdout)["latency_us"]["p99"])


if __name__ == "__main__":
    main()
