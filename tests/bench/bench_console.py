"""The console in Chromium: time to the first render and size of each page, and its cost to the broker's p99.

    python -m tests.bench.bench_console                      # 1,000 topics, 5 loads of a page, 5 rounds of 10 s
    python -m tests.bench.bench_console --topics 100000 --rounds 0
    python -m tests.bench.bench_console --loads 0 --rounds 5 --pages 20

An `mqbroker` with `consolePort` is pinned to processor 0; all other processes share processor 1. A first render is
Chromium's first contentful paint after the start of the navigation, with a warm cache.

Rounds alternate: `mqbench` sends at a fixed rate without the console, and while pages refresh every 5 s. A thread with
the lowest priority sends the requests of these refreshes. Chromium does not, unless `--in-chromium` is given: it would
share processor 1 with `mqbench`, whose latencies would then include the waits for that processor. On a machine with
other work, `--real-time` (root) runs broker and `mqbench` before it (SCHED_FIFO).

Budgets: 300 ms, 200 KB, a p99 within 15 %. Needs two processors, and chromium for first renders.
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
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from threading import Event, Thread, get_native_id
from typing import Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from skylarkmq.clients.console.rendering import LIVE, NAVIGATION
from skylarkmq.clients.sdk import Client
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK, free_ports

MQBROKER: Final = (sys.executable, "-c", "from skylarkmq.commands import mqbroker; mqbroker()")
MQBENCH: Final = (sys.executable, "-c", "from skylarkmq.commands import mqbench; mqbench()")
MANY: Final = {"maxTopics": 1_000_000, "maxSubscriptionGroups": 1_000_000, "maxQueues": 4_000_000}
BROKER_CPU: Final = 0
CLIENT_CPU: Final = 1
LOWEST_PRIORITY: Final = 19
REAL_TIME_PRIORITY: Final = 10
CREATED_AT_ONCE: Final = 1_000
FIRST_RENDER: Final = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
BYTES: Final = """() => ["navigation", "resource"]
  .flatMap(type => performance.getEntriesByType(type))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
REFRESHING: Final = ("/", "/topics/topic-00000")
REFRESH_S: Final = 5.0
"""Interval of templates/macros.html."""


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--loads", type=int, default=5, help="of each page; 0: no first renders")
    parser.add_argument("--rounds", type=int, default=5, help="with the console, and as many without")
    parser.add_argument("--pages", type=int, default=2, help="that refresh during a round")
    parser.add_argument("--real-time", action="store_true", help="run broker and mqbench before other work (root)")
    parser.add_argument("--in-chromium", action="store_true", help="the pages are open in Chromium")
    parser.add_argument("--seconds", type=float, default=10, help="length of a round")
    parser.add_argument("--rate", type=float, default=2_000, help="messages per second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-console-") as directory, broker_with_console(directory) as served:
        daemon, console = served
        asyncio.run(create(daemon.namesrv, options.topics))
        os.sched_setaffinity(0, {CLIENT_CPU})
        if options.real_time:
            for thread in threads_of(daemon):
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
        if options.loads:
            print_first_renders(console, options.loads)
        if options.rounds:
            compare_p99(console, daemon, options)


@contextmanager
def broker_with_console(directory: str) -> Iterator[tuple[Daemon, str]]:
    """Yield a broker on its own processor, and the address of its console."""
    (port,) = free_ports(1)
    settings = {"consolePort": port, "mappedFileSizeCommitLog": 1 << 28, "brokerFastFailureEnable": "false", **MANY}
    with running(MQBROKER, Path(directory), settings, must_be_consistent=False) as daemon:
        for thread in threads_of(daemon):
            os.sched_setaffinity(thread, {BROKER_CPU})
        yield daemon, f"http://{LOOPBACK}:{port}"


def threads_of(daemon: Daemon) -> list[int]:
    """Return the ids of the broker's threads."""
    return [int(thread.name) for thread in Path(f"/proc/{daemon.process.pid}/task").iterdir()]


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


