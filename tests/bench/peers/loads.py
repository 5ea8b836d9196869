"""The measurements of a broker. A load is prepared once, then measured in rounds; each round returns figures by name.

    rate         messages per second                     p50_us, p99_us   of requests (end to end: of messages)
    cpu_us       of the broker, user + system, per message               mb_per_s  of bodies
    fdatasync_us median of a bare one, around the round  per_sync  rate x fdatasync: messages that share a sync
    over_us      p50 minus fdatasync                     share     of the rate of the same load in another state

Loads send 1 KiB bodies with UNIQ_KEY, TAGS and one KEY, so that the index works too.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from skylarkmq.clients.mqbench.clusters import added_since, bounds_of, create_topics
from skylarkmq.clients.mqbench.pull_load import Ending
from skylarkmq.clients.mqbench.recorder import Figures
from skylarkmq.clients.mqbench.runs import consume, fill, produce, send_one_at_a_time
from skylarkmq.clients.mqbench.send_load import AtEdge
from skylarkmq.clients.mqbench.workloads import Workload
from tests.bench.peers.disk import fdatasync_us
from tests.bench.peers.end_to_end import end_to_end
from tests.bench.peers.started import ASYNC, SYNC, Started, started

MIB: Final = 1 << 20
GROWN_SEGMENTS: Final = 20
GROWN_SEGMENT_BYTES: Final = 64 * MIB
RECORD_BYTES: Final = 1350
END_TO_END_RATE: Final = 10_000
BACKLOG: Final = 200_000

Sample = dict[str, float]


class Length(msgspec.Struct, frozen=True):
    """Duration of a round's measurement and warm-up, in seconds."""

    seconds: float
    warmup_s: float = 0.3


class Bench(msgspec.Struct, frozen=True):
    """The environment of a load: its broker, the length of its rounds, a directory on the disk of the store."""

    broker: Started
    length: Length
    directory: Path


Measure = Callable[[Bench], Sample]
Ready = Callable[[Bench], Measure]


class Load(msgspec.Struct, frozen=True):
    """`ready` prepares a broker, and returns the function that measures one round. `only_ours`: not compared."""

    ready: Ready
    flush: str = ASYNC
    only_ours: bool = False


def sized(workload: Workload, length: Length) -> Workload:
    """Return the workload with the rounds' length."""
    return msgspec.structs.replace(workload, seconds=length.seconds, warmup_s=length.warmup_s)


def measured(bench: Bench, run: Callable[[AtEdge], Figures]) -> Sample:
    """Return the figures of a run, with the broker's CPU during the measurement."""
    os.sync()  # writes of earlier rounds must not count here
    cpu_s: list[float] = []
    figures = run(lambda: cpu_s.append(bench.broker.cpu_s()))
    if figures.refused:
        print(f"{bench.broker.kind}: refused {figures.refused} {figures.remark[:100]}")
    assert figures.messages, f"{bench.broker.kind} accepted nothing"
    p50, p99 = figures.latency.percentiles((50, 99))
    return {
        "rate": figures.rate,
        "cpu_us": (cpu_s[1] - cpu_s[0]) / figures.messages * 1e6,
        "loader_cpu_us": figures.loader_cpu_s / figures.messages * 1e6,
        "mb_per_s": figures.mb_per_s,
        "p50_us": p50 / 1000,
        "p99_us": p99 / 1000,
    }


def sends(workload: Workload, bench: Bench) -> Measure:
    """Many sends in flight."""
    workload = sized(workload, bench.length)
    create_topics([bench.broker.broker], workload)
    return lambda bench: measured(bench, lambda edge: produce(workload, [bench.broker.broker], at_edge=edge))


def synced_sends(workload: Workload, bench: Bench) -> Measure:
    """Many sends in flight under SYNC_FLUSH, with a bare sync before."""
    measure = sends(workload, bench)

    def measure_both(bench: Bench) -> Sample:
        sample, bare = beside_bare_syncs(bench, lambda: measure(bench))
        return sample | {"fdatasync_us": bare, "per_sync": sample["rate"] * bare / 1e6}

    return measure_both


def beside_bare_syncs(bench: Bench, measure: Callable[[], Sample]) -> tuple[Sample, float]:
    """Return a sample, and the mean of a bare fdatasync just before and just after it (µs)."""
    before = bare_sync_us(bench)
    sample = measure()
    return sample, (before + bare_sync_us(bench)) / 2


def bare_sync_us(bench: Bench) -> float:
    """Return the time of a bare fdatasync on an idle disk: an idle broker fills segments with zeros."""
    with bench.broker.at_rest():
        os.sync()
        return fdatasync_us(bench.directory)


