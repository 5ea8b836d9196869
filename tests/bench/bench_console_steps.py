"""How long a page of the console blocks the broker's event loop, and its CPU time.

    python -m tests.bench.bench_console_steps                # 1,000 topics, 20 loads of a page
    python -m tests.bench.bench_console_steps --topics 10000

A broker with `consolePort` runs in this process; a thread loads each page, and requests its refresh. The time between
two iterations of the event loop is measured as CPU time, which excludes other work of the machine. A first load comes
before the measured ones.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import httpx
import uvloop

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.clients.console.app.embedded import embedded_console
from skylarkmq.clients.console.rendering import LIVE, NAVIGATION
from tests.bench.bench_console import MANY, create
from tests.bench.bench_scrape import Watch
from tests.harness.ports import LOOPBACK, free_ports

OTHERS = ("/topics/topic-00000", "/groups/group-00000")
WITH_REFRESH = ("/", *OTHERS)


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--loads", type=int, default=20, help="of each page")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-console-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(measure(Path(directory), options))


async def measure(directory: Path, options: argparse.Namespace) -> None:
    """Print the figures of each page and refresh."""
    names = ("listenPort", "embeddedNamesrvPort", "consolePort")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    settings = {**ports, **MANY, "storePathRootDir": directory, "metricsPromExporterPort": 0}
    given = [Given(key, str(value), "") for key, value in settings.items()]
    machine = Machine(host_name="h", address=LOOPBACK, home=directory, resolve=lambda host: host)
    broker = Broker(load_broker(given, machine).config, console_factory=embedded_console)
    await broker.start()
    try:
        await asyncio.to_thread(asyncio.run, create(f"{LOOPBACK}:{ports['embeddedNamesrvPort']}", options.topics))
        with httpx.Client(base_url=f"http://{LOOPBACK}:{ports['consolePort']}", timeout=60) as http:
            print(f"{'page':34} longest us: first load, median, worst    CPU ms")
            for path in (*(path for _, path, _ in NAVIGATION), *OTHERS):
                await figures(http, path, {}, options.loads)
            for path in WITH_REFRESH:
                await figures(http, path, {"part": LIVE}, options.loads)
    finally:
        await broker.stop()


async def figures(http: httpx.Client, path: str, parameters: dict[str, str], loads: int) -> None:
    """Print the figures of one page, or of its refresh."""
    first, *longest = [await longest_us(http, path, parameters) for _ in range(loads + 1)]
    began = time.thread_time()
    for _ in range(loads):
        await load(http, path, parameters)
    cpu_ms = (time.thread_time() - began) / loads * 1000
    name = f"refresh of {path}" if parameters else path
    print(f"{name:34} {first:22,.0f} {median(longest):7,.0f} {max(longest):7,.0f} {cpu_ms:9.1f}", flush=True)


async def longest_us(http: httpx.Client, path: str, parameters: dict[str, str]) -> float:
    """Load a page, and return the longest CPU time between two iterations of the event loop."""
    watch = Watch()
    await load(http, path, parameters)
    _, longest_cpu_s = await watch.stop()
    return longest_cpu_s * 1e6


async def load(http: httpx.Client, path: str, parameters: dict[str, str]) -> None:
    """Load a page in a thread."""
    response = await asyncio.to_thread(http.get, path, params=parameters, headers={"hx-request": "true"})
    response.raise_for_status()


if __name__ == "__main__":
    main()