def print_first_renders(console: str, loads: int) -> None:
    """Print the times to the first render, and the size, of each page."""
    paths = [*(path for _, path, _ in NAVIGATION), "/topics/topic-00000", "/groups/group-00000"]
    print(f"{'page':24} first render ms (median, worst)    bytes with files")
    with chromium() as browser:
        page = browser.new_page(base_url=console)
        for path in paths:
            times, size = first_renders(page, path, loads)
            print(f"{path:24} {median(times):8.0f} {max(times):8.0f} {size:27,}", flush=True)


def first_renders(page: Page, path: str, loads: int) -> tuple[list[float], int]:
    """Return the times to the first render in ms, and the bytes of the page with its files."""
    page.goto(path)
    times = []
    for _ in range(loads):
        page.goto(path)
        page.wait_for_function(FIRST_RENDER)
        times.append(float(page.evaluate(FIRST_RENDER)))
    return times, int(page.evaluate(BYTES))


def compare_p99(console: str, daemon: Daemon, options: argparse.Namespace) -> None:
    """Print the p99 of sends without the console, and while its pages refresh."""
    opened = pages_in_chromium if options.in_chromium else refreshed
    without: list[float] = []
    during: list[float] = []
    p99_us(daemon, options)  # the first run creates the topic and maps memory
    for number in range(options.rounds):
        without.append(p99_us(daemon, options))
        with opened(console, options.pages):
            during.append(p99_us(daemon, options))
        print(
            f"round {number + 1}: p99 {without[-1]:,.0f} us without, {during[-1]:,.0f} us with the console", flush=True
        )
    print(f"p99 of {options.rate:,.0f} sends/s, median: {shown(without)} without, {shown(during)} with the console")
    print(f"ratio of the medians: {median(during) / median(without):.2f}")


@contextmanager
def pages_in_chromium(console: str, count: int) -> Iterator[None]:
    """Keep pages open in Chromium, which refreshes them."""
    with chromium() as browser:
        for path in islice(cycle(REFRESHING), count):
            browser.new_page(base_url=console).goto(path)
        yield


@contextmanager
def refreshed(console: str, count: int) -> Iterator[None]:
    """Load pages, and request their refreshes in a thread with the lowest priority."""
    is_over = Event()
    with httpx.Client(base_url=console) as http:
        paths = list(islice(cycle(REFRESHING), count))
        for path in paths:
            http.get(path).raise_for_status()
        thread = Thread(target=refresh, args=(http, paths, is_over))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def refresh(http: httpx.Client, paths: Sequence[str], is_over: Event) -> None:
    """Request the refreshes of pages, evenly spread over their interval, until the event is set."""
    os.setpriority(os.PRIO_PROCESS, get_native_id(), LOWEST_PRIORITY)
    for path in cycle(paths):
        if is_over.wait(REFRESH_S / len(paths)):
            return
        http.get(path, params={"part": LIVE}, headers={"hx-request": "true"}).raise_for_status()


def shown(values: Sequence[float]) -> str:
    """Return the median, and the range."""
    return f"{median(values):,.0f} us ({min(values):,.0f} to {max(values):,.0f})"


def p99_us(daemon: Daemon, options: argparse.Namespace) -> float:
    """Return the p99 of the sends of one run of mqbench, in us."""
    address = f"{LOOPBACK}:{daemon.broker_port}"
    load = ["--rate", str(options.rate), "--seconds", str(options.seconds), "--json"]
    scheduler = ["chrt", "--fifo", str(REAL_TIME_PRIORITY)] if options.real_time else []
    done = subprocess.run(
        [*scheduler, *MQBENCH, "produce", address, *load], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"mqbench failed: {done.stderr}")
    return float(json.loads(done.stdout)["latency_us"]["p99"])


if __name__ == "__main__":
    main()