def single_sends(bench: Bench) -> Measure:
    """One send in flight, and a bare sync before."""
    workload = sized(Workload(topic="single", connections=1, in_flight=1), bench.length)
    create_topics([bench.broker.broker], workload)

    def measure(bench: Bench) -> Sample:
        sample, bare = beside_bare_syncs(
            bench,
            lambda: measured(bench, lambda edge: send_one_at_a_time(workload, bench.broker.broker, at_edge=edge)),
        )
        return sample | {"fdatasync_us": bare, "over_us": sample["p50_us"] - bare}

    return measure


def catch_up(bench: Bench) -> Measure:
    """One consumer reads a backlog of four queues repeatedly, 32 messages per pull."""
    workload = sized(Workload(topic="catch-up", connections=1, backlog=BACKLOG, pull=32), bench.length)
    brokers = [bench.broker.broker]
    create_topics(brokers, workload)
    before = bounds_of(brokers, workload)
    filled = fill(msgspec.structs.replace(workload, connections=4), brokers)
    bounds = added_since(before, workload, filled.messages)
    return lambda bench: measured(bench, lambda edge: consume(workload, bounds, Ending.AGAIN, at_edge=edge))


def from_end_to_end(_: Bench) -> Measure:
    """From our SDK's producer to its push consumer, 10,000 messages per second."""

    def measure(bench: Bench) -> Sample:
        bench.broker.wait_routed()
        os.sync()
        ages, lost = end_to_end(bench.broker.namesrv, END_TO_END_RATE, max(2.0, bench.length.seconds))
        p50, p99 = ages.percentiles((50, 99))
        return {"p50_us": p50 / 1000, "p99_us": p99 / 1000, "lost": lost}

    return measure


def many_queues(bench: Bench) -> Measure:
    """10,000 queues over 1,000 topics against four; all have their files, and units are evicted continuously."""
    workload = Workload(topic="many", topics=1000, queues=10, backlog=3_000_000)
    parts = Bench(bench.broker, Length(min(0.5, bench.length.seconds), 0.2), bench.directory)
    few, many = sends(Workload(topic="few"), parts), sends(workload, parts)
    fill(workload, [bench.broker.broker])

    def measure(bench: Bench) -> Sample:
        fews, manys = in_turns(lambda: few(bench), lambda: many(bench))
        rate = fmean(sample["rate"] for sample in manys)
        cpu_us = fmean(sample["cpu_us"] for sample in manys)
        return {"rate": rate, "cpu_us": cpu_us, "share": rate / fmean(sample["rate"] for sample in fews)}

    return measure


def grown(bench: Bench) -> Measure:
    """A log of 20 segments of 64 MiB and two million index entries, alternating with a freshly started broker.

    The parts are short, whatever the length of rounds: the new log must not grow much during the measurement.
    """
    settings = {"mappedFileSizeCommitLog": GROWN_SEGMENT_BYTES}
    kind = bench.broker.kind
    workload = Workload(topic="grown", backlog=GROWN_SEGMENTS * GROWN_SEGMENT_BYTES // RECORD_BYTES)
    length = Length(min(0.35, bench.length.seconds), 0.1)

    def measure(bench: Bench) -> Sample:
        with (
            TemporaryDirectory(prefix="grown-", dir=bench.directory) as directory,
            started(kind, Path(directory) / "old", settings=settings) as old,
            started(kind, Path(directory) / "new", settings=settings) as new,
        ):
            first, second = [Bench(broker, length, bench.directory) for broker in (old, new)]
            runs = {side: sends(workload, side) for side in (first, second)}
            fill(workload, [old.broker])
            olds, news = in_turns(*(partial(run, side) for side, run in runs.items()))
            rate = fmean(sample["rate"] for sample in olds)
            return {"rate": rate, "share": rate / fmean(sample["rate"] for sample in news)}

    return measure


def in_turns(one: Callable[[], Sample], other: Callable[[], Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return four samples of each of two functions, in an order in which steady changes affect both equally."""
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    for which in (0, 1, 1, 0) * 2:
        samples[which].append((one, other)[which]())
    return samples


LOADS: Final[dict[str, Load]] = {
    "sends": Load(partial(sends, Workload(topic="sends"))),
    "one-connection": Load(partial(sends, Workload(topic="sends", connections=1))),
    "single": Load(single_sends),
    "batches": Load(partial(sends, Workload(topic="batches", batch=100, in_flight=4))),
    "catch-up": Load(catch_up),
    "end-to-end": Load(from_end_to_end),
    "many-queues": Load(many_queues, only_ours=True),
    "grown": Load(grown, only_ours=True),
    "sync-16": Load(partial(synced_sends, Workload(topic="sends", in_flight=16)), SYNC),
    "sync-64": Load(partial(synced_sends, Workload(topic="sends", in_flight=64)), SYNC),
    "sync-single": Load(single_sends, SYNC),
}
