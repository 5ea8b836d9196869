"""Cost of a scrape of a busy broker: samples, duration, CPU, and how long it blocks the event loop.

    python -m tests.bench.bench_scrape                       # about 5,000 samples
    python -m tests.bench.bench_scrape --topics 1000 --groups 500
    python -m tests.bench.bench_scrape --format text --rounds 50

A broker runs in this process with topics, messages, groups with members, committed offsets and lag. A thread scrapes it
over HTTP repeatedly. A task in the broker's loop measures the longest time between two iterations, by the clock and as
CPU time; the latter excludes other work of the machine. Budget: 5,000 samples in less than 200 ms, the loop never
blocked for more than 10 ms.
"""

import argparse
import asyncio
import gzip
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import uvloop

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.broker.metadata.client_sessions import ClientMember
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import VERSION
from skylarkmq.protocol.filters.tag import subscribe
from tests.harness.broker_parts import consumer
from tests.harness.ports import free_ports
from tests.harness.stores import message

ACCEPT = {"openmetrics": "application/openmetrics-text;version=1.0.0", "text": "text/plain"}


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--queues", type=int, default=8, help="per topic")
    parser.add_argument("--groups", type=int, default=130, help="number of groups, which consume one topic each")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--format", choices=ACCEPT, default="openmetrics")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-scrape-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(measure(Path(directory), options))
    print(json.dumps(figures) if options.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """Scrape a filled broker `rounds` times."""
    ports = dict(zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True))
    given = [Given(key, str(value), "") for key, value in (ports | {"storePathRootDir": directory}).items()]
    machine = Machine(host_name="h", address="127.0.0.1", home=directory, resolve=lambda host: host)
    broker = Broker(load_broker(given, machine).config)
    await broker.start()
    try:
        fill(broker, options)
        url = f"http://127.0.0.1:{ports['metricsPromExporterPort']}/metrics"
        scraped = [await scrape_once(url, options) for _ in range(options.rounds + 1)][1:]
    finally:
        await broker.stop()
    seconds, cpu, late, late_cpu, quiet_late, texts = zip(*scraped, strict=True)
    return {
        "samples": sum(not line.startswith("#") for line in texts[-1].splitlines()),
        "scrape_ms_median": round(median(seconds) * 1000, 1),
        "scrape_ms_best": round(min(seconds) * 1000, 1),
        "process_cpu_ms_best": round(min(cpu) * 1000, 1),
        "loop_held_ms_best": round(min(late) * 1000, 2),
        "loop_held_ms_median": round(median(late) * 1000, 2),
        "loop_held_ms_worst": round(max(late) * 1000, 2),
        "loop_held_cpu_ms_worst": round(max(late_cpu) * 1000, 2),
        "without_scrape_ms_worst": round(max(quiet_late) * 1000, 2),
        "own_longest_slice_ms": round(slice_of(texts[-1]) * 1000, 2),
    }


def fill(broker: Broker, options: argparse.Namespace) -> None:
    """Create topics with messages in all queues, and groups whose members have consumed half of them."""
    for number in range(options.topics):
        broker.parts.tables.topics.update(TopicConfig(name_of(number), options.queues, options.queues))
        for queue_id in range(options.queues):
            broker.parts.store.put(message(b"x" * 100, name_of(number), queue_id))
            broker.parts.store.put(message(b"y" * 2_000, name_of(number), queue_id))
        broker.parts.store.commit()
    for number in range(options.groups):
        group, topic = f"group-{number}", name_of(number % options.topics)
        broker.parts.tables.groups.find_or_create(group)
        connection = broker.parts.server.selector.new_connection()
        member = ClientMember(connection, f"client-{number}", "JAVA", VERSION, time.monotonic_ns() // 1_000_000)
        broker.parts.tables.sessions.join_consumers(consumer(subscribe(topic, "*", 1), group=group), member)
        broker.parts.tables.sessions.join_producers(f"producer-{number}", member)
        broker.parts.consumption.pulls.deliveries.note(topic, group, 10, 1_000)
        for queue_id in range(options.queues):
            broker.parts.tables.offsets.commit(group, topic, queue_id, 1)


def name_of(number: int) -> str:
    """Return a topic's name of a usual length."""
    return f"orders-of-region-{number:05d}"


async def scrape_once(url: str, options: argparse.Namespace) -> tuple[float, float, float, float, float, str]:
    """Return seconds, CPU and longest blocks of a scrape, longest blocks of an equal time without it, and the text."""
    watch = Watch()
    began, cpu = time.perf_counter(), time.process_time()
    text = await asyncio.to_thread(fetch, url, options)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    held, held_cpu = await watch.stop()
    watch = Watch()
    await asyncio.sleep(elapsed)
    return elapsed, cpu, held, held_cpu, (await watch.stop())[0], text


def fetch(url: str, options: argparse.Namespace) -> str:
    """Return the page, requested like Prometheus does, without parsing it: that would hold the GIL."""
    request = urllib.request.Request(url, headers={"Accept": ACCEPT[options.format]})
    if options.gzip:
        request.add_header("Accept-Encoding", "gzip")
    with urllib.request.urlopen(request, timeout=60) as response:
        data: bytes = response.read()
    return (gzip.decompress(data) if options.gzip else data).decode()


class Watch:
    """A task that runs once per event-loop iteration and measures the longest time between two of them."""

    def __init__(self) -> None:
        self._task = asyncio.create_task(self._look())
        self._longest_s = self._longest_cpu_s = 0.0

    async def _look(self) -> None:
        last, last_cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0)
            now, now_cpu = time.perf_counter(), time.thread_time()
            self._longest_s = max(self._longest_s, now - last)
            self._longest_cpu_s = max(self._longest_cpu_s, now_cpu - last_cpu)
            last, last_cpu = now, now_cpu

    async def stop(self) -> tuple[float, float]:
        """Return the longest time between two iterations, and the largest CPU time; seconds."""
        self._task.cancel()
        await asyncio.wait([self._task])
        return self._longest_s, self._longest_cpu_s


def slice_of(text: str) -> float:
    """Return the broker's own measurement of the previous scrape."""
    return next((float(line.rpartition(" ")[2]) for line in lines_of(text, "skylark_scrape_hold_seconds")), 0.0)


def lines_of(text: str, name: str) -> Iterator[str]:
    """Yield the samples of a name."""
    return (line for line in text.splitlines() if line.startswith(name))


if __name__ == "__main__":
    main()
